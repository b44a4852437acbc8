//! [`Place`]: a namespace with an operator's kinds, in which the operator runs under exactly the rules that it declares.

use k8s_openapi::{
    NamespaceResourceScope, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use wheelhouse::{
    Manager,
    manager::{RunSettings, Started},
};

use crate::{
    control_plane::ControlPlane,
    error::{Error, Result},
    events::EventCapture,
    namespace::Namespace,
};

/// Where one test has an operator work.
///
/// ```no_run
/// # use wheelhouse::Manager;
/// # fn manager() -> Manager { Manager::new("page-operator") }
/// # async fn test() -> wheelhouse_testing::Result<()> {
/// use wheelhouse_testing::Place;
///
/// let place = Place::with("pages", &manager()).await?;
/// let operating = place.start(manager()).await?;
/// // ... create, and look what becomes of it ...
/// operating.stop().await
/// # }
/// ```
pub struct Place {
    namespace: Namespace,
    client: Client,
    cluster_scoped: Vec<String>,
    /// The control plane, where it cannot be shared.
    _own: Option<ControlPlane>,
}

impl Place {
    /// With these kinds, on the control plane that all tests of this process share.
    ///
    /// # Errors
    /// When the control plane does not start, or refuses a kind.
    pub async fn new(purpose: &str, crds: &[CustomResourceDefinition]) -> Result<Self> {
        Self::on(ControlPlane::shared().await?, None, purpose, crds).await
    }

    /// With the kinds of this operator. If they are in no namespace, or the API server asks the operator about
    /// them, this test has a control plane of its own: others would be in its way.
    ///
    /// # Errors
    /// When the control plane does not start, or refuses a kind.
    pub async fn with(purpose: &str, manager: &Manager) -> Result<Self> {
        let crds = manager.crds();
        let is_shared = crds.iter().all(|crd| !is_cluster_scoped(crd)) && manager.webhook_rules().is_empty();
        if is_shared {
            return Self::new(purpose, &crds).await;
        }
        let own = ControlPlane::start().await?;
        let mut place = Self::on(&own, None, purpose, &crds).await?;
        place._own = Some(own);
        Ok(place)
    }

    async fn on(
        plane: &ControlPlane,
        own: Option<ControlPlane>,
        purpose: &str,
        crds: &[CustomResourceDefinition],
    ) -> Result<Self> {
        plane.install(crds).await?;
        let namespace = plane.namespace(purpose).await?;
        let client = namespace.client()?;
        let cluster_scoped =
            crds.iter().filter(|crd| is_cluster_scoped(crd)).map(|crd| crd.name_any()).collect();
        Ok(Self { namespace, client, cluster_scoped, _own: own })
    }

    /// The namespace.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// A client of the administrator, whose default namespace is this one.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The objects of a kind, in this namespace, as the administrator sees them.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::default_namespaced(self.client.clone())
    }

    /// The events about resources that are in no namespace, which are in `default`: those that there are, and from now on
    /// every new one.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn cluster_events(&self) -> Result<EventCapture> {
        EventCapture::start(self.client(), "default").await
    }

    /// Applies a resource as people write it: what they leave out is left out, and a field that is not known is refused.
    ///
    /// # Errors
    /// What the API server says.
    pub async fn apply<K>(&self, name: &str, spec: Value) -> kube::Result<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let kind = ApiResource::erase::<K>(&());
        let is_cluster_scoped = self.cluster_scoped.contains(&format!("{}.{}", kind.plural, kind.group));
        let api: Api<DynamicObject> = match is_cluster_scoped {
            true => Api::all_with(self.client.clone(), &kind),
            false => Api::default_namespaced_with(self.client.clone(), &kind),
        };
        let manifest = json!({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}, "spec": spec});
        let params = PatchParams::apply("kubectl").validation_strict();
        let applied = api.patch(name, &params, &Patch::Apply(&manifest)).await?;
        let value = serde_json::to_value(applied).map_err(kube::Error::SerdeError)?;
        serde_json::from_value(value).map_err(kube::Error::SerdeError)
    }

    /// How an operator runs here: without a Lease, in this namespace, on ports that are free.
    pub fn settings(&self) -> RunSettings {
        let own = match self._own {
            // Nobody else is there; and what is in no namespace is in none of a set either.
            Some(_) => Vec::new(),
            None => vec![self.namespace.name().to_owned()],
        };
        RunSettings {
            namespaces: own,
            no_leader_election: true,
            listen: ([127, 0, 0, 1], 0).into(),
            webhook_listen: ([127, 0, 0, 1], 0).into(),
            webhook_url: Some("self".to_owned()),
            lease_namespace: Some(self.namespace.name().to_owned()),
            ..RunSettings::default()
        }
    }

    /// Starts an operator, as somebody who may do just what it declares.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start(&self, manager: Manager) -> Result<Operating> {
        let webhook_rules = manager.webhook_rules();
        let identity = match (self._own.is_some(), webhook_rules.is_empty()) {
            (true, _) => self.namespace.with_cluster_rules([manager.rules(), webhook_rules].concat()).await?,
            (false, true) => self.namespace.with_rules(manager.rules()).await?,
            (false, false) => {
                let identity = self.namespace.with_cluster_rules(webhook_rules).await?;
                identity.allow(manager.rules()).await?;
                identity
            }
        };
        identity.allow(manager.lease_rules()).await?;
        let stop = CancellationToken::new();
        let started = manager.start(identity.config(), self.settings(), stop.clone()).await;
        let started = started.map_err(|error| Error::Operator { problem: error.to_string() })?;
        Ok(Operating { stop, started })
    }
}

fn is_cluster_scoped(crd: &CustomResourceDefinition) -> bool {
    crd.spec.scope == "Cluster"
}

/// An operator that runs.
pub struct Operating {
    stop: CancellationToken,
    started: Started,
}

impl Operating {
    /// Ends it, and waits until it has.
    ///
    /// # Errors
    /// When it broke off before.
    pub async fn stop(self) -> Result<()> {
        self.stop.cancel();
        self.started.finished().await.map_err(|error| Error::Operator { problem: error.to_string() })
    }
}
