//! [`eventually`]: waits for what has to become so.

use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);

/// Waits until something is so. Panics after 30 seconds, and says what was waited
/// for.
pub async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is_so().await {
        #[expect(clippy::panic, reason = "it is how a test fails")]
        if begun.elapsed() > PATIENCE {
            panic!("waited {PATIENCE:?} in vain: {what}");
        }
        tokio::time::sleep(PAUSE).await;
    }
}
