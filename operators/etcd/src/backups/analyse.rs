//! Analyse: from what was seen of an EtcdBackup to what is to be done. Pure.

use std::time::Duration;

use kube::ResourceExt as _;
use wheelhouse::{
    Event, Plan,
    jiff::{SignedDuration, Timestamp},
    plan::{Condition, Conditions},
};

use super::{
    Seen, children,
    retention::{part, with},
    schedule::{self, Schedule},
};
use crate::{
    api::backup::{EtcdBackupStatus, Kept, Place, Progress, REMEMBERED, Stage, Trouble},
    backup::Outcome,
    worker::{Ended, WorkerSeen, foremost, name_beside, of_name},
};

/// The first pause before another attempt; each is twice as long as the one before.
const FIRST_PAUSE: i64 = 10;
/// The longest.
const LONGEST_PAUSE: i64 = 300;
/// How many files one pod removes.
const REMOVED_AT_ONCE: usize = 20;
/// What was written is looked at again so soon.
const SOON: Duration = Duration::from_millis(50);

/// What is to be done about one EtcdBackup.
pub(super) fn analyse(seen: &Seen) -> Plan {
    let mut plan = Plan::new();
    if seen.backup.metadata.deletion_timestamp.is_some() || !seen.is_ours {
        return plan;
    }
    let mut turn = Turn::of(seen);
    let schedule = Schedule::of(&seen.backup.spec);
    if let (Ok(schedule), Some(place)) = (&schedule, seen.backup.spec.place()) {
        plan.apply(&children::service_account(&seen.backup), "who takes backups is somebody of their own");
        plan.apply(&children::role(&seen.backup), "who takes a backup may say how far it is");
        plan.apply(&children::role_binding(&seen.backup), "who takes a backup may say how far it is");
        turn.hear();
        turn.begin(schedule);
        turn.let_go();
        turn.make_saver(&mut plan);
        turn.make_remover(&mut plan, &place);
        turn.remove_pod(&mut plan);
    }
    turn.finish(plan, &schedule)
}

/// One look at an EtcdBackup.
struct Turn<'a> {
    seen: &'a Seen,
    name: String,
    /// What the status was.
    last: EtcdBackupStatus,
    /// What it becomes.
    status: EtcdBackupStatus,
    events: Vec<Event>,
    /// When to look again, at the latest.
    again: Option<Timestamp>,
}

impl<'a> Turn<'a> {
    fn of(seen: &'a Seen) -> Self {
        let last = seen.backup.status.clone().unwrap_or_default();
        Self {
            seen,
            name: seen.backup.name_any(),
            status: last.clone(),
            last,
            events: Vec::new(),
            again: None,
        }
    }

    fn made(&self) -> Timestamp {
        self.seen.backup.metadata.creation_timestamp.as_ref().map_or(self.seen.now, |time| time.0)
    }

    /// The pods of the backup for that time: one, and those beside it that are stuck.
    fn savers(&self, scheduled: Timestamp) -> impl Iterator<Item = &'a WorkerSeen> + use<'a> {
        of_name(&children::saver_name(&self.name, scheduled), &self.seen.pods).collect::<Vec<_>>().into_iter()
    }

