//! What is done to a cluster of etcd while it serves: another authority, a quota that is used up, and an operator that
//! is killed at any moment of a change.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use etcd_operator::etcd::{
    Tcp,
    tls::{Credentials, Secured},
};

use super::{
    Etcds, MINUTE,
    history::{History, Place},
    support::eventually,
};

/// Members and clients speak TLS. The authority is replaced, and clients read their Secret again from time to time.
pub(crate) fn the_authority_is_replaced_under_load(etcds: &Etcds) {
    etcds.begin_with("secure", 3, "3.6.16", "TLS: {automatic: {overlapSeconds: 10}}");
    let first = credentials(etcds, "secure");
    let held = Arc::new(Mutex::new(first.clone()));
    let history = History::start(place(etcds, "secure", held.clone()));
    history.wait_for_writes();
    let authority = trusted(etcds);
    let begun = Instant::now();
    etcds.kubectl(&["annotate", "etcd", "secure", "etcd.database.coreos.com/rotate-authority=now"]);
    let rotated = || {
        *held.lock().unwrap() = credentials(etcds, "secure");
        etcds.kubectl(&["get", "events", "-o", "jsonpath={.items[*].reason}"])
    };
    eventually(5 * MINUTE, rotated, |reasons| reasons.contains("AuthorityRotated"));
    let settled = || (etcds.condition("secure", "CertificatesReady"), trusted(etcds));
    let is_settled = |(known, trusted): &([String; 3], String)| {
        known[1] == "Ready" && *trusted != authority && !trusted.contains(authority.trim())
    };
    eventually(3 * MINUTE, settled, is_settled);
    *held.lock().unwrap() = credentials(etcds, "secure");
    etcds.wait_until_ready("secure", 3);
    let took = begun.elapsed();
    history.wait_for_writes();
    let address = history.end_and_tell("replace the authority", took).address;

    // Who still has what the old authority signed is not let in.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let old = Place { address, dialer: secured(Arc::new(Mutex::new(first))) };
    assert!(runtime.block_on(async { old.connect().await?.get("history").await }).is_err());
    let pod = etcds.pods("secure")[0].clone();
    assert_eq!(etcds.etcdctl(&pod, &["put", "/here", "test"]), "OK\n", "etcdctl is ready to use");
    etcds.delete("secure");
}

/// The files of the clients' Secret, read at once: while it is replaced, two looks see two of them.
fn secret<const FILES: usize>(etcds: &Etcds, name: &str, files: [&str; FILES]) -> [String; FILES] {
    let template =
        files.map(|file| format!("{{{{index .data \"{file}\" | base64decode}}}}")).join("{{\"\\x00\"}}");
    let template = format!("go-template={template}");
    let content = etcds.kubectl(&["get", "secret", &format!("{name}-client-tls"), "-o", &template]);
    let mut contents = content.split('\0').map(str::to_owned);
    files.map(|file| contents.next().unwrap_or_else(|| panic!("{file} is missing")))
}

fn trusted(etcds: &Etcds) -> String {
    let [authorities] = secret(etcds, "secure", ["etcd-client-ca.crt"]);
    authorities
}

fn credentials(etcds: &Etcds, name: &str) -> Credentials {
    let [certificate, key, authorities] =
        secret(etcds, name, ["etcd-client.crt", "etcd-client.key", "etcd-client-ca.crt"]);
    let host = format!("{name}-client.default.svc");
    Credentials::new(certificate.as_bytes(), key.as_bytes(), authorities.as_bytes(), &host).unwrap()
}

fn secured(held: Arc<Mutex<Credentials>>) -> Arc<Secured> {
    let credentials = Box::new(move || Ok(Some(held.lock().unwrap().clone())));
    Arc::new(Secured { inner: Arc::new(Tcp), credentials })
}

fn place(etcds: &Etcds, name: &str, held: Arc<Mutex<Credentials>>) -> Place {
    Place { address: etcds.address(name), dialer: secured(held) }
}

/// The quota is used up: writes are refused and the condition says why. What is not needed is compacted, by a
/// person; the operator does the rest, over TLS.
pub(crate) fn a_quota_that_is_used_up_is_told_and_mended(etcds: &Etcds) {
    etcds.begin_with("small", 3, "3.6.16", "TLS: {automatic: {}}, options: {quotaBackendBytes: 24Mi}");
    let held = Arc::new(Mutex::new(credentials(etcds, "small")));
    let history = History::start(place(etcds, "small", held));
    history.wait_for_writes();
    let begun = Instant::now();
    let pod = etcds.pods("small")[0].clone();
    let fill = "for i in $(seq 100); do head -c 500000 /dev/zero | tr '\\0' x | etcdctl put /big || exit 0; done; exit 1";
    etcds.kubectl(&["exec", &pod, "--", "sh", "-c", fill]);
    let told = eventually(MINUTE, || etcds.condition("small", "NoAlarm"), |known| known[1] == "NoSpace");
    println!("the quota is used up: {}", told[2]);
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(etcds.condition("small", "NoAlarm")[1], "NoSpace", "nothing is thrown away by itself");
    let compact = "etcdctl compact $(etcdctl endpoint status -w fields | sed -n 's/^\"Revision\" : //p')";
    etcds.kubectl(&["exec", &pod, "--", "sh", "-c", compact]);
    let compacted = Instant::now();
    eventually(3 * MINUTE, || etcds.condition("small", "NoAlarm"), |known| known[0] == "True");
    println!("  writes are taken again {:.1} s after the compaction", compacted.elapsed().as_secs_f64());
    history.wait_for_writes();
    etcds.wait_until_ready("small", 3);
    let took = begun.elapsed();
    history.end_and_tell("use the quota up", took);
    etcds.delete("small");
}

/// While the size changes the operator is killed, each time a little later.
pub(crate) fn an_operator_that_is_killed_in_the_middle_goes_on(etcds: &Etcds) {
    etcds.begin("halted", 3, "3.6.16");
    let history = History::start(Place::plain(etcds.address("halted")));
    history.wait_for_writes();
    let begun = Instant::now();
    for (size, milliseconds) in [(5, 300), (3, 100), (5, 1500), (3, 600), (5, 3000), (3, 1200)] {
        etcds.want("halted", size);
        std::thread::sleep(Duration::from_millis(milliseconds));
        etcds.kubectl(&[
            "-n",
            "wheelhouse-system",
            "delete",
            "pod",
            "-l",
            "app.kubernetes.io/name=etcd-operator",
            "--force",
            "--grace-period=0",
        ]);
        etcds.wait_until_ready("halted", size);
    }
    let took = begun.elapsed();
    history.end_and_tell("kill the operator six times in the middle of a change", took);
    etcds.delete("halted");
}
