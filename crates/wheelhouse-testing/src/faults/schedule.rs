//! [`Schedule`]: which trouble happens when.

use std::{fmt, time::Duration};

use wheelhouse_local::random::Random;

use crate::watch_faults::WatchFault;

/// The classes of trouble, after Sieve (OSDI '22).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// What was seen is not so any more.
    Stale,
    /// Something was left half done.
    Intermediate,
    /// Something happened that nobody saw.
    Unobserved,
    /// A question was not answered.
    Unreachable,
}

impl fmt::Display for Class {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Stale => "stale state",
            Self::Intermediate => "intermediate state",
            Self::Unobserved => "unobserved state",
            Self::Unreachable => "unreachable",
        })
    }
}

/// One piece of trouble. Writes and reads are counted from 1, in the order in
/// which they arrive; Leases and events are not counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// The operator is killed after this write took effect, before its answer
    /// arrives, and started again.
    CrashAfterWrite(usize),
    /// This write takes effect, and its answer gets lost.
    LoseAnswerToWrite(usize),
    /// This write gets lost on its way.
    LoseWrite(usize),
    /// This write is refused with that status.
    RefuseWrite(usize, u16),
    /// This read of one object, or of a list, is refused with that status.
    RefuseRead(usize, u16),
    /// From this write on watches say nothing for that long, and lists that may be
    /// from the past are.
    FreezeAfterWrite(usize, Duration),
    /// The same, and the operator is killed and started again while it lasts.
    CrashIntoThePast(usize, Duration),
    /// This happens to all watches.
    Watches(WatchFault),
    /// Two of them run, and each believes to lead.
    TwoLeaders,
}

impl Disturbance {
    /// Which class of trouble it is.
    pub fn class(&self) -> Class {
        match self {
            Self::CrashAfterWrite(_)
            | Self::LoseAnswerToWrite(_)
            | Self::LoseWrite(_)
            | Self::RefuseWrite(..) => Class::Intermediate,
            Self::RefuseRead(..) => Class::Unreachable,
            Self::FreezeAfterWrite(..) | Self::CrashIntoThePast(..) | Self::TwoLeaders => Class::Stale,
            Self::Watches(WatchFault::Late(_) | WatchFault::Twice) => Class::Stale,
            Self::Watches(WatchFault::Merged(_) | WatchFault::ExpiredAfter(_)) => Class::Unobserved,
        }
    }
}

impl fmt::Display for Disturbance {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CrashAfterWrite(write) => write!(formatter, "crash after write {write}"),
            Self::LoseAnswerToWrite(write) => write!(formatter, "the answer to write {write} is lost"),
            Self::LoseWrite(write) => write!(formatter, "write {write} is lost"),
            Self::RefuseWrite(write, code) => write!(formatter, "write {write} is refused with {code}"),
            Self::RefuseRead(read, code) => write!(formatter, "read {read} is refused with {code}"),
            Self::FreezeAfterWrite(write, time) => {
                write!(formatter, "reads are frozen for {time:?} after write {write}")
            }
            Self::CrashIntoThePast(write, time) => {
                write!(formatter, "crash after write {write}, and reads are frozen before it for {time:?}")
            }
            Self::Watches(WatchFault::Late(time)) => write!(formatter, "watch events are {time:?} late"),
            Self::Watches(WatchFault::Twice) => write!(formatter, "watch events come twice"),
            Self::Watches(WatchFault::Merged(time)) => {
                write!(formatter, "watch events are merged over {time:?}")
            }
            Self::Watches(WatchFault::ExpiredAfter(time)) => {
                write!(formatter, "watches say nothing and expire after {time:?}")
            }
            Self::TwoLeaders => formatter.write_str("two leaders"),
        }
    }
}

/// All the trouble of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule(pub Vec<Disturbance>);

impl Schedule {
    /// How long reads are frozen.
    const FROZEN: Duration = Duration::from_millis(1500);

