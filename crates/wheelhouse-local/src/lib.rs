//! Real upstream Kubernetes on one machine.
pub mod address_plan;
pub mod binaries;
pub mod certificates;
mod command;
pub mod control_plane;
pub mod error;
pub mod folders;
pub mod kubeconfig;
pub mod processes;
pub mod progress;
