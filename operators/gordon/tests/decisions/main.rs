//! What the operator decides, without a cluster.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "these are tests"
)]

mod model;

use gordon_operator::{analyse::analyse, api::GordonStatus, observe::Seen};
use model::{World, pod, seen};
use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};
use rstest::rstest;
use serde_json::json;
use wheelhouse::{Plan, plan::Guard, plan::Step, world::Failure};

fn steps(seen: &Seen) -> Vec<String> {
    analyse(seen).steps.iter().map(|planned| planned.step.to_string()).collect()
}

fn status(seen: &Seen) -> GordonStatus {
    serde_json::from_value(analyse(seen).status.unwrap()).unwrap()
}

fn readiness(seen: &Seen) -> (String, String, String) {
    let condition = status(seen).conditions.remove(0);
    (condition.status, condition.reason, condition.message)
}

#[test]
fn missing_pods_are_created_under_names_that_can_be_told_again() {
    let seen = seen(3, vec![pod("g-1", "Running", true)]);
    assert_eq!(steps(&seen), ["create Pod g-0", "create Pod g-2"]);
}

#[test]
fn surplus_pods_go_one_at_a_time_from_the_end() {
    let pods = (0..12).map(|index| pod(&format!("g-{index}"), "Running", true)).collect();
    assert_eq!(steps(&seen(2, pods)), ["delete Pod g-11"]);
}

#[test]
fn a_pod_that_goes_keeps_its_name_until_it_is_gone() {
    let mut going = pod("g-0", "Running", true);
    going.reference.terminating = true;
    let seen = seen(1, vec![going]);
    assert_eq!(steps(&seen), [""; 0]);
    assert_eq!(readiness(&seen).1, "WaitingForPods");
    assert_eq!(status(&seen).pods[0].phase, "Terminating");
}

#[test]
fn a_finished_pod_is_replaced_after_a_while_and_only_if_it_is_still_finished() {
    let mut seen = seen(1, vec![pod("g-0", "Failed", false)]);
    seen.pods[0].created = seen.now;
    let plan = analyse(&seen);
    assert_eq!(steps(&seen), [""; 0]);
    assert_eq!(plan.look_again_after.unwrap().as_secs(), 10);

    seen.pods[0].created = "2020-01-01T00:00:00Z".parse().unwrap();
    let plan = analyse(&seen);
    let Step::Delete { guard: Guard::Still(still), .. } = &plan.steps[0].step else { panic!("{plan:?}") };
    assert_eq!(still, &[("/status/phase".to_owned(), json!("Failed"))]);
}

#[test]
fn a_changed_image_is_rolled_out_one_pod_at_a_time() {
    let mut seen = seen(2, vec![pod("g-0", "Running", true), pod("g-1", "Running", true)]);
    assert_eq!(steps(&seen), [""; 0]);
    seen.gordon.spec.gordon.image = Some("another".into());
    assert_eq!(steps(&seen), ["delete Pod g-0"]);
    seen.pods[1].ready = false;
    assert_eq!(steps(&seen), ["delete Pod g-1"], "the one that does not work anyway");
    let Step::Delete { guard, .. } = &analyse(&seen).steps[0].step else { panic!() };
    assert_eq!(*guard, Guard::Unchanged, "if it works meanwhile, it stays");
}

#[test]
fn an_image_that_does_not_work_costs_one_pod() {
    let mut seen = seen(3, (0..3).map(|index| pod(&format!("g-{index}"), "Running", true)).collect());
    let updated = seen.pods[0].made_for.clone();
    seen.pods[1].made_for = None;
    seen.pods[2].made_for = None;
    seen.pods[0].ready = false;
    assert_eq!(steps(&seen), [""; 0], "the new one does not work");
    seen.pods[1].ready = false;
    assert_eq!(steps(&seen), [""; 0], "an old one that stops working meanwhile is not given up");
    seen.pods[1].phase = "Pending".to_owned();
    assert_eq!(steps(&seen), ["delete Pod g-1"], "one that never ran costs nothing");
    seen.pods[1].phase = "Running".to_owned();
    seen.pods[0].made_for = Some("tried before".to_owned());
    assert_eq!(steps(&seen), ["delete Pod g-0"], "what is wanted was corrected");
    seen.pods[0].made_for = updated;
    seen.pods[0].ready = true;
    assert_eq!(steps(&seen), ["delete Pod g-1"]);
}

#[test]
fn a_newer_operator_with_another_image_of_its_own_restarts_nobody() {
    let mut seen = seen(2, vec![pod("g-0", "Running", true), pod("g-1", "Running", true)]);
    seen.image = "wheelhouse.dev/gordon:99.0".to_owned();
    assert_eq!(steps(&seen), [""; 0]);
    seen.pods.remove(1);
    assert_eq!(steps(&seen), ["create Pod g-1"], "what is made anew is made of it");
}

