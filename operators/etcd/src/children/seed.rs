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
        keep_apart_from_its_own(&mut content, member.incarnation);
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
            // When a node has restarted, or the pod was made again, the container runs again: who began has what it began with, and
            // what lies ready is all that is needed. The place of the backup may be away by then.
            for argument in ["--sha256", sha256, "--unless", layout::MARK, "--unless", layout::PREPARED] {
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

/// What selects the pods of the first incarnation: they have no label for it.
pub(super) fn of_the_first() -> Value {
    json!({"key": INCARNATION_LABEL, "operator": "DoesNotExist"})
}

/// A pod that has to be on a node of its own has to be so among those of its incarnation. The scheduler asks those that are there, too,
/// so it would not do to ask that of this one alone.
fn keep_apart_from_its_own(content: &mut Value, incarnation: u32) {
    let required = "/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution";
    let terms = content.pointer_mut(required).and_then(Value::as_array_mut);
    for term in terms.into_iter().flatten() {
        let expressions = term.pointer_mut("/labelSelector/matchExpressions").and_then(Value::as_array_mut);
        for expression in expressions.into_iter().flatten().filter(|known| **known == of_the_first()) {
            *expression =
                json!({"key": INCARNATION_LABEL, "operator": "In", "values": [incarnation.to_string()]});
        }
    }
}

fn append(content: &mut Value, list: &str, item: Value) {
    if let Some(items) = content.pointer_mut(list).and_then(Value::as_array_mut) {
        items.push(item);
    }
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt as _;

    use super::*;
    use crate::{
        api::EtcdCluster,
        children::{Images, pod},
    };

    fn seed(member: Value) -> Pod {
        let mut content = json!({"cluster": "db", "ordinal": 3, "intent": "Waiting", "incarnation": 1});
        wheelhouse::overrides::merge(&mut content, &member);
        let member = serde_json::from_value(content).unwrap();
        let pod = json!({"spec": {"containers": [{"name": "etcd", "volumeMounts": []}], "initContainers": [], "volumes": []}});
        seed_pod(&serde_json::from_value(pod).unwrap(), &member, "supervisor").unwrap()
    }

    /// A coming member is one more than there are nodes. The scheduler holds a new pod to the terms of those that are there as well.
    #[test]
    fn who_comes_may_stand_beside_who_goes() {
        let spec = json!({"size": 3, "pod": {"antiAffinity": true}});
        let cluster = EtcdCluster::new("db", serde_json::from_value(spec).unwrap());
        let images = Images { repository: "etcd", supervisor: "supervisor" };
        let former = pod(&cluster, "db-0", "3.6.16".parse().unwrap(), &images).unwrap();
        let member = json!({"cluster": "db", "ordinal": 3, "intent": "Waiting", "incarnation": 1});
        let coming = seed_pod(&former, &serde_json::from_value(member).unwrap(), "supervisor").unwrap();
        let apart_from = |pod: &Pod| {
            let pod = json!(pod);
            let required = "/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution";
            let terms = pod.pointer(required).unwrap().as_array().unwrap();
            assert_eq!(terms.len(), 1);
            assert_eq!(terms[0]["labelSelector"]["matchLabels"], json!({"etcd_cluster": "db"}));
            assert_eq!(terms[0]["topologyKey"], "kubernetes.io/hostname");
            terms[0]["labelSelector"]["matchExpressions"].clone()
        };
        assert_eq!(apart_from(&former), json!([{"key": INCARNATION_LABEL, "operator": "DoesNotExist"}]));
        assert_eq!(
            apart_from(&coming),
            json!([{"key": INCARNATION_LABEL, "operator": "In", "values": ["1"]}])
        );
        assert!(!former.labels().contains_key(INCARNATION_LABEL));
        assert_eq!(coming.labels()[INCARNATION_LABEL], "1");
    }

    /// The pod may be made again when the place of the backup is away.
    #[test]
    fn what_lies_ready_is_not_fetched_again() {
        let place = json!({"volume": {"claim": "backups", "path": "db"}});
        let source = json!({"backup": {"place": place, "sha256": "ab", "movesRevisions": true}});
        let pod = seed(json!({"source": source}));
        let containers = pod.spec.unwrap().init_containers.unwrap();
        let arguments = containers[0].args.clone().unwrap();
        let unless: Vec<_> = arguments.windows(2).filter(|pair| pair[0] == "--unless").collect();
        assert_eq!(unless, [["--unless", layout::MARK], ["--unless", layout::PREPARED]]);
        let volume = crate::supervisor::folder::Volume::at(layout::VOLUME);
        assert_eq!(volume.prepared(), std::path::Path::new(layout::PREPARED));
    }
}
