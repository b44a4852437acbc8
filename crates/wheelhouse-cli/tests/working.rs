//! Working on an operator, on a real API server without nodes: what the command does there, with a program that only
//! prints what an operator would.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what is wrong by ending"
)]

mod support;

use std::{
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use support::{Said, Wheelhouse, eventually};

const CRD: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: pages.app.example.com
  annotations: {wheelhouse.dev/operator: shop-operator}
spec:
  group: app.example.com
  scope: Namespaced
  names: {kind: Page, plural: pages, singular: page}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema: {type: object, properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
";

const OPERATOR: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: shop-operator, namespace: default}
---
apiVersion: v1
kind: Service
metadata: {name: shop-operator, namespace: default}
spec: {ports: [{port: 443}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop-operator, namespace: default}
spec:
  replicas: 0
  selector: {matchLabels: {app.kubernetes.io/name: shop-operator}}
  template:
    metadata: {labels: {app.kubernetes.io/name: shop-operator}}
    spec: {containers: [{name: operator, image: none}]}
";

/// What the operator told the API server at run time: nobody answers there any more.
const WEBHOOKS: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: shop-operator}
webhooks: [{
  name: pages.app.example.com, sideEffects: None, admissionReviewVersions: [v1], failurePolicy: Fail,
  clientConfig: {url: 'https://127.0.0.1:1/validate'},
  rules: [{apiGroups: [app.example.com], apiVersions: [v1], resources: [pages], operations: [OPERATIONS]}]}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: shop-operator}
webhooks: [{
  name: pages.app.example.com, sideEffects: None, admissionReviewVersions: [v1], failurePolicy: Fail,
  clientConfig: {url: 'https://127.0.0.1:1/default'},
  rules: [{apiGroups: [app.example.com], apiVersions: [v1], resources: [pages], operations: [CREATE]}]}]
";

/// What the operator made for itself, and what it did not.
const MADE_BY_ITSELF: &str = "
apiVersion: v1
kind: Secret
metadata: {name: shop-operator-webhooks, namespace: default}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: shop-operator, namespace: default}
---
apiVersion: v1
kind: Secret
metadata: {name: shop-operator-of-somebody-else, namespace: default}
";

/// A control plane, and a project whose operator prints what a file says.
struct Shop {
    wheelhouse: Wheelhouse,
    cluster: &'static str,
    project: PathBuf,
    bin: PathBuf,
}

impl Shop {
    fn on(cluster: &'static str) -> Self {
        let mut wheelhouse = Wheelhouse::new();
        wheelhouse.up(cluster, &["--control-plane-only"]).ok();
        let project = wheelhouse.folder("shop");
        let bin = wheelhouse.folder("bin");
        let init = ["init", &project.to_string_lossy(), "--domain", "example.com"];
        wheelhouse.call(&[&init[..], &["--sdk", "https://git.example.com/wheelhouse.git"]].concat()).ok();
        let printed = wheelhouse.file("printed.yaml", format!("{CRD}---{OPERATOR}"));
        support::program(
            &bin.join("cargo"),
            &format!(
                "while [ \"$1\" != -- ]; do shift; done; shift\n\
             case \"$1\" in manifests) cat {};; crds) cat crds.yaml;; rbac) echo \"asked $*\" >&2; cat rbac.yaml;; *) echo \"called with $*\";; esac",
                printed.display()
            ),
        );
        let shop = Self { wheelhouse, cluster, project, bin };
        shop.apply(CRD);
        shop.kubectl(&["wait", "--for=condition=Established", "crd/pages.app.example.com"]).ok();
        shop
    }

    /// Calls a verb of the command in the project.
    fn call(&self, arguments: &[&str]) -> Said {
        self.command(arguments).output().unwrap().into()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let path = format!("{}:{}", self.bin.display(), std::env::var("PATH").unwrap());
        let mut command = self.wheelhouse.command(arguments);
        command.env("PATH", path).current_dir(&self.project);
        command
    }

    fn kubectl(&self, arguments: &[&str]) -> Said {
        self.wheelhouse.kubectl(self.cluster, arguments)
    }

    fn apply(&self, manifest: &str) {
        self.wheelhouse.apply(self.cluster, manifest);
    }

    /// A resource that only its operator lets go.
    fn page(&self, name: &str) {
        self.apply(&format!(
            "apiVersion: app.example.com/v1\nkind: Page\nmetadata: {{name: {name}, namespace: default, finalizers: \
             [app.example.com/page]}}\n"
        ));
    }

    fn is_there(&self, what: &[&str]) -> bool {
        !self.kubectl(&[&["get", "--ignore-not-found", "-o", "name"], what].concat()).ok().is_empty()
    }

