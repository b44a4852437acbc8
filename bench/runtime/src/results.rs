//! What was measured: samples, their medians, and how they compare, as a table and as JSON.

mod measure;
mod table;

use std::{collections::BTreeMap, thread::available_parallelism};

use serde::Serialize;
use wheelhouse_bench::samples::percentile;

pub(crate) use measure::Measure;

use crate::{contestants::BASELINE, options::Options};

/// One measured value.
pub(crate) type Sample = (Measure, f64);

/// All samples of a run, and under what conditions they were taken.
#[derive(Debug, Serialize)]
pub(crate) struct Results {
    conditions: Conditions,
    /// In the order of the columns.
    contestants: Vec<Scores>,
}

/// What has to be the same for two runs to be compared.
#[derive(Debug, Serialize)]
pub(crate) struct Conditions {
    kubernetes: String,
    cores: usize,
    rounds: usize,
    resources: usize,
    objects: usize,
    changes: usize,
    workers: usize,
}

impl Conditions {
    /// Of a run on this machine.
    pub(crate) fn new(options: &Options, kubernetes: String) -> Self {
        Self {
            kubernetes,
            cores: available_parallelism().map_or(1, usize::from),
            rounds: options.rounds,
            resources: options.resources,
            objects: options.objects,
            changes: options.changes,
            workers: options.workers,
        }
    }
}

/// What was measured of one contestant.
#[derive(Debug, Serialize)]
struct Scores {
    name: &'static str,
    measures: BTreeMap<Measure, Score>,
}

/// The samples of one measure.
#[derive(Debug, Default, Serialize)]
struct Score {
    unit: &'static str,
    median: f64,
    /// Of the median to the baseline's; none without a baseline, or where that is zero.
    ratio: Option<f64>,
    samples: Vec<f64>,
}

impl Results {
    /// None yet, for these contestants.
    pub(crate) fn new(conditions: Conditions, contestants: impl IntoIterator<Item = &'static str>) -> Self {
        let contestants =
            contestants.into_iter().map(|name| Scores { name, measures: BTreeMap::new() }).collect();
        Self { conditions, contestants }
    }

    /// Adds what was measured of one contestant in one round.
    pub(crate) fn add(&mut self, contestant: &str, samples: Vec<Sample>) {
        let Some(scores) = self.contestants.iter_mut().find(|scores| scores.name == contestant) else {
            return;
        };
        for (measure, value) in samples {
            let score = scores.measures.entry(measure).or_default();
            score.unit = measure.unit();
            score.samples.push(value);
            score.median = percentile(&score.samples, 50).unwrap_or(value);
        }
        self.compare();
    }

    fn compare(&mut self) {
        let baseline: BTreeMap<Measure, f64> = self
            .contestants
            .iter()
            .filter(|scores| scores.name == BASELINE)
            .flat_map(|scores| scores.measures.iter().map(|(measure, score)| (*measure, score.median)))
            .collect();
        for scores in &mut self.contestants {
            for (measure, score) in &mut scores.measures {
                let baseline = baseline.get(measure).filter(|median| **median != 0.0);
                score.ratio = baseline.map(|baseline| score.median / baseline);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_medians_to_the_baseline() {
        let mut results = super::table::tests::no_results(&[BASELINE, "other"]);
        for (mine, others) in [(1.0, 3.0), (2.0, 1.0), (9.0, 1.0)] {
            results.add("other", vec![(Measure::ColdWall, others), (Measure::ColdErrors, 5.0)]);
            results.add(BASELINE, vec![(Measure::ColdWall, mine), (Measure::ColdErrors, 0.0)]);
        }
        let other = &results.contestants[1].measures;
        assert_eq!(Some(0.5), other[&Measure::ColdWall].ratio);
        assert_eq!(None, other[&Measure::ColdErrors].ratio);
    }
}
