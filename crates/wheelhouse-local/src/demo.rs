//! The demo: every operator of this tree installed, with its samples running.
//!
//! An operator is a file `deploy/NAME.yaml`, or `deploy/NAME-cluster-wide.yaml` where there are both, and the
//! samples in `operators/NAME/samples/`. On a local cluster the images that these name are
//! loaded into the nodes; on any other they go through a registry.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{Api, Client, api::ListParams};
use serde_json::Value;

use crate::{
    Cluster, Progress,
    error::{Error, Result},
    folders,
    images::{self, Image},
    manifests::Manifest,
};

/// How long everything may take to run, images and volumes included.
const PATIENCE: Duration = Duration::from_secs(300);

/// What this tree can install.
#[derive(Debug, Clone)]
pub struct Demo {
    images: Vec<Image>,
    deploy: Vec<Manifest>,
    samples: Vec<Manifest>,
}

/// Where the images are taken from.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    /// The nodes of a local cluster have them.
    Nodes(&'a Cluster),
    /// A registry that the cluster can reach.
    Registry(&'a str),
}

/// A pod that the demo runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub pod: String,
    /// Whether it is ready, or did what it was made for.
    pub ready: bool,
    /// The node that it runs on.
    pub node: String,
    /// What it runs.
    pub image: String,
}

impl Demo {
    /// Reads `deploy/` and `operators/*/samples/` of a tree, and which of its images these name. The
    /// tree may have more, which would be built for nobody.
    pub fn read(tree: &Path) -> Result<Self> {
        let mut samples = Vec::new();
        for operator in sorted(&tree.join("operators"))? {
            samples.extend(manifests_in(&operator.join("samples"))?);
        }
        let deploy = installed(&tree.join("deploy"))?;
        let mut named = BTreeSet::new();
        for manifest in deploy.iter().chain(&samples) {
            find_images(&manifest.object, &mut named);
        }
        let mut images = Image::all_of(tree)?;
        images.retain(|image| named.contains(image.reference().as_str()));
        Ok(Self { images, deploy, samples })
    }

    /// Installs everything and waits until it runs.
    pub async fn install(
        &self,
        client: &Client,
        source: Source<'_>,
        progress: &Progress,
    ) -> Result<Vec<Running>> {
        for image in &self.images {
            match source {
                Source::Nodes(cluster) => {
                    let archive = image.ensure(progress).await?;
                    let stage = progress.stage(format!("loading {} into every node", image.reference()));
                    cluster.load(&archive).await?;
                    stage.done();
                }
                Source::Registry(registry) => drop(image.push(registry, progress).await?),
            }
        }
        let stage = progress.stage("installing");
        let not_ours = self.pods_of_others(client).await?;
        for manifest in &self.deploy {
            taken_from(manifest, source).apply(client).await?;
        }
        wait_until_available(client, &self.deploy).await?;
        for manifest in &self.samples {
            taken_from(manifest, source).apply(client).await?;
        }
        wait_until_available(client, &self.samples).await?;
        let of_operators: Vec<_> =
            self.samples.iter().filter(|sample| self.is_of_an_operator(sample)).collect();
        wait_until_ready(client, &of_operators).await?;
        let running = self.wait_until_running(client, &not_ours).await?;
        stage.done();
        Ok(running)
    }

    /// Takes everything out again, the samples first, so that their operators clean up after them.
    pub async fn uninstall(&self, client: &Client, progress: &Progress) -> Result<()> {
        let stage = progress.stage("uninstalling");
        for manifests in [&self.samples, &self.deploy] {
            for manifest in manifests.iter().rev() {
                manifest.delete(client).await?;
            }
            for manifest in manifests {
                wait_until_gone(client, manifest).await?;
            }
        }
        stage.done();
        Ok(())
    }

    /// Whether a sample is of a kind that is installed; others, such as Services, are never ready.
    fn is_of_an_operator(&self, sample: &Manifest) -> bool {
        let crds = self.deploy.iter().filter(|manifest| manifest.kind() == "CustomResourceDefinition");
        let mut kinds = crds.filter_map(|crd| crd.object.pointer("/spec/names/kind")?.as_str());
        kinds.any(|kind| kind == sample.kind())
    }

    /// The namespaces that anything is installed into; samples that say none go to `default`.
    fn namespaces(&self) -> BTreeSet<String> {
        let says_one = |manifest: &&Manifest| manifest.object.pointer("/metadata/namespace").is_some();
        let all = self.deploy.iter().filter(says_one).chain(&self.samples);
        all.map(|manifest| manifest.namespace().to_owned()).collect()
    }

