//! What a controller registers: opened in the cache when it starts, and declared
//! for RBAC before that.

use std::sync::Arc;

use serde::Serialize;

use crate::{
    cache::{Cache, Cached, Selection},
    kind::Kind,
    queue::Queue,
    triggers::{MapFunction, OwnerKind, Predicate, on_child, on_other, on_unreadable_child},
    world::Listers,
};

/// What an operator does with a kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Declared {
    /// The API group.
    pub group: String,
    /// The kind in URLs, with a subresource if need be, such as `pods/exec`.
    pub resource: String,
    /// What is done.
    pub verbs: Vec<&'static str>,
}

impl Declared {
    /// These verbs on that resource.
    pub fn new(group: impl Into<String>, resource: impl Into<String>, verbs: &[&'static str]) -> Self {
        Self { group: group.into(), resource: resource.into(), verbs: verbs.to_vec() }
    }

    /// The kind itself, its status, and, where the API server asks for that of
    /// whoever owns a child of it, its finalizers.
    pub(super) fn resource(kind: &Kind) -> Vec<Self> {
        let (group, plural) = (&kind.group, &kind.plural);
        vec![
            Self::new(group, plural, &["get", "list", "watch", "patch"]),
            Self::new(group, format!("{plural}/status"), &["patch"]),
            Self::new(group, format!("{plural}/finalizers"), &["update"]),
        ]
    }

    pub(super) fn owned(kind: Kind) -> Self {
        Self::new(kind.group, kind.plural, &["get", "list", "watch", "create", "patch", "delete"])
    }

    pub(super) fn once_owned(kind: Kind) -> Self {
        Self::new(kind.group, kind.plural, &["get", "list", "watch", "delete"])
    }

    pub(super) fn watched(kind: Kind) -> Self {
        Self::new(kind.group, kind.plural, &["get", "list", "watch"])
    }
}

/// Opens a kind in the cache and connects it with the queue.
pub(super) type Registration = Box<dyn FnOnce(&Cache, &mut Listers, &OwnerKind, &Arc<Queue>) + Send>;

pub(super) fn owns<K: Cached>(
    dynamic: K::DynamicType,
    selection: Selection,
    when: Vec<Predicate<K>>,
) -> Registration {
    Box::new(move |cache, listers, resource, queue| {
        let lister = cache.lister_of::<K>(dynamic.clone(), selection);
        let informer = lister.informer();
        informer.subscribe(Arc::new(on_child(queue.clone(), resource.clone(), when)));
        informer.subscribe_unreadable(Arc::new(on_unreadable_child(queue.clone(), resource.clone())));
        listers.owned.push(Kind::of::<K>(&dynamic));
        listers.add(&dynamic, lister);
    })
}

pub(super) fn watches<K: Cached>(
    dynamic: K::DynamicType,
    selection: Selection,
    when: Vec<Predicate<K>>,
    map: MapFunction<K>,
) -> Registration {
    Box::new(move |cache, listers, _, queue| {
        let lister = cache.lister_of::<K>(dynamic.clone(), selection);
        lister.informer().subscribe(Arc::new(on_other(queue.clone(), map, when)));
        listers.add(&dynamic, lister);
    })
}
