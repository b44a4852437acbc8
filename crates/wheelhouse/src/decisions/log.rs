//! [`DecisionLog`]: the last decisions of each resource, within a budget.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    io,
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;

use super::{Decision, Outcome, without_secrets};
use crate::key::Key;

/// Of a resource, so many decisions that did something are kept.
const KEPT: usize = 10;
/// One decision in so many is weighed.
const WEIGHED: u64 = 16;
/// A Rust value takes about so many times the bytes of its JSON.
const TIMES_JSON: usize = 3;

/// What was seen and decided, whatever its type.
pub(crate) trait What: Send + Sync {
    fn observation(&self) -> serde_json::Result<Value>;
    fn plan(&self) -> serde_json::Result<Value>;
    /// How long its JSON is.
    fn json_bytes(&self) -> usize;
}

/// A decision as it is kept.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) controller: Arc<str>,
    pub(crate) key: Key,
    pub(crate) at: Timestamp,
    pub(crate) took: Duration,
    /// Nothing, if it did not come to an observation.
    pub(crate) what: Option<Arc<dyn What>>,
    pub(crate) outcome: Outcome,
}

impl Entry {
    fn write_out(&self) -> Decision {
        let shown = |written: Option<serde_json::Result<Value>>| match written {
            Some(Ok(value)) => without_secrets(value),
            Some(Err(error)) => Value::String(format!("cannot be written as JSON: {error}")),
            None => Value::Null,
        };
        Decision {
            controller: self.controller.to_string(),
            key: self.key.clone(),
            at: self.at,
            took_milliseconds: self.took.as_secs_f64() * 1e3,
            observation: shown(self.what.as_ref().map(|what| what.observation())),
            plan: shown(self.what.as_ref().map(|what| what.plan())),
            outcome: self.outcome.clone(),
        }
    }
}

/// The last decisions of all controllers of a process.
pub(crate) struct DecisionLog(Mutex<Rings>);

struct Rings {
    acted: Ring,
    quiet: Ring,
    noted: u64,
    /// About how many bytes a decision of each controller takes.
    weights: HashMap<Arc<str>, usize>,
}

impl DecisionLog {
    /// Keeps about so many bytes of decisions.
    pub(crate) fn new(budget: usize) -> Self {
        Self(Mutex::new(Rings {
            acted: Ring::new(budget / 4 * 3, KEPT),
            quiet: Ring::new(budget / 4, 1),
            noted: 0,
            weights: HashMap::new(),
        }))
    }

    pub(crate) fn note(&self, entry: Entry) {
        let mut rings = self.0.lock();
        rings.noted += 1;
        let is_weighed =
            rings.noted.is_multiple_of(WEIGHED) || !rings.weights.contains_key(&entry.controller);
        if is_weighed && let Some(what) = &entry.what {
            let bytes = what.json_bytes() * TIMES_JSON + size_of::<Entry>();
            let weight = rings.weights.entry(entry.controller.clone()).or_insert(bytes);
            *weight = usize::midpoint(*weight, bytes);
        }
        let weight = match &entry.what {
            Some(_) => rings.weights.get(&entry.controller).copied().unwrap_or_default(),
            None => size_of::<Entry>(),
        };
        match entry.outcome.is_quiet() {
            true => rings.quiet.add(entry, weight),
            false => rings.acted.add(entry, weight),
        }
    }

    /// The decisions about one resource, or all there are, the oldest first.
    pub(crate) fn written_out(&self, is_asked_for: impl Fn(&str, &Key) -> bool) -> Vec<Decision> {
        let mut entries: Vec<_> = {
            let rings = self.0.lock();
            let all = rings.acted.entries.values().chain(rings.quiet.entries.values());
            all.map(|(entry, _)| entry)
                .filter(|entry| is_asked_for(&entry.controller, &entry.key))
                .cloned()
                .collect()
        };
        entries.sort_by_key(|entry| entry.at);
        entries.iter().map(Entry::write_out).collect()
    }
}

/// Entries in the order in which they came, so many of a resource at most, and
/// so many bytes at most.
struct Ring {
    budget: usize,
    kept: usize,
    bytes: usize,
    next: u64,
    entries: BTreeMap<u64, (Entry, usize)>,
    of_resource: HashMap<(Arc<str>, Key), VecDeque<u64>>,
}

