//! How an authority is replaced where those who trust it read whom to trust only when they start. Pure.
//!
//! 1. A successor is *announced*: it is in the bundle beside the one that signs. Everybody is
//!    restarted, one after the other, which is somebody else's work.
//! 2. Once everybody trusts both it is *handed over*: certificates are signed by the successor.
//! 3. Once everybody shows such a certificate the former is *forgotten*: it leaves the bundle, and everybody is
//!    restarted once more.
//!
//! Invariant: who shows a certificate of an authority meets only those who trust it. Who is not seen, as other
//! programs that read the Secrets, has the time of [`Validity::overlap`] to follow each of the steps.
//!
//! What is to be done follows from what is there, so it can be interrupted anywhere.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{AuthoritySeen, CertificateSeen, LeafSeen, Validity, later, two_thirds};
use crate::plan::{Certified, Certify, Leaf};

/// What is known when it is decided what an authority does next.
#[derive(Clone, Debug)]
pub struct Rotation<'a> {
    /// The name of the authority's Secret.
    pub secret: String,
    /// The labels of Secrets that are made.
    pub labels: BTreeMap<String, String>,
    /// The authority, if there is one.
    pub authority: Option<&'a AuthoritySeen>,
    /// The certificates that are wanted of it, and those that there are.
    pub leaves: Vec<(Leaf, Option<&'a LeafSeen>)>,
    /// What somebody said who wants another authority. Each wish is met once.
    pub asked: Option<String>,
    /// How long certificates are good for.
    pub validity: Validity,
    /// Whether everybody has loaded the authority's bundle.
    pub is_trusted: bool,
    /// Whether everybody shows the certificates that are in the Secrets.
    pub is_shown: bool,
    /// When this is.
    pub now: Timestamp,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// There is no authority, or not all of its certificates are there.
    Making,
    /// Nothing is to be done.
    Steady,
    /// Not everybody is known to trust the successor.
    Announced,
    /// Not everybody is known to show a certificate of the successor.
    HandedOver,
    /// Not everybody has forgotten the former one, or something else has yet to be loaded.
    Settling,
}

