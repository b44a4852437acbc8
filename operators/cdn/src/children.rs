//! What a CdnCluster consists of: the objects that its operator applies. Pure.

use std::collections::BTreeSet;

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Service, ServiceAccount},
    policy::v1::PodDisruptionBudget,
    rbac::v1::{Role as RbacRole, RoleBinding},
};
use kube::ResourceExt as _;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use wheelhouse::overrides;

use crate::{
    api::{AntiAffinity, CdnCluster, Role},
    configuration::{CONFIGURATION_KEY, Configuration, Purges},
    layout,
};

/// The label by which everything of a cluster is found; its Service hands it on to
/// its EndpointSlices.
pub const LABEL: &str = "cluster.anevia.com/cluster";
/// The label of the talk.
const DEPLOYMENT_LABEL: &str = "deployment";
/// What people wanted of pods when a Deployment's were last changed.
pub const WANTED: &str = "cluster.anevia.com/wanted";
/// The version of this operator that did so.
pub const RENDERED_BY: &str = "cluster.anevia.com/rendered-by";
/// The version of this operator.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Whoever runs in the pods is nobody in particular.
const USER: i64 = 65532;
/// So long after a pod is to go, requests still come to it.
const UNHEARD_SECONDS: i64 = 8;

/// The name of a cluster's Deployment.
pub fn deployment_name(cluster: &str) -> String {
    format!("{cluster}-deployment")
}

/// The name of the ConfigMap with what is to be served.
pub fn configuration_name(cluster: &str) -> String {
    format!("{cluster}-config")
}

/// The name of the ConfigMap with what must not be served any more.
pub fn purges_name(cluster: &str) -> String {
    format!("{cluster}-purges")
}

/// Who the agents of a cluster are.
pub fn agent_name(cluster: &str) -> String {
    format!("{cluster}-agent")
}

/// How the pods of a cluster are found.
pub fn selector(cluster: &str) -> String {
    format!("{DEPLOYMENT_LABEL}={}", deployment_name(cluster))
}

/// The images of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Images<'a> {
    /// With nginx, unless the cluster says otherwise.
    pub nginx: &'a str,
    /// With the agent.
    pub agent: &'a str,
}

/// An object from its JSON, which is written here and so is one.
fn object<K: DeserializeOwned + Default>(content: Value) -> K {
    serde_json::from_value(content).unwrap_or_default()
}

fn metadata(cluster: &CdnCluster, name: String) -> Value {
    json!({"name": name, "labels": {LABEL: cluster.name_any()}})
}

/// What the pods are to serve.
pub fn configuration(cluster: &CdnCluster, configuration: &Configuration) -> ConfigMap {
    object(json!({
        "metadata": metadata(cluster, configuration_name(&cluster.name_any())),
        "data": {CONFIGURATION_KEY: configuration.text()},
    }))
}

/// What they must not serve any more.
pub fn purges(cluster: &CdnCluster, purges: &Purges) -> ConfigMap {
    object(json!({
        "metadata": metadata(cluster, purges_name(&cluster.name_any())),
        "data": purges.write(),
    }))
}

/// Who the agents are.
pub fn service_account(cluster: &CdnCluster) -> ServiceAccount {
    object(json!({
        "metadata": metadata(cluster, agent_name(&cluster.name_any())),
        "automountServiceAccountToken": false,
    }))
}

/// What they may do: follow their own configuration, and where the pods of sources are.
pub fn role(cluster: &CdnCluster) -> RbacRole {
    let name = cluster.name_any();
    object(json!({
        "metadata": metadata(cluster, agent_name(&name)),
        "rules": [
            {
                "apiGroups": [""],
                "resources": ["configmaps"],
                "resourceNames": [configuration_name(&name), purges_name(&name)],
                "verbs": ["get", "list", "watch"],
            },
            {
                "apiGroups": ["discovery.k8s.io"],
                "resources": ["endpointslices"],
                "verbs": ["get", "list", "watch"],
            },
        ],
    }))
}

/// That they may.
pub fn role_binding(cluster: &CdnCluster) -> RoleBinding {
    let name = agent_name(&cluster.name_any());
    object(json!({
        "metadata": metadata(cluster, name.clone()),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name}],
    }))
}

/// Where the cluster is reached.
pub fn service(cluster: &CdnCluster) -> Service {
    let name = cluster.name_any();
    let mut ports = vec![json!({"name": "http", "port": 80, "targetPort": "http"})];
    if cluster.spec.tls.is_some() {
        ports.push(json!({"name": "https", "port": 443, "targetPort": "https"}));
    }
    object(json!({
        "metadata": metadata(cluster, name.clone()),
        "spec": {"selector": {DEPLOYMENT_LABEL: deployment_name(&name)}, "ports": ports},
    }))
}

