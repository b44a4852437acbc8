//! The operator that runs in the cluster, which is asked by running its own program in its own pod: so it takes no other
//! rights than to run a program there, and it is asked what that very version would do.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::Pod},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{AttachParams, DynamicObject, ListParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use wheelhouse_local::manifests::Manifest;

use super::looks;

/// Where images of operators have their program.
const PROGRAM: &str = "/program";
/// Who looks after the resources of a kind.
const OPERATOR: &str = "wheelhouse.dev/operator";

/// The kinds of a cluster, and who looks after them.
pub(super) struct Kinds(Vec<CustomResourceDefinition>);

impl Kinds {
    /// Those of a cluster.
    pub(super) async fn of(client: &Client) -> Result<Self> {
        let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
        let all = crds.list(&ListParams::default()).await.context("cannot list the kinds of the cluster")?;
        Ok(Self(all.items))
    }

    /// The one that is called so, by its name, its plural or a short name, and its group behind that if there are several,
    /// as for kubectl; if an operator looks after it.
    pub(super) fn called(&self, kind: &str) -> Result<&CustomResourceDefinition> {
        let wanted = kind.to_lowercase();
        let is_called = |crd: &CustomResourceDefinition| {
            let (names, group) = (&crd.spec.names, &crd.spec.group);
            let wanted = wanted
                .strip_suffix(group.as_str())
                .and_then(|name| name.strip_suffix('.'))
                .unwrap_or(&wanted);
            let mut short = names.short_names.iter().flatten();
            names.kind.to_lowercase() == wanted
                || names.plural == wanted
                || short.any(|short| *short == wanted)
        };
        self.only_one(kind, is_called)
    }

    /// That of a resource: a file says the group, too.
    fn of_resource(&self, manifest: &Manifest) -> Result<&CustomResourceDefinition> {
        let said = manifest.object.get("apiVersion").and_then(Value::as_str);
        let group = said.map(|said| said.rsplit_once('/').map_or("", |(group, _)| group));
        self.only_one(manifest.kind(), |crd| {
            crd.spec.names.kind == manifest.kind() && group.is_none_or(|group| group == crd.spec.group)
        })
    }

    fn only_one(
        &self,
        kind: &str,
        is_it: impl Fn(&CustomResourceDefinition) -> bool,
    ) -> Result<&CustomResourceDefinition> {
        let found: Vec<_> = self.looked_after().filter(|crd| is_it(crd)).collect();
        match found.as_slice() {
            [one] => Ok(one),
            [] => {
                let known: Vec<_> = self.looked_after().map(|crd| crd.spec.names.kind.clone()).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                bail!(
                    "no operator that is written with Wheelhouse looks after {kind} in this cluster; they look after: {known}"
                )
            }
            several => {
                let names: Vec<_> = several.iter().map(|crd| crd.name_any()).collect();
                bail!("which {kind}? There are {}", names.join(", "))
            }
        }
    }

    /// What is to be asked about resources: each operator about its own, in one namespace after the other. What says no
    /// namespace is in that of whoever asks, which the operator does not know.
    pub(super) fn questions(&self, manifests: &[Manifest], default: &str) -> Result<Vec<Question<'_>>> {
        let mut questions: Vec<Question<'_>> = Vec::new();
        for manifest in manifests {
            let kind = self.of_resource(manifest)?;
            let mut object = manifest.object.clone();
            let mut namespace = None;
            if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
                && !is_cluster_scoped(kind)
            {
                let said = metadata.entry("namespace").or_insert_with(|| default.into());
                namespace = said.as_str().map(str::to_owned);
            }
            let is_same = |known: &&mut Question<'_>| {
                operator_of(known.kind) == operator_of(kind) && known.namespace == namespace
            };
            match questions.iter_mut().find(is_same) {
                Some(question) => question.objects.push(object),
                None => questions.push(Question { kind, namespace, objects: vec![object] }),
            }
        }
        Ok(questions)
    }

    fn looked_after(&self) -> impl Iterator<Item = &CustomResourceDefinition> {
        self.0.iter().filter(|crd| operator_of(crd).is_some())
    }
}

fn operator_of(crd: &CustomResourceDefinition) -> Option<&str> {
    crd.annotations().get(OPERATOR).map(String::as_str)
}

fn is_cluster_scoped(crd: &CustomResourceDefinition) -> bool {
    crd.spec.scope == "Cluster"
}

/// What is asked of one operator.
pub(super) struct Question<'a> {
    /// A kind that it looks after.
    pub(super) kind: &'a CustomResourceDefinition,
    /// The namespace of all the resources; none if they are in none.
    pub(super) namespace: Option<String>,
    objects: Vec<Value>,
}

impl Question<'_> {
    /// The resources, as one text.
    pub(super) fn text(&self) -> String {
        json!({"apiVersion": "v1", "kind": "List", "items": self.objects}).to_string()
    }
}

/// An operator that runs.
pub(super) struct RunningOperator {
    pub(super) name: String,
    /// The plural of the kind that is asked about.
    pub(super) kind: String,
    crd: CustomResourceDefinition,
    pod: Pod,
}

