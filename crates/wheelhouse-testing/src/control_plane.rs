//! A control plane for tests: a real etcd and a real API server.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams},
};
use tokio::sync::OnceCell;

use crate::{
    access::{self, Access},
    error::{Error, Result},
    namespace::Namespace,
    requests::{Mark, Requests},
    servers::Servers,
};

/// A kind that was registered is served a moment later.
const SERVED_WITHIN: Duration = Duration::from_secs(30);

static SHARED: OnceCell<Result<ControlPlane, Arc<Error>>> = OnceCell::const_new();

/// A real etcd and a real API server, which are gone when this is dropped or
/// this process ends, in whatever way.
///
/// No controllers run: namespaces are never done being deleted, owners that go
/// do not take their children along, and nothing starts pods.
#[derive(Debug)]
pub struct ControlPlane {
    servers: Servers,
    access: Arc<Access>,
}

impl ControlPlane {
    /// The control plane that all tests of this process share; the first who asks starts it.
    ///
    /// Tests keep out of each other's way by [`namespace`](Self::namespace). One
    /// that does not start is not tried again, or every test would wait for that.
    pub async fn shared() -> Result<&'static Self> {
        let started = SHARED.get_or_init(|| async { Self::start().await.map_err(Arc::new) }).await;
        started.as_ref().map_err(|error| Error::Shared(Arc::clone(error)))
    }

    /// A control plane of one's own, for tests that cannot share.
    pub async fn start() -> Result<Self> {
        let (servers, access) = Servers::start().await?;
        Ok(Self { servers, access: Arc::new(access) })
    }

    /// Ends both servers and removes all that they left.
    pub fn stop(self) {
        drop(self);
    }

    /// A new namespace for a test; its name begins with `purpose`.
    pub async fn namespace(&self, purpose: &str) -> Result<Namespace> {
        Namespace::create(Arc::clone(&self.access), purpose).await
    }

    /// Registers kinds, unless they are there, and waits until they are served.
    ///
    /// # Errors
    /// When the API server refuses one.
    pub async fn install(&self, crds: &[CustomResourceDefinition]) -> Result<()> {
        let api: Api<CustomResourceDefinition> = Api::all(self.access.harness()?);
        for crd in crds {
            let name = crd.metadata.name.clone().unwrap_or_default();
            match api.create(&PostParams::default(), crd).await {
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                created => drop(created.map_err(Error::api(format!("register {name}")))?),
            }
            let served = wait_until_served(self.access.harness()?, crd).await;
            served.map_err(Error::api(format!("list what {name} registered")))?;
        }
        Ok(())
    }

    /// A client of the administrator, `kubernetes-admin`, who may do everything.
    pub fn client(&self) -> Result<Client> {
        access::client(self.access.admin())
    }

    /// The administrator's kubeconfig, for `kubectl` and for programs under test.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder().join("kubeconfig")
    }

    /// This moment in the sequence of requests.
    pub async fn mark(&self) -> Result<Mark> {
        self.access.audit_log.mark(&self.access.harness()?).await
    }

    /// All requests since a moment, but for those of this crate and of the API server itself.
    ///
    /// On a shared control plane other tests' are among them: see
    /// [`Namespace::requests_since`] and [`Identity::requests_since`](crate::Identity::requests_since).
    pub async fn requests_since(&self, mark: &Mark) -> Result<Requests> {
        self.access.audit_log.requests_since(mark, &self.access.harness()?).await
    }

    /// The folder with certificates, data and logs.
    pub fn folder(&self) -> &Path {
        self.servers.folder()
    }

    /// The processes of etcd and the API server.
    pub fn pids(&self) -> [u32; 2] {
        self.servers.pids()
    }
}

async fn wait_until_served(client: Client, crd: &CustomResourceDefinition) -> kube::Result<()> {
    let spec = &crd.spec;
    let version = spec.versions.iter().find(|version| version.storage).map_or("", |version| &version.name);
    let kind = GroupVersionKind::gvk(&spec.group, version, &spec.names.kind);
    let resource = ApiResource::from_gvk_with_plural(&kind, &spec.names.plural);
    let objects: Api<DynamicObject> = Api::all_with(client, &resource);
    let begun = Instant::now();
    loop {
        match objects.list(&ListParams::default().limit(1)).await {
            Ok(_) => return Ok(()),
            Err(error) if begun.elapsed() > SERVED_WITHIN => return Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}
