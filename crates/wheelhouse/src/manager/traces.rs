//! Traces by OpenTelemetry: every reconcile as a trace, with what was observed,
//! decided and done as its spans.

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::{Resource, trace::SdkTracerProvider};
use tracing::Subscriber;
use tracing_subscriber::{Layer, filter::Targets, registry::LookupSpan};

use crate::error::{Category, Error, Result};

/// Sends spans to a collector.
#[derive(Debug)]
pub(super) struct Traces(SdkTracerProvider);

impl Traces {
    /// To the collector at this address, by OTLP over HTTP.
    pub(super) fn to(endpoint: &str, service: &str) -> Result<Self> {
        let exporter = SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
            .build()
            .map_err(|error| {
                let advice = "say for example http://collector.observability:4318";
                Error::new(Category::Invalid, format!("--otlp-endpoint {endpoint}: {error}: {advice}"))
            })?;
        let resource = Resource::builder().with_service_name(service.to_owned()).build();
        let provider =
            SdkTracerProvider::builder().with_resource(resource).with_batch_exporter(exporter).build();
        Ok(Self(provider))
    }

    /// What hands over the spans of this crate and of the operator.
    pub(super) fn layer<S>(&self) -> Box<dyn Layer<S> + Send + Sync>
    where
        S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
    {
        let wanted = Targets::new()
            .with_default(tracing::Level::INFO)
            .with_target("wheelhouse", tracing::Level::DEBUG);
        let tracer = self.0.tracer("wheelhouse");
        tracing_opentelemetry::layer().with_tracer(tracer).with_filter(wanted).boxed()
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        // Sends what is left. Whom could it be told if that fails?
        let _ = self.0.shutdown();
    }
}