    /// Lets a resource that is to go do so, as an operator does; whether that still ran.
    fn clean_up_after(&self, name: &str) -> bool {
        let deleted = ["get", "page", name, "-o", "jsonpath={.metadata.deletionTimestamp}"];
        eventually(Duration::from_secs(60), || self.kubectl(&deleted).stdout, |at| !at.is_empty());
        let runs = self.is_there(&["deployment", "shop-operator"]);
        self.kubectl(&["patch", "page", name, "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#])
            .ok();
        runs
    }
}

#[test]
fn an_operator_is_taken_out_after_its_resources_and_nobody_waits_for_it_any_more() {
    let shop = Shop::on("undeploys");
    shop.apply(OPERATOR);
    shop.page("one");
    shop.apply(&WEBHOOKS.replace("OPERATIONS", "CREATE, UPDATE"));
    shop.apply(MADE_BY_ITSELF);
    eventually(
        Duration::from_secs(30),
        || shop.kubectl(&["annotate", "page", "one", "changed=now", "--overwrite"]).code,
        |code| *code != Some(0),
    );

    // What stays can be changed, although nobody answers webhooks any more.
    let said = shop.call(&["undeploy", "--keep-crds"]).ok();
    assert_eq!(said, "pages.app.example.com stays\nshop-operator is gone\n");
    for kind in ["validatingwebhookconfiguration", "mutatingwebhookconfiguration", "deployment", "service"] {
        assert!(!shop.is_there(&[kind, "shop-operator"]), "{kind} is still there");
    }
    let left = shop.kubectl(&["get", "secret,lease", "-o", "name"]).ok();
    assert_eq!(left, "secret/shop-operator-of-somebody-else\n");
    eventually(
        Duration::from_secs(30),
        || shop.kubectl(&["annotate", "page", "one", "changed=later", "--overwrite"]).code,
        |code| *code == Some(0),
    );

    // The operator is there as long as it is needed.
    shop.apply(OPERATOR);
    let mut undeploying = shop.command(&["undeploy"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    assert!(shop.clean_up_after("one"), "the operator was gone before its resources");
    let said = {
        assert!(undeploying.wait().unwrap().success());
        std::io::read_to_string(undeploying.stdout.take().unwrap()).unwrap()
    };
    assert_eq!(said, "deleting all pages.app.example.com: default/one\nshop-operator is gone\n");
    assert!(
        !shop.is_there(&["crd", "pages.app.example.com"]) && !shop.is_there(&["deployment", "shop-operator"])
    );
    assert_eq!(shop.call(&["undeploy"]).ok(), "shop-operator is gone\n", "twice is fine");
}

#[test]
fn resources_that_wait_for_an_operator_that_is_not_there_are_named() {
    let shop = Shop::on("waits");
    shop.page("one");
    shop.apply(&WEBHOOKS.replace("OPERATIONS", "DELETE"));
    let begun = Instant::now();
    let refused =
        shop.call(&["undeploy"]).refused("shop-operator does not run in this cluster, and default/one of");
    assert!(refused.contains("deploy it again first"), "{refused}");
    assert!(begun.elapsed() < Duration::from_secs(60));
    assert!(shop.is_there(&["crd", "pages.app.example.com"]));
}

#[test]
fn the_api_server_of_a_local_cluster_finds_the_webhooks_of_an_operator_that_runs_from_here() {
    let shop = Shop::on("runs");
    let said = shop.call(&["run", "--", "--log-level", "debug"]).ok();
    assert_eq!(
        said,
        "called with run --install-crds --no-leader-election --listen 127.0.0.1:8080 --log-level debug --webhook-url self\n"
    );
    let said = shop.call(&["run", "--", "--webhook-url=https://here"]).ok();
    assert!(said.ends_with(" --listen 127.0.0.1:8080 --webhook-url=https://here\n"), "{said}");

    // Also where the context is in the second of the files that are listed.
    let mine = shop.wheelhouse.file("mine", "apiVersion: v1\nkind: Config\n");
    let listed = std::env::join_paths([mine, shop.wheelhouse.kubeconfig()]).unwrap();
    let said = Said::from(shop.command(&["run"]).env("KUBECONFIG", listed).output().unwrap()).ok();
    assert!(said.ends_with(" --webhook-url self\n"), "{said}");

    // By another name, nobody knows what it reaches.
    let kubeconfig = std::fs::read_to_string(shop.wheelhouse.kubeconfig()).unwrap();
    let theirs = shop.wheelhouse.file("theirs", kubeconfig.replace("wheelhouse-runs", "theirs"));
    let refused = Said::from(shop.command(&["run"]).env("KUBECONFIG", theirs).output().unwrap());
    refused.refused(
        "this operator has webhooks, and the cluster of the current context may not reach this machine",
    );
}

#[test]
fn an_installation_is_the_kinds_and_nothing_else() {
    let shop = Shop::on("installs");
    std::fs::write(shop.project.join("crds.yaml"), CRD).unwrap();
    shop.kubectl(&["delete", "crd", "pages.app.example.com"]).ok();
    for time in ["the first time", "once more"] {
        assert_eq!(shop.call(&["install"]).ok(), "registered pages.app.example.com\n", "{time}");
    }
    assert!(shop.is_there(&["crd", "pages.app.example.com"]));
    assert!(!shop.is_there(&["deployment,serviceaccount,service", "shop-operator"]));
}

#[test]
fn samples_are_applied_with_the_list_of_them_and_not_as_files() {
    let shop = Shop::on("samples");
    let samples = shop.project.join("config/samples");
    std::fs::create_dir_all(&samples).unwrap();
    let sample = "apiVersion: app.example.com/v1\nkind: Page\nmetadata: {name: sample}\n";
    std::fs::write(samples.join("app_v1_page.yaml"), sample).unwrap();
    shop.call(&["manifests"]).ok();
    let folder = samples.to_string_lossy();
    assert_eq!(shop.kubectl(&["apply", "-k", &folder]).ok(), "page.app.example.com/sample created\n");
    shop.kubectl(&["apply", "-f", &folder]).refused("kustomization.yaml");
}

const RBAC: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: shop-operator, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: shop-operator, namespace: default}
rules: [{apiGroups: [apps], resources: [deployments], verbs: [get, patch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: shop-operator, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: shop-operator}
subjects: [{kind: ServiceAccount, namespace: default, name: shop-operator}]
";

#[test]
fn what_an_operator_may_do_is_compared_where_it_is_installed() {
    let shop = Shop::on("rules");
    std::fs::write(shop.project.join("rbac.yaml"), RBAC).unwrap();
    let check = |arguments: &[&str]| {
        let said = shop.call(&[&["rbac", "check"], arguments].concat());
        (said.code, said.stdout, said.stderr)
    };
    let missing = "missing     Role default/shop-operator: it is not installed\n\
                   missing     RoleBinding default/shop-operator: it is not installed\n"
        .to_owned();
    assert_eq!(check(&[]), (Some(3), missing.clone(), "asked rbac\n".to_owned()));

    let labels = "{name: shop-operator, namespace: default, labels: {app.kubernetes.io/name: shop-operator}}";
    let deployment = OPERATOR
        .replace("metadata: {name: shop-operator, namespace: default}", &format!("metadata: {labels}"));
    shop.apply(
        &deployment
            .replace("image: none", "image: none, args: [run, --namespace, team-a, --log-level, debug]"),
    );
    let asked = "asked rbac\nasked rbac --install-namespace default --namespace team-a\n".to_owned();
    assert_eq!(check(&[]), (Some(3), missing, asked.clone()));

    shop.apply(RBAC);
    let fine = "the operator may do what its code needs, and nothing else\n".to_owned();
    assert_eq!(check(&[]), (Some(0), fine, asked.clone()));
    assert_eq!(check(&["--output", "json"]), (Some(0), "[]\n".to_owned(), asked));

    shop.apply(&RBAC.replace("verbs: [get, patch]", "verbs: [get, delete]"));
    let (code, said, _) = check(&["--output", "json"]);
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    let role = "Role default/shop-operator";
    let expected = serde_json::json!([
        {"what": "missing", "object": role, "rule": "patch deployments.apps"},
        {"what": "superfluous", "object": role, "rule": "delete deployments.apps"},
    ]);
    assert_eq!((code, said), (Some(3), expected));
}

#[test]
fn a_role_that_nobody_is_given_and_one_that_is_given_beside_it_are_told() {
    let shop = Shop::on("bindings");
    std::fs::write(shop.project.join("rbac.yaml"), RBAC).unwrap();
    let check = || {
        let said = shop.call(&["rbac", "check"]);
        (said.code, said.stdout)
    };
    shop.apply(RBAC);
    assert_eq!(check().0, Some(0));

    // Whose role is given to somebody else may do nothing; and whoever is given more may do more.
    shop.apply(&RBAC.replace(
        "subjects: [{kind: ServiceAccount, namespace: default",
        "subjects: [{kind: ServiceAccount, namespace: other",
    ));
    let admin = "--clusterrole=cluster-admin";
    shop.kubectl(&["create", "clusterrolebinding", "all", admin, "--serviceaccount=default:shop-operator"])
        .ok();
    let role = "Role shop-operator for ServiceAccount";
    let told = format!(
        "missing     RoleBinding default/shop-operator: {role} default/shop-operator\n\
         superfluous RoleBinding default/shop-operator: {role} other/shop-operator\n\
         superfluous ClusterRoleBinding all: ClusterRole cluster-admin for ServiceAccount default/shop-operator\n"
    );
    assert_eq!(check(), (Some(3), told));

    shop.kubectl(&["delete", "clusterrolebinding", "all"]).ok();
    shop.kubectl(&["delete", "rolebinding", "shop-operator"]).ok();
    let missing = "missing     RoleBinding default/shop-operator: it is not installed\n".to_owned();
    assert_eq!(check(), (Some(3), missing));
}

/// A pod of the operator, which nobody runs here.
const POD: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: shop-operator, namespace: default}
---
apiVersion: v1
kind: Pod
metadata: {name: NAME, namespace: default, labels: {app.kubernetes.io/name: shop-operator}}
spec: {serviceAccountName: shop-operator, containers: [{name: operator, image: none, args: [ARGS]}]}
";

#[test]
fn who_cannot_be_asked_is_told_with_what_to_do_about_it() {
    let shop = Shop::on("asks");
    let page = "apiVersion: app.example.com/v1\nkind: Page\nmetadata: {name: one}\n";
    let page = shop.wheelhouse.file("page.yaml", page).display().to_string();
    let deployment = shop.wheelhouse.file("deployment.yaml", OPERATOR).display().to_string();
    let mut said = Vec::new();
    let mut call = |arguments: &[&str]| said.push(shop.call(arguments).refused(""));
    call(&["explain", "book", "one"]);
    call(&["plan", "--running", "-f", &deployment]);
    call(&["explain", "page", "one"]);
    call(&["plan", "--running", "-f", &page]);

    shop.apply(&POD.replace("NAME", "for-team").replace("ARGS", "run, --namespace, team"));
    call(&["explain", "page", "one"]);
    call(&["plan", "--running", "-f", &page]);

    // What is not there is told before anybody is asked, also to programs.
    shop.apply(&POD.replace("NAME", "for-all").replace("ARGS", "run"));
    call(&["explain", "pages.app.example.com", "typo", "--output", "json"]);
    insta::assert_snapshot!(said.join("\n"));
}

/// What an operator answers that would apply a ConfigMap with less in it than there was.
const PLANNED: &str = r#"[{"controller": "page", "key": "default/one", "plan": {"steps": [{"because": "it is wanted", "step": {"apply": {
    "kind": {"group": "", "version": "v1", "kind": "ConfigMap", "plural": "configmaps"},
    "content": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"kept": "a"}}}}}]},
    "words": ["apply ConfigMap one"], "would": ["apply ConfigMap one"]}]"#;

