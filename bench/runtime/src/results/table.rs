//! The results as an aligned table: a line a measure, a column a contestant.

use std::fmt;

use wheelhouse_bench::table::{aligned, number};

use super::{Measure, Results, Score};

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let conditions = &self.conditions;
        writeln!(
            f,
            "rounds: {}; medians, and ratios to controller-runtime at its defaults\n\
             Kubernetes {}, {} cores, {} workers; {} Widgets, {} for memory, {} changes for latency\n",
            conditions.rounds,
            conditions.kubernetes,
            conditions.cores,
            conditions.workers,
            conditions.resources,
            conditions.objects,
            conditions.changes,
        )?;
        f.write_str(&aligned(&rows(self)))
    }
}

/// The header, and a row for each measure that anybody has.
fn rows(results: &Results) -> Vec<Vec<String>> {
    let names = results.contestants.iter().map(|scores| scores.name.to_owned());
    let header = std::iter::once(String::new()).chain(names).collect();
    let measured = Measure::ALL
        .into_iter()
        .filter(|measure| results.contestants.iter().any(|scores| scores.measures.contains_key(measure)))
        .map(|measure| {
            let cells = results.contestants.iter().map(|scores| scores.measures.get(&measure));
            let cells = cells.map(|score| score.map_or_else(|| "-".to_owned(), cell));
            std::iter::once(measure.label().to_owned()).chain(cells).collect()
        });
    std::iter::once(header).chain(measured).collect()
}

/// As in `1.25 s  0.50x`.
fn cell(score: &Score) -> String {
    let value = format!("{} {}", number(score.median), score.unit);
    match score.ratio {
        Some(ratio) => format!("{}  {ratio:>5.2}x", value.trim_end()),
        None => format!("{}        ", value.trim_end()),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::{super::Conditions, *};

    pub(in super::super) fn no_results(contestants: &[&'static str]) -> Results {
        let conditions = Conditions {
            kubernetes: "v1.36.3".to_owned(),
            cores: 2,
            rounds: 3,
            resources: 5000,
            objects: 20000,
            changes: 200,
            workers: 10,
        };
        Results::new(conditions, contestants.iter().copied())
    }

    #[test]
    fn columns_line_up_and_ratios_stand_beside_their_values() {
        let mut results = no_results(&["controller-runtime", "other", "memory-only"]);
        results.add(
            "controller-runtime",
            vec![(Measure::ColdWall, 12.5), (Measure::ColdFailedWrites, 0.0), (Measure::MemorySteady, 240.0)],
        );
        results.add(
            "other",
            vec![(Measure::ColdWall, 5.0), (Measure::ColdFailedWrites, 3.0), (Measure::MemorySteady, 60.25)],
        );
        results.add("memory-only", vec![(Measure::MemorySteady, 24.0)]);
        insta::assert_snapshot!(results.to_string());
    }

    #[test]
    fn no_measure_is_missing_from_the_table() {
        let mut sorted = Measure::ALL;
        sorted.sort();
        assert_eq!(Measure::ALL, sorted);
        assert_eq!(Measure::MemoryWrites as usize + 1, Measure::ALL.len());
    }
}
