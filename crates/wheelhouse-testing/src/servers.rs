//! etcd and the API server of one control plane: child processes that do not
//! outlive this one, in a folder that does not either.

use std::{
    fs::File,
    net::{Ipv4Addr, TcpStream},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use kube::Client;
use wheelhouse_local::{
    address_plan::Range,
    binaries::Binaries,
    certificates::Subject,
    control_plane::{Ports, Settings},
    processes,
    progress::Progress,
};

use crate::{
    access::{self, Access, HARNESS},
    error::{Error, Result},
    scratch::Scratch,
    tether,
};

/// Long enough for a machine that is busy compiling; a control plane takes a few seconds.
const PATIENCE: Duration = Duration::from_secs(90);

/// How often somebody else may take one of our ports before we use it.
const ATTEMPTS: usize = 3;

/// Where the addresses of Services begin; nothing is ever sent there. There are many: who makes thousands of
/// Services gets them.
const SERVICES: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);

/// A running etcd and API server. Dropping them ends both.
#[derive(Debug)]
pub(crate) struct Servers {
    api_server: Server,
    etcd: Server,
    // Last, since fields are dropped in this order: first the servers, then their folder.
    scratch: Scratch,
}

impl Servers {
    /// Starts both and waits until the API server is ready.
    pub(crate) async fn start() -> Result<(Self, Access)> {
        let progress = Progress::shown();
        let binaries = Binaries::for_tests(&progress).await;
        progress.clear();
        Self::start_on(&binaries?, || Ports::free(None)).await
    }

    /// Starts both on ports that are free, or were when `ports` looked.
    async fn start_on(
        binaries: &Binaries,
        mut ports: impl FnMut() -> std::io::Result<Ports>,
    ) -> Result<(Self, Access)> {
        let mut attempt = 1;
        loop {
            let free = ports().map_err(Error::file("find free ports on", "127.0.0.1"))?;
            match Self::attempt(binaries, free).await {
                Err(Error::Component { log_end, .. })
                    if attempt < ATTEMPTS && log_end.contains("address already in use") =>
                {
                    attempt += 1;
                }
                outcome => return outcome,
            }
        }
    }

    async fn attempt(binaries: &Binaries, ports: Ports) -> Result<(Self, Access)> {
        let mut scratch = Scratch::create()?;
        let folder = scratch.path().to_owned();
        let audit_log = folder.join("audit.log");
        let settings = Settings {
            cluster: "testing".to_owned(),
            folder: folder.clone(),
            ports,
            services: Range::new(SERVICES, 16),
            pods: None,
            audit_log: Some(audit_log.clone()),
        };
        let credentials = settings.ensure_credentials()?;
        let harness = Subject::user(HARNESS).in_group("system:masters");
        let harness = settings.ensure_kubeconfig(&credentials, "harness", &harness)?;

        let deadline = Instant::now() + PATIENCE;
        let mut etcd = Server::start("etcd", binaries, settings.etcd(&credentials), &mut scratch)?;
        // The API server would find etcd missing, and look again only a second later.
        while TcpStream::connect(settings.ports.etcd).is_err() {
            etcd.must_live(deadline)?;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }

        let mut flags = settings.api_server(&credentials)?;
        // The log must stay one file: who counts requests reads on from where they were.
        flags.push(format!("--audit-log-maxsize={}", u32::MAX >> 1));
        let mut api_server = Server::start("kube-apiserver", binaries, flags, &mut scratch)?;
        let access = Access::new(&settings.admin_kubeconfig(), &harness, audit_log).await?;
        let prober = access.prober()?;
        while !is_ready(&prober).await {
            etcd.must_live(deadline)?;
            api_server.must_live(deadline)?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok((Self { api_server, etcd, scratch }, access))
    }

    /// The folder with the certificates, the data and the logs.
    pub(crate) fn folder(&self) -> &Path {
        self.scratch.path()
    }

    /// The processes: etcd's and the API server's.
    pub(crate) fn pids(&self) -> [u32; 2] {
        [self.etcd.child.id(), self.api_server.child.id()]
    }
}

async fn is_ready(prober: &Client) -> bool {
    let asked = async { prober.request_text(access::get("/readyz")?).await };
    // A server that is just starting may take a connection and let it hang.
    matches!(tokio::time::timeout(Duration::from_secs(2), asked).await, Ok(Ok(_)))
}

/// One of the two.
#[derive(Debug)]
struct Server {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Server {
    fn start(
        name: &'static str,
        binaries: &Binaries,
        flags: Vec<String>,
        scratch: &mut Scratch,
    ) -> Result<Self> {
        let log = scratch.path().join(format!("{name}.log"));
        let output = File::create(&log).map_err(Error::file("create the log", &log))?;
        let errors = output.try_clone().map_err(Error::file("open the log", &log))?;
        let child = tether::spawn_tethered(&binaries.program(name), |command| {
            command
                .args(flags)
                .current_dir(scratch.path())
                .stdin(Stdio::null())
                .stdout(output)
                .stderr(errors)
                // Ctrl-C is for the tests; the servers end with them.
                .process_group(0);
        })
        .map_err(|source| Error::Start { program: name, source })?;
        let server = Self { name, child, log };
        scratch.outlives(server.child.id())?;
        Ok(server)
    }

    /// An error with the end of the log if it has ended, or should be ready by now.
    fn must_live(&mut self, deadline: Instant) -> Result<()> {
        let problem = match self.child.try_wait() {
            Ok(None) if Instant::now() < deadline => return Ok(()),
            Ok(None) => format!("was not ready within {} s", PATIENCE.as_secs()),
            Ok(Some(status)) => format!("ended with {status}"),
            Err(error) => format!("cannot be waited for: {error}"),
        };
        Err(Error::Component { component: self.name, problem, log_end: processes::log_end(&self.log) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Its data is thrown away, so there is nothing that it could finish.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Ports of which etcd's is taken, and what holds it.
    fn taken() -> (TcpListener, Ports) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut ports = Ports::free(None).unwrap();
        ports.etcd.set_port(listener.local_addr().unwrap().port());
        (listener, ports)
    }

    #[tokio::test]
    async fn a_port_that_was_taken_in_between_is_exchanged_for_another() {
        let binaries = Binaries::for_tests(&Progress::silent()).await.unwrap();
        let (_listener, ports) = taken();
        let mut first = Some(ports);
        let (servers, access) = Servers::start_on(&binaries, || match first.take() {
            Some(taken) => Ok(taken),
            None => Ports::free(None),
        })
        .await
        .unwrap();
        assert!(is_ready(&access.prober().unwrap()).await);
        drop(servers);
    }

    #[tokio::test]
    async fn a_server_that_ends_is_reported_with_the_end_of_its_log() {
        let binaries = Binaries::for_tests(&Progress::silent()).await.unwrap();
        let (_listener, ports) = taken();
        let failed = Servers::start_on(&binaries, || Ok(ports.clone())).await.map(drop).unwrap_err();
        let message = failed.to_string();
        assert!(message.starts_with("etcd ended with"), "{message}");
        assert!(message.contains("address already in use"), "{message}");
    }
}
