//! The CDN of the talk, made real: clusters of balancers and caches in three nodes, with
//! real nginx and real traffic.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what is wrong by ending"
)]

#[path = "cdn/bad_input.rs"]
mod bad_input;
#[path = "cdn/load.rs"]
mod load;
#[path = "cdn/secure_origin.rs"]
mod secure_origin;
mod support;

use std::time::{Duration, Instant};

use support::{Wheelhouse, eventually, host::Host, http, image, tree};

const CLUSTER: &str = "cdn";
const MINUTE: Duration = Duration::from_secs(60);

/// What a container must say of itself where only restricted pods may run.
const RESTRICTED: &str = "{runAsNonRoot: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}";

/// What every nginx that is no CDN has to be told, as part of a ConfigMap.
const NGINX: &str = "    daemon off;
    pid /tmp/nginx.pid;
    error_log /dev/stderr warn;
    events {}
    http {
      access_log /dev/stdout;
      client_body_temp_path /tmp/a; proxy_temp_path /tmp/b; fastcgi_temp_path /tmp/c; uwsgi_temp_path /tmp/d; scgi_temp_path /tmp/e;";

/// Two origin servers, each of which says on every path which one it is.
fn origin(name: &str) -> String {
    let slow = "x".repeat(2000);
    format!(
        r#"
apiVersion: v1
kind: ConfigMap
metadata: {{name: {name}}}
data:
  nginx.conf: |
{NGINX}
      server {{
        listen 8080;
        default_type text/plain;
        location / {{ return 200 "{name} $request_uri\n"; }}
        location ~ /slow/ {{ limit_rate 500; return 200 "{slow}\n"; }}
      }}
    }}
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}}}
spec:
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      containers:
      - name: nginx
        image: wheelhouse.dev/nginx:0.1.0
        args: [-c, /config/nginx.conf]
        volumeMounts: [{{name: config, mountPath: /config}}]
        readinessProbe: {{httpGet: {{path: /, port: 8080}}, periodSeconds: 1}}
        securityContext: {RESTRICTED}
      volumes: [{{name: config, configMap: {{name: {name}}}}}]
---
apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec: {{selector: {{app: {name}}}, ports: [{{port: 80, targetPort: 8080}}]}}
"#
    )
}

struct Cdn {
    wheelhouse: Wheelhouse,
}

impl Cdn {
    fn kubectl(&self, arguments: &[&str]) -> String {
        self.wheelhouse.kubectl(CLUSTER, arguments).ok()
    }

    fn wait_for_state(&self, cluster: &str, state: &str) {
        let wait = format!("--for=jsonpath={{.status.state}}={state}");
        self.kubectl(&["wait", &wait, &format!("cdncluster/{cluster}"), "--timeout=180s"]);
    }

    fn address(&self, service: &str) -> String {
        format!("{}:80", self.host(service))
    }

    fn host(&self, service: &str) -> String {
        self.kubectl(&["get", "service", service, "-o", "jsonpath={.spec.clusterIP}"])
    }

    /// What the condition `Ready` says.
    fn says(&self, cluster: &str) -> String {
        let path = "jsonpath={.status.conditions[?(@.type=='Ready')].message}";
        self.kubectl(&["get", "cdncluster", cluster, "-o", path])
    }

    fn patch(&self, cluster: &str, patch: &str) {
        self.kubectl(&["patch", "cdncluster", cluster, "--type=merge", "-p", patch]);
    }

    fn pods(&self, cluster: &str) -> Vec<String> {
        let selector = format!("cluster.anevia.com/cluster={cluster}");
        let names =
            self.kubectl(&["get", "pods", "-l", &selector, "-o", "jsonpath={.items[*].metadata.name}"]);
        names.split_whitespace().map(str::to_owned).collect()
    }
}

#[test]
fn the_cdn_of_the_talk_serves() {
    let images = ["nginx", "cdn-operator"].map(image);
    let before = Host::now();
    let mut wheelhouse = Wheelhouse::new();
    wheelhouse.up(CLUSTER, &["--nodes", "3"]).ok();
    for image in &images {
        wheelhouse.local(&["load", "--cluster", CLUSTER, image]).ok();
    }
    let cdn = Cdn { wheelhouse };
    cdn.wheelhouse.apply(CLUSTER, &std::fs::read_to_string(tree().join("deploy/cdn.yaml")).unwrap());
    cdn.kubectl(&[
        "-n",
        "wheelhouse-system",
        "rollout",
        "status",
        "deployment/cdn-operator",
        "--timeout=120s",
    ]);
    cdn.kubectl(&["label", "namespace", "default", "pod-security.kubernetes.io/enforce=restricted"]);
    the_seeds_clusters_become_ready_in_the_worst_order(&cdn);
    requests_go_the_right_way_and_are_kept(&cdn);
    how_long_something_is_kept_does_not_change_where_it_is_from(&cdn);
    what_is_purged_is_fetched_again(&cdn);
    many_requests_for_one_object_are_one_to_the_origin(&cdn);
    secure_origin::is_asked_only_if_it_is_who_it_says(&cdn);
    one_more_cache_moves_its_share_of_the_keys(&cdn);
    bad_input::is_refused_or_told_and_what_served_goes_on(&cdn);
    load::nothing_fails_whatever_is_changed(&cdn);
    load::who_is_killed_costs_what_was_in_flight(&cdn);
    every_metric_that_is_asked_for_is_told(&cdn);
    cdn.wheelhouse.local(&["down", CLUSTER]).ok();
    assert_eq!("", Host::left_since(&before));
}

