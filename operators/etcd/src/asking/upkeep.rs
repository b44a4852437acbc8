//! What a member says of its data: how large it is, which version can read it, and what is wrong with it.

use serde::{Deserialize, Serialize};

use crate::{
    etcd::{Id, StatusResponse},
    size::Size,
    version::Version,
};

/// What a member says of its data. Sizes are rough, so that not every write is news.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Upkeep {
    /// How large the file is.
    #[serde(default)]
    pub size: Size,
    /// How much of it is in use.
    #[serde(default)]
    pub in_use: Size,
    /// How large it may become. etcd says so since 3.6.
    #[serde(default)]
    pub quota: Option<Size>,
    /// The oldest version that can read it. etcd says so since 3.6.
    #[serde(default)]
    pub storage_version: Option<Version>,
    /// The version that the cluster is allowed to go back to. etcd says so since 3.6.
    #[serde(default)]
    pub downgrade_to: Option<Version>,
}

impl Upkeep {
    pub(super) fn of(said: &StatusResponse) -> Self {
        let downgrade = said.downgrade_info.as_ref().filter(|info| info.enabled);
        Self {
            size: Size::said(said.db_size).roughly(),
            in_use: Size::said(said.db_size_in_use).roughly(),
            quota: Some(Size::said(said.db_size_quota)).filter(|quota| quota.0 > 0),
            storage_version: said.storage_version.parse().ok(),
            downgrade_to: downgrade.and_then(|info| info.target_version.parse().ok()),
        }
    }
}

/// An alarm that etcd has raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Alarm {
    /// What it says.
    pub kind: AlarmKind,
    /// Of whom; of nobody in particular where etcd cannot tell.
    pub member: Option<Id>,
}

/// What an alarm says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AlarmKind {
    /// The quota of a member is used up: nobody can write.
    NoSpace,
    /// What a member holds is not what the others hold: nobody can write.
    Corrupt,
}

impl Alarm {
    /// The alarm that a complaint in the status of a member is, such as `memberID:1 alarm:NOSPACE`. Alarms are
    /// asked for in no other way: [`crate::etcd::Client::alarms`] writes an entry into the log each time.
    pub(super) fn in_words(complaint: &str) -> Option<Self> {
        let word = |name: &str| {
            complaint.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix(':'))
        };
        let kind = match word("alarm")? {
            "NOSPACE" => AlarmKind::NoSpace,
            "CORRUPT" => AlarmKind::Corrupt,
            _ => return None,
        };
        let member = word("memberID").and_then(|id| id.parse().ok()).filter(|id| *id != 0);
        Some(Self { kind, member: member.map(Id) })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("memberID:10276657743932975437 alarm:NOSPACE ", Some((AlarmKind::NoSpace, Some(10_276_657_743_932_975_437))))]
    #[case::of_3_7("memberID:7  alarm:CORRUPT", Some((AlarmKind::Corrupt, Some(7))))]
    #[case::of_nobody_in_particular("alarm:CORRUPT ", Some((AlarmKind::Corrupt, None)))]
    #[case::no_alarm("etcdserver: no leader", None)]
    fn an_alarm_is_read_in_the_status(#[case] words: &str, #[case] alarm: Option<(AlarmKind, Option<u64>)>) {
        let expected = alarm.map(|(kind, member)| Alarm { kind, member: member.map(Id) });
        assert_eq!(Alarm::in_words(words), expected);
    }
}
