//! [`pick`]: one field of a value, as JSON, without the work of turning the rest
//! of it into JSON too.

use std::fmt::Display;

use serde::{
    Serialize, Serializer,
    ser::{Error as _, Impossible, SerializeMap, SerializeStruct},
};
use serde_json::{Error, Value};

/// The field of that name, of a struct or map that has it.
pub(crate) fn pick(value: &impl Serialize, field: &'static str) -> Option<Value> {
    let picker = Picker { field, next_is_it: false, found: None };
    value.serialize(picker).ok().flatten()
}

struct Picker {
    field: &'static str,
    /// Whether the last key of a map was the field.
    next_is_it: bool,
    found: Option<Value>,
}

impl Picker {
    fn take<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.found = Some(serde_json::to_value(value)?);
        Ok(())
    }
}

impl SerializeStruct for Picker {
    type Ok = Option<Value>;
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), Error> {
        if key == self.field { self.take(value) } else { Ok(()) }
    }

    fn end(self) -> Result<Self::Ok, Error> {
        Ok(self.found)
    }
}

impl SerializeMap for Picker {
    type Ok = Option<Value>;
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        self.next_is_it = serde_json::to_value(key)?.as_str() == Some(self.field);
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        if self.next_is_it { self.take(value) } else { Ok(()) }
    }

    fn end(self) -> Result<Self::Ok, Error> {
        Ok(self.found)
    }
}

fn no_fields<T>() -> Result<T, Error> {
    Err(Error::custom("it has no fields"))
}

/// Whatever is no struct and no map has no fields.
macro_rules! refuse {
    ($($method:ident($($argument:ty),*);)*) => {
        $(fn $method(self, $(_: $argument),*) -> Result<Self::Ok, Error> {
            no_fields()
        })*
    };
}

impl Serializer for Picker {
    type Ok = Option<Value>;
    type Error = Error;
    type SerializeSeq = Impossible<Self::Ok, Error>;
    type SerializeTuple = Impossible<Self::Ok, Error>;
    type SerializeTupleStruct = Impossible<Self::Ok, Error>;
    type SerializeTupleVariant = Impossible<Self::Ok, Error>;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Impossible<Self::Ok, Error>;

    refuse! {
        serialize_bool(bool); serialize_char(char); serialize_str(&str); serialize_bytes(&[u8]);
        serialize_i8(i8); serialize_i16(i16); serialize_i32(i32); serialize_i64(i64);
        serialize_u8(u8); serialize_u16(u16); serialize_u32(u32); serialize_u64(u64);
        serialize_f32(f32); serialize_f64(f64);
        serialize_none(); serialize_unit(); serialize_unit_struct(&'static str);
        serialize_unit_variant(&'static str, u32, &'static str);
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Self::Ok, Error> {
        value.serialize(self)
    }
    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<Self::Ok, Error> {
        value.serialize(self)
    }
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<Self::Ok, Error> {
        no_fields()
    }
    fn serialize_seq(self, _: Option<usize>) -> Result<Self::SerializeSeq, Error> {
        no_fields()
    }
    fn serialize_tuple(self, _: usize) -> Result<Self::SerializeTuple, Error> {
        no_fields()
    }
    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self::SerializeTupleStruct, Error> {
        no_fields()
    }
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, Error> {
        no_fields()
    }
    fn serialize_map(self, _: Option<usize>) -> Result<Self, Error> {
        Ok(self)
    }
    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, Error> {
        Ok(self)
    }
    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, Error> {
        no_fields()
    }
    fn collect_str<T: Display + ?Sized>(self, _: &T) -> Result<Self::Ok, Error> {
        no_fields()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Pod};
    use kube::core::DynamicObject;
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::there(json!({"metadata": {}, "status": {"phase": "Running"}}), Some(json!({"phase": "Running"})))]
    #[case::not_there(json!({"metadata": {}, "spec": {"containers": []}}), None)]
    fn a_field_is_picked_from_a_typed_and_from_a_dynamic_object(
        #[case] object: Value,
        #[case] status: Option<Value>,
    ) {
        let pod: Pod = serde_json::from_value(object.clone()).unwrap();
        assert_eq!(pick(&pod, "status"), status);
        let dynamic: DynamicObject = serde_json::from_value(object).unwrap();
        assert_eq!(pick(&dynamic, "status"), status);
    }

    #[test]
    fn what_has_no_such_field_has_none() {
        assert_eq!(pick(&ConfigMap::default(), "status"), None);
        assert_eq!(pick(&"status", "status"), None);
        assert_eq!(pick(&["status"], "status"), None);
    }
}
