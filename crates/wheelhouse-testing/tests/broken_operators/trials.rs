//! Operators that are broken on purpose, one for each class of bug that Sieve
//! (OSDI '22) and Acto (SOSP '23) found in real ones: each is caught, and named.
//! And one that is not broken.
//!
//! Their resource is a ConfigMap with the label `role: wanted`, which says how many
//! children there are to be, and of which version.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::{StreamExt as _, future::BoxFuture, pin_mut};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Config, ResourceExt as _,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
    runtime::{
        reflector::{self, Store},
        watcher::{self, Event},
    },
};
use serde_json::json;
use wheelhouse_testing::{
    WatchFault,
    faults::{Class, Disturbance, Finding, Report, Scenario, Stage, Subject, Symptom, Trial},
    rule,
};

const NAME: &str = "a";
const PAUSE: Duration = Duration::from_millis(150);

fn config_map(name: &str, labels: &[(&str, &str)], data: &[(&str, &str)]) -> ConfigMap {
    let owned = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<BTreeMap<_, _>>()
    };
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(owned(labels)),
            ..Default::default()
        },
        data: Some(owned(data)),
        ..Default::default()
    }
}

fn child(number: usize, version: &str) -> ConfigMap {
    config_map(&format!("{NAME}-{number}"), &[("of", NAME)], &[("version", version)])
}

fn field(object: &ConfigMap, name: &str) -> String {
    object.data.as_ref().and_then(|data| data.get(name)).cloned().unwrap_or_default()
}

/// What an operator sees: its cache, and the way to the API server.
struct Cluster {
    store: Store<ConfigMap>,
    api: Api<ConfigMap>,
}

impl Cluster {
    fn wanted(&self) -> Option<(usize, String)> {
        let all = self.store.state();
        let wanted = all.iter().find(|object| object.labels().get("role").is_some())?;
        Some((field(wanted, "count").parse().unwrap(), field(wanted, "version")))
    }

    fn children(&self) -> Vec<ConfigMap> {
        let all = self.store.state();
        let mut children: Vec<_> = all
            .iter()
            .filter(|object| object.labels().get("of").is_some())
            .map(|object| (**object).clone())
            .collect();
        children.sort_by_key(kube::ResourceExt::name_any);
        children
    }

    fn knows(&self, number: usize) -> bool {
        let name = format!("{NAME}-{number}");
        self.children().iter().any(|child| child.name_any() == name)
    }

    async fn create(&self, number: usize, version: &str) -> kube::Result<ConfigMap> {
        self.api.create(&PostParams::default(), &child(number, version)).await
    }

    async fn delete(&self, name: &str) -> bool {
        self.api.delete(name, &Default::default()).await.is_ok()
    }
}

/// A look at everything, with the event that led to it and what the operator remembers.
type Look<S> = for<'a> fn(&'a Cluster, Option<&'a Event<ConfigMap>>, &'a mut S) -> BoxFuture<'a, ()>;

/// Runs an operator as most are written: a cache that is fed by a watch, lists that
/// may be from the past, and a look at everything after each change and now and then.
async fn operate<S: Default>(config: Config, reconcile: Look<S>) {
    let mut memory = S::default();
    let client = Client::try_from(config).unwrap();
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    let (store, writer) = reflector::store();
    let cluster = Cluster { store, api: api.clone() };
    // As client-go does.
    let from_any_time = watcher::Config { page_size: None, ..watcher::Config::default().any_semantic() };
    let events = watcher::watcher(api, from_any_time).boxed();
    let events = reflector::reflector(writer, events);
    pin_mut!(events);
    let mut is_listed = false;
    loop {
        match tokio::time::timeout(Duration::from_millis(300), events.next()).await {
            Ok(Some(Ok(event))) => {
                is_listed |= matches!(event, Event::InitDone);
                if is_listed {
                    reconcile(&cluster, Some(&event), &mut memory).await;
                }
            }
            Ok(Some(Err(_))) => tokio::time::sleep(Duration::from_millis(50)).await,
            Ok(None) => return,
            Err(_) if is_listed => reconcile(&cluster, None, &mut memory).await,
            Err(_) => {}
        }
    }
}

async fn want(stage: Stage, count: usize, version: &str) {
    let wanted =
        config_map(NAME, &[("role", "wanted")], &[("count", &count.to_string()), ("version", version)]);
    let params = PatchParams::apply("somebody").force();
    let wanted = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": NAME, "labels": wanted.metadata.labels}, "data": wanted.data,
    });
    stage.api::<ConfigMap>().patch(NAME, &params, &Patch::Apply(wanted)).await.unwrap();
}

async fn has(stage: Stage, count: usize, version: &str) -> bool {
    let all = stage.api::<ConfigMap>().list(&Default::default()).await.unwrap().items;
    let children: Vec<_> = all.iter().filter(|object| object.labels().get("of").is_some()).collect();
    children.len() >= count && children.iter().all(|child| field(child, "version") == version)
}

