//! The operator of etcd clusters that does not lose data.
//!
//! - [`api`]: what people write, and what they read back; and the records of members.
//! - [`observe`], [`view`], [`analyse`], [`act`]: an EtcdCluster; [`children`] says what it consists of.
//! - [`incarnation`]: a cluster that begins once more, from a backup or from a survivor.
//! - [`etcd`]: a client of etcd; [`asking`]: what is asked of it; [`positions`]: how far members are; [`standing`]: how far one is
//!   that serves nobody.
//! - [`supervisor`]: what starts etcd in every pod; `layout` says what is where there.
//! - [`backups`], [`restores`]: the operators of EtcdBackup and EtcdRestore; [`backup`]: what takes and fetches
//!   backups, in pods of its own; [`worker`]: those pods.
//! - `metrics`: what the operator tells of each cluster.
//! - `simulation` (a feature): members that only seem to be, for tests and benchmarks.
//! - [`tls`]: which sides speak TLS, and with what.
//! - [`version`]: versions of etcd, and the way from one to another; [`options`]: its flags; [`size`]: sizes.
//!
//! See `docs/decisions/0016-etcd-records-and-supervisors.md`.

pub mod act;
#[cfg(test)]
mod against_etcd;
pub mod analyse;
pub mod api;
pub mod asking;
pub mod backup;
pub mod backups;
pub mod children;
pub mod etcd;
pub mod incarnation;
mod layout;
mod metrics;
pub mod observe;
pub mod options;
pub mod positions;
pub mod restores;
#[cfg(feature = "simulation")]
pub mod simulation;
pub mod size;
pub mod standing;
pub mod supervisor;
pub mod tls;
pub mod version;
pub mod view;
pub mod worker;

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::{
    core::v1::{Secret, Service, ServiceAccount},
    policy::v1::PodDisruptionBudget,
    rbac::v1::{Role, RoleBinding},
};
use kube::{
    CustomResourceExt as _, ResourceExt as _,
    core::{Expression, PartialObjectMeta},
};
use wheelhouse::{
    Acting, Controller, Declared, Key, Manager, Operator, Plan, Result, World, cache::Selection,
};

use crate::{
    act::Change,
    api::{
        CLUSTER_WIDE, EtcdCluster, EtcdMember, SCOPE,
        backup::{EtcdBackup, EtcdRestore},
    },
    backups::EtcdBackups,
    etcd::{Dial, Tcp},
    observe::{PodView, Seen, VolumeView},
    positions::Positions,
    restores::EtcdRestores,
    tls::secrets::Keyring,
};

/// Where the Deployment says which image has etcd. Other versions are beside it.
const ETCD_VARIABLE: &str = "RELATED_IMAGE_ETCD";
/// The one that comes with this version.
const ETCD_IMAGE: &str = "wheelhouse.dev/etcd:v3.6.16";
/// Where the Deployment says which image has the supervisor.
const SUPERVISOR_VARIABLE: &str = "RELATED_IMAGE_SUPERVISOR";
/// This very program.
const SUPERVISOR_IMAGE: &str = concat!("wheelhouse.dev/etcd-operator:", env!("CARGO_PKG_VERSION"));

/// Which clusters an operator looks after; as in the original.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those of its own namespace, unless they say that they are somebody else's.
    OwnNamespace,
    /// Those of all namespaces that say so, and no others.
    ClusterWide,
}

impl Scope {
    /// As the command line says: `-cluster-wide`, or `--cluster-wide`.
    pub fn from_arguments() -> Self {
        let says_so = |argument: String| argument.trim_start_matches('-') == "cluster-wide";
        if std::env::args().skip(1).any(says_so) { Self::ClusterWide } else { Self::OwnNamespace }
    }

    fn includes(self, annotations: &BTreeMap<String, String>) -> bool {
        let says = annotations.get(SCOPE).map(String::as_str);
        match self {
            Self::OwnNamespace => says != Some(CLUSTER_WIDE),
            Self::ClusterWide => says == Some(CLUSTER_WIDE),
        }
    }
}

/// The operator.
pub struct EtcdClusters {
    /// Which clusters it looks after.
    pub scope: Scope,
    /// Where the images of etcd are, unless a cluster says otherwise.
    pub repository: String,
    /// The image with the supervisor.
    pub supervisor_image: String,
    /// How members are reached.
    pub dialer: Arc<dyn Dial>,
    /// How far members are.
    pub positions: Arc<Positions>,
    /// With what the operator shows itself to members.
    pub keyring: Arc<Keyring>,
}

impl EtcdClusters {
    /// With the images that the Deployment names.
    pub fn from_environment(scope: Scope) -> Self {
        let variable = |name, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
        Self {
            scope,
            repository: repository_of(&variable(ETCD_VARIABLE, ETCD_IMAGE)).to_owned(),
            supervisor_image: variable(SUPERVISOR_VARIABLE, SUPERVISOR_IMAGE),
            dialer: Arc::new(Tcp),
            positions: Arc::default(),
            keyring: Arc::default(),
        }
    }
}

