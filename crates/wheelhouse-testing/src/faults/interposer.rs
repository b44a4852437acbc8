//! [`Interposer`]: counts what an operator asks, and makes the trouble of a schedule.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use super::schedule::{Disturbance, Schedule};
use crate::{
    error::Result,
    identity::Identity,
    proxy::{ApiProxy, Fault},
};

/// What has to be done about a request that cannot be done in the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alarm {
    /// The operator dies.
    Crash,
    /// Reads are frozen for that long.
    Freeze(Duration),
    /// Both.
    CrashIntoThePast(Duration),
}

/// Counts what all processes of an operator ask.
pub(crate) struct Counted {
    schedule: Schedule,
    writes: AtomicUsize,
    reads: AtomicUsize,
    last_write: Mutex<Instant>,
    alarms: Mutex<Vec<Alarm>>,
    /// What is to be raised as soon as a write took effect: the API server must not be
    /// interrupted in the middle of it.
    due: Mutex<Vec<Alarm>>,
    /// Processes of earlier generations are dead, whether they know it or not.
    generation: AtomicUsize,
    is_over: AtomicBool,
}

impl Counted {
    pub(crate) fn new(schedule: Schedule) -> Arc<Self> {
        Arc::new(Self {
            schedule,
            writes: AtomicUsize::new(0),
            reads: AtomicUsize::new(0),
            last_write: Mutex::new(Instant::now()),
            alarms: Mutex::default(),
            due: Mutex::default(),
            generation: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        })
    }

    pub(crate) fn writes(&self) -> usize {
        self.writes.load(Ordering::SeqCst)
    }

    pub(crate) fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }

    /// For how long nothing was written.
    pub(crate) fn quiet_for(&self) -> Duration {
        self.last_write.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    pub(crate) fn take_alarm(&self) -> Option<Alarm> {
        self.alarms.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    /// Something was heard that others follow soon, as a rule.
    fn is_not_quiet(&self) {
        *self.last_write.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// From now on there is no trouble any more.
    pub(crate) fn is_over(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }

    fn raise(&self, alarm: Alarm) {
        self.alarms.lock().unwrap_or_else(PoisonError::into_inner).push(alarm);
    }

    /// Raises it when the write took effect. Whoever runs now can do nothing more:
    /// not even between the lost answer and its end.
    fn crash_when_done(&self, alarm: Alarm) {
        self.generation.fetch_add(1, Ordering::SeqCst);
        self.due.lock().unwrap_or_else(PoisonError::into_inner).push(alarm);
    }

    fn write_is_done(&self) {
        let due = std::mem::take(&mut *self.due.lock().unwrap_or_else(PoisonError::into_inner));
        due.into_iter().for_each(|alarm| self.raise(alarm));
    }

    fn decide(&self, method: &str, target: &str) -> Fault {
        // Neither is what an operator is judged by.
        if target.contains("/leases") || target.contains("/events") {
            return Fault::None;
        }
        let is_over = self.is_over.load(Ordering::SeqCst);
        if target.contains("watch=true") {
            let watch_fault = self.schedule.0.iter().find_map(|one| match one {
                Disturbance::Watches(fault) => Some(Fault::Watch(*fault)),
                _ => None,
            });
            return watch_fault.filter(|_| !is_over).unwrap_or(Fault::None);
        }
        if method == "GET" {
            let number = self.reads.fetch_add(1, Ordering::SeqCst) + 1;
            let refused = self.schedule.0.iter().find_map(|one| match one {
                Disturbance::RefuseRead(read, code) if *read == number => Some(Fault::Refuse(*code)),
                _ => None,
            });
            return refused.unwrap_or(Fault::None);
        }
        let number = self.writes.fetch_add(1, Ordering::SeqCst) + 1;
        self.is_not_quiet();
        let mut fault = Fault::None;
        for one in &self.schedule.0 {
            match one {
                Disturbance::CrashAfterWrite(write) if *write == number => {
                    self.crash_when_done(Alarm::Crash);
                    fault = Fault::LoseAnswer;
                }
                Disturbance::CrashIntoThePast(write, time) if *write == number => {
                    self.crash_when_done(Alarm::CrashIntoThePast(*time));
                    fault = Fault::LoseAnswer;
                }
                Disturbance::FreezeAfterWrite(write, time) if *write == number => {
                    self.raise(Alarm::Freeze(*time));
                }
                Disturbance::LoseAnswerToWrite(write) if *write == number => fault = Fault::LoseAnswer,
                Disturbance::LoseWrite(write) if *write == number => fault = Fault::LoseRequest,
                Disturbance::RefuseWrite(write, code) if *write == number => fault = Fault::Refuse(*code),
                _ => {}
            }
        }
        if fault != Fault::LoseAnswer {
            // It never takes effect, so nobody would say that it has.
            self.write_is_done();
        }
        fault
    }
}

/// A way to the API server for one process of an operator.
pub(crate) struct Interposer {
    pub(crate) proxy: ApiProxy,
    heard: Arc<Heard>,
}

/// What was heard of one process.
#[derive(Default)]
struct Heard {
    anything: AtomicBool,
    a_watch: AtomicBool,
}

impl Heard {
    /// Whether this is the first that is heard of it, or its first watch: it looks
    /// around for the first time, and has done nothing yet.
    fn is_news(&self, target: &str) -> bool {
        let is_first = !self.anything.swap(true, Ordering::SeqCst);
        let is_first_watch = target.contains("watch=true") && !self.a_watch.swap(true, Ordering::SeqCst);
        is_first || is_first_watch
    }
}

impl Interposer {
    pub(crate) async fn start(identity: &Identity, counted: Arc<Counted>) -> Result<Self> {
        let proxy = ApiProxy::start(identity).await?;
        let told = counted.clone();
        proxy.when_lost(move || told.write_is_done());
        let heard = Arc::<Heard>::default();
        let hears = heard.clone();
        let generation = counted.generation.load(Ordering::SeqCst);
        proxy.disturb(move |method, target| {
            if generation < counted.generation.load(Ordering::SeqCst) {
                return Fault::Hang;
            }
            if hears.is_news(target) {
                counted.is_not_quiet();
            }
            counted.decide(method, target)
        });
        Ok(Self { proxy, heard })
    }

    /// Whether the process has asked anything yet.
    pub(crate) fn has_heard(&self) -> bool {
        self.heard.anything.load(Ordering::SeqCst)
    }

    /// Nothing gets through any more: whoever used this way is dead.
    pub(crate) fn cut(&self) {
        self.proxy.disturb(|_, _| Fault::LoseRequest);
        self.proxy.break_connections();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_to_crash_at_a_write_that_is_refused_crashes_all_the_same() {
        let crash = Disturbance::CrashIntoThePast(1, Duration::ZERO);
        for trouble in [Disturbance::RefuseWrite(1, 409), Disturbance::LoseWrite(1)] {
            let counted = Counted::new(Schedule(vec![crash.clone(), trouble]));
            counted.decide("POST", "/api/v1/namespaces/n/pods");
            assert!(counted.take_alarm().is_some());
        }
        let counted = Counted::new(Schedule(vec![crash]));
        counted.decide("POST", "/api/v1/namespaces/n/pods");
        assert!(counted.take_alarm().is_none(), "not before the write took effect");
        counted.write_is_done();
        assert!(counted.take_alarm().is_some());
    }
}
