//! Steady load, and what may be changed or killed under it.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use super::{
    CLUSTER, Cdn, MINUTE,
    secure_origin::certificate,
    support::{eventually, http, http::Server, image},
};

/// Requests for as long as it lives: how many, how many had to be sent again because a
/// connection had closed before any byte of an answer, and which failed.
struct Load {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicUsize>,
    again: Arc<AtomicUsize>,
    clients: Vec<JoinHandle<Vec<String>>>,
}

/// What became of it.
struct Told {
    sent: usize,
    again: usize,
    failed: Vec<String>,
}

impl Load {
    fn start(server: &Server) -> Self {
        let (stop, sent, again) = (Arc::default(), Arc::default(), Arc::default());
        let clients = (0..4).map(|client| {
            let (stop, sent, again) = (Arc::clone(&stop), Arc::clone(&sent), Arc::clone(&again));
            let server = server.clone();
            std::thread::spawn(move || load(&server, client, (&stop, &sent, &again)))
        });
        let clients = clients.collect();
        Self { stop, sent, again, clients }
    }

    fn end(self) -> Told {
        self.stop.store(true, Ordering::SeqCst);
        let failed = self.clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
        Told { sent: self.sent.load(Ordering::SeqCst), again: self.again.load(Ordering::SeqCst), failed }
    }
}

type Counters<'a> = (&'a AtomicBool, &'a AtomicUsize, &'a AtomicUsize);

