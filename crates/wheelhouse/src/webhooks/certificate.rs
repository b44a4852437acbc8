//! The Secret with the certificates, which all replicas share and look after.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};

use crate::{
    certificates::{Certificates, Validity},
    error::{Category, Error, Result},
};

/// Where in the Secret everything is.
const CONTENT: &str = "certificates.json";
/// Another replica may be faster, but not for ever.
const TRIES: usize = 10;

/// Looks after the Secret.
pub(super) struct Keeper {
    pub(super) client: Client,
    pub(super) namespace: String,
    /// The Secret's name, and the authority's.
    pub(super) name: String,
    /// What the certificate is for.
    pub(super) names: Vec<String>,
    pub(super) validity: Validity,
}

impl Keeper {
    /// The certificates as they have to be now, kept in the Secret.
    pub(super) async fn keep(&self) -> Result<Certificates> {
        for _ in 0..TRIES {
            if let Some(kept) = self.try_to_keep().await? {
                return Ok(kept);
            }
        }
        let message =
            format!("somebody else writes the Secret {}/{} all the time", self.namespace, self.name);
        Err(Error::new(Category::Conflict, message))
    }

    /// Nothing, if somebody else was faster.
    async fn try_to_keep(&self) -> Result<Option<Certificates>> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let doing = format!("look after the Secret {}/{}", self.namespace, self.name);
        let now = Timestamp::now();
        let kept = secrets.get_opt(&self.name).await.map_err(Error::api(&doing))?;
        let known = kept.as_ref().and_then(content);
        let wanted = match &known {
            Some(known) => known.at(&self.names, self.validity, now)?,
            None => Certificates::new(&self.name, &self.names, self.validity, now)?,
        };
        if known.as_ref() == Some(&wanted) {
            return Ok(known);
        }
        let secret = self.secret(&wanted, kept.as_ref())?;
        let written = match &kept {
            Some(_) => secrets.replace(&self.name, &PostParams::default(), &secret).await,
            None => secrets.create(&PostParams::default(), &secret).await,
        };
        match written {
            Ok(_) => {
                tracing::info!(secret = self.name, "the webhooks have new certificates");
                Ok(Some(wanted))
            }
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
            Err(error) => Err(Error::write(doing)(error)),
        }
    }

    fn secret(&self, certificates: &Certificates, kept: Option<&Secret>) -> Result<Secret> {
        let content = serde_json::to_vec(certificates)
            .map_err(|error| Error::new(Category::Bug, format!("certificates are no JSON: {error}")))?;
        let entry = |name: &str, text: &str| (name.to_owned(), ByteString(text.as_bytes().to_vec()));
        let leaf = certificates.leaf();
        Ok(Secret {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                resource_version: kept.and_then(|kept| kept.metadata.resource_version.clone()),
                ..ObjectMeta::default()
            },
            type_: Some("kubernetes.io/tls".to_owned()),
            // Under the names that people look for, too.
            data: Some(
                [
                    (CONTENT.to_owned(), ByteString(content)),
                    entry("tls.crt", &leaf.certificate),
                    entry("tls.key", &leaf.key),
                    entry("ca.crt", &certificates.bundle()),
                ]
                .into(),
            ),
            ..Secret::default()
        })
    }

    /// How long until somebody has to look again.
    pub(super) fn look_again_after(&self, certificates: &Certificates, at_most: Duration) -> Duration {
        let due = certificates.look_again(self.validity).duration_since(Timestamp::now());
        Duration::try_from(due).unwrap_or_default().clamp(Duration::from_millis(100), at_most)
    }
}

fn content(secret: &Secret) -> Option<Certificates> {
    serde_json::from_slice(&secret.data.as_ref()?.get(CONTENT)?.0).ok()
}
