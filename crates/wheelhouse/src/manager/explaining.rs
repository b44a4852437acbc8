//! The verbs that explain: `plan`, `decisions`, `record` and `replay`. None of
//! them writes anything to the cluster.

mod asking;

use std::{fmt::Write as _, io::Read as _, path::Path, sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::Config;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::{
    Manager,
    settings::{DecisionsSettings, PlanSettings, RecordSettings},
};
use crate::{
    cache::{Cache, Namespaces},
    client::Fence,
    controller::{Looked, Subject, Surroundings, Work},
    decisions::{Decision, DecisionLog, Outcome, Recording},
    error::{Category, Error, Result},
    key::Key,
    kind::Kind,
};

/// How long the first look at everything may take.
const LISTED_WITHIN: Duration = Duration::from_secs(60);

impl Manager {
    /// What would be done about the resources in a file.
    ///
    /// # Errors
    /// When the file has no resource of this operator, or the cluster does not answer.
    pub(super) async fn plan_file(self, config: Config, settings: &PlanSettings) -> Result<String> {
        let text = read(&settings.file)?;
        let described = documents(&text)?;
        let default_namespace = config.default_namespace.clone();
        let namespaces = self.namespaces_of(&config, &settings.namespaces, settings.cluster_wide);
        let looking = Looking::start(self, &config, Namespaces::only(&namespaces)).await?;
        let mut looked = Vec::new();
        for mut document in described {
            let controller = looking.controller_of(&document)?;
            if controller.is_namespaced {
                with_default_namespace(&mut document, &default_namespace);
            }
            looked.push(controller.work.clone().look(Subject::Described(document)).await?);
        }
        if settings.json {
            let all: Vec<_> = looked.iter().map(as_json).collect();
            return Ok(format!("{:#}\n", Value::from(all)));
        }
        Ok(looked.iter().map(shown).collect())
    }

    /// What is seen and decided about one resource now, as a recording.
    ///
    /// # Errors
    /// When there is no such resource, or the cluster does not answer.
    pub(super) async fn record(self, config: Config, settings: &RecordSettings) -> Result<String> {
        let one = &settings.one;
        let (operator, version) = (self.name.clone(), self.version.clone());
        let (kind, key) = self.named(&one.resource, one.namespace.as_deref(), &config.default_namespace)?;
        // What an operator for all namespaces sees of others belongs to it.
        let only = key.namespace().filter(|_| !settings.cluster_wide);
        let looking = Looking::start(self, &config, Namespaces::only(only)).await?;
        let looked = looking.of_kind(&kind)?.work.clone().look(Subject::Existing(key)).await?;
        let recording = Recording {
            operator,
            version,
            controller: looked.controller,
            at: Timestamp::now(),
            observation: looked.observation,
            plan: looked.plan,
        };
        let text = serde_json::to_string_pretty(&recording)
            .map_err(|error| Error::new(Category::Bug, format!("the decision is no JSON: {error}")))?;
        Ok(format!("{text}\n"))
    }

    /// What is decided now on what was recorded.
    ///
    /// # Errors
    /// When the file is no recording of this operator, or the plan is another one now.
    pub(super) fn replay_file(&self, file: &Path) -> Result<String> {
        let recording = Recording::parse(&read(file)?)?;
        let controller =
            self.controllers.iter().find(|controller| controller.name() == recording.controller).ok_or_else(
                || {
                    let message = format!(
                        "{} was recorded by the controller {} of {}, which {} does not have",
                        file.display(),
                        recording.controller,
                        recording.operator,
                        self.name
                    );
                    Error::new(Category::Invalid, message)
                },
            )?;
        let (plan, differences) = controller.replay(&recording)?;
        match differences.is_empty() {
            true => Ok(format!("the plan is as it was recorded:\n{plan}")),
            false => Err(Error::new(
                Category::Conflict,
                format!("the plan is not what was recorded:\n  {}\nnow:\n{plan}", differences.join("\n  ")),
            )),
        }
    }

    /// The last decisions of the operator that runs.
    ///
    /// # Errors
    /// When no operator runs, or it does not let you look.
    pub(super) async fn show_decisions(self, config: Config, settings: &DecisionsSettings) -> Result<String> {
        let mut query = String::from("/decisions");
        if let Some(resource) = &settings.resource {
            let default = &config.default_namespace;
            let (kind, key) = self.named(resource, settings.namespace.as_deref(), default)?;
            let controller = self.controllers.iter().find(|controller| controller.kind() == kind);
            let controller = controller.map(|controller| controller.name()).unwrap_or_default();
            let _ = write!(query, "?controller={controller}&name={}", key.name());
            if let Some(namespace) = key.namespace() {
                let _ = write!(query, "&namespace={namespace}");
            }
        }
        let text = asking::ask(&self.name, &config, settings, &query).await?;
        if settings.json {
            return Ok(text);
        }
        let decisions: Vec<Decision> = serde_json::from_str(&text)
            .map_err(|error| Error::new(Category::Unavailable, format!("cannot read the answer: {error}")))?;
        if decisions.is_empty() {
            return Ok("no decisions yet\n".to_owned());
        }
        Ok(decisions.iter().map(told).collect())
    }

    /// The kind and the key of what somebody calls NAME or KIND/NAME.
    fn named(&self, resource: &str, namespace: Option<&str>, default: &str) -> Result<(Kind, Key)> {
        let (kind, name) = match resource.split_once('/') {
            Some((kind, name)) => (Some(kind.to_lowercase()), name),
            None => (None, resource),
        };
        let is_called = |known: &Kind| {
            kind.as_ref().is_none_or(|kind| *kind == known.kind.to_lowercase() || *kind == known.plural)
        };
        let kinds = self.controllers.iter().map(|controller| (controller.kind(), controller.is_namespaced()));
        let mut kinds: Vec<_> = kinds.filter(|(kind, _)| is_called(kind)).collect();
        kinds.dedup();
        match kinds.as_slice() {
            [(kind, true)] => Ok((kind.clone(), Key::new(Some(namespace.unwrap_or(default)), name))),
            [(kind, false)] => Ok((kind.clone(), Key::new(None, name))),
            _ => {
                let known: Vec<_> =
                    self.controllers.iter().map(|controller| controller.kind().kind).collect();
                let message =
                    format!("which {resource}? Say KIND/NAME; {} has {}", self.name, known.join(", "));
                Err(Error::new(Category::Invalid, message))
            }
        }
    }
}

/// Controllers that look and never act: their clients send nothing.
struct Looking {
    controllers: Vec<LookingController>,
    /// Watches for as long as this lives.
    _cache: Arc<Cache>,
}

struct LookingController {
    kind: Kind,
    is_namespaced: bool,
    work: Arc<dyn Work>,
}

impl Looking {
    async fn start(mut manager: Manager, config: &Config, namespaces: Namespaces) -> Result<Self> {
        let reading = manager.connect(config, &Fence::open())?;
        let held = manager.connect(config, &Fence::closed())?;
        let cache = Arc::new(Cache::new(reading.clone(), namespaces));
        let kinds = manager.controllers.iter();
        let kinds: Vec<_> = kinds.map(|controller| (controller.kind(), controller.is_namespaced())).collect();
        let controllers = manager.start_controllers(&Surroundings {
            reading,
            acting: held.clone(),
            held,
            cache: cache.clone(),
            metrics: manager.metrics.clone(),
            manager: manager.name.clone(),
            instance: manager.name.clone(),
            probes: Arc::default(),
            decisions: Arc::new(DecisionLog::new(0)),
            number: 0,
        })?;
        if tokio::time::timeout(LISTED_WITHIN, cache.synced()).await.is_err() {
            let missing = cache.missing().join("; ");
            return Err(Error::new(Category::Unavailable, format!("cannot look at the cluster: {missing}")));
        }
        let controllers = kinds.into_iter().zip(controllers);
        let controllers = controllers
            .map(|((kind, is_namespaced), work)| LookingController { kind, is_namespaced, work })
            .collect();
        Ok(Self { controllers, _cache: cache })
    }

    fn of_kind(&self, kind: &Kind) -> Result<&LookingController> {
        let found = self.controllers.iter().find(|controller| controller.kind.is_kind_of(kind));
        found.ok_or_else(|| {
            let known: Vec<_> =
                self.controllers.iter().map(|controller| controller.kind.kind.as_str()).collect();
            let message = format!("{kind} is no kind of this operator's: it has {}", known.join(", "));
            Error::new(Category::Invalid, message)
        })
    }

    fn controller_of(&self, document: &Value) -> Result<&LookingController> {
        let text = |field: &str| document.get(field).and_then(Value::as_str).unwrap_or_default();
        let (group, version) = text("apiVersion").rsplit_once('/').unwrap_or(("", text("apiVersion")));
        let kind = text("kind").to_owned();
        self.of_kind(&Kind {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: String::new(),
            kind,
        })
    }
}

fn read(file: &Path) -> Result<String> {
    let cannot = |error| Error::new(Category::Invalid, format!("cannot read {}: {error}", file.display()));
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(cannot)?;
        return Ok(text);
    }
    std::fs::read_to_string(file).map_err(cannot)
}

