//! A small operator whose decisions each test supplies: from a Widget and its
//! ConfigMaps to a plan.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;
use wheelhouse::{
    Controller, Manager, NoAction, Operator, Plan, Reference, Result, World,
    jiff::Timestamp,
    k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::Condition},
    kube::{
        Api, Client, Config, CustomResource, CustomResourceExt as _,
        api::{Patch, PatchParams, PostParams},
        core::ObjectMeta,
    },
    manager::{RunSettings, Started},
    schemars::{self, JsonSchema},
};
pub use wheelhouse_testing::eventually;
use wheelhouse_testing::{ControlPlane, Identity, Namespace};

/// What is wanted of a Widget.
#[derive(Clone, Debug, Default, PartialEq, CustomResource, Deserialize, Serialize, JsonSchema)]
#[kube(group = "test.wheelhouse.dev", version = "v1", kind = "Widget", namespaced, status = "WidgetStatus")]
#[kube(crates(
    kube_core = "::wheelhouse::kube::core",
    k8s_openapi = "::wheelhouse::k8s_openapi",
    schemars = "::wheelhouse::schemars",
    serde = "::serde",
    serde_json = "::serde_json"
))]
pub struct WidgetSpec {
    pub size: i64,
}

/// What became of it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WidgetStatus {
    pub observed_generation: Option<i64>,
    #[serde(default)]
    pub note: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Detail>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// What the API server fills in where it is not said.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct Detail {
    #[serde(default = "plain")]
    pub grade: String,
}

fn plain() -> String {
    "plain".to_owned()
}

/// What an operator of these tests knows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Seen {
    pub widget: Widget,
    pub config_maps: Vec<ConfigMap>,
    pub children: Vec<Reference>,
    pub now: Timestamp,
}

impl Seen {
    pub fn name(&self) -> &str {
        self.widget.metadata.name.as_deref().unwrap()
    }
}

type Hook = Arc<dyn Fn(Arc<Widget>) -> BoxFuture<'static, ()> + Send + Sync>;

/// Decides as the test says.
#[derive(Clone)]
pub struct Widgets {
    pub analyse: Arc<dyn Fn(&Seen) -> Plan + Send + Sync>,
    /// Called at the beginning of each observation.
    pub hook: Hook,
}

impl Widgets {
    pub fn new(analyse: impl Fn(&Seen) -> Plan + Send + Sync + 'static) -> Self {
        Self { analyse: Arc::new(analyse), hook: Arc::new(|_| Box::pin(async {})) }
    }

    pub fn controller(self) -> Controller<Self> {
        Controller::new(self).owns::<ConfigMap>()
    }
}

impl Operator for Widgets {
    type Resource = Widget;
    type Observation = Seen;
    type Action = NoAction;

    async fn observe(&self, widget: Arc<Widget>, world: &World<'_>) -> Result<Seen> {
        (self.hook)(widget.clone()).await;
        let config_maps = world.owned::<ConfigMap>().await?;
        Ok(Seen {
            widget: (*widget).clone(),
            config_maps: config_maps.iter().map(|config_map| (**config_map).clone()).collect(),
            children: world.children().await?,
            now: world.now(),
        })
    }

    fn analyse(&self, seen: &Seen) -> Plan {
        (self.analyse)(seen)
    }
}

pub fn config_map(name: &str, data: &[(&str, &str)]) -> ConfigMap {
    let data: BTreeMap<_, _> =
        data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..Default::default() },
        data: Some(data),
        ..Default::default()
    }
}

/// One ConfigMap of the Widget's name, and a status: what most tests need.
pub fn one_config_map(seen: &Seen) -> Plan {
    let mut plan = Plan::new();
    plan.apply(
        &config_map(seen.name(), &[("size", &seen.widget.spec.size.to_string())]),
        "every Widget has one",
    );
    plan.set_status(&WidgetStatus {
        observed_generation: seen.widget.metadata.generation,
        note: "seen".into(),
        ..Default::default()
    });
    plan
}

/// A namespace with the CRD installed, and an operator's identity that may do what operators do.
pub struct Place {
    pub namespace: Namespace,
    pub identity: Identity,
    pub client: Client,
}

static CRD: OnceCell<()> = OnceCell::const_new();

impl Place {
    pub async fn new(purpose: &str) -> Self {
        let plane = ControlPlane::shared().await.unwrap();
        CRD.get_or_init(|| async { install_crd(plane.client().unwrap()).await }).await;
        let namespace = plane.namespace(purpose).await.unwrap();
        let identity =
            namespace.with_cluster_rules(vec![wheelhouse_testing::rule(&["*"], "*", &["*"])]).await.unwrap();
        let client = namespace.client().unwrap();
        Self { namespace, identity, client }
    }

    pub fn widgets(&self) -> Api<Widget> {
        Api::default_namespaced(self.client.clone())
    }

    pub fn config_maps(&self) -> Api<ConfigMap> {
        Api::default_namespaced(self.client.clone())
    }

    pub async fn create(&self, name: &str, size: i64) -> Widget {
        self.widgets().create(&PostParams::default(), &Widget::new(name, WidgetSpec { size })).await.unwrap()
    }

    /// Wants another size of the Widget `a`.
    pub async fn resize(&self, size: i64) {
        let patch = Patch::Merge(serde_json::json!({"spec": {"size": size}}));
        self.widgets().patch("a", &PatchParams::default(), &patch).await.unwrap();
    }

    /// Whether the ConfigMap of the Widget `a` is of that size.
    pub async fn is_resized(&self, size: i64) -> bool {
        let found = self.config_maps().get_opt("a").await.unwrap();
        found.is_some_and(|config_map| config_map.data.unwrap()["size"] == size.to_string())
    }

    pub fn settings(&self) -> RunSettings {
        RunSettings {
            namespaces: vec![self.namespace.name().to_owned()],
            no_leader_election: true,
            listen: ([127, 0, 0, 1], 0).into(),
            ..RunSettings::default()
        }
    }

    pub async fn start<O: Operator>(&self, controller: Controller<O>) -> Operating {
        self.start_with(self.identity.config(), self.settings(), controller).await
    }

    pub async fn start_with<O: Operator>(
        &self,
        config: Config,
        settings: RunSettings,
        controller: Controller<O>,
    ) -> Operating {
        Operating::start(Manager::new("test-operator").controller(controller), config, settings).await
    }
}

pub async fn install_crd(client: Client) {
    let crds = Api::all(client.clone());
    crds.create(&PostParams::default(), &Widget::crd()).await.unwrap();
    eventually("the CRD is served", async || {
        Api::<Widget>::all(client.clone()).list(&Default::default()).await.is_ok()
    })
    .await;
}

/// An operator that runs until the test ends it.
pub struct Operating {
    stop: CancellationToken,
    pub started: Started,
}

impl Operating {
    pub async fn start(manager: Manager, config: Config, settings: RunSettings) -> Self {
        let stop = CancellationToken::new();
        let started = manager.start(config, settings, stop.clone()).await.unwrap();
        Self { stop, started }
    }

    pub async fn stop(self) {
        self.stop.cancel();
        self.started.finished().await.unwrap();
    }
}

/// Long enough for anything that would happen by itself to have happened.
pub async fn quiet() {
    tokio::time::sleep(Duration::from_millis(700)).await;
}
