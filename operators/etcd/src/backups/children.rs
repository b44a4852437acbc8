//! What an EtcdBackup consists of: the pods that do its work, and who they are. Pure.

use k8s_openapi::api::{
    core::v1::{Pod, ServiceAccount},
    rbac::v1::{Role, RoleBinding},
};
use kube::ResourceExt as _;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use wheelhouse::jiff::Timestamp;

use super::schedule::compact;
use crate::{
    api::backup::{EtcdBackup, Place},
    backup::{pods, snapshot::hex},
    worker::{BACKUP_LABEL, GENERATION, PATH},
};

/// Who the pods of an EtcdBackup are.
pub fn account_name(backup: &str) -> String {
    format!("{backup}-backup")
}

/// The pod that takes the backup for that time.
pub fn saver_name(backup: &str, scheduled: Timestamp) -> String {
    format!("{backup}-{}", compact(scheduled))
}

/// The pod that removes these files: the same files, the same pod.
pub fn remover_name(backup: &str, leaving: &[String], unfinished: &[String]) -> String {
    let sum = Sha256::digest(json!([leaving, unfinished]).to_string());
    format!("{}{}", remover_prefix(backup), hex(sum.get(..4).unwrap_or_default()))
}

/// What the names of pods that remove begin with.
pub fn remover_prefix(backup: &str) -> String {
    format!("{backup}-remove-")
}

fn object<K: DeserializeOwned + Default>(content: Value) -> K {
    serde_json::from_value(content).unwrap_or_default()
}

fn metadata(backup: &EtcdBackup, name: String) -> Value {
    json!({"name": name, "labels": {"app": "etcd-backup", BACKUP_LABEL: backup.name_any()}})
}

/// Who takes the backups.
pub fn service_account(backup: &EtcdBackup) -> ServiceAccount {
    object(json!({
        "metadata": metadata(backup, account_name(&backup.name_any())),
        "automountServiceAccountToken": false,
    }))
}

/// What it may do: see whether its backup is still wanted, and say how far it is.
pub fn role(backup: &EtcdBackup) -> Role {
    let rule = |resource: &str, verb: &str| {
        json!({
            "apiGroups": ["etcd.database.coreos.com"],
            "resources": [resource],
            "resourceNames": [backup.name_any()],
            "verbs": [verb],
        })
    };
    object(json!({
        "metadata": metadata(backup, account_name(&backup.name_any())),
        "rules": [rule("etcdbackups", "get"), rule("etcdbackups/status", "patch")],
    }))
}

/// That it may.
pub fn role_binding(backup: &EtcdBackup) -> RoleBinding {
    let name = account_name(&backup.name_any());
    object(json!({
        "metadata": metadata(backup, name.clone()),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name}],
    }))
}

/// The pod that takes the backup for a time.
pub fn saver(
    backup: &EtcdBackup,
    name: String,
    scheduled: Timestamp,
    place: &Place,
    endpoints: &[String],
    client_secret: Option<&str>,
    image: &str,
) -> Pod {
    let (mut container, mut volumes) = pods::container("save", place, image, &["save"]);
    let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
    let tokens = "/var/run/secrets/kubernetes.io/serviceaccount";
    push(
        &mut container,
        "/env",
        [
            json!({"name": "ENDPOINTS", "value": endpoints.join(",")}),
            json!({"name": "BACKUP", "value": backup.name_any()}),
            json!({"name": "BACKUP_UID", "value": backup.uid().unwrap_or_default()}),
            json!({"name": "SCHEDULED", "value": scheduled.to_string()}),
            json!({"name": "POD_NAME", "valueFrom": field("metadata.name")}),
            json!({"name": "POD_NAMESPACE", "valueFrom": field("metadata.namespace")}),
            json!({"name": "POD_UID", "valueFrom": field("metadata.uid")}),
        ],
    );
    push(&mut container, "/volumeMounts", [json!({"name": "token", "mountPath": tokens, "readOnly": true})]);
    volumes.push(json!({"name": "token", "projected": {"sources": [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]}}));
    if let Some(secret) = client_secret {
        volumes.push(json!({"name": "client-tls", "secret": {"secretName": secret}}));
        let mount = json!({"name": "client-tls", "mountPath": pods::CLIENT_TLS, "readOnly": true});
        push(&mut container, "/volumeMounts", [mount]);
    }
    let mut pod = pod(backup, name, container, volumes);
    pod.annotations_mut().insert(PATH.to_owned(), place.path().to_owned());
    pod
}

