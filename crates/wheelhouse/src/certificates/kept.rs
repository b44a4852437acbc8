//! What is seen of authorities and certificates that are kept in Secrets: digests and times, never the
//! content.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use rustls::{
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    sign::CertifiedKey,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Authorities, Former, Pair, Validity, authority};
use crate::{error::Result, plan::Reference};

/// Where in its Secret an authority is.
pub const AUTHORITY_FILE: &str = "authority.json";
/// The annotation of an authority's Secret: the last wish for another one that was met.
pub(crate) const ASKED: &str = "wheelhouse.dev/asked";
/// The annotation of a certificate's Secret: what was known when it was signed.
pub const ISSUED: &str = "wheelhouse.dev/issued";

/// In short what a file holds.
pub fn digest(content: &[u8]) -> String {
    Sha256::digest(content).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// A certificate, without the certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateSeen {
    /// In short what it is.
    pub digest: String,
    /// When it was made.
    pub made: Timestamp,
    /// When it expires.
    pub until: Timestamp,
}

impl CertificateSeen {
    fn of(pair: &Pair) -> Self {
        Self { digest: digest(pair.certificate.as_bytes()), made: pair.made, until: pair.until }
    }
}

/// The Secret of an authority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuthoritySeen {
    /// This very one.
    pub reference: Reference,
    /// What signs; none if the Secret holds no authority that can be read.
    #[serde(default)]
    pub signing: Option<CertificateSeen>,
    /// Whether its key is known. An authority whose Secret was lost is still trusted, and signs nothing.
    pub can_sign: bool,
    /// What is trusted already, and will sign.
    #[serde(default)]
    pub next: Option<CertificateSeen>,
    /// Whether one that does not sign any more is still trusted.
    pub has_former: bool,
    /// In short whom everybody is to trust.
    pub bundle: String,
    /// The last wish for another one that was met.
    #[serde(default)]
    pub asked: Option<String>,
}

impl AuthoritySeen {
    /// What is in the Secret.
    pub fn of(secret: &Secret) -> Self {
        let kept = authorities_in(secret);
        let signing = kept.as_ref().map(Authorities::signing);
        Self {
            reference: Reference::of(secret),
            signing: signing.map(CertificateSeen::of),
            can_sign: kept.as_ref().is_some_and(Authorities::can_sign),
            next: kept.as_ref().and_then(Authorities::next).map(CertificateSeen::of),
            has_former: kept.as_ref().is_some_and(Authorities::has_former),
            bundle: kept.map(|kept| digest(kept.bundle().as_bytes())).unwrap_or_default(),
            asked: secret.annotations().get(ASKED).cloned(),
        }
    }
}

/// The authorities that a Secret holds.
pub(crate) fn authorities_in(secret: &Secret) -> Option<Authorities> {
    serde_json::from_slice(&secret.data.as_ref()?.get(AUTHORITY_FILE)?.0).ok()
}

/// What the files in a certificate's Secret are called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Files {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
    /// Whom its holder trusts.
    pub authorities: String,
}

impl Files {
    /// Files of these names.
    pub fn new(certificate: &str, key: &str, authorities: &str) -> Self {
        let [certificate, key, authorities] = [certificate, key, authorities].map(str::to_owned);
        Self { certificate, key, authorities }
    }
}

/// What was known when a certificate was signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Issued {
    /// The certificate, in short.
    pub certificate: String,
    /// Its names.
    pub names: Vec<String>,
    /// When it was made.
    pub made: Timestamp,
    /// When it expires.
    pub until: Timestamp,
    /// Who signed it, in short.
    pub by: String,
    /// Since when this Secret has certificates of that authority.
    pub by_since: Timestamp,
    /// Whom its holder trusts, in short.
    pub bundle: String,
    /// Since when.
    pub bundle_since: Timestamp,
}

/// The Secret of a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeafSeen {
    /// This very one.
    pub reference: Reference,
    /// The certificate, in short; none if there is none.
    #[serde(default)]
    pub certificate: Option<String>,
    /// Whom its holder trusts, in short; none if there is nobody.
    #[serde(default)]
    pub bundle: Option<String>,
    /// What is wrong with it, in words.
    #[serde(default)]
    pub problem: Option<String>,
    /// What was known when it was signed, if that was by an authority of ours.
    #[serde(default)]
    pub issued: Option<Issued>,
}

impl LeafSeen {
    /// What is in the Secret.
    pub fn of(secret: &Secret, files: &Files) -> Self {
        let short = |file: &str| content(secret, file).ok().map(digest);
        Self {
            reference: Reference::of(secret),
            certificate: short(&files.certificate),
            bundle: short(&files.authorities),
            problem: check(secret, files).err(),
            issued: issued_in(secret),
        }
    }
}

pub(crate) fn issued_in(secret: &Secret) -> Option<Issued> {
    serde_json::from_str(secret.annotations().get(ISSUED)?).ok()
}

fn content<'a>(secret: &'a Secret, file: &str) -> std::result::Result<&'a [u8], String> {
    let found = secret.data.as_ref().and_then(|data| data.get(file));
    found.map(|content| content.0.as_slice()).ok_or_else(|| format!("it has no {file}"))
}

