//! The certificates of one cluster: an authority, and leaves that it signs.
//!
//! An authority is kept as two PEM files and can be taken up again later, for
//! example to add a node.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType, string::Ia5String,
};
use time::{Duration, OffsetDateTime};

use crate::{
    error::{Error, Result},
    folders,
};

/// Local clusters are short-lived; ten years outlast any of them.
const VALIDITY: Duration = Duration::days(3650);

/// A certificate authority of one cluster.
pub struct Authority {
    name: String,
    certificate: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

/// Who a certificate is for.
#[derive(Debug, Default, Clone)]
pub struct Subject {
    /// The common name: a user to Kubernetes.
    pub name: String,
    /// The organisations: groups to Kubernetes.
    pub groups: Vec<String>,
    /// The names that a server answers to; none for a client.
    pub dns_names: Vec<String>,
    /// The addresses that a server answers on.
    pub addresses: Vec<IpAddr>,
}

impl Subject {
    /// A client that Kubernetes knows as this user.
    pub fn user(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// The same, in a group.
    pub fn in_group(mut self, group: &str) -> Self {
        self.groups.push(group.to_owned());
        self
    }

    /// The same, answering at an address.
    pub fn at(mut self, address: impl Into<IpAddr>) -> Self {
        self.addresses.push(address.into());
        self
    }

    /// The same, answering to a name.
    pub fn called(mut self, name: &str) -> Self {
        self.dns_names.push(name.to_owned());
        self
    }
}

/// A certificate and its key, as files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The certificate, PEM.
    pub certificate: PathBuf,
    /// The private key, PEM.
    pub key: PathBuf,
}

impl Pair {
    fn in_folder(folder: &Path, name: &str) -> Self {
        Self { certificate: folder.join(format!("{name}.crt")), key: folder.join(format!("{name}.key")) }
    }

    fn exists(&self) -> bool {
        self.certificate.exists() && self.key.exists()
    }
}

impl Authority {
    /// The authority kept in `folder` under `name`; made if it is not there yet.
    pub fn ensure(folder: &Path, name: &str) -> Result<Self> {
        let certificate_error = |source| Error::Certificate { subject: name.to_owned(), source };
        let files = Pair::in_folder(folder, name);
        let params = authority_params(name);
        let key = if files.exists() {
            KeyPair::from_pem(&folders::read_text(&files.key)?).map_err(certificate_error)?
        } else {
            let key = KeyPair::generate().map_err(certificate_error)?;
            let certificate = params.self_signed(&key).map_err(certificate_error)?;
            folders::write_file(&files.key, key.serialize_pem(), 0o600)?;
            folders::write_file(&files.certificate, certificate.pem(), 0o644)?;
            key
        };
        // An issuer needs only its own name and key, both of which are the same each time.
        Ok(Self { name: name.to_owned(), certificate: files.certificate, issuer: Issuer::new(params, key) })
    }

    /// The authority's own certificate, which clients trust.
    pub fn certificate(&self) -> &Path {
        &self.certificate
    }

    /// The certificate kept beside the authority under `file`; made if it is not there yet.
    pub fn ensure_leaf(&self, file: &str, subject: &Subject) -> Result<Pair> {
        let folder = self.certificate.parent().unwrap_or(Path::new("."));
        let files = Pair::in_folder(folder, file);
        if files.exists() {
            return Ok(files);
        }
        let certificate_error = |source| Error::Certificate {
            subject: format!("{} (signed by {})", subject.name, self.name),
            source,
        };
        let key = KeyPair::generate().map_err(certificate_error)?;
        let certificate = leaf_params(subject)
            .and_then(|params| params.signed_by(&key, &self.issuer))
            .map_err(certificate_error)?;
        folders::write_file(&files.key, key.serialize_pem(), 0o600)?;
        folders::write_file(&files.certificate, certificate.pem(), 0o644)?;
        Ok(files)
    }
}

/// The key that service account tokens are signed with, kept in `folder`. The
/// public half is beside it as `.pub`: the API server checks tokens with that, and
/// does not find it in a private key of the form that ours has (PKCS #8).
pub fn ensure_service_account_key(folder: &Path) -> Result<PathBuf> {
    let path = folder.join("service-accounts.key");
    if !path.exists() {
        let key = KeyPair::generate()
            .map_err(|source| Error::Certificate { subject: "the service accounts".to_owned(), source })?;
        folders::write_file(&path.with_extension("pub"), key.public_key_pem(), 0o644)?;
        folders::write_file(&path, key.serialize_pem(), 0o600)?;
    }
    Ok(path)
}

fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages =
        vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    valid(&mut params);
    params
}

fn leaf_params(subject: &Subject) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, subject.name.as_str());
    for group in &subject.groups {
        params.distinguished_name.push(DnType::OrganizationName, group.as_str());
    }
    for name in &subject.dns_names {
        params.subject_alt_names.push(SanType::DnsName(Ia5String::try_from(name.as_str())?));
    }
    params.subject_alt_names.extend(subject.addresses.iter().copied().map(SanType::IpAddress));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    if !params.subject_alt_names.is_empty() {
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    }
    params.use_authority_key_identifier_extension = true;
    valid(&mut params);
    Ok(params)
}

fn valid(params: &mut CertificateParams) {
    // Clocks differ, and a machine that was suspended may wake in the past.
    params.not_before = OffsetDateTime::now_utc() - Duration::days(1);
    params.not_after = OffsetDateTime::now_utc() + VALIDITY;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_taken_up_again_signs_with_the_same_key() {
        let folder = tempfile::tempdir().unwrap();
        let first = Authority::ensure(folder.path(), "cluster").unwrap();
        let certificate = std::fs::read(first.certificate()).unwrap();
        let again = Authority::ensure(folder.path(), "cluster").unwrap();
        assert_eq!(certificate, std::fs::read(again.certificate()).unwrap());
        assert_eq!(first.issuer.key().serialize_pem(), again.issuer.key().serialize_pem());
    }

    #[test]
    fn a_leaf_is_made_once_and_its_key_is_for_the_owner_only() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::ensure(folder.path(), "cluster").unwrap();
        let subject = Subject::user("admin").in_group("system:masters");
        let pair = authority.ensure_leaf("admin", &subject).unwrap();
        let key = std::fs::read(&pair.key).unwrap();
        assert_eq!(pair, authority.ensure_leaf("admin", &subject).unwrap());
        assert_eq!(key, std::fs::read(&pair.key).unwrap());
        assert_eq!(0o600, std::fs::metadata(&pair.key).unwrap().permissions().mode() & 0o777);
    }
}
