//! A world in which plans for an EtcdBackup can be followed: the API server, the pods, and the place where
//! files are, with what can go wrong. Pods do what the program does there, one write at a time.

use std::collections::BTreeMap;

use etcd_operator::{
    Scope,
    api::backup::{Content, EtcdBackup, EtcdBackupStatus, Kept},
    backup::{Outcome, note::State},
    backups::{EtcdBackups, Seen, children::saver_name, schedule},
    worker::{Ended, PATH, WorkerSeen},
};
use rand::{RngExt as _, rngs::SmallRng};
use serde_json::{Value, json};
use wheelhouse::{
    Kind, Operator as _, Reference, Step,
    jiff::{SignedDuration, Timestamp},
};

/// Seconds between two backups.
const INTERVAL: i64 = 100;

#[derive(Clone, Debug)]
pub struct File {
    pub state: State,
    kept: Kept,
    /// The pod that wrote the note.
    writer: String,
}

#[derive(Clone, Debug)]
enum Work {
    Save { path: String, scheduled: Timestamp, has_begun: bool },
    Remove { leaving: Vec<String>, unfinished: Vec<String>, done: Vec<String>, whole: Vec<Kept> },
}

#[derive(Clone, Debug)]
struct Pod {
    uid: String,
    work: Work,
    ended: Option<Ended>,
    /// It is to go, and nobody reaches whoever would end it, or tell what becomes of it.
    is_stuck: bool,
    /// Whether it works.
    runs: bool,
}

pub struct World {
    operator: EtcdBackups,
    backup: EtcdBackup,
    pods: BTreeMap<String, Pod>,
    pub files: BTreeMap<String, File>,
    /// Every backup that was ever verified, by its time.
    verified: Vec<Timestamp>,
    keep: usize,
    now: Timestamp,
    next_uid: u64,
    pub taken: u64,
    pub removed: u64,
    pub story: Vec<String>,
}

