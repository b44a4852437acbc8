//! A client of etcd: the few calls that the operator and the supervisors make, each to one
//! member.
//!
//! The messages are etcd's own (`rpc.proto`), with the fields that are used. tonic carries them.

pub(crate) mod http;
mod snapshot;
pub mod tls;
pub mod wire;

use std::{sync::Arc, time::Duration};

use ::http::{Uri, uri::PathAndQuery};
use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use prost::Message;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tonic::{
    Code, Request,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;

pub use snapshot::Snapshot;
pub use wire::{
    AlarmAction, AlarmMember, AlarmType, DowngradeAction, DowngradeInfo, HashKvResponse, KeyValue, Member,
    PutResponse, RangeResponse, ResponseHeader, StatusResponse,
};
use wire::{
    AlarmRequest, AlarmResponse, CompactionRequest, DowngradeRequest, Empty, HashKvRequest, MemberAddRequest,
    MemberAddResponse, MemberId, MemberListRequest, MemberListResponse, MoveLeaderRequest, PutRequest,
    RangeRequest,
};

/// How long it may take to reach a member.
const CONNECTED_WITHIN: Duration = Duration::from_secs(1);

/// What is said over.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// How a member is reached: by default over TCP. Whoever simulates members brings another.
pub trait Dial: Send + Sync + 'static {
    /// A connection to that address and port.
    fn dial(&self, address: &str) -> BoxFuture<'static, std::io::Result<Box<dyn Stream>>>;

    /// Whether what is said there is said over TLS.
    fn is_secure(&self) -> bool {
        false
    }
}

/// Over TCP.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tcp;

impl Dial for Tcp {
    fn dial(&self, address: &str) -> BoxFuture<'static, std::io::Result<Box<dyn Stream>>> {
        let address = address.to_owned();
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }
}

/// What etcd said no to, or why it said nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It answered.
    #[error("{message}")]
    Refused {
        /// What kind of a no it is.
        code: Code,
        /// In etcd's words.
        message: String,
    },
    /// It did not answer: what was asked for may have taken effect, or may yet.
    #[error("{0}")]
    NoAnswer(String),
}

impl Error {
    /// Whether etcd said this.
    pub fn says(&self, words: &str) -> bool {
        matches!(self, Self::Refused { message, .. } if message.contains(words))
    }

    /// Where etcd asks clients who they are, it refuses a read only after it knows that it could answer.
    pub(crate) fn is_only_locked(&self) -> bool {
        self.says("permission denied") || self.says("user name is empty")
    }
}

/// What etcd answers.
pub type Result<T> = std::result::Result<T, Error>;

/// By what a list of members is known to be what a quorum confirms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirmed {
    /// etcd sees to it itself, if it is asked to: since 3.5.
    ByTheList,
    /// By a read through the same member right before. 3.4 tells what that member remembers, whoever is left.
    ByARead,
}

/// A connection to one member.
#[derive(Clone)]
pub struct Client {
    channel: Channel,
    patience: Duration,
}

impl Client {
    /// Connects to a member at this address and port. No call takes longer than `patience`.
    ///
    /// # Errors
    /// When nobody is there.
    pub async fn connect(dialer: Arc<dyn Dial>, address: &str, patience: Duration) -> Result<Self> {
        let no_answer = |error: &dyn std::error::Error| Error::NoAnswer(with_causes(error));
        let uri: Uri = format!("http://{address}").parse().map_err(|error| no_answer(&error))?;
        // etcd tells by the scheme whether there is a certificate to look at.
        let scheme = if dialer.is_secure() { "https" } else { "http" };
        let origin: Uri = format!("{scheme}://{address}").parse().map_err(|error| no_answer(&error))?;
        let dialled = address.to_owned();
        let connector = tower::service_fn(move |_: Uri| {
            let connecting = dialer.dial(&dialled);
            async move { connecting.await.map(TokioIo::new) }
        });
        let endpoint = Endpoint::from(uri).origin(origin).connect_timeout(CONNECTED_WITHIN);
        let connecting = endpoint.connect_with_connector(connector);
        match tokio::time::timeout(CONNECTED_WITHIN, connecting).await {
            Ok(Ok(channel)) => Ok(Self { channel, patience }),
            Ok(Err(error)) => Err(no_answer(&error)),
            Err(_) => Err(Error::NoAnswer(format!("nobody at {address} within {CONNECTED_WITHIN:?}"))),
        }
    }

