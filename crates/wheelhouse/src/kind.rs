//! [`Kind`]: a Kubernetes kind as data, for what works on any of them.

use std::{any::TypeId, fmt, marker::PhantomData};

use kube::{
    Resource,
    core::{ApiResource, ClusterResourceScope, GroupVersionKind, NamespaceResourceScope},
};
use serde::{Deserialize, Serialize};

/// Whether objects of a type are in namespaces, where the type says so.
pub(crate) fn is_namespaced<K: Resource<Scope: 'static>>() -> Option<bool> {
    let scope = TypeId::of::<K::Scope>();
    let is_one_of = |scopes: [TypeId; 2]| scopes.contains(&scope);
    let namespaced =
        [TypeId::of::<NamespaceResourceScope>(), TypeId::of::<Projected<NamespaceResourceScope>>()];
    let cluster_wide =
        [TypeId::of::<ClusterResourceScope>(), TypeId::of::<Projected<ClusterResourceScope>>()];
    match () {
        () if is_one_of(namespaced) => Some(true),
        () if is_one_of(cluster_wide) => Some(false),
        () => None,
    }
}

/// The scope of a type that holds only some of an object's fields.
pub struct Projected<S>(PhantomData<S>);

/// The scope of a type that holds whole objects.
pub trait WholeScope {}

impl WholeScope for NamespaceResourceScope {}
impl WholeScope for ClusterResourceScope {}

/// A type that holds whole objects, and can be written. A projection is none:
/// what it leaves out would be taken away.
///
/// ```compile_fail
/// # use wheelhouse::{Plan, k8s_openapi::api::core::v1::Pod};
/// wheelhouse::projection! {
///     pub struct PodName of Pod {}
/// }
/// let mut plan: Plan = Plan::new();
/// plan.apply(&PodName::default(), "it does not compile");
/// ```
pub trait Whole: Resource<DynamicType = (), Scope: WholeScope> + Serialize {}

impl<K: Resource<DynamicType = (), Scope: WholeScope> + Serialize> Whole for K {}

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
