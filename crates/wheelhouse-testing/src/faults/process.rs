//! [`Process`]: an operator that can be killed: in threads of its own, which end
//! with all that they know.

use std::sync::mpsc;

use futures::future::BoxFuture;
use kube::Config;
use tokio::runtime::{Builder, Runtime};

use crate::error::{Error, Result};

/// How an operator is run: with this way to the API server, in that namespace, until
/// it is dropped.
pub(crate) type Run = std::sync::Arc<dyn Fn(Config, String) -> BoxFuture<'static, ()> + Send + Sync>;

/// A running operator.
pub(crate) struct Process {
    runtime: Option<Runtime>,
    ended: mpsc::Receiver<()>,
}

impl Process {
    pub(crate) fn start(run: &Run, config: Config, namespace: &str) -> Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("operator")
            .enable_all()
            .build()
            .map_err(|source| Error::Start { program: "the threads of an operator", source })?;
        let (end, ended) = mpsc::channel();
        let operator = run(config, namespace.to_owned());
        runtime.spawn(async move {
            operator.await;
            // Nobody waits for it if it was killed.
            let _ = end.send(());
        });
        Ok(Self { runtime: Some(runtime), ended })
    }

    /// Whether it ended by itself, which it should not.
    pub(crate) fn has_ended(&self) -> bool {
        !matches!(self.ended.try_recv(), Err(mpsc::TryRecvError::Empty))
    }
}

/// Ends it where it stands.
impl Drop for Process {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
