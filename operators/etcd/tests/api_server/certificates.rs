//! The certificates of a cluster: made, kept to oneself, replaced by stages, and missed.

use std::collections::BTreeMap;

use etcd_operator::{
    Scope,
    api::{EtcdCluster, EtcdMember},
    tls::{Digests, ROTATE, Side},
};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use wheelhouse::{
    certificates::{Authorities, Validity, digest},
    jiff::Timestamp,
};

use super::place::{Place, eventually};

/// What a Secret of the cluster `db` holds.
async fn content(place: &Place, name: &str) -> BTreeMap<String, String> {
    let data = place.api::<Secret>().get(name).await.unwrap().data.unwrap_or_default();
    let text = |content: Vec<u8>| String::from_utf8(content).unwrap();
    data.into_iter().map(|(file, content)| (file, text(content.0))).collect()
}

async fn trusted(place: &Place) -> usize {
    content(place, "db-peer-tls").await["peer-ca.crt"].matches("BEGIN CERTIFICATE").count()
}

async fn condition(place: &Place, name: &str) -> (String, String, String) {
    let status = place.api::<EtcdCluster>().get(name).await.unwrap().status.unwrap_or_default();
    let found = status.conditions.into_iter().find(|known| known.type_ == "CertificatesReady");
    found.map(|known| (known.status, known.reason, known.message)).unwrap_or_default()
}

