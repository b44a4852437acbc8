//! Simulated members, for where there are no nodes: etcd's own list behind etcd's own protocol, and what
//! kubelets and supervisors do. Supervisors decide by the operator's own table.
//!
//! Everything is in memory, and nothing is dialled for real. What the operator must never do ends the process
//! that plays.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "it stands in for etcd in tests and benchmarks, and says what is wrong by ending"
)]

use std::{
    collections::{BTreeMap, HashMap},
    convert::Infallible,
    net::Ipv4Addr,
    sync::{Arc, Mutex},
};

use futures::future::BoxFuture;
use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use hyper::{Request, Response, body::Incoming, header::HeaderMap, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams},
};
use prost::{Message, bytes::Bytes};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::Code;

use crate::{
    api::{Data, EtcdCluster, EtcdMember, SEED},
    children::{self, ordinal_in},
    etcd::{
        Dial, Stream,
        wire::{
            Member, MemberAddRequest, MemberAddResponse, MemberId, MemberListResponse, MoveLeaderRequest,
            ResponseHeader, StatusResponse,
        },
    },
    layout,
    supervisor::{
        folder::{Folder, Mark},
        word::{Beginning, ClusterSeen, Word, word},
    },
    tls::Scheme,
};

/// The members of one cluster.
pub struct Simulation {
    namespace: String,
    cluster: String,
    first: Ipv4Addr,
    etcd: Mutex<Etcd>,
    playing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Etcd {
    members: Vec<Member>,
    /// Which member answers at which address.
    running: BTreeMap<String, u64>,
    /// As which member there is a log on a volume, by its UID.
    disks: HashMap<String, u64>,
    leader: u64,
    /// How often somebody asked for a change of the members.
    changes: u64,
}

impl Simulation {
    /// Those of that cluster, of which there are none yet. Their addresses are the first one and those after it,
    /// by the members' numbers.
    pub fn new(namespace: &str, cluster: &str, first: Ipv4Addr) -> Self {
        Self {
            namespace: namespace.to_owned(),
            cluster: cluster.to_owned(),
            first,
            etcd: Mutex::default(),
            playing: tokio::sync::Mutex::default(),
        }
    }

    /// Kubelets and supervisors do what they do about these pods and volumes, which are all of the cluster's.
    pub async fn play(&self, client: &Client, pods: &[Pod], volumes: &[PersistentVolumeClaim]) {
        let _playing = self.playing.lock().await;
        let stage = Stage { client, namespace: &self.namespace };
        let addresses: Vec<_> = pods.iter().map(|pod| self.address_of(&pod.name_any())).collect();
        self.etcd.lock().unwrap().running.retain(|address, _| addresses.contains(address));
        for volume in volumes.iter().filter(|volume| volume.metadata.deletion_timestamp.is_some()) {
            // As the controller of volumes does once nobody uses it.
            let patch = Patch::Merge(json!({"metadata": {"finalizers": []}}));
            let claims = stage.api::<PersistentVolumeClaim>();
            let _ = claims.patch(&volume.name_any(), &PatchParams::default(), &patch).await;
        }
        for pod in pods {
            let volume = volumes.iter().find(|volume| volume.name_any() == pod.name_any());
            if let Some(volume) = volume.filter(|volume| volume.metadata.deletion_timestamp.is_none()) {
                self.run(&stage, pod, &volume.uid().unwrap()).await;
            }
        }
    }

    async fn run(&self, stage: &Stage<'_>, pod: &Pod, volume: &str) {
        let name = pod.name_any();
        let address = self.address_of(&name);
        if !has_address(pod) {
            let host = address.split(':').next().unwrap();
            let status = json!({"phase": "Running", "podIP": host, "podIPs": [{"ip": host}],
                "conditions": [{"type": "Ready", "status": "False"}]});
            say::<Pod>(stage, &name, status).await;
        }
        let is_running = self.etcd.lock().unwrap().running.contains_key(&address);
        if !is_running {
            self.start(stage, pod, volume).await;
        }
        let serves = self.serves(&address);
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        let is_ready = conditions.iter().any(|known| known.type_ == "Ready" && known.status == "True");
        if serves != is_ready {
            let status = if serves { "True" } else { "False" };
            say::<Pod>(stage, &name, json!({"conditions": [{"type": "Ready", "status": status}]})).await;
        }
    }

