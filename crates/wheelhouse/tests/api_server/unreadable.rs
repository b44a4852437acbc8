//! Laws 9 and 13: an object whose content does not fit its type stops nobody
//! else, is told, and is never taken for absent.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use serde::{Deserialize, Serialize};
use serde_json::json;
use wheelhouse::{
    Controller, NoAction, Operator, Plan, Result, World,
    cache::Selection,
    k8s_openapi::api::core::v1::ConfigMap,
    kube::{
        ResourceExt as _,
        api::{Patch, PatchParams, PostParams},
        core::Expression,
    },
};
use wheelhouse_testing::EventCapture;

use super::widgets::{Place, Widget, WidgetStatus, config_map, eventually};

/// The only colours there are, as far as these types know.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Colour {
    Red,
    Blue,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Data {
    colour: Colour,
}

wheelhouse::projection! {
    /// A ConfigMap with a colour.
    struct Coloured of ConfigMap {
        data: Option<Data>,
    }
}

async fn paint(place: &Place, name: &str, colour: &str) {
    let mut object = config_map(name, &[("colour", colour)]);
    object.metadata.labels = Some([("kind".to_owned(), "coloured".to_owned())].into());
    place.config_maps().create(&PostParams::default(), &object).await.unwrap();
}

async fn repaint(place: &Place, name: &str, colour: &str) {
    let patch = Patch::Merge(json!({"data": {"colour": colour}}));
    place.config_maps().patch(name, &PatchParams::default(), &patch).await.unwrap();
}

async fn expect_complaint(events: &EventCapture, about: &str) {
    eventually("it is told", async || {
        events.seen().await.unwrap().iter().any(|event| {
            event.reason == "Invalid"
                && event.message.contains(about)
                && event.message.contains("cannot be read")
                && event.message.contains("unknown variant `green`")
        })
    })
    .await;
}

/// Remembers whom it saw.
#[derive(Clone, Default)]
struct Painter(Arc<Mutex<BTreeSet<String>>>);

impl Operator for Painter {
    type Resource = Coloured;
    type Observation = ();
    type Action = NoAction;

    async fn observe(&self, object: Arc<Coloured>, _: &World<'_>) -> Result<()> {
        self.0.lock().unwrap().insert(object.name_any());
        Ok(())
    }

    fn analyse(&self, (): &()) -> Plan {
        Plan::new()
    }
}

#[tokio::test]
async fn a_resource_that_cannot_be_read_is_told_and_stops_no_other_one() {
    let place = Place::new("unreadable").await;
    let events = place.namespace.events().await.unwrap();
    for (name, colour) in [("a", "red"), ("bad", "green"), ("c", "blue")] {
        paint(&place, name, colour).await;
    }
    let painter = Painter::default();
    let saw = |name: &str| painter.0.lock().unwrap().contains(name);
    let selection = Selection::labels(Expression::Equal("kind".into(), "coloured".into()));
    let operating = place.start(Controller::new(painter.clone()).select(selection)).await;
    eventually("the others of the list are looked at", async || saw("a") && saw("c")).await;
    expect_complaint(&events, "bad").await;
    paint(&place, "worse", "green").await;
    paint(&place, "later", "red").await;
    eventually("the watch goes on", async || saw("later")).await;
    expect_complaint(&events, "worse").await;
    assert!(!saw("bad") && !saw("worse"));
    repaint(&place, "bad", "blue").await;
    eventually("it was corrected", async || saw("bad")).await;
    repaint(&place, "a", "green").await;
    expect_complaint(&events, "/a cannot").await;
    operating.stop().await;
}

/// Makes one coloured child, if there is none.
struct Parents;

impl Operator for Parents {
    type Resource = Widget;
    type Observation = (String, usize);
    type Action = NoAction;

    async fn observe(&self, widget: Arc<Widget>, world: &World<'_>) -> Result<(String, usize)> {
        Ok((widget.name_any(), world.owned::<Coloured>().await?.len()))
    }

    fn analyse(&self, (name, children): &(String, usize)) -> Plan {
        let mut plan = Plan::new();
        if *children == 0 {
            plan.create(&config_map(&format!("{name}-child"), &[("colour", "red")]), "there is none");
        }
        plan.set_status(&WidgetStatus { note: format!("{children} children"), ..Default::default() });
        plan
    }
}

#[tokio::test]
async fn a_child_that_cannot_be_read_is_not_absent() {
    let place = Place::new("unreadable-child").await;
    let events = place.namespace.events().await.unwrap();
    let operating = place.start(Controller::new(Parents).owns::<Coloured>()).await;
    let has_child = async |name: &str| {
        let status = place.widgets().get(name).await.unwrap().status.unwrap_or_default();
        status.note == "1 children"
    };
    place.create("a", 1).await;
    eventually("it has a child", async || has_child("a").await).await;
    let mark = place.namespace.mark().await.unwrap();
    repaint(&place, "a-child", "green").await;
    expect_complaint(&events, "a-child").await;
    place.create("b", 1).await;
    eventually("another goes on", async || has_child("b").await).await;
    let creates =
        place.identity.requests_since(&mark).await.unwrap().filter(|request| request.verb == "create");
    assert_eq!(creates.filter(|create| create.resource == "configmaps").len(), 1, "for b, and none for a");
    repaint(&place, "a-child", "blue").await;
    place.config_maps().delete("a-child", &Default::default()).await.unwrap();
    eventually("now it was absent", async || place.config_maps().get_opt("a-child").await.unwrap().is_some())
        .await;
    operating.stop().await;
}
