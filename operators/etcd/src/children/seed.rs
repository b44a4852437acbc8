//! What is different about a pod that is to begin, or has begun, a later incarnation.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::INCARNATION_LABEL;
use crate::{api::EtcdMemberSpec, backup, incarnation::Source, layout};

/// The pod of a member, with what it begins from.
///
/// # Errors
/// When that makes no pod, in words.
pub fn seed_pod(pod: &Pod, member: &EtcdMemberSpec, supervisor_image: &str) -> Result<Pod, String> {
    let wrong =
        |error: serde_json::Error| format!("what {} begins from makes no pod: {error}", member.cluster);
    let mut content = serde_json::to_value(pod).map_err(wrong)?;
    if member.incarnation > 0 {
        let labels = json!({"metadata": {"labels": {INCARNATION_LABEL: member.incarnation.to_string()}}});
        wheelhouse::overrides::merge(&mut content, &labels);
    }
    match &member.source {
        None => {}
        Some(Source::Survivor { claim, .. }) => {
            let volume = json!({
                "name": "survivor",
                "persistentVolumeClaim": {"claimName": claim, "readOnly": true},
            });
            append(&mut content, "/spec/volumes", volume);
            let mount = json!({"name": "survivor", "mountPath": layout::SURVIVOR, "readOnly": true});
            append(&mut content, "/spec/containers/0/volumeMounts", mount);
        }
        Some(Source::Backup { place, sha256, .. }) => {
            let (mut container, volumes) =
                backup::pods::fetch_container(place, supervisor_image, layout::SNAPSHOT);
            // When a node has restarted the container runs again: who began has what it began with.
            for argument in ["--sha256", sha256, "--unless", layout::MARK] {
                append(&mut container, "/args", json!(argument));
            }
            append(&mut container, "/volumeMounts", json!({"name": "data", "mountPath": layout::VOLUME}));
            append(&mut content, "/spec/initContainers", container);
            for volume in volumes {
                append(&mut content, "/spec/volumes", volume);
            }
        }
    }
    serde_json::from_value(content).map_err(wrong)
}

fn append(content: &mut Value, list: &str, item: Value) {
    if let Some(items) = content.pointer_mut(list).and_then(Value::as_array_mut) {
        items.push(item);
    }
}
