//! What an informer looks at: [`Namespaces`] and a [`Selection`].

use std::{collections::BTreeSet, sync::Arc};

use kube::{api::ListParams, core::Selector, runtime::watcher};

/// The namespaces that are looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Namespaces {
    /// All of them; the default.
    #[default]
    All,
    /// These, each with a watch of its own.
    Only(BTreeSet<Arc<str>>),
}

impl Namespaces {
    /// These namespaces; all if there are none.
    pub fn only<N: AsRef<str>>(names: impl IntoIterator<Item = N>) -> Self {
        let names: BTreeSet<Arc<str>> = names.into_iter().map(|name| name.as_ref().into()).collect();
        if names.is_empty() { Self::All } else { Self::Only(names) }
    }

    /// Whether an object in that namespace, or a cluster-scoped one, is looked at.
    pub fn contain(&self, namespace: Option<&str>) -> bool {
        match (self, namespace) {
            (Self::All, _) | (_, None) => true,
            (Self::Only(names), Some(namespace)) => names.contains(namespace),
        }
    }

    /// One watch for each: of a namespace, or of everything.
    pub(crate) fn parts(&self) -> Vec<Option<Arc<str>>> {
        match self {
            Self::All => vec![None],
            Self::Only(names) => names.iter().cloned().map(Some).collect(),
        }
    }
}

/// Which objects of a kind are looked at. All of them by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// By their labels.
    pub labels: Selector,
    /// By the fields that the API server can select by, such as `spec.nodeName=n1`.
    pub fields: Option<String>,
}

impl Selection {
    /// All objects.
    pub fn everything() -> Self {
        Self::default()
    }

    /// Those with these labels.
    pub fn labels(labels: impl Into<Selector>) -> Self {
        Self { labels: labels.into(), fields: None }
    }

    /// Those with these fields.
    pub fn fields(fields: impl Into<String>) -> Self {
        Self { labels: Selector::default(), fields: Some(fields.into()) }
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.labels.selects_all() && self.fields.is_none()
    }

    /// What a list asks for.
    pub(super) fn list_params(&self) -> ListParams {
        let mut params = ListParams::default();
        if !self.labels.selects_all() {
            params = params.labels_from(&self.labels);
        }
        if let Some(fields) = &self.fields {
            params = params.fields(fields);
        }
        params
    }

    /// What a watch asks for.
    pub(super) fn watcher_config(&self) -> watcher::Config {
        let mut config = watcher::Config::default();
        if !self.labels.selects_all() {
            config = config.labels_from(&self.labels);
        }
        if let Some(fields) = &self.fields {
            config = config.fields(fields);
        }
        config
    }
}
