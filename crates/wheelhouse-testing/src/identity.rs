//! Acting as a ServiceAccount, under RBAC rules.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
    core::v1::ServiceAccount,
    rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject},
};
use kube::{
    Api, Client, Config, Resource,
    api::{ObjectMeta, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    access::{self, Access},
    error::{Error, Result},
    requests::{Mark, Requests},
    rules::RulesReport,
};

/// Longer than anybody looks at a test in a debugger.
const TOKEN_SECONDS: i64 = 24 * 60 * 60;

/// The API server goes by new rules after some milliseconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// The API group of the rules by which [`with_marker`] tells that a grant is in effect.
const MARKERS: &str = "marker.testing.wheelhouse";

static GRANTS: AtomicU64 = AtomicU64::new(0);

/// A rule: these verbs for these resources of one API group, whose name is empty for the core.
///
/// ```
/// let rule = wheelhouse_testing::rule(&["get", "list", "watch"], "", &["configmaps", "pods/status"]);
/// assert_eq!(rule.verbs, ["get", "list", "watch"]);
/// ```
pub fn rule(verbs: &[&str], group: &str, resources: &[&str]) -> PolicyRule {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    PolicyRule {
        verbs: owned(verbs),
        api_groups: Some(owned(&[group])),
        resources: Some(owned(resources)),
        ..PolicyRule::default()
    }
}

/// A ServiceAccount to act as. It may do what every ServiceAccount may, which
/// is next to nothing, and what it was [allowed](Self::allow).
#[derive(Debug)]
pub struct Identity {
    access: Arc<Access>,
    namespace: String,
    name: String,
    config: Config,
}

impl Identity {
    pub(crate) async fn of(access: Arc<Access>, namespace: &str, name: &str) -> Result<Self> {
        let spec = TokenRequestSpec { expiration_seconds: Some(TOKEN_SECONDS), ..Default::default() };
        let accounts: Api<ServiceAccount> = Api::namespaced(access.harness()?, namespace);
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let token = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await
            .map_err(Error::api(format!("get a token of the ServiceAccount {namespace}/{name}")))?;
        let mut config = access.with_token(token.status.unwrap_or_default().token.unwrap_or_default());
        namespace.clone_into(&mut config.default_namespace);
        Ok(Self { access, namespace: namespace.to_owned(), name: name.to_owned(), config })
    }

    /// The name of the ServiceAccount.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whom the API server knows it as: `system:serviceaccount:NAMESPACE:NAME`.
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }

    /// A client that acts as this ServiceAccount; its default namespace is the ServiceAccount's.
    pub fn client(&self) -> Result<Client> {
        access::client(self.config.clone())
    }

    /// The configuration of such a client, for what makes clients of its own.
    pub fn config(&self) -> Config {
        self.config.clone()
    }

    /// A client of this crate, whose requests are not counted.
    pub(crate) fn harness(&self) -> Result<Client> {
        self.access.harness()
    }

    /// A kubeconfig with which a program acts as this ServiceAccount; the file goes with the control plane.
    pub fn kubeconfig(&self) -> Result<PathBuf> {
        let name = format!("{}-{}", self.namespace, self.name);
        self.access.write_kubeconfig(&name, &self.namespace, &self.config.auth_info)
    }

    /// What this ServiceAccount asked since a moment.
    pub async fn requests_since(&self, mark: &Mark) -> Result<Requests> {
        let all = self.access.audit_log.requests_since(mark, &self.access.harness()?).await?;
        Ok(all.by_user(&self.user()))
    }

    /// What of these rules it did not need since a moment, and what it lacked.
    pub async fn check_rules(&self, rules: &[PolicyRule], mark: &Mark) -> Result<RulesReport> {
        Ok(RulesReport::new(rules, &self.requests_since(mark).await?))
    }

    /// Allows it what `rules` say, in its namespace, besides what it may already; in effect on return.
    pub async fn allow(&self, rules: Vec<PolicyRule>) -> Result<()> {
        let harness = self.access.harness()?;
        let (marker, rules) = with_marker(rules);
        let metadata = self.generated_metadata();
        let roles = Api::namespaced(harness.clone(), &self.namespace);
        let role = self.create(&roles, Role { metadata: metadata.clone(), rules: Some(rules) }).await?;
        let role_ref = role_ref("Role", role.metadata);
        let binding = RoleBinding { metadata, role_ref, subjects: Some(vec![self.subject()]) };
        self.create(&Api::namespaced(harness.clone(), &self.namespace), binding).await?;
        self.wait_for(&harness, &marker, Some(self.namespace.clone())).await
    }

    /// Allows it what `rules` say, in the whole cluster, besides what it may already; in effect on return.
    pub async fn allow_everywhere(&self, rules: Vec<PolicyRule>) -> Result<()> {
        let harness = self.access.harness()?;
        let (marker, rules) = with_marker(rules);
        let metadata = self.generated_metadata();
        let role = ClusterRole { metadata: metadata.clone(), rules: Some(rules), ..ClusterRole::default() };
        let role = self.create(&Api::all(harness.clone()), role).await?;
        let role_ref = role_ref("ClusterRole", role.metadata);
        let binding = ClusterRoleBinding { metadata, role_ref, subjects: Some(vec![self.subject()]) };
        self.create(&Api::all(harness.clone()), binding).await?;
        self.wait_for(&harness, &marker, None).await
    }

    fn generated_metadata(&self) -> ObjectMeta {
        let generate_name = Some(format!("{}-{}-", self.namespace, self.name));
        ObjectMeta { generate_name, ..ObjectMeta::default() }
    }

    fn subject(&self) -> Subject {
        Subject {
            kind: "ServiceAccount".to_owned(),
            name: self.name.clone(),
            namespace: Some(self.namespace.clone()),
            ..Subject::default()
        }
    }

    async fn create<K>(&self, api: &Api<K>, object: K) -> Result<K>
    where
        K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + std::fmt::Debug,
    {
        let doing = format!("create a {} for {}", K::kind(&()), self.user());
        api.create(&PostParams::default(), &object).await.map_err(Error::api(doing))
    }

    /// Asks until the marker's rule holds. The administrator asks about the
    /// ServiceAccount, so that it has not itself asked for anything yet.
    async fn wait_for(&self, harness: &Client, marker: &str, namespace: Option<String>) -> Result<()> {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(self.user()),
                resource_attributes: Some(ResourceAttributes {
                    group: Some(MARKERS.to_owned()),
                    resource: Some(marker.to_owned()),
                    verb: Some("get".to_owned()),
                    namespace,
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let reviews = Api::all(harness.clone());
        let begun = Instant::now();
        loop {
            let answer = self.create(&reviews, review.clone()).await?;
            if answer.status.is_some_and(|status| status.allowed) {
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                return Err(Error::RulesNotInEffect { user: self.user(), waited: PATIENCE });
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// The rules and one more, for a resource that does not exist and that nobody
/// else may `get`. As soon as that one holds, all of them do: the API server
/// takes in a role whole. The rules themselves could not tell, since the
/// ServiceAccount may have been allowed the same before.
fn with_marker(mut rules: Vec<PolicyRule>) -> (String, Vec<PolicyRule>) {
    let marker = format!("grant-{}", GRANTS.fetch_add(1, Ordering::Relaxed));
    rules.push(rule(&["get"], MARKERS, &[&marker]));
    (marker, rules)
}

fn role_ref(kind: &str, role: ObjectMeta) -> RoleRef {
    RoleRef {
        api_group: Some("rbac.authorization.k8s.io".to_owned()),
        kind: kind.to_owned(),
        name: role.name.unwrap_or_default(),
    }
}
