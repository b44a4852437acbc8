//! Clients that write and read the whole time, what they were told, and whether that can have been.
//!
//! Each key is a register with a short life: two clients write and read it for a while, and go on to the
//! next. So a history is checked key by key, which linearizability allows, and an outcome that nobody
//! knows costs little. The checker is that of `todc-utils`.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use etcd_operator::etcd::{Client, Dial, Tcp};
use todc_utils::{
    linearizability::{
        WGLChecker,
        history::{Action, History as Checked},
    },
    specifications::Specification,
};

/// How long a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// How many clients there are; each key has two.
const CLIENTS: usize = 4;
/// How many times each of them writes and reads a key.
const ROUNDS: usize = 4;
/// No history is longer.
const AT_MOST: Duration = Duration::from_secs(900);

/// What a client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Write(u64),
    /// What it read; nothing at the call, and 0 for a key that is not there.
    Read(Option<u64>),
}

/// One thing that a client asked for.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) key: String,
    pub(crate) asked: Asked,
    pub(crate) called: Duration,
    /// None if nobody knows what became of it.
    pub(crate) answered: Option<Duration>,
}

/// A register: what is read is what was written last.
struct Register;

impl Specification for Register {
    type State = u64;
    type Operation = Asked;

    fn init() -> u64 {
        0
    }

    fn apply(operation: &Asked, state: &u64) -> (bool, u64) {
        match operation {
            Asked::Write(value) => (true, *value),
            Asked::Read(value) => (*value == Some(*state), *state),
        }
    }
}

/// Whether all that the clients were told can have been, with everything happening at one moment
/// between its call and its answer. A write of which nobody knows may have happened at any time after
/// its call, or not yet.
pub(crate) fn check(operations: &[Operation]) -> Result<(), String> {
    let mut keys: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
    for operation in operations {
        keys.entry(&operation.key).or_default().push(operation);
    }
    for (key, operations) in keys {
        let end = operations.iter().filter_map(|operation| operation.answered).max().unwrap_or_default();
        let mut actions = Vec::new();
        for (process, operation) in operations.iter().enumerate() {
            let called = match operation.asked {
                Asked::Read(_) => Asked::Read(None),
                write => write,
            };
            let answered = operation.answered.unwrap_or(end + Duration::from_secs(1));
            actions.push((operation.called, process, Action::Call(called)));
            actions.push((answered, process, Action::Response(operation.asked)));
        }
        // Of what happened at the same moment, calls come first: that allows more.
        actions.sort_by_key(|(at, process, action)| (*at, matches!(action, Action::Response(_)), *process));
        let actions = actions.into_iter().map(|(_, process, action)| (process, action)).collect();
        if !WGLChecker::<Register>::is_linearizable(Checked::from_actions(actions)) {
            return Err(format!("what clients were told about {key} cannot have been: {operations:#?}"));
        }
    }
    Ok(())
}

/// Clients at work.
pub(crate) struct History {
    stop: Arc<AtomicBool>,
    operations: Arc<Mutex<Vec<Operation>>>,
    clients: Vec<JoinHandle<()>>,
    place: Place,
    begun: Instant,
}

/// Where the clients find etcd.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) address: String,
    pub(crate) dialer: Arc<dyn Dial>,
}

impl Place {
    /// Over TCP, without TLS.
    pub(crate) fn plain(address: String) -> Self {
        Self { address, dialer: Arc::new(Tcp) }
    }

    pub(crate) async fn connect(&self) -> etcd_operator::etcd::Result<Client> {
        Client::connect(self.dialer.clone(), &self.address, PATIENCE).await
    }
}

/// What came of it.
struct Told {
    acknowledged: usize,
    unknown: usize,
    /// The longest time between two writes that were acknowledged.
    longest_pause: Duration,
}

