//! [`Step`]: one thing to do, as data.

use std::{convert::Infallible, fmt};

use kube::{Resource, core::ObjectMeta};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::Certify;
use crate::{
    key::Key,
    kind::{Kind, Whole},
};

/// One thing to do. Each can be repeated: after a crash, the next plan has it again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Step<A> {
    /// A child is to be so (server-side apply). Skipped when it is so already.
    Apply(Object),
    /// The same for an object that is not ours: nothing is taken from its other
    /// managers by force, and it gets no owner.
    ApplyForeign(Object),
    /// A child is to be made, under a name that can be told again.
    Create(Object),
    /// This very object is to go.
    Delete {
        /// Which, by UID.
        target: Reference,
        /// What must still be so.
        guard: Guard,
    },
    /// This very pod is to go, if its disruption budget allows that.
    Evict {
        /// Which, by UID.
        target: Reference,
    },
    /// A command is to be run in a pod. It can do anything, so it is the last step
    /// of its plan.
    Exec(Exec),
    /// Some fields of an object are to change, if nobody changed it since it was observed.
    Update {
        /// Which, by UID and version.
        target: Reference,
        /// The fields, as a JSON merge patch.
        fields: Value,
    },
    /// A Secret with random values is to be there. What it holds is never changed.
    EnsureSecret(EnsureSecret),
    /// An authority of the resource's own is to change, or to sign a certificate; both are in Secrets.
    Certify(Box<Certify>),
    /// The resource is not to go before this finalizer is removed.
    AddFinalizer(String),
    /// As far as this finalizer is concerned the resource may go.
    RemoveFinalizer(String),
    /// An object that belongs to nobody becomes a child.
    Adopt {
        /// Which, by UID and version.
        target: Reference,
    },
    /// What only the operator knows how to do.
    Act(A),
}

/// An object that is to be written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Object {
    /// Its kind.
    pub kind: Kind,
    /// The object. Never with fields that the API server sets.
    pub content: Value,
}

impl Object {
    /// A typed object.
    pub fn of<K: Whole>(object: &K) -> Self {
        let kind = Kind::of::<K>(&());
        // What is no JSON, or only the metadata of something, has no name here, and
        // the step says that.
        let content = match K::metadata_api() {
            true => Value::Null,
            false => serde_json::to_value(object).unwrap_or_default(),
        };
        Self::new(kind, content)
    }

    /// An object of a kind that is known only at run time.
    pub fn new(kind: Kind, mut content: Value) -> Self {
        if let Some(fields) = content.as_object_mut() {
            fields.insert("apiVersion".to_owned(), kind.api_version().into());
            fields.insert("kind".to_owned(), kind.kind.clone().into());
        }
        Self { kind, content }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.content.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
    }

    /// Its namespace, if it says one; else it is the resource's.
    pub fn namespace(&self) -> Option<&str> {
        self.content.pointer("/metadata/namespace").and_then(Value::as_str)
    }
}

/// An object that was observed: this one, and no other of that name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reference {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace, unless it is cluster-scoped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// What it was when it was observed.
    pub uid: String,
    /// Which version of it was observed.
    pub resource_version: String,
    /// Whether it is going already.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub terminating: bool,
}

impl Reference {
    /// A reference to this object.
    pub fn to<K: Resource>(kind: &Kind, object: &K) -> Self {
        Self::in_metadata(kind, object.meta())
    }

    /// A reference to the object with this metadata.
    pub(crate) fn in_metadata(kind: &Kind, metadata: &ObjectMeta) -> Self {
        Self {
            kind: kind.clone(),
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            terminating: metadata.deletion_timestamp.is_some(),
        }
    }

    /// A reference to this typed object.
    pub fn of<K: Resource<DynamicType = ()>>(object: &K) -> Self {
        Self::to(&Kind::of::<K>(&()), object)
    }

    /// Namespace and name.
    pub fn key(&self) -> Key {
        Key::new(self.namespace.as_deref(), &self.name)
    }
}

