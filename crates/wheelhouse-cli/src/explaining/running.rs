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

/// An operator that runs.
pub(super) struct RunningOperator {
    pub(super) name: String,
    /// The plural of the kind that is asked about.
    pub(super) kind: String,
    crd: CustomResourceDefinition,
    /// Kinds of this cluster whose resources are in no namespace.
    cluster_scoped: Vec<String>,
    pod: Pod,
}

impl RunningOperator {
    /// The one that looks after a kind, which is said by its name, its plural or a short name, in a namespace.
    pub(super) async fn of(client: &Client, kind: &str, namespace: &str) -> Result<Self> {
        let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
        let all =
            crds.list(&ListParams::default()).await.context("cannot list the kinds of the cluster")?.items;
        let wanted = kind.to_lowercase();
        let is_called = |crd: &&CustomResourceDefinition| {
            let names = &crd.spec.names;
            let mut short = names.short_names.iter().flatten();
            names.kind.to_lowercase() == wanted
                || names.plural == wanted
                || short.any(|short| *short == wanted)
        };
        let found: Vec<_> =
            all.iter().filter(is_called).filter(|crd| crd.annotations().contains_key(OPERATOR)).collect();
        let crd = match found.as_slice() {
            [one] => (*one).clone(),
            [] => {
                let known = all.iter().filter(|crd| crd.annotations().contains_key(OPERATOR));
                let known: Vec<_> = known.map(|crd| crd.spec.names.kind.clone()).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                bail!(
                    "no operator that is written with Wheelhouse looks after {kind} in this cluster; they look after: {known}"
                )
            }
            several => {
                let names: Vec<_> = several.iter().map(|crd| crd.name_any()).collect();
                bail!("which {kind}? There are {}", names.join(", "))
            }
        };
        let name = crd.annotations().get(OPERATOR).cloned().unwrap_or_default();
        let namespace = Some(namespace).filter(|_| crd.spec.scope != "Cluster");
        let pod = leading_pod(client, &name, namespace).await?;
        let cluster_scoped = all.into_iter().filter(|crd| crd.spec.scope == "Cluster");
        let cluster_scoped = cluster_scoped.map(|crd| crd.spec.names.kind).collect();
        Ok(Self { name, kind: crd.spec.names.plural.clone(), crd, cluster_scoped, pod })
    }

    /// These resources as one text, each in its namespace: the operator's own is not that of whoever asks.
    pub(super) fn in_namespaces(&self, manifests: &[Manifest], default: &str) -> String {
        in_namespaces(manifests, default, &self.cluster_scoped)
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

    /// A resource of the kind that is asked about.
    pub(super) async fn resource(&self, client: &Client, name: &str, namespace: &str) -> Result<Value> {
        let spec = &self.crd.spec;
        let stored =
            spec.versions.iter().find(|version| version.storage).map(|version| version.name.as_str());
        let kind = GroupVersionKind::gvk(&spec.group, stored.unwrap_or_default(), &spec.names.kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, &spec.names.plural);
        let api: Api<DynamicObject> = match spec.scope.as_str() {
            "Cluster" => Api::all_with(client.clone(), &resource),
            _ => Api::namespaced_with(client.clone(), namespace, &resource),
        };
        let object =
            api.get(name).await.with_context(|| format!("cannot read {} {name}", spec.names.kind))?;
        Ok(serde_json::to_value(object)?)
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
        bail!("{operator} does not run in this cluster: no pod has the label {selector}");
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

fn in_namespaces(manifests: &[Manifest], default: &str, cluster_scoped: &[String]) -> String {
    let items = manifests.iter().map(|manifest| {
        let mut object = manifest.object.clone();
        let is_namespaced = !cluster_scoped.iter().any(|kind| kind == manifest.kind());
        if let Some(metadata) =
            object.get_mut("metadata").and_then(Value::as_object_mut).filter(|_| is_namespaced)
        {
            metadata.entry("namespace").or_insert_with(|| default.into());
        }
        object
    });
    json!({"apiVersion": "v1", "kind": "List", "items": items.collect::<Vec<_>>()}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_no_namespace_is_in_that_of_whoever_asks() {
        let text = "kind: A\nmetadata: {name: a}\n---\nkind: A\nmetadata: {name: b, namespace: theirs}\n---\nkind: C\nmetadata: {name: c}\n";
        let manifests = Manifest::read_all("file".as_ref(), text).unwrap();
        let asked: Value =
            serde_json::from_str(&in_namespaces(&manifests, "mine", &["C".to_owned()])).unwrap();
        let namespaces = [0, 1, 2].map(|item| asked["items"][item]["metadata"]["namespace"].as_str());
        assert_eq!(namespaces, [Some("mine"), Some("theirs"), None]);
    }
}
