//! What an operator tells the agents of a cluster: what their pods are to serve, and
//! what they must not serve any more. Pure data.
//!
//! Invariants:
//! - The number of a purge is larger than that of every purge before it in the same list,
//!   and none is ever forgotten before everything has got a larger one. A list that was
//!   lost is followed by one that began later, for which nothing is cached yet.
//! - Who has included a purge has included all with smaller numbers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::api::{Balancing, Cache, CdnCluster, Origin, Role};

/// The key of the configuration in its ConfigMap.
pub const CONFIGURATION_KEY: &str = "configuration.json";
/// The key of the purges in theirs.
pub const PURGES_KEY: &str = "purges.json";
/// The key of when that list began.
pub const BEGAN_KEY: &str = "began";
/// So many purges are told apart.
const PURGES_AT_MOST: usize = 256;
/// And so much text of them: a ConfigMap holds a mebibyte.
const BYTES_AT_MOST: usize = 512 << 10;

/// What the pods of a cluster are to serve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Configuration {
    /// The cluster's name.
    pub cluster: String,
    /// What its pods are.
    pub role: Role,
    /// Where requests go, in order.
    pub routes: Vec<Route>,
    /// What is cached, if these are caches.
    pub cache: Option<Cache>,
    /// How requests are passed on.
    pub balancing: Balancing,
    /// Whether HTTPS is served too.
    pub tls: bool,
}

/// Where requests for some paths go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Route {
    /// The source's name.
    pub name: String,
    /// Which paths; all, without one.
    pub condition: Option<String>,
    /// Where to.
    pub target: Target,
}

/// Where requests go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Target {
    /// To the pods behind this Service.
    Pods {
        /// Its name.
        service: String,
    },
    /// To a server outside of the CDN.
    Origin(Origin),
}

impl Configuration {
    /// What is wanted of a cluster's pods.
    pub fn of(cluster: &CdnCluster) -> Self {
        let spec = &cluster.spec;
        let name = cluster.metadata.name.clone().unwrap_or_default();
        let routes = spec.sources.iter().map(|source| Route {
            name: source.name.clone(),
            condition: source.path_condition.clone().filter(|condition| !condition.is_empty()),
            target: match &source.origin {
                Some(origin) => Target::Origin(origin.clone()),
                None => Target::Pods { service: source.name.clone() },
            },
        });
        Self {
            cluster: name,
            role: spec.role,
            routes: routes.collect(),
            cache: (spec.role == Role::Cache).then(|| spec.cache.clone().unwrap_or_default()),
            balancing: spec.balancing.clone(),
            tls: spec.tls.is_some(),
        }
    }

    /// Whether requests go to that cluster.
    pub fn takes_from(&self, cluster: &str) -> bool {
        let is_it = |route: &Route| matches!(&route.target, Target::Pods { service } if service == cluster);
        self.routes.iter().any(is_it)
    }

    /// What agents read.
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// What this is called in a status.
    pub fn name(&self) -> String {
        short_hash(&self.text())
    }
}

/// What a text is called: the same is the same. An agent of another version knows other fields, so it
/// goes by the text that it was given.
pub fn short_hash(text: &str) -> String {
    Sha256::digest(text).iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

/// What must not be served from caches any more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Purges {
    /// When this list began.
    #[serde(skip)]
    pub began: String,
    /// The number of the last purge.
    pub last: u64,
    /// Everything has at least this number.
    pub everything: u64,
    /// What has a larger one, in order.
    pub purged: Vec<Purged>,
}

/// One purge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Purged {
    /// Its number.
    pub number: u64,
    /// The UID of the CdnPurge.
    pub uid: String,
    /// These paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Every path that begins with this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
}

