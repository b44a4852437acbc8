//! Webhooks: what CEL cannot say about a kind: validating, defaulting, and
//! conversion between its versions. See `docs/decisions/0014-webhooks-look-after-themselves.md`.

mod certificate;
mod configurations;
mod review;
mod serving;

use std::{net::SocketAddr, sync::Arc};

use futures::future::BoxFuture;
use kube::{Client, Resource};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

pub use review::Request;

use crate::kind::Kind;

pub(crate) use configurations::Scope;
pub(crate) use serving::Serving;

/// Checks a request: `Err` is told to whoever sent it.
type Validate = Arc<dyn Fn(&Value, &Client) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;
/// What an object is to be instead.
type Mutate = Arc<dyn Fn(&Value) -> Result<Value, String> + Send + Sync>;
/// An object of one version as one of another.
type Convert = Arc<dyn Fn(Value, &str) -> Result<Value, String> + Send + Sync>;

/// What the webhooks of an operator do.
#[derive(Clone, Default)]
pub struct Webhooks {
    pub(crate) validating: Vec<(Kind, Validate)>,
    pub(crate) defaulting: Vec<(Kind, Mutate)>,
    pub(crate) converting: Vec<(String, Convert)>,
}

impl Webhooks {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests to create, update or delete objects of this kind are let in only if
    /// this is fine with them.
    #[must_use]
    pub fn validates<K>(
        mut self,
        validate: impl Fn(&Request<K>) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + 'static,
    {
        let validate: Validate = Arc::new(move |request, _| {
            let result = Request::parse(request).and_then(|request| validate(&request));
            Box::pin(std::future::ready(result))
        });
        self.validating.push((Kind::of::<K>(&()), validate));
        self
    }

    /// The same where it takes a look at other objects to know. What is read has to be
    /// declared with the controllers. The API server waits for at most ten seconds, and
    /// whoever cannot look should rather let a request in and say so in a condition later.
    #[must_use]
    pub fn validates_with<K, F>(
        mut self,
        validate: impl Fn(Request<K>, Client) -> F + Send + Sync + 'static,
    ) -> Self
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + 'static,
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        let validate: Validate = Arc::new(move |request, client| match Request::parse(request) {
            Ok(request) => Box::pin(validate(request, client.clone())),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        });
        self.validating.push((Kind::of::<K>(&()), validate));
        self
    }

    /// What people leave out of objects of this kind is filled in.
    #[must_use]
    pub fn defaults<K>(mut self, default: impl Fn(&mut K) + Send + Sync + 'static) -> Self
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Serialize + 'static,
    {
        let mutate: Mutate = Arc::new(move |object| {
            let mut typed: K = serde_json::from_value(object.clone()).map_err(|error| error.to_string())?;
            default(&mut typed);
            serde_json::to_value(&typed).map_err(|error| error.to_string())
        });
        self.defaulting.push((Kind::of::<K>(&()), mutate));
        self
    }

    /// Objects of the CRD of this name (`PLURAL.GROUP`) are converted between its versions:
    /// from what the object is to that `apiVersion`.
    #[must_use]
    pub fn converts(
        mut self,
        crd: impl Into<String>,
        convert: impl Fn(Value, &str) -> Result<Value, String> + Send + Sync + 'static,
    ) -> Self {
        self.converting.push((crd.into(), Arc::new(convert)));
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.validating.is_empty() && self.defaulting.is_empty() && self.converting.is_empty()
    }
}

/// Where the API server finds the webhooks.
#[derive(Clone, Debug)]
pub(crate) enum Address {
    /// At this URL.
    Url(String),
    /// Behind the Service of this name in that namespace.
    Service { name: String, namespace: String },
}

impl Address {
    /// The names that the certificate is for.
    pub(crate) fn names(&self, listening: SocketAddr) -> Vec<String> {
        match self {
            Self::Url(url) => {
                let host = url.parse::<http::Uri>().ok().and_then(|uri| uri.host().map(str::to_owned));
                vec![host.unwrap_or_else(|| listening.ip().to_string())]
            }
            Self::Service { name, namespace } => {
                vec![format!("{name}.{namespace}.svc"), format!("{name}.{namespace}.svc.cluster.local")]
            }
        }
    }
}
