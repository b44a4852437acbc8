//! Law 10: least privilege. RBAC is derived from what the code registers and
//! declares; a rule that is missing or superfluous is told by name.

use wheelhouse::{Controller, Declared, Manager, k8s_openapi::api::core::v1::Secret};
use wheelhouse_testing::rule;

use super::widgets::{Operating, Place, Widgets, eventually, one_config_map, quiet};

fn manager(controller: Controller<Widgets>) -> Manager {
    Manager::new("test-operator").controller(controller)
}

async fn start(place: &Place, manager: Manager, config: wheelhouse::kube::Config) -> Operating {
    Operating::start(manager, config, place.settings()).await
}

#[tokio::test]
async fn an_operator_gets_by_with_what_its_code_declares() {
    let place = Place::new("rights").await;
    let rules = manager(Widgets::new(one_config_map).controller()).rules();
    let identity = place.namespace.with_rules(rules.clone()).await.unwrap();
    let mark = place.namespace.mark().await.unwrap();
    let operating =
        start(&place, manager(Widgets::new(one_config_map).controller()), identity.config()).await;
    place.create("a", 1).await;
    eventually("it works", async || place.is_resized(1).await).await;
    quiet().await;
    let report = identity.check_rules(&rules, &mark).await.unwrap();
    assert!(report.missing.is_empty(), "{report}");
    operating.stop().await;
}

#[tokio::test]
async fn a_missing_rule_and_a_superfluous_one_are_told_by_name() {
    let place = Place::new("wrong-rights").await;
    // It says that it uses pods, which it does not, and its ConfigMaps are taken from it.
    let declared = Declared::new("", "pods", &["list"]);
    let mut rules = manager(Widgets::new(one_config_map).controller().uses(declared)).rules();
    for rule in &mut rules {
        if let Some(resources) = &mut rule.resources {
            resources.retain(|resource| resource != "configmaps");
        }
    }
    rules.retain(|rule| rule.resources.as_ref().is_some_and(|resources| !resources.is_empty()));
    rules.push(rule(&["get", "list", "watch"], "", &["configmaps"]));
    let identity = place.namespace.with_rules(rules.clone()).await.unwrap();
    let mark = place.namespace.mark().await.unwrap();
    let operating =
        start(&place, manager(Widgets::new(one_config_map).controller()), identity.config()).await;
    place.create("a", 1).await;
    eventually("it was refused", async || {
        let report = identity.check_rules(&rules, &mark).await.unwrap();
        report.missing.contains("patch configmaps")
    })
    .await;
    let report = identity.check_rules(&rules, &mark).await.unwrap();
    assert!(report.unused.contains("list pods"), "{report}");
    operating.stop().await;
}

#[test]
fn what_was_once_owned_is_pruned_and_never_made() {
    let rules = manager(Widgets::new(one_config_map).controller().once_owned::<Secret>()).rules();
    let of = |resource: &str| {
        let rule = rules.iter().find(|rule| rule.resources.iter().flatten().any(|known| known == resource));
        rule.unwrap().verbs.clone()
    };
    assert_eq!(of("secrets"), ["get", "list", "watch", "delete"]);
    assert_eq!(of("configmaps"), ["get", "list", "watch", "create", "patch", "delete"]);
}

#[test]
fn an_agent_has_rules_of_its_own_and_the_operator_may_bind_them() {
    let agent = wheelhouse::Agent::new("test-agent").uses(Declared::new("", "configmaps", &["get", "watch"]));
    assert_eq!(agent.rules().len(), 1);
    let manager = manager(Widgets::new(one_config_map).controller()).agent(agent);
    let bind = manager.rules().into_iter().find(|rule| rule.verbs == ["bind"]).unwrap();
    assert_eq!(bind.resource_names.unwrap(), ["test-agent"]);
}
