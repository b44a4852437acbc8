//! Which backups may go. Pure.
//!
//! Invariants:
//! - Only what is in the history may go: files that this resource's backups wrote.
//! - The last good one never goes, and of the others the oldest go first.

use std::cmp::Reverse;

use wheelhouse::jiff::{SignedDuration, Timestamp};

use crate::api::backup::{Kept, Retention};

/// Of a history, the last one first, those that stay and those that may go.
pub fn part(history: Vec<Kept>, retention: Option<&Retention>, now: Timestamp) -> (Vec<Kept>, Vec<Kept>) {
    let Some(retention) = retention else { return (history, Vec::new()) };
    let is_young = |kept: &Kept| {
        let keep_for = retention.keep_for_seconds.map(SignedDuration::from_secs);
        keep_for.is_some_and(|keep_for| now.duration_since(kept.scheduled) <= keep_for)
    };
    let is_among_the_last = |number: usize| {
        let keep = retention.keep_last.and_then(|keep| usize::try_from(keep).ok());
        keep.is_some_and(|keep| number < keep)
    };
    let numbered = history.into_iter().enumerate();
    let (stay, go): (Vec<_>, Vec<_>) =
        numbered.partition(|(number, kept)| *number == 0 || is_among_the_last(*number) || is_young(kept));
    let plain = |numbered: Vec<(usize, Kept)>| numbered.into_iter().map(|(_, kept)| kept).collect();
    (plain(stay), plain(go))
}

/// The history with one more, the last one first; each once.
pub fn with(mut history: Vec<Kept>, new: Kept) -> Vec<Kept> {
    history.retain(|kept| kept.path != new.path);
    history.push(new);
    history.sort_by_key(|kept| Reverse(kept.scheduled));
    history
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::api::backup::Content;

    fn kept(second: i64) -> Kept {
        let time = Timestamp::from_second(second).unwrap();
        let content =
            Content { size: 1, sha256: "00".to_owned(), revision: 1, etcd_version: None, cluster_id: None };
        Kept { path: format!("p{second}"), scheduled: time, at: time, content }
    }

    #[rstest]
    #[case::all(None, None, &[500, 400, 300])]
    #[case::the_last(Some(2), None, &[500, 400])]
    #[case::the_young(None, Some(650), &[500, 400])]
    #[case::what_either_keeps(Some(1), Some(650), &[500, 400])]
    #[case::the_last_one_however_old(None, Some(60), &[500])]
    fn what_either_rule_keeps_stays_and_the_last_one_always(
        #[case] keep_last: Option<u32>,
        #[case] keep_for_seconds: Option<i64>,
        #[case] stay: &[i64],
    ) {
        let retention = Retention { keep_last, keep_for_seconds };
        let retention = Some(&retention).filter(|retention| **retention != Retention::default());
        let history = [300, 500, 400].into_iter().map(kept).fold(Vec::new(), with);
        let (stays, goes) = part(history, retention, Timestamp::from_second(1050).unwrap());
        assert_eq!(stays.iter().map(|kept| kept.scheduled.as_second()).collect::<Vec<_>>(), stay);
        assert_eq!(stays.len() + goes.len(), 3);
    }

    #[test]
    fn the_same_backup_is_remembered_once() {
        let history = [kept(300), kept(400), kept(300)].into_iter().fold(Vec::new(), with);
        assert_eq!(history.len(), 2);
    }
}
