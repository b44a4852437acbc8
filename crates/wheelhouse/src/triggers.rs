//! Triggers: from a change of any object to the keys that have to be looked at.

use std::{panic::AssertUnwindSafe, sync::Arc};

use kube::{Resource, ResourceExt as _, core::ObjectMeta};

use crate::{
    cache::{Cached, Cause, Change},
    key::Key,
    kind::{Kind, is_namespaced},
    labels::{OWNER, OWNER_KIND},
    queue::{Priority, Queue},
};

/// Looks at a changed object: is that worth a look at the resource? The old
/// object is not there if it is new. Deletions are never asked about.
pub type Predicate<K> = Arc<dyn Fn(Option<&K>, &K) -> bool + Send + Sync>;

/// Which resources depend on an object.
pub type MapFunction<K> = Arc<dyn Fn(&K) -> Vec<Key> + Send + Sync>;

/// Only changes of the spec: what bumps `metadata.generation`.
pub fn spec_changed<K: Resource>() -> Predicate<K> {
    Arc::new(|old, new| old.is_none_or(|old| old.meta().generation != new.meta().generation))
}

/// Only changes of the labels or annotations.
pub fn labels_changed<K: Resource>() -> Predicate<K> {
    Arc::new(|old, new| {
        old.is_none_or(|old| old.labels() != new.labels() || old.annotations() != new.annotations())
    })
}

/// Whether a predicate lets a change through. A deletion, and the beginning of
/// one, always pass.
fn passes<K: Resource>(predicates: &[Predicate<K>], change: &Change<K>) -> bool {
    let Some(new) = &change.new else { return true };
    let begins_to_go = new.meta().deletion_timestamp.is_some()
        && change.old.as_ref().is_none_or(|old| old.meta().deletion_timestamp.is_none());
    // When in doubt, it is worth a look.
    let lets_through = |predicate: &Predicate<K>| {
        std::panic::catch_unwind(AssertUnwindSafe(|| predicate(change.old.as_deref(), new))).unwrap_or(true)
    };
    begins_to_go || predicates.iter().all(lets_through)
}

fn priority_of(cause: Cause, otherwise: Priority) -> Priority {
    match cause {
        Cause::Initial => Priority::Resync,
        _ => otherwise,
    }
}

/// Whether nothing is new but the status. The answer to a status write can carry
/// what somebody else changed just before.
fn differs_in_status_only<K: Resource>(change: &Change<K>) -> bool {
    let (Some(old), Some(new)) = (&change.old, &change.new) else { return false };
    let (old, new) = (old.meta(), new.meta());
    old.uid == new.uid
        // Kinds without one do not tell whether their spec changed.
        && new.generation.is_some()
        && old.generation == new.generation
        && old.deletion_timestamp == new.deletion_timestamp
        && old.labels == new.labels
        && old.annotations == new.annotations
        && old.finalizers == new.finalizers
        && old.owner_references == new.owner_references
}

/// For: the resource itself changed. Its own status writes are no news to a controller.
pub(crate) fn on_resource<K: Cached>(
    queue: Arc<Queue>,
    controller: u64,
    predicates: Vec<Predicate<K>>,
) -> impl Fn(&Change<K>) {
    move |change| {
        let is_own_status = change.cause == Cause::Status(controller) && differs_in_status_only(change);
        if is_own_status || !passes(&predicates, change) {
            return;
        }
        if let Some(object) = change.latest() {
            queue.add(Key::of(&**object), priority_of(change.cause, Priority::Change));
        }
    }
}

/// Owns: a child changed.
pub(crate) fn on_child<K: Cached>(
    queue: Arc<Queue>,
    owner: OwnerKind,
    predicates: Vec<Predicate<K>>,
) -> impl Fn(&Change<K>) {
    on_other(queue, Arc::new(move |child: &K| owner.of(child.meta())), predicates)
}

/// For: the resource itself cannot be read, which it is told when its turn comes.
pub(crate) fn on_unreadable_resource(queue: Arc<Queue>) -> impl Fn(&ObjectMeta) {
    move |metadata| queue.add(Key::in_metadata(metadata), Priority::Change)
}

/// Owns: a child cannot be read.
pub(crate) fn on_unreadable_child(queue: Arc<Queue>, owner: OwnerKind) -> impl Fn(&ObjectMeta) {
    move |metadata| owner.of(metadata).into_iter().for_each(|key| queue.add(key, Priority::Child))
}

/// Watches: something that resources depend on changed.
pub(crate) fn on_other<K: Cached>(
    queue: Arc<Queue>,
    map: MapFunction<K>,
    predicates: Vec<Predicate<K>>,
) -> impl Fn(&Change<K>) {
    move |change| {
        if !passes(&predicates, change) {
            return;
        }
        // What depended on it before has to hear as well.
        for object in change.old.iter().chain(&change.new) {
            let mapping = AssertUnwindSafe(|| map(object));
            let keys = std::panic::catch_unwind(mapping).unwrap_or_else(|_| {
                let key = Key::of(&**object);
                tracing::error!(%key, "the function that says who depends on {key} panicked: nobody is told");
                Vec::new()
            });
            for key in keys {
                queue.add(key, priority_of(change.cause, Priority::Child));
            }
        }
    }
}

