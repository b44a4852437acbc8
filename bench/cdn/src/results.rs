//! What was measured, as a table and as JSON.

use std::fmt;

use serde::Serialize;
use wheelhouse_bench::samples::percentile;

use crate::{load::Sample, stage::Configured};

/// Every sample.
#[derive(Default, Serialize)]
pub(crate) struct Results {
    by_the_operator: Vec<Sample>,
    by_hand: Vec<Sample>,
    /// Seconds from a pod's readiness to its first request.
    pub(crate) first_requests: Vec<f64>,
}

impl Results {
    pub(crate) fn add(&mut self, who: Configured, sample: Sample) {
        match who {
            Configured::ByTheOperator => self.by_the_operator.push(sample),
            Configured::ByHand => self.by_hand.push(sample),
        }
    }
}

/// What is looked at of a sample.
type Figure = fn(&Sample) -> f64;

fn median(samples: impl Iterator<Item = f64>) -> f64 {
    percentile(&samples.collect::<Vec<_>>(), 50).unwrap_or(f64::NAN)
}

impl fmt::Display for Results {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "rounds: {}; medians, and ratios to nginx by hand\n", self.by_hand.len())?;
        writeln!(formatter, "{:24}{:>12}{:>18}", "", "by hand", "by the operator")?;
        let figures: [(&str, Figure); 3] = [
            ("requests a second", |sample| sample.rate),
            ("p50 in ms", |sample| sample.p50),
            ("p99 in ms", |sample| sample.p99),
        ];
        for (name, figure) in figures {
            let hand = median(self.by_hand.iter().map(figure));
            let operator = median(self.by_the_operator.iter().map(figure));
            writeln!(formatter, "{name:24}{hand:>12.2}{operator:>11.2} {:.2}x", operator / hand)?;
        }
        let first = median(self.first_requests.iter().copied());
        write!(formatter, "\nfrom a pod's readiness to its first request: {first:.2} s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_medians_and_ratios() {
        let mut results = Results::default();
        for (hand, operator) in [(100.0, 96.0), (300.0, 10.0), (200.0, 190.0)] {
            results.add(Configured::ByHand, Sample { rate: hand, p50: 1.0, p99: 2.0 });
            results.add(Configured::ByTheOperator, Sample { rate: operator, p50: 1.0, p99: 3.0 });
        }
        let table = results.to_string();
        assert!(table.contains("200.00      96.00 0.48x"), "{table}");
        assert!(table.contains("2.00       3.00 1.50x"), "{table}");
    }
}