/// As the supervisor says it: what is in the pod is what is in the Secrets, and etcd has loaded it, or will.
async fn report(place: &Place, member: &str) {
    let (mut trusts, mut mounted) = (Digests::default(), Digests::default());
    for (side, secret) in [(Side::Peer, "peer"), (Side::Server, "server"), (Side::Client, "client")] {
        let (files, content) = (side.files(), content(place, &format!("db-{secret}-tls")).await);
        let short = |file: &String| digest(content[file].as_bytes());
        mounted.0.insert(files.certificate.clone(), short(&files.certificate));
        mounted.0.insert(files.authorities.clone(), short(&files.authorities));
        if side != Side::Client {
            trusts.0.insert(files.authorities.clone(), short(&files.authorities));
        }
    }
    let pod = place.api::<Pod>().get(member).await.unwrap().metadata.uid;
    let status = json!({"pod": pod, "trusts": trusts.to_string(), "mounted": mounted.to_string()});
    let patch = Patch::Merge(json!({"status": status}));
    place.api::<EtcdMember>().patch_status(member, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test]
async fn an_authority_is_made_and_replaced_by_what_is_seen() {
    let place = Place::new("authority").await;
    let operating = place.start(Scope::OwnNamespace).await;
    let spec = json!({"size": 1, "TLS": {"automatic": {"overlapSeconds": 0}}});
    place.cluster("db", spec).await.unwrap();
    eventually("the pod is there", async || place.names_of::<Pod>().await == ["db-0"]).await;
    let names = ["db-authority", "db-client-tls", "db-peer-tls", "db-server-tls"];
    assert_eq!(place.names_of::<Secret>().await, names);
    let first = content(&place, "db-server-tls").await;
    assert_eq!(first.keys().collect::<Vec<_>>(), ["server-ca.crt", "server.crt", "server.key"]);
    let owners = place.api::<Secret>().get("db-authority").await.unwrap().metadata.owner_references.unwrap();
    assert_eq!(owners[0].name, "db", "they go with the cluster");

    place.say_that_it_has_a_node("db-0").await;
    report(&place, "db-0").await;
    eventually("all is well", async || condition(&place, "db").await.1 == "Ready").await;
    let wish = Patch::Merge(json!({"metadata": {"annotations": {ROTATE: "2026-11-18"}}}));
    place.api::<EtcdCluster>().patch("db", &PatchParams::default(), &wish).await.unwrap();
    eventually("a successor is made known", async || trusted(&place).await == 2).await;
    eventually("it waits for the member", async || {
        let (status, reason, message) = condition(&place, "db").await;
        (status.as_str(), reason.as_str()) == ("True", "Rotating") && message.contains("db-0")
    })
    .await;
    let key = |content: &BTreeMap<String, String>| content["server.key"].clone();
    let announced = content(&place, "db-server-tls").await;
    report(&place, "db-0").await;
    eventually("the successor signs", async || {
        key(&content(&place, "db-server-tls").await) != key(&announced) && trusted(&place).await == 2
    })
    .await;
    eventually("it waits for the member", async || {
        condition(&place, "db").await.2.contains("db-0 did not get its certificate yet")
    })
    .await;
    assert_eq!(trusted(&place).await, 2, "the old one is trusted until then");
    report(&place, "db-0").await;
    eventually("the old one is forgotten", async || trusted(&place).await == 1).await;
    eventually("the member is to forget it, too", async || condition(&place, "db").await.1 == "Settling")
        .await;
    report(&place, "db-0").await;
    eventually("all is well", async || condition(&place, "db").await.1 == "Ready").await;
    let last = content(&place, "db-server-tls").await;
    assert_ne!(last["server-ca.crt"], first["server-ca.crt"]);
    operating.stop().await;
}

#[tokio::test]
async fn an_authority_that_was_lost_is_replaced_and_what_it_signed_stays_trusted() {
    let place = Place::new("lost-authority").await;
    let operating = place.start(Scope::OwnNamespace).await;
    place.cluster("db", json!({"size": 1, "TLS": {"automatic": {}}})).await.unwrap();
    eventually("the pod is there", async || place.names_of::<Pod>().await == ["db-0"]).await;
    let before = content(&place, "db-peer-tls").await;
    place.api::<Secret>().delete("db-authority", &DeleteParams::default()).await.unwrap();
    eventually("a successor is made known", async || trusted(&place).await == 2).await;
    let after = content(&place, "db-peer-tls").await;
    assert!(after["peer-ca.crt"].contains(before["peer-ca.crt"].trim()), "who was trusted still is");
    assert_eq!(after["peer.crt"], before["peer.crt"], "nobody can sign yet");

    // What somebody else does to a certificate is undone as soon as somebody can.
    place.api::<Secret>().delete("db-client-tls", &DeleteParams::default()).await.unwrap();
    eventually("it is told", async || condition(&place, "db").await.1 == "Making").await;
    operating.stop().await;
}

#[tokio::test]
async fn what_somebody_does_to_a_certificate_is_undone() {
    let place = Place::new("tampered").await;
    let operating = place.start(Scope::OwnNamespace).await;
    place.cluster("db", json!({"size": 1, "TLS": {"automatic": {}}})).await.unwrap();
    eventually("the pod is there", async || place.names_of::<Pod>().await == ["db-0"]).await;
    let patch = Patch::Merge(json!({"stringData": {"peer.crt": "theirs"}}));
    place.api::<Secret>().patch("db-peer-tls", &PatchParams::default(), &patch).await.unwrap();
    eventually("it is signed again", async || {
        content(&place, "db-peer-tls").await["peer.crt"].contains("BEGIN CERTIFICATE")
    })
    .await;
    operating.stop().await;
}

#[tokio::test]
async fn a_secret_of_somebody_else_is_missed_by_name_and_nothing_starts_before_it_is_there() {
    let place = Place::new("theirs").await;
    let operating = place.start(Scope::OwnNamespace).await;
    let spec = json!({"size": 1, "TLS": {"static": {"member": {"peerSecret": "theirs"}}}});
    place.cluster("db", spec).await.unwrap();
    eventually("it is missed", async || {
        condition(&place, "db").await.2.starts_with("there is no Secret theirs")
    })
    .await;
    let secrets = place.api::<Secret>();
    let now = Timestamp::now();
    let authorities = Authorities::new("theirs", Validity::default(), now).unwrap();
    let pair = authorities.sign("peer", &[], Validity::default(), now).unwrap();
    let partly = json!({"metadata": {"name": "theirs"}, "stringData": {"peer.crt": pair.certificate, "peer.key": pair.key}});
    secrets.create(&PostParams::default(), &serde_json::from_value(partly).unwrap()).await.unwrap();
    eventually("the key is missed", async || {
        condition(&place, "db").await.2.starts_with("Secret theirs: it has no peer-ca.crt")
    })
    .await;
    let status = place.api::<EtcdCluster>().get("db").await.unwrap().status.unwrap();
    assert!(
        status.conditions.iter().any(|known| known.type_ == "Ready" && known.reason == "CertificatesMissing")
    );
    assert_eq!(place.names_of::<Pod>().await, [""; 0]);
    let rest = Patch::Merge(json!({"stringData": {"peer-ca.crt": authorities.bundle()}}));
    secrets.patch("theirs", &PatchParams::default(), &rest).await.unwrap();
    eventually("the pod is made", async || place.names_of::<Pod>().await == ["db-0"]).await;
    assert_eq!(place.names_of::<Secret>().await, ["theirs"], "nothing is made beside it");
    operating.stop().await;
}
