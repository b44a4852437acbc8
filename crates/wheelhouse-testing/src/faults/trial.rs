//! [`Trial`]: runs an operator through a scenario, undisturbed and with every trouble.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt as _, stream};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::{Config, core::ApiResource};

use super::{
    interposer::{Alarm, Counted, Interposer},
    process::{Process, Run},
    report::{Finding, Report, Symptom},
    scenario::{Act, Scenario, Stage},
    schedule::{Class, Disturbance, Schedule},
    state::{State, listed_kinds},
};
use crate::{
    control_plane::ControlPlane,
    error::{Error, Result},
    identity::Identity,
    namespace::Namespace,
    requests::Mark,
};

/// How long an operator may take to get where it should.
const PATIENCE: Duration = Duration::from_secs(30);
/// Nothing was written for so long: it has settled.
const QUIET: Duration = Duration::from_secs(1);
/// For so long it is watched when all is done.
const STILL: Duration = Duration::from_secs(1);
/// A scenario that is where it should be and goes on being written to for so long never settles.
const NEVER_SETTLES: Duration = Duration::from_secs(8);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Who waits is told how far it is after so many schedules.
const TOLD_EVERY: usize = 50;
/// More reads than that are not refused one by one.
const READS_AT_MOST: usize = 20;

/// An operator, whatever it is written with.
#[derive(Clone)]
pub struct Subject {
    name: String,
    rules: Vec<PolicyRule>,
    run: Run,
}

impl Subject {
    /// An operator that may do what `rules` say. `run` runs it with that way to the API
    /// server, in that namespace, until it is dropped.
    pub fn new<F>(
        name: &str,
        rules: Vec<PolicyRule>,
        run: impl Fn(Config, String) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let run: Run = Arc::new(move |config, namespace| Box::pin(run(config, namespace)));
        Self { name: name.to_owned(), rules, run }
    }

    pub(crate) fn rules(&self) -> &[PolicyRule] {
        &self.rules
    }
}

/// What an operator is put through.
pub struct Trial {
    subject: Subject,
    scenario: Scenario,
    pairs: usize,
    seed: u64,
    at_a_time: usize,
    only: Option<Vec<Schedule>>,
    is_tried: Box<dyn Fn(&Disturbance) -> bool + Send + Sync>,
}

impl Trial {
    /// Every single piece of trouble, for every write; and twenty random pairs.
    pub fn new(subject: Subject, scenario: Scenario) -> Self {
        Self { subject, scenario, pairs: 20, seed: 1, at_a_time: 8, only: None, is_tried: Box::new(|_| true) }
    }

    /// So many random pairs of trouble, from this seed.
    #[must_use]
    pub fn pairs(mut self, count: usize, seed: u64) -> Self {
        self.pairs = count;
        self.seed = seed;
        self
    }

    /// Only such trouble.
    #[must_use]
    pub fn when(mut self, is_tried: impl Fn(&Disturbance) -> bool + Send + Sync + 'static) -> Self {
        self.is_tried = Box::new(is_tried);
        self
    }

    /// So many runs at the same time. Default: 8, because runs mostly wait.
    #[must_use]
    pub fn at_a_time(mut self, runs: usize) -> Self {
        self.at_a_time = runs.max(1);
        self
    }

    /// Only these schedules: to see one again that failed.
    #[must_use]
    pub fn only(mut self, schedules: Vec<Schedule>) -> Self {
        self.only = Some(schedules);
        self
    }

