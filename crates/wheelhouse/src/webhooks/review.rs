//! Reviews: what the API server asks, and what it is answered. Pure.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Convert, Mutate};

/// What somebody wants to do.
#[derive(Clone, Debug)]
pub struct Request<K> {
    /// `CREATE`, `UPDATE` or `DELETE`.
    pub operation: String,
    /// Who.
    pub user: String,
    /// The object as it is to be; not there when it is deleted.
    pub object: Option<K>,
    /// The object as it is; not there when it is new.
    pub old_object: Option<K>,
}

impl<K> Request<K> {
    /// Somebody wants to create this: for tests of what is let in.
    pub fn creating(object: K) -> Self {
        Self { operation: "CREATE".to_owned(), user: String::new(), object: Some(object), old_object: None }
    }
}

impl<K: DeserializeOwned> Request<K> {
    pub(super) fn parse(request: &Value) -> Result<Self, String> {
        let object = |field: &str| match request.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(object) => K::deserialize(object).map(Some).map_err(|error| error.to_string()),
        };
        let text = |pointer| request.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok(Self {
            operation: text("/operation"),
            user: text("/userInfo/username"),
            object: object("object")?,
            old_object: object("oldObject")?,
        })
    }
}

fn answered(uid: &Value, response: Value) -> Value {
    let mut response = response;
    if let Some(fields) = response.as_object_mut() {
        fields.insert("uid".to_owned(), uid.clone());
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

fn refused(why: &str) -> Value {
    json!({"allowed": false, "status": {"message": why, "reason": "Invalid", "code": 422}})
}

/// What an AdmissionReview asks about.
pub(super) fn request(review: &Value) -> &Value {
    review.get("request").unwrap_or(&Value::Null)
}

/// Answers an AdmissionReview with what a check came to.
pub(super) fn validated(review: &Value, result: Result<(), String>) -> Value {
    let uid = request(review).get("uid").unwrap_or(&Value::Null);
    match result {
        Ok(()) => answered(uid, json!({"allowed": true})),
        Err(why) => answered(uid, refused(&why)),
    }
}

/// Answers an AdmissionReview with what the object is to be instead: its spec is
/// replaced as a whole, and what is not the operator's business stays.
pub(super) fn default(review: &Value, mutate: &Mutate, encode: impl Fn(&[u8]) -> String) -> Value {
    let request = request(review);
    let uid = request.get("uid").unwrap_or(&Value::Null);
    let object = request.get("object").unwrap_or(&Value::Null);
    if object.is_null() {
        return answered(uid, json!({"allowed": true}));
    }
    match mutate(object) {
        Err(why) => answered(uid, refused(&why)),
        Ok(changed) => {
            let patch = patch(object, &changed);
            match patch.is_empty() {
                true => answered(uid, json!({"allowed": true})),
                false => {
                    let patch = encode(Value::from(patch).to_string().as_bytes());
                    answered(uid, json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}))
                }
            }
        }
    }
}

/// The JSON patch from one object to another. A field that the type does not know is
/// left alone.
fn patch(from: &Value, to: &Value) -> Vec<Value> {
    let mut steps = Vec::new();
    collect("", from, to, &mut steps);
    steps
}

fn collect(path: &str, from: &Value, to: &Value, steps: &mut Vec<Value>) {
    match (from, to) {
        (Value::Object(from), Value::Object(to)) => {
            for (name, value) in to {
                let path = format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"));
                match from.get(name) {
                    Some(known) => collect(&path, known, value, steps),
                    // A null says nothing.
                    None if value.is_null() => {}
                    None => steps.push(json!({"op": "add", "path": path, "value": value})),
                }
            }
        }
        (from, to) if from == to => {}
        (_, to) => steps.push(json!({"op": "replace", "path": path, "value": to})),
    }
}

