//! The way in to a control plane: who asks, and what was asked.
//!
//! Nothing in here belongs to a runtime. Every `#[tokio::test]` has a runtime of
//! its own, and the connections of a client die with the one that made it, so
//! configurations are kept and clients are made anew.

use std::path::{Path, PathBuf};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

use crate::{
    audit_log::AuditLog,
    error::{Error, Result},
};

/// Whom the API server knows this crate as. Apart from the administrator, so
/// that what this crate asks is never taken for what a test asked.
pub(crate) const HARNESS: &str = "wheelhouse-testing";

/// How to reach a control plane, and its audit log.
#[derive(Debug)]
pub(crate) struct Access {
    admin: Config,
    harness: Config,
    pub(crate) audit_log: AuditLog,
}

impl Access {
    pub(crate) async fn new(admin: &Path, harness: &Path, audit_log: PathBuf) -> Result<Self> {
        Ok(Self {
            admin: config(admin).await?,
            harness: config(harness).await?,
            audit_log: AuditLog::new(audit_log),
        })
    }

    /// A client of this crate's own.
    pub(crate) fn harness(&self) -> Result<Client> {
        client(self.harness.clone())
    }

    /// A client for asking whether the API server is ready, which takes "not yet" for an answer: others wait
    /// and ask again.
    pub(crate) fn prober(&self) -> Result<Client> {
        let mut config = self.harness.clone();
        config.default_retry = false;
        client(config)
    }

    /// The administrator's configuration.
    pub(crate) fn admin(&self) -> Config {
        self.admin.clone()
    }

    /// Of whoever has this token.
    pub(crate) fn with_token(&self, token: String) -> Config {
        let mut config = self.admin.clone();
        config.auth_info = kube::config::AuthInfo { token: Some(token.into()), ..Default::default() };
        config
    }
}

/// A new client.
pub(crate) fn client(config: Config) -> Result<Client> {
    Client::try_from(config).map_err(Error::api("make a client"))
}

/// The request for a path that is no resource's.
pub(crate) fn get(path: &str) -> Result<http::Request<Vec<u8>>, kube::Error> {
    http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)
}

async fn config(path: &Path) -> Result<Config> {
    let unusable = |source| Error::Kubeconfig { path: path.to_owned(), source: Box::new(source) };
    let kubeconfig = Kubeconfig::read_from(path).map_err(unusable)?;
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(unusable)?;
    // A proxy that is set for the internet does not lead to this machine's loopback.
    config.proxy_url = None;
    Ok(config)
}
