//! etcd's data, as one member sends it.

use std::time::Duration;

use http::uri::PathAndQuery;
use tonic::{Request, Streaming};
use tonic_prost::ProstCodec;

use super::{
    Client, Error, Result, said,
    wire::{Empty, SnapshotResponse},
    with_causes,
};

/// A snapshot on its way: pieces of a file, whose last 32 bytes are the SHA-256 of those before.
pub struct Snapshot {
    stream: Streaming<SnapshotResponse>,
    patience: Duration,
}

impl Client {
    /// The data of this member. It is not asked of the others: it can be older than theirs.
    ///
    /// # Errors
    /// When etcd refuses, or does not answer.
    pub async fn snapshot(&self) -> Result<Snapshot> {
        let mut grpc = tonic::client::Grpc::new(self.channel.clone());
        let beginning = async {
            grpc.ready().await.map_err(|error| Error::NoAnswer(with_causes(&error)))?;
            let path = PathAndQuery::from_static("/etcdserverpb.Maintenance/Snapshot");
            let codec = ProstCodec::<Empty, SnapshotResponse>::default();
            let answer = grpc.server_streaming(Request::new(Empty {}), path, codec).await;
            answer.map(tonic::Response::into_inner).map_err(|status| said(&status))
        };
        match tokio::time::timeout(self.patience, beginning).await {
            Ok(stream) => Ok(Snapshot { stream: stream?, patience: self.patience }),
            Err(_) => Err(Error::NoAnswer(format!("no answer within {:?}", self.patience))),
        }
    }
}

impl Snapshot {
    /// The next piece; none after the last.
    ///
    /// # Errors
    /// When etcd breaks off, or sends nothing for too long.
    pub async fn next(&mut self) -> Result<Option<SnapshotResponse>> {
        match tokio::time::timeout(self.patience, self.stream.message()).await {
            Ok(piece) => piece.map_err(|status| said(&status)),
            Err(_) => Err(Error::NoAnswer(format!("nothing came for {:?}", self.patience))),
        }
    }
}
