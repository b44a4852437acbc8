//! Real upstream Kubernetes on one machine.
//!
//! A [`Cluster`] is a control plane and nodes, each of them a machine in
//! namespaces of its own on this host: real kubelets with containerd that can be
//! cut off and healed. It outlives the command that started it, and `down`
//! leaves nothing of it.
//!
//! The way through this crate: [`cluster`] brings the parts together;
//! [`binaries`] builds Kubernetes; [`control_plane`] and `node` say how its
//! programs are called; `machine`, `network` and `cgroups` are what they run in;
//! [`processes`] finds them again; [`address_plan`] gives every cluster addresses
//! of its own; `volumes` are what pods keep; [`images`] builds container images
//! without Docker; [`chaos`] strikes all of it.

mod addons;
pub mod address_plan;
mod archive;
pub mod binaries;
pub mod certificates;
mod cgroups;
pub mod chaos;
pub mod cluster;
mod command;
pub mod control_plane;
pub mod demo;
pub mod error;
pub mod folders;
mod go;
pub mod images;
pub mod kubeconfig;
mod machine;
mod machine_image;
pub mod manifests;
mod network;
mod node;
mod preflight;
pub mod processes;
pub mod progress;
pub mod random;
mod volumes;

pub use cluster::{Cluster, Request, Shape};
pub use error::{Error, Result};
pub use progress::Progress;
