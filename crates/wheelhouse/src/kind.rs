//! [`Kind`]: a Kubernetes kind as data, for what works on any of them.

use std::{any::TypeId, fmt};

use kube::{
    Resource,
    core::{ApiResource, ClusterResourceScope, GroupVersionKind, NamespaceResourceScope},
};
use serde::{Deserialize, Serialize};

/// Whether objects of a type are in namespaces, where the type says so.
pub(crate) fn is_namespaced<K: Resource<Scope: 'static>>() -> Option<bool> {
    let scope = TypeId::of::<K::Scope>();
    match () {
        () if scope == TypeId::of::<NamespaceResourceScope>() => Some(true),
        () if scope == TypeId::of::<ClusterResourceScope>() => Some(false),
        () => None,
    }
}

/// A kind: where the API server serves it, and what it is called.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Kind {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version within the group.
    pub version: String,
    /// The name of the kind, such as `Pod`.
    pub kind: String,
    /// Its name in URLs, such as `pods`.
    pub plural: String,
}

impl Kind {
    /// The kind of a Rust type.
    pub fn of<K: Resource>(dynamic: &K::DynamicType) -> Self {
        Self {
            group: K::group(dynamic).into_owned(),
            version: K::version(dynamic).into_owned(),
            kind: K::kind(dynamic).into_owned(),
            plural: K::plural(dynamic).into_owned(),
        }
    }

    /// The same, as kube wants it for dynamic objects.
    pub fn api_resource(&self) -> ApiResource {
        let gvk = GroupVersionKind::gvk(&self.group, &self.version, &self.kind);
        ApiResource::from_gvk_with_plural(&gvk, &self.plural)
    }

    /// `v1` or `group/v1`.
    pub fn api_version(&self) -> String {
        match self.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// `Kind.group`, which tells kinds of one name apart.
    pub fn qualified(&self) -> String {
        format!("{}.{}", self.kind, self.group)
    }

    /// Whether this is the same kind, in whatever version.
    pub fn is_kind_of(&self, other: &Kind) -> bool {
        self.group == other.group && self.kind == other.kind
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.kind)
    }
}