impl World {
    pub fn new(keep: u32) -> Self {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let backup = json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2",
            "kind": "EtcdBackup",
            "metadata": {"name": "b", "namespace": "n", "uid": "u", "generation": 1, "creationTimestamp": now},
            "spec": {
                "etcdEndpoints": ["http://e:2379"],
                "backupPolicy": {"backupIntervalInSecond": INTERVAL, "maxBackups": keep},
                "volume": {"claim": "c", "path": "db"},
            },
        });
        Self {
            operator: EtcdBackups { scope: Scope::OwnNamespace, image: "i".to_owned() },
            backup: serde_json::from_value(backup).unwrap(),
            pods: BTreeMap::new(),
            files: BTreeMap::new(),
            verified: Vec::new(),
            keep: usize::try_from(keep).unwrap(),
            now,
            next_uid: 0,
            taken: 0,
            removed: 0,
            story: Vec::new(),
        }
    }

    /// Somebody wants no backup to begin for now, or wants that no more.
    pub fn pause(&mut self, paused: bool) {
        self.backup.spec.paused = paused;
    }

    /// The node of whatever works now is gone, or only out of reach: its pods are told to go, and nobody tells that they have.
    pub fn lose_the_node(&mut self, is_gone: bool) {
        self.pods.values_mut().for_each(|pod| (pod.is_stuck, pod.runs) = (true, pod.runs && !is_gone));
    }

    /// Somebody takes what was there of it out of the cluster.
    pub fn forget_the_node(&mut self) {
        self.pods.retain(|_, pod| !pod.is_stuck);
    }

    pub fn pass(&mut self, seconds: i64) {
        self.now = self.now.saturating_add(SignedDuration::from_secs(seconds)).unwrap();
    }

    pub fn observe(&self) -> Seen {
        let pods = self.pods.iter().map(|(name, pod)| WorkerSeen {
            reference: Reference { terminating: pod.is_stuck, ..reference(name, &pod.uid) },
            generation: Some(1),
            path: match &pod.work {
                Work::Save { path, .. } => Some(path.clone()),
                Work::Remove { .. } => None,
            },
            ended: pod.ended.clone(),
            gone_by: pod.is_stuck.then_some(Timestamp::MIN),
            is_running: pod.ended.is_none(),
            waits_for: None,
        });
        Seen {
            client_secret: None,
            backup: self.backup.clone(),
            is_ours: true,
            image: "i".to_owned(),
            source: Ok(vec!["http://e:2379".to_owned()]),
            pods: pods.collect(),
            last_failure: None,
            now: self.now,
        }
    }

    /// Does what an operator decides on what it saw, up to the step at which it crashes.
    pub fn follow(&mut self, seen: &Seen, crash: Option<usize>) {
        let plan = self.operator.analyse(seen);
        let steps = plan.steps.iter().filter(|planned| !matches!(planned.step, Step::Apply(_)));
        for (number, planned) in steps.enumerate() {
            if crash == Some(number) {
                return;
            }
            match &planned.step {
                Step::Create(object) => {
                    let name = object.name().to_owned();
                    if self.pods.contains_key(&name) {
                        break;
                    }
                    self.next_uid += 1;
                    let work = work_of(&object.content);
                    self.story.push(format!("{} create {name} {work:?}", self.now));
                    self.pods.insert(
                        name,
                        Pod {
                            uid: self.next_uid.to_string(),
                            work,
                            ended: None,
                            is_stuck: false,
                            runs: true,
                        },
                    );
                }
                Step::Delete { target, .. } => {
                    if self.pods.get(&target.name).is_none_or(|pod| pod.uid != target.uid) {
                        break;
                    }
                    self.pods.remove(&target.name);
                }
                step => panic!("{step:?}"),
            }
        }
        if crash.is_none() {
            self.write_status(plan.status.unwrap());
        }
    }

    /// As the API server does, with its rule.
    fn write_status(&mut self, status: Value) {
        let new: EtcdBackupStatus = serde_json::from_value(status).unwrap();
        let before = self.backup.status.as_ref().and_then(|status| status.last_scheduled);
        if before.is_some() && new.last_scheduled < before {
            return;
        }
        for kept in &new.history {
            assert!(
                self.verified.contains(&kept.scheduled),
                "{kept:?} was never verified: {:#?}",
                self.story
            );
        }
        self.backup.status = Some(new);
    }

    /// Every pod does one thing, or is killed, or is gone.
    pub fn run_pods(&mut self, random: &mut SmallRng, trouble: f64) {
        for name in self.pods.keys().cloned().collect::<Vec<_>>() {
            if trouble > 0.0 && random.random_bool(trouble) {
                self.pods.remove(&name);
                continue;
            }
            let Some(mut pod) = self.pods.get(&name).cloned().filter(|pod| pod.runs) else { continue };
            // What is slow enough is there when others have done its work.
            if pod.is_stuck && random.random_bool(0.9) {
                continue;
            }
            let outcome = if trouble > 0.0 && random.random_bool(trouble * 2.0) {
                Some(Outcome::Failed { message: "killed".to_owned() })
            } else {
                self.work(&mut pod)
            };
            pod.runs = outcome.is_none();
            pod.ended = outcome.filter(|_| !pod.is_stuck).map(|outcome| Ended { outcome, at: self.now });
            self.pods.insert(name, pod);
        }
        for (path, sha256) in self.history() {
            let file = self.files.get(&path);
            let is_as_told = |file: &File| {
                file.state == State::Removing
                    || file.state == State::Whole && file.kept.content.sha256 == sha256
            };
            assert!(file.is_none_or(is_as_told), "{path} was written over: {file:?}: {:#?}", self.story);
        }
    }

    fn work(&mut self, pod: &mut Pod) -> Option<Outcome> {
        let failed = |message: &str| Some(Outcome::Failed { message: message.to_owned() });
        match &mut pod.work {
            Work::Save { path, scheduled, has_begun } => {
                let there = self.files.get_mut(path);
                let found = there.as_ref().map(|file| (file.state, file.writer == pod.uid));
                match (found, there) {
                    (Some((State::Whole, _)), Some(file)) if !*has_begun => {
                        let Kept { path, scheduled, at, content } = file.kept.clone();
                        return Some(Outcome::Good { path, scheduled: Some(scheduled), at, content });
                    }
                    (_, there) if !*has_begun => {
                        let status = self.backup.status.clone().unwrap_or_default();
                        let is_wanted = pod.is_stuck || status.last_scheduled == Some(*scheduled);
                        if there.is_none() && !is_wanted {
                            return failed("given up");
                        }
                        let content = Content {
                            size: 1,
                            sha256: pod.uid.clone(),
                            revision: 1,
                            etcd_version: None,
                            cluster_id: None,
                        };
                        let kept = Kept { path: path.clone(), scheduled: *scheduled, at: self.now, content };
                        let file = File { state: State::Writing, kept, writer: pod.uid.clone() };
                        self.files.insert(path.clone(), file);
                        *has_begun = true;
                    }
                    (Some((State::Writing, true)), Some(file)) => {
                        file.state = State::Whole;
                        self.verified.push(*scheduled);
                        self.taken += 1;
                        // What is there is what it says.
                        *has_begun = false;
                    }
                    _ => return failed("another pod has taken over"),
                }
                None
            }
            Work::Remove { leaving, unfinished, done, whole } => {
                let todo = leaving.iter().chain(unfinished.iter());
                let mut todo =
                    todo.filter(|path| !done.contains(path) && !whole.iter().any(|kept| kept.path == **path));
                let Some(path) = todo.next().cloned() else {
                    let paths = done.clone();
                    return Some(Outcome::Removed { paths, left: Vec::new(), whole: whole.clone() });
                };
                match self.files.get_mut(&path) {
                    Some(file) if file.state == State::Whole && !leaving.contains(&path) => {
                        whole.push(file.kept.clone());
                    }
                    Some(file) if file.state == State::Whole => {
                        file.state = State::Removing;
                        self.removed += 1;
                        let time = file.kept.scheduled;
                        let newer = self.verified.iter().filter(|other| **other > time);
                        let newer: std::collections::BTreeSet<_> = newer.collect();
                        assert!(newer.len() >= self.keep, "{path} is removed: {:#?}", self.story);
                    }
                    _ => {
                        self.files.remove(&path);
                        done.push(path);
                    }
                }
                None
            }
        }
    }

    /// The files that are whole, and their checksums.
    pub fn whole(&self) -> Vec<(String, String)> {
        let whole = self.files.values().filter(|file| file.state == State::Whole);
        whole.map(|file| (file.kept.path.clone(), file.kept.content.sha256.clone())).collect()
    }

    /// What people are told that there is.
    pub fn history(&self) -> Vec<(String, String)> {
        let status = self.backup.status.clone().unwrap_or_default();
        let mut kept: Vec<_> =
            status.history.into_iter().map(|kept| (kept.path, kept.content.sha256)).collect();
        kept.sort();
        kept
    }
}

