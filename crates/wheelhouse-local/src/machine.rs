//! A machine of a cluster: namespaces of its own for processes, mounts, network
//! and host name, and a control group.
//!
//! Invariants:
//! - Everything that runs in a machine is in its process namespace. When the
//!   first process of that ends, the kernel ends all others, containers
//!   included, and with the last of them go all mounts, links, routes and
//!   packet filter rules: they were never the host's.
//! - No namespace has a name on the host, so none can be left behind.
//! - What programs in a machine write to fixed places (/run, /var/log, /var/lib, the kernel's
//!   settings) does not reach the host.
//! - A machine counts as started only when it was set up to the end; one that was left halfway is
//!   ended and started anew.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::{
    cgroups::Trees,
    command::Call,
    error::{Error, Result},
    folders,
    processes::{self, Daemon, Process},
};

/// The first process of a machine; it does nothing but bury the dead.
const INIT: &str = "catatonit";

/// Says, in a machine's own /run, that it was set up to the end.
const COMPLETE: &str = "/run/wheelhouse-complete";
/// Where a machine sees the host's /var/lib.
const HOST_STATE: &str = "/run/host-var-lib";
/// What it does not see of that: the state of other nodes that may be on this host.
const HIDDEN: [&str; 2] = ["cni", "kubelet"];
/// What kubelet wants of the kernel.
const KUBELET_SETTINGS: [(&str, &str); 6] = [
    ("kernel/keys/root_maxbytes", "25000000"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
];

/// One machine of a cluster, running or not.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    cluster: PathBuf,
    name: String,
    isolation: Isolation,
}

/// What keeps a machine apart from the host.
#[derive(Debug, Clone)]
enum Isolation {
    /// Namespaces, and this control group.
    Own { trees: Trees, group: String },
    /// Nothing: its components are plain processes of the host.
    None,
}

impl Machine {
    /// The machine `name` of the cluster in `folder`, apart from the host; `group` is the cluster's control group.
    pub(crate) fn isolated(folder: &Path, name: &str, trees: &Trees, group: &str) -> Self {
        let isolation = Isolation::Own { trees: trees.clone(), group: format!("{group}/{name}") };
        Self { cluster: folder.to_owned(), name: name.to_owned(), isolation }
    }

    /// The host itself, under the name of a machine.
    pub(crate) fn on_host(folder: &Path, name: &str) -> Self {
        Self { cluster: folder.to_owned(), name: name.to_owned(), isolation: Isolation::None }
    }

    /// Its own folder.
    pub(crate) fn folder(&self) -> PathBuf {
        self.cluster.join(&self.name)
    }

    /// The control group that its pods go under.
    pub(crate) fn group(&self) -> &str {
        match &self.isolation {
            Isolation::Own { group, .. } => group,
            Isolation::None => "",
        }
    }

    /// Starts it, unless it is complete; whether it had to be started. Then it is the caller's to
    /// connect it and to call [`Self::complete`].
    pub(crate) async fn ensure(&self) -> Result<bool> {
        let Isolation::Own { trees, group } = &self.isolation else { return Ok(false) };
        if self.is_complete() {
            return Ok(false);
        }
        self.end().await?;
        trees.remove(group).await?;
        let daemons = format!("{group}/daemons");
        trees.create(&daemons)?;

        let wrapper = self
            .marked("init", "unshare")
            .args(["--fork", "--pid", "--mount", "--mount-proc", "--net", "--uts", "--propagation", "slave"])
            .args(["--", INIT, "-P"])
            .start()?;
        trees.add(&daemons, wrapper)?;
        trees.add(&daemons, self.wait_for_init().await?)?;
        self.set_up_mounts().await?;
        self.set_up("hostname").arg(&self.name).run().await?;
        Ok(true)
    }

    /// Whether it runs and was set up to the end.
    pub(crate) fn is_complete(&self) -> bool {
        self.init().is_some_and(|init| Path::new(&format!("/proc/{init}/root{COMPLETE}")).exists())
    }

    /// Marks it as set up to the end. The mark is in the machine's own /run, so it goes with it.
    pub(crate) async fn complete(&self) -> Result<()> {
        self.set_up("touch").arg(COMPLETE).run().await
    }

