//! The verbs that explain: `plan`, `decisions`, `record` and `replay`. None of
//! them writes anything to the cluster.

use std::{fmt::Write as _, io::Read as _, path::Path, sync::Arc, time::Duration};

use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    coordination::v1::Lease,
    core::v1::{Pod, ServiceAccount},
};
use kube::{
    Api, Config, ResourceExt as _,
    api::{ListParams, PostParams},
    config::AuthInfo,
};
use secrecy::ExposeSecret as _;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::{
    Manager,
    settings::{DecisionsSettings, OneResource, PlanSettings},
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
/// The operator's port.
const PORT: u16 = 8080;
/// For how long a token is good that is made for one question.
const TOKEN_SECONDS: i64 = 600;

impl Manager {
    /// What would be done about the resources in a file.
    ///
    /// # Errors
    /// When the file has no resource of this operator, or the cluster does not answer.
    pub(super) async fn plan_file(self, config: Config, settings: &PlanSettings) -> Result<String> {
        let text = read(&settings.file)?;
        let described = documents(&text)?;
        let default_namespace = config.default_namespace.clone();
        let looking = Looking::start(self, &config, Namespaces::only(&settings.namespaces)).await?;
        let mut looked = Vec::new();
        for mut document in described {
            let controller = looking.controller_of(&document)?;
            with_default_namespace(&mut document, &default_namespace);
            looked.push(controller.look(Subject::Described(document)).await?);
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
    pub(super) async fn record(self, config: Config, one: &OneResource) -> Result<String> {
        let (operator, version) = (self.name.clone(), self.version.clone());
        let (kind, key) = self.named(&one.resource, one.namespace.as_deref(), &config.default_namespace)?;
        let looking = Looking::start(self, &config, Namespaces::only(key.namespace())).await?;
        let looked = looking.of_kind(&kind)?.look(Subject::Existing(key)).await?;
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
        let text = match &settings.url {
            Some(url) => ask_at(url, &query, &token(&config, settings).await?).await?,
            None => ask_in_cluster(&self.name, &config, settings, &query).await?,
        };
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
        let mut kinds: Vec<_> =
            self.controllers.iter().map(|controller| controller.kind()).filter(is_called).collect();
        kinds.dedup();
        match kinds.as_slice() {
            [kind] => Ok((kind.clone(), Key::new(Some(namespace.unwrap_or(default)), name))),
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
    controllers: Vec<(Kind, Arc<dyn Work>)>,
    /// Watches for as long as this lives.
    _cache: Arc<Cache>,
}

impl Looking {
    async fn start(mut manager: Manager, config: &Config, namespaces: Namespaces) -> Result<Self> {
        let reading = manager.connect(config, &Fence::open())?;
        let held = manager.connect(config, &Fence::closed())?;
        let cache = Arc::new(Cache::new(reading.clone(), namespaces));
        let kinds: Vec<_> = manager.controllers.iter().map(|controller| controller.kind()).collect();
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
        Ok(Self { controllers: kinds.into_iter().zip(controllers).collect(), _cache: cache })
    }

    fn of_kind(&self, kind: &Kind) -> Result<Arc<dyn Work>> {
        let found = self.controllers.iter().find(|(known, _)| known.is_kind_of(kind));
        found.map(|(_, controller)| controller.clone()).ok_or_else(|| {
            let known: Vec<_> = self.controllers.iter().map(|(kind, _)| kind.kind.as_str()).collect();
            let message = format!("{kind} is no kind of this operator's: it has {}", known.join(", "));
            Error::new(Category::Invalid, message)
        })
    }

    fn controller_of(&self, document: &Value) -> Result<Arc<dyn Work>> {
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

/// A token to ask with: the kubeconfig's, or one of a ServiceAccount.
async fn token(config: &Config, settings: &DecisionsSettings) -> Result<String> {
    let client = kube::Client::try_from(config.clone()).map_err(|error| {
        Error::new(Category::Unavailable, format!("cannot set up the connection: {error}"))
    })?;
    if let Some(name) = &settings.service_account {
        let accounts: Api<ServiceAccount> = Api::namespaced(client, &settings.install_namespace);
        let spec =
            TokenRequestSpec { expiration_seconds: Some(TOKEN_SECONDS), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let made = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await
            .map_err(Error::api(format!("make a token of the ServiceAccount {name}")))?;
        return Ok(made.status.unwrap_or_default().token.unwrap_or_default());
    }
    config_token(&config.auth_info).ok_or_else(|| {
        let message = "your kubeconfig has no token to ask with: name a ServiceAccount that may look with \
                       --service-account NAME";
        Error::new(Category::Invalid, message)
    })
}

fn config_token(auth: &AuthInfo) -> Option<String> {
    let plain = auth.token.as_ref().map(|token| token.expose_secret().to_owned());
    let from_file = || std::fs::read_to_string(auth.token_file.as_ref()?).ok();
    plain.or_else(from_file).map(|token| token.trim().to_owned())
}

async fn ask_at(url: &str, query: &str, token: &str) -> Result<String> {
    let cannot =
        |why: &dyn std::fmt::Display| Error::new(Category::Unavailable, format!("cannot ask {url}: {why}"));
    let uri: http::Uri = url.parse().map_err(|error| cannot(&error))?;
    let host = uri.host().ok_or_else(|| cannot(&"it has no host"))?;
    let port = uri.port_u16().unwrap_or(80);
    let stream = tokio::net::TcpStream::connect((host, port)).await.map_err(|error| cannot(&error))?;
    ask(stream, query, token).await
}

/// Asks the pod that leads, through the API server.
async fn ask_in_cluster(
    operator: &str,
    config: &Config,
    settings: &DecisionsSettings,
    query: &str,
) -> Result<String> {
    let client = kube::Client::try_from(config.clone()).map_err(|error| {
        Error::new(Category::Unavailable, format!("cannot set up the connection: {error}"))
    })?;
    let namespace = &settings.install_namespace;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let leases: Api<Lease> = Api::namespaced(client, namespace);
    let lease = leases.get_opt(operator).await.map_err(Error::api("see who leads"))?;
    let holder = lease.and_then(|lease| lease.spec).and_then(|spec| spec.holder_identity).unwrap_or_default();
    let selector = format!("app.kubernetes.io/name={operator}");
    let found = pods
        .list(&ListParams::default().labels(&selector))
        .await
        .map_err(Error::api(format!("find the pods of {operator} in {namespace}")))?;
    let leads = |pod: &&Pod| holder.starts_with(&format!("{}_", pod.name_any()));
    let pod = found.items.iter().find(leads).or(found.items.first()).ok_or_else(|| {
        let message = format!(
            "no pod of {operator} runs in {namespace}: say where it is with --install-namespace, or --url"
        );
        Error::new(Category::NotFound, message)
    })?;
    let doing = format!("reach the pod {}", pod.name_any());
    let mut forwarder = pods.portforward(&pod.name_any(), &[PORT]).await.map_err(Error::api(&doing))?;
    let stream = forwarder
        .take_stream(PORT)
        .ok_or_else(|| Error::new(Category::Unavailable, format!("cannot {doing}: no stream")))?;
    ask(stream, query, &token(config, settings).await?).await
}

async fn ask<S>(stream: S, query: &str, token: &str) -> Result<String>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    let cannot = |why: &dyn std::fmt::Display| {
        Error::new(Category::Unavailable, format!("cannot ask the operator: {why}"))
    };
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| cannot(&error))?;
    tokio::spawn(connection);
    let request = http::Request::get(query)
        .header(http::header::HOST, "operator")
        .header(http::header::AUTHORIZATION, format!("Bearer {token}"))
        .body(axum::body::Body::empty())
        .map_err(|error| cannot(&error))?;
    let answer = sender.send_request(request).await.map_err(|error| cannot(&error))?;
    let status = answer.status();
    let body = axum::body::Body::new(answer.into_body());
    let bytes = axum::body::to_bytes(body, usize::MAX).await.map_err(|error| cannot(&error))?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    match status.is_success() {
        true => Ok(text),
        false => Err(Error::new(Category::Forbidden, format!("{status}: {}", text.trim()))),
    }
}