    /// Runs all of it.
    ///
    /// # Errors
    /// When the test's own surroundings fail, or the operator does not get through
    /// the scenario even undisturbed.
    pub async fn run(&self) -> Result<Report> {
        let began = Instant::now();
        let plane = ControlPlane::shared().await?;
        let kinds = listed_kinds(&plane.client()?).await?;
        let runner = Runner { plane, kinds, subject: &self.subject, scenario: &self.scenario };
        let undisturbed = runner.run(&Schedule::default()).await?;
        if let Some(symptom) = undisturbed.symptom {
            return Err(Error::Trial { subject: self.subject.name.clone(), problem: symptom.to_string() });
        }
        let again = runner.run(&Schedule::default()).await?;
        let differences = again.state.differences(&undisturbed.state);
        if let Some(difference) = differences.first() {
            let problem =
                format!("two undisturbed runs differ, so nothing can be told from others: {difference}");
            return Err(Error::Trial { subject: self.subject.name.clone(), problem });
        }
        let schedules = self.only.clone().unwrap_or_else(|| {
            let reads = undisturbed.reads.min(READS_AT_MOST);
            let mut singles = Schedule::single(undisturbed.writes, reads);
            singles.retain(|schedule| schedule.0.iter().all(|one| (self.is_tried)(one)));
            let pairs = Schedule::pairs(&singles, self.pairs, self.seed);
            [singles, pairs].concat()
        });
        let mut tried = BTreeMap::<Class, usize>::new();
        for class in schedules.iter().flat_map(Schedule::classes) {
            *tried.entry(class).or_default() += 1;
        }
        let mut judging = stream::iter(schedules.iter().enumerate())
            .map(|(number, schedule)| {
                let judged = runner.judge(schedule, &undisturbed);
                async move { (number, judged.await) }
            })
            .buffer_unordered(self.at_a_time);
        let (mut judged, mut found) = (0, BTreeMap::new());
        while let Some((number, finding)) = judging.next().await {
            judged += 1;
            if let Some(finding) = finding? {
                // At once: whoever ends a long run early has what it found.
                eprintln!("{}: {finding}", self.subject.name);
                found.insert(number, finding);
            }
            if judged % TOLD_EVERY == 0 {
                let (all, failed) = (schedules.len(), found.len());
                eprintln!("{}: {judged} of {all} schedules, {failed} failed", self.subject.name);
            }
        }
        drop(judging);
        let mut findings = Vec::new();
        for finding in found.into_values() {
            findings.push(runner.shortened(finding, &undisturbed).await?);
        }
        Ok(Report {
            subject: self.subject.name.clone(),
            writes: undisturbed.writes,
            reads: undisturbed.reads,
            tried,
            seed: self.seed,
            took: began.elapsed(),
            findings,
        })
    }
}

/// What became of one run.
struct Outcome {
    symptom: Option<Symptom>,
    state: State,
    /// What was deleted, and how often.
    deleted: BTreeMap<String, usize>,
    writes: usize,
    reads: usize,
}

struct Runner<'a> {
    plane: &'static ControlPlane,
    kinds: Vec<ApiResource>,
    subject: &'a Subject,
    scenario: &'a Scenario,
}

impl Runner<'_> {
    /// Whether the operator fails under a schedule.
    async fn judge(&self, schedule: &Schedule, undisturbed: &Outcome) -> Result<Option<Finding>> {
        let outcome = self.run(schedule).await?;
        let differences = outcome.state.differences(&undisturbed.state);
        let ends_elsewhere = (!differences.is_empty()).then_some(Symptom::EndsElsewhere);
        // What is not there at the end may have come and gone more than once.
        let too_often = |(object, times): &(&String, &usize)| {
            let expected = undisturbed.deleted.get(*object).copied().unwrap_or_default();
            **times > expected && (expected == 0 || self.is_in(&undisturbed.state, object))
        };
        let deleted: Vec<_> =
            outcome.deleted.iter().filter(too_often).map(|(object, _)| object.clone()).collect();
        let has_deleted = (!deleted.is_empty()).then_some(Symptom::Deleted);
        let symptom = outcome.symptom.or(ends_elsewhere).or(has_deleted);
        Ok(symptom.map(|symptom| Finding { schedule: schedule.clone(), symptom, differences, deleted }))
    }

    /// Whether what was deleted under this name (`PLURAL NAME`) is there in that state.
    fn is_in(&self, state: &State, deleted: &str) -> bool {
        let (plural, name) = deleted.split_once(' ').unwrap_or_default();
        let kinds = self.kinds.iter().filter(|kind| kind.plural == plural);
        kinds.into_iter().any(|kind| state.contains(&kind.kind, name))
    }

    /// The same finding with less trouble, where that is enough.
    async fn shortened(&self, finding: Finding, undisturbed: &Outcome) -> Result<Finding> {
        for shorter in finding.schedule.shorter() {
            if let Some(found) = self.judge(&shorter, undisturbed).await? {
                return Ok(found);
            }
        }
        Ok(finding)
    }

    async fn run(&self, schedule: &Schedule) -> Result<Outcome> {
        let namespace = self.plane.namespace("trial").await?;
        let identity = namespace.with_rules(self.subject.rules.clone()).await?;
        let mark = namespace.mark().await?;
        let mut run = OneRun::start(self.subject, &namespace, &identity, schedule).await?;
        let mut symptom = None;
        for act in &self.scenario.acts {
            symptom = run.play(act).await?;
            if symptom.is_some() {
                break;
            }
        }
        if symptom.is_none() {
            symptom = run.stays_still().await;
        }
        let (writes, reads) = (run.counted.writes(), run.counted.reads());
        drop(run);
        let state = State::of(&namespace.client()?, namespace.name(), &self.kinds).await?;
        let deleted = deletions(&identity, &mark).await?;
        namespace.release_addresses().await?;
        Ok(Outcome { symptom, state, deleted, writes, reads })
    }
}

async fn deletions(identity: &Identity, mark: &Mark) -> Result<BTreeMap<String, usize>> {
    let requests = identity.requests_since(mark).await?;
    let mut deleted = BTreeMap::new();
    for request in requests.iter().filter(|request| request.verb == "delete" && request.code < 300) {
        *deleted.entry(format!("{} {}", request.resource, request.name)).or_default() += 1;
    }
    Ok(deleted)
}

