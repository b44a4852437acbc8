//! What is written down about a cluster: enough to find, complete or clear away all the rest.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Shape;
use crate::{
    address_plan::AddressPlan,
    control_plane::Ports,
    error::{Error, Result},
    folders,
};

/// A cluster as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its name.
    pub name: String,
    /// Whether `up` has finished.
    pub phase: Phase,
    /// When `up` was called first.
    pub created: Timestamp,
    /// What it consists of.
    pub kind: Kind,
}

/// Whether `up` has finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// `up` runs, or was killed.
    Creating,
    /// `up` has finished.
    Ready,
}

/// What a cluster consists of, and the place it was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A control plane on loopback.
    ControlPlaneOnly {
        /// Where it listens.
        ports: Ports,
    },
    /// A control plane and nodes, each a machine of its own.
    Nodes {
        /// The slot that its addresses come from.
        slot: AddressPlan,
        /// How many nodes.
        count: u8,
    },
}

/// The file of a cluster's record, in its folder.
pub(super) const FILE: &str = "cluster.json";

/// Where a cluster's record is.
pub(super) fn path(folder: &Path) -> PathBuf {
    folder.join(FILE)
}

impl Record {
    /// A cluster that is about to be made.
    pub(super) fn new(name: &str, kind: Kind) -> Self {
        Self { name: name.to_owned(), phase: Phase::Creating, created: Timestamp::now(), kind }
    }

    /// Reads the record in a cluster's folder, if there is one.
    pub(super) fn read(folder: &Path) -> Result<Option<Self>> {
        let path = path(folder);
        if !path.exists() {
            return Ok(None);
        }
        serde_json::from_str(&folders::read_text(&path)?).map(Some).map_err(|error| Error::Malformed {
            path,
            expected: "a cluster's record",
            problem: format!("{error}; `wheelhouse local down` clears the cluster away"),
        })
    }

    /// Writes it down.
    pub(super) fn written(self, folder: &Path) -> Result<Self> {
        // It names no secrets, but the folder holds keys.
        folders::create_folder(folder)?;
        let owner_only = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(folder, owner_only).map_err(Error::file("protect", folder))?;
        folders::write_file(&path(folder), serde_json::to_string_pretty(&self).unwrap_or_default(), 0o600)?;
        Ok(self)
    }

    /// The same, with `up` finished, written down.
    pub(super) fn finished(&self, folder: &Path) -> Result<Self> {
        Self { phase: Phase::Ready, ..self.clone() }.written(folder)
    }

    /// The same, with as many nodes as are asked for now.
    pub(super) fn grown_to(self, shape: Shape) -> Result<Self> {
        let name = &self.name;
        let other = |is: &str, wanted: &str| {
            Error::Refused(format!(
                "cluster `{name}` is there already and has {is}, not {wanted}: use it as it is, or `wheelhouse local down {name}` first"
            ))
        };
        match (&self.kind, shape) {
            (Kind::ControlPlaneOnly { ports }, Shape::ControlPlaneOnly { port }) => match port {
                Some(port) if port != ports.api.port() => {
                    Err(other(&format!("its API server on port {}", ports.api.port()), &port.to_string()))
                }
                _ => Ok(self),
            },
            (Kind::Nodes { slot, count }, Shape::Nodes(wanted)) if wanted >= *count => {
                Ok(Self { kind: Kind::Nodes { slot: *slot, count: wanted }, ..self })
            }
            (Kind::Nodes { count, .. }, Shape::Nodes(wanted)) => {
                Err(other(&format!("{count} nodes"), &wanted.to_string()))
            }
            (Kind::Nodes { count, .. }, Shape::ControlPlaneOnly { .. }) => {
                Err(other(&format!("{count} nodes"), "a control plane only"))
            }
            (Kind::ControlPlaneOnly { .. }, Shape::Nodes(_)) => Err(other("a control plane only", "nodes")),
        }
    }
}

/// The sockets that kubelet makes below a cluster's folder, the longest of them.
const LONGEST_SOCKET: &str = "/node-16/kubelet/pod-resources/kubelet.sock";
/// What the kernel takes as the path of a socket.
const MAX_SOCKET_PATH: usize = 107;

/// A path that is too long, or that has letters which mean something in configuration files, would
/// make kubelet or containerd fail, with words that nobody understands.
pub(super) fn check_folder(folder: &Path) -> Result<()> {
    let text = folder.to_string_lossy();
    if !text.chars().all(|each| each.is_ascii_alphanumeric() || "/._-".contains(each)) {
        return Err(Error::Refused(format!(
            "the cluster's folder {text} has characters other than letters, digits and /._- in its path: choose another WHEELHOUSE_STATE_DIR"
        )));
    }
    if let Some(hidden) = ["/run", "/var/run", "/var/log"].iter().find(|hidden| folder.starts_with(hidden)) {
        return Err(Error::Refused(format!(
            "the cluster's folder {text} is below {hidden}, of which every node has its own: choose another WHEELHOUSE_STATE_DIR"
        )));
    }
    let longest = MAX_SOCKET_PATH - LONGEST_SOCKET.len();
    if folder.as_os_str().len() <= longest {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "the cluster's folder {} has a path of more than {longest} characters, too long for kubelet's sockets: choose a shorter name or WHEELHOUSE_STATE_DIR",
        folder.display()
    )))
}

/// A name becomes part of paths, control groups and contexts.
pub(super) fn check_name(name: &str) -> Result<()> {
    let fits = (1..=40).contains(&name.len())
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && !name.ends_with('-')
        && name.chars().all(|each| each.is_ascii_lowercase() || each.is_ascii_digit() || each == '-');
    if fits { Ok(()) } else { Err(Error::BadName(name.to_owned())) }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn with_nodes(count: u8) -> Record {
        Record::new("demo", Kind::Nodes { slot: AddressPlan::of_slot(1).unwrap(), count })
    }

    #[rstest]
    #[case("demo", true)]
    #[case("a-1", true)]
    #[case("", false)]
    #[case("../demo", false)]
    #[case("Demo", false)]
    #[case("1st", false)]
    #[case("demo-", false)]
    #[case("a name", false)]
    #[case("aaaaaaaaaabbbbbbbbbbccccccccccddddddddddx", false)]
    fn a_name_is_safe_to_be_part_of_a_path(#[case] name: &str, #[case] fits: bool) {
        assert_eq!(fits, check_name(name).is_ok());
    }

    #[test]
    fn what_was_written_is_read_again_and_is_for_the_owner_only() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let record = with_nodes(3).written(folder.path()).unwrap();
        assert_eq!(Some(record), Record::read(folder.path()).unwrap());
        assert_eq!(0o700, std::fs::metadata(folder.path()).unwrap().permissions().mode() & 0o777);
    }

    #[test]
    fn a_half_written_record_says_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(path(folder.path()), "{\"name\":").unwrap();
        let error = Record::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("`wheelhouse local down` clears the cluster away"), "{error}");
    }

    #[test]
    fn a_cluster_can_grow_but_not_shrink_or_change_its_kind() {
        assert_eq!(with_nodes(3).kind, with_nodes(2).grown_to(Shape::Nodes(3)).unwrap().kind);
        assert!(with_nodes(3).grown_to(Shape::Nodes(2)).is_err());
        assert!(with_nodes(3).grown_to(Shape::ControlPlaneOnly { port: None }).is_err());
    }
}