/// What must still be so when something is deleted, beyond its being the same object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Guard {
    /// Nothing: the decision rests on which object it is.
    Identity,
    /// Nobody may have changed it since. For volumes, Secrets and member records.
    Unchanged,
    /// These fields must still have these values, by JSON pointer, on a live read.
    /// For pods, whose status changes all the time.
    Still(Vec<(String, Value)>),
}

/// A command to run in a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exec {
    /// Which pod, by UID.
    pub pod: Reference,
    /// Which of its containers.
    pub container: String,
    /// The command and its arguments.
    pub command: Vec<String>,
}

/// A Secret with random values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnsureSecret {
    /// Its name, in the resource's namespace.
    pub name: String,
    /// The labels that it gets when it is made.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub labels: std::collections::BTreeMap<String, String>,
    /// What it is to hold.
    pub values: std::collections::BTreeMap<String, SecretValue>,
}

/// How a value of a Secret comes to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SecretValue {
    /// Random letters and digits, so many.
    Password {
        /// How many.
        length: usize,
    },
    /// No secret at all, such as a user's name.
    Plain(String),
}

/// What an operator does that the SDK does not know.
pub trait Action:
    Clone + fmt::Debug + fmt::Display + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// One word, for metrics.
    fn name(&self) -> &'static str;

    /// Whether it can cost data or change a membership. Such a step is the last of its plan.
    fn is_destructive(&self) -> bool {
        true
    }
}

/// For operators that have no actions of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoAction(Infallible);

impl Action for NoAction {
    fn name(&self) -> &'static str {
        match self.0 {}
    }
}

impl fmt::Display for NoAction {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {}
    }
}

impl Serialize for NoAction {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        match self.0 {}
    }
}

impl<'de> Deserialize<'de> for NoAction {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(serde::de::Error::custom("this operator has no actions of its own"))
    }
}

impl<A: Action> Step<A> {
    /// Whether it can cost data or change a membership.
    pub fn is_destructive(&self) -> bool {
        match self {
            // Nobody knows what a command does.
            Self::Delete { .. } | Self::Evict { .. } | Self::Exec(_) | Self::RemoveFinalizer(_) => true,
            Self::Act(action) => action.is_destructive(),
            _ => false,
        }
    }

    /// One word, for metrics.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Apply(_) => "apply",
            Self::ApplyForeign(_) => "apply-foreign",
            Self::Create(_) => "create",
            Self::Delete { .. } => "delete",
            Self::Evict { .. } => "evict",
            Self::Exec(_) => "exec",
            Self::Update { .. } => "update",
            Self::EnsureSecret(_) => "ensure-secret",
            Self::Certify(_) => "certify",
            Self::AddFinalizer(_) => "add-finalizer",
            Self::RemoveFinalizer(_) => "remove-finalizer",
            Self::Adopt { .. } => "adopt",
            Self::Act(action) => action.name(),
        }
    }
}

impl<A: Action> fmt::Display for Step<A> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Apply(object) | Self::ApplyForeign(object) => {
                write!(formatter, "apply {} {}", object.kind, object.name())
            }
            Self::Create(object) => write!(formatter, "create {} {}", object.kind, object.name()),
            Self::Delete { target, .. } => write!(formatter, "delete {} {}", target.kind, target.name),
            Self::Evict { target } => write!(formatter, "evict {} {}", target.kind, target.name),
            Self::Exec(exec) => write!(formatter, "run {} in pod {}", exec.command.join(" "), exec.pod.name),
            Self::Update { target, .. } => write!(formatter, "update {} {}", target.kind, target.name),
            Self::EnsureSecret(secret) => write!(formatter, "ensure Secret {}", secret.name),
            Self::Certify(certify) => fmt::Display::fmt(certify, formatter),
            Self::AddFinalizer(name) => write!(formatter, "add finalizer {name}"),
            Self::RemoveFinalizer(name) => write!(formatter, "remove finalizer {name}"),
            Self::Adopt { target } => write!(formatter, "adopt {} {}", target.kind, target.name),
            Self::Act(action) => fmt::Display::fmt(action, formatter),
        }
    }
}