impl Purges {
    /// Reads a list from what its ConfigMap holds.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(data: &BTreeMap<String, String>) -> Result<Self, String> {
        let text = |key: &str| data.get(key).ok_or_else(|| format!("there is no {key}"));
        let read: Self = serde_json::from_str(text(PURGES_KEY)?)
            .map_err(|error| format!("{PURGES_KEY} cannot be read: {error}"))?;
        Ok(Self { began: text(BEGAN_KEY)?.clone(), ..read })
    }

    /// What its ConfigMap is to hold.
    pub fn write(&self) -> BTreeMap<String, String> {
        let text = serde_json::to_string(self).unwrap_or_default();
        BTreeMap::from([(BEGAN_KEY.to_owned(), self.began.clone()), (PURGES_KEY.to_owned(), text)])
    }

    /// Includes a purge, unless it is; whether everything had to be purged for it.
    pub fn include(&mut self, uid: &str, paths: &[String], prefix: Option<&str>) -> bool {
        if self.number_of(uid).is_some() {
            return false;
        }
        self.last += 1;
        self.purged.push(Purged {
            number: self.last,
            uid: uid.to_owned(),
            paths: paths.to_vec(),
            prefix: prefix.map(str::to_owned),
        });
        let bytes = |purged: &[Purged]| serde_json::to_vec(purged).unwrap_or_default().len();
        let is_too_much = self.purged.len() > PURGES_AT_MOST || bytes(&self.purged) > BYTES_AT_MOST;
        if is_too_much {
            // Older numbers than everything's say nothing any more. The latest stays: it has yet to be seen.
            self.last += 1;
            self.everything = self.last;
            let half = self.purged.len() / 2;
            self.purged.drain(..half);
            while self.purged.len() > 1 && bytes(&self.purged) > BYTES_AT_MOST / 2 {
                self.purged.remove(0);
            }
        }
        is_too_much
    }

    /// The number of a purge, if it is included.
    pub fn number_of(&self, uid: &str) -> Option<u64> {
        self.purged.iter().find(|purged| purged.uid == uid).map(|purged| purged.number)
    }

    /// The number that what is cached under a path must have, whatever the case of its letters:
    /// nginx looks whole paths up without regard to it.
    pub fn number_for(&self, path: &str) -> u64 {
        let begins = |prefix: &str| {
            path.as_bytes()
                .get(..prefix.len())
                .is_some_and(|part| part.eq_ignore_ascii_case(prefix.as_bytes()))
        };
        let covers = |purged: &&Purged| {
            purged.prefix.as_deref().is_some_and(begins)
                || purged.paths.iter().any(|purged| purged.eq_ignore_ascii_case(path))
        };
        let latest = self.purged.iter().filter(covers).map(|purged| purged.number).max();
        latest.unwrap_or_default().max(self.everything)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn include(purges: &mut Purges, uid: usize, prefix: &str) -> bool {
        purges.include(&uid.to_string(), &[], Some(prefix))
    }

    #[test]
    fn the_latest_purge_that_covers_a_path_counts() {
        let mut purges = Purges::default();
        assert_eq!(purges.number_for("/a/b"), 0);
        include(&mut purges, 1, "/a/");
        purges.include("2", &["/a/b".to_owned()], None);
        include(&mut purges, 3, "/c");
        assert_eq!([1, 2, 3, 0], ["/a/c", "/a/b", "/cc", "/d"].map(|path| purges.number_for(path)));
        include(&mut purges, 4, "/a");
        assert_eq!(purges.number_for("/a/b"), 4, "also what was purged by its path before");
        assert!(!include(&mut purges, 4, "/a"), "once is enough");
        assert_eq!(purges.last, 4);
    }

    #[test]
    fn numbers_only_grow_however_many_purges_there_are() {
        let mut purges = Purges::default();
        let paths = ["/p1/x", "/p100/x", "/other"];
        let mut before = paths.map(|path| purges.number_for(path));
        let mut purged_everything = 0;
        for uid in 0..2000 {
            purged_everything += usize::from(include(&mut purges, uid, &format!("/p{uid}/")));
            let now = paths.map(|path| purges.number_for(path));
            assert!(before.iter().zip(now).all(|(before, now)| *before <= now), "{uid}: {before:?} {now:?}");
            assert!(purges.purged.len() <= PURGES_AT_MOST);
            assert!(purges.number_of(&uid.to_string()).is_some());
            before = now;
        }
        assert_eq!(purged_everything, 14);
    }

    #[test]
    fn the_list_never_outgrows_a_config_map() {
        let mut purges = Purges::default();
        for uid in 0..200 {
            let paths: Vec<_> = (0..64).map(|path| format!("/{uid}/{path}{}", "x".repeat(1000))).collect();
            purges.include(&uid.to_string(), &paths, None);
            assert!(purges.write().values().map(String::len).sum::<usize>() < 700 << 10, "{uid}");
            assert!(purges.number_of(&uid.to_string()).is_some(), "the latest is always there");
        }
    }
}
