//! What becomes of a decision: it is done, only said, or not even taken; and kept
//! in any case.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use serde_json::Value;

use super::Running;
use crate::{
    act::{Done, Owner},
    decisions::{Entry, Outcome, What, json_bytes},
    error::Error,
    key::Key,
    mode::{self, Mode},
    operator::Operator,
    plan::{Event, Plan},
};

/// A step that is in no plan.
pub(super) const WRITE_THE_STATUS: &str = "write the status";
/// A condition that is longer helps nobody.
const MESSAGE_AT_MOST: usize = 8 << 10;

/// What was seen and decided.
pub(super) struct Decided<O: Operator> {
    pub(super) seen: O::Observation,
    pub(super) plan: Plan<O::Action>,
}

impl<O: Operator> What for Decided<O> {
    fn observation(&self) -> serde_json::Result<Value> {
        serde_json::to_value(&self.seen)
    }

    fn plan(&self) -> serde_json::Result<Value> {
        serde_json::to_value(&self.plan)
    }

    fn json_bytes(&self) -> usize {
        json_bytes(&self.seen) + json_bytes(&self.plan)
    }
}

/// What became of a decision that was carried out.
pub(super) fn outcome_of(steps: Vec<String>, error: Option<&Error>) -> Outcome {
    match error {
        Some(error) => Outcome::Failed { steps, category: error.category(), message: error.to_string() },
        None if steps.is_empty() => Outcome::Unchanged,
        None => Outcome::Done { steps },
    }
}

impl<O: Operator> Running<O> {
    pub(super) fn note_decision(
        &self,
        key: &Key,
        (at, began): (Timestamp, Instant),
        decided: Option<Decided<O>>,
        outcome: Outcome,
    ) {
        self.surroundings.decisions.note(Entry {
            controller: self.name.clone(),
            key: key.clone(),
            at,
            took: began.elapsed(),
            what: decided.map(|decided| Arc::new(decided) as Arc<dyn What>),
            outcome,
        });
    }

    /// A reconcile that was broken off by a panic or its deadline.
    pub(super) fn note_broken_off(&self, key: &Key, took: Duration, error: &Error) {
        self.surroundings.decisions.note(Entry {
            controller: self.name.clone(),
            key: key.clone(),
            at: Timestamp::now(),
            took,
            what: None,
            outcome: outcome_of(Vec::new(), Some(error)),
        });
    }

    /// The steps of a plan that would change something, in words.
    pub(super) async fn would_do(&self, owner: &Owner, plan: &Plan<O::Action>) -> Vec<String> {
        let unsaid = Owner { status: owner.status.clone().map(mode::without_condition), ..owner.clone() };
        let actor = self.actor(&unsaid, &self.surroundings.held);
        let mut steps = Vec::new();
        for planned in &plan.steps {
            match actor.would_change(&planned.step).await {
                Ok(true) => steps.push(planned.step.to_string()),
                Ok(false) => {}
                Err(error) => {
                    steps.push(format!("fail to {}: {error}", planned.step));
                    return steps;
                }
            }
        }
        if let Some(status) = plan.status.clone().map(mode::without_condition)
            && actor.would_write_status(&status).await
        {
            steps.push(WRITE_THE_STATUS.to_owned());
        }
        steps
    }

    /// Says what would be done, and does nothing else.
    pub(super) async fn only_plan(&self, owner: &Owner, plan: &Plan<O::Action>) -> Vec<String> {
        let steps = self.would_do(owner, plan).await;
        let message = match steps.is_empty() {
            true => "all is as it should be: nothing would be done".to_owned(),
            false => format!("would {}", steps.join(", ")),
        };
        self.say_mode(owner, &Mode::Plan, &message).await;
        steps
    }

    /// Does nothing, and says so.
    pub(super) async fn hold_still(&self, owner: &Owner, mode: &Mode) {
        let message = match mode {
            Mode::Unknown(mode) => format!(
                "there is no mode {mode:?}, only plan and paused: nothing is done until the annotation {} is corrected or removed",
                mode::MODE
            ),
            _ => format!("paused: nothing is done until the annotation {} is removed", mode::MODE),
        };
        self.say_mode(owner, mode, &message).await;
    }

    async fn say_mode(&self, owner: &Owner, mode: &Mode, message: &str) {
        let message = message.get(..message.floor_char_boundary(MESSAGE_AT_MOST)).unwrap_or(message);
        let status =
            mode::with_condition(owner.status.clone(), mode, message, owner.generation, Timestamp::now());
        let actor = self.actor(owner, &self.surroundings.acting);
        match actor.write_status(&status, || self.status_now(owner)).await {
            Ok(Done::AlreadySo) => return,
            Ok(_) => tracing::info!(mode = %mode, "{message}"),
            // Not every kind has conditions in its status: then the event has to do.
            Err(error) => tracing::warn!("cannot say in the status: {message}: {error}"),
        }
        self.events.publish(&owner.reference, &Event::normal(mode.reason(), message)).await;
    }
}
