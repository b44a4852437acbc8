//! The EtcdBackup that the spec of a cluster asks for.

use etcd_operator::{analyse::analyse, api::backup::ClusterBackup};
use serde_json::json;
use wheelhouse::Step;

use super::{is_ready, observed, settled, steps};

fn nightly() -> ClusterBackup {
    let wish = json!({
        "schedule": "0 3 * * *",
        "retention": {"keepLast": 7, "keepForSeconds": 604_800},
        "s3": {"path": "bucket/db", "awsSecret": "aws"},
    });
    serde_json::from_value(wish).unwrap()
}

#[test]
fn backups_in_the_spec_of_a_cluster_are_an_etcdbackup_of_its_name_and_scope() {
    let (mut world, mut random) = settled(3);
    world.cluster.spec.backup = Some(nightly());
    let scope = ("etcd.database.coreos.com/scope".to_owned(), "clusterwide".to_owned());
    world.cluster.metadata.annotations.get_or_insert_default().extend([scope]);
    let plan = analyse(&observed(&mut world, &mut random));
    let applied = plan.steps.iter().find_map(|planned| match &planned.step {
        Step::Apply(object) if object.kind.kind == "EtcdBackup" => Some(object.content.clone()),
        _ => None,
    });
    let applied = applied.unwrap();
    assert_eq!(applied["metadata"]["name"], "db");
    assert_eq!(applied["metadata"]["annotations"]["etcd.database.coreos.com/scope"], "clusterwide");
    let spec = &applied["spec"];
    assert_eq!((&spec["cluster"], &spec["schedule"]), (&json!("db"), &json!("0 3 * * *")));
    assert_eq!(spec["retention"], json!({"keepLast": 7, "keepForSeconds": 604_800}));
    assert_eq!(spec["s3"]["path"], "bucket/db");
}

#[test]
fn an_etcdbackup_that_is_not_wanted_any_more_goes() {
    let (mut world, mut random) = settled(3);
    let mut seen = observed(&mut world, &mut random);
    let mut kept = seen.pods[0].reference.clone();
    (kept.kind.kind, kept.name) = ("EtcdBackup".to_owned(), "db".to_owned());
    seen.backups = vec![kept];
    assert_eq!(steps(&seen), ["delete EtcdBackup db"]);
    seen.cluster.spec.backup = Some(nightly());
    assert_eq!(steps(&seen), [""; 0]);
}

/// The first failure ends a plan. So what the API server may refuse comes after what a cluster needs.
#[test]
fn an_etcdbackup_that_is_refused_keeps_no_member_from_being_replaced() {
    let (mut world, mut random) = settled(3);
    world.cluster.spec.backup = Some(nightly());
    world.volumes.get_mut("db-1").unwrap().1.log = None;
    world.pods.get_mut("db-1").unwrap().runs = false;
    world.run_pods(&mut random);
    let is_refused = |step: &Step<_>| matches!(step, Step::Apply(object) if object.kind.kind == "EtcdBackup");
    for _ in 0..60 {
        let mut plan = analyse(&world.observe(&mut random));
        if let Some(first) = plan.steps.iter().position(|planned| is_refused(&planned.step)) {
            plan.steps.truncate(first);
        }
        world.follow(&plan, None, &mut random);
        world.run_pods(&mut random);
        world.check_nothing_is_lost();
    }
    assert!(is_ready(&world), "{:#?}", world.story);
    assert!(world.list.iter().all(|listed| listed.name != "db-1"), "{:#?}", world.story);
}
