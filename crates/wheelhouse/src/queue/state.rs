//! The rules of the queue. Time comes in as an argument.
//!
//! - One entry a key: adding twice is adding once.
//! - Never two workers on one key: what arrives meanwhile makes it ready again
//!   when the work is done.
//! - A person's change goes before a child's event, and that before a resync; but
//!   one in four turns looks at children first and one in sixteen at resyncs, so
//!   that nobody starves.
//! - A key that waits for its time becomes ready at once when an event arrives.
//! - Work that takes longer than patience lasts moves from the workers to the slow
//!   lane, and starts there the next time.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

use crate::{error::Category, key::Key};

/// Not worth a look.
const FEW: usize = 64;

/// Why a key has to be looked at; the higher goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// To be sure: a resync, or an object that was there at the start.
    Resync,
    /// Something that the resource depends on changed.
    Child,
    /// A person changed the resource itself.
    Change,
}

/// Where a key is worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    Prompt,
    Slow,
}

/// How the work on a key ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finished {
    Done,
    Failed(Category),
    /// It was not even begun: something else has to end first.
    PutOff,
}

/// What the gauges show.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Measured {
    pub(crate) depth: usize,
    pub(crate) running: usize,
    pub(crate) unfinished: Duration,
    pub(crate) longest: Duration,
}

#[derive(Default)]
pub(crate) struct State {
    entries: HashMap<Key, Entry>,
    ready: [VecDeque<(Key, u64)>; 3],
    /// Those of the slow keys, which wait for another kind of worker.
    ready_slow: VecDeque<(Key, u64)>,
    timers: BinaryHeap<Reverse<(Instant, u64, Key)>>,
    /// The prompt work that runs, oldest first; some of it may have ended.
    begun: VecDeque<(Instant, Key)>,
    patience: Duration,
    prompt: Workers,
    slow: Workers,
    ticket: u64,
    turn: u64,
    waiting: usize,
}

#[derive(Default)]
struct Workers {
    busy: usize,
    all: usize,
}

#[derive(Default)]
struct Entry {
    /// The place in a line, if it stands in one.
    waiting: Option<Waiting>,
    running: Option<Running>,
    /// The timer that counts, by ticket and time; older ones are stale.
    timer: Option<(u64, Instant)>,
    failures: u32,
    is_slow: bool,
}

struct Waiting {
    ticket: u64,
    priority: Priority,
    since: Instant,
}

struct Running {
    since: Instant,
    lane: Lane,
}

impl State {
    pub(crate) fn new(workers: usize, slow_workers: usize, patience: Duration) -> Self {
        Self {
            patience,
            prompt: Workers { busy: 0, all: workers.max(1) },
            slow: Workers { busy: 0, all: slow_workers.max(1) },
            ..Self::default()
        }
    }

    /// True if the key was not waiting already.
    pub(crate) fn add(&mut self, key: Key, priority: Priority, now: Instant) -> bool {
        let entry = self.entries.entry(key.clone()).or_default();
        entry.timer = None;
        let (since, is_new) = match &entry.waiting {
            Some(waiting) if waiting.priority >= priority => return false,
            Some(waiting) => (waiting.since, false),
            None => (now, true),
        };
        self.ticket += 1;
        entry.waiting = Some(Waiting { ticket: self.ticket, priority, since });
        self.waiting += usize::from(is_new);
        // A key that is being worked on gets in line when that is done.
        if entry.running.is_none() {
            let line = if entry.is_slow { &mut self.ready_slow } else { line_of(&mut self.ready, priority) };
            line.push_back((key, self.ticket));
        }
        is_new
    }

    /// The earlier of two times counts.
    pub(crate) fn add_at(&mut self, key: Key, due: Instant) {
        let entry = self.entries.entry(key.clone()).or_default();
        if entry.waiting.is_some() {
            return;
        }
        if entry.timer.is_some_and(|(_, known)| known <= due) {
            return;
        }
        self.ticket += 1;
        entry.timer = Some((self.ticket, due));
        self.timers.push(Reverse((due, self.ticket, key)));
        self.drop_void_timers();
    }

    /// A timer that an event made void stays in line until it is due, or until
    /// there are too many of them.
    fn drop_void_timers(&mut self) {
        if self.timers.len() > 2 * self.entries.len() + FEW {
            let Self { timers, entries, .. } = self;
            timers.retain(|Reverse((due, ticket, key))| {
                entries.get(key).is_some_and(|entry| entry.timer == Some((*ticket, *due)))
            });
        }
    }