/// How many pods are promised.
pub fn promised(cluster: &CdnCluster) -> i32 {
    let replicas = cluster.spec.replicas;
    cluster.spec.min_available.unwrap_or(replicas - 1).clamp(0, replicas)
}

/// The promise, for whoever drains nodes.
pub fn disruption_budget(cluster: &CdnCluster) -> PodDisruptionBudget {
    let name = cluster.name_any();
    object(json!({
        "metadata": metadata(cluster, name.clone()),
        "spec": {
            "minAvailable": promised(cluster),
            "selector": {"matchLabels": {DEPLOYMENT_LABEL: deployment_name(&name)}},
        },
    }))
}

/// What people want of pods, in short.
pub fn wanted(cluster: &CdnCluster) -> String {
    let spec = &cluster.spec;
    let text = json!([
        spec.image,
        spec.resources,
        spec.anti_affinity,
        spec.drain_seconds,
        spec.template,
        spec.role,
        spec.cache.as_ref().map(|cache| &cache.size),
        spec.tls,
        secrets_of_origins(cluster),
    ]);
    Sha256::digest(text.to_string()).iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

/// The Secrets whose authorities are trusted.
pub fn secrets_of_origins(cluster: &CdnCluster) -> BTreeSet<&str> {
    let origins = cluster.spec.sources.iter().filter_map(|source| source.origin.as_ref());
    origins.filter_map(|origin| origin.tls.ca_secret.as_deref()).collect()
}

/// What pods are made from, and by which version of this operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    /// The template of a pod.
    pub content: Value,
    /// Who made it.
    pub rendered_by: String,
}

/// What pods are to be made from.
pub fn template(cluster: &CdnCluster, images: &Images<'_>) -> Template {
    let name = cluster.name_any();
    let mut content = json!({"metadata": {}, "spec": pod_spec(cluster, images)});
    if let Some(wish) = &cluster.spec.template {
        overrides::merge(&mut content, wish);
    }
    let labels = json!({DEPLOYMENT_LABEL: deployment_name(&name), LABEL: name});
    overrides::merge(&mut content, &json!({"metadata": {"labels": labels}}));
    Template { content, rendered_by: VERSION.to_owned() }
}

/// The pods.
///
/// # Errors
/// When the template does not make pods, in words.
pub fn deployment(cluster: &CdnCluster, template: Template) -> Result<Deployment, String> {
    let name = cluster.name_any();
    let deployment = deployment_name(&name);
    let labels = json!({DEPLOYMENT_LABEL: deployment, LABEL: name});
    let replicas = cluster.spec.replicas;
    // Where two pods cannot be on one node, one has to go before the next can come.
    let (surge, unavailable) = match cluster.spec.anti_affinity {
        AntiAffinity::Required => (json!(0), json!((replicas - promised(cluster)).max(1))),
        _ => (json!("25%"), json!(0)),
    };
    let content = json!({
        "metadata": {
            "name": deployment,
            "labels": labels,
            "annotations": {WANTED: wanted(cluster), RENDERED_BY: template.rendered_by},
        },
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {DEPLOYMENT_LABEL: deployment}},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable},
            },
            "template": template.content,
        },
    });
    serde_json::from_value(content).map_err(|error| format!("spec.template makes no pods: {error}"))
}

