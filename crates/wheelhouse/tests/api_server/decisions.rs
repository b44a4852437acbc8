//! Operators that explain themselves: decisions are kept and shown to who may see
//! them, and a resource can be planned for, or left alone.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use serde_json::{Value, json};
use wheelhouse::{
    Plan,
    decisions::{Decision, Outcome},
    k8s_openapi::api::core::v1::Secret,
    kube::{
        Api,
        api::{Patch, PatchParams, PostParams},
    },
};
use wheelhouse_testing::{Identity, rule};

use super::widgets::{Operating, Place, Seen, Widgets, config_map, eventually, one_config_map, quiet};

async fn set_mode(place: &Place, mode: Option<&str>) {
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"wheelhouse.dev/mode": mode}}}));
    place.widgets().patch("a", &PatchParams::default(), &patch).await.unwrap();
}

/// The message and the reason of the condition that says the mode.
async fn mode_condition(place: &Place) -> Option<(String, String)> {
    let widget = place.widgets().get("a").await.unwrap();
    let condition =
        widget.status?.conditions.into_iter().find(|known| known.type_ == "wheelhouse.dev/Mode")?;
    Some((condition.reason, condition.message))
}

fn token(identity: &Identity) -> String {
    use secrecy::ExposeSecret as _;
    identity.config().auth_info.token.unwrap().expose_secret().to_owned()
}

