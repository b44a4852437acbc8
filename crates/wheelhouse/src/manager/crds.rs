//! Registers CRDs at the start: by server-side apply, never an older version
//! over a newer one, and waits until they are served.

use std::{cmp::Ordering, time::Duration};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};

use serde_json::Value;

use crate::error::{Category, Error, Result};

/// The version of the operator that a CRD came with.
const VERSION: &str = "wheelhouse.dev/version";
/// The operator that looks after the resources of a kind, for whoever wants to ask it.
const OPERATOR: &str = "wheelhouse.dev/operator";
const SERVED_WITHIN: Duration = Duration::from_secs(60);

/// Stamps CRDs with the name and the version of the operator that they come with.
pub(crate) fn stamped(
    mut crd: CustomResourceDefinition,
    operator: &str,
    version: &str,
) -> CustomResourceDefinition {
    crd.annotations_mut().insert(OPERATOR.to_owned(), operator.to_owned());
    crd.annotations_mut().insert(VERSION.to_owned(), version.to_owned());
    crd
}

/// A kind with one more version, which is served. The version that is stored stays the same.
pub fn with_version(
    mut crd: CustomResourceDefinition,
    other: CustomResourceDefinition,
) -> CustomResourceDefinition {
    for mut version in other.spec.versions {
        version.storage = false;
        crd.spec.versions.retain(|known| known.name != version.name);
        crd.spec.versions.push(version);
    }
    crd
}

/// Leaves out how wide Rust's numbers are: Kubernetes knows no unsigned formats, nor short
/// ones, and would warn of each. What they allow is in the schema's limits.
pub(crate) fn without_unknown_formats(crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let Ok(mut value) = serde_json::to_value(&crd) else { return crd };
    forget_formats(&mut value);
    serde_json::from_value(value).unwrap_or(crd)
}

/// What a kind is, for `kubectl explain`: where its type says nothing of its own, the derive writes where it comes from,
/// and what its spec is about is said in one sentence already.
pub(crate) fn described(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let schemas = crd.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut());
    for schema in schemas.filter_map(|schema| schema.open_api_v3_schema.as_mut()) {
        let is_derived = |said: &String| said.starts_with("Auto-generated derived type for ");
        let spec = schema.properties.as_ref().and_then(|properties| properties.get("spec"));
        let sentence = spec.and_then(|spec| spec.description.clone());
        if sentence.is_some() && schema.description.as_ref().is_none_or(is_derived) {
            schema.description = sentence;
        }
    }
    crd
}

fn forget_formats(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let is_known = |format: &Value| matches!(format.as_str(), Some("int32" | "int64"));
            if fields.get("type").is_some_and(|kind| kind == "integer")
                && fields.get("format").is_some_and(|format| format.is_string() && !is_known(format))
            {
                fields.remove("format");
            }
            fields.values_mut().for_each(forget_formats);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_formats),
        _ => {}
    }
}

pub(crate) async fn install(client: &Client, crds: &[CustomResourceDefinition], manager: &str) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in crds {
        let name = crd.name_any();
        let doing = format!("install the CRD {name}");
        let installed = api.get_opt(&name).await.map_err(Error::api(&doing))?;
        let newer = installed.as_ref().and_then(|installed| newer_version(installed, crd));
        if let Some(newer) = newer {
            tracing::warn!(
                crd = name,
                "the installed CRD is of the newer version {newer}: it is left as it is"
            );
            continue;
        }
        let params = PatchParams::apply(manager).force();
        api.patch(&name, &params, &Patch::Apply(crd)).await.map_err(Error::api(&doing))?;
        tracing::info!(crd = name, "installed the CRD");
    }
    for crd in crds {
        wait_until_served(client, crd).await?;
    }
    Ok(())
}

/// The version of what is installed, if that is newer.
fn newer_version<'a>(
    installed: &'a CustomResourceDefinition,
    ours: &CustomResourceDefinition,
) -> Option<&'a str> {
    let installed = installed.annotations().get(VERSION)?;
    let ours = ours.annotations().get(VERSION)?;
    (compare_versions(installed, ours) == Ordering::Greater).then_some(installed)
}