impl RunningOperator {
    /// The one that looks after a kind in a namespace; if the kind's resources are in none, that does not matter.
    pub(super) async fn of(
        client: &Client,
        crd: &CustomResourceDefinition,
        namespace: Option<&str>,
    ) -> Result<Self> {
        let name = operator_of(crd).unwrap_or_default().to_owned();
        let pod = leading_pod(client, &name, namespace.filter(|_| !is_cluster_scoped(crd))).await?;
        Ok(Self { name, kind: crd.spec.names.plural.clone(), crd: crd.clone(), pod })
    }

    /// What it has to be told to look as it does when it runs: of its scope it knows by its flags only.
    pub(super) fn scope(&self) -> Option<&'static str> {
        let spec = self.pod.spec.as_ref()?;
        looks::Looks::of(spec).is_cluster_wide().then_some("--cluster-wide")
    }

    /// What its program prints in its own pod.
    pub(super) async fn prints(
        &self,
        client: &Client,
        arguments: &[&str],
        input: Option<&str>,
    ) -> Result<String> {
        let namespace = self.pod.namespace().unwrap_or_default();
        let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
        let command: Vec<_> = std::iter::once(PROGRAM).chain(arguments.iter().copied()).collect();
        let params = AttachParams::default().stdin(input.is_some()).stdout(true).stderr(true);
        let doing =
            || format!("cannot run {} in the pod {namespace}/{}", arguments.join(" "), self.pod.name_any());
        let mut process = pods.exec(&self.pod.name_any(), command, &params).await.with_context(doing)?;
        if let (Some(input), Some(mut stdin)) = (input, process.stdin()) {
            stdin.write_all(input.as_bytes()).await.with_context(doing)?;
            stdin.shutdown().await.with_context(doing)?;
        }
        let (mut output, mut complaint) = (String::new(), String::new());
        let (stdout, stderr) = (process.stdout(), process.stderr());
        let reading = async {
            if let Some(mut stdout) = stdout {
                stdout.read_to_string(&mut output).await?;
            }
            Ok::<_, std::io::Error>(())
        };
        let complaining = async {
            if let Some(mut stderr) = stderr {
                stderr.read_to_string(&mut complaint).await?;
            }
            Ok::<_, std::io::Error>(())
        };
        let (read, complained) = tokio::join!(reading, complaining);
        read.and(complained).with_context(doing)?;
        let ended = match process.take_status() {
            Some(status) => status.await,
            None => None,
        };
        match ended.and_then(|status| status.status) {
            Some(status) if status == "Success" => Ok(output),
            _ => bail!("{}: {}", doing(), complaint.trim().trim_start_matches("error: ")),
        }
    }

    /// Where resources of the kind that is asked about are, if somebody says a namespace: in none, if they are in none.
    pub(super) fn place<'a>(&self, namespace: &'a str) -> Option<&'a str> {
        Some(namespace).filter(|_| !is_cluster_scoped(&self.crd))
    }

    /// A resource of the kind that is asked about.
    pub(super) async fn resource(&self, client: &Client, name: &str, namespace: &str) -> Result<Value> {
        let spec = &self.crd.spec;
        let stored =
            spec.versions.iter().find(|version| version.storage).map(|version| version.name.as_str());
        let kind = GroupVersionKind::gvk(&spec.group, stored.unwrap_or_default(), &spec.names.kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, &spec.names.plural);
        let api: Api<DynamicObject> = match self.place(namespace) {
            None => Api::all_with(client.clone(), &resource),
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        };
        let kind = &spec.names.kind;
        let object = api.get_opt(name).await.with_context(|| format!("cannot read {kind} {name}"))?;
        let place = self.place(namespace).unwrap_or("the cluster");
        Ok(serde_json::to_value(object.with_context(|| format!("there is no {kind} {name} in {place}"))?)?)
    }
}