/// Writes a file, or to the terminal.
pub(super) fn write(file: Option<&Path>, text: &str) -> Result<()> {
    let Some(file) = file else {
        print!("{text}");
        return Ok(());
    };
    std::fs::write(file, text)
        .map_err(|error| Error::new(Category::Invalid, format!("cannot write {}: {error}", file.display())))
}

/// The documents of a YAML or JSON text, lists taken apart.
fn documents(text: &str) -> Result<Vec<Value>> {
    let cannot =
        |error: &dyn std::fmt::Display| Error::new(Category::Invalid, format!("this is no YAML: {error}"));
    let parsed: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|error| cannot(&error))?;
    let mut documents = Vec::new();
    for document in parsed {
        match document.get("items").map(Vec::<Value>::deserialize) {
            Some(Ok(items)) => documents.extend(items),
            _ if document.is_null() => {}
            _ => documents.push(document),
        }
    }
    match documents.is_empty() {
        true => Err(Error::new(Category::Invalid, "there is no resource in it")),
        false => Ok(documents),
    }
}

fn with_default_namespace(document: &mut Value, default: &str) {
    if let Some(metadata) = document.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.entry("namespace").or_insert_with(|| default.into());
    }
}

fn as_json(looked: &Looked) -> Value {
    json!({
        "controller": looked.controller,
        "key": looked.key,
        "observation": looked.observation,
        "plan": looked.plan,
        "words": looked.words,
        "would": looked.would,
    })
}