    /// The pod of the present backup.
    fn saver(&self) -> Option<&'a WorkerSeen> {
        foremost(self.savers(self.last.last_scheduled?), self.seen.now)
    }

    /// Whether somebody is at the present backup, or has ended and is not heard yet.
    fn has_saver(&self) -> bool {
        self.saver().is_some_and(|pod| !pod.is_stuck(self.seen.now))
    }

    /// The name of that pod, for people.
    fn saver_name(&self, scheduled: Timestamp) -> String {
        let saver = foremost(self.savers(scheduled), self.seen.now);
        saver.map_or_else(|| children::saver_name(&self.name, scheduled), |pod| pod.reference.name.clone())
    }

    fn removers(&self) -> impl Iterator<Item = &'a WorkerSeen> {
        let prefix = children::remover_prefix(&self.name);
        self.seen.pods.iter().filter(move |pod| pod.reference.name.starts_with(&prefix))
    }

    /// Whether the backup for that time is there.
    fn is_taken(status: &EtcdBackupStatus, scheduled: Timestamp) -> bool {
        status.history.iter().any(|kept| kept.scheduled == scheduled)
    }

    fn look_again_at(&mut self, time: Timestamp) {
        self.again = Some(self.again.map_or(time, |known| known.min(time)));
    }

    /// Takes what pods said into the status.
    fn hear(&mut self) {
        for pod in &self.seen.pods {
            self.look_after(pod);
            let Some(ended) = &pod.ended else { continue };
            match &ended.outcome {
                Outcome::Good { path, scheduled, at, content } => {
                    let scheduled = scheduled.unwrap_or(*at);
                    if !self.last.history.iter().any(|kept| kept.path == *path)
                        && !self.last.leaving.contains(path)
                    {
                        let kept = Kept { path: path.clone(), scheduled, at: *at, content: content.clone() };
                        self.keep(kept);
                    }
                }
                Outcome::Removed { paths, left, whole } => self.forget(paths, left, whole),
                Outcome::Refused { message } => self.note_failure(pod, ended, message, true),
                Outcome::Failed { message } => self.note_failure(pod, ended, message, false),
            }
        }
    }

    /// A pod that takes a backup which was given up: whoever made it acted on old news. What it leaves is to go.
    fn look_after(&mut self, pod: &WorkerSeen) {
        let is_good = matches!(&pod.ended, Some(Ended { outcome: Outcome::Good { .. }, .. }));
        let mut present = self.last.last_scheduled.into_iter().flat_map(|time| self.savers(time));
        let is_of_now = present.any(|saver| saver.reference.uid == pod.reference.uid);
        let Some(path) = pod.path.as_ref().filter(|_| !is_good && !is_of_now) else { return };
        let status = &self.status;
        let is_known = status.history.iter().any(|kept| kept.path == *path)
            || status.leaving.contains(path)
            || status.unfinished.contains(path);
        if !is_known {
            self.status.unfinished.push(path.clone());
        }
    }

    /// Whether the present backup is there: then whoever else was at it, and is heard only now, failed in nothing.
    fn is_done(&self) -> bool {
        self.last.last_scheduled.is_some_and(|present| Self::is_taken(&self.status, present))
    }

    fn is_saver(&self, pod: &WorkerSeen) -> bool {
        self.saver().is_some_and(|saver| saver.reference.uid == pod.reference.uid)
    }

    fn keep(&mut self, kept: Kept) {
        let status = &mut self.status;
        self.events.push(Event::normal(
            "BackedUp",
            format!(
                "Backup {}: revision {}, {} bytes, verified",
                kept.path, kept.content.revision, kept.content.size
            ),
        ));
        if Some(kept.scheduled) == self.last.last_scheduled {
            status.succeeded = true;
            status.reason = String::new();
            status.failure = None;
            status.last_success_date = Some(kept.at);
        }
        status.history = with(std::mem::take(&mut status.history), kept);
    }

    fn forget(&mut self, paths: &[String], left: &[String], whole: &[Kept]) {
        let status = &mut self.status;
        let is_over = |path: &String| paths.contains(path) || left.contains(path);
        let is_whole = |path: &String| whole.iter().any(|kept| kept.path == *path);
        let known = status.leaving.len() + status.unfinished.len();
        status.leaving.retain(|path| !is_over(path));
        status.unfinished.retain(|path| !is_over(path) && !is_whole(path));
        if known == status.leaving.len() + status.unfinished.len() {
            return;
        }
        for path in left {
            let note = format!("{path} is somebody else's by now, and is left alone");
            self.events.push(Event::warning("LeftAlone", note));
        }
        if !paths.is_empty() {
            self.events.push(Event::normal("Removed", format!("Removed {}", paths.join(", "))));
        }
        for kept in whole {
            if self.last.unfinished.contains(&kept.path) {
                self.keep(kept.clone());
            }
        }
    }

    fn note_failure(&mut self, pod: &WorkerSeen, ended: &Ended, message: &str, refused: bool) {
        let known = self.last.failure.as_ref();
        if !self.is_saver(pod) || self.is_done() || known.is_some_and(|known| known.pod == pod.reference.uid)
        {
            return;
        }
        self.status.failure = Some(Trouble {
            attempts: known.map_or(0, |known| known.attempts) + 1,
            at: ended.at,
            message: message.to_owned(),
            refused,
            pod: pod.reference.uid.clone(),
        });
        self.status.succeeded = false;
        message.clone_into(&mut self.status.reason);
        self.events.push(Event::warning("BackupFailed", message));
    }

    /// Begins the backup for the time that has come; the one before it is given up then, unless a pod is at it.
    fn begin(&mut self, schedule: &Schedule) {
        let spec = &self.seen.backup.spec;
        let (made, now) = (self.made(), self.seen.now);
        self.status.next = schedule.next(made, now).filter(|_| !spec.paused);
        if let Some(next) = self.status.next {
            self.look_again_at(next);
        }
        let present = self.last.last_scheduled;
        let Some(due) = schedule.due(made, present, now).filter(|_| !spec.paused) else { return };
        let untaken = present.filter(|present| !Self::is_taken(&self.status, *present));
        if untaken.is_some() && self.saver().is_some_and(WorkerSeen::is_at_it) {
            return;
        }
        if let Some(place) = untaken.and_then(|untaken| schedule::place(spec, untaken)) {
            let path = place.path().to_owned();
            let note = format!("Gave up {path}: the next one is due");
            self.events.push(Event::warning("GivenUp", note));
            if !self.status.unfinished.contains(&path) {
                self.status.unfinished.push(path);
            }
        }
        self.status.last_scheduled = Some(due);
        self.status.failure = None;
    }

    /// Lets go of old backups.
    fn let_go(&mut self) {
        let retention = self.seen.backup.spec.retention();
        let history = std::mem::take(&mut self.status.history);
        let (mut stay, go) = part(history, retention.as_ref(), self.seen.now);
        self.status.leaving.extend(go.into_iter().map(|kept| kept.path));
        // What leaves is none any more, whoever said otherwise meanwhile.
        stay.retain(|kept| !self.status.leaving.contains(&kept.path));
        for forgotten in stay.iter().skip(REMEMBERED) {
            let note = format!("{} stays where it is, and is not looked after any more", forgotten.path);
            self.events.push(Event::warning("Forgotten", note));
        }
        stay.truncate(REMEMBERED);
        if let Some(keep_for) = retention.and_then(|retention| retention.keep_for_seconds)
            && let Some(oldest) = stay.last().filter(|_| stay.len() > 1)
        {
            let end = oldest.scheduled.saturating_add(SignedDuration::from_secs(keep_for + 1));
            self.look_again_at(end.unwrap_or(Timestamp::MAX));
        }
        self.status.history = stay;
    }

    /// The time for which a backup is to be taken, where the status that was read says so.
    fn to_take(&self) -> Option<Timestamp> {
        let present = self.last.last_scheduled?;
        let stands = self.status.last_scheduled == Some(present) && !Self::is_taken(&self.status, present);
        stands.then_some(present)
    }

    /// When the next attempt may begin, if one failed; never, if that would change nothing.
    fn may_try_at(&self) -> Option<Timestamp> {
        let Some(failure) = &self.last.failure else { return Some(Timestamp::MIN) };
        let is_changed =
            self.saver().is_none_or(|pod| pod.generation != self.seen.backup.metadata.generation);
        match () {
            () if is_changed => Some(Timestamp::MIN),
            () if failure.refused => None,
            () => {
                let doubled = FIRST_PAUSE << failure.attempts.saturating_sub(1).min(10);
                let pause = SignedDuration::from_secs(doubled.min(LONGEST_PAUSE));
                failure.at.saturating_add(pause).ok()
            }
        }
    }

    fn make_saver(&mut self, plan: &mut Plan) {
        let Some(scheduled) = self.to_take() else { return };
        let spec = &self.seen.backup.spec;
        let (false, Ok(endpoints)) = (self.has_saver(), &self.seen.source) else { return };
        let Some(place) = schedule::place(spec, scheduled) else { return };
        let Seen { backup, client_secret, image, pods, .. } = self.seen;
        let name = name_beside(&children::saver_name(&self.name, scheduled), pods);
        let pod =
            children::saver(backup, name, scheduled, &place, endpoints, client_secret.as_deref(), image);
        plan.create(&pod, format!("the backup for {scheduled} is to be taken"));
    }

    /// Whether a backup is being taken, or is about to be.
    fn is_saving(&self) -> bool {
        let savers = self.seen.pods.iter().filter(|pod| pod.is_at_it());
        let removers: Vec<_> = self.removers().map(|pod| &pod.reference.uid).collect();
        savers.into_iter().any(|pod| !removers.contains(&&pod.reference.uid))
    }

    /// Whether there is a pod that may yet write this file, on a node that nobody reaches: what it leaves can be removed
    /// once it is gone.
    fn is_written(&self, path: &String) -> bool {
        self.seen.pods.iter().any(|pod| pod.ended.is_none() && pod.path.as_ref() == Some(path))
    }

    fn make_remover(&self, plan: &mut Plan, place: &Place) {
        if self.is_saving() || self.removers().any(|pod| !pod.is_stuck(self.seen.now)) {
            return;
        }
        // What the status that was read says already: it is known for as long as there is anything of it.
        let known = |before: &[String], now: &[String]| -> Vec<String> {
            let both = now.iter().filter(|path| before.contains(path) && !self.is_written(path));
            both.take(REMOVED_AT_ONCE).cloned().collect()
        };
        let leaving = known(&self.last.leaving, &self.status.leaving);
        let unfinished = known(&self.last.unfinished, &self.status.unfinished);
        if leaving.is_empty() && unfinished.is_empty() {
            return;
        }
        let name = children::remover_name(&self.name, &leaving, &unfinished);
        let name = name_beside(&name, &self.seen.pods);
        let pod = children::remover(&self.seen.backup, name, place, &leaving, &unfinished, &self.seen.image);
        plan.create(&pod, format!("{} files are to go", leaving.len() + unfinished.len()));
    }

    /// Removes the first pod that is of no use any more: what it said is in the status that was read.
    fn remove_pod(&mut self, plan: &mut Plan) {
        let mut chosen = None;
        for pod in &self.seen.pods {
            if pod.reference.terminating {
                // By then it is gone, or stuck.
                let by = pod.gone_by.filter(|by| *by >= self.seen.now);
                by.into_iter().for_each(|by| self.look_again_at(by));
                continue;
            }
            match self.of_no_use_since(pod) {
                Some((since, why)) if since <= self.seen.now => chosen = chosen.or(Some((pod, why))),
                Some((since, _)) => self.look_again_at(since),
                None => {}
            }
        }
        if let Some((pod, why)) = chosen {
            plan.delete(pod.reference.clone(), why);
        }
    }

    fn of_no_use_since(&self, pod: &WorkerSeen) -> Option<(Timestamp, &'static str)> {
        let is_old = pod.generation != self.seen.backup.metadata.generation;
        let Some(ended) = &pod.ended else {
            let is_stuck = is_old && !pod.is_running;
            return is_stuck
                .then_some((Timestamp::MIN, "it has not begun, and something else is wanted by now"));
        };
        let is_said = Some((Timestamp::MIN, "what it said is in the status"));
        match &ended.outcome {
            Outcome::Good { path, .. } => {
                let is_known = self.last.history.iter().any(|kept| kept.path == *path)
                    || self.last.leaving.contains(path);
                is_said.filter(|_| is_known)
            }
            Outcome::Removed { paths, left, whole } => {
                let (leaving, unfinished) = (&self.last.leaving, &self.last.unfinished);
                let is_listed = |path: &String| leaving.contains(path) || unfinished.contains(path);
                let is_open = paths.iter().chain(left).any(is_listed)
                    || whole.iter().any(|kept| unfinished.contains(&kept.path));
                is_said.filter(|_| !is_open)
            }
            _ if self.is_saver(pod) && !self.is_done() => {
                let known =
                    self.last.failure.as_ref().is_some_and(|failure| failure.pod == pod.reference.uid);
                self.may_try_at().filter(|_| known).map(|time| (time, "it is time for another attempt"))
            }
            _ if pod.path.is_some() => Some((Timestamp::MIN, "it was given up")),
            // One that removes.
            _ => {
                let pause = SignedDuration::from_secs(LONGEST_PAUSE);
                ended.at.saturating_add(pause).ok().map(|time| (time, "it is time for another attempt"))
            }
        }
    }

    fn finish(mut self, mut plan: Plan, schedule: &Result<Schedule, String>) -> Plan {
        let generation = self.seen.backup.metadata.generation;
        if let Some(last) = self.status.history.first() {
            self.status.etcd_version =
                last.content.etcd_version.map(|version| version.to_string()).unwrap_or_default();
            self.status.etcd_revision = Some(last.content.revision);
            self.status.size = Some(last.content.size);
        }
        self.status.kept = u32::try_from(self.status.history.len()).unwrap_or(u32::MAX);
        self.status.observed_generation = generation;
        self.status.progress = self.progress();
        let mut conditions = Conditions::from_last(&self.last.conditions, generation, self.seen.now);
        conditions.set(self.readiness(schedule));
        conditions.set(self.failing());
        if self.seen.backup.spec.is_repeated() {
            conditions.set(self.scheduling(schedule));
        }
        self.status.conditions = conditions.into_vec();
        for event in self.events {
            plan.tell(event);
        }
        if let Some(again) = self.again {
            let seconds = again.duration_since(self.seen.now).as_secs().max(0).unsigned_abs();
            plan.look_again_after(Duration::from_secs(seconds + 1));
        }
        let is_news = |status: &EtcdBackupStatus| {
            (status.last_scheduled, status.history.clone(), status.leaving.clone(), status.unfinished.clone())
        };
        if is_news(&self.status) != is_news(&self.last) || self.status.failure != self.last.failure {
            plan.look_again_after(SOON);
        }
        plan.set_status(&self.status);
        plan
    }

    /// How far it is: the pod says so while it runs.
    fn progress(&self) -> Option<Progress> {
        let scheduled = self.status.last_scheduled?;
        let pod = self.saver_name(scheduled);
        let at = |stage, bytes| Progress { pod: pod.clone(), stage, bytes, total: bytes };
        if Self::is_taken(&self.status, scheduled) {
            let size = self.status.history.iter().find(|kept| kept.scheduled == scheduled);
            return Some(at(Stage::Done, size.map(|kept| kept.content.size).unwrap_or_default()));
        }
        if self.status.failure.is_some() && self.saver().is_none_or(|pod| pod.ended.is_some()) {
            return Some(at(Stage::Waiting, 0));
        }
        let told = self.last.progress.clone().filter(|told| told.pod == pod);
        let told = told.filter(|told| !matches!(told.stage, Stage::Done | Stage::Waiting));
        Some(told.unwrap_or_else(|| at(Stage::Starting, 0)))
    }

    fn readiness(&self, schedule: &Result<Schedule, String>) -> Condition {
        let condition = |holds: bool, reason: &str, message: String| Condition {
            kind: "Ready",
            status: holds.into(),
            reason: reason.to_owned(),
            message,
        };
        let is_there = !self.status.history.is_empty();
        let scheduled = self.status.last_scheduled;
        let is_taken = scheduled.is_some_and(|scheduled| Self::is_taken(&self.status, scheduled));
        match (schedule, &self.status.failure, &self.seen.source) {
            (Err(why), ..) => condition(false, "Invalid", why.clone()),
            (_, Some(failure), _) => condition(false, "Failing", self.what_failed(failure)),
            _ if self.seen.last_failure.is_some() => {
                let failure = self.seen.last_failure.as_ref();
                condition(
                    false,
                    "Failing",
                    failure.map(|failure| failure.message.clone()).unwrap_or_default(),
                )
            }
            _ if scheduled.is_some() && !is_taken && !self.has_saver() && self.seen.source.is_err() => {
                let why = self.seen.source.as_ref().err().cloned().unwrap_or_default();
                condition(false, "NoEtcd", format!("the backup waits: {why}"))
            }
            _ if scheduled.is_some() && !is_taken => {
                let waits = self.saver().and_then(|pod| pod.waits_for.as_ref());
                let waits = waits.map(|why| format!(", which waits: {why}")).unwrap_or_default();
                let pod = scheduled.map(|scheduled| self.saver_name(scheduled));
                let message = format!("pod {} takes a backup{waits}", pod.unwrap_or_default());
                condition(is_there, "Running", message)
            }
            _ => match self.status.history.first() {
                Some(last) => condition(
                    true,
                    "BackedUp",
                    format!(
                        "the last backup is {}: revision {}, {} bytes",
                        last.path, last.content.revision, last.content.size
                    ),
                ),
                None => condition(false, "Waiting", "no backup was due yet".to_owned()),
            },
        }
    }

    fn what_failed(&self, failure: &Trouble) -> String {
        let Trouble { attempts, message, refused, .. } = failure;
        let advice = match (refused, self.seen.backup.spec.is_repeated()) {
            (true, false) => "it is tried again when the spec changes",
            (true, true) => "it is tried again when the spec changes, or when the next one is due",
            (false, _) => "it is tried again",
        };
        format!("attempt {attempts} failed: {message}; {advice}")
    }

    fn failing(&self) -> Condition {
        let is_failing = self.status.failure.is_some() || !self.status.reason.is_empty();
        Condition {
            kind: "Failed",
            status: is_failing.into(),
            reason: if is_failing { "BackupFailed" } else { "NoFailure" }.to_owned(),
            message: match &self.status.failure {
                Some(failure) => self.what_failed(failure),
                None if is_failing => format!("the last backup failed: {}", self.status.reason),
                None => "the last backup did not fail".to_owned(),
            },
        }
    }

    fn scheduling(&self, schedule: &Result<Schedule, String>) -> Condition {
        let (holds, reason, message) = match (schedule, self.status.next) {
            (Err(why), _) => (false, "Invalid", why.clone()),
            _ if self.seen.backup.spec.paused => {
                (false, "Paused", "no backup begins: spec.paused".to_owned())
            }
            (_, Some(next)) => (true, "Scheduled", format!("the next backup is due at {next}")),
            (_, None) => (false, "Never", "there is no time that the schedule names".to_owned()),
        };
        Condition { kind: "Scheduled", status: holds.into(), reason: reason.to_owned(), message }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::{Value, json};
    use wheelhouse::{Kind, Reference, Step};

    use super::*;

    const TIME: &str = "2026-05-02T03:00:00Z";

    fn seen(status: Value, pods: Vec<WorkerSeen>) -> Seen {
        let backup = json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2",
            "kind": "EtcdBackup",
            "metadata": {"name": "b", "namespace": "n", "uid": "u", "generation": 1, "creationTimestamp": TIME},
            "spec": {"etcdEndpoints": ["http://e:2379"], "volume": {"claim": "c", "path": "db"}},
            "status": status,
        });
        Seen {
            backup: serde_json::from_value(backup).unwrap(),
            is_ours: true,
            image: "i".to_owned(),
            source: Ok(vec!["http://e:2379".to_owned()]),
            client_secret: None,
            pods,
            last_failure: None,
            now: "2026-05-02T04:00:00Z".parse().unwrap(),
        }
    }

    /// A pod that was to be gone by then; one that stays, if that is not said.
    fn pod(name: &str, uid: &str, gone_by: Option<&str>) -> WorkerSeen {
        let reference = Reference {
            kind: Kind::of::<Pod>(&()),
            namespace: Some("n".to_owned()),
            name: name.to_owned(),
            uid: uid.to_owned(),
            resource_version: "1".to_owned(),
            terminating: gone_by.is_some(),
        };
        WorkerSeen {
            reference,
            generation: Some(1),
            path: (!name.contains("remove")).then(|| "db".to_owned()),
            ended: None,
            gone_by: gone_by.map(|time| time.parse().unwrap()),
            is_running: true,
            waits_for: None,
        }
    }

    fn made(seen: &Seen) -> Vec<String> {
        let plan = analyse(seen);
        let made = plan.steps.iter().filter_map(|planned| match &planned.step {
            Step::Create(object) => Some(object.name().to_owned()),
            _ => None,
        });
        made.collect()
    }

    const SAVER: &str = "b-20260502030000";
    const BEFORE: Option<&str> = Some("2026-05-02T03:20:00Z");
    const LATER: Option<&str> = Some("2026-05-02T04:00:30Z");

    #[test]
    fn a_backup_on_a_node_that_is_gone_is_taken_by_another_pod() {
        let begun = |pods| seen(json!({"lastScheduled": TIME}), pods);
        assert_eq!(made(&begun(vec![])), [SAVER]);
        let going = begun(vec![pod(SAVER, "one-uid", LATER)]);
        assert_eq!(made(&going), [""; 0], "it may be gone in a moment");
        assert_eq!(analyse(&going).look_again_after, Some(Duration::from_secs(31)));
        let stuck = || pod(SAVER, "one-uid", BEFORE);
        assert_eq!(made(&begun(vec![stuck()])), [format!("{SAVER}-one-u")]);
        let there = begun(vec![stuck(), pod(&format!("{SAVER}-one-u"), "two-uid", None)]);
        assert_eq!(made(&there), [""; 0], "one is enough");
        let status = analyse(&there).status.unwrap();
        assert_eq!(status["conditions"][0]["message"], format!("pod {SAVER}-one-u takes a backup"));
        assert!(status.get("unfinished").is_none(), "nothing is given up: {status}");
        let next = begun(vec![stuck(), pod(&format!("{SAVER}-one-u"), "two-uid", BEFORE)]);
        assert_eq!(made(&next), [format!("{SAVER}-two-u")]);
    }

    #[test]
    fn who_ended_on_a_node_that_came_back_is_heard_and_counts_for_no_attempt() {
        let ended = |outcome: Outcome| {
            let at = TIME.parse().unwrap();
            let back = WorkerSeen { ended: Some(Ended { outcome, at }), ..pod(SAVER, "one-uid", BEFORE) };
            let seen = seen(
                json!({"lastScheduled": TIME}),
                vec![back, pod(&format!("{SAVER}-one-u"), "two-uid", None)],
            );
            analyse(&seen).status.unwrap()
        };
        let failed = ended(Outcome::Failed { message: "killed".to_owned() });
        assert!(failed.get("failure").is_none(), "another is at it: {failed}");
        let good = json!({"outcome": "Good", "path": "db", "scheduled": TIME, "at": TIME, "size": 1, "sha256": "ab", "revision": 1});
        let good = ended(serde_json::from_value(good).unwrap());
        assert_eq!(good["history"][0]["path"], "db");
    }

    #[test]
    fn who_comes_back_when_another_has_taken_the_backup_failed_in_nothing() {
        let kept =
            json!({"path": "db", "scheduled": TIME, "at": TIME, "size": 1, "sha256": "ab", "revision": 1});
        let status = json!({"lastScheduled": TIME, "succeeded": true, "history": [kept]});
        let outcome = Outcome::Failed { message: "another pod has taken over".to_owned() };
        let ended = Some(Ended { outcome, at: TIME.parse().unwrap() });
        let goes =
            seen(status.clone(), vec![WorkerSeen { ended: ended.clone(), ..pod(SAVER, "one-uid", BEFORE) }]);
        let stays =
            seen(status, vec![WorkerSeen { ended, is_running: false, ..pod(SAVER, "one-uid", None) }]);
        for seen in [&goes, &stays] {
            let plan = analyse(seen);
            let status = plan.status.unwrap();
            assert!(status.get("failure").is_none() && status["succeeded"] == true, "{status}");
            assert_eq!(status["conditions"][0]["reason"], "BackedUp", "{status}");
            assert!(plan.events.is_empty(), "{:?}", plan.events);
        }
        let deletes = |seen| analyse(seen).steps.iter().any(|planned| planned.step.is_destructive());
        assert!(deletes(&stays) && !deletes(&goes));
    }

    #[test]
    fn removing_goes_on_beside_a_pod_that_never_goes() {
        let leaving = json!({"leaving": ["db_1"]});
        let [name] = made(&seen(leaving.clone(), vec![])).try_into().unwrap();
        assert_eq!(made(&seen(leaving.clone(), vec![pod(&name, "one-uid", LATER)])), [""; 0]);
        let stuck = seen(leaving, vec![pod(&name, "one-uid", BEFORE)]);
        assert_eq!(made(&stuck), [format!("{name}-one-u")]);
    }

    #[test]
    fn what_a_pod_may_yet_write_is_removed_once_that_is_gone() {
        let given_up = |pods| seen(json!({"unfinished": ["db"]}), pods);
        assert_eq!(made(&given_up(vec![])).len(), 1);
        let stuck = given_up(vec![pod("b-20260501030000", "one-uid", BEFORE)]);
        assert_eq!(made(&stuck), [""; 0], "again and again");
        assert_eq!(analyse(&stuck).status.unwrap()["unfinished"], json!(["db"]));
    }
}
