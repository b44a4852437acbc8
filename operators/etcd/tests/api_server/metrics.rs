//! What the operator and real members tell, and that rules and dashboard ask for nothing else.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::{Child, Stdio},
    sync::Arc,
    time::Duration,
};

use etcd_operator::{
    EtcdClusters, Scope,
    api::{EtcdCluster, EtcdMember},
    etcd::{Client, Tcp},
    simulation::{Simulated, Simulation},
};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;
use wheelhouse::manager::RunSettings;
use wheelhouse_local::{binaries::Binaries, progress::Progress};
use wheelhouse_testing::{free_address, spawn_tethered};

use super::place::{Place, eventually};

/// How the names of what the operator tells begin; what else is asked for is etcd's own.
const OF_THE_OPERATOR: [&str; 6] = [
    "etcd_operator_",
    "controller_runtime_",
    "leader_election_",
    "rest_client_",
    "wheelhouse_",
    "workqueue_",
];
const OF_MEMBERS: [&str; 3] = ["etcd_", "grpc_server_", "process_"];

/// What is told at an address, line by line.
async fn told_at(address: SocketAddr) -> Vec<String> {
    let mut text = String::new();
    let read = async {
        let mut stream = tokio::net::TcpStream::connect(address).await?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await?;
        stream.read_to_string(&mut text).await
    };
    // Who is not there yet tells nothing.
    let _ = read.await;
    text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

fn names(told: &[String]) -> BTreeSet<&str> {
    told.iter().filter_map(|line| line.split(['{', ' ']).next()).collect()
}

/// What rules and dashboard ask for.
fn asked() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("monitoring");
    let read = |file: &str| std::fs::read_to_string(folder.join(file)).unwrap();
    let rules = read("rules.yaml");
    let without_comments: Vec<_> = rules.lines().filter(|line| !line.starts_with('#')).collect();
    without_comments.join("\n") + &read("dashboard.json").replace("\\\"", "\"")
}

/// The words that begin so.
fn words<'a>(text: &'a str, beginnings: &[&str]) -> BTreeSet<&'a str> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| beginnings.iter().any(|beginning| word.starts_with(beginning))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_operator_is_asked_for_it_tells_of_every_cluster_that_is_there() {
    let place = Place::new("metrics").await;
    let namespace = place.namespace.name().to_owned();
    let members = Arc::new(Simulation::new(&namespace, "db", Ipv4Addr::new(192, 0, 2, 1)));
    let dialer = Arc::new(Simulated(members.clone()));
    let manager = etcd_operator::manager_of(EtcdClusters {
        dialer,
        ..EtcdClusters::from_environment(Scope::OwnNamespace)
    });
    let rules = [manager.rules(), manager.lease_rules()].concat();
    let identity = place.namespace.with_rules(rules).await.unwrap();
    let settings = RunSettings {
        namespaces: vec![namespace.clone()],
        listen: ([127, 0, 0, 1], 0).into(),
        ..RunSettings::default()
    };
    let stop = CancellationToken::new();
    let started = manager.start(identity.config(), settings, stop.clone()).await.unwrap();
    let address = started.address();

    place.cluster("db", json!({"size": 3})).await.unwrap();
    let mut elsewhere = super::place::manifest("EtcdCluster", "elsewhere", json!({"size": 1}));
    elsewhere["metadata"]["annotations"] = json!({"etcd.database.coreos.com/scope": "clusterwide"});
    place.apply::<EtcdCluster>(elsewhere).await.unwrap();
    eventually("three members are ready", async || {
        let all = Default::default();
        let pods = place.api::<Pod>().list(&all).await.unwrap().items;
        let volumes = place.api::<PersistentVolumeClaim>().list(&all).await.unwrap().items;
        members.play(&place.client, &pods, &volumes).await;
        let status = place.api::<EtcdCluster>().get("db").await.unwrap().status.unwrap_or_default();
        status.ready_members == 3
    })
    .await;
    let own = |told: &[String]| -> BTreeSet<String> {
        let own = told.iter().filter(|line| line.starts_with("etcd_operator_"));
        own.map(|line| line.replace(&namespace, "N")).collect()
    };
    eventually("the cache knows, too", async || {
        let line = r#"etcd_operator_members_ready{namespace="N",cluster="db"} 3.0"#;
        own(&told_at(address).await).contains(line)
    })
    .await;
    let told = told_at(address).await;
    let of_clusters = own(&told);
    for line in [
        r#"etcd_operator_phase{namespace="N",cluster="db",phase="Running"} 1.0"#,
        r#"etcd_operator_paused{namespace="N",cluster="db"} 0.0"#,
        r#"etcd_operator_members_wanted{namespace="N",cluster="db"} 3.0"#,
        r#"etcd_operator_members_voting{namespace="N",cluster="db"} 3.0"#,
        r#"etcd_operator_members_made_total{namespace="N",cluster="db"} 3.0"#,
        r#"etcd_operator_unreachable_seconds{namespace="N",cluster="db"} 0.0"#,
        r#"etcd_operator_condition{namespace="N",cluster="db",condition="Available"} 1.0"#,
    ] {
        assert!(of_clusters.contains(line), "{line} is not in {of_clusters:#?}");
    }
    assert!(of_clusters.iter().all(|line| !line.contains("elsewhere")), "{of_clusters:#?}");

    let asked = asked();
    let wanted = words(&asked, &OF_THE_OPERATOR);
    assert!(wanted.len() > 10, "{wanted:?}");
    let unknown: Vec<_> = wanted.difference(&names(&told)).copied().collect();
    assert!(unknown.is_empty(), "{unknown:?} is asked for, and there is only {:?}", names(&told));
    for condition in asked.split("condition=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
        let label = format!(r#"condition="{condition}""#);
        assert!(told.iter().any(|line| line.contains(&label)), "{label} is asked for, and not told");
    }

    place.api::<EtcdCluster>().delete("db", &Default::default()).await.unwrap();
    eventually("what is gone is told of no more", async || own(&told_at(address).await).is_empty()).await;
    assert_eq!(place.names_of::<EtcdMember>().await.len(), 3, "only the collector of garbage removes them");
    stop.cancel();
    started.finished().await.unwrap();
}

