//! TLS to members: shows a certificate, trusts the cluster's authorities and nobody else, and asks for the
//! cluster's name whatever address is dialled.

use std::{fmt, sync::Arc};

use futures::future::BoxFuture;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use tokio_rustls::TlsConnector;

use super::{Dial, Stream};

/// What a client shows, whom it trusts, and for whom it asks. Made from files, and kept without them.
#[derive(Clone)]
pub struct Credentials {
    config: Arc<ClientConfig>,
    server_name: ServerName<'static>,
}

/// Without the key, so that no log shows it.
impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Credentials").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

impl Credentials {
    /// From a certificate, its key and the authorities to trust, PEM.
    ///
    /// # Errors
    /// What is wrong with them, in words.
    pub fn new(
        certificate: &[u8],
        key: &[u8],
        authorities: &[u8],
        server_name: &str,
    ) -> Result<Self, String> {
        let mut trusted = RootCertStore::empty();
        for authority in certificates(authorities, "the authorities")? {
            trusted.add(authority).map_err(|error| format!("cannot use the authorities: {error}"))?;
        }
        let chain = certificates(certificate, "the certificate")?;
        let key =
            PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("cannot read the key: {error}"))?;
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("cannot set up TLS: {error}"))?
            .with_root_certificates(trusted)
            .with_client_auth_cert(chain, key)
            .map_err(|error| format!("cannot use the certificate: {error}"))?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        let server_name = ServerName::try_from(server_name.to_owned())
            .map_err(|error| format!("{server_name} is no name: {error}"))?;
        Ok(Self { config: Arc::new(config), server_name })
    }

    /// For plain HTTP within TLS, rather than gRPC.
    #[must_use]
    pub(crate) fn over_http1(mut self) -> Self {
        Arc::make_mut(&mut self.config).alpn_protocols = vec![b"http/1.1".to_vec()];
        self
    }
}

fn certificates(content: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(content).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        Ok(_) => Err(format!("{what} hold no certificate")),
        Err(error) => Err(format!("cannot read {what}: {error}")),
    }
}

/// Looks for the credentials each time that somebody is dialled: they change. None: plain.
pub type Find = dyn Fn() -> Result<Option<Credentials>, String> + Send + Sync;

/// Over TLS, where there are credentials; in plain words otherwise.
pub struct Secured {
    /// How the other end is reached.
    pub inner: Arc<dyn Dial>,
    /// With what, at the moment.
    pub credentials: Box<Find>,
}

impl Dial for Secured {
    fn dial(&self, address: &str) -> BoxFuture<'static, std::io::Result<Box<dyn Stream>>> {
        let (dialling, credentials) = (self.inner.dial(address), (self.credentials)());
        Box::pin(async move {
            let Some(credentials) = credentials.map_err(std::io::Error::other)? else {
                return dialling.await;
            };
            let connector = TlsConnector::from(credentials.config);
            let stream = connector.connect(credentials.server_name, dialling.await?).await?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }

    fn is_secure(&self) -> bool {
        matches!((self.credentials)(), Ok(Some(_)))
    }
}