fn shown(looked: &Looked) -> String {
    let mut text = format!("{} {}, the plan:\n{}", looked.controller, looked.key, looked.text);
    match looked.would.is_empty() {
        true => text.push_str("nothing of it would change anything\n"),
        false => {
            text.push_str("what would change something:\n");
            for step in &looked.would {
                let _ = writeln!(text, "  - {step}");
            }
        }
    }
    text
}

fn told(decision: &Decision) -> String {
    let mut text = format!(
        "{} {} {} ({:.1} ms): ",
        decision.at, decision.controller, decision.key, decision.took_milliseconds
    );
    let list = |steps: &[String]| steps.join(", ");
    match &decision.outcome {
        Outcome::Unchanged => text.push_str("all was as it should be"),
        Outcome::Done { steps } => text.push_str(&list(steps)),
        Outcome::Planned { steps } => {
            let _ = write!(text, "would {}", list(steps));
        }
        Outcome::Failed { steps, category, message } => {
            let _ = write!(text, "{}: {message}", category.as_str());
            if !steps.is_empty() {
                let _ = write!(text, " (after: {})", list(steps));
            }
        }
    }
    text.push('\n');
    for planned in decision.plan.get("steps").and_then(Value::as_array).into_iter().flatten() {
        if let Some(because) = planned.get("because").and_then(Value::as_str) {
            let _ = writeln!(text, "    because: {because}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Namespace};

    use super::*;
    use crate::{Controller, NoAction, Operator, Plan, World};

    /// Decides nothing about resources of any type.
    struct Idle<K>(std::marker::PhantomData<K>);

    impl<K> Operator for Idle<K>
    where
        K: crate::cache::Cached + kube::Resource<DynamicType = ()>,
    {
        type Resource = K;
        type Observation = ();
        type Action = NoAction;

        async fn observe(&self, _: Arc<K>, _: &World<'_>) -> Result<()> {
            Ok(())
        }

        fn analyse(&self, (): &()) -> Plan {
            Plan::new()
        }
    }

    #[test]
    fn who_names_a_resource_means_one_in_a_namespace_if_its_kind_has_them() {
        let manager = Manager::new("idle")
            .controller(Controller::new(Idle::<ConfigMap>(std::marker::PhantomData)))
            .controller(Controller::new(Idle::<Namespace>(std::marker::PhantomData)));
        let key = |resource: &str, namespace| manager.named(resource, namespace, "mine").map(|(_, key)| key);
        assert_eq!(key("configmap/a", None).unwrap(), Key::namespaced("mine", "a"));
        assert_eq!(key("configmaps/a", Some("n")).unwrap(), Key::namespaced("n", "a"));
        assert_eq!(key("namespace/a", Some("n")).unwrap(), Key::new(None, "a"));
        let refused = key("a", None).unwrap_err().to_string();
        assert!(refused.contains("Say KIND/NAME; idle has ConfigMap, Namespace"), "{refused}");
    }
}