    /// When there may be something to take without anybody adding it.
    pub(crate) fn next_due(&mut self) -> Option<Instant> {
        let is_waited_for =
            self.prompt.busy == self.prompt.all && self.waiting > 0 && self.slow.busy < self.slow.all;
        let out_of_patience = match is_waited_for {
            true => self.oldest_prompt().map(|(since, _)| since + self.patience),
            false => None,
        };
        [self.next_timer(), out_of_patience].into_iter().flatten().min()
    }

    fn oldest_prompt(&mut self) -> Option<(Instant, Key)> {
        while let Some((since, key)) = self.begun.front() {
            let running = self.entries.get(key).and_then(|entry| entry.running.as_ref());
            if running.is_some_and(|running| running.since == *since && running.lane == Lane::Prompt) {
                return Some((*since, key.clone()));
            }
            self.begun.pop_front();
        }
        None
    }

    fn next_timer(&mut self) -> Option<Instant> {
        while let Some(Reverse((due, ticket, key))) = self.timers.peek() {
            if self.entries.get(key).is_some_and(|entry| entry.timer == Some((*ticket, *due))) {
                return Some(*due);
            }
            self.timers.pop();
        }
        None
    }

    /// The next key, where it is to be worked on, and how long it waited.
    pub(crate) fn take(&mut self, now: Instant) -> Option<(Key, Lane, Duration)> {
        while self.next_timer().is_some_and(|due| due <= now) {
            if let Some(Reverse((_, _, key))) = self.timers.pop() {
                self.add(key, Priority::Child, now);
            }
        }
        while self.slow.busy < self.slow.all
            && let Some((since, key)) = self.oldest_prompt()
            && since + self.patience <= now
        {
            self.slow_down(&key);
        }
        if self.slow.busy < self.slow.all
            && let Some(taken) = self.take_from_slow(now)
        {
            return Some(taken);
        }
        if self.prompt.busy == self.prompt.all {
            return None;
        }
        self.turn += 1;
        let order = match self.turn {
            turn if turn.is_multiple_of(16) => [Priority::Resync, Priority::Child, Priority::Change],
            turn if turn.is_multiple_of(4) => [Priority::Child, Priority::Change, Priority::Resync],
            _ => [Priority::Change, Priority::Child, Priority::Resync],
        };
        order.into_iter().find_map(|priority| {
            while let Some((key, ticket)) = line_of(&mut self.ready, priority).pop_front() {
                if let Some(waited) = self.begin(&key, ticket, Lane::Prompt, now) {
                    return Some((key, Lane::Prompt, waited));
                }
            }
            None
        })
    }

    fn take_from_slow(&mut self, now: Instant) -> Option<(Key, Lane, Duration)> {
        while let Some((key, ticket)) = self.ready_slow.pop_front() {
            if let Some(waited) = self.begin(&key, ticket, Lane::Slow, now) {
                return Some((key, Lane::Slow, waited));
            }
        }
        None
    }

    /// None if the place in the line is stale.
    fn begin(&mut self, key: &Key, ticket: u64, lane: Lane, now: Instant) -> Option<Duration> {
        let entry = self.entries.get_mut(key)?;
        let waiting = entry.waiting.take_if(|waiting| waiting.ticket == ticket)?;
        entry.running = Some(Running { since: now, lane });
        self.waiting -= 1;
        self.workers(lane).busy += 1;
        if lane == Lane::Prompt {
            self.begun.push_back((now, key.clone()));
        }
        Some(now - waiting.since)
    }

    fn workers(&mut self, lane: Lane) -> &mut Workers {
        match lane {
            Lane::Prompt => &mut self.prompt,
            Lane::Slow => &mut self.slow,
        }
    }

