//! The pods of a Gordon: what they are called and what they are like.

use serde_json::json;
use sha2::{Digest as _, Sha256};
use wheelhouse::{k8s_openapi::api::core::v1::Pod, kube::ResourceExt as _, overrides};

use crate::api::{self, Gordon};

/// The label that all pods of a Gordon have.
pub(crate) const LABEL: &str = "operator.prgcont.cz/gordon";
/// What was wanted when a pod was made, as a hash of what people wrote. A new
/// version of this operator, with other defaults, restarts nobody.
pub(crate) const WANTED: &str = "operator.prgcont.cz/wanted";

/// The pods have names that can be told again, so that a create that timed out
/// after it took effect is recognised.
pub(crate) fn name(gordon: &str, index: i32) -> String {
    format!("{gordon}-{index}")
}

/// The place of a pod among the others, by its name.
pub(crate) fn index(gordon: &str, pod: &str) -> Option<i32> {
    let digits = pod.strip_prefix(gordon)?.strip_prefix('-')?;
    let index: i32 = digits.parse().ok()?;
    (name(gordon, index) == pod).then_some(index)
}

/// What people wanted pods to be like.
pub(crate) fn wanted(gordons: &api::Gordons) -> String {
    let text = json!([gordons.image, gordons.template]).to_string();
    Sha256::digest(text).iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

/// One pod. Fails, in words, if the template does not make one.
pub(crate) fn render(gordon: &Gordon, image: &str, index: i32) -> Result<Pod, String> {
    let owner = gordon.name_any();
    let image = gordon.spec.gordon.image.as_deref().unwrap_or(image);
    let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
    let mut pod = json!({
        "metadata": {},
        "spec": {
            "securityContext": {
                "runAsNonRoot": true,
                "runAsUser": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 5,
            "containers": [{
                "name": "gordon",
                "image": image,
                "ports": [{"name": "http", "containerPort": 8080}],
                "env": [
                    {"name": "POD_NAME", "valueFrom": field("metadata.name")},
                    {"name": "NAMESPACE", "valueFrom": field("metadata.namespace")},
                    {"name": "GORDON_NAME", "value": owner},
                ],
                "readinessProbe": {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 2},
                "resources": {"requests": {"cpu": "5m", "memory": "8Mi"}, "limits": {"memory": "64Mi"}},
                "securityContext": {
                    "allowPrivilegeEscalation": false,
                    "readOnlyRootFilesystem": true,
                    "capabilities": {"drop": ["ALL"]},
                },
            }],
        },
    });
    if let Some(template) = &gordon.spec.gordon.template {
        overrides::merge(&mut pod, template);
    }
    let mut pod: Pod =
        serde_json::from_value(pod).map_err(|error| format!("spec.gordon.template makes no pod: {error}"))?;
    pod.metadata.name = Some(name(&owner, index));
    pod.labels_mut().insert(LABEL.to_owned(), owner);
    pod.annotations_mut().insert(WANTED.to_owned(), wanted(&gordon.spec.gordon));
    Ok(pod)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use wheelhouse::k8s_openapi::api::core::v1::Container;

    use super::*;
    use crate::api::{GordonSpec, Gordons};

    fn gordon(template: Option<Value>) -> Gordon {
        let gordon = Gordons { replicas: 3, image: None, template };
        Gordon::new("sample", GordonSpec { gordon })
    }

    #[test]
    fn a_pod_is_told_by_its_name() {
        assert_eq!(index("sample", "sample-12"), Some(12));
        assert_eq!(index("sample", "sample-012"), None);
        assert_eq!(index("sample", "sample-x"), None);
        assert_eq!(index("sample", "sample-1-1"), None);
        assert_eq!(index("sample-1", "sample-1-1"), Some(1));
    }

    #[test]
    fn a_pod_meets_the_restricted_standard_and_knows_who_it_is() {
        insta::assert_snapshot!(
            serde_json::to_string_pretty(&render(&gordon(None), "wheelhouse.dev/gordon:0.1.0", 0).unwrap())
                .unwrap()
        );
    }

    #[test]
    fn a_template_changes_what_it_mentions() {
        let template = json!({
            "metadata": {"labels": {"team": "a"}},
            "spec": {
                "nodeSelector": {"disk": "ssd"},
                "containers": [{"name": "gordon", "env": [{"name": "X", "value": "1"}]}, {"name": "side", "image": "b"}],
            },
        });
        let pod = render(&gordon(Some(template)), "a", 0).unwrap();
        assert_eq!(pod.labels()["team"], "a");
        assert_eq!(pod.labels()[LABEL], "sample");
        let spec = pod.spec.unwrap();
        assert_eq!(spec.node_selector.unwrap()["disk"], "ssd");
        let names = |container: &Container| {
            container.env.iter().flatten().map(|env| env.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(&spec.containers[0]), ["POD_NAME", "NAMESPACE", "GORDON_NAME", "X"]);
        assert_eq!(spec.containers[1].name, "side");
    }

    #[test]
    fn a_template_that_makes_no_pod_is_told_in_words() {
        let error = render(&gordon(Some(json!({"spec": {"containers": "none"}}))), "a", 0).unwrap_err();
        assert!(
            error.starts_with("spec.gordon.template makes no pod: invalid type: string \"none\""),
            "{error}"
        );
    }
}
