//! [`Wire`]: how an object is read off the wire, slimmed while it is parsed.
//!
//! `managedFields` make up half of what the API server sends. They are neither
//! stored nor parsed: a layer between the JSON and the type's own `Deserialize`
//! takes them out of the stream and keeps the little that a later apply needs to
//! know ([`Managed`]). The annotation in which `kubectl apply` keeps a second
//! copy of the object goes the same way.
//!
//! An object that its type cannot hold, because the CRD's schema lets more
//! through than the type does, is [`Unreadable`] and nothing worse: its neighbours
//! in the same list are read.

use std::{borrow::Cow, fmt};

use kube::{Resource, core::ObjectMeta};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor, value::CowStrDeserializer},
    forward_to_deserialize_any,
};
use serde_json::value::RawValue;

/// Written by `kubectl apply`: a second copy of the whole object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// An object as it came from the API server, less what nobody reads.
#[derive(Clone, Debug)]
pub(crate) struct Wire<K> {
    pub(crate) object: Result<K, Unreadable>,
    pub(crate) managed: Managed,
}

/// An object that is there, and whose content does not fit its type.
#[derive(Clone, Debug)]
pub(crate) struct Unreadable {
    pub(crate) metadata: ObjectMeta,
    /// What does not fit, in words.
    pub(crate) why: String,
}

/// What is kept of an object's `managedFields`. Entries of subresources (its
/// status) are left out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Managed {
    /// What each manager applied (server-side).
    pub(crate) applied: Vec<Applied>,
    /// Every manager, with the time of its last change.
    pub(crate) writers: Vec<(String, Option<String>)>,
}

/// One manager's server-side apply.
#[derive(Clone, Debug)]
pub(crate) struct Applied {
    pub(crate) manager: String,
    /// The field set, in the API server's `FieldsV1` notation.
    pub(crate) fields: Box<RawValue>,
}

impl Managed {
    fn add(&mut self, entry: ManagedEntry) {
        if entry.subresource {
            return;
        }
        if let (true, Some(fields)) = (entry.applied, entry.fields) {
            self.applied.push(Applied { manager: entry.manager.clone(), fields });
        }
        self.writers.push((entry.manager, entry.time));
    }
}

impl<K: Resource> Resource for Wire<K> {
    type DynamicType = K::DynamicType;
    type Scope = kube::core::DynamicResourceScope;

    fn kind(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(dynamic)
    }
    fn group(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::group(dynamic)
    }
    fn version(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::version(dynamic)
    }
    fn plural(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(dynamic)
    }
    fn metadata_api() -> bool {
        K::metadata_api()
    }
    fn meta(&self) -> &ObjectMeta {
        match &self.object {
            Ok(object) => object.meta(),
            Err(unreadable) => &unreadable.metadata,
        }
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match &mut self.object {
            Ok(object) => object.meta_mut(),
            Err(unreadable) => &mut unreadable.metadata,
        }
    }
}

impl<'de, K: Deserialize<'de>> Deserialize<'de> for Wire<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// What every object has.
        #[derive(Deserialize)]
        struct Any {
            metadata: ObjectMeta,
        }
        // Where an object ends has to be known before anything in it can go wrong.
        let text = <&RawValue>::deserialize(deserializer)?.get();
        let (object, managed) = slimmed::<K>(text);
        let object = match object {
            Ok(object) => Ok(object),
            Err(error) => {
                let (any, _) = slimmed::<Any>(text);
                let metadata = any.map_err(D::Error::custom)?.metadata;
                Err(Unreadable { metadata, why: error.to_string() })
            }
        };
        Ok(Self { object, managed })
    }
}

fn slimmed<'de, K: Deserialize<'de>>(text: &'de str) -> (serde_json::Result<K>, Managed) {
    let mut managed = Managed::default();
    let mut json = serde_json::Deserializer::from_str(text);
    let object = K::deserialize(Slimming { inner: &mut json, layer: Layer::Object, managed: &mut managed });
    (object, managed)
}

/// Where in the object we are; elsewhere nothing is looked at.
#[derive(Clone, Copy, PartialEq)]
enum Layer {
    Object,
    Metadata,
    Annotations,
}

