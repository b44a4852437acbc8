//! [`Plan`]: what is to be done, as plain data.
//!
//! A plan is what `analyse` returns and what act carries out, step by step, in
//! order. It can be logged, shown, compared and replayed. A plan has at most one
//! destructive step, and it is the last: whatever else was decided on the same
//! observation is done by then, and the next decision sees the world as it is.

mod certify;
mod conditions;
mod event;
mod step;

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use certify::{Certified, Certify, Leaf};
pub use conditions::{Condition, ConditionStatus, Conditions};
pub use event::{Event, EventType};
pub use step::{Action, EnsureSecret, Exec, Guard, NoAction, Object, Reference, SecretValue, Step};

use crate::{
    error::{Category, Error},
    kind::Whole,
};

/// What is to be done for one resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "A: Deserialize<'de>"))]
pub struct Plan<A = NoAction> {
    /// What to do, in order. The first failure ends it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Planned<A>>,
    /// What the resource's status is to be. Written only if it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Value>,
    /// What people are to be told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
    /// When to look again even if nothing changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub look_again_after: Option<Duration>,
    /// What makes this plan none, and why nothing of it may be done.
    #[serde(skip)]
    flaw: Option<String>,
}

/// A step, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Planned<A> {
    /// What to do.
    pub step: Step<A>,
    /// Why, in words that a person understands.
    pub because: String,
}

impl<A> Default for Plan<A> {
    fn default() -> Self {
        Self { steps: Vec::new(), status: None, events: Vec::new(), look_again_after: None, flaw: None }
    }
}

impl<A> Plan<A> {
    /// To do nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether nothing is to be done but, perhaps, to write the status.
    pub fn is_quiet(&self) -> bool {
        self.steps.is_empty()
    }

    /// Adds a step.
    pub fn step(&mut self, step: Step<A>, because: impl Into<String>) {
        self.steps.push(Planned { step, because: because.into() });
    }

    /// This child is to be so. What is not mentioned is left alone, what was
    /// mentioned before and no longer is goes away.
    pub fn apply<K: Whole>(&mut self, child: &K, because: impl Into<String>) {
        self.step(Step::Apply(Object::of(child)), because);
    }

    /// This child is to be made. If there is one of that name already, the world
    /// is observed again.
    pub fn create<K: Whole>(&mut self, child: &K, because: impl Into<String>) {
        self.step(Step::Create(Object::of(child)), because);
    }

    /// This very object is to go.
    pub fn delete(&mut self, target: Reference, because: impl Into<String>) {
        self.step(Step::Delete { target, guard: Guard::Identity }, because);
    }

    /// Of these children the first that nobody wants any more is to go; the
    /// others follow, one plan each. Children that are going already are left to it.
    pub fn prune(&mut self, children: &[Reference], is_wanted: impl Fn(&Reference) -> bool) {
        let unwanted = children.iter().find(|child| !child.terminating && !is_wanted(child));
        if let Some(child) = unwanted {
            self.delete(child.clone(), format!("{} {} is no longer wanted", child.kind, child.name));
        }
    }

    /// A step that only the operator knows.
    pub fn act(&mut self, action: A, because: impl Into<String>) {
        self.step(Step::Act(action), because);
    }

    /// What the status is to be.
    pub fn set_status(&mut self, status: &impl Serialize) {
        match serde_json::to_value(status) {
            Ok(status) => self.status = Some(status),
            Err(error) => self.flaw = Some(format!("its status is not JSON: {error}")),
        }
    }

    /// People are to be told.
    pub fn tell(&mut self, event: Event) {
        self.events.push(event);
    }

    /// Look again after that time, even if nothing changes. The shortest counts.
    pub fn look_again_after(&mut self, delay: Duration) {
        self.look_again_after = Some(self.look_again_after.map_or(delay, |known| known.min(delay)));
    }
}

impl<A: Action> Plan<A> {
    /// At most one destructive step, and it is the last.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if let Some(flaw) = &self.flaw {
            return Err(Error::new(
                Category::Bug,
                format!("the plan cannot be carried out, {flaw}: nothing of it is done"),
            ));
        }
        let before_the_last = self.steps.len().saturating_sub(1);
        match self.steps.iter().take(before_the_last).find(|planned| planned.step.is_destructive()) {
            Some(planned) => Err(Error::new(
                Category::Bug,
                format!(
                    "the plan does not end after its destructive step \"{}\": nothing of it is done",
                    planned.step
                ),
            )),
            None => Ok(()),
        }
    }
}

/// For people: what is done, why, and what else.
impl<A: Action> fmt::Display for Plan<A> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.steps.is_empty() {
            writeln!(formatter, "  nothing to do")?;
        }
        for (number, planned) in (1..).zip(&self.steps) {
            writeln!(formatter, "  {number}. {}: {}", planned.step, planned.because)?;
        }
        for event in &self.events {
            writeln!(formatter, "  tell {}: {}", event.reason, event.note)?;
        }
        if let Some(delay) = self.look_again_after {
            writeln!(formatter, "  look again after {delay:?}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::ObjectMeta;

    use super::*;
    use crate::kind::Kind;

    fn config_map(name: &str) -> ConfigMap {
        ConfigMap {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..Default::default() },
            ..Default::default()
        }
    }

    fn reference(name: &str, terminating: bool) -> Reference {
        let kind = Kind::of::<ConfigMap>(&());
        Reference { name: name.to_owned(), terminating, ..Reference::to(&kind, &config_map(name)) }
    }

    #[test]
    fn a_status_that_is_no_json_is_told() {
        let mut plan: Plan = Plan::new();
        plan.set_status(&std::collections::BTreeMap::from([((1, 2), "a key that is no text")]));
        assert!(plan.check().unwrap_err().to_string().contains("key must be a string"));
    }

    #[test]
    fn a_destructive_step_is_the_last() {
        let mut plan: Plan = Plan::new();
        plan.apply(&config_map("a"), "wanted");
        plan.delete(reference("b", false), "not wanted");
        assert!(plan.check().is_ok());
        plan.apply(&config_map("c"), "wanted");
        let error = plan.check().unwrap_err();
        assert_eq!(error.category(), Category::Bug);
        assert!(error.to_string().contains("delete ConfigMap b"), "{error}");
    }

    #[test]
    fn pruning_takes_one_child_and_leaves_those_that_go() {
        let mut plan: Plan = Plan::new();
        let children = [
            reference("going", true),
            reference("kept", false),
            reference("old", false),
            reference("older", false),
        ];
        plan.prune(&children, |child| child.name == "kept");
        let steps: Vec<_> = plan.steps.iter().map(|planned| planned.step.to_string()).collect();
        assert_eq!(steps, ["delete ConfigMap old"]);
    }

    #[test]
    fn a_plan_survives_being_written_down() {
        let mut plan: Plan = Plan::new();
        plan.apply(&config_map("a"), "wanted");
        plan.look_again_after(Duration::from_secs(9));
        plan.look_again_after(Duration::from_secs(5));
        plan.tell(Event::normal("Made", "made a"));
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
        assert_eq!(plan.look_again_after, Some(Duration::from_secs(5)));
    }
}
