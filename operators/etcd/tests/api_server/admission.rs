//! What is refused before anybody sees it, and in which words.

use kube::api::{Patch, PatchParams};
use rstest::rstest;
use serde_json::{Value, json};

use super::place::Place;
use etcd_operator::api::EtcdMember;

pub fn refusal(outcome: kube::Result<impl std::fmt::Debug>) -> String {
    match outcome {
        Err(kube::Error::Api(status)) => status.message.clone(),
        other => panic!("it was not refused: {other:?}"),
    }
}

/// The original operator's example manifests, but for the version.
#[rstest]
#[case::simple(json!({"size": 3, "version": "3.6.16"}))]
#[case::of_the_talk(json!({"size": 3, "version": "3.6.16", "repository": "docker.io/prgcont/etcd"}))]
#[case::with_a_v(json!({"size": 3, "version": "v3.5.35"}))]
#[case::without_a_version(json!({"size": 3}))]
#[case::paused(json!({"size": 3, "paused": true}))]
#[case::resources(json!({"size": 3, "pod": {"resources": {"limits": {"cpu": "300m", "memory": "200Mi"}, "requests": {"cpu": "200m", "memory": "100Mi"}}}}))]
#[case::affinity(json!({"size": 3, "pod": {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
    {"weight": 100, "podAffinityTerm": {"labelSelector": {"matchExpressions": [{"key": "etcd_cluster", "operator": "In", "values": ["example"]}]}, "topologyKey": "kubernetes.io/hostname"}},
]}}}}))]
#[case::node_selector(json!({"size": 3, "pod": {"antiAffinity": true, "nodeSelector": {"diskType": "ssd"}}}))]
#[case::environment(json!({"size": 3, "pod": {"etcdEnv": [{"name": "ETCD_AUTO_COMPACTION_RETENTION", "value": "1"}]}}))]
#[case::claim(json!({"size": 3, "pod": {"persistentVolumeClaimSpec": {"storageClassName": "x", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}))]
#[case::tls(json!({"size": 3, "TLS": {"static": {"member": {"peerSecret": "etcd-peer-tls", "serverSecret": "etcd-server-tls"}, "operatorSecret": "etcd-client-tls"}}}))]
#[case::tls_among_members(json!({"size": 3, "TLS": {"static": {"member": {"peerSecret": "etcd-peer-tls"}}}}))]
#[case::affinity_that_is_required(json!({"size": 3, "pod": {"nodeSelector": {"diskType": "ssd"}, "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
    {"labelSelector": {"matchExpressions": [{"key": "etcd_cluster", "operator": "In", "values": ["example"]}]}, "topologyKey": "kubernetes.io/hostname"},
]}}}}))]
#[case::annotations(json!({"size": 3, "pod": {"annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "2379"}}}))]
#[case::busybox(json!({"size": 3, "pod": {"busyboxImage": "busybox:1.28.0-glibc"}}))]
#[case::dns(json!({"size": 3, "pod": {"DNSTimeoutInSecond": 30, "ClusterDomain": ".cluster.local"}}))]
#[case::security(json!({"size": 3, "pod": {"securityContext": {"runAsNonRoot": true, "runAsUser": 9000, "fsGroup": 9000}}}))]
#[case::options(json!({"size": 3, "options": {"heartbeatMilliseconds": 200, "electionTimeoutMilliseconds": 2000, "snapshotCount": 5000, "quotaBackendBytes": "4Gi", "maxRequestBytes": 2097152, "compaction": {"mode": "Periodic", "retention": "1h30m"}, "extra": {"log-level": "warn", "corrupt-check-time": "1h"}}, "maintenance": {"defragment": {"freePercent": 30, "minimumSize": "1Gi"}}}))]
#[case::tolerations(json!({"size": 3, "pod": {"labels": {"team": "a"}, "annotations": {"note": "b"}, "tolerations": [{"key": "dedicated", "operator": "Exists"}]}}))]
#[tokio::test]
async fn manifests_of_the_original_are_understood(#[case] spec: Value) {
    let place = Place::new("original").await;
    let applied = place.cluster("example", spec.clone()).await.unwrap();
    let kept = serde_json::to_value(applied.spec).unwrap();
    assert!(says_all_of(&kept, &spec), "something of {spec} got lost: {kept}");
}

