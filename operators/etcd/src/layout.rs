//! What is where in a pod of an etcd cluster.

/// The port of clients.
pub(crate) const CLIENT_PORT: u16 = 2379;
/// The port of the other members.
pub(crate) const PEER_PORT: u16 = 2380;
/// The port on which etcd tells its metrics.
pub(crate) const METRICS_PORT: u16 = 2381;
/// The port on which the supervisor says how etcd is.
pub(crate) const HEALTH_PORT: u16 = 2382;

/// Where the volume of a member is.
pub(crate) const VOLUME: &str = "/var/etcd";
/// What says whose data is on the volume.
pub(crate) const MARK: &str = "/var/etcd/member.json";
/// Where data lies ready for a member that is to begin with it.
pub(crate) const PREPARED: &str = "/var/etcd/prepared";
/// Where the backup is put that a member begins from.
pub(crate) const SNAPSHOT: &str = "/var/etcd/snapshot.db";
/// Where the volume of a survivor is, in the pod of whoever begins from it.
pub(crate) const SURVIVOR: &str = "/var/survivor";
/// Where the supervisor's program is.
pub(crate) const PROGRAM_FOLDER: &str = "/wheelhouse";
/// The supervisor's program.
pub(crate) const PROGRAM: &str = "/wheelhouse/etcd-operator";

/// What tells a supervisor the version of etcd in its pod.
pub(crate) const VERSION_VARIABLE: &str = "MEMBER_VERSION";

/// The container that etcd runs in.
pub(crate) const CONTAINER: &str = "etcd";
