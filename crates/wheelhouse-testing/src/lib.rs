//! What operator tests use: a real control plane, and eyes on what happens there.
//!
//! - [`ControlPlane`]: a real etcd and API server, started in a few seconds,
//!   shared by the tests of a process and gone with it, however it ends.
//! - [`Namespace`]: what each test has to itself, and from which the rest hangs.
//! - [`Place`]: a namespace with an operator's kinds, in which it runs under exactly its rules.
//! - [`Identity`]: a ServiceAccount to act as, under exactly the RBAC rules given.
//! - [`EventCapture`]: the events of a namespace, by type, reason and message.
//! - [`RulesReport`]: which RBAC rules were missing, and which nobody used.
//! - [`Requests`]: what was asked of the API server, counted by verb and resource.
//! - [`ApiProxy`]: stands between a program and the API server, and makes trouble.
//! - [`faults`]: puts an operator through crashes, lost answers, stale reads and the like, and tells
//!   where it does not end up as it should.
//! - [`specs`]: tries out what the schema of a kind lets people write, and takes it back.
//! - [`Recorder`]: which keys a controller reconciled, as a stream.
//! - [`eventually`]: waits for what has to become so.
//! - [`spawn_tethered`]: a program under test that does not outlive it.
//!
//! The programs are those of `KUBEBUILDER_ASSETS` where that is set; otherwise
//! they are built once (which takes minutes) and kept in the user's cache folder.
//!
//! ```
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::Api;
//! use wheelhouse_testing::{ControlPlane, rule};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let namespace = ControlPlane::shared().await?.namespace("reads").await?;
//! let reader = namespace.with_rules(vec![rule(&["get", "list"], "", &["configmaps"])]).await?;
//!
//! let mark = namespace.mark().await?;
//! let config_maps: Api<ConfigMap> = Api::default_namespaced(reader.client()?);
//! config_maps.list(&Default::default()).await?;
//! assert!(config_maps.delete("any", &Default::default()).await.is_err(), "no rule allows that");
//!
//! let requests = reader.requests_since(&mark).await?;
//! assert_eq!(requests.count("list", "configmaps"), 1);
//! assert_eq!(requests.writes().len(), 1);
//! # Ok(())
//! # }
//! ```

mod access;
mod audit_log;
mod control_plane;
mod error;
mod events;
pub mod faults;
mod identity;
mod loopback;
mod namespace;
mod patience;
mod place;
mod proxy;
mod reconciled;
mod requests;
mod rules;
mod scratch;
mod servers;
pub mod specs;
mod tether;
mod watch_faults;

pub use control_plane::ControlPlane;
pub use error::{Error, Result};
pub use events::{CapturedEvent, EventCapture};
pub use identity::{Identity, rule};
pub use kube::runtime::events::EventType;
pub use loopback::free_address;
pub use namespace::Namespace;
pub use patience::eventually;
pub use place::{Operating, Place};
pub use proxy::{ApiProxy, Fault};
pub use reconciled::{ReconciledKeys, Recorder, reconciled_keys};
pub use requests::{Mark, Request, Requests};
pub use rules::RulesReport;
pub use tether::spawn_tethered;
pub use watch_faults::WatchFault;
