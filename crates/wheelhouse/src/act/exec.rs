//! Commands in pods.

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::AttachParams};
use tokio::io::AsyncReadExt as _;

use super::{Actor, CALL_LIMIT, Done, conflict, too_late};
use crate::{
    error::{Category, Error, Result},
    plan::Exec,
};

/// More than this of what a command says is not kept.
const OUTPUT_KEPT: u64 = 64 << 10;

impl Actor<'_> {
    pub(super) async fn exec(&self, exec: &Exec) -> Result<Done> {
        let doing = format!("run {} in pod {}", exec.command.join(" "), exec.pod.key());
        match tokio::time::timeout(CALL_LIMIT, self.run(&doing, exec)).await {
            Ok(ran) => ran,
            Err(_) => Err(too_late(&doing)),
        }
    }

    async fn run(&self, doing: &str, exec: &Exec) -> Result<Done> {
        let Some(namespace) = &exec.pod.namespace else {
            return Err(Error::new(Category::Bug, format!("cannot {doing}: the pod has no namespace")));
        };
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let live = Api::<Pod>::namespaced(self.reading.clone(), namespace);
        let live = live.get_opt(&exec.pod.name).await.map_err(Error::api(doing))?;
        if live.and_then(|pod| pod.metadata.uid).as_ref() != Some(&exec.pod.uid) {
            return Err(conflict(format!("cannot {doing}: it is another pod now")));
        }
        let params = AttachParams::default().container(&exec.container).stdin(false).stdout(false);
        let mut running =
            pods.exec(&exec.pod.name, &exec.command, &params).await.map_err(Error::write(doing))?;
        let mut complaint = String::new();
        if let Some(mut stderr) = running.stderr() {
            // What it says is for the error message only. All of it is read: a
            // command that cannot get rid of its output does not end.
            let _ = (&mut stderr).take(OUTPUT_KEPT).read_to_string(&mut complaint).await;
            let _ = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await;
        }
        let status = match running.take_status() {
            Some(status) => status.await,
            None => None,
        };
        match status {
            Some(status) if status.status.as_deref() == Some("Success") => Ok(Done::Changed),
            Some(status) => {
                let why = status.message.unwrap_or_default();
                Err(Error::application(format!("cannot {doing}: {why}: {}", complaint.trim())))
            }
            None => Err(Error::new(
                Category::LostAnswer,
                format!("cannot tell whether this took effect: {doing}"),
            )),
        }
    }
}
