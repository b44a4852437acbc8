//! HTTP for the client of S3: hyper and rustls, as everywhere here.

use std::{fs, path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use http_body_util::BodyExt as _;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector as Tcp},
    rt::TokioExecutor,
};
use object_store::{
    ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
        HttpResponseBody, HttpService,
    },
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};

use super::super::{Error, Result};

/// How long a service may take to answer: a part of a file is sent in that time, too.
const ANSWERS_WITHIN: Duration = Duration::from_secs(300);
/// How long it may take to be reached.
const CONNECTED_WITHIN: Duration = Duration::from_secs(10);

/// A client for all requests to one service.
#[derive(Clone, Debug)]
pub(super) struct Http(Client<HttpsConnector<Tcp>, HttpRequestBody>);

impl Http {
    /// That trusts the authorities in this file, or, if it is not told one, those that browsers trust.
    pub(super) fn trusting(authorities: Option<&Path>) -> Result<Self> {
        let roots = match authorities {
            None => RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() },
            Some(path) => {
                let cannot =
                    |why: String| Error::failed(format!("cannot read caSecret's {}: {why}", path.display()));
                let pem = fs::read(path).map_err(|error| cannot(error.to_string()))?;
                let mut roots = RootCertStore::empty();
                for certificate in CertificateDer::pem_slice_iter(&pem) {
                    let added = certificate.map_err(|error| cannot(error.to_string()))?;
                    roots.add(added).map_err(|error| cannot(error.to_string()))?;
                }
                match roots.is_empty() {
                    true => return Err(cannot("there is no certificate in it".to_owned())),
                    false => roots,
                }
            }
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::failed(format!("cannot set up TLS: {error}")))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut tcp = Tcp::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECTED_WITHIN));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        Ok(Self(Client::builder(TokioExecutor::new()).build(connector)))
    }
}

impl HttpConnector for Http {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Http {
    async fn call(&self, request: HttpRequest) -> std::result::Result<HttpResponse, HttpError> {
        let answer = tokio::time::timeout(ANSWERS_WITHIN, self.0.request(request)).await;
        let answer = answer.map_err(|late| HttpError::new(HttpErrorKind::Timeout, late))?;
        let answer = answer.map_err(|error| {
            let kind = if error.is_connect() { HttpErrorKind::Connect } else { HttpErrorKind::Interrupted };
            HttpError::new(kind, error)
        })?;
        let interrupted = |error: hyper::Error| HttpError::new(HttpErrorKind::Interrupted, error);
        Ok(answer.map(|body| HttpResponseBody::new(body.map_err(interrupted))))
    }
}