    /// What this member says of itself. Asks nobody else.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn status(&self) -> Result<StatusResponse> {
        self.call("/etcdserverpb.Maintenance/Status", Empty {}).await
    }

    /// The ID of the cluster, and who the members are, as a quorum confirms it now.
    ///
    /// # Errors
    /// When there is no quorum, or no answer.
    pub async fn members(&self, confirmed: Confirmed) -> Result<(u64, Vec<Member>)> {
        if confirmed == Confirmed::ByARead {
            match self.get("\0").await {
                Err(error) if !error.is_only_locked() => return Err(error),
                _ => {}
            }
        }
        let request = MemberListRequest { linearizable: true };
        let answer: MemberListResponse = self.call("/etcdserverpb.Cluster/MemberList", request).await?;
        Ok((answer.header.unwrap_or_default().cluster_id, answer.members))
    }

    /// Who the members are, as far as this one knows. Asks nobody else.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn members_it_knows(&self) -> Result<Vec<Member>> {
        let request = MemberListRequest { linearizable: false };
        let answer: MemberListResponse = self.call("/etcdserverpb.Cluster/MemberList", request).await?;
        Ok(answer.members)
    }

    /// Adds a member that only learns. Its ID.
    ///
    /// # Errors
    /// When etcd refuses, or does not answer.
    pub async fn add_learner(&self, peer_url: &str) -> Result<u64> {
        let request = MemberAddRequest { peer_urls: vec![peer_url.to_owned()], is_learner: true };
        let answer: MemberAddResponse = self.call("/etcdserverpb.Cluster/MemberAdd", request).await?;
        Ok(answer.member.map(|member| member.id).unwrap_or_default())
    }

    /// Gives a learner its vote.
    ///
    /// # Errors
    /// When etcd refuses, as it does until the learner has caught up, or does not answer.
    pub async fn promote(&self, id: u64) -> Result<()> {
        self.call::<_, Empty>("/etcdserverpb.Cluster/MemberPromote", MemberId { id }).await.map(drop)
    }

    /// Takes a member out.
    ///
    /// # Errors
    /// When etcd refuses, as it does where that would cost the quorum, or does not answer.
    pub async fn remove(&self, id: u64) -> Result<()> {
        self.call::<_, Empty>("/etcdserverpb.Cluster/MemberRemove", MemberId { id }).await.map(drop)
    }

    /// Lets another member lead. Only the leader can do that.
    ///
    /// # Errors
    /// When etcd refuses, or does not answer.
    pub async fn move_leader(&self, to: u64) -> Result<()> {
        let request = MoveLeaderRequest { target_id: to };
        self.call::<_, Empty>("/etcdserverpb.Maintenance/MoveLeader", request).await.map(drop)
    }

    /// The alarms that are raised. It asks a quorum, by an entry in the log: whoever asks often
    /// reads them in [`Self::status`].
    ///
    /// # Errors
    /// When there is no quorum, or no answer.
    pub async fn alarms(&self) -> Result<Vec<AlarmMember>> {
        self.alarm(AlarmAction::Get, 0, AlarmType::None).await
    }

    /// Takes an alarm of a member back.
    ///
    /// # Errors
    /// When there is no quorum, or no answer.
    pub async fn disarm(&self, member: u64, alarm: AlarmType) -> Result<()> {
        self.alarm(AlarmAction::Deactivate, member, alarm).await.map(drop)
    }

    /// Asks about an alarm, raises it, or takes it back; those that this is about.
    ///
    /// # Errors
    /// When there is no quorum, or no answer.
    pub async fn alarm(
        &self,
        action: AlarmAction,
        member: u64,
        alarm: AlarmType,
    ) -> Result<Vec<AlarmMember>> {
        let request = AlarmRequest { action: action.into(), member_id: member, alarm: alarm.into() };
        let answer: AlarmResponse = self.call("/etcdserverpb.Maintenance/Alarm", request).await?;
        Ok(answer.alarms)
    }

    /// Writes this member's data anew, without the space that is free. Until it answers, the member
    /// serves nobody.
    ///
    /// # Errors
    /// When it fails, or does not answer.
    pub async fn defragment(&self) -> Result<()> {
        self.call::<_, Empty>("/etcdserverpb.Maintenance/Defragment", Empty {}).await.map(drop)
    }

    /// The hash of all that this member knew at a revision.
    ///
    /// # Errors
    /// When it does not know that revision, not yet or not any more, or does not answer.
    pub async fn hash(&self, revision: i64) -> Result<HashKvResponse> {
        self.call("/etcdserverpb.Maintenance/HashKV", HashKvRequest { revision }).await
    }

    /// Checks, allows or cancels the way back to an older minor version, such as `3.5`.
    ///
    /// # Errors
    /// When there is no such way, or no answer.
    pub async fn downgrade(&self, action: DowngradeAction, version: &str) -> Result<()> {
        let request = DowngradeRequest { action: action.into(), version: version.to_owned() };
        self.call::<_, Empty>("/etcdserverpb.Maintenance/Downgrade", request).await.map(drop)
    }

    /// Forgets what was before a revision.
    ///
    /// # Errors
    /// When etcd refuses, or does not answer.
    pub async fn compact(&self, revision: i64) -> Result<()> {
        let request = CompactionRequest { revision, physical: true };
        self.call::<_, Empty>("/etcdserverpb.KV/Compact", request).await.map(drop)
    }

    /// What is under a key, as a quorum confirms it now.
    ///
    /// # Errors
    /// When there is no quorum, or no answer.
    pub async fn get(&self, key: &str) -> Result<RangeResponse> {
        self.call("/etcdserverpb.KV/Range", RangeRequest { key: key.into() }).await
    }

    /// Writes a key.
    ///
    /// # Errors
    /// When etcd refuses, or does not answer: then it may have been written, or may yet be.
    pub async fn put(&self, key: &str, value: &str) -> Result<PutResponse> {
        self.call("/etcdserverpb.KV/Put", PutRequest { key: key.into(), value: value.into() }).await
    }

    async fn call<Q, A>(&self, path: &'static str, request: Q) -> Result<A>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let mut grpc = tonic::client::Grpc::new(self.channel.clone());
        let mut request = Request::new(request);
        // etcd gives up then, too.
        request.set_timeout(self.patience);
        let calling = async {
            grpc.ready().await.map_err(|error| Error::NoAnswer(with_causes(&error)))?;
            let codec = ProstCodec::<Q, A>::default();
            let answer = grpc.unary(request, PathAndQuery::from_static(path), codec).await;
            answer.map(tonic::Response::into_inner).map_err(|status| said(&status))
        };
        match tokio::time::timeout(self.patience, calling).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::NoAnswer(format!("no answer within {:?}", self.patience))),
        }
    }
}