/// An operator that runs.
pub(crate) struct OneRun<'a> {
    subject: &'a Subject,
    identity: &'a Identity,
    stage: Stage,
    counted: Arc<Counted>,
    running: Vec<(Process, Interposer)>,
    /// The revision when the act began.
    revision: String,
    thaw_at: Option<Instant>,
}

impl<'a> OneRun<'a> {
    pub(crate) async fn start(
        subject: &'a Subject,
        namespace: &Namespace,
        identity: &'a Identity,
        schedule: &Schedule,
    ) -> Result<Self> {
        let stage = Stage { client: namespace.client()?, namespace: namespace.name().to_owned() };
        let counted = Counted::new(schedule.clone());
        let mut run = Self {
            subject,
            identity,
            stage,
            counted,
            running: Vec::new(),
            revision: String::new(),
            thaw_at: None,
        };
        for _ in 0..schedule.processes() {
            run.start_one().await?;
        }
        Ok(run)
    }

    /// For how long it wrote nothing; one that was not heard of yet is not quiet.
    pub(crate) fn quiet_for(&self) -> Duration {
        let all_run = self.running.iter().all(|(_, interposer)| interposer.has_heard());
        if all_run { self.counted.quiet_for() } else { Duration::ZERO }
    }

    /// Whether it wrote anything yet.
    pub(crate) fn has_written(&self) -> bool {
        self.counted.writes() > 0
    }

    /// Whether it ended by itself, which it should not.
    pub(crate) fn has_died(&self) -> bool {
        self.running.iter().any(|(process, _)| process.has_ended())
    }

    async fn start_one(&mut self) -> Result<()> {
        let interposer = Interposer::start(self.identity, self.counted.clone()).await?;
        if self.thaw_at.is_some() {
            interposer.proxy.freeze_at(&self.revision);
        }
        let process = Process::start(&self.subject.run, interposer.proxy.config(), &self.stage.namespace)?;
        self.running.push((process, interposer));
        Ok(())
    }

    async fn play(&mut self, act: &Act) -> Result<Option<Symptom>> {
        if let Some((_, interposer)) = self.running.first() {
            self.revision = interposer.proxy.revision().await?;
        }
        (act.run)(self.stage.clone()).await;
        let began = Instant::now();
        let mut there_since = None;
        loop {
            if let Some(alarm) = self.counted.take_alarm() {
                self.react(alarm).await?;
            }
            if self.thaw_at.is_some_and(|thaw_at| thaw_at <= Instant::now()) {
                self.thaw_at = None;
                self.running.iter().for_each(|(_, interposer)| interposer.proxy.thaw());
            }
            if self.has_died() {
                return Ok(Some(Symptom::Died));
            }
            let is_there = self.thaw_at.is_none() && (act.until)(self.stage.clone()).await;
            there_since = if is_there { there_since.or(Some(Instant::now())) } else { None };
            let there_for = there_since.map(|since| since.elapsed()).unwrap_or_default();
            if there_for >= QUIET && self.quiet_for() >= QUIET {
                return Ok(None);
            }
            if there_for >= NEVER_SETTLES {
                return Ok(self.stays_still().await.or(Some(Symptom::NeverStill(0))));
            }
            if began.elapsed() > PATIENCE {
                return Ok(Some(Symptom::NeverGotThere(act.name.clone())));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn react(&mut self, alarm: Alarm) -> Result<()> {
        match alarm {
            Alarm::Crash => self.crash().await,
            Alarm::Freeze(time) => {
                self.freeze(time).await?;
                Ok(())
            }
            Alarm::CrashIntoThePast(time) => {
                self.thaw_at = Some(Instant::now() + time);
                self.crash().await
            }
        }
    }

    async fn freeze(&mut self, time: Duration) -> Result<()> {
        self.thaw_at = Some(Instant::now() + time);
        for (_, interposer) in &self.running {
            let revision = interposer.proxy.revision().await?;
            interposer.proxy.freeze_at(&revision);
        }
        Ok(())
    }

    /// All that run die, and as many start anew.
    async fn crash(&mut self) -> Result<()> {
        let dead = std::mem::take(&mut self.running);
        let count = dead.len();
        // What a dying process still sends goes nowhere.
        dead.iter().for_each(|(_, interposer)| interposer.cut());
        drop(dead);
        for _ in 0..count {
            self.start_one().await?;
        }
        Ok(())
    }

    async fn stays_still(&self) -> Option<Symptom> {
        self.counted.is_over();
        let before = self.counted.writes();
        tokio::time::sleep(STILL).await;
        let written = self.counted.writes() - before;
        (written > 0).then_some(Symptom::NeverStill(written))
    }
}
