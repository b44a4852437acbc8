//! Probes: questions to the application itself.
//!
//! A probe never keeps a reconcile waiting. It runs apart from reconciles, at
//! most one at a time for each target, and what it last learned is there to read.
//! When the answer changes, the resource is looked at again. After an action of the operator's own
//! what was learned before is asked anew, however fresh it is.

use std::{
    any::Any,
    collections::HashMap,
    fmt::Debug,
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::known::Known;

/// How many probes run at the same time in one process. Most of those that take long wait for somebody who does
/// not answer, and cost little more than a socket: they must not keep the others from being asked.
const AT_A_TIME: usize = 256;
/// A target that nobody asked about for so long is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
/// However long an answer is good for, who did not answer is asked again after this time.
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(10);
/// How often is looked for such targets: there may be thousands.
const SWEPT_EVERY: Duration = Duration::from_secs(60);

/// A question to one target.
pub trait Probe: Send + Sync + 'static {
    /// What it answers.
    type Answer: Clone + Debug + PartialEq + Send + Sync + 'static;

    /// What is asked of whom: the same text is the same question.
    fn target(&self) -> String;

    /// How long it may take. Default: 5 s.
    fn time_out(&self) -> Duration {
        Duration::from_secs(5)
    }

    /// How old an answer may be before it is asked again. Default: 10 s.
    fn fresh_for(&self) -> Duration {
        Duration::from_secs(10)
    }

    /// Whether an action of the operator can change the answer. It is asked anew after each then. Default: yes.
    fn depends_on_actions(&self) -> bool {
        true
    }

    /// Asks. `Ok(None)`: it is known not to be there. `Err`: why nobody knows.
    fn ask(&self) -> impl Future<Output = Result<Option<Self::Answer>, String>> + Send;
}

/// What is known of all targets.
pub(crate) struct Probes {
    targets: Mutex<HashMap<String, Target>>,
    swept: Mutex<Instant>,
    slots: Arc<Semaphore>,
}

struct Target {
    /// A `Known<P::Answer>`.
    known: Arc<dyn Any + Send + Sync>,
    asked: Option<Instant>,
    read: Instant,
    is_running: bool,
    /// Whether nobody knows, because it did not answer.
    is_unknown: bool,
    /// Whether it was asked before something was done that may have changed the answer.
    is_outdated: bool,
    /// Who wants to hear of a change.
    waiting: Vec<Box<dyn FnOnce() + Send>>,
}

impl Default for Probes {
    fn default() -> Self {
        Self {
            targets: Mutex::default(),
            swept: Mutex::new(Instant::now()),
            slots: Arc::new(Semaphore::new(AT_A_TIME)),
        }
    }
}

impl Probes {
    /// What was last learned; asks anew in the background if that is too old, or if the operator has just acted.
    pub(crate) fn read<P: Probe>(
        self: &Arc<Self>,
        probe: P,
        has_acted: bool,
        on_change: impl FnOnce() + Send + 'static,
    ) -> Known<P::Answer> {
        let id = format!("{} {}", std::any::type_name::<P>(), probe.target());
        self.sweep();
        let mut targets = self.targets.lock();
        let target = targets.entry(id.clone()).or_insert_with(|| Target {
            known: Arc::new(Known::<P::Answer>::not_asked_yet()),
            asked: None,
            read: Instant::now(),
            is_running: false,
            is_unknown: false,
            is_outdated: false,
            waiting: Vec::new(),
        });
        target.read = Instant::now();
        let known = target.known.clone();
        let fresh_for = good_for(probe.fresh_for(), target.is_unknown);
        target.is_outdated |= has_acted && probe.depends_on_actions();
        let is_due = target.is_outdated || target.asked.is_none_or(|asked| asked.elapsed() >= fresh_for);
        if is_due && !target.is_running {
            (target.is_running, target.is_outdated) = (true, false);
            tokio::spawn(self.clone().ask(id, probe));
        }
        if target.is_running {
            target.waiting.push(Box::new(on_change));
        }
        drop(targets);
        known
            .downcast_ref::<Known<P::Answer>>()
            .cloned()
            .unwrap_or_else(|| unknown("asked as something else".to_owned()))
    }

    /// Forgets targets that nobody asks about any more.
    fn sweep(&self) {
        let mut swept = self.swept.lock();
        if swept.elapsed() >= SWEPT_EVERY {
            *swept = Instant::now();
            let is_of_use = |target: &Target| target.is_running || target.read.elapsed() < FORGOTTEN_AFTER;
            self.targets.lock().retain(|_, target| is_of_use(target));
        }
    }