impl Layer {
    fn below(self, key: &str) -> Option<Self> {
        match (self, key) {
            (Self::Object, "metadata") => Some(Self::Metadata),
            (Self::Metadata, "annotations") => Some(Self::Annotations),
            _ => None,
        }
    }
}

/// Stands in for a deserializer, a visitor, a map or a seed, and passes
/// everything through but the maps of the layers above.
struct Slimming<'a, T> {
    inner: T,
    layer: Layer,
    managed: &'a mut Managed,
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Slimming<'_, D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_any(Slimming { inner: visitor, layer: self.layer, managed: self.managed })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_option(Slimming { inner: visitor, layer: self.layer, managed: self.managed })
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let visitor = Slimming { inner: visitor, layer: self.layer, managed: self.managed };
        self.inner.deserialize_newtype_struct(name, visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Slimming<'_, V> {
    type Value = V::Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(formatter)
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.inner.visit_map(SlimmingMap {
            map: Slimming { inner: map, layer: self.layer, managed: self.managed },
            entered: None,
        })
    }
    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(Slimming { inner: deserializer, layer: self.layer, managed: self.managed })
    }
    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        let deserializer = Slimming { inner: deserializer, layer: self.layer, managed: self.managed };
        self.inner.visit_newtype_struct(deserializer)
    }
    fn visit_none<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }
    fn visit_unit<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }
    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<V::Value, A::Error> {
        self.inner.visit_seq(seq)
    }
    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<V::Value, E> {
        self.inner.visit_bool(value)
    }
    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<V::Value, E> {
        self.inner.visit_i64(value)
    }
    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<V::Value, E> {
        self.inner.visit_u64(value)
    }
    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<V::Value, E> {
        self.inner.visit_f64(value)
    }
    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<V::Value, E> {
        self.inner.visit_str(value)
    }
    fn visit_borrowed_str<E: serde::de::Error>(self, value: &'de str) -> Result<V::Value, E> {
        self.inner.visit_borrowed_str(value)
    }
    fn visit_string<E: serde::de::Error>(self, value: String) -> Result<V::Value, E> {
        self.inner.visit_string(value)
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Slimming<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.inner.deserialize(Slimming { inner: deserializer, layer: self.layer, managed: self.managed })
    }
}

/// A map of one of the layers: leaves out the entries that nobody reads.
struct SlimmingMap<'a, A> {
    map: Slimming<'a, A>,
    /// The layer that the value of the current key belongs to.
    entered: Option<Layer>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for SlimmingMap<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        loop {
            let Some(Text(key)) = self.map.inner.next_key::<Text<'de>>()? else { return Ok(None) };
            match (self.map.layer, key.as_ref()) {
                (Layer::Metadata, "managedFields") => {
                    let entries = self.map.inner.next_value::<Option<Vec<ManagedEntry>>>()?;
                    entries.into_iter().flatten().for_each(|entry| self.map.managed.add(entry));
                }
                (Layer::Annotations, LAST_APPLIED) => {
                    self.map.inner.next_value::<IgnoredAny>()?;
                }
                (layer, name) => {
                    self.entered = layer.below(name);
                    return seed.deserialize(CowStrDeserializer::new(key)).map(Some);
                }
            }
        }
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        match self.entered.take() {
            Some(layer) => {
                self.map.inner.next_value_seed(Slimming { inner: seed, layer, managed: self.map.managed })
            }
            None => self.map.inner.next_value_seed(seed),
        }
    }
}

/// A string, borrowed from the input where that is possible.
struct Text<'de>(Cow<'de, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string")
            }
            fn visit_borrowed_str<E: serde::de::Error>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

/// One entry of `managedFields`. What was not applied is skipped, not parsed:
/// the API server sends `operation` before the fields.
struct ManagedEntry {
    manager: String,
    applied: bool,
    time: Option<String>,
    fields: Option<Box<RawValue>>,
    subresource: bool,
}

