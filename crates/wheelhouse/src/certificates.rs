//! [`Certificates`]: an authority, a certificate that it signed, and how both are
//! replaced before they expire without anybody noticing.
//!
//! Pure: what is there and what time it is decide what has to be there next. Where
//! it is kept is somebody else's business, so it serves webhooks and applications alike.
//!
//! Whoever checks a certificate trusts the [bundle](Certificates::bundle). A new
//! authority is in the bundle for a while before it signs anything, and an old one stays
//! until it expires; so at any time what is served is trusted by everybody who read
//! the bundle within that while.
//!
//! That is for whoever reads the bundle again and again. Where programs read it only when they start, time
//! alone does not tell who trusts whom: there [`Authorities`] are kept in a Secret by the step
//! [`Certify`](crate::plan::Certify), and [`rotation`] decides on what is seen.

pub(crate) mod kept;
pub mod rotation;

use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType, string::Ia5String,
};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

pub use kept::{AUTHORITY_FILE, AuthoritySeen, CertificateSeen, Files, ISSUED, Issued, LeafSeen, digest};

use crate::error::{Category, Error, Result};

/// Clocks differ.
const BEFORE: Duration = Duration::from_secs(3600);

/// How long certificates are good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validity {
    /// The authority. Default: a year.
    pub authority: Duration,
    /// What it signs. Default: thirty days.
    pub leaf: Duration,
    /// How long a new authority is trusted before it signs anything. Default: an hour.
    pub overlap: Duration,
}

impl Default for Validity {
    fn default() -> Self {
        let day = 24 * 3600;
        Self {
            authority: Duration::from_secs(365 * day),
            leaf: Duration::from_secs(30 * day),
            overlap: Duration::from_secs(3600),
        }
    }
}

/// A certificate with its key, PEM, and when it was made and expires.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: String,
    /// When it was made.
    pub made: Timestamp,
    /// When it expires.
    pub until: Timestamp,
}

/// Without the key, so that no log shows it.
impl std::fmt::Debug for Pair {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Pair")
            .field("made", &self.made)
            .field("until", &self.until)
            .finish_non_exhaustive()
    }
}

/// A certificate that is still trusted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Former {
    certificate: String,
    until: Timestamp,
}

/// An authority, the one that comes after it, and those that were before it and are still trusted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authorities {
    name: String,
    authority: Pair,
    /// Trusted already, and not signing yet.
    next: Option<Pair>,
    former: Vec<Former>,
}

impl Authorities {
    /// A new authority by that name.
    ///
    /// # Errors
    /// When no key can be made.
    pub fn new(name: &str, validity: Validity, now: Timestamp) -> Result<Self> {
        let authority = authority(name, validity, now)?;
        Ok(Self { name: name.to_owned(), authority, next: None, former: Vec::new() })
    }

    /// What signs.
    pub fn signing(&self) -> &Pair {
        &self.authority
    }

    /// What is trusted already, and will sign.
    pub fn next(&self) -> Option<&Pair> {
        self.next.as_ref()
    }

    /// Whether one that does not sign any more is still trusted.
    pub fn has_former(&self) -> bool {
        !self.former.is_empty()
    }

    /// What whoever checks has to trust, PEM. The same authorities make the same text, whichever of them signs.
    pub fn bundle(&self) -> String {
        let next = self.next.iter().map(|next| &next.certificate);
        let former = self.former.iter().map(|former| &former.certificate);
        let mut all: Vec<_> = [&self.authority.certificate].into_iter().chain(next).chain(former).collect();
        all.sort();
        all.into_iter().map(String::as_str).collect()
    }

    /// From now on another is trusted, too, which will sign later. Nothing changes if there is one.
    ///
    /// # Errors
    /// When no key can be made.
    pub fn announce(&mut self, validity: Validity, now: Timestamp) -> Result<()> {
        if self.next.is_none() {
            self.next = Some(authority(&self.name, validity, now)?);
        }
        Ok(())
    }

    /// The one that was announced signs from now on. The one before stays trusted.
    pub fn hand_over(&mut self) {
        if let Some(next) = self.next.take() {
            let old = std::mem::replace(&mut self.authority, next);
            self.former.push(Former { certificate: old.certificate, until: old.until });
        }
    }

    /// Who does not sign any more is not trusted any more.
    pub fn forget_former(&mut self) {
        self.former.clear();
    }

