//! What installs an operator: `kubectl apply -f` of it is all.

use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{Namespace, Service, ServiceAccount},
        rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::ResourceExt as _;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::settings::{ManifestSettings, Place};
use crate::{
    error::{Category, Error, Result},
    rbac::{self, Agent},
    webhooks::Webhooks,
};

/// Where a pod of an operator learns its own namespace.
pub(super) const OWN_NAMESPACE: &str = "MY_POD_NAMESPACE";

/// What is installed of an operator.
pub(super) struct Installation<'a> {
    pub(super) name: &'a str,
    pub(super) version: &'a str,
    pub(super) crds: Vec<CustomResourceDefinition>,
    pub(super) images: &'a [(&'static str, String)],
    pub(super) rules: Vec<PolicyRule>,
    pub(super) agents: &'a [Agent],
    pub(super) webhooks: &'a Webhooks,
    pub(super) is_for_its_own_namespace: bool,
}

impl Installation<'_> {
    /// Where the operator is to look; nowhere in particular means everywhere.
    fn namespaces(&self, place: &Place) -> Vec<String> {
        match self.is_for_its_own_namespace && place.namespaces.is_empty() && !place.cluster_wide {
            true => vec![place.install_namespace.clone()],
            false => place.namespaces.clone(),
        }
    }

    pub(super) fn crds(&self) -> Result<String> {
        documents(&self.crds)
    }

    pub(super) fn rbac(&self, place: &Place) -> Result<String> {
        let mut text = String::new();
        let rules = &self.rules;
        let namespaces = self.namespaces(place);
        for agent in self.agents {
            let mut role = self.object(None, json!({"rules": agent.rules()}));
            rename(&mut role, &agent.name);
            add::<ClusterRole>(&mut text, role)?;
        }
        let subject =
            json!([{"kind": "ServiceAccount", "name": self.name, "namespace": place.install_namespace}]);
        let reference = |kind: &str, name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
        add::<ServiceAccount>(&mut text, self.object(Some(&place.install_namespace), json!({})))?;
        if namespaces.is_empty() {
            add::<ClusterRole>(&mut text, self.object(None, json!({"rules": rules})))?;
            let binding = json!({"roleRef": reference("ClusterRole", self.name), "subjects": subject});
            add::<ClusterRoleBinding>(&mut text, self.object(None, binding))?;
        }
        for namespace in &namespaces {
            add::<Role>(&mut text, self.object(Some(namespace), json!({"rules": rules})))?;
            let binding = json!({"roleRef": reference("Role", self.name), "subjects": subject});
            add::<RoleBinding>(&mut text, self.object(Some(namespace), binding))?;
        }
        let lease = format!("{}-lease", self.name);
        let mut role = self.object(Some(&place.install_namespace), json!({"rules": self.own_rules()}));
        rename(&mut role, &lease);
        add::<Role>(&mut text, role)?;
        let mut binding = self.object(
            Some(&place.install_namespace),
            json!({"roleRef": reference("Role", &lease), "subjects": subject}),
        );
        rename(&mut binding, &lease);
        add::<RoleBinding>(&mut text, binding)?;
        // No Role of a namespace can allow that: then nobody is shown decisions.
        if namespaces.is_empty() {
            let delegated = reference("ClusterRole", rbac::ASKING_ABOUT_OTHERS);
            let mut binding = self.object(None, json!({"roleRef": delegated, "subjects": subject}));
            rename(&mut binding, &format!("{}-asking-about-others", self.name));
            add::<ClusterRoleBinding>(&mut text, binding)?;
        }
        let webhooks = rbac::webhooks(self.name, self.webhooks);
        if !webhooks.is_empty() {
            let name = format!("{}-webhooks", self.name);
            let mut role = self.object(None, json!({"rules": webhooks}));
            rename(&mut role, &name);
            add::<ClusterRole>(&mut text, role)?;
            let mut binding =
                self.object(None, json!({"roleRef": reference("ClusterRole", &name), "subjects": subject}));
            rename(&mut binding, &name);
            add::<ClusterRoleBinding>(&mut text, binding)?;
        }
        if place.install_crds {
            let crds = format!("{}-crds", self.name);
            let names = self.crds.iter().map(|crd| crd.name_any()).collect();
            let mut role = self.object(None, json!({"rules": [rbac::crds(names)]}));
            rename(&mut role, &crds);
            add::<ClusterRole>(&mut text, role)?;
            let mut binding =
                self.object(None, json!({"roleRef": reference("ClusterRole", &crds), "subjects": subject}));
            rename(&mut binding, &crds);
            add::<ClusterRoleBinding>(&mut text, binding)?;
        }
        Ok(text)
    }

    /// What the operator needs in its own namespace.
    pub(super) fn own_rules(&self) -> Vec<PolicyRule> {
        let mut rules = rbac::rules(&[rbac::leases()]);
        if !self.webhooks.is_empty() {
            rules.extend(rbac::webhook_secret(self.name));
        }
        rules
    }

    /// Where the API server finds the webhooks.
    fn service(&self, place: &Place) -> Value {
        let spec = json!({
            "selector": {"app.kubernetes.io/name": self.name},
            "ports": [{"name": "webhooks", "port": 443, "targetPort": "webhooks"}],
        });
        self.object(Some(&place.install_namespace), json!({"spec": spec}))
    }

    pub(super) fn all(&self, settings: &ManifestSettings) -> Result<String> {
        let place = &settings.place;
        // An operator that registers them itself gets no second hand to do it.
        let mut text = if place.install_crds { String::new() } else { self.crds()? };
        let mut namespace = self.object(None, json!({}));
        rename(&mut namespace, &place.install_namespace);
        if let Some(labels) = namespace.pointer_mut("/metadata/labels") {
            *labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
        }
        add::<Namespace>(&mut text, namespace)?;
        text.push_str(&self.rbac(place)?);
        if !self.webhooks.is_empty() {
            add::<Service>(&mut text, self.service(place))?;
        }
        add::<Deployment>(&mut text, self.deployment(settings))?;
        Ok(text)
    }

    fn deployment(&self, settings: &ManifestSettings) -> Value {
        let labels = json!({"app.kubernetes.io/name": self.name});
        let image = settings
            .image
            .clone()
            .unwrap_or_else(|| format!("wheelhouse.dev/{}:{}", self.name, self.version));
        let namespaces = settings.place.namespaces.iter().flat_map(|name| ["--namespace", name.as_str()]);
        let install_crds = settings.place.install_crds.then_some("--install-crds");
        let cluster_wide = settings.place.cluster_wide.then_some("--cluster-wide");
        let flags = install_crds.into_iter().chain(cluster_wide).chain(namespaces);
        let arguments: Vec<&str> = ["run"].into_iter().chain(flags).collect();
        let images = self.images.iter().map(|(variable, image)| json!({"name": variable, "value": image}));
        let own_namespace =
            || json!({"name": OWN_NAMESPACE, "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}});
        let variables: Vec<_> = images.chain(self.is_for_its_own_namespace.then(own_namespace)).collect();
        let mut ports = vec![json!({"name": "http", "containerPort": 8080})];
        if !self.webhooks.is_empty() {
            ports.push(json!({"name": "webhooks", "containerPort": 9443}));
        }
        let get = |path: &str| json!({"httpGet": {"path": path, "port": "http"}, "periodSeconds": 5});
        let pod = json!({
            "serviceAccountName": self.name,
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "operator",
                "image": image,
                "args": arguments,
                "env": variables,
                "ports": ports,
                "livenessProbe": get("/healthz"),
                "readinessProbe": get("/readyz"),
                "resources": {"requests": {"cpu": "20m", "memory": "32Mi"}, "limits": {"memory": "512Mi"}},
                "securityContext": {
                    "allowPrivilegeEscalation": false,
                    "readOnlyRootFilesystem": true,
                    "capabilities": {"drop": ["ALL"]},
                },
            }],
        });
        let spec = json!({
            "replicas": settings.replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        });
        self.object(Some(&settings.place.install_namespace), json!({"spec": spec}))
    }

    fn object(&self, namespace: Option<&str>, mut content: Value) -> Value {
        let mut metadata = json!({"name": self.name, "labels": {
            "app.kubernetes.io/name": self.name,
            "app.kubernetes.io/version": self.version,
        }});
        if let (Some(namespace), Some(metadata)) = (namespace, metadata.as_object_mut()) {
            metadata.insert("namespace".to_owned(), namespace.into());
        }
        if let Some(content) = content.as_object_mut() {
            content.insert("metadata".to_owned(), metadata);
        }
        content
    }
}

fn rename(object: &mut Value, name: &str) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("name".to_owned(), name.into());
    }
}

/// Goes through the type, so that a field that Kubernetes does not know is found here.
fn add<K>(text: &mut String, content: Value) -> Result<()>
where
    K: DeserializeOwned + Serialize + k8s_openapi::Resource,
{
    let mut content = content;
    if let Some(fields) = content.as_object_mut() {
        fields.insert("apiVersion".to_owned(), K::API_VERSION.into());
        fields.insert("kind".to_owned(), K::KIND.into());
    }
    let object: K = serde_json::from_value(content).map_err(|error| cannot(&error))?;
    text.push_str(&documents(&[object])?);
    Ok(())
}

fn documents<K: Serialize>(objects: &[K]) -> Result<String> {
    let mut text = String::new();
    for object in objects {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(object).map_err(|error| cannot(&error))?);
    }
    Ok(text)
}

fn cannot(error: &dyn std::fmt::Display) -> Error {
    Error::new(Category::Bug, format!("cannot write the manifests: {error}"))
}
