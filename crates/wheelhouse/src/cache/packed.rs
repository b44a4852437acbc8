//! [`Packer`]: makes objects small that nobody has touched for a while.
//!
//! A Rust value takes two to five times the memory of its JSON, and objects of a
//! kind are much alike: JSON, compressed with another object of the kind as the
//! dictionary, is a fraction of it. To read one back takes microseconds.

use std::{fmt::Debug, io, marker::PhantomData, sync::Arc};

use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};
use zstd::{
    bulk::{Compressor, Decompressor},
    zstd_safe::CParameter,
};

/// The fastest that still makes use of a dictionary.
const LEVEL: i32 = 1;
/// Of a large example, the beginning is enough.
const EXAMPLE_AT_MOST: usize = 64 << 10;
/// So many objects of a kind tell whether its type keeps something from serde.
const COMPARED: usize = 16;

/// Packs the objects of one kind.
pub(super) struct Packer<K> {
    /// Made of the first object that is packed.
    codec: Option<Codec>,
    /// How many objects were compared in full with what became of them.
    compared: usize,
    /// Whether the type keeps something from serde.
    is_lossy: bool,
    kind: PhantomData<fn() -> K>,
}

/// An object, packed: the length of its JSON, and that compressed.
#[derive(Debug)]
pub(super) struct Packed(Box<[u8]>);

impl Packed {
    pub(super) fn bytes(&self) -> usize {
        self.0.len()
    }
}

impl<K: Debug + Serialize + DeserializeOwned> Packer<K> {
    pub(super) fn new() -> Self {
        Self { codec: None, compared: 0, is_lossy: false, kind: PhantomData }
    }

    /// Packs an object; unless it could not be read back just as it is, as with a
    /// type whose two ways through serde do not mirror each other.
    pub(super) fn pack(&mut self, object: &K) -> Option<Packed> {
        if self.is_lossy {
            return None;
        }
        let json = serde_json::to_vec(object).ok()?;
        if self.codec.is_none() {
            self.codec = Codec::new(&json).ok();
        }
        let packed = self.codec.as_mut()?.compress(&json)?;
        let read = self.read(&packed)?;
        if self.compared < COMPARED {
            self.compared += 1;
            // What serde skips shows here.
            self.is_lossy = format!("{object:?}") != format!("{read:?}");
        }
        let again = serde_json::to_vec(&read).ok()?;
        (again == json && !self.is_lossy).then_some(packed)
    }

    /// The object as it was.
    pub(super) fn unpack(&self, packed: &Packed) -> Arc<K> {
        #[expect(clippy::expect_used, reason = "these bytes were read back when they were packed")]
        Arc::new(self.read(packed).expect("what was packed can be unpacked"))
    }

    fn read(&self, packed: &Packed) -> Option<K> {
        let json = self.codec.as_ref()?.decompress(packed)?;
        serde_json::from_slice(&json).ok()
    }
}

/// Compresses with an example as the dictionary.
struct Codec {
    compressor: Compressor<'static>,
    decompressor: Mutex<Decompressor<'static>>,
}

impl Codec {
    fn new(example: &[u8]) -> io::Result<Self> {
        let example = example.get(..EXAMPLE_AT_MOST).unwrap_or(example);
        let mut compressor = Compressor::with_dictionary(LEVEL, example)?;
        // Both are known anyway, and every byte counts.
        compressor.set_parameter(CParameter::ContentSizeFlag(false))?;
        compressor.set_parameter(CParameter::DictIdFlag(false))?;
        Ok(Self { compressor, decompressor: Mutex::new(Decompressor::with_dictionary(example)?) })
    }

    fn compress(&mut self, json: &[u8]) -> Option<Packed> {
        let length = u32::try_from(json.len()).ok()?;
        let compressed = self.compressor.compress(json).ok()?;
        Some(Packed([&length.to_le_bytes(), compressed.as_slice()].concat().into_boxed_slice()))
    }

    fn decompress(&self, packed: &Packed) -> Option<Vec<u8>> {
        let (length, compressed) = packed.0.split_first_chunk()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        self.decompressor.lock().decompress(compressed, length).ok()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::DynamicObject;
    use serde::{Deserialize, Deserializer};
    use serde_json::json;

    use super::*;

    fn config_map(number: usize) -> ConfigMap {
        serde_json::from_value(json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": format!("c-{number}"), "namespace": "some-namespace", "uid": number.to_string(),
                "labels": {"app.kubernetes.io/name": "something", "app.kubernetes.io/managed-by": "somebody"},
                "creationTimestamp": "2026-11-15T00:00:00Z",
            },
            "data": {"key": "a value, \"quoted\", with \u{1f40b} and \n", "number": number.to_string()},
        }))
        .unwrap()
    }

    #[test]
    fn what_is_unpacked_is_what_was_packed() {
        let mut packer = Packer::new();
        let objects: Vec<_> = (0..100).map(config_map).collect();
        let packed: Vec<_> = objects.iter().map(|object| packer.pack(object).unwrap()).collect();
        for (object, packed) in objects.iter().zip(&packed) {
            assert_eq!(*packer.unpack(packed), *object);
        }
    }

    #[test]
    fn what_is_like_the_first_becomes_a_fifth() {
        let mut packer = Packer::new();
        packer.pack(&config_map(1)).unwrap();
        let json = serde_json::to_vec(&config_map(2)).unwrap();
        assert!(packer.pack(&config_map(2)).unwrap().bytes() * 5 < json.len());
    }

    #[test]
    fn an_object_of_any_kind_can_be_packed() {
        let mut packer = Packer::<DynamicObject>::new();
        let text =
            json!({"apiVersion": "a/v1", "kind": "A", "metadata": {"name": "a"}, "spec": {"b": [1.5, null]}});
        let object: DynamicObject = serde_json::from_value(text.clone()).unwrap();
        let packed = packer.pack(&object).unwrap();
        assert_eq!(serde_json::to_value(&*packer.unpack(&packed)).unwrap(), text);
    }

    /// Reads a text as its length.
    #[derive(Debug, Serialize, Deserialize)]
    struct Lopsided {
        #[serde(deserialize_with = "length")]
        text: usize,
    }

    fn length<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
        String::deserialize(deserializer).map(|text| text.len())
    }

    /// Keeps something to itself.
    #[derive(Debug, Serialize, Deserialize)]
    struct Secretive {
        #[serde(default, skip_serializing)]
        text: String,
    }

    #[test]
    fn what_serde_skips_is_not_lost() {
        let object: Secretive = serde_json::from_str(r#"{"text": "abc"}"#).unwrap();
        assert_eq!(object.text, "abc");
        assert!(Packer::new().pack(&object).is_none());
    }

    #[test]
    fn what_could_not_be_read_back_is_not_packed() {
        let object: Lopsided = serde_json::from_str(r#"{"text": "abc"}"#).unwrap();
        assert!(Packer::new().pack(&object).is_none());
    }
}
