//! What a person sees while something long goes on: a spinner or bar on a
//! terminal, plain lines anywhere else.

use std::{
    io::{IsTerminal as _, Write as _},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

/// Tells a person what is going on.
#[derive(Debug, Clone)]
pub struct Progress {
    bar: Option<ProgressBar>,
    quiet: bool,
}

impl Progress {
    /// Shows progress on standard error, in the way that fits what is there.
    pub fn shown() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Self { bar, quiet: false }
    }

    /// Says nothing, for libraries and tests.
    pub fn silent() -> Self {
        Self { bar: None, quiet: true }
    }

    /// A stage of the work begins; it lasts until the returned value is finished or dropped.
    pub fn stage(&self, what: impl Into<String>) -> Stage<'_> {
        let what = what.into();
        if let Some(bar) = &self.bar {
            bar.set_style(ProgressStyle::default_spinner());
            bar.set_message(what.clone());
        } else if !self.quiet {
            tell(format_args!("... {what}"));
        }
        Stage { progress: self, what, begun: Instant::now(), last_line: Instant::now() }
    }

    /// One line that stays.
    pub fn line(&self, text: impl AsRef<str>) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None if self.quiet => {}
            None => tell(format_args!("{}", text.as_ref())),
        }
    }

    /// Takes the spinner away.
    pub fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// One stage of the work.
#[derive(Debug)]
pub struct Stage<'a> {
    progress: &'a Progress,
    what: String,
    begun: Instant,
    last_line: Instant,
}

impl Stage<'_> {
    /// So much of so much is done. Without a terminal a line appears every ten seconds.
    pub fn at(&mut self, done: usize, total: usize) {
        if let Some(bar) = &self.progress.bar {
            if let Ok(style) =
                ProgressStyle::with_template("{spinner} {msg} [{bar:30}] {pos}/{len} ({elapsed})")
            {
                bar.set_style(style.progress_chars("=> "));
            }
            bar.set_length(total as u64);
            bar.set_position(done as u64);
        } else if !self.progress.quiet && self.last_line.elapsed() >= Duration::from_secs(10) {
            self.last_line = Instant::now();
            tell(format_args!("    {}: {done} of {total}", self.what));
        }
    }

    /// The stage is over; a line with its duration stays.
    pub fn done(self) {
        let seconds = self.begun.elapsed().as_secs_f64();
        self.progress.line(format!("  ✓ {} ({seconds:.1} s)", self.what));
    }
}

/// A line on standard error; work goes on when nobody reads it any more.
pub fn tell(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
