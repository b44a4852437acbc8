//! The keys that a controller reconciled, as a stream for its test.
//!
//! A [`Recorder`] goes into the controller, either around its reconcile function
//! or called by hand; [`ReconciledKeys`] stays in the test.

use std::{
    fmt::Display,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::{Stream, future::BoxFuture};
use kube::{Resource, ResourceExt as _, runtime::controller::Action};
use tokio::sync::mpsc;

use crate::error::{Error, Result};

/// A recorder and the keys that it will have recorded.
pub fn reconciled_keys() -> (Recorder, ReconciledKeys) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (Recorder { sender }, ReconciledKeys { receiver })
}

/// Records which keys were reconciled.
#[derive(Debug, Clone)]
pub struct Recorder {
    sender: mpsc::UnboundedSender<String>,
}

impl Recorder {
    /// This key, as in `namespace/name` or, without a namespace, `name`, was reconciled.
    pub fn record(&self, key: impl Display) {
        // A test that no longer listens is no reason for a controller to stop.
        let _ = self.sender.send(key.to_string());
    }

    /// The same reconcile function, of the shape that kube's `Controller` takes.
    /// The key is recorded when it has ended, whether well or with an error, so
    /// that a test sees all that it did.
    pub fn wrap<K, Ctx, E, Reconcile, Reconciling>(
        self,
        mut reconcile: Reconcile,
    ) -> impl FnMut(Arc<K>, Arc<Ctx>) -> BoxFuture<'static, Result<Action, E>>
    where
        K: Resource,
        Reconcile: FnMut(Arc<K>, Arc<Ctx>) -> Reconciling,
        Reconciling: Future<Output = Result<Action, E>> + Send + 'static,
    {
        move |object, context| {
            let key = key_of(object.as_ref());
            let recorder = self.clone();
            let reconciling = reconcile(object, context);
            Box::pin(async move {
                let outcome = reconciling.await;
                recorder.record(key);
                outcome
            })
        }
    }
}

fn key_of(object: &impl Resource) -> String {
    match object.namespace() {
        Some(namespace) => format!("{namespace}/{}", object.name_any()),
        None => object.name_any(),
    }
}

/// The keys that were reconciled, in the order in which the reconciles ended.
#[derive(Debug)]
pub struct ReconciledKeys {
    receiver: mpsc::UnboundedReceiver<String>,
}

impl ReconciledKeys {
    /// The next key, if one is reconciled in time.
    pub async fn next_key(&mut self, within: Duration) -> Result<String> {
        match tokio::time::timeout(within, self.receiver.recv()).await {
            Ok(Some(key)) => Ok(key),
            Ok(None) => Err(Error::NobodyReconciles),
            Err(_) => Err(Error::NothingReconciled { waited: within }),
        }
    }
}

impl Stream for ReconciledKeys {
    type Item = String;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<String>> {
        self.receiver.poll_recv(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn keys_come_in_the_order_in_which_they_were_recorded() {
        let (recorder, mut keys) = reconciled_keys();
        recorder.record("ns/first");
        recorder.clone().record("second");
        assert_eq!("ns/first", keys.next_key(Duration::ZERO).await.unwrap());
        assert_eq!("second", keys.next_key(Duration::ZERO).await.unwrap());
    }

    #[tokio::test]
    async fn waiting_in_vain_says_whether_a_key_could_still_come() {
        let (recorder, mut keys) = reconciled_keys();
        let waited = keys.next_key(Duration::from_millis(1)).await;
        assert!(matches!(waited, Err(Error::NothingReconciled { .. })));
        drop(recorder);
        let waited = keys.next_key(Duration::from_millis(1)).await;
        assert!(matches!(waited, Err(Error::NobodyReconciles)));
    }
}
