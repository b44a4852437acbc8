//! Logs by tracing: for people, or one JSON object a line.

use tracing_subscriber::{
    EnvFilter, Layer as _, Registry, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

use super::settings::{LogFormat, RunSettings};
use crate::error::{Category, Error, Result};

/// From now on, what happens is logged to standard error. Nothing happens if
/// the program has set up its own logs.
pub fn start_logs(settings: &RunSettings) -> Result<()> {
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
    // Fails only if there is a subscriber already.
    let _ = Registry::default().with(lines.with_filter(filter)).try_init();
    Ok(())
}