impl Rotation<'_> {
    /// How far it is.
    pub fn stage(&self) -> Stage {
        match self.authority {
            Some(authority) if self.leaves.iter().all(|(_, leaf)| leaf.is_some()) => match () {
                () if authority.next.is_some() => Stage::Announced,
                () if authority.has_former => Stage::HandedOver,
                () if !self.is_trusted => Stage::Settling,
                () => Stage::Steady,
            },
            _ => Stage::Making,
        }
    }

    /// What is to be done now, and why.
    pub fn steps(&self) -> Vec<(Certify, String)> {
        let Some((authority, signing)) =
            self.authority.and_then(|authority| Some((authority, authority.signing.as_ref()?)))
        else {
            return vec![self.make()];
        };
        if signing.until <= self.now {
            // Nobody trusts anybody any more: there is nothing to be careful with.
            let what = match authority.next {
                Some(_) => Certified::HandOver,
                None => Certified::Authority { asked: self.asked.clone(), after: None },
            };
            return vec![self.step(what, "the authority has expired")];
        }
        let stale: Vec<_> =
            self.leaves.iter().filter_map(|leaf| self.renew(authority, signing, leaf)).collect();
        if !stale.is_empty() {
            return stale;
        }
        self.turn(authority, signing).into_iter().collect()
    }

    fn step(&self, what: Certified, because: impl Into<String>) -> (Certify, String) {
        let certify = Certify {
            authority: self.secret.clone(),
            seen: self.authority.map(|authority| authority.reference.clone()),
            labels: self.labels.clone(),
            validity: self.validity,
            what,
        };
        (certify, because.into())
    }

    /// A new authority. Those whom the last one's certificates trust stay trusted.
    fn make(&self) -> (Certify, String) {
        let after = self.leaves.iter().find(|(_, seen)| seen.is_some()).map(|(leaf, _)| leaf.clone());
        let because = match after {
            Some(_) => "the authority was lost",
            None => "there is no authority yet",
        };
        self.step(Certified::Authority { asked: self.asked.clone(), after }, because)
    }

    fn renew(
        &self,
        authority: &AuthoritySeen,
        signing: &CertificateSeen,
        (leaf, seen): &(Leaf, Option<&LeafSeen>),
    ) -> Option<(Certify, String)> {
        let because = match seen {
            None if authority.can_sign => "it is not there",
            // Somebody can sign again after the next step.
            None => return None,
            Some(seen) => self.why_renew(authority, signing, leaf, seen)?,
        };
        let reference = seen.map(|seen| seen.reference.clone());
        Some(self.step(Certified::Leaf { leaf: leaf.clone(), seen: reference }, because))
    }

    fn why_renew(
        &self,
        authority: &AuthoritySeen,
        signing: &CertificateSeen,
        leaf: &Leaf,
        seen: &LeafSeen,
    ) -> Option<&'static str> {
        let Some(issued) = seen.issued.as_ref().filter(|_| seen.problem.is_none()) else {
            return authority.can_sign.then_some("it is not as it was signed");
        };
        let is_as_signed = seen.certificate.as_ref() == Some(&issued.certificate);
        let trusts_whom_it_should = seen.bundle.as_ref() == Some(&authority.bundle);
        match () {
            () if issued.bundle != authority.bundle => Some("others are to be trusted"),
            () if !trusts_whom_it_should => Some("it is not as it was signed"),
            () if !authority.can_sign => None,
            () if !is_as_signed => Some("it is not as it was signed"),
            () if issued.by != signing.digest => Some("another authority signs now"),
            () if issued.names != leaf.names => Some("it has other names"),
            () if two_thirds(issued.made, issued.until) <= self.now => Some("it will expire"),
            () => None,
        }
    }

    /// The next step of a rotation, if it is time for it.
    fn turn(&self, authority: &AuthoritySeen, signing: &CertificateSeen) -> Option<(Certify, String)> {
        let mut issued = self.leaves.iter().filter_map(|(_, seen)| seen.as_ref()?.issued.as_ref());
        let has_passed = |since: Timestamp| later(since, self.validity.overlap) <= self.now;
        if authority.next.is_some() {
            let is_due = self.is_trusted && issued.all(|issued| has_passed(issued.bundle_since));
            return is_due.then(|| self.step(Certified::HandOver, "everybody trusts the new authority"));
        }
        if authority.has_former {
            let is_due = self.is_trusted && self.is_shown && issued.all(|issued| has_passed(issued.by_since));
            let because = "everybody has a certificate of the new authority";
            return is_due.then(|| self.step(Certified::ForgetFormer, because));
        }
        let announce = Certified::Announce { asked: self.asked.clone() };
        match () {
            () if self.asked.is_some() && self.asked != authority.asked => {
                Some(self.step(announce, "somebody wants another authority"))
            }
            () if two_thirds(signing.made, signing.until) <= self.now => {
                Some(self.step(announce, "the authority will expire"))
            }
            () => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::api::core::v1::Secret;
    use rstest::rstest;

    use super::*;
    use crate::{
        Kind, Reference,
        certificates::{Files, Issued},
    };

    const HOUR: Duration = Duration::from_secs(3600);

    fn at(hours: u32) -> Timestamp {
        later(Timestamp::UNIX_EPOCH, HOUR * hours)
    }

    fn validity() -> Validity {
        Validity { authority: HOUR * 100, leaf: HOUR * 10, overlap: HOUR * 2 }
    }

    fn reference(name: &str) -> Reference {
        let kind = Kind::of::<Secret>(&());
        let text = |text: &str| text.to_owned();
        Reference {
            kind,
            namespace: None,
            name: text(name),
            uid: text("u"),
            resource_version: text("1"),
            terminating: false,
        }
    }

    fn certificate(name: &str) -> CertificateSeen {
        CertificateSeen { digest: name.to_owned(), made: at(0), until: at(100) }
    }

    fn authority() -> AuthoritySeen {
        AuthoritySeen {
            reference: reference("authority"),
            signing: Some(certificate("one")),
            can_sign: true,
            next: None,
            has_former: false,
            bundle: "trusted".to_owned(),
            asked: None,
        }
    }

    fn wish() -> Leaf {
        Leaf {
            secret: "leaf".to_owned(),
            common_name: "leaf".to_owned(),
            names: vec!["a".to_owned()],
            files: Files::new("tls.crt", "tls.key", "ca.crt"),
        }
    }

    fn leaf() -> LeafSeen {
        let text = |text: &str| text.to_owned();
        let issued = Issued {
            certificate: text("leaf"),
            names: vec![text("a")],
            made: at(0),
            until: at(10),
            by: text("one"),
            by_since: at(0),
            bundle: text("trusted"),
            bundle_since: at(0),
        };
        LeafSeen {
            reference: reference("leaf"),
            certificate: Some(text("leaf")),
            bundle: Some(text("trusted")),
            problem: None,
            issued: Some(issued),
        }
    }

    /// What is decided, in words.
    fn steps(
        authority: Option<&AuthoritySeen>,
        leaf: Option<&LeafSeen>,
        change: fn(&mut Rotation<'_>),
    ) -> String {
        let mut rotation = Rotation {
            secret: "authority".to_owned(),
            labels: BTreeMap::new(),
            authority,
            leaves: vec![(wish(), leaf)],
            asked: None,
            validity: validity(),
            is_trusted: true,
            is_shown: true,
            now: at(1),
        };
        change(&mut rotation);
        let all = rotation.steps().into_iter().map(|(certify, because)| format!("{certify}: {because}"));
        all.collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn what_is_not_there_is_made() {
        assert_eq!(steps(None, None, |_| ()), "make authority authority: there is no authority yet");
        assert_eq!(steps(Some(&authority()), None, |_| ()), "sign certificate leaf: it is not there");
        assert_eq!(steps(Some(&authority()), Some(&leaf()), |_| ()), "");
    }

    #[rstest]
    #[case::it_ages(|leaf: &mut LeafSeen| leaf.issued.as_mut().unwrap().until = at(1), "it will expire")]
    #[case::other_names(|leaf: &mut LeafSeen| leaf.issued.as_mut().unwrap().names.clear(), "it has other names")]
    #[case::another_signs(|leaf: &mut LeafSeen| leaf.issued.as_mut().unwrap().by = "other".to_owned(), "another authority signs now")]
    #[case::others_are_trusted(|leaf: &mut LeafSeen| leaf.issued.as_mut().unwrap().bundle = "old".to_owned(), "others are to be trusted")]
    #[case::somebody_changed_it(|leaf: &mut LeafSeen| leaf.certificate = Some("theirs".to_owned()), "it is not as it was signed")]
    #[case::somebody_changed_whom_it_trusts(|leaf: &mut LeafSeen| leaf.bundle = Some("theirs".to_owned()), "it is not as it was signed")]
    #[case::it_is_broken(|leaf: &mut LeafSeen| leaf.problem = Some("it has no tls.key".to_owned()), "it is not as it was signed")]
    #[case::nobody_knows_who_signed_it(|leaf: &mut LeafSeen| leaf.issued = None, "it is not as it was signed")]
    fn a_certificate_that_is_not_as_it_should_be_is_signed_again(
        #[case] change: fn(&mut LeafSeen),
        #[case] because: &str,
    ) {
        let mut leaf = leaf();
        change(&mut leaf);
        assert_eq!(
            steps(Some(&authority()), Some(&leaf), |_| ()),
            format!("sign certificate leaf: {because}")
        );
    }

    #[test]
    fn a_successor_signs_once_everybody_trusts_it_and_others_had_time() {
        let authority = AuthoritySeen { next: Some(certificate("two")), ..authority() };
        let decided = |change| steps(Some(&authority), Some(&leaf()), change);
        assert_eq!(decided(|rotation| rotation.now = at(1)), "", "others need time");
        assert_eq!(
            decided(|rotation| (rotation.now, rotation.is_trusted) = (at(3), false)),
            "",
            "time alone does not do"
        );
        assert_eq!(
            decided(|rotation| rotation.now = at(3)),
            "let the successor of authority authority sign: everybody trusts the new authority"
        );
    }

    #[test]
    fn the_former_is_forgotten_once_nobody_shows_its_certificates_and_others_had_time() {
        let authority = AuthoritySeen { has_former: true, ..authority() };
        let decided = |change| steps(Some(&authority), Some(&leaf()), change);
        assert_eq!(decided(|rotation| rotation.now = at(1)), "");
        assert_eq!(decided(|rotation| (rotation.now, rotation.is_shown) = (at(3), false)), "");
        assert_eq!(
            decided(|rotation| rotation.now = at(3)),
            "forget the predecessor of authority authority: everybody has a certificate of the new authority"
        );
    }

    #[test]
    fn an_authority_is_replaced_when_it_ages_and_once_for_each_wish() {
        let fresh = |hours| {
            let mut leaf = leaf();
            let issued = leaf.issued.as_mut().unwrap();
            (issued.made, issued.until) = (at(hours), at(hours + 10));
            leaf
        };
        let announced = "announce the successor of authority authority: ";
        let aged = steps(Some(&authority()), Some(&fresh(67)), |rotation| rotation.now = at(67));
        assert_eq!(aged, format!("{announced}the authority will expire"));
        let wanted = |known: Option<&str>| {
            let authority = AuthoritySeen { asked: known.map(str::to_owned), ..authority() };
            steps(Some(&authority), Some(&leaf()), |rotation| rotation.asked = Some("today".to_owned()))
        };
        assert_eq!(wanted(None), format!("{announced}somebody wants another authority"));
        assert_eq!(wanted(Some("yesterday")), format!("{announced}somebody wants another authority"));
        assert_eq!(wanted(Some("today")), "");
    }

    #[test]
    fn an_authority_that_was_lost_is_replaced_by_way_of_those_who_trust_it() {
        assert_eq!(steps(None, Some(&leaf()), |_| ()), "make authority authority: the authority was lost");
        let unreadable = AuthoritySeen { signing: None, can_sign: false, ..authority() };
        assert_eq!(
            steps(Some(&unreadable), Some(&leaf()), |_| ()),
            "make authority authority: the authority was lost"
        );
        // Without its key nothing can be signed, and its successor takes over as ever.
        let keyless = AuthoritySeen { can_sign: false, next: Some(certificate("two")), ..authority() };
        assert_eq!(steps(Some(&keyless), None, |rotation| rotation.is_trusted = false), "");
        let handed_over = steps(Some(&keyless), Some(&leaf()), |rotation| rotation.now = at(9));
        assert!(handed_over.starts_with("let the successor"), "{handed_over}");
    }

    #[test]
    fn whom_nobody_trusts_any_more_is_replaced_at_once() {
        let late = |rotation: &mut Rotation<'_>| (rotation.now, rotation.is_trusted) = (at(100), false);
        assert_eq!(
            steps(Some(&authority()), Some(&leaf()), late),
            "make authority authority: the authority has expired"
        );
        let announced = AuthoritySeen { next: Some(certificate("two")), ..authority() };
        assert_eq!(
            steps(Some(&announced), Some(&leaf()), late),
            "let the successor of authority authority sign: the authority has expired"
        );
    }
}
