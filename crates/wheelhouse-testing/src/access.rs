//! The way in to a control plane: who asks, and what was asked.
//!
//! Nothing in here belongs to a runtime. Every `#[tokio::test]` has a runtime of
//! its own, and the connections of a client die with the one that made it, so
//! configurations are kept and clients are made anew.

use std::{
    fs::File,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use kube::{
    Client, Config,
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
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
    admin_kubeconfig: PathBuf,
    harness: Config,
    pub(crate) audit_log: AuditLog,
}

impl Access {
    pub(crate) async fn new(admin: &Path, harness: &Path, audit_log: PathBuf) -> Result<Self> {
        Ok(Self {
            admin: config(admin).await?,
            admin_kubeconfig: admin.to_owned(),
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
        config.auth_info = AuthInfo { token: Some(token.into()), ..AuthInfo::default() };
        config
    }

    /// Writes a kubeconfig like the administrator's, but for whoever `user` is in that
    /// namespace, beside it.
    pub(crate) fn write_kubeconfig(&self, name: &str, namespace: &str, user: &AuthInfo) -> Result<PathBuf> {
        let mut kubeconfig = read_kubeconfig(&self.admin_kubeconfig)?;
        for each in &mut kubeconfig.auth_infos {
            each.auth_info = Some(user.clone());
        }
        for context in kubeconfig.contexts.iter_mut().filter_map(|each| each.context.as_mut()) {
            context.namespace = Some(namespace.to_owned());
        }
        let path = self.admin_kubeconfig.with_file_name(format!("{name}.kubeconfig"));
        File::options()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&path)
            // JSON, which is YAML too.
            .and_then(|mut file| file.write_all(&serde_json::to_vec_pretty(&kubeconfig)?))
            .map_err(Error::file("write", &path))?;
        Ok(path)
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
    let kubeconfig = read_kubeconfig(path)?;
    let options = KubeConfigOptions::default();
    let mut config =
        Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(Error::kubeconfig(path))?;
    // A proxy that is set for the internet does not lead to this machine's loopback.
    config.proxy_url = None;
    Ok(config)
}

fn read_kubeconfig(path: &Path) -> Result<Kubeconfig> {
    Kubeconfig::read_from(path).map_err(Error::kubeconfig(path))
}
