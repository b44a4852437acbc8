//! A model of what Gordons live in: pods that start, fail and go, by chance.

use gordon_operator::{
    api::{Gordon, GordonSpec, Gordons},
    observe::{PodSeen, Seen},
};
use rand::{RngExt as _, rngs::SmallRng};
use wheelhouse::{
    Kind, Plan, Reference, Step,
    jiff::{SignedDuration, Timestamp},
    plan::Object,
};

/// What pods of a Gordon without image and template are made for.
const MADE_FOR: &str = "95cb9b4f84ce";

pub(crate) fn pod(name: &str, phase: &str, ready: bool) -> PodSeen {
    PodSeen {
        reference: Reference {
            kind: Kind {
                group: String::new(),
                version: "v1".into(),
                kind: "Pod".into(),
                plural: "pods".into(),
            },
            namespace: Some("n".into()),
            name: name.to_owned(),
            uid: format!("uid-of-{name}"),
            resource_version: "1".into(),
            terminating: false,
        },
        phase: phase.to_owned(),
        ready,
        node: None,
        made_for: Some(MADE_FOR.to_owned()),
        created: Timestamp::UNIX_EPOCH,
    }
}

pub(crate) fn seen(wanted: i32, pods: Vec<PodSeen>) -> Seen {
    let mut gordon =
        Gordon::new("g", GordonSpec { gordon: Gordons { replicas: wanted, ..Gordons::default() } });
    gordon.metadata.namespace = Some("n".into());
    gordon.metadata.generation = Some(1);
    let now = "2026-11-16T00:00:00Z".parse().unwrap();
    Seen { gordon, image: "a".into(), pods, taken_names: Default::default(), last_failure: None, now }
}

/// A Gordon, its pods, and a clock.
#[derive(Debug)]
pub(crate) struct World {
    gordon: Gordon,
    pub(crate) pods: Vec<PodSeen>,
    now: Timestamp,
    made: u64,
}

impl World {
    /// Any world: also those that no operator would lead to.
    pub(crate) fn random(random: &mut SmallRng) -> Self {
        let Seen { mut gordon, now, .. } = seen(random.random_range(0..8), Vec::new());
        if random.random_bool(0.2) {
            gordon.spec.gordon.image = Some("another".into());
        }
        let mut world = Self { gordon, pods: Vec::new(), now, made: 0 };
        for index in 0..12 {
            if random.random_bool(0.4) {
                let name =
                    if random.random_bool(0.05) { format!("odd-{index}") } else { format!("g-{index}") };
                let phase = ["Pending", "Running", "Running", "Failed", "Succeeded", "Unknown"]
                    [random.random_range(0..6)];
                let mut pod = pod(&name, phase, phase == "Running" && random.random_bool(0.7));
                pod.reference.terminating = random.random_bool(0.2);
                pod.created = now - SignedDuration::from_secs(random.random_range(0..30));
                if random.random_bool(0.2) {
                    pod.made_for = [None, Some("of-old".to_owned())][random.random_range(0..2)].clone();
                }
                world.pods.push(pod);
            }
        }
        world
    }

    /// The pods that are there and do not go.
    pub(crate) fn live_pods(&self) -> usize {
        self.pods.iter().filter(|pod| !pod.reference.terminating).count()
    }

    pub(crate) fn wanted(&self) -> i32 {
        self.gordon.spec.gordon.replicas
    }

    pub(crate) fn observe(&self) -> Seen {
        Seen {
            gordon: self.gordon.clone(),
            image: "a".into(),
            pods: self.pods.clone(),
            taken_names: Default::default(),
            last_failure: None,
            now: self.now,
        }
    }

    /// Does what a plan says. Now and then it is broken off before a step, as by
    /// a crash, or a step takes effect and nobody hears of it, which is the same to
    /// this model. True if the status is another one now.
    pub(crate) fn follow(&mut self, plan: &Plan, random: &mut SmallRng) -> bool {
        for planned in &plan.steps {
            if random.random_bool(0.05) {
                return true;
            }
            match &planned.step {
                Step::Create(object) => self.create(object),
                Step::Delete { target, .. } => self.delete(target),
                other => panic!("Gordon never does this: {other}"),
            }
        }
        let status = plan.status.clone().map(|status| serde_json::from_value(status).unwrap());
        let is_new = status != self.gordon.status;
        self.gordon.status = status;
        is_new
    }

    fn create(&mut self, object: &Object) {
        assert!(
            !self.pods.iter().any(|pod| pod.reference.name == object.name()),
            "{} is there already",
            object.name()
        );
        self.made += 1;
        let mut pod = pod(object.name(), "Pending", false);
        pod.reference.uid = format!("made-{}", self.made);
        let wanted = object.content.pointer("/metadata/annotations/operator.prgcont.cz~1wanted").unwrap();
        pod.made_for = wanted.as_str().map(str::to_owned);
        pod.created = self.now;
        self.pods.push(pod);
    }

    fn delete(&mut self, target: &Reference) {
        let pod = self
            .pods
            .iter_mut()
            .find(|pod| pod.reference.uid == target.uid)
            .expect("only what is there is deleted");
        assert!(!pod.reference.terminating, "it goes already");
        pod.reference.terminating = true;
    }

    /// Pods go on by themselves; some fail, as long as there is trouble.
    pub(crate) fn pass_time(&mut self, random: &mut SmallRng, trouble: bool) {
        self.now += SignedDuration::from_secs(random.random_range(1..8));
        self.pods.retain(|pod| !pod.reference.terminating || random.random_bool(0.5));
        for pod in &mut self.pods {
            match pod.phase.as_str() {
                "Pending" | "Unknown" => pod.phase = "Running".to_owned(),
                "Running" if trouble && random.random_bool(0.2) => {
                    pod.phase = "Failed".to_owned();
                    pod.ready = false;
                }
                "Running" => pod.ready = true,
                _ => {}
            }
        }
    }

    /// Whether something happens without the operator.
    pub(crate) fn goes_on(&self) -> bool {
        self.pods.iter().any(|pod| {
            pod.reference.terminating
                || matches!(pod.phase.as_str(), "Pending" | "Unknown")
                || (pod.phase == "Running" && !pod.ready)
        })
    }

    pub(crate) fn is_as_wanted(&self) -> bool {
        let mut names: Vec<_> = self.pods.iter().map(|pod| pod.reference.name.clone()).collect();
        names.sort();
        let mut wanted: Vec<_> = (0..self.wanted()).map(|index| format!("g-{index}")).collect();
        wanted.sort();
        names == wanted && self.pods.iter().all(|pod| pod.ready)
    }
}