/// Of the pods of an operator that look after a namespace, or after what is in none, the one that leads; any of them if
/// nobody does.
async fn leading_pod(client: &Client, operator: &str, namespace: Option<&str>) -> Result<Pod> {
    let all: Api<Pod> = Api::all(client.clone());
    let selector = format!("app.kubernetes.io/name={operator}");
    let pods = all.list(&ListParams::default().labels(&selector)).await;
    let mut pods = pods.with_context(|| format!("cannot find the pods of {operator}"))?.items;
    if pods.is_empty() {
        bail!(
            "{operator} does not run in this cluster: no pod has the label {selector}. Of one that `wheelhouse run` started, the log \
             says what it did, and `wheelhouse plan` and `wheelhouse record` in its project say what it would do"
        );
    }
    pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
    let theirs = looks::after(&pods, namespace);
    let Some(first) = theirs.first() else {
        let places: BTreeSet<_> = pods.iter().filter_map(|pod| pod.namespace()).collect();
        let places: Vec<_> = places.into_iter().collect();
        let what =
            namespace.map_or_else(|| "the whole cluster".to_owned(), |name| format!("the namespace {name}"));
        bail!("no {operator} looks after {what}: it runs in {}, for other ones", places.join(", "));
    };
    let leases: Api<Lease> = Api::namespaced(client.clone(), &first.namespace().unwrap_or_default());
    let lease = leases.get_opt(operator).await.ok().flatten();
    let holder = lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default();
    let leads = |pod: &&&Pod| holder.starts_with(&format!("{}_", pod.name_any()));
    Ok((*theirs.iter().find(leads).unwrap_or(first)).clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kinds with their group, scope and operator.
    fn kinds(all: &[(&str, &str, &str, Option<&str>)]) -> Kinds {
        let crd = |(kind, group, scope, operator): &(&str, &str, &str, Option<&str>)| {
            let plural = format!("{}s", kind.to_lowercase());
            let annotations = operator.map(|operator| json!({OPERATOR: operator}));
            let spec = json!({"group": group, "scope": scope, "names": {"kind": kind, "plural": plural}, "versions": []});
            let metadata = json!({"name": format!("{plural}.{group}"), "annotations": annotations});
            serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
        };
        Kinds(all.iter().map(crd).collect())
    }

    const APP: &str = "app.example.com";

    #[test]
    fn each_operator_is_asked_about_its_own_in_one_namespace_after_the_other() {
        let text = "{kind: List, items: [
            {kind: Page, metadata: {name: a}}, {kind: Page, metadata: {name: b, namespace: theirs}},
            {kind: Zone, metadata: {name: c}}, {kind: Disk, metadata: {name: d}}, {kind: Book, metadata: {name: e, namespace: mine}}]}";
        let manifests = Manifest::read_all("file".as_ref(), text).unwrap();
        let kinds = kinds(&[
            ("Page", APP, "Namespaced", Some("shop-operator")),
            ("Book", APP, "Namespaced", Some("shop-operator")),
            ("Zone", APP, "Cluster", Some("shop-operator")),
            ("Disk", APP, "Namespaced", Some("disk-operator")),
        ]);
        let questions = kinds.questions(&manifests, "mine").unwrap();
        let asked = questions.iter().map(|question| {
            let read: Value = serde_json::from_str(&question.text()).unwrap();
            let items = read["items"].as_array().unwrap().iter();
            let items = items.map(|item| {
                let text = |pointer| item.pointer(pointer).and_then(Value::as_str).unwrap_or("-").to_owned();
                format!("{}/{}", text("/metadata/namespace"), text("/metadata/name"))
            });
            let who = operator_of(question.kind).unwrap();
            (who, question.namespace.as_deref(), items.collect::<Vec<_>>().join(" "))
        });
        assert_eq!(
            asked.collect::<Vec<_>>(),
            [
                ("shop-operator", Some("mine"), "mine/a mine/e".to_owned()),
                ("shop-operator", Some("theirs"), "theirs/b".to_owned()),
                ("shop-operator", None, "-/c".to_owned()),
                ("disk-operator", Some("mine"), "mine/d".to_owned()),
            ]
        );
    }
    #[test]
    fn a_kind_that_is_there_twice_is_called_with_its_group() {
        let kinds = kinds(&[
            ("Page", APP, "Namespaced", Some("shop-operator")),
            ("Page", "web.example.com", "Namespaced", Some("web-operator")),
            ("Page", "old.example.com", "Namespaced", None),
        ]);
        for called in ["pages.web.example.com", "Page.web.example.com"] {
            assert_eq!(operator_of(kinds.called(called).unwrap()), Some("web-operator"));
        }
        let refused = |called: &str| kinds.called(called).unwrap_err().to_string();
        assert_eq!(refused("page"), "which page? There are pages.app.example.com, pages.web.example.com");
        let unknown = "no operator that is written with Wheelhouse looks after pages.old.example.com in this cluster; \
                       they look after: Page, Page";
        assert_eq!(refused("pages.old.example.com"), unknown);

        let of = |text: &str| {
            let manifests = Manifest::read_all("file".as_ref(), text)?;
            anyhow::Ok(
                kinds
                    .questions(&manifests, "mine")?
                    .iter()
                    .map(|asked| asked.kind.name_any())
                    .collect::<Vec<_>>(),
            )
        };
        let page = "apiVersion: web.example.com/v1\nkind: Page\nmetadata: {name: a}\n";
        assert_eq!(of(page).unwrap(), ["pages.web.example.com"]);
        assert!(of(&page.replace("web.example.com/v1", "v1")).is_err());
    }
    #[test]
    fn what_is_in_no_namespace_is_not_said_to_be_in_one() {
        let kinds = kinds(&[
            ("Page", APP, "Namespaced", Some("shop-operator")),
            ("Zone", APP, "Cluster", Some("shop-operator")),
        ]);
        let place = |kind: &str| {
            let crd = kinds.called(kind).unwrap().clone();
            let operator =
                RunningOperator { name: String::new(), kind: String::new(), crd, pod: Pod::default() };
            operator.place("mine").map(str::to_owned)
        };
        assert_eq!((place("page"), place("zone")), (Some("mine".to_owned()), None));
    }
}
