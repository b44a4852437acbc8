//! When runs are, and what their Jobs are called. Pure.
//!
//! A run is known by the time that the schedule says, not by that of the clock: so whoever looks, and however often,
//! means the same run by the same name.

use croner::{
    Cron, Direction,
    parser::{CronParser, Seconds, Year},
};
use wheelhouse::jiff::{Timestamp, tz::TimeZone};

/// When to run, in UTC.
#[derive(Clone, Debug)]
pub struct Schedule(Box<Cron>);

impl Schedule {
    /// What a text says.
    ///
    /// # Errors
    /// When it makes no sense, in words for people.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let cron = parser
            .parse(text)
            .map_err(|error| format!("schedule {text:?} is none that cron knows: {error}"))?;
        let schedule = Self(Box::new(cron));
        // What comes once comes again: there is no year in it.
        match schedule.next(Timestamp::UNIX_EPOCH) {
            Some(_) => Ok(schedule),
            None => Err(format!("schedule {text:?} never comes: no year has such a day")),
        }
    }

    /// The last time that has come.
    pub fn latest(&self, now: Timestamp) -> Option<Timestamp> {
        self.found(now, Direction::Backward)
    }

    /// The first time that has not come yet.
    pub fn next(&self, now: Timestamp) -> Option<Timestamp> {
        self.found(now, Direction::Forward)
    }

    fn found(&self, now: Timestamp, direction: Direction) -> Option<Timestamp> {
        let now = TimeZone::UTC.to_datetime(now);
        let found = match direction {
            Direction::Forward => self.0.find_next_occurrence(&now, false),
            Direction::Backward => self.0.find_previous_occurrence(&now, true),
        };
        TimeZone::UTC.to_timestamp(found.ok()?).ok()
    }
}

/// The name of the Job of a run.
pub fn job_name(cron_job: &str, run: Timestamp) -> String {
    format!("{cron_job}-{}", run.as_second().div_euclid(60))
}

/// The run that a Job of this name is for; none if it is not named as a run is.
pub fn run_of(cron_job: &str, job: &str) -> Option<Timestamp> {
    let minutes: i64 = job.strip_prefix(cron_job)?.strip_prefix('-')?.parse().ok()?;
    let run = Timestamp::from_second(minutes.checked_mul(60)?).ok()?;
    (job_name(cron_job, run) == job).then_some(run)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn the_last_and_the_next_time_are_told() {
        for (schedule, latest, next) in [
            ("* * * * *", "2026-05-02T10:07:00Z", "2026-05-02T10:08:00Z"),
            ("0 3 * * *", "2026-05-02T03:00:00Z", "2026-05-03T03:00:00Z"),
            ("*/15 8-17 * * 1-5", "2026-05-01T17:45:00Z", "2026-05-04T08:00:00Z"),
            ("@yearly", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
            ("0 0 29 2 *", "2024-02-29T00:00:00Z", "2028-02-29T00:00:00Z"),
        ] {
            let said = Schedule::parse(schedule).unwrap();
            let now = at("2026-05-02T10:07:11Z");
            assert_eq!((said.latest(now), said.next(now)), (Some(at(latest)), Some(at(next))), "{schedule}");
        }
    }

    #[test]
    fn a_time_has_come_at_its_very_second() {
        let schedule = Schedule::parse("0 3 * * *").unwrap();
        let three = at("2026-05-02T03:00:00Z");
        assert_eq!(schedule.latest(three), Some(three));
        assert_eq!(schedule.next(three), Some(at("2026-05-03T03:00:00Z")));
    }

    #[test]
    fn what_is_no_schedule_is_told_in_words() {
        for (schedule, words) in [
            ("every night", "schedule \"every night\" is none that cron knows"),
            ("61 * * * *", "is none that cron knows"),
            ("0 0 3 * * *", "must have 5 fields"),
            ("@nightly", "is none that cron knows"),
            ("", "is none that cron knows"),
            ("0 0 31 2 *", "schedule \"0 0 31 2 *\" never comes"),
        ] {
            let said = Schedule::parse(schedule).unwrap_err();
            assert!(said.contains(words), "{said}");
        }
    }

    #[test]
    fn a_run_and_the_name_of_its_job_tell_each_other() {
        let run = at("2026-05-02T03:00:00Z");
        let name = job_name("report", run);
        assert_eq!(name, "report-29628180");
        assert_eq!(run_of("report", &name), Some(run));
        for other in
            ["report", "report-", "report-x", "report-029628180", "report-1-29628180", "reports-29628180"]
        {
            assert_eq!(run_of("report", other), None, "{other}");
        }
        assert_eq!(run_of("report", "report-9223372036854775807"), None, "no time is that late");
    }
}
