//! Runs the operator's code where it keeps nobody waiting, however long it takes.
//!
//! A thread that is handed over goes on in another one, which costs more than most
//! analyses do. So up to half of the threads may be kept: should an analysis never
//! end, the other half goes on, and hands its threads over.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{Handle, RuntimeFlavor};

static KEPT: AtomicUsize = AtomicUsize::new(0);

/// How often a thread is asked for in vain before one is handed over.
const ATTEMPTS: usize = 4;

/// Runs the code, and leaves its thread's other work to other threads if need be.
pub(super) async fn apart<T>(code: impl FnOnce() -> T) -> T {
    for _ in 0..ATTEMPTS {
        // A task that was woken by this one may be where other threads cannot take it.
        // It runs now.
        tokio::task::yield_now().await;
        let runtime = Handle::current();
        if runtime.runtime_flavor() == RuntimeFlavor::CurrentThread {
            return code();
        }
        if let Some(_kept) = Kept::thread(runtime.metrics().num_workers() / 2) {
            return code();
        }
    }
    tokio::task::block_in_place(code)
}

/// A thread that is kept, until this is dropped.
struct Kept;

impl Kept {
    fn thread(at_most: usize) -> Option<Self> {
        KEPT.fetch_update(Ordering::AcqRel, Ordering::Acquire, |kept| (kept < at_most).then_some(kept + 1))
            .ok()
            .map(|_| Self)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        KEPT.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn analyses_that_never_end_leave_a_thread_to_the_others() {
        let (end, ends) = mpsc::channel::<()>();
        let ends = std::sync::Arc::new(std::sync::Mutex::new(ends));
        let endless: Vec<_> = (0..4)
            .map(|_| {
                let ends = ends.clone();
                tokio::spawn(apart(move || {
                    let _ = ends.lock().map(|ends| ends.recv());
                }))
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(50)).await;
        for number in 0..100 {
            let answer = tokio::spawn(async move { apart(|| number).await });
            assert_eq!(tokio::time::timeout(Duration::from_secs(5), answer).await.unwrap().unwrap(), number);
        }
        drop(end);
        for task in endless {
            task.await.unwrap();
        }
    }

    #[tokio::test]
    async fn on_a_single_thread_the_code_just_runs() {
        assert_eq!(apart(|| 1).await, 1);
    }
}