    /// The pods that are there already in namespaces that the demo does not make itself: they may
    /// never get ready, and are not ours to wait for.
    async fn pods_of_others(&self, client: &Client) -> Result<BTreeSet<String>> {
        let is_made_here = |namespace: &str| self.namespaces_made().any(|made| made == namespace);
        let pods = self.pods(client).await?.into_iter();
        Ok(pods.filter(|pod| !is_made_here(&pod.namespace)).map(|pod| pod.pod).collect())
    }

    fn namespaces_made(&self) -> impl Iterator<Item = &str> {
        self.deploy.iter().filter(|manifest| manifest.kind() == "Namespace").map(Manifest::name)
    }

    async fn pods(&self, client: &Client) -> Result<Vec<Running>> {
        let mut pods = Vec::new();
        for namespace in self.namespaces() {
            pods.extend(pods_in(client, &namespace).await?);
        }
        Ok(pods)
    }

    async fn wait_until_running(&self, client: &Client, not_ours: &BTreeSet<String>) -> Result<Vec<Running>> {
        let begun = Instant::now();
        loop {
            let mut running = self.pods(client).await?;
            running.retain(|pod| !not_ours.contains(&pod.pod));
            let unready: Vec<_> = running
                .iter()
                .filter(|pod| !pod.ready)
                .map(|pod| format!("{}/{}", pod.namespace, pod.pod))
                .collect();
            if unready.is_empty() && !running.is_empty() {
                return Ok(running);
            }
            if begun.elapsed() > PATIENCE {
                return Err(Error::Refused(format!(
                    "not ready within {} s: {}; `wheelhouse local kubectl describe pod` says why",
                    PATIENCE.as_secs(),
                    unready.join(", ")
                )));
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}

/// Waits until every Deployment among them has all of its pods, and no other ones: none of what it was before.
///
/// # Errors
/// When that takes too long.
pub async fn wait_until_available(client: &Client, manifests: &[Manifest]) -> Result<()> {
    let begun = Instant::now();
    for manifest in manifests.iter().filter(|manifest| manifest.kind() == "Deployment") {
        let api: Api<Deployment> = Api::namespaced(client.clone(), manifest.namespace());
        loop {
            let doing = || format!("look at Deployment {}", manifest.name());
            let deployment = api.get(manifest.name()).await.map_err(Error::api(doing()))?;
            if is_rolled_out(&deployment) {
                break;
            }
            if begun.elapsed() > PATIENCE {
                return Err(Error::Refused(format!(
                    "Deployment {} of namespace {} is not available after {} s; `wheelhouse local kubectl -n {} get events` says why",
                    manifest.name(),
                    manifest.namespace(),
                    PATIENCE.as_secs(),
                    manifest.namespace()
                )));
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
    Ok(())
}

/// Whether all pods of a Deployment are as it says now. The old ones are available for as long as there are new ones to wait for.
fn is_rolled_out(deployment: &Deployment) -> bool {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let status = deployment.status.clone().unwrap_or_default();
    let (all, updated) = (status.replicas.unwrap_or(0), status.updated_replicas.unwrap_or(0));
    status.observed_generation == deployment.metadata.generation
        && updated >= wanted
        && all <= updated
        && status.available_replicas.unwrap_or(0) >= wanted
}

/// Every operator here says by the condition `Ready` when a resource is as it should be.
async fn wait_until_ready(client: &Client, samples: &[&Manifest]) -> Result<()> {
    let begun = Instant::now();
    for sample in samples {
        loop {
            let conditions = sample
                .read(client)
                .await?
                .and_then(|object| object.data.pointer("/status/conditions").cloned());
            let ready = conditions
                .iter()
                .filter_map(Value::as_array)
                .flatten()
                .find(|condition| condition["type"] == "Ready");
            if ready.is_some_and(|condition| condition["status"] == "True") {
                break;
            }
            if begun.elapsed() > PATIENCE {
                let why =
                    ready.and_then(|condition| condition["message"].as_str()).unwrap_or("nobody says why");
                return Err(Error::Refused(format!(
                    "{} {} is not ready after {} s: {why}",
                    sample.kind(),
                    sample.name(),
                    PATIENCE.as_secs()
                )));
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
    Ok(())
}

async fn wait_until_gone(client: &Client, manifest: &Manifest) -> Result<()> {
    let begun = Instant::now();
    while manifest.exists(client).await? {
        if begun.elapsed() > PATIENCE {
            return Err(Error::Refused(format!(
                "{} {} is still there after {} s: it, or something in it, has a finalizer that nobody removes",
                manifest.kind(),
                manifest.name(),
                PATIENCE.as_secs()
            )));
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    Ok(())
}

async fn pods_in(client: &Client, namespace: &str) -> Result<Vec<Running>> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pods = api
        .list(&ListParams::default())
        .await
        .map_err(Error::api(format!("list the pods of {namespace}")))?;
    Ok(pods
        .items
        .into_iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none())
        .map(Running::from)
        .collect())
}

impl From<Pod> for Running {
    fn from(pod: Pod) -> Self {
        let status = pod.status.unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let is_done = status.phase.as_deref() == Some("Succeeded");
        let spec = pod.spec.unwrap_or_default();
        Self {
            namespace: pod.metadata.namespace.unwrap_or_default(),
            pod: pod.metadata.name.unwrap_or_default(),
            ready: is_done || conditions.iter().any(|each| each.type_ == "Ready" && each.status == "True"),
            node: spec.node_name.unwrap_or_default(),
            image: spec
                .containers
                .into_iter()
                .next()
                .and_then(|container| container.image)
                .unwrap_or_default(),
        }
    }
}

/// The manifest with its images named as `source` has them.
fn taken_from(manifest: &Manifest, source: Source<'_>) -> Manifest {
    let mut manifest = manifest.clone();
    if let Source::Registry(registry) = source {
        rename_images(&mut manifest.object, registry.trim_end_matches('/'));
    }
    manifest
}

fn rename_images(value: &mut Value, registry: &str) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) => {
                        if let Some(image) = our_image(name, text) {
                            *text = format!("{registry}/{image}");
                        }
                    }
                    other => rename_images(other, registry),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rename_images(item, registry)),
        _ => {}
    }
}

/// Adds the images of ours that a manifest names.
fn find_images<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if our_image(name, text).is_some() => drop(found.insert(text)),
                    other => find_images(other, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| find_images(item, found)),
        _ => {}
    }
}

/// The name without the registry, if this field of a manifest names an image of ours. Operators are
/// told the images of what they run by variables.
fn our_image<'a>(field: &str, text: &'a str) -> Option<&'a str> {
    let is_place_of_one = field == "image" || field == "value";
    text.strip_prefix(images::REGISTRY)?.strip_prefix('/').filter(|_| is_place_of_one)
}

/// What is installed: of an operator that can be for one namespace or for all, the latter.
fn installed(folder: &Path) -> Result<Vec<Manifest>> {
    let files = yaml_files(folder)?;
    let is_narrower = |file: &PathBuf| {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        files.contains(&folder.join(format!("{name}-cluster-wide.yaml")))
    };
    read_all(files.iter().filter(|file| !is_narrower(file)))
}

/// All manifests of a folder's YAML files, in the order of their names; none where there is no folder.
fn manifests_in(folder: &Path) -> Result<Vec<Manifest>> {
    read_all(&yaml_files(folder)?)
}

fn read_all<'a>(files: impl IntoIterator<Item = &'a PathBuf>) -> Result<Vec<Manifest>> {
    let mut manifests = Vec::new();
    for path in files {
        manifests.extend(Manifest::read_all(path, &folders::read_text(path)?)?);
    }
    Ok(manifests)
}

