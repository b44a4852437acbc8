//! Secrets with random values: made here, never seen by an observation or a plan.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use rand::{RngExt as _, distr::Alphanumeric};
use serde_json::{Map, Value, json};

use super::{Actor, Done};
use crate::{
    cache::Peeked,
    error::{Category, Error, Result},
    key::Key,
    kind::Kind,
    plan::{EnsureSecret, Object, Reference, SecretValue},
};

/// This Secret was seen to hold these values.
struct Complete {
    uid: String,
    version: String,
    secret: EnsureSecret,
}

impl Actor<'_> {
    pub(super) async fn ensure_secret(&self, secret: &EnsureSecret) -> Result<Done> {
        let kind = Kind::of::<k8s_openapi::api::core::v1::Secret>(&());
        let key = Key::new(self.owner.reference.namespace.as_deref(), &secret.name);
        let advice = "register them with .owns::<PartialObjectMeta<Secret>>()";
        self.check_watched("ensures", &kind, advice)?;
        let learned = self.learned.get::<Complete>(&kind, &key);
        if let (Peeked::There(known), Some(learned)) = (self.cache.peek(&kind, &key), learned)
            && (&known.reference.uid, &known.reference.resource_version) == (&learned.uid, &learned.version)
            && learned.secret == *secret
        {
            return Ok(Done::AlreadySo);
        }
        let done = match self.read(&kind, &key).await? {
            None => self.create_secret(&kind, secret).await?,
            Some(live) => self.complete_secret(&kind, secret, &live).await?,
        };
        if let Peeked::There(known) = self.cache.peek(&kind, &key) {
            let Reference { uid, resource_version, .. } = known.reference;
            let complete = Complete { uid, version: resource_version, secret: secret.clone() };
            self.learned.insert(self.cache, &kind, &key, complete);
        }
        Ok(done)
    }

    async fn create_secret(&self, kind: &Kind, secret: &EnsureSecret) -> Result<Done> {
        let data: Map<_, _> = secret.values.iter().map(|(name, value)| (name.clone(), made(value))).collect();
        let object = Object::new(
            kind.clone(),
            json!({"metadata": {"name": secret.name, "labels": secret.labels}, "type": "Opaque", "data": data}),
        );
        self.create(&object).await
    }

    /// Adds what is missing, and leaves alone what is there. Somebody else's Secret
    /// will do if it is complete; nothing is written into it.
    async fn complete_secret(&self, kind: &Kind, secret: &EnsureSecret, live: &Value) -> Result<Done> {
        let there = live.get("data").and_then(Value::as_object);
        let missing =
            secret.values.iter().filter(|(name, _)| !there.is_some_and(|data| data.contains_key(*name)));
        let missing: Map<_, _> = missing.map(|(name, value)| (name.clone(), made(value))).collect();
        if missing.is_empty() {
            return Ok(Done::AlreadySo);
        }
        if !self.is_ours(live) {
            let keys: Vec<_> = missing.keys().map(String::as_str).collect();
            let why = "was not made by this resource, and lacks";
            return Err(Error::new(
                Category::NotOurs,
                format!(
                    "Secret {} {why} {}: add what is missing, or remove it",
                    secret.name,
                    keys.join(", ")
                ),
            ));
        }
        let text = |pointer| live.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let target = Reference {
            kind: kind.clone(),
            namespace: self.owner.reference.namespace.clone(),
            name: secret.name.clone(),
            uid: text("/metadata/uid"),
            resource_version: text("/metadata/resourceVersion"),
            terminating: false,
        };
        self.update(&target, &json!({"data": missing})).await
    }
}

fn made(value: &SecretValue) -> Value {
    let plain = match value {
        SecretValue::Password { length } => {
            rand::rng().sample_iter(Alphanumeric).take(*length).map(char::from).collect()
        }
        SecretValue::Plain(text) => text.clone(),
    };
    BASE64_STANDARD.encode(plain).into()
}