fn pod_spec(cluster: &CdnCluster, images: &Images<'_>) -> Value {
    let spec = &cluster.spec;
    let name = cluster.name_any();
    let nginx = spec.image.as_deref().unwrap_or(images.nginx);
    let restricted = json!({
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]},
    });
    let mut mounts = vec![
        json!({"name": "agent", "mountPath": layout::AGENT_FOLDER, "readOnly": true}),
        json!({"name": "run", "mountPath": layout::RUN_FOLDER}),
        json!({"name": "tmp", "mountPath": "/tmp"}),
    ];
    let mut volumes = vec![
        json!({"name": "agent", "emptyDir": {}}),
        json!({"name": "run", "emptyDir": {"medium": "Memory", "sizeLimit": "128Mi"}}),
        json!({"name": "tmp", "emptyDir": {}}),
        token_volume(),
    ];
    if spec.role == Role::Cache {
        let size = spec.cache.clone().unwrap_or_default().size;
        mounts.push(json!({"name": "cache", "mountPath": layout::CACHE_FOLDER}));
        // nginx looks at the size now and then, and may have more for a moment.
        volumes.push(json!({"name": "cache", "emptyDir": {"sizeLimit": layout::with_leeway(&size)}}));
    }
    if let Some(tls) = &spec.tls {
        mounts.push(json!({"name": "tls", "mountPath": layout::TLS_FOLDER, "readOnly": true}));
        volumes.push(json!({"name": "tls", "secret": {"secretName": tls.secret_name, "optional": true}}));
    }
    for secret in secrets_of_origins(cluster) {
        let volume = format!("ca-{}", short(secret));
        mounts.push(json!({"name": volume, "mountPath": layout::authority_folder(secret), "readOnly": true}));
        volumes.push(json!({"name": volume, "secret": {"secretName": secret, "optional": true}}));
    }
    let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
    let environment = json!([
        {"name": "CLUSTER", "value": name},
        {"name": "POD_NAME", "valueFrom": field("metadata.name")},
        {"name": "POD_NAMESPACE", "valueFrom": field("metadata.namespace")},
    ]);
    let with_token = [mounts.clone(), vec![token_mount()]].concat();
    let agent_resources =
        json!({"requests": {"cpu": "10m", "memory": "24Mi"}, "limits": {"memory": "128Mi"}});
    let agent = layout::agent();
    json!({
        "serviceAccountName": agent_name(&name),
        "automountServiceAccountToken": false,
        // So that the agent can tell nginx to reload.
        "shareProcessNamespace": true,
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": UNHEARD_SECONDS + spec.drain_seconds + 5,
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "affinity": affinity(cluster),
        "initContainers": [
            {
                "name": "install",
                "image": images.agent,
                "args": ["agent", "install", agent],
                "volumeMounts": [{"name": "agent", "mountPath": layout::AGENT_FOLDER}],
                "resources": agent_resources,
                "securityContext": restricted,
            },
            {
                "name": "prepare",
                "image": nginx,
                "command": [agent, "agent", "prepare"],
                "env": environment,
                "volumeMounts": with_token,
                "resources": agent_resources,
                "securityContext": restricted,
            },
        ],
        "containers": [
            {
                "name": "nginx",
                "image": nginx,
                "command": ["nginx", "-c", layout::NGINX_CONFIGURATION, "-e", "stderr"],
                "ports": [
                    {"name": "http", "containerPort": layout::HTTP_PORT},
                    {"name": "https", "containerPort": layout::HTTPS_PORT},
                    {"name": "health", "containerPort": layout::HEALTH_PORT},
                ],
                "readinessProbe": {
                    "httpGet": {"path": "/readyz", "port": "health"},
                    "periodSeconds": 2,
                    "timeoutSeconds": 2,
                },
                "livenessProbe": {
                    "httpGet": {"path": "/healthz", "port": "health"},
                    "periodSeconds": 10,
                    "timeoutSeconds": 5,
                    "failureThreshold": 6,
                },
                // Until everybody has heard that it goes, it answers; then it finishes what it has begun.
                "lifecycle": {"preStop": {"sleep": {"seconds": UNHEARD_SECONDS}}},
                "resources": spec.resources.clone().unwrap_or_default(),
                "volumeMounts": mounts,
                "securityContext": restricted,
            },
            {
                "name": "agent",
                "image": nginx,
                "command": [agent, "agent", "serve"],
                "env": environment,
                "ports": [{"name": "metrics", "containerPort": layout::AGENT_PORT}],
                "livenessProbe": {
                    "httpGet": {"path": "/healthz", "port": "metrics"},
                    "periodSeconds": 10,
                    "timeoutSeconds": 5,
                    "failureThreshold": 6,
                },
                "lifecycle": {"preStop": {"sleep": {"seconds": UNHEARD_SECONDS}}},
                "resources": agent_resources,
                "volumeMounts": with_token,
                "securityContext": restricted,
            },
        ],
        "volumes": volumes,
    })
}

/// The token is there for the agent and for nobody else in the pod.
fn token_volume() -> Value {
    json!({"name": "token", "projected": {"sources": [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]}})
}

fn token_mount() -> Value {
    json!({"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true})
}

fn affinity(cluster: &CdnCluster) -> Value {
    let term = json!({
        "labelSelector": {"matchLabels": {DEPLOYMENT_LABEL: deployment_name(&cluster.name_any())}},
        "topologyKey": "kubernetes.io/hostname",
    });
    match cluster.spec.anti_affinity {
        AntiAffinity::Preferred => json!({"podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}],
        }}),
        AntiAffinity::Required => json!({"podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [term],
        }}),
        AntiAffinity::None => Value::Null,
    }
}

/// A name of a volume: those are shorter than the names of Secrets.
fn short(name: &str) -> String {
    Sha256::digest(name).iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}
