//! Each kind of step: that it does what it says, and what guards it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde_json::json;
use wheelhouse::{
    Plan, Reference,
    certificates::Validity,
    k8s_openapi::api::core::v1::{ConfigMap, Secret},
    kube::{
        Api,
        api::{Patch, PatchParams, PostParams},
    },
    labels::OWNER_UID,
    plan::{Certified, Certify, EnsureSecret, Guard, Object, SecretValue, Step},
};
use wheelhouse_testing::EventType;

use super::widgets::{Place, Seen, Widget, Widgets, config_map, eventually, quiet};

/// Plans this once the Widget's size is 1, and nothing before.
fn when_told(step: impl Fn(&Seen) -> Option<Step<wheelhouse::NoAction>> + Send + Sync + 'static) -> Widgets {
    Widgets::new(move |seen| {
        let mut plan = Plan::new();
        if seen.widget.spec.size == 1
            && let Some(step) = step(seen)
        {
            plan.step(step, "the test says so");
        }
        plan
    })
}

async fn tell(place: &Place) {
    let patch = Patch::Merge(json!({"spec": {"size": 1}}));
    place.widgets().patch("a", &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test]
async fn a_deletion_is_of_this_very_object_and_not_of_its_successor() {
    let place = Place::new("delete-uid").await;
    let old = place.config_maps().create(&PostParams::default(), &config_map("victim", &[])).await.unwrap();
    let stale = Reference::of(&old);
    place.config_maps().delete("victim", &Default::default()).await.unwrap();
    place
        .config_maps()
        .create(&PostParams::default(), &config_map("victim", &[("precious", "data")]))
        .await
        .unwrap();
    let mark = place.namespace.mark().await.unwrap();
    let widgets = when_told(move |_| Some(Step::Delete { target: stale.clone(), guard: Guard::Identity }));
    let operating = place.start(widgets.controller()).await;
    place.create("a", 1).await;
    eventually("the deletion was tried, and tried again", async || {
        place.identity.requests_since(&mark).await.unwrap().count("delete", "configmaps") > 1
    })
    .await;
    let deletes =
        place.identity.requests_since(&mark).await.unwrap().filter(|request| request.verb == "delete");
    assert!(deletes.iter().all(|delete| delete.code == 409), "{deletes:?}");
    assert!(place.config_maps().get_opt("victim").await.unwrap().is_some());
    operating.stop().await;
}

#[tokio::test]
async fn a_guarded_deletion_does_nothing_when_the_object_has_changed() {
    let place = Place::new("delete-guard").await;
    let created = place
        .config_maps()
        .create(&PostParams::default(), &config_map("victim", &[("phase", "Failed")]))
        .await
        .unwrap();
    let target = Reference::of(&created);
    let patch = Patch::Merge(json!({"data": {"phase": "Running"}}));
    place.config_maps().patch("victim", &PatchParams::default(), &patch).await.unwrap();
    let (unchanged, still) = (target.clone(), target);
    let widgets = when_told(move |seen| {
        let guard = match seen.name() {
            "a" => Guard::Unchanged,
            _ => Guard::Still(vec![("/data/phase".into(), json!("Failed"))]),
        };
        Some(Step::Delete {
            target: if guard == Guard::Unchanged { unchanged.clone() } else { still.clone() },
            guard,
        })
    });
    let operating = place.start(widgets.controller()).await;
    let mark = place.namespace.mark().await.unwrap();
    place.create("a", 1).await;
    place.create("b", 1).await;
    eventually("both looked, the one at the version and the other at the field", async || {
        let requests = place.identity.requests_since(&mark).await.unwrap();
        requests.count("delete", "configmaps") > 0 && requests.count("get", "configmaps") > 0
    })
    .await;
    let deletes =
        place.identity.requests_since(&mark).await.unwrap().filter(|request| request.verb == "delete");
    assert!(deletes.iter().all(|delete| delete.code == 409), "{deletes:?}");
    assert!(place.config_maps().get_opt("victim").await.unwrap().is_some());
    let patch = Patch::Merge(json!({"data": {"phase": "Failed"}}));
    place.config_maps().patch("victim", &PatchParams::default(), &patch).await.unwrap();
    eventually("it goes once the guard holds", async || {
        place.config_maps().get_opt("victim").await.unwrap().is_none()
    })
    .await;
    operating.stop().await;
}

#[tokio::test]
async fn a_plan_that_goes_on_after_a_destructive_step_is_refused_whole() {
    let place = Place::new("two-deletes").await;
    let events = place.namespace.events().await.unwrap();
    let victim =
        place.config_maps().create(&PostParams::default(), &config_map("victim", &[])).await.unwrap();
    let target = Reference::of(&victim);
    let widgets = Widgets::new(move |_| {
        let mut plan = Plan::new();
        plan.delete(target.clone(), "not wanted");
        plan.apply(&config_map("after", &[]), "wanted");
        plan
    });
    let operating = place.start(widgets.controller()).await;
    place.create("a", 1).await;
    let note =
        "the plan does not end after its destructive step \"delete ConfigMap victim\": nothing of it is done";
    events.expect(EventType::Warning, "Bug", note).await.unwrap();
    assert!(place.config_maps().get_opt("victim").await.unwrap().is_some());
    operating.stop().await;
}

#[tokio::test]
async fn steps_stop_at_the_first_failure_which_is_named() {
    let place = Place::new("first-failure").await;
    let events = place.namespace.events().await.unwrap();
    let widgets = Widgets::new(|_| {
        let mut plan = Plan::new();
        plan.apply(&config_map("first", &[]), "wanted");
        plan.apply(&config_map("Not_A_Name", &[]), "wanted");
        plan.apply(&config_map("third", &[]), "wanted");
        plan
    });
    let operating = place.start(widgets.controller()).await;
    place.create("a", 1).await;
    eventually("the failure is told", async || {
        let seen = events.seen().await.unwrap();
        seen.iter().any(|event| {
            event.reason == "Invalid"
                && event.message.contains("apply ConfigMap")
                && event.message.contains("Not_A_Name")
        })
    })
    .await;
    assert!(place.config_maps().get_opt("first").await.unwrap().is_some());
    assert!(place.config_maps().get_opt("third").await.unwrap().is_none());
    operating.stop().await;
}

#[tokio::test]
async fn an_update_is_refused_when_somebody_was_faster() {
    let place = Place::new("latch").await;
    let latch = place.config_maps().create(&PostParams::default(), &config_map("latch", &[])).await.unwrap();
    let seen_latch = Arc::new(Mutex::new(Reference::of(&latch)));
    let target = seen_latch.clone();
    let widgets = when_told(move |_| {
        let target = target.lock().unwrap().clone();
        Some(Step::Update { target, fields: json!({"data": {"holder": "us"}}) })
    });
    let mark = place.namespace.mark().await.unwrap();
    let operating = place.start(widgets.controller()).await;
    place.create("a", 0).await;
    let patch = Patch::Merge(json!({"data": {"holder": "them"}}));
    let changed = place.config_maps().patch("latch", &PatchParams::default(), &patch).await.unwrap();
    tell(&place).await;
    eventually("it was tried", async || {
        place.identity.requests_since(&mark).await.unwrap().writes().iter().any(|write| write.code == 409)
    })
    .await;
    assert_eq!(place.config_maps().get("latch").await.unwrap().data.unwrap()["holder"], "them");
    *seen_latch.lock().unwrap() = Reference::of(&changed);
    eventually("it is taken with the version as it is", async || {
        place.config_maps().get("latch").await.unwrap().data.unwrap()["holder"] == "us"
    })
    .await;
    operating.stop().await;
}

#[tokio::test]
async fn a_secret_is_made_once_completed_and_never_changed() {
    let place = Place::new("secret").await;
    let widgets = Widgets::new(|seen| {
        let mut plan = Plan::new();
        let mut values = BTreeMap::from([
            ("password".to_owned(), SecretValue::Password { length: 24 }),
            ("user".to_owned(), SecretValue::Plain("admin".to_owned())),
        ]);
        if seen.widget.spec.size == 1 {
            values.insert("other".to_owned(), SecretValue::Password { length: 8 });
        }
        plan.step(
            Step::EnsureSecret(EnsureSecret { name: "credentials".into(), labels: BTreeMap::new(), values }),
            "users have one",
        );
        plan
    });
    let operating = place.start(widgets.controller().owns::<Secret>()).await;
    place.create("a", 0).await;
    let secrets: Api<Secret> = Api::default_namespaced(place.client.clone());
    eventually("it is there", async || secrets.get_opt("credentials").await.unwrap().is_some()).await;
    let first = secrets.get("credentials").await.unwrap().data.unwrap();
    assert_eq!(first["password"].0.len(), 24);
    assert_eq!(first["user"].0, b"admin");
    quiet().await;
    tell(&place).await;
    eventually("it is completed", async || {
        secrets.get("credentials").await.unwrap().data.unwrap().contains_key("other")
    })
    .await;
    let second = secrets.get("credentials").await.unwrap().data.unwrap();
    assert_eq!(second["password"], first["password"], "what is there stays");
    let removal = Patch::Merge(json!({"data": {"password": null}}));
    secrets.patch("credentials", &PatchParams::default(), &removal).await.unwrap();
    eventually("what was taken out is made again", async || {
        secrets.get("credentials").await.unwrap().data.unwrap().contains_key("password")
    })
    .await;
    quiet().await;
    let mark = place.namespace.mark().await.unwrap();
    let patch = Patch::Merge(json!({"metadata": {"labels": {"x": "y"}}}));
    place.widgets().patch("a", &PatchParams::default(), &patch).await.unwrap();
    quiet().await;
    let calls = place.identity.requests_since(&mark).await.unwrap().filter(|request| request.verb != "watch");
    assert!(calls.is_empty(), "{calls:?}");
    operating.stop().await;
}

#[tokio::test]
async fn a_secret_of_somebody_else_is_used_if_it_is_complete_and_never_written_to() {
    let place = Place::new("foreign-secret").await;
    let secrets: Api<Secret> = Api::default_namespaced(place.client.clone());
    let theirs: Secret =
        serde_json::from_value(json!({"metadata": {"name": "credentials"}, "stringData": {"user": "me"}}))
            .unwrap();
    secrets.create(&PostParams::default(), &theirs).await.unwrap();
    let events = place.namespace.events().await.unwrap();
    let mark = place.namespace.mark().await.unwrap();
    let widgets = Widgets::new(|_| {
        let mut plan = Plan::new();
        let made = SecretValue::Password { length: 24 };
        let values = BTreeMap::from([("password".to_owned(), made.clone()), ("user".to_owned(), made)]);
        let secret = EnsureSecret { name: "credentials".into(), labels: BTreeMap::new(), values };
        plan.step(Step::EnsureSecret(secret), "users have one");
        plan
    });
    let operating = place.start(widgets.controller().owns::<Secret>()).await;
    place.create("a", 0).await;
    eventually("what is missing is told", async || {
        let seen = events.seen().await.unwrap();
        seen.iter().any(|event| event.message.contains("lacks password: add what is missing"))
    })
    .await;
    let completion = Patch::Merge(json!({"stringData": {"password": "mine"}}));
    secrets.patch("credentials", &PatchParams::default(), &completion).await.unwrap();
    quiet().await;
    let writes = place.identity.requests_since(&mark).await.unwrap().writes();
    assert_eq!(writes.filter(|write| write.resource == "secrets").len(), 0);
    operating.stop().await;
}

#[tokio::test]
async fn an_authority_is_changed_only_under_the_version_that_was_decided_on_and_never_somebody_elses() {
    let place = Place::new("authority").await;
    let secrets: Api<Secret> = Api::default_namespaced(place.client.clone());
    let theirs: Secret = serde_json::from_value(json!({"metadata": {"name": "theirs"}})).unwrap();
    secrets.create(&PostParams::default(), &theirs).await.unwrap();
    let events = place.namespace.events().await.unwrap();
    // It is decided that there is none, again and again.
    let widgets = Widgets::new(|seen| {
        let mut plan = Plan::new();
        let certify = Certify {
            authority: if seen.widget.spec.size == 0 { "ours" } else { "theirs" }.to_owned(),
            seen: None,
            labels: BTreeMap::new(),
            validity: Validity::default(),
            what: Certified::Authority { asked: None, after: None },
        };
        plan.step(Step::Certify(Box::new(certify)), "it is not there");
        plan
    });
    let operating = place.start(widgets.controller().owns::<Secret>()).await;
    place.create("a", 0).await;
    eventually("it is there", async || secrets.get_opt("ours").await.unwrap().is_some()).await;
    let first = secrets.get("ours").await.unwrap();
    tell(&place).await;
    eventually("it is told whose place that is", async || {
        let seen = events.seen().await.unwrap();
        seen.iter().any(|event| event.message.contains("Secret theirs was not made by this resource"))
    })
    .await;
    assert_eq!(secrets.get("ours").await.unwrap(), first, "what was decided on old news changed nothing");
    assert_eq!(secrets.get("theirs").await.unwrap().data, None);
    operating.stop().await;
}

#[tokio::test]
async fn a_finalizer_holds_the_resource_until_it_is_removed() {
    let place = Place::new("finalizer").await;
    let widgets = Widgets::new(|seen| {
        let mut plan = Plan::new();
        let name = "test.wheelhouse.dev/cleanup".to_owned();
        let is_going = seen.widget.metadata.deletion_timestamp.is_some();
        match (is_going, seen.children.is_empty()) {
            (false, _) => {
                plan.step(Step::AddFinalizer(name), "there is something to clean up");
                plan.apply(&config_map("child", &[]), "wanted");
            }
            (true, false) => plan.prune(&seen.children, |_| false),
            (true, true) => plan.step(Step::RemoveFinalizer(name), "all is clean"),
        }
        plan
    });
    let operating = place.start(widgets.controller()).await;
    place.create("a", 1).await;
    eventually("the child is there", async || place.config_maps().get_opt("child").await.unwrap().is_some())
        .await;
    place.widgets().delete("a", &Default::default()).await.unwrap();
    eventually("the Widget goes", async || place.widgets().get_opt("a").await.unwrap().is_none()).await;
    assert!(place.config_maps().get_opt("child").await.unwrap().is_none(), "cleaned up before");
    operating.stop().await;
}

#[tokio::test]
async fn a_resource_that_is_let_go_and_stays_is_told_at_once() {
    let place = Place::new("let-go").await;
    let widgets = Widgets::new(|seen| {
        let mut plan = Plan::new();
        let name = "test.wheelhouse.dev/cleanup".to_owned();
        let is_held = seen.widget.metadata.finalizers.as_ref().is_some_and(|all| all.contains(&name));
        match (seen.widget.spec.size, is_held) {
            (0, _) => plan.step(Step::AddFinalizer(name), "it may have to be cleaned up after"),
            (_, true) => {
                plan.step(Step::RemoveFinalizer(name), "nothing is left to clean up");
                // Only now: the next look has nothing to say.
                plan.set_status(&json!({"note": "let go"}));
            }
            (_, false) => {}
        }
        plan
    });
    let operating = place.start(widgets.controller()).await;
    place.create("a", 0).await;
    let is_held =
        async || !place.widgets().get("a").await.unwrap().metadata.finalizers.unwrap_or_default().is_empty();
    eventually("it is held", is_held).await;
    tell(&place).await;
    eventually("it is let go", async || !is_held().await).await;
    eventually("it says so", async || {
        place.widgets().get("a").await.unwrap().status.is_some_and(|status| status.note == "let go")
    })
    .await;
    operating.stop().await;
}

#[tokio::test]
async fn an_orphan_is_adopted_and_an_object_of_another_is_not() {
    let place = Place::new("adopt").await;
    let orphan =
        place.config_maps().create(&PostParams::default(), &config_map("orphan", &[])).await.unwrap();
    let target = Reference::of(&orphan);
    let widgets = when_told(move |_| Some(Step::Adopt { target: target.clone() }));
    let operating = place.start(widgets.controller()).await;
    let owner = place.create("a", 1).await;
    eventually("it is adopted", async || {
        let references = place.config_maps().get("orphan").await.unwrap().metadata.owner_references;
        references.is_some_and(|references| references[0].uid == owner.metadata.uid.clone().unwrap())
    })
    .await;
    let events = place.namespace.events().await.unwrap();
    place.create("b", 1).await;
    eventually("the other is told", async || {
        events
            .seen()
            .await
            .unwrap()
            .iter()
            .any(|event| event.message.contains("it belongs to another resource"))
    })
    .await;
    assert_eq!(place.config_maps().get("orphan").await.unwrap().metadata.owner_references.unwrap().len(), 1);
    operating.stop().await;
}

#[tokio::test]
async fn an_orphan_in_another_namespace_is_adopted_by_label() {
    let place = Place::new("adopt-here").await;
    let other = Place::new("adopt-there").await;
    let orphan =
        other.config_maps().create(&PostParams::default(), &config_map("orphan", &[])).await.unwrap();
    let target = Reference::of(&orphan);
    let widgets = when_told(move |_| Some(Step::Adopt { target: target.clone() }));
    let mut settings = place.settings();
    settings.namespaces.push(other.namespace.name().to_owned());
    let operating = place.start_with(place.identity.config(), settings, widgets.controller()).await;
    let owner = place.create("a", 1).await;
    eventually("it is adopted", async || {
        let metadata = other.config_maps().get("orphan").await.unwrap().metadata;
        let label = metadata.labels.unwrap_or_default().get(OWNER_UID).cloned();
        assert!(metadata.owner_references.is_none(), "Kubernetes would delete it");
        label == owner.metadata.uid
    })
    .await;
    operating.stop().await;
}

#[tokio::test]
async fn a_child_in_another_namespace_is_tracked_by_label() {
    let place = Place::new("cross").await;
    let other = Place::new("cross-other").await;
    let elsewhere = other.namespace.name().to_owned();
    let widgets = Widgets::new(move |seen| {
        let mut plan = Plan::new();
        let mut child = config_map("child", &[("size", &seen.widget.spec.size.to_string())]);
        child.metadata.namespace = Some(elsewhere.clone());
        plan.step(Step::Apply(Object::of(&child)), "wanted");
        plan
    });
    let mut settings = place.settings();
    settings.namespaces.push(other.namespace.name().to_owned());
    let operating = place.start_with(place.identity.config(), settings, widgets.controller()).await;
    place.create("a", 3).await;
    eventually("it is there", async || other.config_maps().get_opt("child").await.unwrap().is_some()).await;
    quiet().await;
    let patch = Patch::Merge(json!({"data": {"size": "4"}}));
    other.config_maps().patch("child", &PatchParams::default(), &patch).await.unwrap();
    eventually("it is restored", async || {
        other.config_maps().get("child").await.unwrap().data.unwrap()["size"] == "3"
    })
    .await;
    let owned: Api<ConfigMap> = other.config_maps();
    assert!(owned.get("child").await.unwrap().metadata.owner_references.is_none());
    operating.stop().await;
}

#[tokio::test]
async fn the_status_is_written_only_when_it_says_something_else() {
    let place = Place::new("status").await;
    let widgets = Widgets::new(|seen| {
        let mut plan = Plan::new();
        plan.set_status(&json!({"observedGeneration": seen.widget.metadata.generation, "note": "fine"}));
        plan
    });
    let mark = place.namespace.mark().await.unwrap();
    let operating = place.start(widgets.controller()).await;
    place.create("a", 3).await;
    eventually("it is written", async || place.widgets().get("a").await.unwrap().status.is_some()).await;
    quiet().await;
    assert_eq!(place.identity.requests_since(&mark).await.unwrap().writes().len(), 1);
    let patch = Patch::Merge(json!({"status": {"note": "somebody was here"}}));
    place.widgets().patch_status("a", &PatchParams::default(), &patch).await.unwrap();
    let note = |widget: Widget| widget.status.unwrap().note;
    eventually("it is restored", async || note(place.widgets().get("a").await.unwrap()) == "fine").await;
    operating.stop().await;
}

#[tokio::test]
async fn a_status_that_the_api_server_completes_is_written_once_all_the_same() {
    let place = Place::new("status-completed").await;
    let decisions = Arc::new(AtomicUsize::new(0));
    let counted = decisions.clone();
    let widgets = Widgets::new(move |seen| {
        counted.fetch_add(1, Ordering::SeqCst);
        let mut plan = Plan::new();
        // The CRD has a default for the grade.
        plan.set_status(&json!({"note": seen.widget.spec.size.to_string(), "detail": {}}));
        plan
    });
    let mark = place.namespace.mark().await.unwrap();
    let operating = place.start(widgets.controller()).await;
    place.create("a", 3).await;
    eventually("it is written", async || place.widgets().get("a").await.unwrap().status.is_some()).await;
    for round in 0..5 {
        let before = decisions.load(Ordering::SeqCst);
        let patch = Patch::Merge(json!({"metadata": {"labels": {"round": round.to_string()}}}));
        place.widgets().patch("a", &PatchParams::default(), &patch).await.unwrap();
        eventually("it is looked at", async || decisions.load(Ordering::SeqCst) > before).await;
    }
    quiet().await;
    let detail = place.widgets().get("a").await.unwrap().status.unwrap().detail;
    assert_eq!(detail.unwrap().grade, "plain");
    assert_eq!(place.identity.requests_since(&mark).await.unwrap().writes().len(), 1);
    place.resize(4).await;
    let note = async || place.widgets().get("a").await.unwrap().status.unwrap().note;
    eventually("it goes on", async || note().await == "4").await;
    let patch = Patch::Merge(json!({"status": {"note": "somebody was here"}}));
    place.widgets().patch_status("a", &PatchParams::default(), &patch).await.unwrap();
    eventually("it is restored", async || note().await == "4").await;
    operating.stop().await;
}