    /// Frees the worker of a key that takes long.
    fn slow_down(&mut self, key: &Key) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let Some(running) = &mut entry.running else { return };
        entry.is_slow = true;
        running.lane = Lane::Slow;
        self.prompt.busy -= 1;
        self.slow.busy += 1;
    }

    /// How long the work took, and how often it failed in a row.
    pub(crate) fn done(&mut self, key: &Key, finished: Finished, now: Instant) -> (Duration, u32) {
        let Some(entry) = self.entries.get_mut(key) else { return (Duration::ZERO, 1) };
        let Some(running) = entry.running.take() else { return (Duration::ZERO, 1) };
        match finished {
            Finished::Done => {
                entry.failures = 0;
                entry.is_slow = now - running.since > self.patience;
            }
            Finished::Failed(_) => entry.failures = entry.failures.saturating_add(1),
            Finished::PutOff => {}
        }
        let failures = entry.failures;
        let waiting = entry.waiting.take();
        let is_idle = waiting.is_none() && entry.timer.is_none() && failures == 0 && !entry.is_slow;
        self.workers(running.lane).busy -= 1;
        if let Some(waiting) = waiting {
            self.waiting -= 1;
            // A failure waits for its backoff, unless a person changed something.
            if !matches!(finished, Finished::Failed(_)) || waiting.priority == Priority::Change {
                self.add(key.clone(), waiting.priority, now);
            }
        } else if is_idle && !matches!(finished, Finished::PutOff) {
            self.entries.remove(key);
        }
        (now - running.since, failures)
    }

    pub(crate) fn forget(&mut self, key: &Key) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.timer = None;
            entry.failures = 0;
            entry.is_slow = false;
        }
    }

    pub(crate) fn measure(&self, now: Instant) -> Measured {
        let running = self.entries.values().filter_map(|entry| entry.running.as_ref());
        let mut measured = Measured { depth: self.waiting, ..Measured::default() };
        for work in running {
            measured.running += 1;
            measured.unfinished += now - work.since;
            measured.longest = measured.longest.max(now - work.since);
        }
        measured
    }
}