fn reference(name: &str, uid: &str) -> Reference {
    Reference {
        kind: Kind::of::<k8s_openapi::api::core::v1::Pod>(&()),
        namespace: Some("n".to_owned()),
        name: name.to_owned(),
        uid: uid.to_owned(),
        resource_version: "1".to_owned(),
        terminating: false,
    }
}

/// What a pod is told to do.
fn work_of(pod: &Value) -> Work {
    let container = &pod["spec"]["containers"][0];
    let arguments: Vec<String> = serde_json::from_value(container["args"].clone()).unwrap();
    let value = |name: &str| {
        let environment = container["env"].as_array().unwrap();
        environment.iter().find(|one| one["name"] == name).unwrap()["value"].as_str().unwrap().to_owned()
    };
    if arguments[1] == "save" {
        let scheduled: Timestamp = value("SCHEDULED").parse().unwrap();
        assert!(pod["metadata"]["name"].as_str().unwrap().starts_with(&saver_name("b", scheduled)));
        let path = format!("db_{}", schedule::compact(scheduled));
        assert_eq!(pod["metadata"]["annotations"][PATH], path);
        assert!(value("PLACE").contains(&format!("\"{path}\"")));
        return Work::Save { path, scheduled, has_begun: false };
    }
    let (mut leaving, mut unfinished) = (Vec::new(), Vec::new());
    let mut rest = arguments.into_iter().skip(2);
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--unfinished" => unfinished.extend(rest.next()),
            _ => leaving.push(argument),
        }
    }
    Work::Remove { leaving, unfinished, done: Vec::new(), whole: Vec::new() }
}