fn the_seeds_clusters_become_ready_in_the_worst_order(cdn: &Cdn) {
    let sample = std::fs::read_to_string(tree().join("operators/cdn/samples/cdn.yaml")).unwrap();
    let documents: Vec<_> = sample.split("---\n").collect();
    cdn.wheelhouse.apply(CLUSTER, documents[0]);
    cdn.wait_for_state("balancer", "WaitingSource");
    let described = cdn.kubectl(&["describe", "cdncluster", "balancer"]);
    let is_event = |line: &&str| line.contains("Normal") && line.contains("SourceNotFound");
    let event = described.lines().find(is_event).unwrap_or(&described);
    println!("{event}");
    assert!(event.contains("CdnCluster"), "{event}");
    assert!(event.contains("Source cache-live not found, will retry later"), "{event}");
    for document in documents.iter().skip(1) {
        cdn.wheelhouse.apply(CLUSTER, document);
    }
    for cluster in ["cache-live", "cache-vod", "balancer"] {
        cdn.wait_for_state(cluster, "Ready");
    }
}

fn requests_go_the_right_way_and_are_kept(cdn: &Cdn) {
    let balancer = cdn.address("balancer");
    let missing = http::get(&balancer, "/live/a").unwrap();
    assert_eq!(missing.status, 502);
    assert!(missing.body.contains("cache-live has no origin yet"), "{missing:?}");
    assert_eq!(http::get(&balancer, "/other").unwrap().status, 404);
    for name in ["origin-live", "origin-vod"] {
        cdn.wheelhouse.apply(CLUSTER, &origin(name));
        cdn.kubectl(&["rollout", "status", &format!("deployment/{name}"), "--timeout=60s"]);
    }
    for kind in ["live", "vod"] {
        let patch = format!(
            r#"{{"spec":{{"sources":[{{"name":"origin","origin":{{"host":"origin-{kind}.default.svc.cluster.local"}}}}]}}}}"#
        );
        cdn.patch(&format!("cache-{kind}"), &patch);
    }
    for kind in ["live", "vod"] {
        let path = format!("/{kind}/film");
        let fetched =
            eventually(MINUTE, || http::get(&balancer, &path).unwrap(), |answer| answer.status == 200);
        assert_eq!(fetched.body, format!("origin-{kind} {path}\n"));
        let again = http::get(&balancer, &path).unwrap();
        assert_eq!(again.header("x-cache-status"), Some("HIT"), "{again:?}");
    }
}

