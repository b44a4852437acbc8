//! [`Stage`]: a cluster with a balancer and two caches, and who configures them.

use std::{
    collections::BTreeSet,
    fmt, fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, bail};
use wheelhouse_bench::LocalCluster;

use crate::load::Load;

const CLUSTER: &str = "bench-cdn";
const PATIENCE: Duration = Duration::from_secs(180);

/// Who says what nginx does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Configured {
    /// The agents do, as the operator wants it.
    ByTheOperator,
    /// The files in `by-hand` do, and the agents stand still.
    ByHand,
}

impl fmt::Display for Configured {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::ByTheOperator => "by the operator",
            Self::ByHand => "by hand",
        })
    }
}

/// The cluster; it ends with this.
pub(crate) struct Stage {
    cluster: LocalCluster,
}

/// One balancer: whoever asks must know whom they ask.
const CLUSTERS: &str = "
apiVersion: cluster.anevia.com/v1
kind: CdnCluster
metadata: {name: balancer}
spec: {role: balancer, replicas: 1, sources: [{name: cache}]}
---
apiVersion: cluster.anevia.com/v1
kind: CdnCluster
metadata: {name: cache}
spec: {role: cache, replicas: 2, sources: [{name: films, origin: {host: films.default.svc.cluster.local}}]}
";

/// Run by the shell of a pod: sends a signal to the agent in it.
const SIGNAL_THE_AGENT: &str = r#"for each in /proc/[0-9]*; do case "$(tr '\0' ' ' < $each/cmdline)" in /agent/cdn-agent*) kill -$0 ${each#/proc/};; esac; done"#;

impl Stage {
    /// Brings it up.
    pub(crate) fn up(wheelhouse: &Path) -> Result<Self> {
        let cluster = LocalCluster::up(wheelhouse, CLUSTER, 1)?;
        cluster.load(&["nginx", "cdn-operator"])?;
        cluster.install_operator("deploy/cdn.yaml", "cdn-operator")?;
        let stage = Self { cluster };
        stage.cluster.kubectl(&["apply", "-f", "operators/cdn/samples/origin.yaml"])?;
        stage.cluster.kubectl(&["rollout", "status", "deployment/films", "--timeout=60s"])?;
        stage.cluster.fed(&["apply", "-f", "-"], CLUSTERS)?;
        stage.wait_until_ready()?;
        Ok(stage)
    }

    /// Takes it down.
    pub(crate) fn down(self) -> Result<()> {
        self.cluster.down()
    }

    /// Where the balancer is asked.
    pub(crate) fn balancer(&self) -> Result<String> {
        let pod = self.pods("balancer")?.into_iter().next().context("the balancer has no pod")?;
        Ok(format!("{}:8080", self.address(&pod)?))
    }

