//! [`Report`]: what a trial found.

use std::{collections::BTreeMap, fmt, time::Duration};

use super::{
    schedule::{Class, Schedule},
    state::Difference,
};

/// How an operator did not do what it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Symptom {
    /// After this act it never got where it should.
    NeverGotThere(String),
    /// It ended up elsewhere.
    EndsElsewhere,
    /// It deleted what the undisturbed run did not delete.
    Deleted,
    /// It goes on writing when all is done: so many times within a second.
    NeverStill(usize),
    /// It ended by itself.
    Died,
}

impl fmt::Display for Symptom {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeverGotThere(act) => write!(formatter, "after \"{act}\" it never got where it should"),
            Self::EndsElsewhere => formatter.write_str("it ended up elsewhere"),
            Self::Deleted => formatter.write_str("it deleted what it should not"),
            Self::NeverStill(writes) => {
                write!(formatter, "it does not stay still: {writes} writes when all was done")
            }
            Self::Died => formatter.write_str("it ended by itself"),
        }
    }
}

/// A schedule under which an operator fails, as short as it gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The trouble.
    pub schedule: Schedule,
    /// What was wrong then.
    pub symptom: Symptom,
    /// How what there was at the end differed from the undisturbed run's.
    pub differences: Vec<Difference>,
    /// What it deleted that the undisturbed run did not delete, as `PLURAL NAME`.
    pub deleted: Vec<String>,
}

impl Finding {
    /// The classes of the trouble.
    pub fn classes(&self) -> Vec<Class> {
        self.schedule.classes()
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let classes: Vec<_> = self.classes().iter().map(ToString::to_string).collect();
        write!(formatter, "[{}] {}: {}", classes.join(", "), self.schedule, self.symptom)?;
        if !self.differences.is_empty() {
            let all: Vec<_> = self.differences.iter().map(ToString::to_string).collect();
            write!(formatter, ": {}", all.join("; "))?;
        }
        if !self.deleted.is_empty() {
            write!(formatter, "; deleted: {}", self.deleted.join(", "))?;
        }
        Ok(())
    }
}

/// What a trial found.
#[derive(Clone, Debug)]
pub struct Report {
    /// What the operator is called.
    pub subject: String,
    /// How many writes the undisturbed run took.
    pub writes: usize,
    /// How many reads, watches aside.
    pub reads: usize,
    /// How many schedules were tried, by class.
    pub tried: BTreeMap<Class, usize>,
    /// The seed of the random ones.
    pub seed: u64,
    /// How long it all took.
    pub took: Duration,
    /// Under which of them it failed.
    pub findings: Vec<Finding>,
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tried: usize = self.tried.values().sum();
        writeln!(
            formatter,
            "{}: {} writes and {} reads undisturbed; {tried} schedules in {:.0} s (seed {}), {} failed",
            self.subject,
            self.writes,
            self.reads,
            self.took.as_secs_f64(),
            self.seed,
            self.findings.len()
        )?;
        for (class, count) in &self.tried {
            writeln!(formatter, "  {class}: {count} tried")?;
        }
        for finding in &self.findings {
            writeln!(formatter, "  {finding}")?;
        }
        Ok(())
    }
}
