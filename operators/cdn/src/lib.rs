//! The operator of the talk on complex systems: clusters of balancers and caches that
//! really serve.
//!
//! - [`api`]: what people write, and what they read back.
//! - [`observe`], [`analyse`]: a CdnCluster; [`validity`] says what it cannot be, and
//!   [`children`] what it consists of.
//! - [`mod@purges`]: a CdnPurge.
//! - [`configuration`]: what the operator tells the agents.
//! - [`agent`]: what runs beside nginx in every pod; `layout` says what is where there.
//!
//! See `docs/decisions/0015-a-cdn-of-nginx-and-agents.md`.

pub mod agent;
pub mod analyse;
pub mod api;
mod asking;
pub mod children;
pub mod configuration;
mod layout;
pub mod observe;
pub mod purges;
pub mod validity;

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Service, ServiceAccount},
    policy::v1::PodDisruptionBudget,
    rbac::v1::{Role, RoleBinding},
};
use kube::{Api, Client, CustomResourceExt as _, ResourceExt as _, api::ListParams, core::Expression};
use wheelhouse::{
    Controller, Declared, Exclusion, Key, Manager, NoAction, Operator, Plan, Result, Webhooks, World,
    cache::Selection, webhooks::Request,
};

use crate::{
    api::{CdnCluster, CdnPurge},
    observe::{PodView, Seen},
    purges::CdnPurges,
    validity::{Neighbour, check_sources, check_spec, source_clusters},
};

/// Where the Deployment says which image has nginx.
const NGINX_VARIABLE: &str = "RELATED_IMAGE_NGINX";
/// The one that comes with this version.
const NGINX_IMAGE: &str = concat!("wheelhouse.dev/nginx:", env!("CARGO_PKG_VERSION"));
/// Where the Deployment says which image has the agent.
const AGENT_VARIABLE: &str = "RELATED_IMAGE_AGENT";
/// This very program.
const AGENT_IMAGE: &str = concat!("wheelhouse.dev/cdn-operator:", env!("CARGO_PKG_VERSION"));

/// The operator of clusters.
pub struct CdnClusters {
    /// The image with nginx, unless a cluster says otherwise.
    pub nginx_image: String,
    /// The image with the agent.
    pub agent_image: String,
}

impl CdnClusters {
    /// With the images that the Deployment names.
    pub fn from_environment() -> Self {
        let image = |variable, default: &str| std::env::var(variable).unwrap_or_else(|_| default.to_owned());
        Self {
            nginx_image: image(NGINX_VARIABLE, NGINX_IMAGE),
            agent_image: image(AGENT_VARIABLE, AGENT_IMAGE),
        }
    }
}

impl Operator for CdnClusters {
    type Resource = CdnCluster;
    type Observation = Seen;
    type Action = NoAction;

    async fn observe(&self, cluster: Arc<CdnCluster>, world: &World<'_>) -> Result<Seen> {
        observe::observe(cluster, (&self.nginx_image, &self.agent_image), world).await
    }

    fn analyse(&self, seen: &Seen) -> Plan {
        analyse::analyse(seen)
    }
}

/// The whole process: what `main` runs.
pub fn manager() -> Manager {
    without_webhooks().webhooks(webhooks())
}

/// The same for where the API server cannot ask back, or another copy answers it.
pub fn without_webhooks() -> Manager {
    Manager::new("cdn-operator")
        .version(env!("CARGO_PKG_VERSION"))
        .crd(CdnCluster::crd())
        .crd(CdnPurge::crd())
        .image(NGINX_VARIABLE, NGINX_IMAGE)
        .image(AGENT_VARIABLE, AGENT_IMAGE)
        .controller(clusters(CdnClusters::from_environment()))
        .controller(purges())
}

/// The controller of clusters.
pub fn clusters<O: Operator<Resource = CdnCluster>>(operator: O) -> Controller<O> {
    let ours = || Selection::labels(Expression::Exists(children::LABEL.to_owned()));
    Controller::new(operator)
        .reports_as("CdnCluster")
        .owns_of::<Deployment>((), ours(), Vec::new())
        .owns_of::<Service>((), ours(), Vec::new())
        .owns_of::<ConfigMap>((), ours(), Vec::new())
        .owns_of::<ServiceAccount>((), ours(), Vec::new())
        .owns_of::<Role>((), ours(), Vec::new())
        .owns_of::<RoleBinding>((), ours(), Vec::new())
        .owns_of::<PodDisruptionBudget>((), ours(), Vec::new())
        .watches_of((), ours(), Vec::new(), cluster_of_pod)
        // Nobody can let agents do what they may not do themselves.
        .uses(Declared::new("discovery.k8s.io", "endpointslices", &["get", "list", "watch"]))
        .depends_on::<CdnCluster, _>(sources_of)
}

/// The controller of purges.
pub fn purges() -> Controller<CdnPurges> {
    let ours = || Selection::labels(Expression::Exists(children::LABEL.to_owned()));
    let named = |name: fn(&str) -> String| {
        move |purge: &CdnPurge| vec![Key::new(purge.namespace().as_deref(), &name(&purge.spec.cluster))]
    };
    Controller::new(CdnPurges)
        .reports_as("CdnPurge")
        // They write to one list.
        .shares_key(&Exclusion::new(), |purge| Key::new(purge.namespace().as_deref(), &purge.spec.cluster))
        .depends_on::<CdnCluster, _>(named(str::to_owned))
        .depends_on_of::<ConfigMap, _>((), ours(), Vec::new(), named(children::purges_name))
        .watches_of::<PodView, _>((), ours(), Vec::new(), |_| Vec::new())
}

fn cluster_of_pod(pod: &PodView) -> Vec<Key> {
    let cluster = pod.labels().get(children::LABEL);
    cluster.map(|cluster| Key::new(pod.namespace().as_deref(), cluster)).into_iter().collect()
}

fn sources_of(cluster: &CdnCluster) -> Vec<Key> {
    let namespace = cluster.namespace();
    source_clusters(&cluster.spec).map(|source| Key::new(namespace.as_deref(), source)).collect()
}

/// What CEL cannot say: whether sources go round in a circle, or cannot be sources.
fn webhooks() -> Webhooks {
    Webhooks::new().validates_with(|request: Request<CdnCluster>, client| async move {
        let Some(cluster) = request.object else { return Ok(()) };
        check_spec(&cluster.spec)?;
        if cluster.metadata.deletion_timestamp.is_some() || source_clusters(&cluster.spec).next().is_none() {
            return Ok(());
        }
        match neighbours(&cluster, client).await {
            Ok(others) => check_sources(&cluster.name_any(), &cluster.spec, &others),
            // A condition says it later.
            Err(error) => {
                tracing::warn!(
                    "cannot look at other CdnClusters: {error}; letting {} in",
                    cluster.name_any()
                );
                Ok(())
            }
        }
    })
}

async fn neighbours(
    cluster: &CdnCluster,
    client: Client,
) -> std::result::Result<BTreeMap<String, Neighbour>, kube::Error> {
    let clusters: Api<CdnCluster> = Api::namespaced(client, &cluster.namespace().unwrap_or_default());
    let all = clusters.list(&ListParams::default()).await?;
    let others = all.items.iter().filter(|other| other.name_any() != cluster.name_any());
    Ok(others.map(|other| (other.name_any(), Neighbour::of(other))).collect())
}
