//! What was measured, beside what was to be reached and what others reach, as a table and as JSON.

use std::{fmt, thread::available_parallelism};

use serde::Serialize;
use wheelhouse_bench::{
    samples::{percentile, worst},
    table::{aligned, number},
};

use crate::options::Options;

/// What a sample is a sample of.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Measure {
    label: String,
    unit: &'static str,
    /// The most that the median may be.
    target: Option<f64>,
    /// What a peer reached on such a machine, in its own words.
    peer: Option<&'static str>,
}

impl Measure {
    /// In that unit; without one, a plain number.
    pub(crate) fn new(label: impl Into<String>, unit: &'static str) -> Self {
        Self { label: label.into(), unit, target: None, peer: None }
    }

    /// In seconds.
    pub(crate) fn seconds(label: impl Into<String>) -> Self {
        Self::new(label, "s")
    }

    /// The most that the median may be.
    pub(crate) fn at_most(self, target: f64) -> Self {
        Self { target: Some(target), ..self }
    }

    /// What a peer reached.
    pub(crate) fn peer(self, peer: &'static str) -> Self {
        Self { peer: Some(peer), ..self }
    }
}

/// Every sample, and under what conditions they were taken.
#[derive(Debug, Serialize)]
pub(crate) struct Results {
    cores: usize,
    rounds: u16,
    figures: Vec<Scores>,
}

/// The samples of one measure.
#[derive(Debug, Serialize)]
struct Scores {
    #[serde(flatten)]
    measure: Measure,
    samples: Vec<f64>,
    /// How often there was nothing to measure, because it failed.
    failures: usize,
}

impl Results {
    /// None yet.
    pub(crate) fn new(options: &Options) -> Self {
        let cores = available_parallelism().map_or(1, usize::from);
        Self { cores, rounds: options.rounds, figures: Vec::new() }
    }

    /// Adds a sample. The table has measures in the order in which they first came.
    pub(crate) fn add(&mut self, measure: &Measure, value: f64) {
        eprintln!("  {}: {} {}", measure.label, number(value), measure.unit);
        self.note(measure, |scores| scores.samples.push(value));
    }

    /// It could not be measured.
    pub(crate) fn add_failure(&mut self, measure: &Measure, why: &anyhow::Error) {
        eprintln!("  {}: failed: {why:#}", measure.label);
        self.note(measure, |scores| scores.failures += 1);
    }

    fn note(&mut self, measure: &Measure, note: impl FnOnce(&mut Scores)) {
        match self.figures.iter_mut().find(|scores| scores.measure == *measure) {
            Some(known) => note(known),
            None => {
                let mut new = Scores { measure: measure.clone(), samples: Vec::new(), failures: 0 };
                note(&mut new);
                self.figures.push(new);
            }
        }
    }

    /// Whether nothing was measured.
    pub(crate) fn is_empty(&self) -> bool {
        self.figures.is_empty()
    }

    /// How often something could not be measured.
    pub(crate) fn failures(&self) -> usize {
        self.figures.iter().map(|scores| scores.failures).sum()
    }
}

impl fmt::Display for Results {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "\n{} cores, {} rounds; in brackets what a peer reached\n",
            self.cores, self.rounds
        )?;
        let header = ["", "median", "worst", "at most", "peer", "samples"].map(str::to_owned).to_vec();
        let rows: Vec<_> = std::iter::once(header).chain(self.figures.iter().map(row)).collect();
        formatter.write_str(&aligned(&rows))
    }
}

fn row(scores: &Scores) -> Vec<String> {
    let Measure { label, unit, target, peer } = &scores.measure;
    let told = |value: Option<f64>| {
        value
            .map_or_else(|| "-".to_owned(), |value| format!("{} {unit}", number(value)).trim_end().to_owned())
    };
    let missed = target.zip(percentile(&scores.samples, 50)).is_some_and(|(target, median)| median > target);
    let failed = if scores.failures == 0 { String::new() } else { format!(", {} failed", scores.failures) };
    vec![
        label.clone(),
        told(percentile(&scores.samples, 50)),
        told(worst(&scores.samples)),
        target.map_or_else(String::new, |target| {
            format!("{}{}", told(Some(target)), if missed { " missed" } else { "" })
        }),
        peer.map_or_else(String::new, |peer| format!("({peer})")),
        format!("{}{failed}", scores.samples.len()),
    ]
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn the_table_has_medians_and_worst_beside_targets_and_peers() {
        let mut results = Results { cores: 2, ..Results::new(&Options::parse_from(["bench-etcd"])) };
        let apply = Measure::seconds("apply to 3 healthy members").at_most(12.0).peer("22.0 s");
        let shrink = Measure::seconds("5 to 3").at_most(1.5).peer("1.4 s");
        for (one, other) in [(9.5, 1.2), (14.0, 1.9), (8.25, 1.75)] {
            results.add(&apply, one);
            results.add(&shrink, other);
        }
        results.add(&Measure::new("API calls, idle", ""), 0.0);
        results.add_failure(&shrink, &anyhow::anyhow!("nobody answers"));
        assert_eq!(results.failures(), 1);
        insta::assert_snapshot!(results.to_string());
    }
}