    /// Every single piece of trouble there is, for so many writes and reads.
    pub(crate) fn single(writes: usize, reads: usize) -> Vec<Self> {
        let mut all = Vec::new();
        for write in 1..=writes {
            all.push(Disturbance::CrashAfterWrite(write));
            all.push(Disturbance::LoseAnswerToWrite(write));
            all.push(Disturbance::LoseWrite(write));
            all.extend([409, 429, 500].map(|code| Disturbance::RefuseWrite(write, code)));
            all.push(Disturbance::FreezeAfterWrite(write, Self::FROZEN));
            all.push(Disturbance::CrashIntoThePast(write, Self::FROZEN));
        }
        for read in 1..=reads {
            all.extend([429, 500].map(|code| Disturbance::RefuseRead(read, code)));
        }
        let watch_faults = [
            WatchFault::Late(Duration::from_millis(300)),
            WatchFault::Twice,
            WatchFault::Merged(Duration::from_millis(400)),
            WatchFault::ExpiredAfter(Duration::from_millis(700)),
        ];
        all.extend(watch_faults.map(Disturbance::Watches));
        all.push(Disturbance::TwoLeaders);
        all.into_iter().map(|one| Self(vec![one])).collect()
    }

    /// Two pieces of trouble at once, so many times, from a seed: the same again
    /// from the same seed.
    pub(crate) fn pairs(singles: &[Self], count: usize, seed: u64) -> Vec<Self> {
        let mut random = Random::from_seed(seed);
        let mut draw = || singles.get(random.index(singles.len())?);
        let pair = |one: &Self, other: &Self| Self([one.0.clone(), other.0.clone()].concat());
        (0..count).filter_map(|_| Some(pair(draw()?, draw()?))).collect()
    }

    /// The same without one piece, for each.
    pub(crate) fn shorter(&self) -> Vec<Self> {
        if self.0.len() < 2 {
            return Vec::new();
        }
        let without = |left_out: usize| {
            let rest = self.0.iter().enumerate().filter(|(index, _)| *index != left_out);
            Self(rest.map(|(_, one)| one.clone()).collect())
        };
        (0..self.0.len()).map(without).collect()
    }

    /// How many processes of the operator run.
    pub(crate) fn processes(&self) -> usize {
        if self.0.contains(&Disturbance::TwoLeaders) { 2 } else { 1 }
    }

    /// The classes of its trouble.
    pub fn classes(&self) -> Vec<Class> {
        let mut classes: Vec<_> = self.0.iter().map(Disturbance::class).collect();
        classes.sort();
        classes.dedup();
        classes
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return formatter.write_str("undisturbed");
        }
        let all: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        formatter.write_str(&all.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_write_has_every_trouble() {
        let all = Schedule::single(3, 2);
        assert_eq!(all.len(), 3 * 8 + 2 * 2 + 4 + 1);
        assert!(all.contains(&Schedule(vec![Disturbance::CrashAfterWrite(3)])));
    }

    #[test]
    fn the_same_seed_gives_the_same_pairs() {
        let singles = Schedule::single(5, 1);
        assert_eq!(Schedule::pairs(&singles, 10, 7), Schedule::pairs(&singles, 10, 7));
        assert_ne!(Schedule::pairs(&singles, 10, 7), Schedule::pairs(&singles, 10, 8));
        assert_eq!(Schedule::pairs(&singles, 10, 7)[0].0.len(), 2);
    }

    #[test]
    fn a_schedule_gets_shorter_by_one() {
        let pair = Schedule(vec![Disturbance::TwoLeaders, Disturbance::LoseWrite(1)]);
        let shorter = [Schedule(vec![Disturbance::LoseWrite(1)]), Schedule(vec![Disturbance::TwoLeaders])];
        assert_eq!(pair.shorter(), shorter);
        assert_eq!(shorter[0].shorter(), []);
    }
}