    async fn start(&self, stage: &Stage<'_>, pod: &Pod, volume: &str) {
        let (name, uid) = (pod.name_any(), pod.uid().unwrap());
        let record = stage.api::<EtcdMember>().get_opt(&name).await.unwrap();
        let Some(cluster) = stage.api::<EtcdCluster>().get_opt(&self.cluster).await.unwrap() else { return };
        let log = self.etcd.lock().unwrap().disks.get(volume).copied();
        let mark =
            Mark { cluster_uid: cluster.uid().unwrap(), member: name.clone(), identity: None, version: None };
        let folder = if log.is_some() { Folder::Ours(mark) } else { Folder::Empty };
        let seen = ClusterSeen {
            incarnation: 0,
            seed: cluster.annotations().get(SEED).cloned(),
            has_id: cluster.status.is_some_and(|status| status.cluster_id.is_some()),
        };
        let id = match word(&folder, record.as_ref(), Some(&seen)) {
            Word::GoOn => log.unwrap(),
            Word::Begin(beginning) => {
                let began = json!({"began": true, "data": Data::Empty, "pod": uid});
                if !say_under_version(stage, record.as_ref().unwrap(), began).await {
                    return;
                }
                self.begin(&name, &beginning, record.as_ref().unwrap())
            }
            Word::Prepare(source) => panic!("there is nothing to begin from: {source}"),
            Word::Wait(why) => {
                return say_in_record(
                    stage,
                    record,
                    json!({"data": Data::Empty, "message": why, "pod": uid}),
                )
                .await;
            }
            Word::Refuse(data, why) => {
                return say_in_record(stage, record, json!({"data": data, "message": why, "pod": uid})).await;
            }
        };
        {
            let mut etcd = self.etcd.lock().unwrap();
            etcd.disks.insert(volume.to_owned(), id);
            etcd.running.insert(self.address_of(&name), id);
            if etcd.leader == 0 {
                etcd.leader = id;
            }
        }
        let status = json!({"began": true, "data": Data::Present, "memberID": format!("{id:x}"), "clusterID": "c1",
            "message": "", "pod": uid});
        let record = stage.api::<EtcdMember>().get_opt(&name).await.unwrap();
        say_in_record(stage, record, status).await;
    }

    fn begin(&self, name: &str, beginning: &Beginning, record: &EtcdMember) -> u64 {
        let mut etcd = self.etcd.lock().unwrap();
        match beginning {
            Beginning::NewCluster => {
                assert!(etcd.members.is_empty(), "a second cluster begins");
                let id = id_of(ordinal_in(&self.cluster, name).unwrap());
                etcd.members.push(Member {
                    id,
                    name: name.to_owned(),
                    peer_urls: vec![children::peer_url(Scheme::Http, &self.cluster, &self.namespace, name)],
                    ..Member::default()
                });
                id
            }
            Beginning::Anew(source) => panic!("there is nothing to begin from: {source}"),
            Beginning::Join(_) => {
                let id = record.spec.join.as_ref().unwrap().member_id.0;
                if let Some(member) = etcd.members.iter_mut().find(|member| member.id == id) {
                    name.clone_into(&mut member.name);
                }
                id
            }
        }
    }

    fn serves(&self, address: &str) -> bool {
        let etcd = self.etcd.lock().unwrap();
        let id = etcd.running.get(address);
        etcd.has_quorum() && etcd.members.iter().any(|member| Some(&member.id) == id && !member.is_learner)
    }

    /// The data of a member is gone, and etcd with it.
    pub fn wipe(&self, member: &str) {
        let mut etcd = self.etcd.lock().unwrap();
        let id = etcd.members.iter().find(|known| known.name == member).unwrap().id;
        etcd.disks.retain(|_, held| *held != id);
        etcd.running.retain(|_, running| *running != id);
        if etcd.leader == id {
            let next = etcd.running.values().next().copied();
            etcd.leader = next.unwrap_or_default();
        }
    }

