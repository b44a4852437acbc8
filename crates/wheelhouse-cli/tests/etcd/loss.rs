//! Data that is really gone: nothing is lost in silence.

use std::time::Duration;

use super::{Etcds, MINUTE, support::eventually};

/// Wiped before anybody else joined, a seed has nobody to learn from: it must not begin again, as if nothing had been.
pub(crate) fn a_seed_that_is_wiped_does_not_begin_again(etcds: &Etcds) {
    etcds.begin("lone", 1, "3.6.16");
    let pod = etcds.pods("lone")[0].clone();
    etcds.etcdctl(&pod, &["put", "/here", "test"]);
    let before = etcds.resource("lone")["status"]["clusterID"].clone();
    etcds.wipe("lone", &pod);
    let told = eventually(MINUTE, || etcds.condition("lone", "Available"), |known| known[1] == "QuorumGone");
    println!("the only member is wiped: {}", told[2]);
    etcds.want("lone", 3);
    std::thread::sleep(Duration::from_secs(10));
    assert_eq!(etcds.condition("lone", "Available")[1], "QuorumGone");
    assert_eq!(etcds.resource("lone")["status"]["clusterID"], before);
    let ready = etcds.kubectl(&["get", "endpoints", "lone-client", "-o", "jsonpath={.subsets[*].addresses}"]);
    assert_eq!(ready, "", "nobody serves");
    etcds.delete("lone");
}

/// Two of three volumes are wiped while the third member lags behind.
pub(crate) fn a_lost_quorum_waits_for_a_person_and_begins_anew_for_who_wants_that(etcds: &Etcds) {
    etcds.begin("torn", 3, "3.6.16");
    let survivor = etcds.followers("torn")[0].clone();
    let others: Vec<_> = etcds.pods("torn").into_iter().filter(|pod| *pod != survivor).collect();
    let put = |pod: &str, from: u32, to: u32| {
        let script =
            format!("for i in $(seq {from} {to}); do etcdctl put /key/$i $i >/dev/null || exit 1; done");
        etcds.kubectl(&["exec", pod, "--", "sh", "-c", &script]);
    };
    put(&others[0], 1, 40);
    etcds.cut_off(&survivor, || {
        put(&others[0], 41, 60);
        others.iter().for_each(|pod| etcds.wipe("torn", pod));
        // With their pods go the sockets in which the last writes still wait for the survivor.
        let pods: Vec<_> = others.iter().map(String::as_str).collect();
        etcds.kubectl(&[&["delete", "pod"], pods.as_slice()].concat());
    });
    let told = eventually(
        MINUTE,
        || etcds.condition("torn", "Available"),
        |known| known[1] == "QuorumGone" && known[2].contains("has everything up to revision"),
    );
    println!("two of three are wiped, and the third lags behind: {}", told[2]);
    assert!(told[2].contains("until somebody decides"), "{}", told[2]);
    assert!(told[2].contains("the furthest that was seen was revision"), "{}", told[2]);
    std::thread::sleep(Duration::from_secs(10));
    assert_eq!(etcds.condition("torn", "Available")[1], "QuorumGone", "nothing happens by itself");
    let nothing = etcds.try_kubectl(&[
        "exec",
        &survivor,
        "--",
        "etcdctl",
        "put",
        "/key/61",
        "61",
        "--command-timeout=3s",
    ]);
    assert_ne!(nothing.code, Some(0), "writes stop");

    // A survivor that is restarted serves no client any more, and is asked all the same.
    etcds.kubectl(&["delete", "pod", &survivor]);
    let told = eventually(
        MINUTE,
        || etcds.condition("torn", "Available"),
        |known| known[1] == "QuorumGone" && known[2].contains("has everything up to revision"),
    );
    println!("  the survivor is restarted: {}", told[2]);
    let pods = etcds.kubectl(&[
        "get",
        "pod",
        &survivor,
        "-o",
        "jsonpath={.status.phase} {.metadata.deletionTimestamp}",
    ]);
    assert_eq!(pods, "Running ", "it is there again");

    // A person decides.
    let policy = r#"{"spec":{"recovery":{"quorumLoss":"Restore","restoreAfterSeconds":5}}}"#;
    etcds.kubectl(&["patch", "etcd", "torn", "--type=merge", "-p", policy]);
    let begun = std::time::Instant::now();
    etcds.wait_until_ready("torn", 3);
    println!("  begun anew from {survivor} after {:.1} s", begun.elapsed().as_secs_f64());
    let complete = etcds.condition("torn", "Complete");
    println!("  {}", complete[2]);
    assert_eq!(complete[0], "False");
    let pod = etcds.pods("torn")[0].clone();
    let count = etcds.etcdctl(&pod, &["get", "/key/", "--prefix", "--count-only", "--write-out=fields"]);
    let count: u32 =
        count.lines().find_map(|line| line.strip_prefix("\"Count\" : ")).unwrap().trim().parse().unwrap();
    assert!((40..60).contains(&count), "what the survivor had is there: {count}");
    etcds.etcdctl(&pod, &["put", "/key/61", "61"]);
    assert!(!etcds.pods("torn").contains(&survivor), "others have taken its place");
    for former in ["torn-0", "torn-1", "torn-2"] {
        etcds.kubectl(&["get", "pvc", former]);
    }
    etcds.delete("torn");
}
