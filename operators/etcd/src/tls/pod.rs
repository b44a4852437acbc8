//! What a pod has for TLS: Secrets as folders, and variables for the supervisor and for `etcdctl`. Pure.

use serde_json::{Value, json};

use super::{Side, Wanted};
use crate::{api::EtcdCluster, layout, version::Version};

/// Readable for the group of the pod, whose all files there are.
const FOR_THE_GROUP: i32 = 0o440;
/// Where people's own security context names no such group.
const FOR_ALL_IN_THE_POD: i32 = 0o444;

/// How certificates come to be, for the supervisor: by the operator.
pub(crate) const AUTOMATIC: &str = "automatic";
/// Or by somebody else.
const STATIC: &str = "static";

/// The variable that says whether a side speaks TLS.
pub(crate) fn variable(side: Side) -> &'static str {
    match side {
        Side::Peer => "PEER_TLS",
        Side::Server => "SERVER_TLS",
        Side::Client => "CLIENT_TLS",
    }
}

/// Adds it to the spec of a pod whose first container is etcd's.
pub(crate) fn add(spec: &mut Value, cluster: &EtcdCluster, version: Version) {
    let wanted = Wanted::by(cluster);
    if wanted.is_plain() {
        return;
    }
    let made = if wanted.automatic.is_some() { AUTOMATIC } else { STATIC };
    let security = cluster.spec.pod.as_ref().and_then(|pod| pod.security_context.as_ref());
    let has_group = security.is_none_or(|theirs| theirs.fs_group.is_some());
    let mode = if has_group { FOR_THE_GROUP } else { FOR_ALL_IN_THE_POD };
    push(spec, "/containers/0/env", json!({"name": "VERSION", "value": version.to_string()}));
    for (side, secret) in &wanted.secrets {
        let files = side.files();
        // Only if they are all there does kubelet replace them.
        let items: Vec<_> = [files.certificate, files.key, files.authorities]
            .into_iter()
            .map(|file| json!({"key": file, "path": file}))
            .collect();
        let volume = json!({"secretName": secret, "defaultMode": mode, "items": items});
        push(spec, "/volumes", json!({"name": side.name(), "secret": volume}));
        let mount = json!({"name": side.name(), "mountPath": side.folder(), "readOnly": true});
        push(spec, "/containers/0/volumeMounts", mount);
        push(spec, "/containers/0/env", json!({"name": variable(*side), "value": made}));
    }
    if wanted.secrets.contains_key(&Side::Client) {
        let (files, folder) = (Side::Client.files(), Side::Client.folder());
        let variables = [
            ("ETCDCTL_ENDPOINTS", format!("https://localhost:{}", layout::CLIENT_PORT)),
            ("ETCDCTL_CACERT", format!("{folder}/{}", files.authorities)),
            ("ETCDCTL_CERT", format!("{folder}/{}", files.certificate)),
            ("ETCDCTL_KEY", format!("{folder}/{}", files.key)),
        ];
        for (name, value) in variables {
            push(spec, "/containers/0/env", json!({"name": name, "value": value}));
        }
    }
}

fn push(spec: &mut Value, list: &str, item: Value) {
    if let Some(items) = spec.pointer_mut(list).and_then(Value::as_array_mut) {
        items.push(item);
    }
}