/// By numbers: 0.10 is newer than 0.9. A pre-release is older than its release.
fn compare_versions(one: &str, other: &str) -> Ordering {
    let parse = |version: &str| {
        let (release, rest) = version.split_once('-').unwrap_or((version, ""));
        let numbers: Vec<u64> = release.split('.').map(|part| part.parse().unwrap_or(0)).collect();
        (numbers, rest.is_empty(), rest.to_owned())
    };
    parse(one).cmp(&parse(other))
}

async fn wait_until_served(client: &Client, crd: &CustomResourceDefinition) -> Result<()> {
    let served = tokio::time::timeout(SERVED_WITHIN, async {
        for version in crd.spec.versions.iter().filter(|version| version.served) {
            let gvk = GroupVersionKind::gvk(&crd.spec.group, &version.name, &crd.spec.names.kind);
            let resource = ApiResource::from_gvk_with_plural(&gvk, &crd.spec.names.plural);
            let objects: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            // Who may not list in all namespaces is told so: it is served.
            while matches!(objects.list(&ListParams::default().limit(1)).await, Err(kube::Error::Api(status)) if status.code == 404)
            {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    });
    served.await.map_err(|_| {
        let message =
            format!("the CRD {} is not served after {SERVED_WITHIN:?}: see its conditions", crd.name_any());
        Error::new(Category::Unavailable, message)
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[test]
    fn formats_that_kubernetes_does_not_know_are_left_out() {
        let mut schema = json!({"properties": {
            "port": {"type": "integer", "format": "uint16", "minimum": 1},
            "size": {"type": "integer", "format": "int32"},
            "when": {"type": "string", "format": "date-time"},
            "format": {"type": "string"},
        }});
        forget_formats(&mut schema);
        assert_eq!(
            schema,
            json!({"properties": {
                "port": {"type": "integer", "minimum": 1},
                "size": {"type": "integer", "format": "int32"},
                "when": {"type": "string", "format": "date-time"},
                "format": {"type": "string"},
            }})
        );
    }

    fn with_descriptions(of_kind: &str, of_spec: Option<&str>) -> CustomResourceDefinition {
        let schema = json!({
            "type": "object",
            "description": of_kind,
            "properties": {"spec": {"type": "object", "description": of_spec}},
        });
        let version =
            json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
        serde_json::from_value(json!({"spec": {"group": "", "names": {"kind": "Page", "plural": "pages"},
            "scope": "Namespaced", "versions": [version]}}))
        .unwrap()
    }

    #[rstest]
    #[case::nothing_of_its_own(
        "Auto-generated derived type for PageSpec via `CustomResource`",
        Some("A page."),
        "A page."
    )]
    #[case::words_of_its_own("A leaf.", Some("A page."), "A leaf.")]
    #[case::nothing_at_all("Auto-generated derived type for X", None, "Auto-generated derived type for X")]
    fn a_kind_is_what_its_spec_is_about(#[case] said: &str, #[case] spec: Option<&str>, #[case] told: &str) {
        let crd = described(with_descriptions(said, spec));
        let schema = crd.spec.versions[0].schema.clone().and_then(|schema| schema.open_api_v3_schema);
        assert_eq!(schema.and_then(|schema| schema.description).as_deref(), Some(told));
    }

    #[rstest]
    #[case("0.1.0", "0.1.0", Ordering::Equal)]
    #[case("0.10.0", "0.9.3", Ordering::Greater)]
    #[case("1.0.0-rc.1", "1.0.0", Ordering::Less)]
    #[case("1.0.0", "0.99.99", Ordering::Greater)]
    fn versions_compare_by_their_numbers(#[case] one: &str, #[case] other: &str, #[case] expected: Ordering) {
        assert_eq!(compare_versions(one, other), expected);
    }
}