/// The pod that removes files.
pub fn remover(
    backup: &EtcdBackup,
    name: String,
    place: &Place,
    leaving: &[String],
    unfinished: &[String],
    image: &str,
) -> Pod {
    let mut arguments = vec!["remove"];
    arguments.extend(unfinished.iter().flat_map(|path| ["--unfinished", path]));
    arguments.extend(leaving.iter().map(String::as_str));
    let (mut container, volumes) = pods::container("remove", place, image, &arguments);
    push(&mut container, "/env", [json!({"name": "BACKUP_UID", "value": backup.uid().unwrap_or_default()})]);
    pod(backup, name, container, volumes)
}

fn pod(backup: &EtcdBackup, name: String, container: Value, volumes: Vec<Value>) -> Pod {
    let mut metadata = metadata(backup, name);
    let generation = backup.metadata.generation.unwrap_or_default().to_string();
    wheelhouse::overrides::merge(&mut metadata, &json!({"annotations": {GENERATION: generation}}));
    let account = account_name(&backup.name_any());
    let spec = pods::pod_spec(container, volumes, backup.spec.timeout_seconds(), Some(&account));
    object(json!({"metadata": metadata, "spec": spec}))
}

fn push(container: &mut Value, list: &str, more: impl IntoIterator<Item = Value>) {
    if let Some(list) = container.pointer_mut(list).and_then(Value::as_array_mut) {
        list.extend(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backup(place: Value) -> EtcdBackup {
        let mut content = json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2",
            "kind": "EtcdBackup",
            "metadata": {"name": "nightly", "namespace": "n", "uid": "u", "generation": 3},
            "spec": {"cluster": "db", "schedule": "0 3 * * *"},
        });
        wheelhouse::overrides::merge(&mut content, &json!({"spec": place}));
        serde_json::from_value(content).unwrap()
    }

    #[test]
    fn a_pod_meets_the_restricted_standard_and_has_secrets_as_files_only() {
        let backup = backup(json!({
            "clientTLSSecret": "client",
            "s3": {"path": "bucket/db", "awsSecret": "aws", "caSecret": "ca", "endpoint": "https://s3:9000"},
        }));
        let time: Timestamp = "2026-05-02T03:00:00Z".parse().unwrap();
        let place = crate::backups::schedule::place(&backup.spec, time).unwrap();
        let urls = ["http://db-0.db.n.svc:2379".to_owned()];
        let pod = saver(&backup, saver_name("nightly", time), time, &place, &urls, Some("client"), "image");
        insta::assert_snapshot!(serde_json::to_string_pretty(&pod).unwrap());
    }

    #[test]
    fn whoever_removes_is_told_which_files_were_given_up() {
        let backup = backup(json!({"volume": {"claim": "c", "path": "db"}}));
        let (leaving, unfinished) = (["db_1".to_owned()], ["db_2".to_owned()]);
        let name = remover_name("nightly", &leaving, &unfinished);
        let place = backup.spec.place().unwrap();
        let pod = remover(&backup, name.clone(), &place, &leaving, &unfinished, "image");
        let arguments = pod.spec.unwrap().containers.remove(0).args.unwrap();
        assert_eq!(arguments, ["backup", "remove", "--unfinished", "db_2", "db_1"]);
        assert_ne!(name, remover_name("nightly", &unfinished, &leaving));
    }
    #[test]
    fn a_pod_has_the_volume_and_as_long_as_people_want() {
        let volume = json!({"claim": "backups", "path": "db"});
        let backup = backup(json!({"volume": volume, "backupPolicy": {"timeoutInSecond": 60}}));
        let time: Timestamp = "2026-05-02T03:00:00Z".parse().unwrap();
        let place = crate::backups::schedule::place(&backup.spec, time).unwrap();
        let pod = serde_json::to_value(
            saver(&backup, saver_name("nightly", time), time, &place, &[], None, "image").spec,
        )
        .unwrap();
        assert_eq!(pod["activeDeadlineSeconds"], 60);
        let volumes = pod["volumes"].as_array().unwrap();
        let claim = json!({"name": "backup", "persistentVolumeClaim": {"claimName": "backups"}});
        assert!(volumes.contains(&claim), "{volumes:?}");
        assert!(!volumes.iter().any(|volume| volume["name"] == "client-tls"), "nobody asks who it is");
    }
}