impl History {
    /// Clients begin to write and read there.
    pub(crate) fn start(place: Place) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let (stop, operations) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<_>>>::default());
        let begun = Instant::now();
        let run = NEXT.fetch_add(1, Ordering::SeqCst);
        let clients = (0..CLIENTS)
            .map(|number| {
                let (stop, operations) = (stop.clone(), operations.clone());
                let place = place.clone();
                std::thread::spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                    let work = Work { number, run, begun, place, stop, operations, connection: None };
                    runtime.block_on(work.work());
                })
            })
            .collect();
        Self { stop, operations, clients, place, begun }
    }

    /// How many writes were acknowledged so far.
    pub(crate) fn acknowledged(&self) -> usize {
        count(&self.operations.lock().unwrap()).0
    }

    /// Waits until writes are acknowledged again.
    pub(crate) fn wait_for_writes(&self) {
        let before = self.acknowledged();
        let begun = Instant::now();
        while self.acknowledged() < before + 10 {
            assert!(begun.elapsed() < Duration::from_secs(120), "nothing is written any more");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends the clients, checks everything, and prints what came of it.
    pub(crate) fn end_and_tell(self, what: &str, took: Duration) -> Place {
        let place = self.place.clone();
        let told = self.end();
        println!(
            "{what}: ready after {:.1} s; {} writes acknowledged and there, {} of which nobody knows, longest pause {:.2} s",
            took.as_secs_f64(),
            told.acknowledged,
            told.unknown,
            told.longest_pause.as_secs_f64()
        );
        place
    }

    /// Ends the clients, reads every key once more, and checks everything.
    fn end(self) -> Told {
        self.stop.store(true, Ordering::SeqCst);
        self.clients.into_iter().for_each(|client| client.join().unwrap());
        let mut operations = std::mem::take(&mut *self.operations.lock().unwrap());
        let keys: std::collections::BTreeSet<_> = operations.iter().map(|each| each.key.clone()).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for key in keys {
                let called = self.begun.elapsed();
                let value = read_at_last(&self.place, &key).await;
                let answered = Some(self.begun.elapsed());
                operations.push(Operation { key, asked: Asked::Read(Some(value)), called, answered });
            }
        });
        if let Err(why) = check(&operations) {
            panic!("{why}");
        }
        let (acknowledged, unknown) = count(&operations);
        Told { acknowledged, unknown, longest_pause: longest_pause(&operations) }
    }
}

fn count(operations: &[Operation]) -> (usize, usize) {
    let writes = operations.iter().filter(|each| matches!(each.asked, Asked::Write(_)));
    let (known, unknown): (Vec<_>, Vec<_>) = writes.partition(|each| each.answered.is_some());
    (known.len(), unknown.len())
}

fn longest_pause(operations: &[Operation]) -> Duration {
    let writes = operations.iter().filter(|each| matches!(each.asked, Asked::Write(_)));
    let mut answered: Vec<_> = writes.filter_map(|each| each.answered).collect();
    answered.sort();
    answered.windows(2).map(|two| two[1] - two[0]).max().unwrap_or_default()
}

async fn read_at_last(place: &Place, key: &str) -> u64 {
    for _ in 0..60 {
        let read = async { place.connect().await?.get(key).await };
        if let Ok(answer) = read.await {
            return value_of(&answer);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    panic!("{key} cannot be read at the end");
}

fn value_of(answer: &etcd_operator::etcd::RangeResponse) -> u64 {
    let text = answer.kvs.first().map(|pair| String::from_utf8(pair.value.clone()).unwrap());
    text.map_or(0, |text| text.parse().unwrap())
}

struct Work {
    number: usize,
    run: u64,
    begun: Instant,
    place: Place,
    stop: Arc<AtomicBool>,
    operations: Arc<Mutex<Vec<Operation>>>,
    connection: Option<Client>,
}

impl Work {
    async fn work(mut self) {
        for turn in 0_u64.. {
            // Both clients of a pair work on the same key, whoever is faster.
            let key = format!("history/{}/{}/{turn}", self.run, self.number / 2);
            for round in 0..ROUNDS {
                if self.stop.load(Ordering::SeqCst) || self.begun.elapsed() > AT_MOST {
                    return;
                }
                let value = (turn + 1) * 1000 + (round as u64) * 10 + self.number as u64;
                self.write(&key, value).await;
                self.read(&key).await;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }

    async fn connected(&mut self) -> Option<Client> {
        if self.connection.is_none() {
            self.connection = self.place.connect().await.ok();
        }
        if self.connection.is_none() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        self.connection.clone()
    }

    async fn write(&mut self, key: &str, value: u64) {
        let Some(client) = self.connected().await else { return };
        let called = self.begun.elapsed();
        let answered = match client.put(key, &value.to_string()).await {
            Ok(_) => Some(self.begun.elapsed()),
            Err(_) => {
                self.connection = None;
                None
            }
        };
        self.remember(key, Asked::Write(value), called, answered);
    }

    async fn read(&mut self, key: &str) {
        let Some(client) = self.connected().await else { return };
        let called = self.begun.elapsed();
        match client.get(key).await {
            Ok(answer) => {
                self.remember(key, Asked::Read(Some(value_of(&answer))), called, Some(self.begun.elapsed()));
            }
            // Who read nothing has learned nothing.
            Err(_) => self.connection = None,
        }
    }

    fn remember(&self, key: &str, asked: Asked, called: Duration, answered: Option<Duration>) {
        let operation = Operation { key: key.to_owned(), asked, called, answered };
        self.operations.lock().unwrap().push(operation);
    }
}
