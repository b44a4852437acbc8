//! What only the operator knows how to do, what the application says, and the
//! light form for agents.

use std::{
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde::{Deserialize, Serialize};
use wheelhouse::{
    Acting, Action, Category, Controller, Error, Key, Known, Operator, Plan, Probe, Result, World,
    agent::Followed,
    k8s_openapi::api::core::v1::ConfigMap,
    kube::{ResourceExt as _, api::PostParams},
};

use super::widgets::{Place, Widget, WidgetStatus, config_map, eventually};

/// An application with members, in this process.
#[derive(Default)]
struct Application {
    members: AtomicU64,
    is_away: Mutex<bool>,
    asked: AtomicUsize,
    acted: AtomicUsize,
}

struct CountMembers(Arc<Application>);

impl Probe for CountMembers {
    type Answer = u64;

    fn target(&self) -> String {
        "the application".to_owned()
    }

    fn fresh_for(&self) -> Duration {
        Duration::from_millis(100)
    }

    async fn ask(&self) -> std::result::Result<Option<u64>, String> {
        self.0.asked.fetch_add(1, Ordering::SeqCst);
        match *self.0.is_away.lock().unwrap() {
            true => Err("connection refused".to_owned()),
            false => Ok(Some(self.0.members.load(Ordering::SeqCst))),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct AddMember {
    number: u64,
}

impl Action for AddMember {
    fn name(&self) -> &'static str {
        "add-member"
    }
}

impl fmt::Display for AddMember {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "add member {}", self.number)
    }
}

struct Members(Arc<Application>);

#[derive(Debug, Serialize, Deserialize)]
struct Seen {
    wanted: u64,
    members: Known<u64>,
}

impl Operator for Members {
    type Resource = Widget;
    type Observation = Seen;
    type Action = AddMember;

    async fn observe(&self, widget: Arc<Widget>, world: &World<'_>) -> Result<Seen> {
        let members = world.probe(CountMembers(self.0.clone()));
        Ok(Seen { wanted: u64::try_from(widget.spec.size).unwrap(), members })
    }

    fn analyse(&self, seen: &Seen) -> Plan<AddMember> {
        let mut plan = Plan::new();
        plan.look_again_after(Duration::from_millis(150));
        let note = match &seen.members {
            Known::Value { value, .. } if *value < seen.wanted => {
                plan.act(AddMember { number: *value }, "one more is wanted");
                "growing".to_owned()
            }
            Known::Value { value, .. } => format!("{value} members"),
            Known::Absent => "none".to_owned(),
            Known::Unknown { why, .. } => format!("unknown: {why}"),
        };
        plan.set_status(&WidgetStatus { note, ..Default::default() });
        plan
    }

    async fn act(&self, action: AddMember, context: &Acting<'_>) -> Result<()> {
        assert_eq!(context.resource.name, "a");
        // The second try of each fails after it took effect.
        let is_new = self.0.members.compare_exchange(
            action.number,
            action.number + 1,
            Ordering::SeqCst,
            Ordering::SeqCst,
        );
        match (is_new, self.0.acted.fetch_add(1, Ordering::SeqCst)) {
            (Ok(_), 1) => Err(Error::new(Category::Unavailable, "the answer got lost")),
            _ => Ok(()),
        }
    }
}

#[tokio::test]
async fn an_action_of_the_operators_own_is_carried_out_and_what_does_not_answer_is_unknown() {
    let place = Place::new("own-actions").await;
    let application = Arc::new(Application::default());
    let operating = place.start(Controller::new(Members(application.clone()))).await;
    place.create("a", 3).await;
    let note = async || place.widgets().get("a").await.unwrap().status.unwrap_or_default().note;
    eventually("it has three", async || note().await == "3 members").await;
    assert_eq!(application.members.load(Ordering::SeqCst), 3, "a lost answer led to no fourth");
    *application.is_away.lock().unwrap() = true;
    eventually("it does not know", async || note().await == "unknown: connection refused").await;
    assert_eq!(application.members.load(Ordering::SeqCst), 3, "what is unknown is not absent");
    *application.is_away.lock().unwrap() = false;
    eventually("it knows again", async || note().await == "3 members").await;
    assert!(application.asked.load(Ordering::SeqCst) > 3);
    operating.stop().await;
}

#[tokio::test]
async fn an_agent_follows_one_object_under_its_own_identity() {
    let place = Place::new("agent").await;
    let agent = place.namespace.service_account("agent").await.unwrap();
    agent
        .allow(vec![wheelhouse_testing::rule(&["get", "list", "watch"], "", &["configmaps"])])
        .await
        .unwrap();
    let mark = place.namespace.mark().await.unwrap();
    let key = Key::namespaced(place.namespace.name(), "mine");
    let mut mine = Followed::<ConfigMap>::new(agent.client().unwrap(), key);
    mine.synced().await;
    assert!(mine.get().is_none(), "it is known not to be there");
    for name in ["mine", "other"] {
        place.config_maps().create(&PostParams::default(), &config_map(name, &[("a", "b")])).await.unwrap();
    }
    eventually("it is there", async || {
        let now = mine.changed_within(Duration::from_millis(100)).await;
        now.is_some_and(|object| object.name_any() == "mine")
    })
    .await;
    let lists = agent.requests_since(&mark).await.unwrap().filter(|request| request.verb == "list");
    assert_eq!(lists.len(), 1, "one object, and nothing else: {lists:?}");
    place.config_maps().delete("mine", &Default::default()).await.unwrap();
    eventually("it is gone", async || mine.changed_within(Duration::from_millis(100)).await.is_none()).await;
}