impl EtcdClusters {
    /// How members of that cluster are dialled: over TLS, if that is how they speak.
    pub(crate) fn dialer_to(&self, cluster: Key) -> Arc<dyn Dial> {
        self.keyring.dialer(cluster, self.dialer.clone())
    }
}

/// An image without its tag. A colon may also be that of a port.
fn repository_of(image: &str) -> &str {
    match image.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => repository,
        _ => image,
    }
}

impl Operator for EtcdClusters {
    type Resource = EtcdCluster;
    type Observation = Seen;
    type Action = Change;

    async fn observe(&self, cluster: Arc<EtcdCluster>, world: &World<'_>) -> Result<Seen> {
        observe::observe(self, cluster, world).await
    }

    fn analyse(&self, seen: &Seen) -> Plan<Change> {
        analyse::analyse(seen)
    }

    async fn act(&self, action: Change, context: &Acting<'_>) -> Result<()> {
        act::act(action, &self.dialer_to(context.resource.key())).await
    }
}

/// The whole process: what `main` runs.
pub fn manager(scope: Scope) -> Manager {
    manager_of(EtcdClusters::from_environment(scope))
}

/// The same with another operator, as tests need it.
pub fn manager_of(operator: EtcdClusters) -> Manager {
    let (scope, image) = (operator.scope, operator.supervisor_image.clone());
    Manager::new("etcd-operator")
        .version(env!("CARGO_PKG_VERSION"))
        .crd(EtcdCluster::crd())
        .crd(EtcdMember::crd())
        .crd(EtcdBackup::crd())
        .crd(EtcdRestore::crd())
        .image(ETCD_VARIABLE, ETCD_IMAGE)
        .image(SUPERVISOR_VARIABLE, SUPERVISOR_IMAGE)
        .looks_at_its_own_namespace()
        .controller(clusters(operator))
        .controller(backups::controller(EtcdBackups { scope, image: image.clone() }))
        .controller(restores::controller(EtcdRestores { scope, image }))
}

/// The controller of clusters.
pub fn clusters(operator: EtcdClusters) -> Controller<EtcdClusters> {
    let ours = || Selection::labels(Expression::Exists(children::CLUSTER_LABEL.to_owned()));
    let metrics = metrics::of_clusters(operator.scope);
    Controller::new(operator)
        .metrics(metrics)
        .owns_of::<EtcdMember>((), Selection::everything(), Vec::new())
        .owns_of::<PodView>((), ours(), Vec::new())
        .owns_of::<PartialObjectMeta<Service>>((), ours(), Vec::new())
        .owns_of::<PartialObjectMeta<ServiceAccount>>((), ours(), Vec::new())
        .owns_of::<PartialObjectMeta<Role>>((), ours(), Vec::new())
        .owns_of::<PartialObjectMeta<RoleBinding>>((), ours(), Vec::new())
        .owns_of::<PartialObjectMeta<PodDisruptionBudget>>((), ours(), Vec::new())
        .owns_of::<PartialObjectMeta<EtcdBackup>>((), ours(), Vec::new())
        .watches_of::<VolumeView, _>((), ours(), Vec::new(), cluster_of)
        .watches_of::<PartialObjectMeta<Secret>, _>((), ours(), Vec::new(), cluster_of)
        .watches_of::<EtcdBackup, _>((), Selection::everything(), Vec::new(), cluster_of_backup)
        .uses(Declared::new("", "secrets", &["create", "patch"]))
        .uses(Declared::new("", "persistentvolumeclaims", &["create", "patch", "delete"]))
        .uses(Declared::new("", "pods/eviction", &["create"]))
        // Nobody can let supervisors do what they may not do themselves.
        .uses(Declared::new("etcd.database.coreos.com", "etcdmembers/status", &["patch"]))
}

/// Of a backup only the good ones are of interest, and those only when everything else is gone.
fn cluster_of_backup(backup: &EtcdBackup) -> Vec<Key> {
    let cluster = backup.spec.cluster.as_ref();
    cluster.map(|cluster| Key::new(backup.namespace().as_deref(), cluster)).into_iter().collect()
}

/// The cluster that a volume or a Secret has the name of.
fn cluster_of(object: &impl kube::Resource) -> Vec<Key> {
    let cluster = object.labels().get(children::CLUSTER_LABEL);
    cluster.map(|cluster| Key::new(object.namespace().as_deref(), cluster)).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("wheelhouse.dev/etcd:v3.6.16", "wheelhouse.dev/etcd")]
    #[case("127.0.0.1:5000/etcd:v3.6.16", "127.0.0.1:5000/etcd")]
    #[case("127.0.0.1:5000/etcd", "127.0.0.1:5000/etcd")]
    fn other_versions_are_beside_the_image(#[case] image: &str, #[case] repository: &str) {
        assert_eq!(repository_of(image), repository);
    }

    #[test]
    fn the_image_that_is_named_is_of_the_version_that_is_the_default() {
        assert!(ETCD_IMAGE.ends_with(&format!(":v{}", version::DEFAULT)));
    }
}