    fn set_up(&self, program: &str) -> Call {
        self.call(format!("set up the machine {}", self.name), program)
    }

    /// Mounts over every place that the host has only once.
    async fn set_up_mounts(&self) -> Result<()> {
        let mount = |args: &[&OsStr]| self.set_up("mount").args(args).run();
        let tmpfs = |at: &'static str| ["-t", "tmpfs", "-o", "mode=755", "tmpfs", at].map(OsStr::new);
        mount(&tmpfs("/run")).await?;
        let log = self.folder().join("log");
        folders::create_folder(&log)?;
        mount(&[OsStr::new("--bind"), log.as_os_str(), OsStr::new("/var/log")]).await?;
        self.hide_host_state(&mount, &tmpfs("/var/lib")).await?;

        // kubelet sets these to what it likes, for the whole host, unless they are so already.
        for (setting, value) in KUBELET_SETTINGS {
            let file = self.folder().join("kernel").join(setting);
            folders::write_file(&file, format!("{value}\n"), 0o644)?;
            let setting = Path::new("/proc/sys").join(setting);
            if setting.exists() {
                mount(&[OsStr::new("--bind"), file.as_os_str(), setting.as_os_str()]).await?;
            }
        }
        mount(&["--make-rshared", "/"].map(OsStr::new)).await
    }

    /// Gives the machine a /var/lib of its own, because kubelet and the network plugins write to
    /// fixed places in there. What else the host has there can still be read, by links.
    async fn hide_host_state<F: Future<Output = Result<()>>>(
        &self,
        mount: &impl Fn(&[&OsStr]) -> F,
        tmpfs: &[&OsStr],
    ) -> Result<()> {
        let inside = Path::new("/var/lib");
        let ours = self.cluster.strip_prefix(inside).ok();
        let is_hidden = |name: &OsStr| {
            HIDDEN.iter().any(|hidden| name == *hidden) || ours.is_some_and(|ours| ours.starts_with(name))
        };
        let links: Vec<_> = std::fs::read_dir(inside)
            .map_err(Error::file("list", inside))?
            .flatten()
            .filter(|entry| !is_hidden(&entry.file_name()))
            .map(|entry| Path::new(HOST_STATE).join(entry.file_name()))
            .collect();
        self.set_up("mkdir").arg(HOST_STATE).run().await?;
        mount(&["--rbind", "/var/lib", HOST_STATE].map(OsStr::new)).await?;
        mount(tmpfs).await?;
        if !links.is_empty() {
            self.set_up("ln")
                .args(["--symbolic", "--target-directory", "/var/lib", "--"])
                .args(links)
                .run()
                .await?;
        }
        if let Some(ours) = ours {
            self.set_up("mkdir").arg("--parents").arg(&self.cluster).run().await?;
            let from = Path::new(HOST_STATE).join(ours);
            mount(&[OsStr::new("--rbind"), from.as_os_str(), self.cluster.as_os_str()]).await?;
        }
        Ok(())
    }