/// At most 15 minutes of requests, one after the other.
fn load(server: &Server, client: usize, (stop, sent, again): Counters<'_>) -> Vec<String> {
    let mut failed = Vec::new();
    let mut connection = None;
    let begun = Instant::now();
    let mut number = 0_usize;
    while !stop.load(Ordering::SeqCst) && begun.elapsed() < 15 * MINUTE {
        number += 1;
        // One in ten is for something that nobody has asked for before.
        let object = if number.is_multiple_of(10) { number } else { number % 50 };
        let path = format!("/{}/{client}-{object}", ["live", "vod"][number / 10 % 2]);
        let asked = Instant::now();
        let (answer, was_again) = http::get_over(&mut connection, server, &path);
        sent.fetch_add(1, Ordering::SeqCst);
        again.fetch_add(usize::from(was_again), Ordering::SeqCst);
        let at = begun.elapsed().as_secs_f64();
        let took = asked.elapsed().as_secs_f64();
        match answer {
            Ok(answer) if answer.status == 200 => {}
            Ok(answer) => {
                failed.push(format!(
                    "{at:.1} s {path}: {} {} ({took:.1} s)",
                    answer.status,
                    answer.body.trim()
                ));
            }
            Err(error) => failed.push(format!("{at:.1} s {path}: {error} ({took:.1} s)")),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    failed
}

/// What happens to the requests while something is done.
fn under_load(name: &str, server: &Server, change: impl FnOnce()) -> Told {
    let load = Load::start(server);
    std::thread::sleep(Duration::from_secs(2));
    let begun = Instant::now();
    change();
    let took = begun.elapsed().as_secs_f64();
    std::thread::sleep(Duration::from_secs(5));
    let told = load.end();
    println!(
        "{name} ({took:.1} s): {} requests, {} sent again, {} failed",
        told.sent,
        told.again,
        told.failed.len()
    );
    told
}

impl Cdn {
    fn scale(&self, cluster: &str, replicas: usize) {
        self.kubectl(&["scale", "cdncluster", cluster, &format!("--replicas={replicas}")]);
        let path = "jsonpath={.status.configuredReplicas} {.status.replicas} {.status.state}";
        let wanted = format!("{replicas} {replicas} Ready");
        let status = || self.kubectl(&["get", "cdncluster", cluster, "-o", path]);
        eventually(3 * MINUTE, status, |status| *status == wanted);
        eventually(2 * MINUTE, || self.pods(cluster).len(), |pods| *pods == replicas);
    }

    /// Changes a spec, and waits until everything is as it is wanted.
    pub(super) fn change(&self, cluster: &str, patch: &str) {
        self.patch(cluster, patch);
        let generations = "jsonpath={.status.observedGeneration}={.metadata.generation} {.status.state}";
        let is_so = |told: &String| {
            let (generations, state) = told.split_once(' ').unwrap_or_default();
            state == "Ready" && generations.split_once('=').is_some_and(|(seen, wanted)| seen == wanted)
        };
        eventually(5 * MINUTE, || self.kubectl(&["get", "cdncluster", cluster, "-o", generations]), is_so);
    }

    fn restart_operator(&self) {
        let operator = ["-n", "wheelhouse-system", "rollout"];
        self.kubectl(&[&operator[..], &["restart", "deployment/cdn-operator"]].concat());
        self.kubectl(&[&operator[..], &["status", "deployment/cdn-operator", "--timeout=120s"]].concat());
    }
}

/// The image of nginx under another tag.
fn nginx_of_tomorrow(cdn: &Cdn) -> String {
    let folder = cdn.wheelhouse.folder("tomorrow");
    let tar = |arguments: &[&str]| {
        assert!(Command::new("tar").current_dir(&folder).args(arguments).status().unwrap().success());
    };
    tar(&["-xf", &image("nginx")]);
    let manifest = folder.join("manifest.json");
    let text = std::fs::read_to_string(&manifest).unwrap();
    assert!(text.contains("nginx:0.1.0"), "{text}");
    std::fs::write(&manifest, text.replace("nginx:0.1.0", "nginx:0.1.1")).unwrap();
    tar(&["-cf", "../tomorrow.tar", "."]);
    let archive = folder.with_extension("tar");
    cdn.wheelhouse.local(&["load", "--cluster", CLUSTER, &archive.to_string_lossy()]).ok();
    "wheelhouse.dev/nginx:0.1.1".to_owned()
}

pub(super) fn nothing_fails_whatever_is_changed(cdn: &Cdn) {
    let http = Server::new(&cdn.address("balancer"));
    let condition = |condition: &str| {
        let sources = format!(
            r#"{{"spec":{{"sources":[{{"name":"cache-live","pathCondition":"{condition}"}},{{"name":"cache-vod","pathCondition":"^/vod/"}}]}}}}"#
        );
        cdn.change("balancer", &sources);
    };
    let delete_pod = || {
        let pod = cdn.pods("cache-live").remove(0);
        cdn.kubectl(&["delete", "pod", &pod]);
        cdn.change("cache-live", "{}");
    };
    let tomorrow = nginx_of_tomorrow(cdn);
    let roll_out = |cluster: &str| cdn.change(cluster, &format!(r#"{{"spec":{{"image":"{tomorrow}"}}}}"#));
    let ((first, first_secret), (second, second_secret)) =
        (certificate("certificate", "cdn.example"), certificate("certificate", "cdn.example"));
    cdn.wheelhouse.apply(CLUSTER, &first_secret);
    let https = Server::with_tls(&format!("{}:443", cdn.host("balancer")), &[first.clone(), second.clone()]);
    let shown = || https.certificate().unwrap_or_default();
    let rotate = || {
        cdn.wheelhouse.apply(CLUSTER, &second_secret);
        // Every pod of it, and more than once.
        let latest = || (0..20).all(|_| shown() == second.to_vec());
        eventually(4 * MINUTE, latest, |latest| *latest);
        cdn.change("balancer", "{}");
    };
    let speak_tls = || cdn.change("balancer", r#"{"spec":{"tls":{"secretName":"certificate"}}}"#);
    let move_origin = || {
        // The same, by another name.
        let origin = "origin-live.default.svc.cluster.local.";
        cdn.change(
            "cache-live",
            &format!(r#"{{"spec":{{"sources":[{{"name":"origin","origin":{{"host":"{origin}"}}}}]}}}}"#),
        );
    };
    let changes: [(&str, &Server, &dyn Fn()); 9] = [
        ("move the origin", &http, &move_origin),
        ("scale a cache to 4", &http, &|| cdn.scale("cache-live", 4)),
        ("scale it back", &http, &|| cdn.scale("cache-live", 2)),
        ("change a path condition", &http, &|| {
            condition("^/(live|stream)/");
            condition("^/live/");
        }),
        ("restart the operator", &http, &|| cdn.restart_operator()),
        ("delete a cache pod", &http, &delete_pod),
        ("roll out a new image", &http, &|| {
            roll_out("cache-live");
            roll_out("balancer");
        }),
        ("have the balancer speak TLS", &http, &speak_tls),
        ("rotate the certificate", &https, &rotate),
    ];
    let mut failures = BTreeMap::new();
    for (name, server, change) in changes {
        let told = under_load(name, server, change);
        if !told.failed.is_empty() {
            failures.insert(name, told.failed.into_iter().take(8).collect::<Vec<_>>());
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

/// A cache pod, and then the node of one: errors for what was in flight, or within the
/// time in which a connection has to be made, and no others.
pub(super) fn who_is_killed_costs_what_was_in_flight(cdn: &Cdn) {
    let http = Server::new(&cdn.address("balancer"));
    let pod = cdn.pods("cache-live").remove(0);
    let told = under_load("kill a cache pod", &http, || {
        // All of its processes at once, but for the shell that does it.
        let kill = ["exec", &pod, "-c", "nginx", "--", "sh", "-c", "kill -9 -1"];
        cdn.kubectl(&kill);
        let restarts = "jsonpath={.status.containerStatuses[?(@.name=='nginx')].restartCount}";
        eventually(MINUTE, || cdn.kubectl(&["get", "pod", &pod, "-o", restarts]), |count| count != "0");
        cdn.change("cache-live", "{}");
    });
    at_most_in_flight(&told);

    // Not the node with the API server, and one that has caches only.
    let victim = "node-3";
    cdn.kubectl(&["cordon", victim]);
    for keep_off in ["cluster.anevia.com/cluster=balancer", "app in (origin-live,origin-vod)"] {
        let on = format!("--field-selector=spec.nodeName={victim}");
        cdn.kubectl(&["delete", "pods", "-l", keep_off, &on]);
    }
    cdn.change("balancer", "{}");
    cdn.kubectl(&["rollout", "status", "deployment/origin-live", "--timeout=60s"]);
    cdn.kubectl(&["rollout", "status", "deployment/origin-vod", "--timeout=60s"]);
    cdn.kubectl(&["uncordon", victim]);
    cdn.scale("cache-live", 3);
    let nodes = || -> BTreeSet<String> {
        let path = "jsonpath={.status.pods[*].node}";
        let nodes = cdn.kubectl(&["get", "cdncluster", "cache-live", "-o", path]);
        nodes.split_whitespace().map(str::to_owned).collect()
    };
    eventually(MINUTE, nodes, |nodes| nodes.contains(victim));
    let told = under_load("kill the node of a cache", &http, || {
        cdn.wheelhouse.kill_node(CLUSTER, victim);
        // Longer than it takes until Kubernetes notices.
        std::thread::sleep(MINUTE);
    });
    at_most_in_flight(&told);
    cdn.wheelhouse.local(&["up", CLUSTER]).ok();
    cdn.scale("cache-live", 2);
}

/// Four clients: one request of each was in flight.
fn at_most_in_flight(told: &Told) {
    let failed = &told.failed;
    assert!(failed.len() <= 4, "{} failed: {:#?}", failed.len(), failed.iter().take(12).collect::<Vec<_>>());
}
