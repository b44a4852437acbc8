//! A namespace of one test, from which everything else of that test hangs.

use std::sync::Arc;

use k8s_openapi::api::{
    core::v1::{Namespace as Object, Service, ServiceAccount},
    rbac::v1::PolicyRule,
};
use kube::{
    Api, Client, Resource as _,
    api::{DeleteParams, ListParams, ObjectMeta, PostParams},
};

use crate::{
    access::{self, Access},
    error::{Error, Result},
    events::EventCapture,
    identity::Identity,
    requests::{Mark, Requests},
};

/// A namespace that one test has to itself.
///
/// It stays until the control plane goes: no controller runs that could empty it.
#[derive(Debug)]
pub struct Namespace {
    access: Arc<Access>,
    name: String,
}

impl Namespace {
    /// A new one, with the ServiceAccount `default`, which elsewhere the
    /// controller manager makes and without which pods are refused.
    pub(crate) async fn create(access: Arc<Access>, purpose: &str) -> Result<Self> {
        let harness = access.harness()?;
        let metadata = ObjectMeta { generate_name: Some(format!("{purpose}-")), ..ObjectMeta::default() };
        let object = Object { metadata, ..Object::default() };
        let created = Api::all(harness.clone())
            .create(&PostParams::default(), &object)
            .await
            .map_err(Error::api(format!("create a namespace for `{purpose}`")))?;
        let name = created.meta().name.clone().unwrap_or_default();
        create_service_account(&harness, &name, "default").await?;
        Ok(Self { access, name })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A client of the administrator, `kubernetes-admin`, whose default namespace is this one.
    pub fn client(&self) -> Result<Client> {
        let mut config = self.access.admin();
        config.default_namespace.clone_from(&self.name);
        access::client(config)
    }

    /// A ServiceAccount of this namespace, to act as; created if it is not there yet.
    pub async fn service_account(&self, name: &str) -> Result<Identity> {
        create_service_account(&self.access.harness()?, &self.name, name).await?;
        Identity::of(Arc::clone(&self.access), &self.name, name).await
    }

    /// A new ServiceAccount that may do what `rules` say, in this namespace, and nothing else.
    ///
    /// For rules of more than one kind, see [`Identity::allow`] and [`Identity::allow_everywhere`].
    pub async fn with_rules(&self, rules: Vec<PolicyRule>) -> Result<Identity> {
        let identity = self.new_service_account().await?;
        identity.allow(rules).await?;
        Ok(identity)
    }

    /// A new ServiceAccount that may do what `rules` say, in the whole cluster, and nothing else.
    pub async fn with_cluster_rules(&self, rules: Vec<PolicyRule>) -> Result<Identity> {
        let identity = self.new_service_account().await?;
        identity.allow_everywhere(rules).await?;
        Ok(identity)
    }

    async fn new_service_account(&self) -> Result<Identity> {
        let metadata = ObjectMeta { generate_name: Some("under-rules-".to_owned()), ..ObjectMeta::default() };
        let object = ServiceAccount { metadata, ..ServiceAccount::default() };
        let created = Api::<ServiceAccount>::namespaced(self.access.harness()?, &self.name)
            .create(&PostParams::default(), &object)
            .await
            .map_err(Error::api(format!("create a ServiceAccount in namespace {}", self.name)))?;
        let name = created.metadata.name.unwrap_or_default();
        Identity::of(Arc::clone(&self.access), &self.name, &name).await
    }

    /// The events of this namespace: those that there are, and from now on every new one.
    pub async fn events(&self) -> Result<EventCapture> {
        EventCapture::start(self.access.harness()?, &self.name).await
    }

    /// Deletes the Services of this namespace: there are only so many addresses for them, and
    /// whoever makes hundreds of namespaces would use them up.
    pub(crate) async fn release_addresses(&self) -> Result<()> {
        let services: Api<Service> = Api::namespaced(self.access.harness()?, &self.name);
        services
            .delete_collection(&DeleteParams::default(), &ListParams::default())
            .await
            .map(drop)
            .map_err(Error::api(format!("delete the Services of namespace {}", self.name)))
    }

    /// This moment in the sequence of requests.
    pub async fn mark(&self) -> Result<Mark> {
        self.access.audit_log.mark(&self.access.harness()?).await
    }

    /// What was asked about objects in this namespace since a moment, by whomever but this crate.
    pub async fn requests_since(&self, mark: &Mark) -> Result<Requests> {
        let all = self.access.audit_log.requests_since(mark, &self.access.harness()?).await?;
        Ok(all.in_namespace(&self.name))
    }
}

async fn create_service_account(harness: &Client, namespace: &str, name: &str) -> Result<()> {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let object = ServiceAccount { metadata, ..ServiceAccount::default() };
    match Api::namespaced(harness.clone(), namespace).create(&PostParams::default(), &object).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        created => created
            .map(drop)
            .map_err(Error::api(format!("create the ServiceAccount {name} in namespace {namespace}"))),
    }
}
