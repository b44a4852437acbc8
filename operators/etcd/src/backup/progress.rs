//! How far a long one is, for whoever waits.

use std::sync::Arc;

use tokio::sync::watch;

use crate::api::backup::{Progress, Stage};

/// Tells how far it is; nobody, if nobody listens.
#[derive(Clone, Default)]
pub(super) struct Telling(Option<Arc<watch::Sender<Progress>>>);

impl Telling {
    /// Tells whoever has the other end.
    pub(super) fn to(listener: watch::Sender<Progress>) -> Self {
        Self(Some(Arc::new(listener)))
    }

    /// So many bytes of so many.
    pub(super) fn tell(&self, stage: Stage, bytes: u64, total: u64) {
        if let Some(listener) = &self.0 {
            listener.send_modify(|progress| {
                (progress.stage, progress.bytes, progress.total) = (stage, bytes, total);
            });
        }
    }
}
