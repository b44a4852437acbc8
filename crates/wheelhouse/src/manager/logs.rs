//! Logs by tracing: for people, or one JSON object a line.

use tracing_subscriber::{
    EnvFilter, Layer as _, Registry, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

use super::settings::{LogFormat, RunSettings};
use crate::error::{Category, Error, Result};

/// Logs, for as long as this is held: what is on its way to a collector of
/// traces is sent when it is dropped.
#[derive(Debug)]
#[must_use = "what is not sent yet is sent when this is dropped"]
pub struct Logs {
    #[cfg(feature = "opentelemetry")]
    _traces: Option<super::traces::Traces>,
}

/// From now on, what happens is logged to standard error, in the name of this
/// operator. Nothing happens if the program has set up its own logs.
#[cfg_attr(not(feature = "opentelemetry"), expect(unused_variables, reason = "only traces have the name"))]
pub fn start_logs(operator: &str, settings: &RunSettings) -> Result<Logs> {
    let filter = EnvFilter::try_new(&settings.log_level).map_err(|error| {
        Error::new(
            Category::Invalid,
            format!(
                "--log-level {}: {error}: say for example info or info,wheelhouse=debug",
                settings.log_level
            ),
        )
    })?;
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    let lines = match settings.log_format {
        LogFormat::Readable => lines.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).boxed(),
        LogFormat::Json => {
            lines.json().flatten_event(true).with_current_span(true).with_span_list(false).boxed()
        }
    };
    let logs = Registry::default().with(lines.with_filter(filter));
    #[cfg(feature = "opentelemetry")]
    let traces = match &settings.otlp_endpoint {
        Some(endpoint) => Some(super::traces::Traces::to(endpoint, operator)?),
        None => None,
    };
    #[cfg(feature = "opentelemetry")]
    let logs = logs.with(traces.as_ref().map(super::traces::Traces::layer));
    // Fails only if there is a subscriber already.
    let _ = logs.try_init();
    Ok(Logs {
        #[cfg(feature = "opentelemetry")]
        _traces: traces,
    })
}