#[test]
fn a_name_that_somebody_else_has_is_left_to_them_and_told() {
    let mut seen = seen(2, vec![]);
    seen.taken_names.insert("g-0".into());
    assert_eq!(steps(&seen), ["create Pod g-1"]);
    assert_eq!(readiness(&seen).1, "NameTaken");
    let events: Vec<_> = analyse(&seen).events.into_iter().map(|event| event.reason).collect();
    assert_eq!(events, ["Scheduled", "NameTaken"]);
}

#[test]
fn a_template_that_makes_no_pod_is_told_and_nothing_is_done() {
    let mut seen = seen(2, vec![pod("g-0", "Running", true)]);
    seen.gordon.spec.gordon.template = Some(json!({"spec": {"containers": 7}}));
    assert_eq!(steps(&seen), [""; 0]);
    let (status, reason, message) = readiness(&seen);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "InvalidTemplate"));
    assert!(message.contains("spec.gordon.template"), "{message}");
}

#[test]
fn a_gordon_that_goes_is_left_to_the_garbage_collector() {
    let mut seen = seen(2, vec![pod("g-0", "Running", true)]);
    seen.gordon.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(seen.now));
    assert_eq!(analyse(&seen), Plan::new());
}

#[rstest]
#[case(3, 3, 3, "True", "AllReady", "3 of 3 pods are ready")]
#[case(3, 3, 1, "False", "WaitingForPods", "1 of 3 pods are ready")]
#[case(1, 3, 3, "False", "ScalingDown", "3 pods are there, 1 are wanted")]
#[case(0, 0, 0, "True", "AllReady", "0 of 0 pods are ready")]
fn the_condition_says_what_is_waited_for(
    #[case] wanted: i32,
    #[case] there: usize,
    #[case] ready: usize,
    #[case] status: &str,
    #[case] reason: &str,
    #[case] message: &str,
) {
    let pods = (0..there).map(|index| pod(&format!("g-{index}"), "Running", index < ready)).collect();
    let seen = seen(wanted, pods);
    assert_eq!(readiness(&seen), (status.to_owned(), reason.to_owned(), message.to_owned()));
}

#[test]
fn what_went_wrong_the_last_time_is_in_the_condition() {
    let mut seen = seen(1, vec![]);
    seen.last_failure =
        Some(Failure { category: wheelhouse::Category::Forbidden, message: "not allowed".into() });
    assert_eq!(readiness(&seen), ("False".into(), "Forbidden".into(), "not allowed".into()));
}

/// Law 1, and the property that matters: whatever was observed, following the
/// plans leads to what is wanted, and then nothing is done any more. On the way
/// there are never more pods than the largest number that was wanted.
///
/// `WORLDS` says how many are tried: 1,000 unless told otherwise; `make soak`
/// tries a hundred thousand, which is more than a million observations.
#[test]
fn from_every_world_the_plans_lead_to_what_is_wanted_and_then_stay_still() {
    let worlds: u64 =
        std::env::var("WORLDS").ok().map_or(1_000, |text| text.parse().expect("WORLDS is a number"));
    let mut observations = 0_u64;
    for seed in 0..worlds {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut world = World::random(&mut random);
        let most = world.live_pods().max(usize::try_from(world.wanted()).unwrap());
        for round in 0.. {
            assert!(round < 100, "seed {seed}: it does not settle: {world:#?}");
            let seen = world.observe();
            let plan = analyse(&seen);
            assert_eq!(plan, analyse(&seen), "seed {seed}: the same observation, another plan");
            let text = serde_json::to_string(&seen).unwrap();
            assert_eq!(serde_json::from_str::<Seen>(&text).unwrap(), seen, "seed {seed}");
            observations += 1;
            let status_is_new = world.follow(&plan, &mut random);
            assert!(world.live_pods() <= most, "seed {seed}: more pods than were ever wanted: {world:#?}");
            if plan.is_quiet() && plan.look_again_after.is_none() && !status_is_new && !world.goes_on() {
                break;
            }
            let trouble = round < 10 && random.random_bool(0.3);
            world.pass_time(&mut random, trouble);
        }
        assert!(world.is_as_wanted(), "seed {seed}: it rests, and is not as wanted: {world:#?}");
        let plan = analyse(&world.observe());
        assert!(plan.is_quiet() && !world.follow(&plan, &mut random), "seed {seed}: it does not stay still");
    }
    println!("{worlds} worlds, {observations} observations: all settled and stayed still");
}
