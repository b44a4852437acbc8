//! Sizes, as Kubernetes writes them. Pure.

use std::fmt;

use serde::{Deserialize, Serialize};

/// So many bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Size(pub u64);

/// The units, the longest first where one is the end of another.
const UNITS: [(&str, u64); 11] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("", 1),
];

impl Size {
    /// What a quantity such as `8Gi` or `1.5G` says; none if it is no size. What is no whole byte is left out.
    pub fn of(quantity: &str) -> Option<Self> {
        let (number, unit) = UNITS.iter().find_map(|(suffix, unit)| {
            quantity.strip_suffix(suffix).map(|number| (number, u128::from(*unit)))
        })?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !are_digits(whole) || !are_digits(fraction) || fraction.len() > 12 {
            return None;
        }
        let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
        let part = fraction.parse::<u128>().ok()? * unit / scale;
        let bytes = whole.parse::<u128>().ok()?.checked_mul(unit)?.checked_add(part)?;
        u64::try_from(bytes).ok().map(Self)
    }

    /// What etcd says about itself; what it cannot mean is nothing.
    pub fn said(bytes: i64) -> Self {
        Self(u64::try_from(bytes).unwrap_or_default())
    }

    /// The same, but for what changes with every write: only the first five binary digits are kept.
    pub fn roughly(self) -> Self {
        let below = (u64::BITS - self.0.leading_zeros()).saturating_sub(5);
        Self((self.0 >> below) << below)
    }

    /// So many hundredths of it.
    pub fn percent(self, percent: u64) -> Self {
        Self(u64::try_from(u128::from(self.0) * u128::from(percent) / 100).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes >= 1 << 30 => {
                let tenth = ((bytes % (1 << 30)) * 10) >> 30;
                write!(formatter, "{}.{tenth} GiB", bytes >> 30)
            }
            bytes if bytes >= 1 << 20 => write!(formatter, "{} MiB", bytes >> 20),
            bytes => write!(formatter, "{} KiB", bytes >> 10),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("8Gi", Some(8 << 30))]
    #[case("100Mi", Some(100 << 20))]
    #[case("1.5Gi", Some(3 << 29))]
    #[case("10G", Some(10_000_000_000))]
    #[case("8589934592", Some(8 << 30))]
    #[case("1e9", None)]
    #[case("-1Gi", None)]
    #[case("Gi", None)]
    #[case("large", None)]
    #[case("99999999999999999999Pi", None)]
    fn a_quantity_is_so_many_bytes(#[case] text: &str, #[case] bytes: Option<u64>) {
        assert_eq!(Size::of(text), bytes.map(Size));
    }

    #[rstest]
    #[case(0, 0)]
    #[case(31, 31)]
    #[case(1_000_000, 983_040)]
    #[case((8 << 30) + 4096, 8 << 30)]
    fn what_changes_with_every_write_is_kept_roughly(#[case] exactly: u64, #[case] roughly: u64) {
        assert_eq!(Size(exactly).roughly(), Size(roughly));
        assert!(exactly - roughly <= exactly / 16);
    }

    #[rstest]
    #[case(2 << 30, "2.0 GiB")]
    #[case(3 << 29, "1.5 GiB")]
    #[case(100 << 20, "100 MiB")]
    #[case(20_480, "20 KiB")]
    fn a_size_reads_well(#[case] bytes: u64, #[case] text: &str) {
        assert_eq!(Size(bytes).to_string(), text);
    }
}
