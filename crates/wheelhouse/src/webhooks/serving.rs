//! Serves the webhooks over TLS, with whatever certificate is right at the moment.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use axum::{Json, Router, routing::post};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::Uri;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
    service::TowerToHyperService,
};
use kube::Client;
use parking_lot::RwLock;
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{
    Address, Webhooks,
    certificate::Keeper,
    configurations::{self, Scope},
    review,
};
use crate::{
    certificates::{Certificates, Validity},
    error::{Category, Error, Result},
};

/// However long certificates last, replicas look at what others did.
const LOOK_EVERY: Duration = Duration::from_secs(10);
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(2);
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// What is needed to serve.
pub(crate) struct Serving {
    pub(crate) client: Client,
    pub(crate) scope: Scope,
    pub(crate) webhooks: Webhooks,
    pub(crate) listen: SocketAddr,
    /// Where the API server finds them; none: at the address that is listened on.
    pub(crate) address: Option<Address>,
    /// Where the API server is.
    pub(crate) api_server: Uri,
    /// Where the Secret is.
    pub(crate) namespace: String,
    pub(crate) validity: Validity,
}

impl Serving {
    /// Listens, has certificates, and told the API server so; answers until stopped.
    ///
    /// # Errors
    /// When it cannot listen, or the Secret or the configurations cannot be written.
    pub(crate) async fn start(self, stop: CancellationToken) -> Result<SocketAddr> {
        let listen = self.listen;
        let cannot = |error| {
            Error::new(
                Category::Unavailable,
                format!("cannot listen on {listen}: {error}: choose another address with --webhook-listen"),
            )
        };
        let listener = TcpListener::bind(listen).await.map_err(cannot)?;
        let listening = listener.local_addr().map_err(cannot)?;
        let reachable = || reachable(listening, &self.api_server);
        let address =
            self.address.clone().unwrap_or_else(|| Address::Url(format!("https://{}", reachable())));
        let keeper = Keeper {
            client: self.client.clone(),
            namespace: self.namespace.clone(),
            name: format!("{}-webhooks", self.scope.operator),
            names: address.names(listening),
            validity: self.validity,
        };
        let certificates = keeper.keep().await?;
        let current = Arc::new(Current(RwLock::new(certified(&certificates)?)));
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::new(Category::Bug, format!("cannot set up TLS: {error}")))?
            .with_no_client_auth()
            .with_cert_resolver(current.clone());
        let router = router(&self.webhooks, &self.client);
        tokio::spawn(serve(listener, TlsAcceptor::from(Arc::new(config)), router, stop.clone()));
        configurations::write(&self.client, &self.scope, &self.webhooks, &address, &certificates.bundle())
            .await?;
        tracing::info!(%listening, "answering webhooks");
        tokio::spawn(async move {
            let looking_after = self.look_after(&keeper, &address, certificates, &current);
            stop.run_until_cancelled(looking_after).await;
        });
        Ok(listening)
    }

    /// Keeps certificates and configurations right, for as long as this process runs.
    async fn look_after(&self, keeper: &Keeper, address: &Address, first: Certificates, current: &Current) {
        let look_every = LOOK_EVERY.min(self.validity.overlap / 4);
        let mut known = first;
        loop {
            tokio::time::sleep(keeper.look_again_after(&known, look_every)).await;
            let looked = async {
                let kept = keeper.keep().await?;
                if kept.bundle() != known.bundle() {
                    let bundle = kept.bundle();
                    configurations::write(&self.client, &self.scope, &self.webhooks, address, &bundle)
                        .await?;
                }
                *current.0.write() = certified(&kept)?;
                Ok::<_, Error>(kept)
            };
            match looked.await {
                Ok(kept) => known = kept,
                Err(error) => {
                    tracing::warn!("cannot look after the webhooks' certificates: {error}; trying again");
                    tokio::time::sleep(TRY_AGAIN_AFTER).await;
                }
            }
        }
    }
}

