//! A real etcd of one member.

use std::{
    path::Path,
    process::{Child, Stdio},
    sync::Arc,
    time::Duration,
};

use etcd_operator::{
    backup::Source,
    etcd::{Client, Dial, PutResponse, Stream, Tcp, wire::RangeRequest},
};
use futures::future::BoxFuture;
use prost::Message;
use tempfile::TempDir;
use tokio::sync::Notify;
use tonic::{Request, transport::Endpoint};
use tonic_prost::ProstCodec;
use wheelhouse_local::{binaries::Binaries, progress::Progress};
use wheelhouse_testing::{eventually, free_address, spawn_tethered};

pub struct Etcd {
    child: Child,
    pub address: String,
    pub folder: TempDir,
}

#[derive(Clone, PartialEq, prost::Message)]
struct CompactionRequest {
    #[prost(int64, tag = "1")]
    revision: i64,
    #[prost(bool, tag = "2")]
    physical: bool,
}

impl Etcd {
    pub async fn start() -> Self {
        let binaries = Binaries::for_tests(&Progress::shown()).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (address, peer) = (free_address().to_string(), free_address().to_string());
        let flags = [
            format!("--data-dir={}", folder.path().join("data").display()),
            format!("--listen-client-urls=http://{address}"),
            format!("--advertise-client-urls=http://{address}"),
            format!("--listen-peer-urls=http://{peer}"),
            format!("--initial-advertise-peer-urls=http://{peer}"),
            format!("--initial-cluster=default=http://{peer}"),
        ];
        let prepare = |command: &mut std::process::Command| {
            command.args(flags).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        };
        let child = spawn_tethered(&binaries.program("etcd"), prepare).unwrap();
        let etcd = Self { child, address, folder };
        eventually("etcd answers", async || match etcd.connect().await {
            Some(client) => client.get("a").await.is_ok(),
            None => false,
        })
        .await;
        etcd
    }

    async fn connect(&self) -> Option<Client> {
        Client::connect(Arc::new(Tcp), &self.address, Duration::from_secs(5)).await.ok()
    }

    pub async fn client(&self) -> Client {
        self.connect().await.unwrap()
    }

    /// Writes so many keys; the revision after the last.
    pub async fn fill(&self, keys: usize) -> i64 {
        self.fill_with(keys, 500).await
    }

    pub async fn fill_with(&self, keys: usize, length: usize) -> i64 {
        let client = self.client().await;
        let mut revision = 0;
        for key in 0..keys {
            let written = client.put(&format!("key-{key}"), &"v".repeat(length)).await.unwrap();
            revision = written.header.unwrap().revision;
        }
        revision
    }

    /// Deletes a key, and then forgets everything up to that; the revision of it.
    pub async fn delete_and_compact(&self, key: &str) -> i64 {
        let deleted = self.ask("DeleteRange", RangeRequest { key: key.into() }).await;
        let revision = deleted.header.unwrap().revision;
        self.ask("Compact", CompactionRequest { revision, physical: true }).await;
        revision
    }

    async fn ask(&self, what: &str, request: impl Message + 'static) -> PutResponse {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        let mut grpc = tonic::client::Grpc::new(endpoint.connect().await.unwrap());
        grpc.ready().await.unwrap();
        let path = format!("/etcdserverpb.KV/{what}").parse().unwrap();
        let codec = ProstCodec::<_, PutResponse>::default();
        grpc.unary(Request::new(request), path, codec).await.unwrap().into_inner()
    }

    pub fn source(&self) -> Source {
        Source::of(&[format!("http://{}", self.address)], std::path::Path::new("/nowhere")).unwrap()
    }

    /// The same, where nobody is reached before that is told.
    pub fn source_later(&self) -> (Source, Arc<Notify>) {
        let told = Arc::new(Notify::new());
        (Source { dialer: Arc::new(Later(told.clone())), ..self.source() }, told)
    }

    /// As `etcdctl snapshot save` does.
    pub async fn snapshot(&self, to: &Path) {
        let mut snapshot = self.client().await.snapshot().await.unwrap();
        let mut content = Vec::new();
        while let Some(piece) = snapshot.next().await.unwrap() {
            content.extend(piece.blob);
        }
        std::fs::write(to, content).unwrap();
    }
}

struct Later(Arc<Notify>);

impl Dial for Later {
    fn dial(&self, address: &str) -> BoxFuture<'static, std::io::Result<Box<dyn Stream>>> {
        let (told, address) = (self.0.clone(), address.to_owned());
        Box::pin(async move {
            told.notified().await;
            Tcp.dial(&address).await
        })
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