async fn ask(operating: &Operating, query: &str, token: Option<&str>) -> (u16, String) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(operating.started.address()).await.unwrap();
    let authorization = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let request =
        format!("GET /decisions{query} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{authorization}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

async fn decisions(operating: &Operating, place: &Place, viewer: &Identity) -> Vec<Decision> {
    let query = format!("?controller=widget&namespace={}&name=a", place.namespace.name());
    let (code, body) = ask(operating, &query, Some(&token(viewer))).await;
    assert_eq!(code, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

#[tokio::test]
async fn decisions_are_shown_with_what_was_seen_and_to_nobody_who_may_not_look() {
    let place = Place::new("decisions").await;
    let viewer = place.namespace.service_account("viewer").await.unwrap();
    viewer.allow(vec![rule(&["get"], "test.wheelhouse.dev", &["widgets/decisions"])]).await.unwrap();
    let stranger = place.namespace.service_account("stranger").await.unwrap();
    let operating = place.start(Widgets::new(one_config_map).controller()).await;
    place.create("a", 7).await;
    eventually("it works", async || place.is_resized(7).await).await;
    quiet().await;

    let shown = decisions(&operating, &place, &viewer).await;
    let first = shown.first().unwrap();
    let Outcome::Done { steps } = &first.outcome else { panic!("{first:?}") };
    assert_eq!(steps, &["apply ConfigMap a", "write the status"]);
    assert_eq!(first.observation["widget"]["spec"]["size"], 7);
    assert_eq!(first.plan["steps"][0]["because"], "every Widget has one");
    assert!(first.took_milliseconds > 0.0);
    let last = shown.last().unwrap();
    assert_eq!(last.outcome, Outcome::Unchanged, "why it does nothing now");
    assert_eq!(last.observation["config_maps"].as_array().unwrap().len(), 1);

    let query = format!("?controller=widget&namespace={}&name=a", place.namespace.name());
    assert_eq!(ask(&operating, &query, None).await.0, 401);
    assert_eq!(ask(&operating, &query, Some("made up")).await.0, 403);
    let (code, why) = ask(&operating, &query, Some(&token(&stranger))).await;
    assert_eq!(code, 403);
    assert!(why.contains("may not get widgets/decisions"), "{why}");
    assert_eq!(ask(&operating, "", Some(&token(&viewer))).await.0, 403, "only in one namespace");
    operating.stop().await;
}

#[tokio::test]
async fn what_a_secret_holds_is_in_no_decision() {
    let place = Place::new("decisions-secret").await;
    let viewer = place.namespace.service_account("viewer").await.unwrap();
    viewer.allow(vec![rule(&["get"], "test.wheelhouse.dev", &["widgets/decisions"])]).await.unwrap();
    // A plan that should not be: it carries the content of a Secret.
    let widgets = Widgets::new(|_| {
        let secret: Secret = serde_json::from_value(
            json!({"metadata": {"name": "careless"}, "stringData": {"password": "hunter2"}}),
        )
        .unwrap();
        let mut plan = Plan::new();
        plan.apply(&secret, "somebody was careless");
        plan
    });
    let operating = place.start(widgets.controller().owns::<Secret>()).await;
    place.create("a", 1).await;
    let secrets: Api<Secret> = Api::default_namespaced(place.client.clone());
    eventually("it is there", async || secrets.get_opt("careless").await.unwrap().is_some()).await;
    quiet().await;
    let shown = serde_json::to_string(&decisions(&operating, &place, &viewer).await).unwrap();
    assert!(shown.contains("careless") && shown.contains("sha256:"), "{shown}");
    assert!(!shown.contains("hunter2"), "{shown}");
    operating.stop().await;
}

#[tokio::test]
async fn in_the_mode_plan_it_says_what_it_would_do_and_does_nothing_else() {
    let place = Place::new("mode-plan").await;
    let viewer = place.namespace.service_account("viewer").await.unwrap();
    viewer.allow(vec![rule(&["get"], "test.wheelhouse.dev", &["widgets/decisions"])]).await.unwrap();
    let events = place.namespace.events().await.unwrap();
    let operating = place.start(Widgets::new(one_config_map).controller()).await;
    place.create("a", 1).await;
    eventually("it works", async || place.is_resized(1).await).await;
    quiet().await;
    set_mode(&place, Some("plan")).await;
    eventually("it says that nothing would be done", async || {
        mode_condition(&place).await.is_some_and(|(reason, message)| {
            reason == "Planned" && message == "all is as it should be: nothing would be done"
        })
    })
    .await;
    let mark = place.namespace.mark().await.unwrap();
    place.resize(2).await;
    let would = "would apply ConfigMap a, write the status";
    eventually("it says what it would do", async || {
        mode_condition(&place).await.is_some_and(|(_, message)| message == would)
    })
    .await;
    events.expect(wheelhouse_testing::EventType::Normal, "Planned", would).await.unwrap();
    quiet().await;
    assert!(place.is_resized(1).await, "nothing was done");
    let writes = place.identity.requests_since(&mark).await.unwrap().writes();
    let others = writes.filter(|write| write.resource != "widgets/status" && write.resource != "events");
    assert!(others.is_empty(), "{others:?}");
    let shown = decisions(&operating, &place, &viewer).await;
    let planned = shown.iter().rev().find_map(|decision| match &decision.outcome {
        Outcome::Planned { steps } => Some(steps.clone()),
        _ => None,
    });
    assert_eq!(planned.unwrap(), ["apply ConfigMap a", "write the status"]);

    set_mode(&place, None).await;
    eventually("the plan is what is then done", async || place.is_resized(2).await).await;
    eventually("and the condition is gone", async || mode_condition(&place).await.is_none()).await;
    operating.stop().await;
}

#[tokio::test]
async fn what_is_paused_is_not_even_looked_at_and_says_so() {
    let place = Place::new("mode-paused").await;
    let events = place.namespace.events().await.unwrap();
    let decisions = Arc::new(AtomicUsize::new(0));
    let counted = decisions.clone();
    let widgets = Widgets::new(move |seen: &Seen| {
        counted.fetch_add(1, Ordering::SeqCst);
        one_config_map(seen)
    });
    let operating = place.start(widgets.controller()).await;
    place.create("a", 1).await;
    eventually("it works", async || place.is_resized(1).await).await;
    quiet().await;
    set_mode(&place, Some("paused")).await;
    eventually("it says so", async || {
        mode_condition(&place).await.is_some_and(|(reason, _)| reason == "Paused")
    })
    .await;
    let before = decisions.load(Ordering::SeqCst);
    place.resize(2).await;
    place.config_maps().delete("a", &Default::default()).await.unwrap();
    quiet().await;
    assert_eq!(decisions.load(Ordering::SeqCst), before);
    assert!(place.config_maps().get_opt("a").await.unwrap().is_none());
    set_mode(&place, Some("pause")).await;
    eventually("a mode that there is not holds still, too", async || {
        mode_condition(&place)
            .await
            .is_some_and(|(_, message)| message.contains("there is no mode \"pause\""))
    })
    .await;
    assert_eq!(decisions.load(Ordering::SeqCst), before);
    let note = "paused: nothing is done until the annotation wheelhouse.dev/mode is removed";
    events.expect(wheelhouse_testing::EventType::Normal, "Paused", note).await.unwrap();
    set_mode(&place, None).await;
    eventually("it goes on", async || place.is_resized(2).await).await;
    eventually("and the condition is gone", async || mode_condition(&place).await.is_none()).await;
    operating.stop().await;
}

#[tokio::test]
async fn a_failure_is_a_decision_too() {
    let place = Place::new("decisions-failed").await;
    let viewer = place.namespace.service_account("viewer").await.unwrap();
    viewer.allow(vec![rule(&["get"], "test.wheelhouse.dev", &["widgets/decisions"])]).await.unwrap();
    place.config_maps().create(&PostParams::default(), &config_map("a", &[])).await.unwrap();
    let operating = place.start(Widgets::new(one_config_map).controller()).await;
    place.create("a", 1).await;
    eventually("it failed, and that is shown", async || {
        let shown = decisions(&operating, &place, &viewer).await;
        shown.iter().any(|decision| {
            matches!(&decision.outcome, Outcome::Failed { message, .. } if message.contains("belongs to nobody"))
                && decision.observation != Value::Null
        })
    })
    .await;
    operating.stop().await;
}