fn line_of(lines: &mut [VecDeque<(Key, u64)>; 3], priority: Priority) -> &mut VecDeque<(Key, u64)> {
    let [resync, child, change] = lines;
    match priority {
        Priority::Resync => resync,
        Priority::Child => child,
        Priority::Change => change,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_millis(100);

    fn key(name: &str) -> Key {
        Key::new(None, name)
    }

    fn names(state: &mut State, now: Instant) -> Vec<String> {
        std::iter::from_fn(|| state.take(now)).map(|(key, _, _)| key.to_string()).collect()
    }

    #[test]
    fn adding_twice_is_adding_once() {
        let now = Instant::now();
        let mut state = State::new(10, 10, PATIENCE);
        assert!(state.add(key("a"), Priority::Child, now));
        assert!(!state.add(key("a"), Priority::Child, now));
        assert!(!state.add(key("a"), Priority::Change, now), "sooner, but once");
        assert_eq!(names(&mut state, now), ["a"]);
    }

    #[test]
    fn a_key_is_worked_on_by_one_worker_and_then_once_more() {
        let now = Instant::now();
        let mut state = State::new(10, 10, PATIENCE);
        state.add(key("a"), Priority::Child, now);
        assert_eq!(names(&mut state, now), ["a"]);
        state.add(key("a"), Priority::Child, now);
        state.add(key("a"), Priority::Child, now);
        assert_eq!(names(&mut state, now), [""; 0]);
        state.done(&key("a"), Finished::Done, now);
        assert_eq!(names(&mut state, now), ["a"]);
        state.done(&key("a"), Finished::Done, now);
        assert_eq!(names(&mut state, now), [""; 0]);
        assert!(state.entries.is_empty(), "nothing is kept of a key that is at rest");
    }

    #[test]
    fn the_higher_priority_goes_first_and_nobody_starves() {
        let now = Instant::now();
        let mut state = State::new(1000, 10, PATIENCE);
        for number in 0..100 {
            state.add(key(&format!("change-{number}")), Priority::Change, now);
        }
        state.add(key("child"), Priority::Child, now);
        state.add(key("resync"), Priority::Resync, now);
        let order = names(&mut state, now);
        assert_eq!(order.first().unwrap(), "change-0");
        assert_eq!(order.iter().position(|name| name == "child"), Some(3));
        assert_eq!(order.iter().position(|name| name == "resync"), Some(15));
    }

    #[test]
    fn a_higher_priority_lifts_a_key_that_waits() {
        let now = Instant::now();
        let mut state = State::new(10, 10, PATIENCE);
        state.add(key("a"), Priority::Resync, now);
        state.add(key("b"), Priority::Child, now);
        state.add(key("a"), Priority::Change, now);
        assert_eq!(names(&mut state, now), ["a", "b"]);
    }

    #[test]
    fn a_timer_makes_ready_and_an_event_does_not_wait_for_it() {
        let now = Instant::now();
        let later = now + Duration::from_secs(10);
        let mut state = State::new(10, 10, PATIENCE);
        state.add_at(key("a"), later);
        state.add_at(key("b"), later);
        assert_eq!(names(&mut state, now), [""; 0]);
        assert_eq!(state.next_due(), Some(later));
        state.add(key("b"), Priority::Child, now);
        assert_eq!(names(&mut state, now), ["b"]);
        assert_eq!(names(&mut state, later), ["a"], "b's timer is void");
    }

    #[test]
    fn timers_that_are_void_do_not_pile_up() {
        let now = Instant::now();
        let mut state = State::new(1, 1, Duration::from_secs(1));
        for _ in 0..1_000 {
            state.add_at(key("a"), now + Duration::from_secs(3600));
            state.add(key("a"), Priority::Change, now);
            state.take(now).unwrap();
            state.done(&key("a"), Finished::Done, now);
        }
        assert!(state.timers.len() <= FEW + 3, "{}", state.timers.len());
    }

    #[test]
    fn the_earlier_timer_counts() {
        let now = Instant::now();
        let mut state = State::new(10, 10, PATIENCE);
        state.add_at(key("a"), now + Duration::from_secs(5));
        state.add_at(key("a"), now + Duration::from_secs(9));
        assert_eq!(state.next_due(), Some(now + Duration::from_secs(5)));
        state.add_at(key("a"), now + Duration::from_secs(2));
        assert_eq!(state.next_due(), Some(now + Duration::from_secs(2)));
        assert_eq!(names(&mut state, now + Duration::from_secs(20)), ["a"], "and only once");
    }

    #[test]
    fn failures_are_counted_until_one_success() {
        let now = Instant::now();
        let mut state = State::new(10, 10, PATIENCE);
        let fail = |state: &mut State, finished| {
            state.add(key("a"), Priority::Child, now);
            state.take(now).unwrap();
            state.done(&key("a"), finished, now).1
        };
        assert_eq!(fail(&mut state, Finished::Failed(Category::Bug)), 1);
        assert_eq!(fail(&mut state, Finished::Failed(Category::Bug)), 2);
        assert_eq!(fail(&mut state, Finished::Done), 0);
        assert_eq!(fail(&mut state, Finished::Failed(Category::Bug)), 1);
    }

    #[test]
    fn no_more_keys_are_taken_than_there_are_workers() {
        let now = Instant::now();
        let mut state = State::new(2, 10, PATIENCE);
        for name in ["a", "b", "c"] {
            state.add(key(name), Priority::Child, now);
        }
        assert_eq!(names(&mut state, now), ["a", "b"]);
        state.done(&key("a"), Finished::Done, now);
        assert_eq!(names(&mut state, now), ["c"]);
    }

    #[test]
    fn slow_work_frees_its_worker_and_starts_in_the_slow_lane_next_time() {
        let now = Instant::now();
        let mut state = State::new(1, 1, PATIENCE);
        state.add(key("slow"), Priority::Child, now);
        state.add(key("other"), Priority::Child, now);
        assert_eq!(names(&mut state, now), ["slow"]);
        let later = now + PATIENCE;
        assert_eq!(state.next_due(), Some(later), "somebody waits for the worker");
        assert_eq!(names(&mut state, later), ["other"]);
        state.done(&key("slow"), Finished::Failed(Category::DeadlineExceeded), later);
        state.add(key("slow"), Priority::Change, later);
        let (taken, lane, _) = state.take(later).unwrap();
        assert_eq!((taken, lane), (key("slow"), Lane::Slow), "while the only worker is busy");
        assert!(state.entries[&key("slow")].is_slow);
        state.done(&key("slow"), Finished::Done, later);
        assert!(!state.entries.contains_key(&key("slow")), "it was prompt, and is again");
    }

    #[test]
    fn the_slow_lane_is_bounded_too() {
        let now = Instant::now();
        let mut state = State::new(2, 1, PATIENCE);
        for name in ["a", "b", "c", "d"] {
            state.add(key(name), Priority::Child, now);
        }
        assert_eq!(names(&mut state, now), ["a", "b"]);
        assert_eq!(names(&mut state, now + PATIENCE), ["c"], "b keeps its worker");
        assert_eq!(state.next_due(), None, "patience does not help any more");
    }

    #[test]
    fn gauges_show_what_waits_and_what_runs() {
        let now = Instant::now();
        let mut state = State::new(1, 1, PATIENCE);
        state.add(key("a"), Priority::Child, now);
        state.add(key("b"), Priority::Child, now);
        state.take(now);
        let measured = state.measure(now + Duration::from_secs(3));
        assert_eq!((measured.depth, measured.running), (1, 1));
        assert_eq!(measured.longest, Duration::from_secs(3));
    }
}