/// Answers a ConversionReview.
pub(super) fn convert(review: &Value, convert: &Convert) -> Value {
    let request = request(review);
    let uid = request.get("uid").unwrap_or(&Value::Null);
    let wanted = request.get("desiredAPIVersion").and_then(Value::as_str).unwrap_or_default();
    let objects = request.get("objects").and_then(Value::as_array).cloned().unwrap_or_default();
    let converted: Result<Vec<Value>, String> =
        objects.into_iter().map(|object| convert_one(object, wanted, convert)).collect();
    let response = match converted {
        Ok(objects) => json!({"uid": uid, "convertedObjects": objects, "result": {"status": "Success"}}),
        Err(why) => {
            json!({"uid": uid, "convertedObjects": [], "result": {"status": "Failure", "message": why}})
        }
    };
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response})
}

/// The metadata is nobody's to change but for labels and annotations.
fn convert_one(object: Value, wanted: &str, convert: &Convert) -> Result<Value, String> {
    if object.get("apiVersion").and_then(Value::as_str) == Some(wanted) {
        return Ok(object);
    }
    let metadata = object.get("metadata").cloned().unwrap_or_default();
    let mut converted = convert(object, wanted)?;
    let fields = converted.as_object_mut().ok_or("the conversion made no object")?;
    fields.insert("apiVersion".to_owned(), wanted.into());
    let changed = fields.insert("metadata".to_owned(), metadata).unwrap_or_default();
    if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
        for name in ["labels", "annotations"] {
            match changed.get(name) {
                Some(value) => drop(metadata.insert(name.to_owned(), value.clone())),
                None => drop(metadata.remove(name)),
            }
        }
    }
    Ok(converted)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_refusal_says_why() {
        let review = json!({"request": {"uid": "7", "object": {}}});
        let answer = validated(&review, Err("too many".to_owned()));
        assert_eq!(answer["response"]["uid"], "7");
        assert_eq!(answer["response"]["allowed"], false);
        assert_eq!(answer["response"]["status"]["message"], "too many");
    }

    #[test]
    fn a_patch_adds_and_replaces_and_leaves_alone_what_is_not_known() {
        let from = json!({"spec": {"a": 1, "unknown": 2}, "metadata": {"labels": {"x/y": "1"}}});
        let to = json!({"spec": {"a": 3, "b": 4, "c": null}, "metadata": {"labels": {"x/y": "2"}}});
        let mut steps: Vec<_> = patch(&from, &to).iter().map(ToString::to_string).collect();
        steps.sort();
        assert_eq!(
            steps,
            [
                r#"{"op":"add","path":"/spec/b","value":4}"#,
                r#"{"op":"replace","path":"/metadata/labels/x~1y","value":"2"}"#,
                r#"{"op":"replace","path":"/spec/a","value":3}"#,
            ]
        );
    }

    #[test]
    fn a_conversion_keeps_the_metadata_and_says_what_failed() {
        let up: Convert = Arc::new(|mut object, _| {
            let size = object["spec"]["size"].take();
            if size.is_null() {
                return Err("it has no size".to_owned());
            }
            Ok(
                json!({"kind": "A", "metadata": {"uid": "made up", "labels": {"l": "1"}}, "spec": {"count": size}}),
            )
        });
        let object =
            json!({"apiVersion": "g/v1", "kind": "A", "metadata": {"uid": "u"}, "spec": {"size": 2}});
        let same = json!({"apiVersion": "g/v2", "kind": "A", "spec": {"count": 1}});
        let review =
            json!({"request": {"uid": "7", "desiredAPIVersion": "g/v2", "objects": [object, same.clone()]}});
        let answer = convert(&review, &up);
        assert_eq!(answer["response"]["result"]["status"], "Success");
        let converted = &answer["response"]["convertedObjects"];
        assert_eq!(converted[0]["spec"]["count"], 2);
        assert_eq!(converted[0]["metadata"], json!({"uid": "u", "labels": {"l": "1"}}));
        assert_eq!(converted[1], same);
        let bad = json!({"request": {"desiredAPIVersion": "g/v2", "objects": [{"apiVersion": "g/v1"}]}});
        assert_eq!(convert(&bad, &up)["response"]["result"]["message"], "it has no size");
    }
}