#[test]
fn a_plan_shows_what_an_apply_takes_away_and_says_what_may_not_be_read() {
    let shop = Shop::on("plans");
    let applied = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one, namespace: default, labels: {old: x}}\n\
                   data: {kept: a, gone: b}\n";
    let applied = shop.wheelhouse.file("applied.yaml", applied);
    let manager = "--field-manager=shop-operator/page";
    shop.kubectl(&["apply", "--server-side", manager, "-f", &applied.to_string_lossy()]).ok();
    shop.kubectl(&["label", "configmap", "one", "theirs=y"]).ok();
    let answer = shop.wheelhouse.file("answer.json", PLANNED);
    let operator = shop.bin.join("operator");
    let script = "case \"$1\" in --version) echo shop-operator 0.1.0;; *) cat ANSWER;; esac";
    support::program(&operator, &script.replace("ANSWER", &answer.display().to_string()));
    let page = shop.wheelhouse.file("page.yaml", "kind: Page\nmetadata: {name: one}\n");
    let plan = ["plan", "-f", &page.to_string_lossy(), "--operator", &operator.to_string_lossy()];
    let steps = "\
page default/one
  ~ ConfigMap one
    - metadata.labels.old: \"x\"
    - data.gone: \"b\"
      because it is wanted
  would apply ConfigMap one
";
    assert_eq!(shop.call(&plan).ok(), steps);

    // Whoever may not read it is not told that it is new.
    shop.kubectl(&["create", "serviceaccount", "nobody"]).ok();
    let token = shop.kubectl(&["create", "token", "nobody"]).ok();
    let mut config = kube::config::Kubeconfig::read_from(shop.wheelhouse.kubeconfig()).unwrap();
    config.auth_infos[0].auth_info =
        Some(serde_json::from_value(serde_json::json!({"token": token.trim()})).unwrap());
    let theirs = shop.wheelhouse.file("nobodys", serde_json::to_string(&config).unwrap());
    let said = Said::from(shop.command(&plan).env("KUBECONFIG", theirs).output().unwrap()).ok();
    let unread = "  ? ConfigMap one: cannot be read, so not compared\n      because it is wanted\n";
    assert_eq!(said, format!("page default/one\n{unread}  would apply ConfigMap one\n"));
}