    /// A certificate for these DNS names and addresses, for servers and clients alike.
    ///
    /// # Errors
    /// When a name is none.
    pub fn sign(
        &self,
        common_name: &str,
        names: &[String],
        validity: Validity,
        now: Timestamp,
    ) -> Result<Pair> {
        leaf(&self.name, common_name, &self.authority, names, validity, now)
    }
}

/// All that is needed to serve, and to go on serving.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificates {
    #[serde(flatten)]
    authorities: Authorities,
    names: Vec<String>,
    leaf: Pair,
}

impl Certificates {
    /// A new authority by that name, and a certificate for these DNS names and addresses.
    ///
    /// # Errors
    /// When a name is none.
    pub fn new(name: &str, names: &[String], validity: Validity, now: Timestamp) -> Result<Self> {
        let authorities = Authorities::new(name, validity, now)?;
        let leaf = authorities.sign(name, names, validity, now)?;
        Ok(Self { authorities, names: names.to_vec(), leaf })
    }

    /// What has to be there now, for these names; the same if nothing has to change.
    ///
    /// # Errors
    /// When a name is none.
    pub fn at(&self, names: &[String], validity: Validity, now: Timestamp) -> Result<Self> {
        let name = &self.authorities.name;
        // Nobody looked after it for too long: nothing is left that could be trusted.
        if self.authorities.authority.until <= now {
            return Self::new(name, names, validity, now);
        }
        let mut new = self.clone();
        new.authorities.former.retain(|former| former.until > now);
        if is_aging(&new.authorities.authority, now) {
            new.authorities.announce(validity, now)?;
        }
        let is_spread = |next: &Pair| now >= later(next.made, validity.overlap);
        let hands_over = new.authorities.next.as_ref().is_some_and(is_spread);
        if hands_over {
            new.authorities.hand_over();
        }
        if hands_over || is_aging(&new.leaf, now) || new.names != names {
            new.leaf = new.authorities.sign(name, names, validity, now)?;
        }
        names.clone_into(&mut new.names);
        Ok(new)
    }

    /// What is served, and its key.
    pub fn leaf(&self) -> &Pair {
        &self.leaf
    }

    /// What whoever checks has to trust, PEM.
    pub fn bundle(&self) -> String {
        self.authorities.bundle()
    }

    /// When something has to change, if nothing else does before.
    pub fn look_again(&self, validity: Validity) -> Timestamp {
        let next = match &self.authorities.next {
            Some(next) => later(next.made, validity.overlap),
            None => ages(&self.authorities.authority),
        };
        next.min(ages(&self.leaf))
    }
}

/// From two thirds of its time on a certificate is replaced.
fn ages(pair: &Pair) -> Timestamp {
    two_thirds(pair.made, pair.until)
}

fn two_thirds(made: Timestamp, until: Timestamp) -> Timestamp {
    later(made, until.duration_since(made).unsigned_abs() / 3 * 2)
}

fn is_aging(pair: &Pair, now: Timestamp) -> bool {
    now >= ages(pair)
}

fn later(time: Timestamp, by: Duration) -> Timestamp {
    time.saturating_add(by).unwrap_or(Timestamp::MAX)
}

fn authority(name: &str, validity: Validity, now: Timestamp) -> Result<Pair> {
    let key = KeyPair::generate().map_err(cannot)?;
    let until = later(now, validity.authority);
    let certificate = authority_params(name, now, until)?.self_signed(&key).map_err(cannot)?;
    Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem(), made: now, until })
}

fn leaf(
    issuer: &str,
    common_name: &str,
    authority: &Pair,
    names: &[String],
    validity: Validity,
    now: Timestamp,
) -> Result<Pair> {
    let key = KeyPair::generate().map_err(cannot)?;
    let until = later(now, validity.leaf).min(authority.until);
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    for name in names {
        params.subject_alt_names.push(match name.parse() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName(Ia5String::try_from(name.as_str()).map_err(cannot)?),
        });
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    params.not_before = time_of(now) - BEFORE;
    params.not_after = time_of(until);
    let issuer_key = KeyPair::from_pem(&authority.key).map_err(cannot)?;
    let issuer_params = authority_params(issuer, authority.made, authority.until)?;
    let issuer = Issuer::new(issuer_params, issuer_key);
    let certificate = params.signed_by(&key, &issuer).map_err(cannot)?;
    Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem(), made: now, until })
}

