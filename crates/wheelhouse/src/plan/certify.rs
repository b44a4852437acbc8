//! [`Certify`]: an authority of the resource's own, and what it signs, in Secrets.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use super::Reference;
use crate::certificates::{Files, Validity};

/// An authority in a Secret is to change, or to sign a certificate into another Secret. Keys are made in act.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certify {
    /// The Secret with the authority, in the resource's namespace.
    pub authority: String,
    /// That Secret as this was decided on; none: it was not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<Reference>,
    /// The labels of Secrets that are made.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// How long certificates are good for.
    pub validity: Validity,
    /// What is to be done.
    pub what: Certified,
}

/// What an authority is to do, or what is to become of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Certified {
    /// There is to be one. Where one was lost, those whom this Secret of a certificate trusts stay
    /// trusted until the new one signs.
    Authority {
        /// The wish that this meets.
        asked: Option<String>,
        /// The Secret of a certificate that the lost one signed.
        after: Option<Leaf>,
    },
    /// Another one is to be trusted, and to sign later.
    Announce {
        /// The wish that this meets.
        asked: Option<String>,
    },
    /// The other one signs from now on.
    HandOver,
    /// Who does not sign any more is not to be trusted any more.
    ForgetFormer,
    /// A certificate is to be signed.
    Leaf {
        /// Which.
        leaf: Leaf,
        /// Its Secret as this was decided on; none: it was not there.
        seen: Option<Reference>,
    },
}

/// A certificate that an authority signs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leaf {
    /// The Secret, in the resource's namespace.
    pub secret: String,
    /// Whom it names.
    pub common_name: String,
    /// Its DNS names and addresses.
    pub names: Vec<String>,
    /// What the files in the Secret are called.
    pub files: Files,
}

impl fmt::Display for Certify {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let authority = &self.authority;
        match &self.what {
            Certified::Authority { .. } => write!(formatter, "make authority {authority}"),
            Certified::Announce { .. } => {
                write!(formatter, "announce the successor of authority {authority}")
            }
            Certified::HandOver => write!(formatter, "let the successor of authority {authority} sign"),
            Certified::ForgetFormer => write!(formatter, "forget the predecessor of authority {authority}"),
            Certified::Leaf { leaf, .. } => write!(formatter, "sign certificate {}", leaf.secret),
        }
    }
}