fn scenario() -> Scenario {
    Scenario::new()
        .act("nothing is wanted", |stage| want(stage, 0, "1"), |stage| has(stage, 0, "1"))
        .act("two are wanted", |stage| want(stage, 2, "1"), |stage| has(stage, 2, "1"))
        .act(
            "one is lost",
            |stage| async move {
                stage.api::<ConfigMap>().delete("a-1", &Default::default()).await.unwrap();
            },
            |stage| has(stage, 2, "1"),
        )
}

fn replacing() -> Scenario {
    Scenario::new().act("one is wanted", |stage| want(stage, 1, "1"), |stage| has(stage, 1, "1")).act(
        "a newer one is wanted",
        |stage| want(stage, 1, "2"),
        |stage| has(stage, 1, "2"),
    )
}

fn subject<F>(name: &str, run: impl Fn(Config) -> F + Send + Sync + 'static) -> Subject
where
    F: Future<Output = ()> + Send + 'static,
{
    let rules =
        vec![rule(&["get", "list", "watch", "create", "update", "patch", "delete"], "", &["configmaps"])];
    Subject::new(name, rules, move |mut config, namespace| {
        config.default_namespace = namespace;
        run(config)
    })
}

/// Puts an operator through some of the trouble; through all of it with `FAULTS=all`.
async fn tried(subject: Subject, scenario: Scenario, is_tried: fn(&Disturbance) -> bool) -> Report {
    let all = std::env::var("FAULTS").as_deref() == Ok("all");
    let trial = Trial::new(subject, scenario).pairs(0, 1).when(move |one| all || is_tried(one));
    let report = trial.run().await.unwrap();
    println!("{report}");
    report
}

fn crashes(one: &Disturbance) -> bool {
    matches!(one, Disturbance::CrashAfterWrite(_))
}

fn stale_reads(one: &Disturbance) -> bool {
    matches!(
        one,
        Disturbance::CrashIntoThePast(..)
            | Disturbance::FreezeAfterWrite(..)
            | Disturbance::Watches(WatchFault::Late(_))
    )
}

fn troubled_watches(one: &Disturbance) -> bool {
    matches!(one, Disturbance::Watches(_))
}

fn found(report: &Report, class: Class, is_so: impl Fn(&Finding) -> bool) {
    let is_it = |finding: &Finding| finding.classes() == [class] && is_so(finding);
    assert!(report.findings.iter().any(is_it), "no such finding of {class}:\n{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_not_broken_passes() {
    let subject = subject("right", |config| {
        operate::<()>(config, |cluster, _, ()| {
            Box::pin(async move {
                let Some((count, version)) = cluster.wanted() else { return };
                for number in 0..count {
                    let name = format!("{NAME}-{number}");
                    if let Ok(None) = cluster.api.get_opt(&name).await {
                        drop(cluster.create(number, &version).await);
                    }
                }
            })
        })
    });
    let report = tried(subject, scenario(), |one| crashes(one) || troubled_watches(one)).await;
    assert!(report.findings.is_empty(), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_acts_on_a_stale_list_is_caught() {
    // If nothing is wanted when it starts it clears up, whatever there is: also what
    // was made since.
    let subject = subject("acts on a stale list", |config| {
        operate::<bool>(config, |cluster, _, has_cleared_up| {
            Box::pin(async move {
                let Some((count, version)) = cluster.wanted() else { return };
                if count == 0 && !std::mem::replace(has_cleared_up, true) {
                    for number in 0..2 {
                        cluster.delete(&format!("{NAME}-{number}")).await;
                    }
                }
                for number in 0..count {
                    if !cluster.knows(number) {
                        drop(cluster.create(number, &version).await);
                    }
                }
                tokio::time::sleep(PAUSE).await;
            })
        })
    });
    let report = tried(subject, scenario(), stale_reads).await;
    found(&report, Class::Stale, |finding| {
        finding.symptom == Symptom::Deleted && finding.deleted[0].contains("a-")
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_leaks_a_child_when_it_crashes_between_two_writes_is_caught() {
    // It makes a child and then writes down how many it has made; if the name is
    // taken, it takes the next.
    let subject = subject("leaks a child", |config| {
        operate::<()>(config, |cluster, _, ()| {
            Box::pin(async move {
                let Some((count, version)) = cluster.wanted() else { return };
                let Ok(Some(record)) = cluster.api.get_opt(NAME).await else { return };
                let made: usize = record.annotations().get("made").map_or(0, |made| made.parse().unwrap());
                if made >= count {
                    return;
                }
                let mut number = made;
                while let Err(kube::Error::Api(status)) = cluster.create(number, &version).await {
                    if status.code != 409 {
                        return;
                    }
                    number += 1;
                }
                let patch =
                    Patch::Merge(json!({"metadata": {"annotations": {"made": (made + 1).to_string()}}}));
                drop(cluster.api.patch(NAME, &PatchParams::default(), &patch).await);
            })
        })
    });
    let two_are_made = Scenario::new().act("two", |stage| want(stage, 2, "1"), |stage| has(stage, 2, "1"));
    let report = tried(subject, two_are_made, crashes).await;
    found(&report, Class::Intermediate, |finding| finding.symptom == Symptom::EndsElsewhere);
    assert!(report.to_string().contains("ConfigMap a-2 should not be there"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_misses_a_deletion_is_caught() {
    // It hears of deletions, and not of what is missing in a list.
    let subject = subject("misses a deletion", |config| {
        operate::<BTreeSet<String>>(config, |cluster, event, known| {
            Box::pin(async move {
                match event {
                    Some(Event::Delete(object)) => drop(known.remove(&object.name_any())),
                    _ => known.extend(cluster.children().iter().map(kube::ResourceExt::name_any)),
                }
                let Some((count, version)) = cluster.wanted() else { return };
                for number in 0..count {
                    if !known.contains(&format!("{NAME}-{number}")) {
                        drop(cluster.create(number, &version).await);
                    }
                }
            })
        })
    });
    let report = tried(subject, scenario(), troubled_watches).await;
    found(&report, Class::Unobserved, |finding| {
        finding.symptom == Symptom::NeverGotThere("one is lost".to_owned())
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_deletes_without_a_precondition_is_caught() {
    // What is of an old version is replaced; by its name.
    let subject = subject("deletes without precondition", |config| {
        operate::<()>(config, |cluster, _, ()| {
            Box::pin(async move {
                let Some((count, version)) = cluster.wanted() else { return };
                for number in 0..count {
                    let is_old = |child: &&ConfigMap| field(child, "version") != version;
                    let name = format!("{NAME}-{number}");
                    if cluster.children().iter().filter(is_old).any(|child| child.name_any() == name) {
                        cluster.delete(&name).await;
                        drop(cluster.create(number, &version).await);
                    } else if !cluster.knows(number) {
                        drop(cluster.create(number, &version).await);
                    }
                }
                tokio::time::sleep(PAUSE).await;
            })
        })
    });
    let report = tried(subject, replacing(), stale_reads).await;
    found(&report, Class::Stale, |finding| {
        finding.symptom == Symptom::Deleted && finding.deleted[0] == "configmaps a-0"
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_keeps_state_in_memory_is_caught() {
    let subject = subject("keeps state in memory", |config| {
        operate::<usize>(config, |cluster, _, made| {
            Box::pin(async move {
                let Some((count, version)) = cluster.wanted() else { return };
                // One after the other; the number of the next is known to nobody else.
                if *made < count && cluster.create(*made, &version).await.is_ok() {
                    *made += 1;
                }
            })
        })
    });
    let two_are_made = Scenario::new().act("two", |stage| want(stage, 2, "1"), |stage| has(stage, 2, "1"));
    let report = tried(subject, two_are_made, crashes).await;
    found(&report, Class::Intermediate, |finding| {
        finding.symptom == Symptom::NeverGotThere("two".to_owned())
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_fights_another_writer_is_caught() {
    // Each of two believes that the child has to say who made it.
    let subject = subject("fights another writer", |config| {
        operate::<Option<&'static str>>(config, |cluster, _, own_name| {
            Box::pin(async move {
                let Some((count, _)) = cluster.wanted() else { return };
                if own_name.is_none() {
                    let is_first = cluster.create(9, "claim").await.is_ok();
                    *own_name = Some(if is_first { "first" } else { "second" });
                }
                for number in 0..count {
                    let by = own_name.unwrap_or_default();
                    let known = cluster.api.get_opt(&format!("{NAME}-{number}")).await;
                    match known {
                        Ok(Some(known)) if field(&known, "by") == by => {}
                        Ok(Some(_)) => {
                            let patch = Patch::Merge(json!({"data": {"by": by}}));
                            let name = format!("{NAME}-{number}");
                            drop(cluster.api.patch(&name, &PatchParams::default(), &patch).await);
                        }
                        Ok(None) => drop(cluster.create(number, "1").await),
                        Err(_) => {}
                    }
                }
            })
        })
    });
    let one_is_made = Scenario::new().act(
        "one",
        |stage| want(stage, 1, "1"),
        |stage| async move {
            let known = stage.api::<ConfigMap>().get_opt("a-0").await.unwrap();
            known.is_some_and(|known| !field(&known, "by").is_empty())
        },
    );
    let report = tried(subject, one_is_made, |one| *one == Disturbance::TwoLeaders).await;
    found(&report, Class::Stale, |finding| matches!(finding.symptom, Symptom::NeverStill(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_takes_unreachable_for_absent_is_caught() {
    // What does not answer must be broken, and is made anew.
    let subject = subject("takes unreachable for absent", |config| {
        operate::<()>(config, |cluster, _, ()| {
            Box::pin(async move {
                let Some((count, version)) = cluster.wanted() else { return };
                for number in 0..count {
                    let name = format!("{NAME}-{number}");
                    if !matches!(cluster.api.get_opt(&name).await, Ok(Some(_))) {
                        cluster.delete(&name).await;
                        drop(cluster.create(number, &version).await);
                    }
                }
            })
        })
    });
    let report = tried(subject, scenario(), |one| matches!(one, Disturbance::RefuseRead(4..=8, 500))).await;
    found(&report, Class::Unreachable, |finding| finding.symptom == Symptom::Deleted);
}