/// The kind of resources that own children.
#[derive(Clone, Debug)]
pub(crate) struct OwnerKind {
    kind: Kind,
    /// Whether its resources are in namespaces; not known of every type.
    is_namespaced: Option<bool>,
}

impl OwnerKind {
    pub(crate) fn new<K: Cached>(kind: &Kind) -> Self {
        Self { kind: kind.clone(), is_namespaced: is_namespaced::<K>() }
    }

    /// The resource of that kind which controls a child; two that it may be where
    /// the scope is not known.
    fn of(&self, child: &ObjectMeta) -> Vec<Key> {
        let reference = child.owner_references.iter().flatten().find(|reference| {
            let group = reference.api_version.rsplit_once('/').map_or("", |(group, _)| group);
            reference.controller == Some(true) && reference.kind == self.kind.kind && group == self.kind.group
        });
        if let Some(reference) = reference {
            let namespace = child.namespace.as_deref();
            let beside = Key::new(namespace, &reference.name);
            let above = Key::new(None, &reference.name);
            return match self.is_namespaced {
                Some(true) => vec![beside],
                Some(false) => vec![above],
                None if namespace.is_none() => vec![above],
                None => vec![beside, above],
            };
        }
        let annotation = |name| child.annotations.as_ref().and_then(|annotations| annotations.get(name));
        if annotation(OWNER_KIND) != Some(&self.kind.qualified()) {
            return Vec::new();
        }
        let keys = annotation(OWNER).map(|owner| match owner.split_once('/') {
            Some((namespace, name)) => Key::namespaced(namespace, name),
            None => Key::new(None, owner),
        });
        keys.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{
        api::core::v1::{ConfigMap, Pod},
        apimachinery::pkg::apis::meta::v1::{OwnerReference, Time},
    };

    use super::*;

    fn pod(generation: i64) -> Arc<Pod> {
        Arc::new(Pod {
            metadata: ObjectMeta { generation: Some(generation), ..Default::default() },
            ..Default::default()
        })
    }

    fn change(old: Option<Arc<Pod>>, new: Option<Arc<Pod>>) -> Change<Pod> {
        Change { old, new, cause: Cause::Watch }
    }

    #[test]
    fn a_predicate_never_swallows_a_deletion() {
        let nothing: [Predicate<Pod>; 1] = [Arc::new(|_, _| false)];
        assert!(!passes(&nothing, &change(Some(pod(1)), Some(pod(2)))));
        assert!(passes(&nothing, &change(Some(pod(1)), None)));
        let mut going = (*pod(1)).clone();
        going.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
        assert!(passes(&nothing, &change(Some(pod(1)), Some(Arc::new(going.clone())))));
        assert!(
            !passes(&nothing, &change(Some(Arc::new(going.clone())), Some(Arc::new(going)))),
            "it is told once"
        );
    }

    #[test]
    fn a_change_of_the_spec_bumps_the_generation() {
        assert!(passes(&[spec_changed()], &change(Some(pod(1)), Some(pod(2)))));
        assert!(!passes(&[spec_changed()], &change(Some(pod(2)), Some(pod(2)))));
        assert!(passes(&[spec_changed()], &change(None, Some(pod(2)))));
    }

    #[test]
    fn a_change_that_comes_with_the_answer_to_a_status_write_is_not_only_the_status() {
        assert!(differs_in_status_only(&change(Some(pod(1)), Some(pod(1)))));
        assert!(!differs_in_status_only(&change(Some(pod(1)), Some(pod(2)))));
        assert!(!differs_in_status_only(&change(None, Some(pod(1)))));
    }

    #[test]
    fn an_owner_is_found_by_reference_or_by_annotation() {
        let kind = Kind::of::<ConfigMap>(&());
        let owner = OwnerKind::new::<ConfigMap>(&kind);
        let reference = OwnerReference {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            name: "parent".into(),
            controller: Some(true),
            ..Default::default()
        };
        let mut child = Pod::default();
        child.metadata.namespace = Some("n".into());
        assert_eq!(owner.of(&child.metadata), []);
        child.metadata.owner_references = Some(vec![reference.clone()]);
        assert_eq!(owner.of(&child.metadata), [Key::namespaced("n", "parent")]);
        let above = OwnerKind { is_namespaced: Some(false), ..owner.clone() };
        assert_eq!(above.of(&child.metadata), [Key::new(None, "parent")], "a cluster-scoped owner");
        child.metadata.owner_references =
            Some(vec![OwnerReference { api_version: "other/v1".into(), ..reference }]);
        assert_eq!(owner.of(&child.metadata), [], "that is another kind of the same name");
        child.metadata.annotations = Some(
            [(OWNER_KIND.to_owned(), kind.qualified()), (OWNER.to_owned(), "elsewhere/parent".to_owned())]
                .into(),
        );
        assert_eq!(owner.of(&child.metadata), [Key::namespaced("elsewhere", "parent")]);
    }
}
