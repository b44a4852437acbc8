//! [`Key`]: which object, never the object itself.

use std::{fmt, sync::Arc};

use kube::{Resource, core::ObjectMeta};
use serde::{Deserialize, Serialize};

/// The namespace and the name of an object, as `namespace/name`; just `name`
/// for a cluster-scoped one. Cheap to clone, and sorted by namespace first.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Key(Arc<str>);

impl Key {
    /// The key of a namespaced object.
    pub fn namespaced(namespace: &str, name: &str) -> Self {
        Self(format!("{namespace}/{name}").into())
    }

    /// The key of an object in that namespace, or of a cluster-scoped one.
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        match namespace {
            Some(namespace) => Self::namespaced(namespace, name),
            None => Self(name.into()),
        }
    }

    /// The key of this object.
    pub fn of<K: Resource>(object: &K) -> Self {
        Self::in_metadata(object.meta())
    }

    /// The key of the object with this metadata.
    pub(crate) fn in_metadata(metadata: &ObjectMeta) -> Self {
        Self::new(metadata.namespace.as_deref(), metadata.name.as_deref().unwrap_or_default())
    }

    /// The namespace, unless the object is cluster-scoped.
    pub fn namespace(&self) -> Option<&str> {
        self.0.split_once('/').map(|(namespace, _)| namespace)
    }

    /// The name within the namespace.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(_, name)| name)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_tells_its_parts() {
        let key = Key::namespaced("prod", "db");
        assert_eq!((key.namespace(), key.name()), (Some("prod"), "db"));
        let key = Key::new(None, "node-1");
        assert_eq!((key.namespace(), key.name()), (None, "node-1"));
    }

    #[test]
    fn keys_of_a_namespace_are_neighbours() {
        let mut keys = [Key::namespaced("b", "a"), Key::namespaced("a", "z"), Key::namespaced("a", "b")];
        keys.sort();
        assert_eq!(keys.map(|key| key.to_string()), ["a/b", "a/z", "b/a"]);
    }
}
