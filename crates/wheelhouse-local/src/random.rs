//! [`Random`]: numbers that follow from a seed, the same in every version of
//! everything: what a seed once did, it does again.

/// A sequence of numbers (SplitMix64, by Steele, Lea and Flood).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The sequence of this seed.
    pub fn from_seed(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number, below that one.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound.max(1)
    }

    /// One of so many; none of none.
    pub fn index(&mut self, length: usize) -> Option<usize> {
        let length = u64::try_from(length).ok().filter(|length| *length > 0)?;
        usize::try_from(self.below(length)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_seed_once_did_it_does_again() {
        let mut random = Random::from_seed(7);
        let numbers: Vec<_> = (0..5).map(|_| random.below(100)).collect();
        let mut again = Random::from_seed(7);
        assert_eq!(numbers, (0..5).map(|_| again.below(100)).collect::<Vec<_>>());
        assert_eq!((again.index(0), again.below(0)), (None, 0));
    }
}