/// Whether a status is etcd's own word, or stands for there being none.
fn said(status: &tonic::Status) -> Error {
    let message = status.message().to_owned();
    match status.code() {
        // The connection broke, or time ran out, ours or etcd's own: nobody knows.
        Code::Cancelled | Code::DeadlineExceeded | Code::Unknown if !message.starts_with("etcdserver: ") => {
            Error::NoAnswer(message)
        }
        Code::Unavailable if !is_final(&message) => Error::NoAnswer(message),
        code => Error::Refused { code, message },
    }
}

/// etcd uses one code for what it did not do and for what it cannot tell.
fn is_final(message: &str) -> bool {
    let refusals = ["unhealthy cluster", "not leader", "stopped", "too many requests"];
    message.starts_with("etcdserver: ") && refusals.iter().any(|refusal| message.contains(refusal))
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// An ID as etcd shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub u64);

impl std::fmt::Display for Id {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:x}", self.0)
    }
}

impl std::str::FromStr for Id {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        u64::from_str_radix(text, 16).map(Self)
    }
}

// JSON numbers are not exact beyond 53 bits.
impl Serialize for Id {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use hyper::service::service_fn;
    use hyper_util::rt::TokioExecutor;

    use super::*;
    use crate::simulation::said;

    /// A member of 3.4: it lists whom it remembers, whoever is left, and answers a read like this.
    struct Remembering(Option<(Code, &'static str)>);

    impl Dial for Remembering {
        fn dial(&self, _: &str) -> BoxFuture<'static, std::io::Result<Box<dyn Stream>>> {
            let refusal = self.0;
            let service = service_fn(move |request: ::http::Request<hyper::body::Incoming>| async move {
                let listed = Member { id: 1, name: "db-0".to_owned(), ..Member::default() };
                let list = MemberListResponse { header: None, members: vec![listed] };
                let answer = match (request.uri().path(), refusal) {
                    ("/etcdserverpb.Cluster/MemberList", _) => Ok(list.encode_to_vec()),
                    ("/etcdserverpb.KV/Range", Some(refusal)) => Err(refusal),
                    _ => Ok(Vec::new()),
                };
                Ok::<_, Infallible>(said(answer))
            });
            let (ours, theirs) = tokio::io::duplex(1 << 16);
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(server.serve_connection(TokioIo::new(theirs), service));
            Box::pin(async move { Ok(Box::new(ours) as Box<dyn Stream>) })
        }
    }

    #[tokio::test]
    async fn a_list_is_confirmed_by_a_quorum_where_etcd_does_not_do_that_itself() {
        let listed = async |read: Option<(Code, &'static str)>, confirmed| {
            let dialer = Arc::new(Remembering(read));
            let client = Client::connect(dialer, "db-0:2379", Duration::from_secs(5)).await.unwrap();
            client.members(confirmed).await.map(|(_, members)| members.len())
        };
        let alone = Some((Code::Unavailable, "etcdserver: request timed out"));
        assert_eq!(listed(alone, Confirmed::ByTheList).await, Ok(1), "it tells what it remembers");
        let why = listed(alone, Confirmed::ByARead).await.unwrap_err();
        assert_eq!(why, Error::NoAnswer("etcdserver: request timed out".to_owned()));
        assert_eq!(listed(None, Confirmed::ByARead).await, Ok(1));
        let locked = Some((Code::InvalidArgument, "etcdserver: user name is empty"));
        assert_eq!(listed(locked, Confirmed::ByARead).await, Ok(1), "it was about to answer");
    }
}
