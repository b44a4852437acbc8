//! Versions of etcd, and the way from one to another. Pure.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A version of etcd, such as 3.6.16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Version {
    /// 3.
    pub major: u32,
    /// What may differ by one within a cluster.
    pub minor: u32,
    /// What may differ at will.
    pub patch: u32,
}

/// The versions that are built and tested here, one a minor version.
pub const TESTED: [Version; 3] = [Version::new(3, 5, 35), Version::new(3, 6, 16), Version::new(3, 7, 3)];

/// The last minor version that reads all that was written before it: the ones after it end where their log has an entry
/// in the format of etcd's second version, which was written until 3.5.
pub const READS_OLD_ENTRIES: u32 = 6;

/// The first minor version that comes with a program that restores: `etcdutl`.
const RESTORES_SINCE: u32 = 5;

/// What a cluster runs that does not say.
pub const DEFAULT: &str = "3.6.16";

impl Version {
    /// That version.
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self { major, minor, patch }
    }

    /// What members are to run next, given the oldest and the newest version that one of them runs. One minor
    /// version at a time, in either direction; within a minor version straight to it. Where two minor versions run,
    /// it is one of these, so that there are never three. A minor version is left upwards only from the patch level
    /// that is tested: members of 3.5.19, for one, would come up under 3.6 as learners.
    pub fn next_on_the_way_from(self, oldest: Self, newest: Self) -> Self {
        let tested = |minor| TESTED.into_iter().find(|tested| tested.minor == minor);
        let of_minor = |minor| tested(minor).unwrap_or(Self::new(oldest.major, minor, 0));
        let goes_up = self.minor > oldest.minor && self.minor >= newest.minor;
        match tested(oldest.minor) {
            _ if self.minor == oldest.minor => self,
            Some(last) if goes_up && oldest.patch < last.patch => last,
            _ if goes_up && self.minor == oldest.minor + 1 => self,
            _ if goes_up => of_minor(oldest.minor + 1),
            // Two minor versions run, and neither is wanted: the older one first.
            _ if oldest.minor < newest.minor => oldest,
            _ if !oldest.has_a_way_back() => oldest,
            _ if self.minor + 1 == oldest.minor => self,
            _ => of_minor(oldest.minor - 1),
        }
    }

    /// The version that a backup or a survivor is begun from with, where members are to run this one. 3.4 has no program
    /// that restores, and 3.5 reads what it wrote.
    pub fn that_restores(self) -> Self {
        let first = TESTED.into_iter().find(|tested| tested.minor == RESTORES_SINCE);
        first.filter(|first| self.minor < first.minor).unwrap_or(self)
    }

    /// Whether etcd lists its members as a quorum confirms them: since 3.5.
    pub const fn confirms_its_list(self) -> bool {
        self.minor >= 5
    }

    /// Whether etcd has a way back from this minor version to the one before: since 3.6.
    pub const fn has_a_way_back(self) -> bool {
        self.minor >= 6
    }

    /// Without the patch level, as etcd names what it goes back to.
    pub fn minor_text(self) -> String {
        format!("{}.{}", self.major, self.minor)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers: Vec<_> = text.trim_start_matches('v').split('.').map(str::parse).collect();
        match numbers.as_slice() {
            [Ok(major), Ok(minor), Ok(patch)] => Ok(Self::new(*major, *minor, *patch)),
            _ => Err(format!("{text} is no version of etcd: write it like {DEFAULT}")),
        }
    }
}

impl TryFrom<String> for Version {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Version> for String {
    fn from(version: Version) -> Self {
        version.to_string()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("3.6.16", Some(Version::new(3, 6, 16)))]
    #[case("v3.5.0", Some(Version::new(3, 5, 0)))]
    #[case("3.6", None)]
    #[case("3.6.x", None)]
    #[case("", None)]
    fn a_version_has_three_numbers(#[case] text: &str, #[case] version: Option<Version>) {
        assert_eq!(text.parse().ok(), version);
    }

    #[rstest]
    #[case::at_once_within_a_minor("3.6.16", "3.6.1", "3.6.1", "3.6.16")]
    #[case::at_once_to_the_next("3.7.3", "3.6.16", "3.6.16", "3.7.3")]
    #[case::by_way_of_the_patch_level_that_the_next_requires("3.6.16", "3.5.19", "3.5.19", "3.5.35")]
    #[case::by_way_of_the_one_between("3.7.3", "3.5.35", "3.5.35", "3.6.16")]
    #[case::back_within_a_minor("3.6.1", "3.6.16", "3.6.16", "3.6.1")]
    #[case::back_by_one("3.5.35", "3.6.16", "3.6.16", "3.5.35")]
    #[case::back_by_one_of_two("3.5.35", "3.7.3", "3.7.3", "3.6.16")]
    #[case::not_back_where_etcd_cannot("3.4.30", "3.5.35", "3.5.35", "3.5.35")]
    #[case::on_upwards("3.6.16", "3.5.35", "3.6.16", "3.6.16")]
    #[case::on_downwards("3.5.35", "3.5.35", "3.6.16", "3.5.35")]
    #[case::the_newer_of_two_before_a_third("3.7.3", "3.5.35", "3.6.16", "3.6.16")]
    #[case::the_older_of_two_before_a_third("3.5.35", "3.6.16", "3.7.3", "3.6.16")]
    fn the_way_is_one_minor_version_at_a_time(
        #[case] wanted: &str,
        #[case] oldest: &str,
        #[case] newest: &str,
        #[case] next: &str,
    ) {
        let version = |text: &str| text.parse::<Version>().unwrap();
        assert_eq!(version(wanted).next_on_the_way_from(version(oldest), version(newest)), version(next));
    }

    #[test]
    fn the_default_is_one_that_is_tested() {
        assert!(TESTED.contains(&DEFAULT.parse().unwrap()));
    }
}