/// Real members on this machine, which end with this.
struct Members {
    processes: Vec<Child>,
    clients: Vec<SocketAddr>,
    metrics: Vec<SocketAddr>,
    _folder: TempDir,
}

impl Members {
    async fn start(count: usize) -> Self {
        let binaries = Binaries::for_tests(&Progress::silent()).await.unwrap();
        let free: Vec<_> = (0..count * 3).map(|_| free_address()).collect();
        let (clients, rest) = free.split_at(count);
        let (peers, metrics) = rest.split_at(count);
        let all: Vec<_> =
            peers.iter().enumerate().map(|(number, peer)| format!("m{number}=http://{peer}")).collect();
        let folder = TempDir::new().unwrap();
        let start = |number: usize| {
            let flags = [
                ("name", format!("m{number}")),
                ("data-dir", folder.path().join(number.to_string()).display().to_string()),
                ("listen-client-urls", format!("http://{}", clients[number])),
                ("advertise-client-urls", format!("http://{}", clients[number])),
                ("listen-peer-urls", format!("http://{}", peers[number])),
                ("initial-advertise-peer-urls", format!("http://{}", peers[number])),
                ("listen-metrics-urls", format!("http://{}", metrics[number])),
                ("initial-cluster", all.join(",")),
            ];
            spawn_tethered(&binaries.program("etcd"), |command| {
                command.args(flags.map(|(flag, value)| format!("--{flag}={value}")));
                command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            })
            .unwrap()
        };
        let processes = (0..count).map(start).collect();
        Self { processes, clients: clients.to_vec(), metrics: metrics.to_vec(), _folder: folder }
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        for process in &mut self.processes {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_members_are_asked_for_real_ones_tell() {
    let members = Members::start(2).await;
    let asked = asked();
    let wanted = words(&asked, &OF_MEMBERS);
    let wanted = &wanted - &words(&asked, &OF_THE_OPERATOR);
    assert!(wanted.len() > 10, "{wanted:?}");
    let put = async || {
        let address = members.clients[0].to_string();
        Client::connect(Arc::new(Tcp), &address, Duration::from_secs(2)).await?.put("a", "b").await
    };
    eventually("a write is acknowledged", async || put().await.is_ok()).await;
    // How far the members are from each other they measure every 30 seconds.
    let begun = std::time::Instant::now();
    loop {
        let told = told_at(members.metrics[0]).await;
        let unknown: Vec<_> = wanted.difference(&names(&told)).copied().collect();
        if unknown.is_empty() {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(90), "{unknown:?} is asked for, and not told");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