fn how_long_something_is_kept_does_not_change_where_it_is_from(cdn: &Cdn) {
    let origin = |kind: &str| format!(r#""origin":{{"host":"origin-{kind}.default.svc.cluster.local"}}"#);
    let (live, vod) = (origin("live"), origin("vod"));
    let sources = format!(
        r#""sources":[{{"name":"special","pathCondition":"^/live/special/",{vod}}},{{"name":"origin",{live}}}]"#
    );
    let ttls = r#""cache":{"ttls":[{"pathCondition":"\\.m3u8$","seconds":1},{"seconds":600}]}"#;
    // What is asked for too early is kept as it was.
    cdn.change("cache-live", &format!(r#"{{"spec":{{{sources},{ttls}}}}}"#));
    let balancer = cdn.address("balancer");
    let from = |path: &str| http::get(&balancer, path).unwrap().body;
    let special = "/live/special/list.m3u8";
    assert_eq!(from(special), format!("origin-vod {special}\n"));
    assert_eq!(from("/live/list.m3u8"), "origin-live /live/list.m3u8\n");
    assert_eq!(cached(&balancer, "/live/list.m3u8"), "HIT");
    std::thread::sleep(Duration::from_secs(2));
    assert_ne!(cached(&balancer, "/live/list.m3u8"), "HIT", "it is kept for a second");
    cdn.change(
        "cache-live",
        &format!(r#"{{"spec":{{"sources":[{{"name":"origin",{live}}}],"cache":null}}}}"#),
    );
}

/// The status of the cache for a path.
fn cached(address: &str, path: &str) -> String {
    http::get(address, path).unwrap().header("x-cache-status").unwrap_or_default().to_owned()
}

fn what_is_purged_is_fetched_again(cdn: &Cdn) {
    let balancer = cdn.address("balancer");
    let paths = ["/live/a/1", "/live/a/2", "/live/b/1"];
    for path in paths {
        http::get(&balancer, path).unwrap();
        assert_eq!(cached(&balancer, path), "HIT");
    }
    let purge = |name: &str, what: &str| {
        cdn.wheelhouse.apply(
            CLUSTER,
            &format!(
                "apiVersion: cluster.anevia.com/v1\nkind: CdnPurge\nmetadata: {{name: {name}}}\nspec: {{cluster: cache-live, {what}}}\n"
            ),
        );
        let begun = Instant::now();
        cdn.kubectl(&["wait", "--for=condition=Complete", &format!("cdnpurge/{name}"), "--timeout=60s"]);
        let path = "jsonpath={.status.confirmed} of {.status.pods}";
        let confirmed = cdn.kubectl(&["get", "cdnpurge", name, "-o", path]);
        println!("purge {what}: confirmed by {confirmed} pods after {:.1} s", begun.elapsed().as_secs_f64());
        assert_eq!(confirmed, "2 of 2");
    };
    purge("a-path", "paths: [/live/a/1]");
    assert_eq!(paths.map(|path| cached(&balancer, path)), ["MISS", "HIT", "HIT"]);
    purge("a-prefix", "prefix: /live/a/");
    assert_eq!(paths.map(|path| cached(&balancer, path)), ["MISS", "MISS", "HIT"]);
    purge("everything", "prefix: /");
    assert_eq!(paths.map(|path| cached(&balancer, path)), ["MISS", "MISS", "MISS"]);
}

fn many_requests_for_one_object_are_one_to_the_origin(cdn: &Cdn) {
    let balancer = cdn.address("balancer");
    let clients: Vec<_> = (0..200)
        .map(|_| {
            let balancer = balancer.clone();
            std::thread::spawn(move || http::get(&balancer, "/live/slow/one").unwrap().status)
        })
        .collect();
    assert!(clients.into_iter().all(|client| client.join().unwrap() == 200));
    let log = cdn.kubectl(&["logs", "deployment/origin-live"]);
    let fetched = log.lines().filter(|line| line.contains("/live/slow/one")).count();
    println!("200 requests at once for one object: {fetched} reached the origin");
    assert_eq!(fetched, 1, "the balancer sends all of them to one cache");
}

fn one_more_cache_moves_its_share_of_the_keys(cdn: &Cdn) {
    let balancer = cdn.address("balancer");
    let keys = 600;
    let served = || -> Vec<String> {
        let by = |key: usize| http::get(&balancer, &format!("/live/key-{key}")).unwrap();
        (0..keys).map(|key| by(key).header("x-served-by").unwrap().to_owned()).collect()
    };
    let scale = |replicas: usize| {
        cdn.kubectl(&["scale", "cdncluster", "cache-live", &format!("--replicas={replicas}")]);
        let pods = || served().into_iter().collect::<std::collections::BTreeSet<_>>().len();
        eventually(3 * MINUTE, pods, |pods| *pods == replicas);
    };
    let before = served();
    scale(3);
    let after = served();
    let moved = before.iter().zip(&after).filter(|(before, after)| before != after).count();
    let share = moved as f64 / keys as f64;
    println!("a third cache got {moved} of {keys} keys: {share:.3}");
    assert!((0.25..=0.417).contains(&share), "{share}: a third, and a quarter of that more or less");
    scale(2);
}

/// The names of metrics in a text: of the agents all begin with `cdn_`.
fn metrics(text: &str) -> std::collections::BTreeSet<String> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | ':');
    let words = text.split(|letter| !is_part(letter)).filter(|word| word.starts_with("cdn_"));
    words.map(str::to_owned).collect()
}

fn every_metric_that_is_asked_for_is_told(cdn: &Cdn) {
    let mut told = String::new();
    for cluster in ["balancer", "cache-live"] {
        for pod in cdn.pods(cluster) {
            let address = cdn.kubectl(&["get", "pod", &pod, "-o", "jsonpath={.status.podIP}:9113"]);
            told += &http::get(&address, "/metrics").unwrap().body;
        }
    }
    let told = metrics(&told);
    for file in ["rules.yaml", "dashboard.json"] {
        let text = std::fs::read_to_string(tree().join("operators/cdn/monitoring").join(file)).unwrap();
        let asked = metrics(&text);
        assert!(asked.len() > 4, "{file}: {asked:?}");
        let unknown: Vec<_> = asked.difference(&told).collect();
        assert!(unknown.is_empty(), "{file} asks for {unknown:?}; there are {told:?}");
    }
}
