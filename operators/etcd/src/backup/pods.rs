//! The pods in which backups are taken, verified, fetched and removed. Pure.

use serde_json::{Value, json};

use super::{PLACE_VARIABLE, store::Mounts};
use crate::{api::backup::Place, children::USER};

/// The container that fetches a backup to a file and verifies it, and the volumes that it takes; to be an init
/// container of whoever needs the file. The volume that the file is to be on is theirs to mount. With
/// `--sha256 SUM` among its `args` it takes no other backup than that.
pub fn fetch_container(place: &Place, image: &str, to: &str) -> (Value, Vec<Value>) {
    container("fetch", place, image, &["fetch", "--to", to])
}

/// A container that runs a verb of [`super`] on a place.
pub(crate) fn container(name: &str, place: &Place, image: &str, arguments: &[&str]) -> (Value, Vec<Value>) {
    let mounts = Mounts::default();
    let mut volumes = vec![json!({"name": "backup-scratch", "emptyDir": {}})];
    let mut mounted = vec![json!({"name": "backup-scratch", "mountPath": mounts.scratch})];
    match place {
        Place::S3(s3) => {
            volumes.push(json!({"name": "backup-aws", "secret": {"secretName": s3.aws_secret}}));
            mounted.push(json!({"name": "backup-aws", "mountPath": mounts.aws, "readOnly": true}));
            if let Some(secret) = &s3.ca_secret {
                let items = json!([{"key": "ca.crt", "path": "ca.crt"}]);
                volumes.push(
                    json!({"name": "backup-authorities", "secret": {"secretName": secret, "items": items}}),
                );
                mounted.push(
                    json!({"name": "backup-authorities", "mountPath": mounts.authorities, "readOnly": true}),
                );
            }
        }
        Place::Volume(volume) => {
            volumes.push(json!({"name": "backup", "persistentVolumeClaim": {"claimName": volume.claim}}));
            mounted.push(json!({"name": "backup", "mountPath": mounts.volume}));
        }
    }
    let mut all = vec!["backup"];
    all.extend(arguments);
    let container = json!({
        "name": name,
        "image": image,
        "args": all,
        "env": [{"name": PLACE_VARIABLE, "value": json!(place).to_string()}],
        "volumeMounts": mounted,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        },
    });
    (container, volumes)
}

/// Where the Secret is by which etcd knows its clients.
pub(crate) const CLIENT_TLS: &str = "/var/run/etcd-backup/client-tls";

/// A pod with that container, which runs once.
pub(crate) fn pod_spec(
    container: Value,
    volumes: Vec<Value>,
    within_seconds: i64,
    account: Option<&str>,
) -> Value {
    json!({
        "restartPolicy": "Never",
        "activeDeadlineSeconds": within_seconds,
        "serviceAccountName": account,
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": 10,
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": volumes,
    })
}