    /// Has the pods configured so, and waits until they are.
    pub(crate) fn configure(&self, who: Configured) -> Result<()> {
        let caches = self.pods("cache")?.into_iter().collect::<Vec<_>>();
        let servers = caches.iter().map(|pod| Ok(format!("server {}:8080;", self.address(pod)?)));
        let servers = servers.collect::<Result<Vec<_>>>()?.join(" ");
        let origin =
            self.cluster.kubectl(&["get", "service", "films", "-o", "jsonpath={.spec.clusterIP}"])?;
        for pod in &caches {
            self.configure_pod(pod, who, ("cache.conf", &format!("server {origin}:80;")))?;
        }
        for pod in self.pods("balancer")? {
            self.configure_pod(&pod, who, ("balancer.conf", &servers))?;
        }
        let load = Load { address: self.balancer()?, connections: 1, time: Duration::ZERO };
        let begun = Instant::now();
        let is_so = || -> Result<bool> {
            Ok(load.once(0)?.contains_key("x-configured") == (who == Configured::ByHand))
        };
        // Workers of before may still answer.
        let mut times = 0;
        while times < 20 {
            times = if is_so()? { times + 1 } else { 0 };
            if begun.elapsed() > PATIENCE {
                bail!("the balancer is not configured {who}");
            }
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    fn configure_pod(&self, pod: &str, who: Configured, (file, servers): (&str, &str)) -> Result<()> {
        let shell = ["exec", "-i", pod, "-c", "nginx", "--", "sh", "-c"];
        if who == Configured::ByTheOperator {
            return self.cluster.kubectl(&[&shell[..], &[SIGNAL_THE_AGENT, "CONT"]].concat()).map(drop);
        }
        self.cluster.kubectl(&[&shell[..], &[SIGNAL_THE_AGENT, "STOP"]].concat())?;
        let path = Path::new("bench/cdn/by-hand").join(file);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let put = "cat > /run/cdn/nginx.conf && : > /run/cdn/by-hand.log && nginx -t -q -e stderr -c /run/cdn/nginx.conf && kill -HUP $(cat /run/cdn/nginx.pid)";
        self.cluster.fed(&[&shell[..], &[put]].concat(), &text.replace("@SERVERS@", servers)).map(drop)
    }

    /// Adds a cache pod, and takes it away again: how long after its readiness the first
    /// request came to it.
    pub(crate) fn first_request_of_a_new_pod(&self, load: &Load) -> Result<Duration> {
        let before = self.pods("cache")?;
        self.scale(before.len() + 1)?;
        let mut watch = self.watch_readiness("cache")?;
        let told = watch.stdout.take().context("kubectl says nothing")?;
        let known = before.clone();
        let ready = thread::spawn(move || {
            let lines = BufReader::new(told).lines().map_while(|line| line.ok());
            let mut ready = lines.filter_map(|line| line.strip_suffix("=True").map(str::to_owned));
            ready.find(|pod| !known.contains(pod)).map(|_| Instant::now())
        });
        let begun = Instant::now();
        // One request after the other, each for another object.
        let served = (0..).find_map(|object| match load.once(object) {
            Ok(headers) if headers.get("x-served-by").is_some_and(|pod| !before.contains(pod)) => {
                Some(Ok(Instant::now()))
            }
            Ok(_) if begun.elapsed() < PATIENCE => None,
            Ok(_) => Some(Err(anyhow!("no request came to the new pod"))),
            Err(error) => Some(Err(error)),
        });
        let served = served.context("there are always more objects")??;
        // It is told as it happens, but by way of two programs.
        thread::sleep(Duration::from_secs(1));
        watch.kill()?;
        watch.wait()?;
        let ready = ready.join().ok().flatten().context("no new pod was ready")?;
        let waited = served.saturating_duration_since(ready);
        self.scale(before.len())?;
        self.wait_until_ready()?;
        let begun = Instant::now();
        while self.pods("cache")?.len() > before.len() && begun.elapsed() < PATIENCE {
            thread::sleep(Duration::from_secs(1));
        }
        Ok(waited)
    }

    fn scale(&self, replicas: usize) -> Result<()> {
        self.cluster.kubectl(&["scale", "cdncluster", "cache", &format!("--replicas={replicas}")]).map(drop)
    }

    fn wait_until_ready(&self) -> Result<()> {
        let wait = ["wait", "--for=jsonpath={.status.state}=Ready", "cdncluster", "--all", "--timeout=180s"];
        self.cluster.kubectl(&wait).map(drop)
    }

    fn pods(&self, cluster: &str) -> Result<BTreeSet<String>> {
        let selector = format!("cluster.anevia.com/cluster={cluster}");
        let told = self.cluster.kubectl(&[
            "get",
            "pods",
            "-l",
            &selector,
            "-o",
            "jsonpath={.items[*].metadata.name}",
        ])?;
        Ok(told.split_whitespace().map(str::to_owned).collect())
    }

    /// Tells `POD=True` or `POD=False` with every change.
    fn watch_readiness(&self, cluster: &str) -> Result<Child> {
        let selector = format!("cluster.anevia.com/cluster={cluster}");
        let path = r#"jsonpath={.metadata.name}={.status.conditions[?(@.type=="Ready")].status}{"\n"}"#;
        let watch = ["get", "pods", "--watch", "-l", &selector, "-o", path];
        let mut command = self.cluster.kubectl_command(&watch);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.spawn().context("cannot watch pods")
    }

    fn address(&self, pod: &str) -> Result<String> {
        self.cluster.kubectl(&["get", "pod", pod, "-o", "jsonpath={.status.podIP}"])
    }
}
