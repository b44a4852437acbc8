//! Asking an operator that runs for its decisions: at a URL, or through the API server.

use hyper_util::rt::TokioIo;
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

use crate::{
    error::{Category, Error, Result},
    manager::settings::DecisionsSettings,
};

/// The operator's port.
const PORT: u16 = 8080;
/// For how long a token is good that is made for one question.
const TOKEN_SECONDS: i64 = 600;

/// What the operator of that name answers.
pub(super) async fn ask(
    operator: &str,
    config: &Config,
    settings: &DecisionsSettings,
    query: &str,
) -> Result<String> {
    match &settings.url {
        Some(url) => ask_at(url, query, &token(config, settings).await?).await,
        None => ask_in_cluster(operator, config, settings, query).await,
    }
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
    ask_through(stream, query, token).await
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
    ask_through(stream, query, &token(config, settings).await?).await
}

async fn ask_through<S>(stream: S, query: &str, token: &str) -> Result<String>
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