    async fn wait_for_init(&self) -> Result<i32> {
        let begun = Instant::now();
        loop {
            if let Some(pid) = self.init() {
                return Ok(pid);
            }
            if begun.elapsed() > Duration::from_secs(10) {
                return Err(self.problem("init", "did not start"));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The host's number of its first process.
    pub(crate) fn init(&self) -> Option<i32> {
        self.processes_of("init").find(|process| process.program == INIT).map(|process| process.pid)
    }

    /// A short command in this machine's mounts, network and host name.
    pub(crate) fn call(&self, doing: impl Into<String>, program: &str) -> Call {
        self.enter(doing, &["--mount", "--net", "--uts"]).arg(program)
    }

    /// A short command in this machine's network, but with the host's files and process numbers.
    pub(crate) fn call_in_network(&self, doing: impl Into<String>, program: &str) -> Call {
        self.enter(doing, &["--net"]).arg(program)
    }

    fn enter(&self, doing: impl Into<String>, namespaces: &[&str]) -> Call {
        match self.init() {
            Some(init) => {
                Call::new(doing, "nsenter").args(["--target", &init.to_string()]).args(namespaces).arg("--")
            }
            None => Call::impossible(
                doing,
                format!("{} is not running; `wheelhouse local up` starts it", self.name),
            ),
        }
    }

    /// Starts a component, unless it runs.
    pub(crate) async fn ensure_daemon(&self, component: &str, program: &Path, args: &[String]) -> Result<()> {
        if self.is_running(component) {
            return Ok(());
        }
        // Its wrapper may have been killed alone; the shims that a containerd leaves hold its pods.
        let name = format!("{}/{component}", self.name);
        let is_leftover =
            |process: &Process| process.component == name && !process.program.starts_with("containerd-shim");
        processes::end(&self.cluster, Duration::ZERO, is_leftover).await?;
        let Isolation::Own { trees, group } = &self.isolation else {
            return self.marked(component, program).args(args).start().map(drop);
        };
        let Some(init) = self.init() else { return Err(self.problem("init", "is not running")) };
        let pid = self
            .marked(component, "nsenter")
            .args(["--target", &init.to_string(), "--pid", "--mount", "--net", "--uts", "--"])
            .args([program.as_os_str()])
            .args(args)
            .start()?;
        // It may have forked before it is moved; then its child is moved too. One that
        // ended at once is told by whoever waits for it to become ready.
        let daemons = format!("{group}/daemons");
        for each in [pid].into_iter().chain(processes::children(pid)) {
            let _ = trees.add(&daemons, each);
        }
        Ok(())
    }

    /// Whether a component lives; in a machine of its own `nsenter` waits for just as long as it does.
    pub(crate) fn is_running(&self, component: &str) -> bool {
        self.processes_of(component).any(|process| match self.isolation {
            Isolation::Own { .. } => is_wrapper(&process),
            Isolation::None => true,
        })
    }

    /// Waits until a component is ready, for as long as it lives.
    pub(crate) async fn wait_for(
        &self,
        component: &str,
        within: Duration,
        ready: impl AsyncFn() -> bool,
    ) -> Result<()> {
        let begun = Instant::now();
        while !ready().await {
            if !self.is_running(component) {
                // A process that is just becoming another program shows no mark for an instant.
                tokio::time::sleep(Duration::from_millis(200)).await;
                if !self.is_running(component) {
                    return Err(self.problem(component, "ended"));
                }
            }
            if begun.elapsed() > within {
                return Err(self.problem(component, &format!("was not ready within {} s", within.as_secs())));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Why a component is of no use, with the end of its log.
    pub(crate) fn problem(&self, component: &str, problem: &str) -> Error {
        Error::Component {
            component: format!("{}/{component}", self.name),
            problem: problem.to_owned(),
            log_end: processes::log_end(&self.log(component)),
        }
    }

    /// Ends the machine with everything in it.
    pub(crate) async fn end(&self) -> Result<()> {
        let mine = format!("{}/", self.name);
        processes::end(&self.cluster, Duration::ZERO, |process| process.component.starts_with(&mine)).await
    }

    fn log(&self, component: &str) -> PathBuf {
        log_path(&self.cluster, &format!("{}/{component}", self.name))
    }

    fn marked(&self, component: &str, program: impl AsRef<OsStr>) -> Daemon {
        Daemon::new(&self.cluster, &format!("{}/{component}", self.name), self.log(component), program)
    }

    fn processes_of(&self, component: &str) -> impl Iterator<Item = Process> {
        let wanted = format!("{}/{component}", self.name);
        processes::of_cluster(&self.cluster).into_iter().filter(move |process| process.component == wanted)
    }
}

/// Whether this is what waits on the host for a component inside; for its first instant it is still `setsid`.
pub(crate) fn is_wrapper(process: &Process) -> bool {
    matches!(process.program.as_str(), "nsenter" | "setsid")
}

/// The log file of `MACHINE/COMPONENT`.
pub(crate) fn log_path(cluster: &Path, component: &str) -> PathBuf {
    cluster.join("logs").join(format!("{component}.log"))
}
