//! [`Backoff`]: waits longer after each failure, never in step with others.

use std::time::Duration;

/// Exponential, with jitter.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    at_most: Duration,
    failures: u32,
}

impl Backoff {
    pub(crate) fn new(first: Duration, at_most: Duration) -> Self {
        Self { first, at_most, failures: 0 }
    }

    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    /// How long to wait now, after one more failure.
    pub(crate) fn next_delay(&mut self) -> Duration {
        let delay = delay_after(self.failures, self.first, self.at_most);
        self.failures = self.failures.saturating_add(1);
        jittered(delay, rand::random())
    }
}

/// Doubles with each failure, up to a bound.
pub(crate) fn delay_after(failures: u32, first: Duration, at_most: Duration) -> Duration {
    first.saturating_mul(2_u32.saturating_pow(failures.min(30))).min(at_most)
}

/// Between 80 % and 120 % of a delay, by a random number between 0 and 1.
pub(crate) fn jittered(delay: Duration, random: f64) -> Duration {
    delay.mul_f64(0.8 + 0.4 * random)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_bound() {
        let after = |failures| delay_after(failures, Duration::from_millis(10), Duration::from_secs(1));
        assert_eq!(after(0), Duration::from_millis(10));
        assert_eq!(after(3), Duration::from_millis(80));
        assert_eq!(after(7), Duration::from_secs(1));
        assert_eq!(after(u32::MAX), Duration::from_secs(1));
    }

    #[test]
    fn jitter_stays_near_the_delay() {
        assert_eq!(jittered(Duration::from_secs(10), 0.0), Duration::from_secs(8));
        assert_eq!(jittered(Duration::from_secs(10), 1.0), Duration::from_secs(12));
    }
}