/// Where the API server finds what listens there. Who listens on all addresses is found at the one that this machine has for
/// the API server.
fn reachable(listening: SocketAddr, api_server: &Uri) -> SocketAddr {
    if !listening.ip().is_unspecified() {
        return listening;
    }
    let host = api_server.host().unwrap_or_default().trim_matches(['[', ']']);
    let port = api_server.port_u16().unwrap_or(443);
    // Nothing is sent: the system only looks up the way.
    let way = |local: IpAddr| {
        let socket = UdpSocket::bind((local, 0))?;
        socket.connect((host, port))?;
        socket.local_addr()
    };
    let found = way(Ipv4Addr::UNSPECIFIED.into()).or_else(|_| way(Ipv6Addr::UNSPECIFIED.into()));
    SocketAddr::new(found.map_or(Ipv4Addr::LOCALHOST.into(), |local| local.ip()), listening.port())
}

/// The certificate that is served at the moment.
#[derive(Debug)]
struct Current(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().clone())
    }
}

fn certified(certificates: &Certificates) -> Result<Arc<CertifiedKey>> {
    let cannot = |error: &dyn std::fmt::Display| {
        Error::new(Category::Bug, format!("cannot use the webhooks' certificate: {error}"))
    };
    let leaf = certificates.leaf();
    let chain: std::result::Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(leaf.certificate.as_bytes()).collect();
    let key = PrivateKeyDer::from_pem_slice(leaf.key.as_bytes()).map_err(|error| cannot(&error))?;
    let key = ring::sign::any_supported_type(&key).map_err(|error| cannot(&error))?;
    Ok(Arc::new(CertifiedKey::new(chain.map_err(|error| cannot(&error))?, key)))
}

fn router(webhooks: &Webhooks, client: &Client) -> Router {
    let mut router = Router::new();
    for (kind, validate) in &webhooks.validating {
        let (validate, client) = (validate.clone(), client.clone());
        let answer = move |Json(review): Json<Value>| async move {
            let result = validate(review::request(&review), &client).await;
            Json(review::validated(&review, result))
        };
        router = router.route(&configurations::validate_path(kind), post(answer));
    }
    for (kind, mutate) in &webhooks.defaulting {
        let mutate = mutate.clone();
        let answer = move |Json(review): Json<Value>| async move {
            Json(review::default(&review, &mutate, |patch| BASE64_STANDARD.encode(patch)))
        };
        router = router.route(&configurations::default_path(kind), post(answer));
    }
    for (crd, convert) in &webhooks.converting {
        let convert = convert.clone();
        let answer = move |Json(review): Json<Value>| async move { Json(review::convert(&review, &convert)) };
        router = router.route(&configurations::convert_path(crd), post(answer));
    }
    router
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, router: Router, stop: CancellationToken) {
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        match accepted {
            Ok((stream, _)) => {
                tokio::spawn(answer(stream, acceptor.clone(), router.clone(), stop.clone()));
            }
            Err(error) => {
                tracing::warn!("cannot accept a connection for webhooks: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn answer(stream: TcpStream, acceptor: TlsAcceptor, router: Router, stop: CancellationToken) {
    let accepting = tokio::time::timeout(HANDSHAKE_LIMIT, acceptor.accept(stream)).await;
    let Ok(Ok(stream)) = accepting else {
        tracing::debug!("a connection for webhooks came to nothing");
        return;
    };
    let builder = Builder::new(TokioExecutor::new());
    let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::pin!(connection);
    tokio::select! {
        result = connection.as_mut() => {
            if let Err(error) = result {
                tracing::debug!("a connection for webhooks broke: {error}");
            }
        }
        () = stop.cancelled() => {
            // What is under way is answered.
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::on_this_machine("0.0.0.0:9443", "https://127.0.0.1:6443", "127.0.0.1:9443")]
    #[case::by_name("0.0.0.0:9443", "https://localhost:6443/", "127.0.0.1:9443")]
    #[case::of_both_families("[::]:9443", "https://127.0.0.1:6443", "127.0.0.1:9443")]
    #[case::one_address("192.0.2.1:9443", "https://127.0.0.1:6443", "192.0.2.1:9443")]
    fn who_listens_everywhere_is_found_where_the_api_server_looks(
        #[case] listening: &str,
        #[case] api_server: &str,
        #[case] expected: &str,
    ) {
        let found = reachable(listening.parse().unwrap(), &api_server.parse().unwrap());
        assert_eq!(found, expected.parse().unwrap());
    }
}
