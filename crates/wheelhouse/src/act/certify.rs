//! Authorities and certificates in Secrets: keys are made here, and never seen by an observation or a plan.
//!
//! Every write is under the version of its Secret, and whoever signs looks at the authority first: of two who
//! both believe to lead, one has to look again.

use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use serde_json::{Map, Value, json};

use super::{Actor, Done, conflict};
use crate::{
    certificates::{
        AUTHORITY_FILE, Authorities, ISSUED, Issued, digest,
        kept::{ASKED, authorities_in, issued_in},
    },
    error::{Category, Error, Result},
    key::Key,
    kind::Kind,
    plan::{Certified, Certify, Leaf, Object, Reference},
};

impl Actor<'_> {
    pub(super) async fn certify(&self, step: &Certify) -> Result<Done> {
        let advice = "register them with .watches::<PartialObjectMeta<Secret>>()";
        self.check_watched("certifies with", &Kind::of::<Secret>(&()), advice)?;
        let now = Timestamp::now();
        let secret = self.unchanged(&step.authority, step.seen.as_ref()).await?;
        let kept = || {
            let kept = secret.as_ref().and_then(authorities_in);
            kept.ok_or_else(|| conflict(format!("the Secret {} holds no authority", step.authority)))
        };
        let (new, asked) = match &step.what {
            Certified::Leaf { leaf, seen } => {
                return self.sign(step, &kept()?, leaf, seen.as_ref(), now).await;
            }
            Certified::Authority { asked, after } => {
                let after_a_loss = match after {
                    Some(leaf) => self.after_a_loss(step, leaf, now).await?,
                    None => None,
                };
                let new = match after_a_loss {
                    Some(new) => new,
                    None => Authorities::new(&step.authority, step.validity, now)?,
                };
                (new, asked.as_ref())
            }
            Certified::Announce { asked } => {
                let mut new = kept()?;
                new.announce(step.validity, now)?;
                (new, asked.as_ref())
            }
            Certified::HandOver => {
                let mut new = kept()?;
                new.hand_over();
                (new, None)
            }
            Certified::ForgetFormer => {
                let mut new = kept()?;
                new.forget_former();
                (new, None)
            }
        };
        let content = serde_json::to_vec(&new)
            .map_err(|error| Error::new(Category::Bug, format!("an authority is no JSON: {error}")))?;
        let annotations = asked.into_iter().map(|asked| (ASKED.to_owned(), json!(asked))).collect();
        let data = [(AUTHORITY_FILE.to_owned(), json!(ByteString(content)))].into_iter().collect();
        self.write_secret(step, &step.authority, step.seen.as_ref(), annotations, data).await
    }

    async fn sign(
        &self,
        step: &Certify,
        authorities: &Authorities,
        leaf: &Leaf,
        seen: Option<&Reference>,
        now: Timestamp,
    ) -> Result<Done> {
        let kept = self.unchanged(&leaf.secret, seen).await?;
        let before = kept.as_ref().and_then(issued_in);
        let bundle = authorities.bundle();
        let mut data = Map::new();
        let mut put = |file: &String, text: &str| {
            data.insert(file.clone(), json!(ByteString(text.as_bytes().to_vec())));
        };
        put(&leaf.files.authorities, &bundle);
        let mut issued = match (authorities.can_sign(), before.clone()) {
            // What was signed stays until somebody can sign again.
            (false, Some(before)) => before,
            (false, None) => {
                return Err(Error::new(
                    Category::Unavailable,
                    format!("cannot sign {}: the key of {} is lost", leaf.secret, step.authority),
                ));
            }
            (true, _) => {
                let pair = authorities.sign(&leaf.common_name, &leaf.names, step.validity, now)?;
                put(&leaf.files.certificate, &pair.certificate);
                put(&leaf.files.key, &pair.key);
                Issued {
                    certificate: digest(pair.certificate.as_bytes()),
                    names: leaf.names.clone(),
                    made: pair.made,
                    until: pair.until,
                    by: digest(authorities.signing().certificate.as_bytes()),
                    by_since: now,
                    bundle: String::new(),
                    bundle_since: now,
                }
            }
        };
        issued.bundle = digest(bundle.as_bytes());
        issued.bundle_since = now;
        if let Some(before) = before {
            issued.by_since = if before.by == issued.by { before.by_since } else { now };
            issued.bundle_since = if before.bundle == issued.bundle { before.bundle_since } else { now };
        }
        let text = serde_json::to_string(&issued)
            .map_err(|error| Error::new(Category::Bug, format!("what was signed is no JSON: {error}")))?;
        let annotations = [(ISSUED.to_owned(), json!(text))].into_iter().collect();
        self.write_secret(step, &leaf.secret, seen, annotations, data).await
    }

    /// What there is to go on with where an authority was lost: whom its last certificate trusts.
    async fn after_a_loss(&self, step: &Certify, leaf: &Leaf, now: Timestamp) -> Result<Option<Authorities>> {
        let Some(secret) = self.secret(&leaf.secret).await? else { return Ok(None) };
        let until = issued_in(&secret).map_or(now, |issued| issued.until);
        let data = secret.data.unwrap_or_default();
        let bundle = data.get(&leaf.files.authorities).map(|content| content.0.as_slice());
        Authorities::after_a_loss(&step.authority, bundle.unwrap_or_default(), until, step.validity, now)
    }

    async fn secret(&self, name: &str) -> Result<Option<Secret>> {
        let key = Key::new(self.owner.reference.namespace.as_deref(), name);
        let Some(live) = self.read(&Kind::of::<Secret>(&()), &key).await? else { return Ok(None) };
        if !self.is_ours(&live) {
            let message = format!(
                "Secret {name} was not made by this resource, and holds the place of one that has to be: remove it"
            );
            return Err(Error::new(Category::NotOurs, message));
        }
        let secret = serde_json::from_value(live);
        secret.map(Some).map_err(|error| Error::new(Category::Bug, format!("Secret {name} is none: {error}")))
    }

    /// The Secret, if it is as this was decided on.
    async fn unchanged(&self, name: &str, seen: Option<&Reference>) -> Result<Option<Secret>> {
        let live = self.secret(name).await?;
        let there = live.as_ref().map(Reference::of);
        let same = |one: &Reference, other: &Reference| {
            (&one.uid, &one.resource_version) == (&other.uid, &other.resource_version)
        };
        match (seen, &there) {
            (None, None) => Ok(None),
            (Some(seen), Some(there)) if same(seen, there) => Ok(live),
            _ => Err(conflict(format!("somebody changed the Secret {name} meanwhile"))),
        }
    }

    async fn write_secret(
        &self,
        step: &Certify,
        name: &str,
        seen: Option<&Reference>,
        annotations: Map<String, Value>,
        data: Map<String, Value>,
    ) -> Result<Done> {
        match seen {
            Some(seen) => {
                let fields = json!({"metadata": {"annotations": annotations}, "data": data});
                self.update(seen, &fields).await
            }
            None => {
                let metadata = json!({"name": name, "labels": step.labels, "annotations": annotations});
                let content = json!({"metadata": metadata, "type": "Opaque", "data": data});
                self.create(&Object::new(Kind::of::<Secret>(&()), content)).await
            }
        }
    }
}
