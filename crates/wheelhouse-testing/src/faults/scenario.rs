//! [`Scenario`]: what people do while the operator runs, and what has to become of it.

use std::sync::Arc;

use futures::future::BoxFuture;
use kube::{Api, Client, Resource, core::NamespaceResourceScope};

/// Where a scenario plays: a namespace of its own.
#[derive(Clone)]
pub struct Stage {
    pub(crate) client: Client,
    pub(crate) namespace: String,
}

impl Stage {
    /// An administrator's client; its default namespace is this stage's.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The name of the namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The objects of a kind on this stage.
    pub fn api<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

type Doing = Arc<dyn Fn(Stage) -> BoxFuture<'static, ()> + Send + Sync>;
type Asking = Arc<dyn Fn(Stage) -> BoxFuture<'static, bool> + Send + Sync>;

#[derive(Clone)]
pub(crate) struct Act {
    pub(crate) name: String,
    pub(crate) run: Doing,
    pub(crate) until: Asking,
}

/// What people do, act by act; after each the operator gets the time to settle.
#[derive(Clone, Default)]
pub struct Scenario {
    pub(crate) acts: Vec<Act>,
}

impl Scenario {
    /// Nothing happens yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Somebody does this, and then it has to become so.
    #[must_use]
    pub fn act<Run, Until>(
        mut self,
        name: &str,
        run: impl Fn(Stage) -> Run + Send + Sync + 'static,
        until: impl Fn(Stage) -> Until + Send + Sync + 'static,
    ) -> Self
    where
        Run: Future<Output = ()> + Send + 'static,
        Until: Future<Output = bool> + Send + 'static,
    {
        self.acts.push(Act {
            name: name.to_owned(),
            run: Arc::new(move |stage| Box::pin(run(stage))),
            until: Arc::new(move |stage| Box::pin(until(stage))),
        });
        self
    }
}
