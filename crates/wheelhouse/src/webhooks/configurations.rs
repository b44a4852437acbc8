//! What the API server is told about the webhooks: where they are, and whom to trust.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};

use super::{Address, Webhooks};
use crate::{
    error::{Error, Result},
    kind::Kind,
};

pub(super) fn validate_path(kind: &Kind) -> String {
    format!("/validate/{}/{}", kind.group, kind.plural)
}

pub(super) fn default_path(kind: &Kind) -> String {
    format!("/default/{}/{}", kind.group, kind.plural)
}

pub(super) fn convert_path(crd: &str) -> String {
    format!("/convert/{crd}")
}

/// Whose webhooks they are, and whom they concern.
#[derive(Clone)]
pub(crate) struct Scope {
    /// The operator's name.
    pub(crate) operator: String,
    /// Where the operator looks; nowhere in particular means everywhere. Elsewhere nobody has to
    /// wait for it, and nobody is kept from anything while it is away.
    pub(crate) namespaces: Vec<String>,
}

/// Writes all of it, under the operator's name.
pub(super) async fn write(
    client: &Client,
    scope: &Scope,
    webhooks: &Webhooks,
    address: &Address,
    bundle: &str,
) -> Result<()> {
    let operator = &scope.operator;
    for object in objects(scope, webhooks, address, bundle) {
        let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (group, version) = text("/apiVersion").split_once('/').unwrap_or_default();
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, text("/kind")));
        let name = text("/metadata/name");
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
        let params = PatchParams::apply(&format!("{operator}/webhooks")).force();
        let doing = format!("write the {} {name}", text("/kind"));
        api.patch(name, &params, &Patch::Apply(&object)).await.map_err(Error::write(doing))?;
    }
    Ok(())
}

fn objects(scope: &Scope, webhooks: &Webhooks, address: &Address, bundle: &str) -> Vec<Value> {
    let concerned = match scope.namespaces.is_empty() {
        true => json!({}),
        false => json!({"matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "In", "values": scope.namespaces},
        ]}),
    };
    let bundle = BASE64_STANDARD.encode(bundle);
    let client_config = |path: String| match address {
        Address::Url(url) => {
            json!({"url": format!("{}{path}", url.trim_end_matches('/')), "caBundle": bundle})
        }
        Address::Service { name, namespace } => {
            let service = json!({"name": name, "namespace": namespace, "path": path, "port": 443});
            json!({"service": service, "caBundle": bundle})
        }
    };
    let webhook = |verb: &str, kind: &Kind, operations: &[&str], path: String| {
        json!({
            "name": format!("{verb}.{}.{}", kind.plural, kind.group),
            "clientConfig": client_config(path),
            "rules": [{
                "apiGroups": [kind.group], "apiVersions": [kind.version], "resources": [kind.plural],
                "operations": operations, "scope": "*",
            }],
            "namespaceSelector": concerned,
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "timeoutSeconds": 10,
        })
    };
    let configuration = |kind: &str, webhooks: Vec<Value>| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"name": scope.operator}, "webhooks": webhooks,
        })
    };
    let mut objects = Vec::new();
    if !webhooks.validating.is_empty() {
        let all = webhooks
            .validating
            .iter()
            .map(|(kind, _)| webhook("validate", kind, &["CREATE", "UPDATE", "DELETE"], validate_path(kind)));
        objects.push(configuration("ValidatingWebhookConfiguration", all.collect()));
    }
    if !webhooks.defaulting.is_empty() {
        let all = webhooks
            .defaulting
            .iter()
            .map(|(kind, _)| webhook("default", kind, &["CREATE", "UPDATE"], default_path(kind)));
        objects.push(configuration("MutatingWebhookConfiguration", all.collect()));
    }
    for (crd, _) in &webhooks.converting {
        let webhook =
            json!({"clientConfig": client_config(convert_path(crd)), "conversionReviewVersions": ["v1"]});
        objects.push(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": crd}, "spec": {"conversion": {"strategy": "Webhook", "webhook": webhook}},
        }));
    }
    objects
}
