//! Whom `plan`, `record`, `replay` and `rbac check` ask, and what they say of what they could not see.

use super::{Desk, KUBECONFIG};

const PAGE: &str = "kind: Page\nmetadata: {name: one}\n";

/// What an operator prints that would change a Deployment.
const ONE_APPLY: &str = r#"[{"controller": "page", "key": "default/one", "plan": {"steps": [{"because": "it is wanted", "step": {"apply": {
    "kind": {"group": "apps", "version": "v1", "kind": "Deployment", "plural": "deployments"},
    "content": {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "one"}}}}}]},
    "words": ["apply Deployment one"], "would": ["apply Deployment one"]}]"#;

#[test]
fn what_nobody_answers_about_is_not_shown_as_new() {
    let desk = Desk::new();
    desk.write("no-kubeconfig", KUBECONFIG);
    desk.write("page.yaml", PAGE);
    desk.program("operator", ONE_APPLY);
    let said = desk.call("plan -f page.yaml --operator ./operator --exit-code");
    let error = "error: cannot read Deployment one, to compare it with the plan: ";
    assert!(said.contains(error) && said.ends_with("(exit code 1)\n"), "{said}");
    assert!(!said.contains("+ Deployment one"), "{said}");
}

#[test]
fn a_project_that_is_damaged_is_not_passed_over() {
    let desk = Desk::new();
    desk.write("wheelhouse.toml", "template = 1\n");
    desk.write("page.yaml", PAGE);
    let calls = ["plan -f page.yaml", "record page one", "replay recorded.json", "rbac check"];
    for call in calls {
        let said = desk.call(call);
        let error = "error: HERE/wheelhouse.toml is damaged: ";
        assert!(said.contains(error) && said.ends_with("(exit code 1)\n"), "{said}");
    }
    let said = desk.call("plan -f page.yaml --running");
    assert!(
        said.contains("error: there is no cluster to talk to: "),
        "who asks for another is not told: {said}"
    );
}