impl<'de> Deserialize<'de> for ManagedEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntryVisitor;
        impl<'de> Visitor<'de> for EntryVisitor {
            type Value = ManagedEntry;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an entry of managedFields")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ManagedEntry, A::Error> {
                let mut entry = ManagedEntry {
                    manager: String::new(),
                    applied: false,
                    time: None,
                    fields: None,
                    subresource: false,
                };
                while let Some(Text(key)) = map.next_key()? {
                    match key.as_ref() {
                        "manager" => entry.manager = map.next_value()?,
                        "operation" => entry.applied = map.next_value::<Text<'de>>()?.0 == "Apply",
                        "time" => entry.time = map.next_value()?,
                        "fieldsV1" if entry.applied => {
                            entry.fields = map.next_value().map_err(A::Error::custom)?
                        }
                        "subresource" => entry.subresource = !map.next_value::<Text<'de>>()?.0.is_empty(),
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(entry)
            }
        }
        deserializer.deserialize_map(EntryVisitor)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::DynamicObject;

    use super::*;

    const TEXT: &str = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "name": "a", "namespace": "n", "resourceVersion": "7",
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "kept": "yes"},
        "managedFields": [
            {"manager": "mine", "operation": "Apply", "apiVersion": "v1", "time": "2026-11-15T00:00:00Z",
             "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:x": {}}}},
            {"manager": "mine", "operation": "Apply", "fieldsV1": {"f:status": {}}, "subresource": "status"},
            {"manager": "kubectl-edit", "operation": "Update", "fieldsV1": {"f:data": {"f:y": {}}}}
        ]}, "data": {"x": "1", "metadata": "not that one"}}"#;

    #[test]
    fn managed_fields_are_taken_out_and_what_matters_is_kept() {
        let wire: Wire<ConfigMap> = serde_json::from_str(TEXT).unwrap();
        let object = wire.object.unwrap();
        assert_eq!(object.metadata.managed_fields, None);
        assert_eq!(object.data.unwrap().len(), 2);
        assert_eq!(object.metadata.annotations.unwrap().into_keys().collect::<Vec<_>>(), ["kept"]);
        let applied: Vec<_> =
            wire.managed.applied.iter().map(|by| (by.manager.as_str(), by.fields.get())).collect();
        assert_eq!(applied, [("mine", r#"{"f:data": {"f:x": {}}}"#)]);
        let writers: Vec<_> = wire.managed.writers.iter().map(|(manager, _)| manager.as_str()).collect();
        assert_eq!(writers, ["mine", "kubectl-edit"]);
    }

    #[test]
    fn a_dynamic_object_is_slimmed_just_the_same() {
        let wire: Wire<DynamicObject> = serde_json::from_str(TEXT).unwrap();
        let object = wire.object.unwrap();
        assert_eq!(object.metadata.managed_fields, None);
        assert_eq!(object.data["data"]["x"], "1");
        assert_eq!(wire.managed.applied.len(), 1);
    }

    #[test]
    fn one_that_does_not_fit_its_type_leaves_its_neighbours_readable() {
        let bad = TEXT.replace(r#""x": "1""#, r#""x": ["not", "text"]"#);
        let list = format!(r#"{{"items": [{TEXT}, {bad}, {TEXT}], "metadata": {{"resourceVersion": "8"}}}}"#);
        let list: kube::core::ObjectList<Wire<ConfigMap>> = serde_json::from_str(&list).unwrap();
        let readable: Vec<_> = list.items.iter().map(|wire| wire.object.is_ok()).collect();
        assert_eq!(readable, [true, false, true]);
        let unreadable = list.items[1].object.as_ref().unwrap_err();
        assert!(unreadable.why.contains("expected a string"), "{}", unreadable.why);
        assert_eq!(unreadable.metadata.name.as_deref(), Some("a"));
        assert_eq!(unreadable.metadata.managed_fields, None);
        let event = format!(r#"{{"type": "MODIFIED", "object": {bad}}}"#);
        let event: kube::core::WatchEvent<Wire<ConfigMap>> = serde_json::from_str(&event).unwrap();
        assert!(matches!(event, kube::core::WatchEvent::Modified(wire) if wire.object.is_err()));
    }
}