/// Whether there are a certificate, its key and whom to trust.
fn check(secret: &Secret, files: &Files) -> std::result::Result<(), String> {
    let chain = certificates(secret, &files.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(content(secret, &files.key)?)
        .map_err(|_| format!("{} holds no key", files.key))?;
    CertifiedKey::from_der(chain, key, &ring::default_provider())
        .map_err(|_| format!("{} is not the key of {}", files.key, files.certificate))?;
    certificates(secret, &files.authorities).map(drop)
}

fn certificates(secret: &Secret, file: &str) -> std::result::Result<Vec<CertificateDer<'static>>, String> {
    let found: std::result::Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(content(secret, file)?).collect();
    match found {
        Ok(all) if !all.is_empty() => Ok(all),
        _ => Err(format!("{file} holds no certificate")),
    }
}

impl Authorities {
    /// In place of authorities whose Secret was lost: who trusted them goes on trusting them, until a new one has
    /// taken over. `until` is when the last certificate that they signed expires.
    ///
    /// # Errors
    /// When no key can be made.
    pub(crate) fn after_a_loss(
        name: &str,
        bundle: &[u8],
        until: Timestamp,
        validity: Validity,
        now: Timestamp,
    ) -> Result<Option<Self>> {
        let mut former = pems(bundle).into_iter();
        let Some(certificate) = former.next() else { return Ok(None) };
        Ok(Some(Self {
            name: name.to_owned(),
            authority: Pair { certificate, key: String::new(), made: now, until },
            next: Some(authority(name, validity, now)?),
            former: former.map(|certificate| Former { certificate, until }).collect(),
        }))
    }

    pub(crate) fn can_sign(&self) -> bool {
        !self.authority.key.is_empty()
    }
}

/// The certificates of a bundle, each as the text that it was.
fn pems(bundle: &[u8]) -> Vec<String> {
    let end = "-----END CERTIFICATE-----";
    let text = String::from_utf8_lossy(bundle).into_owned();
    let parts = text.split_inclusive(end).filter(|part| part.ends_with(end));
    parts.map(|part| format!("{}\n", part.trim_start())).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::ByteString;
    use rstest::rstest;

    use super::*;

    fn files() -> Files {
        Files::new("tls.crt", "tls.key", "ca.crt")
    }

    fn secret() -> Secret {
        let now = Timestamp::UNIX_EPOCH;
        let authorities = Authorities::new("a", Validity::default(), now).unwrap();
        let leaf = authorities.sign("leaf", &[], Validity::default(), now).unwrap();
        let entry = |name: &str, text: String| (name.to_owned(), ByteString(text.into_bytes()));
        let data = [
            entry("tls.crt", leaf.certificate),
            entry("tls.key", leaf.key),
            entry("ca.crt", authorities.bundle()),
        ];
        Secret { data: Some(data.into()), ..Secret::default() }
    }

    fn with(file: &str, content: Option<&str>) -> Secret {
        let mut secret = secret();
        let data = secret.data.as_mut().unwrap();
        match content {
            Some(text) => drop(data.insert(file.to_owned(), ByteString(text.into()))),
            None => drop(data.remove(file)),
        }
        secret
    }

    #[rstest]
    #[case::all_is_there(secret(), None)]
    #[case::no_certificate(with("tls.crt", None), Some("it has no tls.crt"))]
    #[case::no_key(with("tls.key", None), Some("it has no tls.key"))]
    #[case::nobody_to_trust(with("ca.crt", None), Some("it has no ca.crt"))]
    #[case::not_a_certificate(with("tls.crt", Some("hello")), Some("tls.crt holds no certificate"))]
    #[case::not_a_key(with("tls.key", Some("hello")), Some("tls.key holds no key"))]
    #[case::not_an_authority(with("ca.crt", Some("")), Some("ca.crt holds no certificate"))]
    #[case::the_key_of_another(
        with("tls.key", Some(std::str::from_utf8(&secret().data.unwrap()["tls.key"].0).unwrap())),
        Some("tls.key is not the key of tls.crt")
    )]
    fn what_is_wrong_with_a_secret_is_told(#[case] secret: Secret, #[case] problem: Option<&str>) {
        assert_eq!(LeafSeen::of(&secret, &files()).problem.as_deref(), problem);
    }

    #[test]
    fn nothing_secret_is_seen() {
        let now = Timestamp::UNIX_EPOCH;
        let authorities = Authorities::new("a", Validity::default(), now).unwrap();
        let content = ByteString(serde_json::to_vec(&authorities).unwrap());
        let data = Some([(AUTHORITY_FILE.to_owned(), content)].into());
        let seen = AuthoritySeen::of(&Secret { data, ..Secret::default() });
        assert_eq!(seen.bundle, digest(authorities.bundle().as_bytes()));
        assert!(seen.can_sign && seen.signing.is_some());
        let all = format!("{seen:?}{:?}", LeafSeen::of(&secret(), &files()));
        assert!(!all.contains("BEGIN"), "{all}");
    }

    #[test]
    fn authorities_that_were_lost_stay_trusted() {
        let now = Timestamp::UNIX_EPOCH;
        let mut before = Authorities::new("a", Validity::default(), now).unwrap();
        before.announce(Validity::default(), now).unwrap();
        let bundle = before.bundle();
        let until = now + Duration::from_secs(60);
        let after = Authorities::after_a_loss("a", bundle.as_bytes(), until, Validity::default(), now);
        let mut after = after.unwrap().unwrap();
        assert!(!after.can_sign());
        for authority in pems(bundle.as_bytes()) {
            assert!(after.bundle().contains(&authority));
        }
        after.hand_over();
        assert!(after.can_sign());
        assert_eq!(pems(after.bundle().as_bytes()).len(), 3);
    }
}
