//! Two processes of the operator: one leads, and the other takes over.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use wheelhouse::jiff::Timestamp;
use wheelhouse_testing::Identity;

use super::place::{Place, eventually};

/// A process of the operator, which ends with the test.
struct Process(Child);

impl Process {
    fn start(place: &Place, kubeconfig: &Path) -> Self {
        Self::start_with(place, kubeconfig, &[])
    }

    fn start_with(place: &Place, kubeconfig: &Path, environment: &[(&str, &Path)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gordon-operator"));
        command.args(["run", "--listen", "127.0.0.1:0", "--namespace", place.namespace.name()]);
        command.args(["--lease-namespace", place.namespace.name()]);
        command.env("KUBECONFIG", kubeconfig).envs(environment.iter().copied());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.0.id()).unwrap()), signal).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn wrote(identity: &Identity, mark: &wheelhouse_testing::Mark) -> Vec<(Timestamp, String)> {
    let writes = identity.requests_since(mark).await.unwrap().writes();
    let pods = writes.filter(|write| write.resource != "leases" && write.resource != "events");
    pods.iter().map(|write| (write.received, format!("{} {}", write.verb, write.resource))).collect()
}

async fn leader_and_standby(place: &Place) -> ((Process, Identity), (Process, Identity)) {
    let (one, other) = (place.identity("one").await, place.identity("other").await);
    let leader = Process::start(place, &one.kubeconfig().unwrap());
    place.create(1).await;
    eventually("the first works", async || place.live_pods().await.len() == 1).await;
    let standby = Process::start(place, &other.kubeconfig().unwrap());
    // Warm: it has listed what there is.
    let start = wheelhouse_testing::Mark::default();
    eventually("the second looks", async || {
        other.requests_since(&start).await.unwrap().count("get", "leases") > 1
    })
    .await;
    ((leader, one), (standby, other))
}

#[tokio::test]
async fn a_standby_acts_within_the_lease_and_a_second_after_the_leader_was_killed() {
    let place = Place::new("killed").await;
    let ((leader, _), (_standby, other)) = leader_and_standby(&place).await;
    let mark = place.namespace.mark().await.unwrap();
    leader.signal(Signal::SIGKILL);
    let killed = Instant::now();
    place.scale(3).await;
    eventually("the second works", async || place.live_pods().await.len() == 3).await;
    let taken_over = killed.elapsed();
    println!("the standby acted {taken_over:?} after kill -9");
    assert!(taken_over < Duration::from_secs(16), "{taken_over:?}");
    assert!(!wrote(&other, &mark).await.is_empty());
}

#[tokio::test]
async fn a_leader_that_was_stopped_and_continued_sends_nothing_after_its_deadline() {
    let place = Place::new("stopped").await;
    let ((leader, one), (_standby, other)) = leader_and_standby(&place).await;
    let mark = place.namespace.mark().await.unwrap();
    // In the middle of work: it has a lot to do when it is stopped.
    place.scale(40).await;
    tokio::time::sleep(Duration::from_millis(60)).await;
    leader.signal(Signal::SIGSTOP);
    let stopped = Timestamp::now();
    eventually("the second finishes the work", async || place.live_pods().await.len() == 40).await;
    place.scale(60).await;
    leader.signal(Signal::SIGCONT);
    eventually("the second goes on", async || place.live_pods().await.len() == 60).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let late: Vec<_> = wrote(&one, &mark)
        .await
        .into_iter()
        .filter(|(at, _)| *at > stopped + Duration::from_secs(10))
        .collect();
    assert!(late.is_empty(), "{late:?}");
    let others = wrote(&other, &mark).await;
    println!("stopped at {stopped}; the other's first write at {}", others[0].0);
}

/// Stands between a program and the clock of the machine.
fn fake_clock() -> PathBuf {
    let folders = std::fs::read_dir("/usr/lib").unwrap();
    let libraries = folders.map(|folder| folder.unwrap().path().join("faketime/libfaketimeMT.so.1"));
    libraries.into_iter().find(|library| library.exists()).expect("no libfaketime: run `make deps`")
}

#[tokio::test]
async fn a_clock_that_jumps_costs_nothing_and_nobody_takes_over() {
    let place = Place::new("clocks").await;
    let folder = tempfile::tempdir().unwrap();
    let clock = folder.path().join("clock");
    std::fs::write(&clock, "+0").unwrap();
    let (one, other) = (place.identity("one").await, place.identity("other").await);
    let environment: &[(&str, &Path)] = &[
        ("LD_PRELOAD", &fake_clock()),
        ("FAKETIME_TIMESTAMP_FILE", &clock),
        ("FAKETIME_NO_CACHE", Path::new("1")),
        // A clock that is set does not change how long a second takes.
        ("FAKETIME_DONT_FAKE_MONOTONIC", Path::new("1")),
    ];
    let _leader = Process::start_with(&place, &one.kubeconfig().unwrap(), environment);
    place.create(1).await;
    eventually("the first works", async || place.live_pods().await.len() == 1).await;
    let _standby = Process::start(&place, &other.kubeconfig().unwrap());
    let mark = place.namespace.mark().await.unwrap();

    let leases: Api<Lease> = Api::default_namespaced(place.client.clone());
    // Forward a day, back to an hour ago, and right again.
    for (replicas, offset, hours) in [(3, "+1d", 24), (2, "-1h", -1), (4, "+0", 0)] {
        std::fs::write(&clock, offset).unwrap();
        place.scale(replicas).await;
        let wanted = usize::try_from(replicas).unwrap();
        eventually("the first works on", async || place.live_pods().await.len() == wanted).await;
        // Longer than a Lease lasts.
        tokio::time::sleep(Duration::from_secs(17)).await;
        let lease = leases.get("gordon-operator").await.unwrap().spec.unwrap();
        let ahead = lease.renew_time.unwrap().0.duration_since(Timestamp::now()).as_secs_f64() / 3600.0;
        assert_eq!(ahead.round(), f64::from(hours), "its clock was set");
    }
    assert!(!wrote(&one, &mark).await.is_empty());
    assert_eq!(wrote(&other, &mark).await, [], "the standby stands by");
}
