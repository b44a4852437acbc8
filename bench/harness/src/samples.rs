//! What was measured again and again: medians, and the file that has every sample.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};
use serde::Serialize;

/// The value that so many per cent do not exceed; for an even number of samples the 50th is the mean of the two
/// in the middle. None without samples.
pub fn percentile(samples: &[f64], per_cent: usize) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |rank: usize| sorted.get(rank.saturating_sub(1)).copied();
    let rank = (sorted.len() * per_cent).div_ceil(100);
    if per_cent == 50 && sorted.len().is_multiple_of(2) {
        return Some((at(rank)? + at(rank + 1)?) / 2.0);
    }
    at(rank)
}

/// The largest one. None without samples.
pub fn worst(samples: &[f64]) -> Option<f64> {
    samples.iter().copied().max_by(f64::total_cmp)
}

/// Writes everything as JSON; the folder is made if it is not there.
///
/// # Errors
/// When the file cannot be written.
pub fn write(path: &Path, results: &impl Serialize) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let text = serde_json::to_string_pretty(results)?;
    fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(Some(2.0), percentile(&[9.0, 1.0, 2.0], 50));
        assert_eq!(Some(3.0), percentile(&[4.0, 9.0, 1.0, 2.0], 50));
        assert_eq!(None, percentile(&[], 50));
    }

    #[test]
    fn the_99th_of_200_leaves_two_above() {
        let samples: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!(Some(198.0), percentile(&samples, 99));
        assert_eq!(Some(7.0), percentile(&[7.0], 99));
    }

    #[test]
    fn the_worst_is_the_largest() {
        assert_eq!(Some(9.0), worst(&[1.0, 9.0, 2.0]));
        assert_eq!(None, worst(&[]));
    }
}
