//! `wheelhouse undeploy`: takes an operator out of the current cluster.
//!
//! Invariants:
//! - The operator goes after the resources that go, so that it cleans up after them.
//! - Nothing that stays waits for an operator that is gone: what the API server was told of its webhooks goes with it.
//! - Nothing of an operator stays but its namespace, and its kinds if that is wanted: also not what it made for itself.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use wheelhouse_local::{Progress, manifests::Manifest};
use wheelhouse_project::Project;

use super::Which;
use crate::{current_cluster, operator_program::OperatorProgram, say};

/// How long an operator may take to clean up after its resources.
const PATIENCE: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What the API server is told of webhooks: by the operator itself, at run time, under its own name.
const TOLD_OF_WEBHOOKS: [&str; 2] = ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"];

/// Takes the operator out of the current cluster; its kinds too, and all resources with them, unless they are kept.
pub(crate) async fn undeploy(which: Which, keep_crds: bool) -> Result<()> {
    let (folder, project) = Project::find(&which.project)?;
    let client = current_cluster::client().await?;
    let printed = OperatorProgram::of_project(&folder, &project).prints(&["manifests"]).await?;
    let manifests = Manifest::read_all(Path::new("manifests"), &printed)?;
    let is_crd = |manifest: &&Manifest| manifest.kind() == "CustomResourceDefinition";
    let crds: Vec<_> = manifests.iter().filter(is_crd).collect();
    // What others may use, too, stays.
    let ours: Vec<_> =
        manifests.iter().filter(|manifest| manifest.kind() != "Namespace" && !is_crd(manifest)).collect();
    let operators: Vec<_> = ours.iter().filter(|manifest| manifest.kind() == "Deployment").collect();
    let mut runs = false;
    for operator in &operators {
        runs |= operator.exists(&client).await?;
    }
    let names: Vec<_> = operators.iter().map(|operator| operator.name()).collect();
    if !keep_crds {
        if !runs {
            // Whoever would answer is gone already: nothing could be deleted.
            forget_webhooks(&client, &names).await?;
        }
        delete_resources(&client, &crds, runs, &project.operator()).await?;
    }
    for manifest in ours.iter().rev() {
        manifest.delete(&client).await?;
    }
    forget_webhooks(&client, &names).await?;
    for operator in &operators {
        forget_what_it_made(&client, operator).await?;
    }
    if keep_crds {
        for crd in &crds {
            tell_of_versions(&client, crd).await?;
        }
    } else {
        for crd in &crds {
            crd.delete(&client).await?;
        }
        wait_until_gone(&client, &crds).await?;
    }
    say(format_args!("{} is gone", project.operator()))
}

async fn forget_webhooks(client: &Client, operators: &[&str]) -> Result<()> {
    for operator in operators {
        for kind in TOLD_OF_WEBHOOKS {
            let object = json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": operator},
            });
            Manifest { object }.delete(client).await?;
        }
    }
    Ok(())
}

/// What an operator makes for itself while it runs, where it runs: no manifest has it. By now it has no right to make it anew.
async fn forget_what_it_made(client: &Client, operator: &Manifest) -> Result<()> {
    let (name, namespace) = (operator.name(), operator.namespace());
    let made =
        [("v1", "Secret", format!("{name}-webhooks")), ("coordination.k8s.io/v1", "Lease", name.to_owned())];
    for (version, kind, name) in made {
        let metadata = json!({"name": name, "namespace": namespace});
        let object = json!({"apiVersion": version, "kind": kind, "metadata": metadata});
        Manifest { object }.delete(client).await?;
    }
    Ok(())
}

/// Deletes every resource of these kinds, and waits until they are gone.
async fn delete_resources(client: &Client, crds: &[&Manifest], runs: bool, operator: &str) -> Result<()> {
    let progress = Progress::shown();
    for crd in crds {
        let api = resources_of(client, crd);
        let all = list(&api, crd).await?;
        if all.is_empty() {
            continue;
        }
        say(format_args!("deleting all {}: {}", crd.name(), names(&all)))?;
        for resource in &all {
            let one = within(client, crd, resource.namespace());
            match one.delete(&resource.name_any(), &DeleteParams::background()).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                done => {
                    drop(done.with_context(|| format!("cannot delete {} {}", crd.name(), shown(resource)))?)
                }
            }
        }
        let stage = progress.stage(format!("waiting until {operator} has cleaned up after them"));
        let begun = Instant::now();
        loop {
            let left = list(&api, crd).await?;
            if left.is_empty() {
                break;
            }
            // Only an operator removes its finalizers.
            if !runs && left.iter().all(|resource| !resource.finalizers().is_empty()) {
                bail!(
                    "{operator} does not run in this cluster, and {} of {} wait for it: deploy it again first, or take their \
                     finalizers away",
                    names(&left),
                    crd.name()
                );
            }
            if begun.elapsed() > PATIENCE {
                bail!(
                    "{} of {} are still there after {} s: look into the log of {operator}, which still runs, or keep them with \
                     --keep-crds",
                    names(&left),
                    crd.name(),
                    PATIENCE.as_secs()
                );
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        stage.done();
    }
    progress.clear();
    Ok(())
}

async fn wait_until_gone(client: &Client, crds: &[&Manifest]) -> Result<()> {
    let begun = Instant::now();
    for crd in crds {
        while crd.exists(client).await? {
            if begun.elapsed() > PATIENCE {
                bail!("the kind {} is still there after {} s", crd.name(), PATIENCE.as_secs());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
    Ok(())
}

/// The operator is who converts: while it is away, only the version that is stored can be read.
async fn tell_of_versions(client: &Client, crd: &Manifest) -> Result<()> {
    let there = crd.read(client).await?;
    let strategy = there.as_ref().and_then(|there| there.data.pointer("/spec/conversion/strategy")?.as_str());
    match strategy {
        Some("Webhook") => say(format_args!(
            "{} stays; until the operator is back nobody converts between its versions",
            crd.name()
        )),
        Some(_) => say(format_args!("{} stays", crd.name())),
        None => Ok(()),
    }
}

/// The resources of a kind, in all namespaces; none where the kind is not there.
async fn list(api: &Api<DynamicObject>, crd: &Manifest) -> Result<Vec<DynamicObject>> {
    match api.list(&ListParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        listed => Ok(listed.with_context(|| format!("cannot list the {}", crd.name()))?.items),
    }
}

fn resources_of(client: &Client, crd: &Manifest) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &stored(crd))
}

fn within(client: &Client, crd: &Manifest, namespace: Option<String>) -> Api<DynamicObject> {
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &stored(crd)),
        None => resources_of(client, crd),
    }
}

/// A kind in the version that is stored: that one can be read without anybody who converts.
fn stored(crd: &Manifest) -> ApiResource {
    let text = |pointer: &str| crd.object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let versions = crd.object.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten();
    let mut stored = versions.filter(|version| version.get("storage") == Some(&Value::Bool(true)));
    let version = stored.find_map(|version| version.get("name")?.as_str()).unwrap_or_default();
    let kind = GroupVersionKind::gvk(text("/spec/group"), version, text("/spec/names/kind"));
    ApiResource::from_gvk_with_plural(&kind, text("/spec/names/plural"))
}

fn shown(resource: &DynamicObject) -> String {
    match resource.namespace() {
        Some(namespace) => format!("{namespace}/{}", resource.name_any()),
        None => resource.name_any(),
    }
}

fn names(resources: &[DynamicObject]) -> String {
    resources.iter().map(shown).collect::<Vec<_>>().join(", ")
}