    /// Whether any answer is still to come.
    pub(crate) fn are_running(&self) -> bool {
        self.targets.lock().values().any(|target| target.is_running)
    }

    /// Waits until all answers are there, or for that long.
    pub(crate) async fn wait(&self, at_most: Duration) {
        let answered = async {
            while self.are_running() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        // Whoever has not answered by then is unknown.
        let _ = tokio::time::timeout(at_most, answered).await;
    }

    async fn ask<P: Probe>(self: Arc<Self>, id: String, probe: P) {
        // Closed only when the process ends.
        let _slot = self.slots.clone().acquire_owned().await;
        let limit = probe.time_out();
        let asking = tokio::spawn(async move { tokio::time::timeout(limit, probe.ask()).await });
        let answer = match asking.await {
            Ok(Ok(Ok(Some(value)))) => Known::Value { value, at: Timestamp::now() },
            Ok(Ok(Ok(None))) => Known::Absent,
            Ok(Ok(Err(why))) => unknown(why),
            Ok(Err(_)) => unknown(format!("no answer within {limit:?}")),
            Err(_) => unknown("the probe panicked".to_owned()),
        };
        let mut targets = self.targets.lock();
        let Some(target) = targets.get_mut(&id) else { return };
        target.is_running = false;
        target.is_unknown = answer.is_unknown();
        let is_first = target.asked.replace(Instant::now()).is_none();
        let before = target.known.downcast_ref::<Known<P::Answer>>();
        let (says_the_same, answer) = match (before, answer) {
            (Some(Known::Value { value: old, .. }), Known::Value { value, at }) => {
                (*old == value, Known::Value { value, at })
            }
            (Some(Known::Absent), Known::Absent) => (true, Known::Absent),
            // Unknown since the first time that there was no answer.
            (Some(Known::Unknown { since, .. }), Known::Unknown { why, .. }) if !is_first => {
                (true, Known::Unknown { why, since: *since })
            }
            (_, answer) => (false, answer),
        };
        target.known = Arc::new(answer);
        let waiting = std::mem::take(&mut target.waiting);
        let is_news = !says_the_same || target.is_outdated;
        drop(targets);
        if is_news {
            waiting.into_iter().for_each(|tell| tell());
        }
    }
}

/// How long what is known is good for; that nobody knows is worth less than an answer.
fn good_for(fresh_for: Duration, is_unknown: bool) -> Duration {
    if is_unknown { fresh_for.min(ASKED_AGAIN_AFTER) } else { fresh_for }
}

fn unknown<T>(why: String) -> Known<T> {
    Known::Unknown { why, since: Timestamp::now() }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::mpsc;

    use super::*;

    struct Counting {
        asked: Arc<AtomicUsize>,
        answer: Result<Option<u32>, &'static str>,
        hangs: bool,
    }

    impl Probe for Counting {
        type Answer = u32;

        fn target(&self) -> String {
            "one".to_owned()
        }
        fn time_out(&self) -> Duration {
            Duration::from_millis(50)
        }
        fn fresh_for(&self) -> Duration {
            Duration::from_millis(20)
        }
        async fn ask(&self) -> Result<Option<u32>, String> {
            self.asked.fetch_add(1, Ordering::SeqCst);
            if self.hangs {
                std::future::pending::<()>().await;
            }
            self.answer.map_err(str::to_owned)
        }
    }

    struct Bench {
        probes: Arc<Probes>,
        asked: Arc<AtomicUsize>,
        changed: mpsc::UnboundedSender<()>,
        changes: mpsc::UnboundedReceiver<()>,
    }

    impl Bench {
        fn new() -> Self {
            let (changed, changes) = mpsc::unbounded_channel();
            Self { probes: Arc::default(), asked: Arc::default(), changed, changes }
        }

        fn read(&self, answer: Result<Option<u32>, &'static str>, hangs: bool) -> Known<u32> {
            self.read_after(false, Counting { asked: self.asked.clone(), answer, hangs })
        }

        fn read_after<P: Probe>(&self, has_acted: bool, probe: P) -> Known<P::Answer> {
            let changed = self.changed.clone();
            self.probes.read(probe, has_acted, move || changed.send(()).unwrap())
        }
    }

    #[tokio::test]
    async fn a_read_never_waits_and_the_answer_comes_with_a_trigger() {
        let mut bench = Bench::new();
        assert!(bench.read(Ok(Some(7)), false).is_unknown());
        bench.changes.recv().await.unwrap();
        assert_eq!(bench.read(Ok(Some(7)), false).value(), Some(&7));
        assert_eq!(bench.asked.load(Ordering::SeqCst), 1, "the answer is fresh");
    }

    /// A question whose answer is good for a day.
    struct Lasting {
        asked: Arc<AtomicUsize>,
        takes: Duration,
        depends_on_actions: bool,
    }

    impl Probe for Lasting {
        type Answer = usize;

        fn target(&self) -> String {
            "two".to_owned()
        }
        fn fresh_for(&self) -> Duration {
            Duration::from_secs(24 * 3600)
        }
        fn depends_on_actions(&self) -> bool {
            self.depends_on_actions
        }
        async fn ask(&self) -> Result<Option<usize>, String> {
            let answer = self.asked.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(self.takes).await;
            Ok(Some(answer))
        }
    }

    #[tokio::test]
    async fn what_was_learned_before_an_action_is_asked_anew_and_so_is_what_was_being_asked() {
        for takes in [Duration::ZERO, Duration::from_millis(50)] {
            let bench = Bench::new();
            let answered = async || bench.probes.wait(Duration::from_secs(5)).await;
            let lasting = || Lasting { asked: bench.asked.clone(), takes, depends_on_actions: true };
            assert!(bench.read_after(false, lasting()).is_unknown());
            if takes.is_zero() {
                answered().await;
            }
            let known = bench.read_after(true, lasting());
            assert_eq!(
                known.value().copied(),
                takes.is_zero().then_some(0),
                "nobody waits for the new answer"
            );
            answered().await;
            if !takes.is_zero() {
                // What was under way may be of before.
                assert_eq!(bench.read_after(false, lasting()).value(), Some(&0));
                answered().await;
            }
            assert_eq!(bench.read_after(false, lasting()).value(), Some(&1));
            assert_eq!(bench.asked.load(Ordering::SeqCst), 2, "and once only");
        }
    }

    #[tokio::test]
    async fn what_no_action_changes_is_not_asked_anew() {
        let mut bench = Bench::new();
        let asked = bench.asked.clone();
        let lasting = || Lasting { asked: asked.clone(), takes: Duration::ZERO, depends_on_actions: false };
        bench.read_after(false, lasting());
        bench.changes.recv().await.unwrap();
        assert_eq!(bench.read_after(true, lasting()).value(), Some(&0));
        assert_eq!(asked.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn who_did_not_answer_is_asked_again_soon_however_long_an_answer_is_good_for() {
        let day = Duration::from_secs(24 * 3600);
        assert_eq!((good_for(day, false), good_for(day, true)), (day, ASKED_AGAIN_AFTER));
        let second = Duration::from_secs(1);
        assert_eq!((good_for(second, false), good_for(second, true)), (second, second));
    }

    #[tokio::test]
    async fn absent_is_not_unknown() {
        let mut bench = Bench::new();
        bench.read(Ok(None), false);
        bench.changes.recv().await.unwrap();
        assert!(bench.read(Ok(None), false).is_absent());
    }

    #[tokio::test]
    async fn a_target_that_hangs_is_asked_once_at_a_time_and_stays_unknown() {
        let mut bench = Bench::new();
        for _ in 0..10 {
            assert!(bench.read(Ok(Some(1)), true).is_unknown());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!(bench.asked.load(Ordering::SeqCst), 1);
        bench.changes.recv().await.unwrap();
        let Known::Unknown { why, .. } = bench.read(Ok(Some(1)), true) else { panic!("it never answered") };
        assert_eq!(why, "no answer within 50ms");
    }

    #[tokio::test]
    async fn what_was_known_becomes_unknown_and_says_since_when() {
        let mut bench = Bench::new();
        bench.read(Ok(Some(7)), false);
        bench.changes.recv().await.unwrap();
        tokio::time::sleep(Duration::from_millis(30)).await;
        let before = Timestamp::now();
        bench.read(Err("connection refused"), false);
        bench.changes.recv().await.unwrap();
        let Known::Unknown { why, since } = bench.read(Err("connection refused"), false) else {
            panic!("no answer")
        };
        assert_eq!(why, "connection refused");
        assert!(since >= before);
    }
}
