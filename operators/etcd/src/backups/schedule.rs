//! When backups are to be taken, and what they are called. Pure.
//!
//! Every backup is taken for a time, which the schedule says and not the clock: so whoever looks, and however
//! often, names the same one.

use croner::{
    Cron, Direction,
    parser::{CronParser, Seconds, Year},
};
use wheelhouse::jiff::{Timestamp, civil::DateTime, tz::TimeZone};

use crate::api::backup::{EtcdBackupSpec, Place};

/// When backups are to be taken.
#[derive(Clone, Debug)]
pub enum Schedule {
    /// Once.
    Once,
    /// Every so many seconds, since the resource was made.
    Every(i64),
    /// As cron says, in UTC.
    Cron(Box<Cron>),
}

impl Schedule {
    /// What a spec says.
    ///
    /// # Errors
    /// When it makes no sense, in words.
    pub fn of(spec: &EtcdBackupSpec) -> Result<Self, String> {
        match (&spec.schedule, spec.interval_seconds()) {
            (Some(schedule), _) => {
                let parser =
                    CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
                let cron = parser.parse(schedule);
                let wrong = |error| format!("schedule {schedule:?} is none that cron knows: {error}");
                cron.map(|cron| Self::Cron(Box::new(cron))).map_err(wrong)
            }
            (None, Some(seconds)) => Ok(Self::Every(seconds)),
            (None, None) => Ok(Self::Once),
        }
    }

    /// The last time that has come, of those after `last`; and not before the resource was made. What was missed
    /// before that is not made up for.
    pub fn due(&self, made: Timestamp, last: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
        let latest = match self {
            Self::Once => Some(made),
            Self::Every(seconds) => {
                let passed = now.as_second().saturating_sub(made.as_second()).max(0);
                Timestamp::from_second(made.as_second() + passed / seconds * seconds).ok()
            }
            Self::Cron(cron) => found(cron, now, Direction::Backward),
        };
        latest.filter(|time| *time >= made && last.is_none_or(|last| *time > last) && *time <= now)
    }

    /// The first time after `now`; none if there is none.
    pub fn next(&self, made: Timestamp, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Once => None,
            Self::Every(seconds) => {
                let passed = now.as_second().saturating_sub(made.as_second()).max(0);
                Timestamp::from_second(made.as_second() + (passed / seconds + 1) * seconds).ok()
            }
            Self::Cron(cron) => found(cron, now, Direction::Forward),
        }
    }
}

fn found(cron: &Cron, now: Timestamp, direction: Direction) -> Option<Timestamp> {
    let now: DateTime = TimeZone::UTC.to_datetime(now);
    let found = match direction {
        Direction::Forward => cron.find_next_occurrence(&now, false),
        Direction::Backward => cron.find_previous_occurrence(&now, true),
    };
    TimeZone::UTC.to_timestamp(found.ok()?).ok()
}

/// A time in a name: no colons, and as the times are sorted, so are the names.
pub fn compact(time: Timestamp) -> String {
    time.strftime("%Y%m%d%H%M%S").to_string()
}

/// Where the backup for that time goes. A backup that is taken once has just the path that was said, as
/// in the original.
pub fn place(spec: &EtcdBackupSpec, scheduled: Timestamp) -> Option<Place> {
    let place = spec.place()?;
    Some(match spec.is_repeated() {
        false => place,
        true => place.at(&format!("{}_{}", place.path(), compact(scheduled))),
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn spec(more: serde_json::Value) -> EtcdBackupSpec {
        let mut content = json!({"cluster": "db", "volume": {"claim": "c", "path": "etcd/db"}});
        wheelhouse::overrides::merge(&mut content, &more);
        serde_json::from_value(content).unwrap()
    }

    #[rstest]
    #[case::at_night("0 3 * * *", None, Some("2026-05-02T03:00:00Z"))]
    #[case::only_the_last_that_was_missed(
        "*/5 * * * *",
        Some("2026-05-01T10:00:00Z"),
        Some("2026-05-02T10:05:00Z")
    )]
    #[case::taken_already("0 3 * * *", Some("2026-05-02T03:00:00Z"), None)]
    #[case::not_before_it_was_made("0 0 1 1 *", None, None)]
    #[case::by_name("@daily", None, Some("2026-05-02T00:00:00Z"))]
    fn cron_says_when(#[case] cron: &str, #[case] last: Option<&str>, #[case] due: Option<&str>) {
        let schedule = Schedule::of(&spec(json!({"schedule": cron}))).unwrap();
        let said = schedule.due(at("2026-05-01T00:30:00Z"), last.map(at), at("2026-05-02T10:07:11Z"));
        assert_eq!(said, due.map(at));
    }

    #[rstest]
    #[case(0, None, Some(0))]
    #[case(99, Some(0), None)]
    #[case(100, Some(0), Some(100))]
    #[case(734, Some(100), Some(700))]
    fn an_interval_counts_from_when_it_was_made(
        #[case] now: i64,
        #[case] last: Option<i64>,
        #[case] due: Option<i64>,
    ) {
        let schedule = Schedule::of(&spec(json!({"backupPolicy": {"backupIntervalInSecond": 100}}))).unwrap();
        let at = |second: i64| Timestamp::from_second(1_000_000 + second).unwrap();
        assert_eq!(schedule.due(at(0), last.map(at), at(now)), due.map(at));
        assert_eq!(schedule.next(at(0), at(now)), Some(at((now / 100 + 1) * 100)));
    }

    #[test]
    fn one_that_is_taken_once_is_due_until_it_was_taken() {
        let schedule = Schedule::of(&spec(json!({}))).unwrap();
        let (made, now) = (at("2026-05-01T00:30:00Z"), at("2026-05-02T10:07:11Z"));
        assert_eq!(schedule.due(made, None, now), Some(made));
        assert_eq!(schedule.due(made, Some(made), now), None);
        assert_eq!(schedule.next(made, now), None);
    }

    #[rstest]
    #[case("every night")]
    #[case("61 * * * *")]
    #[case("0 0 3 * * *")]
    fn what_cron_does_not_know_is_told(#[case] schedule: &str) {
        let said = Schedule::of(&spec(json!({"schedule": schedule}))).unwrap_err();
        assert!(said.contains("is none that cron knows"), "{said}");
    }

    #[test]
    fn a_backup_is_called_after_its_time_unless_there_is_only_one() {
        let path = |spec: &EtcdBackupSpec| place(spec, at("2026-05-02T03:00:00Z")).unwrap().path().to_owned();
        assert_eq!(path(&spec(json!({}))), "etcd/db");
        assert_eq!(path(&spec(json!({"schedule": "0 3 * * *"}))), "etcd/db_20260502030000");
    }
}