    /// Who has a vote.
    pub fn names(&self) -> Vec<String> {
        let etcd = self.etcd.lock().unwrap();
        etcd.members.iter().filter(|member| !member.is_learner).map(|member| member.name.clone()).collect()
    }
}

impl Etcd {
    fn has_quorum(&self) -> bool {
        let voters: Vec<_> = self.members.iter().filter(|member| !member.is_learner).collect();
        let well = voters.iter().filter(|voter| self.running.values().any(|id| *id == voter.id)).count();
        !voters.is_empty() && well > voters.len() / 2
    }

    /// What etcd says, or refuses.
    fn answer(&mut self, address: &str, path: &str, body: &[u8]) -> Result<Vec<u8>, &'static str> {
        let Some(itself) = self.running.get(address).copied() else { return Err("etcdserver: stopped") };
        let header = Some(ResponseHeader { cluster_id: 0xc1, member_id: itself, revision: 1, raft_term: 1 });
        if path.ends_with("/Status") {
            let is_learner = self.members.iter().any(|member| member.id == itself && member.is_learner);
            // Who was removed hears of nobody any more.
            let is_listed = self.members.iter().any(|member| member.id == itself);
            let leader = if is_listed && self.has_quorum() { self.leader } else { 0 };
            let status = StatusResponse {
                header,
                version: "3.6.16".to_owned(),
                leader,
                is_learner,
                ..Default::default()
            };
            return Ok(status.encode_to_vec());
        }
        if !self.has_quorum() {
            return Err("etcdserver: request timed out");
        }
        if !path.ends_with("/MemberList") && !path.ends_with("/Range") {
            self.changes += 1;
        }
        match path.rsplit('/').next().unwrap_or_default() {
            "MemberList" => Ok(MemberListResponse { header, members: self.members.clone() }.encode_to_vec()),
            // What is under a key nobody asks: only whether a quorum answers.
            "Range" => Ok(Vec::new()),
            "MemberAdd" => self.add(&MemberAddRequest::decode(body).unwrap()),
            "MemberPromote" => {
                let id = MemberId::decode(body).unwrap().id;
                let is_well = self.running.values().any(|running| *running == id);
                match self.members.iter_mut().find(|member| member.id == id) {
                    Some(member) if is_well => member.is_learner = false,
                    Some(_) => {
                        return Err(
                            "etcdserver: can only promote a learner member which is in sync with leader",
                        );
                    }
                    None => return Err("etcdserver: member not found"),
                }
                Ok(Vec::new())
            }
            "MemberRemove" => {
                let id = MemberId::decode(body).unwrap().id;
                self.members.retain(|member| member.id != id);
                assert!(self.has_quorum(), "a removal cost the quorum");
                if self.leader == id {
                    self.leader = self.members.first().map_or(0, |member| member.id);
                }
                Ok(Vec::new())
            }
            "MoveLeader" => {
                self.leader = MoveLeaderRequest::decode(body).unwrap().target_id;
                Ok(Vec::new())
            }
            other => panic!("{other} is not simulated"),
        }
    }

    fn add(&mut self, request: &MemberAddRequest) -> Result<Vec<u8>, &'static str> {
        if self.members.iter().any(|member| member.peer_urls == request.peer_urls) {
            return Err("etcdserver: Peer URLs already exists");
        }
        let is_well = |member: &Member| self.running.values().any(|id| *id == member.id);
        if !self.members.iter().all(is_well) {
            return Err("etcdserver: unhealthy cluster");
        }
        let name = request.peer_urls[0].trim_start_matches("http://").split('.').next().unwrap();
        let member = Member {
            id: id_of(name.rsplit('-').next().unwrap().parse().unwrap()),
            peer_urls: request.peer_urls.clone(),
            is_learner: request.is_learner,
            ..Member::default()
        };
        self.members.push(member.clone());
        Ok(MemberAddResponse { member: Some(member) }.encode_to_vec())
    }
}

impl Simulation {
    /// Whether a member answers at that address.
    pub fn answers_at(&self, address: &str) -> bool {
        self.etcd.lock().unwrap().running.contains_key(address)
    }

    /// How often somebody asked for a change of the members so far.
    pub fn changes(&self) -> u64 {
        self.etcd.lock().unwrap().changes
    }