/// Whether whatever is said in `less` is said in `more`, too.
fn says_all_of(more: &Value, less: &Value) -> bool {
    match (more, less) {
        (Value::Object(more), Value::Object(less)) => {
            less.iter().all(|(field, value)| more.get(field).is_some_and(|known| says_all_of(known, value)))
        }
        (more, less) => more == less,
    }
}

#[rstest]
#[case::too_old(json!({"size": 3, "version": "3.2.13"}), "etcd 3.2.13 has no learners")]
#[case::too_old_names_the_nearest(json!({"size": 3, "version": "3.2.13"}), "the oldest version that has them is 3.4.0, the nearest that is tested is 3.5.35")]
#[case::with_a_v_and_too_old(json!({"size": 3, "version": "v3.1.8"}), "etcd v3.1.8 has no learners")]
#[case::the_last_that_is_too_old(json!({"size": 3, "version": "3.3.27"}), "the nearest that is tested is 3.5.35")]
#[case::much_too_old(json!({"size": 3, "version": "2.3.8"}), "the nearest that is tested is 3.5.35")]
#[case::no_version(json!({"size": 3, "version": "latest"}), "write the version of etcd like 3.6.16")]
#[case::half_a_version(json!({"size": 3, "version": "3.6"}), "write the version of etcd like 3.6.16")]
#[case::a_candidate(json!({"size": 3, "version": "3.6.0-rc.1"}), "write the version of etcd like 3.6.16")]
#[case::one_that_is_not_there(json!({"size": 3, "version": "4.0.0"}), "write the version of etcd like 3.6.16")]
#[case::none(json!({"size": 0}), "spec.size in body should be greater than or equal to 1")]
#[case::eight(json!({"size": 8}), "spec.size in body should be less than or equal to 7")]
#[case::no_size(json!({"version": "3.6.16"}), "spec.size")]
#[case::misspelt(json!({"size": 3, "replicas": 3}), "replicas")]
#[case::tls_of_no_kind(json!({"size": 3, "TLS": {}}), "TLS is either automatic or static: say one of them")]
#[case::tls_of_both_kinds(json!({"size": 3, "TLS": {"automatic": {}, "static": {}}}), "TLS is either automatic or static: say one of them")]
#[case::tls_that_the_operator_cannot_speak(json!({"size": 3, "TLS": {"static": {"member": {"serverSecret": "s"}}}}), "member.serverSecret and operatorSecret go together")]
#[case::tls_that_nobody_serves(json!({"size": 3, "TLS": {"static": {"operatorSecret": "o"}}}), "member.serverSecret and operatorSecret go together")]
#[case::begins_by_itself(json!({"size": 3, "pod": {"etcdEnv": [{"name": "ETCD_FORCE_NEW_CLUSTER", "value": "true"}]}}), "ETCD_FORCE_NEW_CLUSTER cannot be set: who a member is, how it begins, where its data is, how it is reached and whom it trusts are the operator's")]
#[case::is_reached_elsewhere(json!({"size": 3, "pod": {"etcdEnv": [{"name": "GOGC", "value": "50"}, {"name": "ETCD_LISTEN_CLIENT_URLS", "value": "http://0.0.0.0:1"}]}}), "ETCD_LISTEN_CLIENT_URLS cannot be set")]
#[case::trusts_others(json!({"size": 3, "pod": {"etcdEnv": [{"name": "ETCD_PEER_TRUSTED_CA_FILE", "value": "/tmp/ca"}]}}), "ETCD_PEER_TRUSTED_CA_FILE cannot be set")]
#[case::speaks_tls_by_itself(json!({"size": 3, "pod": {"etcdEnv": [{"name": "PEER_TLS", "value": "automatic"}]}}), "PEER_TLS cannot be set")]
#[case::label_by_which_pods_are_found(json!({"size": 3, "pod": {"labels": {"team": "a", "app": "mine"}}}), "are labels of the operator's")]
#[case::label_of_the_cluster(json!({"size": 3, "pod": {"labels": {"etcd_cluster": "other"}}}), "are labels of the operator's")]
#[case::label_of_an_incarnation(json!({"size": 3, "pod": {"labels": {"etcd.database.coreos.com/incarnation": "7"}}}), "are labels of the operator's")]
#[case::flag_of_the_operator(json!({"size": 3, "options": {"extra": {"data-dir": "/tmp", "log-level": "warn"}}}), "other flags than these are the operator's")]
#[case::flag_with_a_field(json!({"size": 3, "options": {"extra": {"quota-backend-bytes": "1"}}}), "have a field of their own")]
#[case::hasty_elections(json!({"size": 3, "options": {"heartbeatMilliseconds": 500}}), "must be at least five heartbeats")]
#[case::odd_retention(json!({"size": 3, "options": {"compaction": {"mode": "Revision", "retention": "1h"}}}), "how many revisions (such as 1000) if it is Revision")]
#[case::larger_than_its_volume(json!({"size": 3, "storage": {"size": "4Gi"}, "options": {"quotaBackendBytes": "4Gi"}}), "options.quotaBackendBytes must be less than storage.size")]
#[case::always_defragmenting(json!({"size": 3, "maintenance": {"defragment": {"freePercent": 1}}}), "freePercent")]
#[case::odd_volume(json!({"size": 3, "storage": {"size": "large"}}), "spec.storage.size")]
#[case::hasty_replacement(json!({"size": 3, "recovery": {"replaceAfterSeconds": 9}}), "replaceAfterSeconds")]
#[case::odd_recovery(json!({"size": 3, "recovery": {"quorumLoss": "Force"}}), "quorumLoss")]
#[case::odd_deletion(json!({"size": 3, "deletionPolicy": "Recycle"}), "deletionPolicy")]
#[case::odd_times(json!({"size": 3, "TLS": {"automatic": {"certificateDays": 0}}}), "certificateDays")]
#[case::backups_to_nowhere(json!({"size": 3, "backup": {"schedule": "@daily"}}), "say where backups go")]
#[case::backups_that_are_not_timed(json!({"size": 3, "backup": {"s3": {"path": "bucket/db", "awsSecret": "a"}}}), "schedule")]
#[case::backups_at_odd_times(json!({"size": 3, "backup": {"schedule": "every night", "s3": {"path": "bucket/db", "awsSecret": "a"}}}), "write it as cron does")]
#[tokio::test]
async fn bad_input_is_refused_in_words_that_help(#[case] spec: Value, #[case] words: &str) {
    let said = refusal(Place::new("bad-input").await.cluster("example", spec).await);
    assert!(said.contains(words), "{said}");
}

