//! [`ResourceMetrics`]: what `/metrics` tells of each resource of a controller.
//!
//! What is told is computed from the cache when somebody asks. So the series of a resource end with it, there
//! are as many as there are resources, times a few, and a standby tells the same as the leader.

use std::{collections::HashMap, fmt, sync::Arc};

use jiff::Timestamp;
use parking_lot::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet},
    metrics::MetricType,
};

use crate::{
    cache::{Cached, Lister},
    key::Key,
};

/// Metrics of an operator's own, about each of its resources: see
/// [`Controller::metrics`](crate::Controller::metrics).
///
/// Every series has the label `namespace` and one with the resource's name.
///
/// ```
/// use wheelhouse::{k8s_openapi::api::apps::v1::Deployment, metrics::ResourceMetrics};
///
/// let metrics = ResourceMetrics::<Deployment>::labelled("deployment")
///     .gauge("deployment_wanted", "Pods that are wanted", |deployment, samples| {
///         let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
///         samples.tell(wanted.unwrap_or(1));
///     })
///     .looks("deployment_last_look_timestamp_seconds", "When it was last looked at without a failure");
/// ```
pub struct ResourceMetrics<K> {
    label: &'static str,
    is_told_of: Box<dyn Fn(&K) -> bool + Send + Sync>,
    families: Vec<Family<K>>,
    looks: Option<Arc<Looks>>,
}

struct Family<K> {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    what: What<K>,
}

type Tell<K> = Box<dyn Fn(&K, &mut Samples) + Send + Sync>;

enum What<K> {
    /// What the resource says.
    Told(Tell<K>),
    /// When it was last looked at.
    Looks,
}

impl<K> ResourceMetrics<K> {
    /// None yet. The name of a resource is in a label of this name.
    pub fn labelled(label: &'static str) -> Self {
        Self { label, is_told_of: Box::new(|_| true), families: Vec::new(), looks: None }
    }

    /// Tells only of these resources. Default: of all.
    #[must_use]
    pub fn only(mut self, is_told_of: impl Fn(&K) -> bool + Send + Sync + 'static) -> Self {
        self.is_told_of = Box::new(is_told_of);
        self
    }

    /// Adds a value that goes up and down.
    #[must_use]
    pub fn gauge(
        self,
        name: &'static str,
        help: &'static str,
        tell: impl Fn(&K, &mut Samples) + Send + Sync + 'static,
    ) -> Self {
        self.family(name, help, MetricType::Gauge, What::Told(Box::new(tell)))
    }

    /// Adds a value that only grows; its name gets the ending `_total`.
    #[must_use]
    pub fn counter(
        self,
        name: &'static str,
        help: &'static str,
        tell: impl Fn(&K, &mut Samples) + Send + Sync + 'static,
    ) -> Self {
        self.family(name, help, MetricType::Counter, What::Told(Box::new(tell)))
    }

    /// Adds the time at which this process last looked at a resource without a failure, in seconds since 1970. A
    /// standby looks at none.
    #[must_use]
    pub fn looks(mut self, name: &'static str, help: &'static str) -> Self {
        self.looks = Some(Arc::default());
        self.family(name, help, MetricType::Gauge, What::Looks)
    }

    fn family(mut self, name: &'static str, help: &'static str, kind: MetricType, what: What<K>) -> Self {
        self.families.push(Family { name, help, kind, what });
        self
    }

    /// Where the controller says that it has looked, if anybody wants to know.
    pub(crate) fn looks_to_note(&self) -> Option<Arc<Looks>> {
        self.looks.clone()
    }

    fn samples_of(&self, key: &Key, resource: &K) -> Vec<(usize, Sample)> {
        let mut all = Vec::new();
        for (number, family) in self.families.iter().enumerate() {
            let mut samples = Samples::default();
            match &family.what {
                What::Told(tell) => tell(resource, &mut samples),
                What::Looks => {
                    if let Some(at) = self.looks.as_ref().and_then(|looks| looks.0.lock().get(key).copied()) {
                        samples.tell(at.as_millisecond() as f64 / 1e3);
                    }
                }
            }
            all.extend(samples.0.into_iter().map(|sample| (number, sample)));
        }
        all
    }
}

/// What is told of one resource under one name.
#[derive(Debug, Default)]
pub struct Samples(Vec<Sample>);

#[derive(Debug)]
struct Sample {
    label: Option<(&'static str, String)>,
    value: f64,
}

impl Samples {
    /// A value.
    pub fn tell(&mut self, value: impl Into<f64>) {
        self.0.push(Sample { label: None, value: value.into() });
    }

    /// A value under one more label. There must be few: each text is a series for every resource.
    pub fn tell_as(&mut self, label: &'static str, text: impl Into<String>, value: impl Into<f64>) {
        self.0.push(Sample { label: Some((label, text.into())), value: value.into() });
    }
}

/// When resources were last looked at without a failure.
#[derive(Debug, Default)]
pub(crate) struct Looks(Mutex<HashMap<Key, Timestamp>>);

impl Looks {
    pub(crate) fn note(&self, key: &Key) {
        self.0.lock().insert(key.clone(), Timestamp::now());
    }

    pub(crate) fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }
}

/// The metrics of the resources that a lister has.
pub(crate) struct OfResources<K: Cached> {
    pub(crate) metrics: ResourceMetrics<K>,
    pub(crate) lister: Lister<K>,
}

impl<K: Cached> fmt::Debug for OfResources<K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.metrics.families.iter().map(|family| family.name);
        formatter.debug_list().entries(names).finish()
    }
}

impl<K: Cached> Collector for OfResources<K> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        // One resource at a time: all of them at once may be more than the cache itself holds.
        let resources = self.lister.keys().into_iter().filter_map(|key| {
            let resource = self.lister.get(&key).filter(|resource| (self.metrics.is_told_of)(resource))?;
            let samples = self.metrics.samples_of(&key, &resource);
            Some((key, samples))
        });
        let resources: Vec<_> = resources.collect();
        for (number, family) in self.metrics.families.iter().enumerate() {
            let mut encoder = encoder.encode_descriptor(family.name, family.help, None, family.kind)?;
            for (key, samples) in &resources {
                for (_, sample) in samples.iter().filter(|(of, _)| *of == number) {
                    let mut labels = vec![
                        ("namespace", key.namespace().unwrap_or_default()),
                        (self.metrics.label, key.name()),
                    ];
                    labels.extend(sample.label.as_ref().map(|(label, text)| (*label, text.as_str())));
                    encode_value(encoder.encode_family(&labels)?, family.kind, sample.value)?;
                }
            }
        }
        Ok(())
    }
}

fn encode_value(mut encoder: MetricEncoder<'_>, kind: MetricType, value: f64) -> fmt::Result {
    match kind {
        MetricType::Counter => encoder.encode_counter::<NoLabelSet, _, u64>(&value, None),
        _ => encoder.encode_gauge(&value),
    }
}
