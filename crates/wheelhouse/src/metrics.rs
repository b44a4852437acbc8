//! [`Metrics`]: under controller-runtime's names, so that dashboards and alerts
//! that people have keep working. [`ResourceMetrics`]: an operator's own.

mod resources;

use std::sync::{Arc, atomic::AtomicU64};

use parking_lot::Mutex;
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

pub(crate) use resources::{Looks, OfResources};
pub use resources::{ResourceMetrics, Samples};

use crate::queue::Measured;

type FloatGauge = Gauge<f64, AtomicU64>;

/// Everything that `/metrics` shows.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    reconciles: Family<ReconcileLabels, Counter>,
    reconcile_errors: Family<ErrorLabels, Counter>,
    reconcile_panics: Family<ControllerLabels, Counter>,
    reconcile_time: Family<ControllerLabels, Histogram>,
    max_concurrent: Family<ControllerLabels, Gauge>,
    active_workers: Family<ControllerLabels, Gauge>,
    failing: Family<ControllerLabels, Gauge>,
    steps: Family<StepLabels, Counter>,
    depth: Family<QueueLabels, Gauge>,
    adds: Family<QueueLabels, Counter>,
    retries: Family<QueueLabels, Counter>,
    waited: Family<QueueLabels, Histogram>,
    worked: Family<QueueLabels, Histogram>,
    unfinished: Family<QueueLabels, FloatGauge>,
    longest: Family<QueueLabels, FloatGauge>,
    leading: Family<NameLabels, Gauge>,
    requests: Family<RequestLabels, Counter>,
    cached_objects: Family<KindLabels, Gauge>,
    cached_bytes: Family<KindLabels, Gauge>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ControllerLabels {
    controller: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReconcileLabels {
    controller: String,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ErrorLabels {
    controller: String,
    category: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StepLabels {
    controller: String,
    step: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct QueueLabels {
    name: String,
    controller: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct NameLabels {
    name: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct KindLabels {
    group: String,
    kind: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    code: String,
    method: String,
    host: String,
}

fn histogram() -> Histogram {
    Histogram::new([0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0])
}

impl Default for Metrics {
    fn default() -> Self {
        let metrics = Self {
            registry: Arc::default(),
            reconciles: Family::default(),
            reconcile_errors: Family::default(),
            reconcile_panics: Family::default(),
            reconcile_time: Family::new_with_constructor(histogram),
            max_concurrent: Family::default(),
            active_workers: Family::default(),
            failing: Family::default(),
            steps: Family::default(),
            depth: Family::default(),
            adds: Family::default(),
            retries: Family::default(),
            waited: Family::new_with_constructor(histogram),
            worked: Family::new_with_constructor(histogram),
            unfinished: Family::default(),
            longest: Family::default(),
            leading: Family::default(),
            requests: Family::default(),
            cached_objects: Family::default(),
            cached_bytes: Family::default(),
        };
        metrics.register();
        metrics
    }
}

impl Metrics {
    fn register(&self) {
        let mut registry = self.registry.lock();
        registry.register(
            "controller_runtime_reconcile",
            "Reconciles, by controller and result",
            self.reconciles.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_errors",
            "Failed reconciles, by controller and category",
            self.reconcile_errors.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_panics",
            "Reconciles that panicked",
            self.reconcile_panics.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_time_seconds",
            "How long reconciles took",
            self.reconcile_time.clone(),
        );
        registry.register(
            "controller_runtime_max_concurrent_reconciles",
            "How many reconciles may run at a time",
            self.max_concurrent.clone(),
        );
        registry.register(
            "controller_runtime_active_workers",
            "How many reconciles run now",
            self.active_workers.clone(),
        );
        registry.register(
            "wheelhouse_failing_resources",
            "Resources whose last reconcile failed",
            self.failing.clone(),
        );
        registry.register(
            "wheelhouse_steps",
            "Steps that plans were made of, by kind and result",
            self.steps.clone(),
        );
        registry.register("workqueue_depth", "Keys that wait", self.depth.clone());
        registry.register("workqueue_adds", "Keys that were added", self.adds.clone());
        registry.register(
            "workqueue_retries",
            "Keys that were added again after a failure",
            self.retries.clone(),
        );
        registry.register("workqueue_queue_duration_seconds", "How long keys waited", self.waited.clone());
        registry.register(
            "workqueue_work_duration_seconds",
            "How long the work on a key took",
            self.worked.clone(),
        );
        registry.register(
            "workqueue_unfinished_work_seconds",
            "How long the work that runs now has taken, all together",
            self.unfinished.clone(),
        );
        registry.register(
            "workqueue_longest_running_processor_seconds",
            "How long the longest work that runs now has taken",
            self.longest.clone(),
        );
        registry.register(
            "leader_election_master_status",
            "1 where this process leads",
            self.leading.clone(),
        );
        registry.register(
            "rest_client_requests",
            "Requests to the API server, by code and method",
            self.requests.clone(),
        );
        registry.register("wheelhouse_cache_objects", "Objects in the cache", self.cached_objects.clone());
        registry.register(
            "wheelhouse_cache_bytes",
            "About how many bytes of JSON they are",
            self.cached_bytes.clone(),
        );
    }

    /// Adds metrics of the operator's own.
    pub fn with_registry(&self, add: impl FnOnce(&mut Registry)) {
        add(&mut self.registry.lock());
    }

    /// The text that a Prometheus server reads.
    pub fn render(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry.lock())?;
        Ok(text)
    }

    pub(crate) fn queue(&self, controller: &str) -> QueueMetrics {
        let labels = QueueLabels { name: controller.to_owned(), controller: controller.to_owned() };
        let workers = ControllerLabels { controller: controller.to_owned() };
        QueueMetrics {
            adds: self.adds.get_or_create_owned(&labels),
            retries: self.retries.get_or_create_owned(&labels),
            waited: self.waited.get_or_create_owned(&labels),
            worked: self.worked.get_or_create_owned(&labels),
            depth: self.depth.get_or_create_owned(&labels),
            unfinished: self.unfinished.get_or_create_owned(&labels),
            longest: self.longest.get_or_create_owned(&labels),
            max_concurrent: self.max_concurrent.get_or_create_owned(&workers),
            active_workers: self.active_workers.get_or_create_owned(&workers),
        }
    }

    pub(crate) fn controller(&self, controller: &str) -> ControllerMetrics {
        let labels = ControllerLabels { controller: controller.to_owned() };
        ControllerMetrics {
            metrics: self.clone(),
            time: self.reconcile_time.get_or_create_owned(&labels),
            panics: self.reconcile_panics.get_or_create_owned(&labels),
            failing: self.failing.get_or_create_owned(&labels),
            controller: controller.to_owned(),
        }
    }

    pub(crate) fn show_leading(&self, lease: &str, leading: bool) {
        self.leading.get_or_create(&NameLabels { name: lease.to_owned() }).set(i64::from(leading));
    }

    pub(crate) fn count_request(&self, code: String, method: String, host: String) {
        self.requests.get_or_create(&RequestLabels { code, method, host }).inc();
    }

    pub(crate) fn show_cached(&self, group: &str, kind: &str, objects: u64, bytes: u64) {
        let labels = KindLabels { group: group.to_owned(), kind: kind.to_owned() };
        self.cached_objects.get_or_create(&labels).set(objects.cast_signed());
        self.cached_bytes.get_or_create(&labels).set(bytes.cast_signed());
    }
}

/// The part of one queue.
pub(crate) struct QueueMetrics {
    pub(crate) adds: Counter,
    pub(crate) retries: Counter,
    pub(crate) waited: Histogram,
    pub(crate) worked: Histogram,
    depth: Gauge,
    unfinished: FloatGauge,
    longest: FloatGauge,
    max_concurrent: Gauge,
    active_workers: Gauge,
}

impl QueueMetrics {
    pub(crate) fn show(&self, measured: &Measured, workers: usize) {
        self.depth.set(measured.depth as i64);
        self.unfinished.set(measured.unfinished.as_secs_f64());
        self.longest.set(measured.longest.as_secs_f64());
        self.active_workers.set(measured.running as i64);
        self.max_concurrent.set(workers as i64);
    }
}

/// The part of one controller.
pub(crate) struct ControllerMetrics {
    metrics: Metrics,
    controller: String,
    pub(crate) time: Histogram,
    pub(crate) panics: Counter,
    pub(crate) failing: Gauge,
}

impl ControllerMetrics {
    pub(crate) fn count(&self, result: &'static str) {
        let labels = ReconcileLabels { controller: self.controller.clone(), result };
        self.metrics.reconciles.get_or_create(&labels).inc();
    }

    pub(crate) fn count_error(&self, category: &'static str) {
        let labels = ErrorLabels { controller: self.controller.clone(), category };
        self.metrics.reconcile_errors.get_or_create(&labels).inc();
    }

    pub(crate) fn count_step(&self, step: &'static str, result: &'static str) {
        let labels = StepLabels { controller: self.controller.clone(), step, result };
        self.metrics.steps.get_or_create(&labels).inc();
    }
}