#[rstest]
#[case("Upper")]
#[case("1st")]
#[case("a-name-that-is-longer-than-what-other-names-can-be-made-of")]
#[tokio::test]
async fn a_name_that_others_cannot_be_made_of_is_refused(#[case] name: &str) {
    refusal(Place::new("names").await.cluster(name, json!({"size": 1})).await);
}

#[rstest]
#[case::a_patch("3.6.1", "3.6.16", None)]
#[case::a_patch_back("3.6.16", "3.6.1", None)]
#[case::a_minor("3.5.35", "3.6.16", None)]
#[case::a_minor_by_way_of_a_patch_level("3.5.19", "3.6.16", None)]
#[case::from_the_oldest("3.4.30", "3.5.35", None)]
#[case::two_minors_from_the_oldest("3.4.30", "3.6.16", Some("from 3.4 etcd goes on to 3.5.35 first"))]
#[case::two_minors_from_the_default(
    "3.6.16",
    "3.8.0",
    Some("from 3.6 etcd goes on to 3.7.3 first, or back to 3.5.35 first")
)]
#[case::two_minors(
    "3.5.35",
    "3.7.3",
    Some("from 3.5 etcd goes on to 3.6.16 first, and not back, which it can from 3.6 on only")
)]
#[case::back("3.6.16", "3.5.35", None)]
#[case::back_by_two("3.7.3", "3.5.35", Some("goes on to 3.8 first, or back to 3.6.16 first"))]
#[case::back_where_etcd_cannot("3.5.35", "3.4.30", Some("not back, which it can from 3.6 on only"))]
#[tokio::test]
async fn a_version_that_cannot_be_reached_is_refused_with_the_way_that_can(
    #[case] runs: &str,
    #[case] wanted: &str,
    #[case] words: Option<&str>,
) {
    let place = Place::new("versions").await;
    place.cluster("example", json!({"size": 3, "version": runs})).await.unwrap();
    place.say_that_it_runs("example", runs).await;
    let outcome = place.cluster("example", json!({"size": 3, "version": wanted})).await;
    match words {
        None => drop(outcome.unwrap()),
        Some(words) => {
            let said = refusal(outcome);
            assert!(said.contains(words), "{said}");
        }
    }
}