    /// Answers as the member at that address, until the other side has asked enough.
    pub async fn serve(
        self: Arc<Self>,
        address: String,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) {
        let service = service_fn(move |request| respond(self.clone(), address.clone(), request));
        let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        // However it ends, nobody is left to be told.
        let _ = server.serve_connection(TokioIo::new(stream), service).await;
    }

    fn address_of(&self, member: &str) -> String {
        let number = u32::from(self.first) + ordinal_in(&self.cluster, member).unwrap();
        format!("{}:{}", Ipv4Addr::from(number), layout::CLIENT_PORT)
    }
}

/// Reaches the simulated members of a cluster.
pub struct Simulated(pub Arc<Simulation>);

impl Dial for Simulated {
    fn dial(&self, address: &str) -> BoxFuture<'static, std::io::Result<Box<dyn Stream>>> {
        let (simulation, address) = (self.0.clone(), address.to_owned());
        Box::pin(async move {
            if !simulation.answers_at(&address) {
                return Err(std::io::ErrorKind::ConnectionRefused.into());
            }
            let (ours, theirs) = tokio::io::duplex(1 << 16);
            tokio::spawn(simulation.serve(address, theirs));
            Ok(Box::new(ours) as Box<dyn Stream>)
        })
    }
}

/// gRPC: a message has five bytes before it, and the status comes last.
async fn respond(
    simulation: Arc<Simulation>,
    address: String,
    request: Request<Incoming>,
) -> Result<Response<BoxBody<Bytes, Infallible>>, hyper::Error> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await?.to_bytes();
    let answer = simulation.etcd.lock().unwrap().answer(&address, &path, &body[5..]);
    // Unavailable is what etcd says in these cases.
    Ok(said(answer.map_err(|message| (Code::Unavailable, message))))
}

/// What is said over gRPC.
pub(crate) fn said(answer: Result<Vec<u8>, (Code, &str)>) -> Response<BoxBody<Bytes, Infallible>> {
    let mut trailers = HeaderMap::new();
    let content = match answer {
        Ok(message) => {
            trailers.insert("grpc-status", "0".parse().unwrap());
            let length = u32::try_from(message.len()).unwrap().to_be_bytes();
            [&[0], length.as_slice(), &message].concat()
        }
        Err((code, message)) => {
            trailers.insert("grpc-status", i32::from(code).into());
            trailers.insert("grpc-message", message.parse().unwrap());
            Vec::new()
        }
    };
    let body = Full::new(Bytes::from(content)).with_trailers(async move { Some(Ok(trailers)) }).boxed();
    Response::builder().header("content-type", "application/grpc").body(body).unwrap()
}

/// The number of a member tells its ID, so that every run has the same.
fn id_of(ordinal: u32) -> u64 {
    0xa000 + u64::from(ordinal)
}

/// Where the objects of a cluster are.
struct Stage<'a> {
    client: &'a Client,
    namespace: &'a str,
}

impl Stage<'_> {
    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), self.namespace)
    }
}

fn has_address(pod: &Pod) -> bool {
    pod.status.as_ref().is_some_and(|status| status.pod_ip.is_some())
}

async fn say<K>(stage: &Stage<'_>, name: &str, status: Value)
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned,
{
    let api: Api<K> = stage.api();
    // It may have gone meanwhile.
    let _ = api.patch_status(name, &PatchParams::default(), &Patch::Merge(json!({"status": status}))).await;
}

async fn say_in_record(stage: &Stage<'_>, record: Option<EtcdMember>, status: Value) {
    let Some(record) = record else { return };
    let known = serde_json::to_value(&record.status).unwrap();
    let says = |field: &str, value: &Value| known.get(field).unwrap_or(&json!("")) == value;
    if !status.as_object().unwrap().iter().all(|(field, value)| says(field, value)) {
        say::<EtcdMember>(stage, &record.name_any(), status).await;
    }
}

async fn say_under_version(stage: &Stage<'_>, record: &EtcdMember, status: Value) -> bool {
    let metadata = json!({"resourceVersion": record.metadata.resource_version, "uid": record.metadata.uid});
    let patch = Patch::Merge(json!({"metadata": metadata, "status": status}));
    let records = stage.api::<EtcdMember>();
    records.patch_status(&record.name_any(), &PatchParams::default(), &patch).await.is_ok()
}