#[test]
fn the_project_can_be_another_folder() {
    let desk = Desk::with_a_project();
    desk.write("no-kubeconfig", KUBECONFIG);
    desk.write("page.yaml", PAGE);
    let asked = desk.path().join("asked");
    let script = "echo \"$*\" >> ASKED; while [ \"$1\" != -- ]; do shift; done; if [ \"$2\" = plan ]; then echo '[]'; fi";
    desk.script("bin/cargo", &script.replace("ASKED", &asked.display().to_string()));
    let calls = ["plan -f page.yaml", "record page one", "replay recorded.json", "rbac check"];
    for call in calls {
        desk.call(&format!("{call} --project shop/src"));
    }
    let folder = desk.path().canonicalize().unwrap().display().to_string();
    let asked = std::fs::read_to_string(asked).unwrap().replace(&folder, "HERE");
    insta::assert_snapshot!(asked, @r"
    run --quiet --bin shop-operator --manifest-path HERE/shop/Cargo.toml -- plan --json -f page.yaml
    run --quiet --bin shop-operator --manifest-path HERE/shop/Cargo.toml -- --version
    run --quiet --bin shop-operator --manifest-path HERE/shop/Cargo.toml -- record page/one -n default
    run --quiet --bin shop-operator --manifest-path HERE/shop/Cargo.toml -- replay recorded.json
    run --quiet --bin shop-operator --manifest-path HERE/shop/Cargo.toml -- rbac
    ");
    // Who names one means it.
    for call in calls {
        let said = desk.call(&format!("{call} --project bin"));
        assert!(said.contains("error: there is no wheelhouse.toml in HERE/bin or above it"), "{said}");
    }
    let said = desk.call("plan -f page.yaml --project shop --operator ./operator");
    assert!(said.ends_with("(exit code 2)\n"), "{said}");
}

#[test]
fn resources_can_be_piped_in() {
    let desk = Desk::new();
    desk.write("no-kubeconfig", KUBECONFIG);
    desk.script("operator", "if [ \"$1\" = plan ]; then echo \"$*\" >&2; cat >&2; echo '[]'; fi");
    insta::assert_snapshot!(desk.call_with("plan -f - --operator ./operator", PAGE), @r"
    $ wheelhouse plan -f - --operator ./operator
    plan --json -f -
    kind: Page
    metadata: {name: one}
    (exit code 0)
    ");
    // Also for the operator that runs, as far as one gets without a cluster.
    let said = desk.call_with("plan -f -", "");
    assert!(said.contains("error: what is piped in has no resource\n"), "{said}");
    let said = desk.call_with("plan -f -", PAGE);
    assert!(said.contains("error: cannot list the kinds of the cluster: "), "{said}");
}

/// What `record` writes, and where.
#[test]
fn what_is_recorded_goes_to_the_terminal_or_into_a_file() {
    let desk = Desk::new();
    desk.write("no-kubeconfig", KUBECONFIG);
    desk.script("operator", "echo \"{\\\"asked\\\": \\\"$*\\\"}\"");
    let mut said = desk.call("record page one -n team --operator ./operator");
    said += &desk.call("record page one --operator ./operator --file incident.json");
    let written = std::fs::read_to_string(desk.path().join("incident.json")).unwrap();
    assert_eq!(written, "{\"asked\": \"record page/one -n default\"}\n");
    said += &desk.call("record page one --operator ./operator -f nowhere/incident.json");
    // As a format it is understood by others.
    said += &desk.call("record page one --operator ./operator -o json");
    assert!(!desk.path().join("json").exists());
    insta::assert_snapshot!(said);
}

/// As the operator's own program tells it.
const ANOTHER_PLAN: &str = "\
error: the plan is not what was recorded:
  /steps/0/because: was \"it is wanted\", is \"somebody wants it\"
  /steps/1: was null, is {\"step\":\"wait\"}
now:
  1. apply Deployment one: somebody wants it
  2. wait: for a pod
";

#[test]
fn another_plan_than_the_recorded_one_is_no_failure_and_a_failure_is_no_other_plan() {
    let desk = Desk::new();
    desk.program("same", "the plan is as it was recorded:\n  1. apply Deployment one: it is wanted\n");
    let another = desk.write("another.printed", ANOTHER_PLAN);
    desk.script("another", &format!("echo 'warning: unused' >&2; cat {} >&2; exit 1", another.display()));
    desk.script("damaged", "echo 'error: this is no recorded decision: EOF' >&2; exit 1");
    let calls = [
        "same",
        "same --output json",
        "another",
        "another --output json",
        "damaged",
        "damaged --output json",
    ];
    insta::assert_snapshot!(
        calls.map(|who| desk.call(&format!("replay incident.json --operator ./{who}"))).concat()
    );
}

/// Half of a kubeconfig each, as `kubectl` takes them, too.
#[test]
fn files_that_kubeconfig_lists_are_one() {
    let desk = Desk::new();
    let (clusters, rest): (Vec<_>, Vec<_>) =
        KUBECONFIG.split_inclusive('\n').partition(|line| line.starts_with("clusters:"));
    desk.write("mine", &rest.concat());
    desk.write("theirs", &clusters.concat());
    desk.write("page.yaml", PAGE);
    desk.script("operator", "if [ \"$1\" = plan ]; then echo \"told $KUBECONFIG\" >&2; echo '[]'; fi");
    let plan = "plan -f page.yaml --operator ./operator";
    let with = |files: &str| desk.said(plan, desk.command(plan).env("KUBECONFIG", files));
    let said = with("mine:theirs");
    assert!(said.ends_with("told mine:theirs\n(exit code 0)\n"), "{said}");
    // One that is not there is passed over, also by the operator's program.
    let said = with("mine:none:theirs");
    assert!(said.ends_with("told mine:theirs\n(exit code 0)\n"), "{said}");
    // One that selects nothing hides nothing, as for kubectl.
    desk.write("other", "apiVersion: v1\nkind: Config\ncurrent-context: \"\"\n");
    let said = with("other:mine:theirs");
    assert!(said.ends_with("told other:mine:theirs\n(exit code 0)\n"), "{said}");
    let said = with("mine");
    assert!(said.contains("error: cannot tell from the kubeconfig which cluster is meant: "), "{said}");
    let said = with("none:neither");
    assert!(said.contains("error: there is no cluster to talk to: none, neither is not there."), "{said}");
}

#[test]
fn the_operators_program_is_told_the_kubeconfig_that_was_found() {
    let desk = Desk::new();
    desk.write("home/.kube/config", KUBECONFIG);
    desk.write("page.yaml", PAGE);
    desk.script("operator", "if [ \"$1\" = plan ]; then echo \"told $KUBECONFIG\" >&2; echo '[]'; fi");
    let plan = "plan -f page.yaml --operator ./operator";
    let mut command = desk.command(plan);
    let said = desk.said(plan, command.env_remove("KUBECONFIG").env("HOME", desk.path().join("home")));
    assert!(said.ends_with("told HERE/home/.kube/config\n(exit code 0)\n"), "{said}");
}
