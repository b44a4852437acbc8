//! Applying Kubernetes manifests: YAML of any kinds, server-side, in order.

use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
    core::{GroupVersionKind, TypeMeta},
    discovery::{self, ApiResource, Scope},
};
use serde_json::Value;

use crate::error::{Error, Result};

/// Who owns the fields of what we apply.
const FIELD_MANAGER: &str = "wheelhouse";

/// One object of a manifest, and where it belongs.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// The object as it was written.
    pub object: Value,
}

impl Manifest {
    /// Reads all objects of a YAML text, also those in lists, as `kubectl get -o yaml` prints them; `origin` names it in
    /// errors.
    pub fn read_all(origin: &std::path::Path, yaml: &str) -> Result<Vec<Self>> {
        let malformed = |problem: String| Error::Malformed {
            path: origin.to_owned(),
            expected: "a Kubernetes manifest",
            problem,
        };
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(yaml).map_err(|error| malformed(error.to_string()))?;
        documents
            .into_iter()
            .flat_map(listed)
            .filter(|document| !document.is_null())
            .map(|object| {
                let manifest = Self { object };
                let named = !manifest.kind().is_empty() && !manifest.name().is_empty();
                if named {
                    Ok(manifest)
                } else {
                    Err(malformed("every object needs a kind and a metadata.name".to_owned()))
                }
            })
            .collect()
    }

    /// The object's kind.
    pub fn kind(&self) -> &str {
        self.text("/kind")
    }

    /// The object's name.
    pub fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    /// The object's namespace; `default` where it says none.
    pub fn namespace(&self) -> &str {
        match self.text("/metadata/namespace") {
            "" => "default",
            namespace => namespace,
        }
    }

    fn text(&self, pointer: &str) -> &str {
        self.object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    fn described(&self) -> String {
        format!("{} {}", self.kind(), self.name())
    }

    async fn api(&self, client: &Client) -> Result<Api<DynamicObject>> {
        let types =
            TypeMeta { api_version: self.text("/apiVersion").to_owned(), kind: self.kind().to_owned() };
        let kind = GroupVersionKind::try_from(&types).map_err(|error| {
            Error::Refused(format!("{} has no usable apiVersion: {error}", self.described()))
        })?;
        let (resource, capabilities): (ApiResource, _) = discovery::pinned_kind(client, &kind)
            .await
            .map_err(Error::api(format!("find the kind {} at the API server", self.kind())))?;
        Ok(match capabilities.scope {
            Scope::Cluster => Api::all_with(client.clone(), &resource),
            Scope::Namespaced => Api::namespaced_with(client.clone(), self.namespace(), &resource),
        })
    }

    /// Makes it so.
    pub async fn apply(&self, client: &Client) -> Result<()> {
        self.api(client)
            .await?
            .patch(self.name(), &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(&self.object))
            .await
            .map_err(Error::api(format!("apply {}", self.described())))
            .map(drop)
    }

    /// Deletes it, and what it owns; one that is not there is fine.
    pub async fn delete(&self, client: &Client) -> Result<()> {
        let Some(api) = self.api_if_served(client).await? else { return Ok(()) };
        match api.delete(self.name(), &DeleteParams::background()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            done => done.map_err(Error::api(format!("delete {}", self.described()))).map(drop),
        }
    }

    /// Whether it is there.
    pub async fn exists(&self, client: &Client) -> Result<bool> {
        Ok(self.read(client).await?.is_some())
    }

    /// It as it is, if it is there.
    pub async fn read(&self, client: &Client) -> Result<Option<DynamicObject>> {
        let Some(api) = self.api_if_served(client).await? else { return Ok(None) };
        api.get_opt(self.name()).await.map_err(Error::api(format!("look for {}", self.described())))
    }

    /// A kind that is gone has no objects left.
    async fn api_if_served(&self, client: &Client) -> Result<Option<Api<DynamicObject>>> {
        match self.api(client).await {
            Err(Error::Api { source, .. }) if matches!(*source, kube::Error::Discovery(_)) => Ok(None),
            Err(Error::Api { source, .. }) if matches!(&*source, kube::Error::Api(status) if status.code == 404) => {
                Ok(None)
            }
            api => api.map(Some),
        }
    }
}

/// The objects of a list, which has no name itself; or the one that is none.
fn listed(document: Value) -> Vec<Value> {
    match document.get("items").and_then(Value::as_array) {
        Some(items) if document.pointer("/metadata/name").is_none() => {
            items.iter().cloned().flat_map(listed).collect()
        }
        _ => vec![document],
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_document_of_a_file_is_read_and_empty_ones_are_not() {
        let read = Manifest::read_all(
            Path::new("x.yaml"),
            "---\nkind: A\nmetadata: {name: one}\n---\n---\nkind: B\nmetadata: {name: two, namespace: there}\n",
        )
        .unwrap();
        let read: Vec<_> = read.iter().map(|each| (each.kind(), each.name(), each.namespace())).collect();
        assert_eq!(vec![("A", "one", "default"), ("B", "two", "there")], read);
    }

    #[test]
    fn what_is_in_a_list_is_read_as_if_it_stood_alone() {
        let text = "apiVersion: v1\nkind: List\nmetadata: {resourceVersion: ''}\nitems:\n- {kind: A, metadata: {name: one}}\n\
                    - {kind: B, metadata: {name: two}}\n---\nkind: C\nmetadata: {name: three}\nitems: [own]\n";
        let read = Manifest::read_all(Path::new("x.yaml"), text).unwrap();
        let read: Vec<_> = read.iter().map(|each| (each.kind(), each.name())).collect();
        assert_eq!(vec![("A", "one"), ("B", "two"), ("C", "three")], read);
        let refused = Manifest::read_all(Path::new("x.yaml"), "kind: List\nitems: [{kind: A}]\n");
        assert!(refused.is_err());
        assert_eq!(Manifest::read_all(Path::new("x.yaml"), "kind: List\nitems: []\n").unwrap(), []);
    }

    #[rstest::rstest]
    #[case::no_name("kind: A\n")]
    #[case::a_list("- kind: A\n")]
    #[case::broken("kind: [A\n")]
    fn what_is_no_manifest_is_refused_by_the_files_name(#[case] text: &str) {
        let refused = Manifest::read_all(Path::new("x.yaml"), text).unwrap_err().to_string();
        assert!(refused.starts_with("x.yaml is not a Kubernetes manifest"), "{refused}");
    }
}