#[tokio::test]
async fn a_cluster_that_does_not_run_yet_can_have_any_version() {
    let place = Place::new("first-version").await;
    for version in ["3.4.0", "3.7.3", "v3.5.35", "3.6.16"] {
        place.cluster("example", json!({"size": 3, "version": version})).await.unwrap();
    }
}

#[tokio::test]
async fn data_in_pods_stays_with_its_minor_version() {
    let place = Place::new("version-in-pods").await;
    let cluster = async |version: &str| {
        let spec = json!({"size": 3, "version": version, "storage": {"emptyDir": true}});
        place.cluster("example", spec).await
    };
    cluster("3.6.15").await.unwrap();
    place.say_that_it_runs("example", "3.6.15").await;
    cluster("3.6.16").await.unwrap();
    let said = refusal(cluster("3.7.3").await);
    assert!(said.contains("data that is in pods (storage.emptyDir) cannot go on"), "{said}");
}

/// A member that was away answers, and runs something older than what is wanted by now can be reached from. What is so
/// can be told, and people can go on to change other things.
#[tokio::test]
async fn which_version_runs_is_told_whatever_is_wanted_by_then() {
    let place = Place::new("version-told").await;
    place.cluster("example", json!({"size": 3, "version": "3.6.16"})).await.unwrap();
    place.say_that_it_runs("example", "3.6.16").await;
    place.cluster("example", json!({"size": 3, "version": "3.7.3"})).await.unwrap();
    place.say_that_it_runs("example", "3.5.35").await;
    place.cluster("example", json!({"size": 5, "version": "3.7.3"})).await.unwrap();
    let said = refusal(place.cluster("example", json!({"size": 5, "version": "3.7.2"})).await);
    assert!(said.contains("from 3.5 etcd goes on to 3.6.16 first"), "{said}");
}

#[tokio::test]
async fn what_cannot_be_changed_is_refused() {
    let place = Place::new("immutable").await;
    place.cluster("db", json!({"size": 3})).await.unwrap();
    let said = refusal(place.cluster("db", json!({"size": 3, "storage": {"emptyDir": true}})).await);
    assert!(said.contains("data cannot move between pods and volumes"), "{said}");
    place.cluster("db", json!({"size": 3, "storage": {"size": "16Gi"}})).await.unwrap();
    let said = refusal(place.cluster("db", json!({"size": 3, "storage": {"size": "9000Mi"}})).await);
    assert!(said.contains("volumes can become larger, and not smaller"), "{said}");
    let backups = |path: &str| json!({"schedule": "@daily", "s3": {"path": path, "awsSecret": "a"}});
    let with = |path: &str| json!({"size": 3, "storage": {"size": "16Gi"}, "backup": backups(path)});
    place.cluster("db", with("bucket/db")).await.unwrap();
    let said = refusal(place.cluster("db", with("bucket/elsewhere")).await);
    assert!(said.contains("to have them elsewhere, make an EtcdBackup"), "{said}");
    let clusters = place.api::<etcd_operator::api::EtcdCluster>();
    let status = async |status: Value| {
        let patch = Patch::Merge(json!({"status": status}));
        clusters.patch_status("db", &PatchParams::default(), &patch).await
    };
    status(json!({"clusterID": "c1", "lastOrdinal": 3})).await.unwrap();
    for another in [json!(null), json!("c2")] {
        let said = refusal(status(json!({"clusterID": another})).await);
        assert!(said.contains("a cluster begins once"), "{said}");
    }
    status(json!({"clusterID": "c2", "incarnation": 1})).await.unwrap();
    let said = refusal(status(json!({"incarnation": 0})).await);
    assert!(said.contains("an incarnation that has ended does not come back"), "{said}");
    let said = refusal(status(json!({"lastOrdinal": 2})).await);
    assert!(said.contains("no number is used twice"), "{said}");
}