/// Each authority has a name of its own, so that nobody takes one for another.
fn authority_params(name: &str, made: Timestamp, until: Timestamp) -> Result<CertificateParams> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("{name} {}", made.as_second()));
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = time_of(made) - BEFORE;
    params.not_after = time_of(until);
    Ok(params)
}

fn time_of(time: Timestamp) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(time.as_second()).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

fn cannot(error: impl std::fmt::Display) -> Error {
    Error::new(Category::Bug, format!("cannot make a certificate: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn validity() -> Validity {
        Validity { authority: HOUR * 100, leaf: HOUR * 10, overlap: HOUR * 2 }
    }

    fn names() -> Vec<String> {
        vec!["operator.example.svc".to_owned()]
    }

    fn first(now: Timestamp) -> Certificates {
        Certificates::new("test", &names(), validity(), now).unwrap()
    }

    #[test]
    fn nothing_changes_before_it_has_to() {
        let now = Timestamp::UNIX_EPOCH;
        let certificates = first(now);
        let due = certificates.look_again(validity());
        assert_eq!(due, later(now, HOUR / 3 * 20));
        let before = due.saturating_sub(Duration::from_secs(1)).unwrap();
        assert_eq!(certificates.at(&names(), validity(), before).unwrap(), certificates);
        assert_ne!(certificates.at(&names(), validity(), due).unwrap(), certificates);
    }

    /// The property that matters, over three generations of authorities: what is
    /// served is signed by an authority that was in the bundle for as long as the
    /// overlap, and nothing that is served has expired.
    #[test]
    fn whoever_read_the_bundle_within_the_overlap_trusts_what_is_served() {
        let mut certificates = first(Timestamp::UNIX_EPOCH);
        let mut bundles = vec![(Timestamp::UNIX_EPOCH, certificates.bundle())];
        let mut authorities = vec![certificates.authorities.authority.certificate.clone()];
        for hour in 1..250 {
            let now = later(Timestamp::UNIX_EPOCH, HOUR * hour);
            certificates = certificates.at(&names(), validity(), now).unwrap();
            assert!(certificates.leaf.until > now, "hour {hour}: it expired");
            let signer = certificates.authorities.authority.certificate.clone();
            if authorities.last() != Some(&signer) {
                authorities.push(signer.clone());
            }
            let old_enough = |(at, _): &&(Timestamp, String)| later(*at, validity().overlap) <= now;
            for (at, bundle) in bundles.iter().rev().take_while(|(at, _)| later(*at, HOUR * 2) >= now) {
                assert!(bundle.contains(&signer), "hour {hour}: the bundle of {at} does not trust it");
            }
            assert!(hour < 3 || bundles.iter().any(|bundle| old_enough(&bundle)));
            bundles.push((now, certificates.bundle()));
        }
        assert!(authorities.len() >= 3, "{}", authorities.len());
        assert!(certificates.authorities.former.len() <= 1, "what expired is not trusted any more");
    }

    #[test]
    fn another_name_needs_another_certificate_by_the_same_authority() {
        let certificates = first(Timestamp::UNIX_EPOCH);
        let other = vec!["other.example.svc".to_owned()];
        let changed = certificates.at(&other, validity(), Timestamp::UNIX_EPOCH).unwrap();
        assert_ne!(changed.leaf, certificates.leaf);
        assert_eq!(changed.bundle(), certificates.bundle());
    }

    #[test]
    fn what_nobody_looked_after_for_too_long_begins_anew() {
        let certificates = first(Timestamp::UNIX_EPOCH);
        let now = later(Timestamp::UNIX_EPOCH, HOUR * 500);
        let anew = certificates.at(&names(), validity(), now).unwrap();
        assert!(
            anew.leaf.until > now && !anew.bundle().contains(&certificates.authorities.authority.certificate)
        );
    }

    #[test]
    fn what_is_kept_can_be_taken_up_again() {
        let certificates = first(Timestamp::UNIX_EPOCH);
        let text = serde_json::to_string(&certificates).unwrap();
        assert_eq!(serde_json::from_str::<Certificates>(&text).unwrap(), certificates);
        assert!(!format!("{certificates:?}").contains("PRIVATE KEY"), "no log shows a key");
    }
}