fn yaml_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = sorted(folder)?;
    files.retain(|path| path.extension().is_some_and(|each| each == "yaml"));
    Ok(files)
}

fn sorted(folder: &Path) -> Result<Vec<PathBuf>> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(folder).map_err(Error::file("list", folder))?;
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[rstest::rstest]
    #[case::all_is_new(json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}), true)]
    #[case::nobody_has_looked_yet(json!({"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}), false)]
    #[case::only_old_ones(json!({"observedGeneration": 2, "replicas": 2, "availableReplicas": 2}), false)]
    #[case::a_new_one_starts(json!({"observedGeneration": 2, "replicas": 3, "updatedReplicas": 1, "availableReplicas": 2}), false)]
    #[case::an_old_one_ends(json!({"observedGeneration": 2, "replicas": 3, "updatedReplicas": 2, "availableReplicas": 3}), false)]
    #[case::nothing_yet(json!({}), false)]
    fn a_deployment_is_available_when_its_new_pods_are(#[case] status: Value, #[case] expected: bool) {
        let pod = json!({"metadata": {}, "spec": {"containers": []}});
        let deployment = serde_json::from_value(json!({
            "metadata": {"generation": 2},
            "spec": {"replicas": 2, "selector": {}, "template": pod},
            "status": status,
        }));
        assert_eq!(is_rolled_out(&deployment.unwrap()), expected);
    }

    #[test]
    fn only_our_own_images_are_renamed_and_everywhere() {
        let mut object = json!({
            "spec": {"containers": [{"image": "wheelhouse.dev/a:1"}, {"image": "docker.io/library/b:1"}],
                     "initContainers": [{"image": "wheelhouse.dev/c:1"}]},
            "data": {"note": "wheelhouse.dev/a:1"},
        });
        rename_images(&mut object, "127.0.0.1:5000/team");
        assert_eq!(
            json!({
                "spec": {"containers": [{"image": "127.0.0.1:5000/team/a:1"}, {"image": "docker.io/library/b:1"}],
                         "initContainers": [{"image": "127.0.0.1:5000/team/c:1"}]},
                "data": {"note": "wheelhouse.dev/a:1"},
            }),
            object
        );
    }

    #[test]
    fn only_what_operators_look_after_is_said_to_be_ready() {
        let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let demo = Demo::read(&tree).unwrap();
        let of_operators = demo.samples.iter().filter(|sample| demo.is_of_an_operator(sample));
        let kinds: BTreeSet<_> = of_operators.map(Manifest::kind).collect();
        assert!(["Gordon", "CdnCluster", "EtcdCluster"].iter().all(|kind| kinds.contains(kind)), "{kinds:?}");
        assert!(!kinds.contains("ConfigMap") && !kinds.contains("Deployment"), "{kinds:?}");
    }

    #[test]
    fn this_tree_reads_as_a_demo_that_has_the_images_it_names_and_no_others() {
        let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let demo = Demo::read(&tree).unwrap();
        let built: BTreeSet<_> = demo.images.iter().map(Image::reference).collect();
        let objects: Vec<_> = demo.deploy.iter().chain(&demo.samples).map(|each| &each.object).collect();
        // By another way than the code's: whatever is said in these files and looks like an image.
        let text = serde_json::to_string(&objects).unwrap();
        let words = text.split('"').filter(|word| word.starts_with("wheelhouse.dev/") && word.contains(':'));
        assert_eq!(words.map(str::to_owned).collect::<BTreeSet<_>>(), built);
    }

    #[test]
    fn of_an_operator_for_one_namespace_or_for_all_the_latter_is_installed() {
        let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let demo = Demo::read(&tree).unwrap();
        let operators = demo.deploy.iter().filter(|manifest| manifest.kind() == "Deployment");
        let of_etcd: Vec<_> = operators.filter(|manifest| manifest.name() == "etcd-operator").collect();
        assert_eq!(of_etcd.len(), 1);
        assert!(of_etcd[0].object.to_string().contains("--cluster-wide"));
    }

    #[test]
    fn images_that_no_manifest_names_are_left_out() {
        let tree = tempfile::tempdir().unwrap();
        let write =
            |file: &str, text: &str| folders::write_file(&tree.path().join(file), text, 0o644).unwrap();
        for image in ["web", "proxy", "unused"] {
            write(&format!("images/{image}/Containerfile"), "");
        }
        for version in ["v1", "v2"] {
            write(&format!("images/etcd/{version}/go.mod"), "");
        }
        write("images/etcd/Containerfile", "");
        let [web, proxy, unused] =
            ["web", "proxy", "unused"].map(|name| format!("wheelhouse.dev/{name}:{}", images::VERSION));
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web-operator", "annotations": {"note": unused}},
            "spec": {"template": {"spec": {"containers": [{
                "image": web, "env": [{"name": "PROXY", "value": proxy}],
            }]}}},
        });
        let sample = json!({
            "apiVersion": "example.com/v1", "kind": "Web", "metadata": {"name": "sample"},
            "spec": {"store": {"image": "wheelhouse.dev/etcd:v2"}},
        });
        write("deploy/web.yaml", &deployment.to_string());
        write("operators/web/samples/web.yaml", &sample.to_string());

        let demo = Demo::read(tree.path()).unwrap();
        let names: Vec<_> = demo.images.iter().map(|image| image.name.as_str()).collect();
        assert_eq!(vec!["etcd-v2", "proxy", "web"], names);
    }
}