#[rstest]
#[case::on(json!(null), json!({"automatic": {}}), Some("TLS cannot be turned on or off"))]
#[case::off(json!({"automatic": {}}), json!(null), Some("TLS cannot be turned on or off"))]
#[case::to_automatic(json!({"static": {"member": {"peerSecret": "p"}}}), json!({"automatic": {}}), Some("cannot change between automatic and static"))]
#[case::for_clients(
    json!({"static": {"member": {"peerSecret": "p"}}}),
    json!({"static": {"member": {"peerSecret": "p", "serverSecret": "s"}, "operatorSecret": "o"}}),
    Some("TLS for clients cannot be turned on or off")
)]
#[case::among_members(
    json!({"static": {"member": {"peerSecret": "p", "serverSecret": "s"}, "operatorSecret": "o"}}),
    json!({"static": {"member": {"serverSecret": "s"}, "operatorSecret": "o"}}),
    Some("TLS between members cannot be turned on or off")
)]
#[case::another_secret(
    json!({"static": {"member": {"peerSecret": "p", "serverSecret": "s"}, "operatorSecret": "o"}}),
    json!({"static": {"member": {"peerSecret": "p2", "serverSecret": "s2"}, "operatorSecret": "o2"}}),
    None
)]
#[case::other_times(json!({"automatic": {}}), json!({"automatic": {"overlapSeconds": 5}}), None)]
#[tokio::test]
async fn tls_of_a_cluster_that_is_there_cannot_be_turned_on_or_off(
    #[case] before: Value,
    #[case] after: Value,
    #[case] words: Option<&str>,
) {
    let place = Place::new("tls").await;
    let spec = |tls: &Value| match tls {
        Value::Null => json!({"size": 3}),
        tls => json!({"size": 3, "TLS": tls}),
    };
    place.cluster("db", spec(&before)).await.unwrap();
    let outcome = place.cluster("db", spec(&after)).await;
    match words {
        None => drop(outcome.unwrap()),
        Some(words) => {
            let said = refusal(outcome);
            assert!(said.contains(words), "{said}");
        }
    }
}

#[tokio::test]
async fn a_record_stays_whose_it_is_and_has_no_way_back() {
    let place = Place::new("records").await;
    let spec = json!({"cluster": "db", "ordinal": 0, "intent": "Waiting"});
    refusal(place.create_record("another", spec.clone()).await);
    place.create_record("db-0", spec).await.unwrap();
    let edit = async |spec: Value| {
        let patch = Patch::Merge(json!({"spec": spec}));
        place.api::<EtcdMember>().patch("db-0", &PatchParams::default(), &patch).await
    };
    for another in [json!({"ordinal": 1}), json!({"cluster": "other"}), json!({"incarnation": 1})] {
        refusal(edit(another).await);
    }
    edit(json!({"intent": "Joining", "version": "3.5.35"})).await.unwrap();
    edit(json!({"version": "3.7.3"})).await.unwrap();
    let began = Patch::Merge(json!({"status": {"began": true}}));
    place.api::<EtcdMember>().patch_status("db-0", &PatchParams::default(), &began).await.unwrap();
    let said = refusal(edit(json!({"version": "3.5.35"})).await);
    assert!(said.contains("one minor version at a time"), "{said}");
    edit(json!({"version": "3.6.16"})).await.unwrap();
    let said = refusal(edit(json!({"intent": "Waiting"})).await);
    assert!(said.contains("cannot wait again"), "{said}");
    edit(json!({"intent": "Leaving"})).await.unwrap();
    let said = refusal(edit(json!({"intent": "Joining"})).await);
    assert!(said.contains("does not come back"), "{said}");
}
