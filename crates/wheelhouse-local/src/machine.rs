//! A machine of a cluster: namespaces of its own for processes, mounts, network
//! and host name, and a control group.
//!
//! Invariants:
//! - Everything that runs in a machine is in its process namespace. When the
//!   first process of that ends, the kernel ends all others, containers
//!   included, and with the last of them go all mounts, links, routes and
//!   packet filter rules: they were never the host's.
//! - No namespace has a name on the host, so none can be left behind.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::{
    cgroups::Trees,
    command::Call,
    error::{Error, Result},
    processes::{self, Daemon, Process},
};

/// The first process of a machine; it does nothing but bury the dead.
const INIT: &str = "catatonit";

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

    /// Starts it, unless it runs; whether it had to be started.
    pub(crate) async fn ensure(&self) -> Result<bool> {
        let Isolation::Own { trees, group } = &self.isolation else { return Ok(false) };
        if self.init().is_some() {
            return Ok(false);
        }
        // Whatever is left of an earlier one died with its first process.
        self.end().await?;
        trees.remove(group).await?;
        let daemons = format!("{group}/daemons");
        trees.create(&daemons)?;
        let own_log = self.folder().join("log");
        crate::folders::create_folder(&own_log)?;

        let wrapper = self
            .marked("init", "unshare")
            .args(["--fork", "--pid", "--mount", "--mount-proc", "--net", "--uts", "--propagation", "slave"])
            .args(["--", INIT, "-P"])
            .start()?;
        trees.add(&daemons, wrapper)?;
        trees.add(&daemons, self.wait_for_init().await?)?;

        // Our own /run, so that sockets, locks and name files of the host and of
        // other machines stay out of the way; our own /var/log for the same reason.
        let setting_up = || format!("set up the machine {}", self.name);
        self.call(setting_up(), "mount").args(["--make-rshared", "/"]).run().await?;
        self.call(setting_up(), "mount")
            .args(["-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"])
            .run()
            .await?;
        self.call(setting_up(), "mount").arg("--bind").arg(own_log).arg("/var/log").run().await?;
        self.call(setting_up(), "hostname").arg(&self.name).run().await?;
        Ok(true)
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
        // Of a machine that is gone, nsenter says that there is no process 0.
        let target = self.init().unwrap_or(0).to_string();
        Call::new(doing, "nsenter").args(["--target", &target]).args(namespaces).arg("--")
    }

    /// Starts a component, unless it runs.
    pub(crate) fn ensure_daemon(&self, component: &str, program: &Path, args: &[String]) -> Result<()> {
        if self.is_running(component) {
            return Ok(());
        }
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

    fn marked(&self, component: &str, program: impl AsRef<std::ffi::OsStr>) -> Daemon {
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