impl Ring {
    fn new(budget: usize, kept: usize) -> Self {
        Self { budget, kept, bytes: 0, next: 0, entries: BTreeMap::new(), of_resource: HashMap::new() }
    }

    fn add(&mut self, entry: Entry, weight: usize) {
        let of_resource = self.of_resource.entry((entry.controller.clone(), entry.key.clone())).or_default();
        of_resource.push_back(self.next);
        let surplus = if of_resource.len() > self.kept { of_resource.pop_front() } else { None };
        if let Some((_, weight)) = surplus.and_then(|number| self.entries.remove(&number)) {
            self.bytes -= weight;
        }
        self.entries.insert(self.next, (entry, weight));
        self.next += 1;
        self.bytes += weight;
        while self.bytes > self.budget {
            let Some((number, (oldest, weight))) = self.entries.pop_first() else { break };
            self.bytes -= weight;
            let resource = (oldest.controller, oldest.key);
            if let Some(numbers) = self.of_resource.get_mut(&resource) {
                numbers.retain(|known| *known != number);
                if numbers.is_empty() {
                    self.of_resource.remove(&resource);
                }
            }
        }
    }
}

/// How long a value's JSON is, without making it.
pub(crate) fn json_bytes(value: &impl Serialize) -> usize {
    struct Counted(usize);
    impl io::Write for Counted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counted = Counted(0);
    // What cannot be written as JSON says so when it is looked at.
    let _ = serde_json::to_writer(&mut counted, value);
    counted.0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    struct Text(String);

    impl What for Text {
        fn observation(&self) -> serde_json::Result<Value> {
            Ok(json!(self.0))
        }
        fn plan(&self) -> serde_json::Result<Value> {
            Ok(json!({}))
        }
        fn json_bytes(&self) -> usize {
            json_bytes(&self.0)
        }
    }

    fn entry(name: &str, second: i64, outcome: Outcome) -> Entry {
        Entry {
            controller: "c".into(),
            key: Key::namespaced("n", name),
            at: Timestamp::from_second(second).unwrap(),
            took: Duration::from_millis(5),
            what: Some(Arc::new(Text("x".repeat(1000)))),
            outcome,
        }
    }

    fn done() -> Outcome {
        Outcome::Done { steps: vec!["create Pod a".to_owned()] }
    }

    fn seconds(log: &DecisionLog, name: &str) -> Vec<i64> {
        let decisions = log.written_out(|_, key| key.name() == name);
        decisions.iter().map(|decision| decision.at.as_second()).collect()
    }

    #[test]
    fn of_a_resource_the_last_ten_that_did_something_and_the_last_quiet_one_are_kept() {
        let log = DecisionLog::new(1 << 20);
        for second in 0..30 {
            log.note(entry("a", second, if second % 2 == 0 { done() } else { Outcome::Unchanged }));
        }
        assert_eq!(seconds(&log, "a"), [10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 29]);
        assert!(seconds(&log, "b").is_empty());
    }

    #[test]
    fn what_is_kept_stays_within_the_budget_and_the_oldest_goes_first() {
        let budget = 100_000;
        let log = DecisionLog::new(budget);
        for second in 0..1000 {
            log.note(entry(&second.to_string(), second, done()));
            log.note(entry(&second.to_string(), second, Outcome::Unchanged));
        }
        let rings = log.0.lock();
        assert!(rings.acted.bytes + rings.quiet.bytes <= budget);
        assert!(rings.acted.entries.len() > 10, "{}", rings.acted.entries.len());
        assert_eq!(rings.acted.of_resource.len(), rings.acted.entries.len());
        drop(rings);
        assert!(seconds(&log, "0").is_empty());
        assert_eq!(seconds(&log, "999"), [999, 999]);
    }

    #[test]
    fn quiet_ones_do_not_push_out_those_that_did_something() {
        let log = DecisionLog::new(100_000);
        log.note(entry("a", 0, done()));
        for second in 1..10_000 {
            log.note(entry(&format!("other-{second}"), second, Outcome::Unchanged));
        }
        assert_eq!(seconds(&log, "a"), [0]);
    }
}
