//! Where origins are.
//!
//! Invariants:
//! - A name that resolved once keeps its addresses until it resolves to others, also when
//!   the agent is another one by then: who cannot be asked has not moved.
//! - An address that was told within the last minute counts: names that are told a few
//!   addresses of many at a time do not move with every answer.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use futures::future::join_all;
use hickory_resolver::TokioResolver;

const RESOLVED_WITHIN: Duration = Duration::from_secs(5);
/// For so long an address counts after it was told.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// Which names are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    All,
    /// Those of which nothing is known, not even that they do not resolve.
    New,
}

/// The addresses of names.
pub(crate) struct Origins {
    resolver: Option<TokioResolver>,
    memory: PathBuf,
    known: BTreeMap<String, Vec<IpAddr>>,
    /// When addresses were last told.
    told: BTreeMap<(String, IpAddr), Instant>,
    problems: BTreeMap<String, String>,
}

impl Origins {
    /// With what was known when this was last called with the same folder.
    pub(crate) fn remembered_in(folder: &Path) -> Self {
        let resolver = TokioResolver::builder_tokio().and_then(|builder| builder.build());
        if let Err(error) = &resolver {
            tracing::warn!("names cannot be looked up: {error}");
        }
        let memory = folder.join("origins.json");
        let known = fs::read(&memory).ok().and_then(|text| serde_json::from_slice(&text).ok());
        Self {
            resolver: resolver.ok(),
            memory,
            known: known.unwrap_or_default(),
            told: BTreeMap::new(),
            problems: BTreeMap::new(),
        }
    }

    /// The addresses of every name that ever resolved.
    pub(crate) fn known(&self) -> &BTreeMap<String, Vec<IpAddr>> {
        &self.known
    }

    /// What is wrong with names.
    pub(crate) fn problems(&self) -> &BTreeMap<String, String> {
        &self.problems
    }

    /// Looks these names up, and forgets all others.
    pub(crate) async fn look_up(&mut self, names: &BTreeSet<String>, which: Which) {
        let before = self.known.clone();
        self.known.retain(|name, _| names.contains(name));
        self.problems.retain(|name, _| names.contains(name));
        self.told.retain(|(name, _), told| names.contains(name) && told.elapsed() < KEPT_FOR);
        let is_asked = |name: &&String| {
            which == Which::All || !(self.known.contains_key(*name) || self.problems.contains_key(*name))
        };
        let asked = names.iter().filter(is_asked);
        let asking = asked.map(|name| async { (name.clone(), self.addresses(name).await) });
        for (name, answer) in join_all(asking).await {
            self.take(name, answer, Instant::now());
        }
        if self.known != before
            && let Err(error) = remember(&self.memory, &self.known)
        {
            tracing::warn!("cannot write {}: {error}", self.memory.display());
        }
    }

    fn take(&mut self, name: String, answer: Result<BTreeSet<IpAddr>, String>, now: Instant) {
        match answer {
            Ok(addresses) => {
                for address in addresses {
                    self.told.insert((name.clone(), address), now);
                }
                let of_it = self.told.keys().filter(|(known, _)| *known == name);
                let addresses: Vec<_> = of_it.map(|(_, address)| *address).collect();
                if self.known.get(&name) != Some(&addresses) {
                    tracing::info!("origin {name} is at {addresses:?}");
                }
                self.problems.remove(&name);
                self.known.insert(name, addresses);
            }
            Err(why) => {
                if self.problems.get(&name) != Some(&why) {
                    tracing::warn!("{why}");
                }
                self.problems.insert(name, why);
            }
        }
    }

    async fn addresses(&self, name: &str) -> Result<BTreeSet<IpAddr>, String> {
        if let Ok(address) = name.parse::<IpAddr>() {
            return Ok(BTreeSet::from([address]));
        }
        let Some(resolver) = &self.resolver else { return Err(format!("{name} cannot be looked up")) };
        let found = tokio::time::timeout(RESOLVED_WITHIN, resolver.lookup_ip(name)).await;
        let found = found.map_err(|_| format!("{name} does not resolve: no answer"))?;
        let found = found.map_err(|error| format!("{name} does not resolve: {error}"))?;
        let addresses: BTreeSet<IpAddr> = found.iter().collect();
        match addresses.is_empty() {
            true => Err(format!("{name} does not resolve: it has no address")),
            false => Ok(addresses),
        }
    }
}

/// All of it or nothing: whoever reads it may come at any time.
fn remember(path: &Path, known: &BTreeMap<String, Vec<IpAddr>>) -> std::io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, serde_json::to_vec(known).unwrap_or_default())?;
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(last: &[u8]) -> BTreeSet<IpAddr> {
        last.iter().map(|last| IpAddr::from([192, 0, 2, *last])).collect()
    }

    #[test]
    fn what_is_told_in_turns_is_kept_together_and_a_failure_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut origins = Origins::remembered_in(folder.path());
        let now = Instant::now();
        origins.take("a".to_owned(), Ok(addresses(&[1, 2])), now);
        origins.take("a".to_owned(), Ok(addresses(&[2, 3])), now);
        origins.take("a".to_owned(), Err("no answer".to_owned()), now);
        let all: Vec<_> = addresses(&[1, 2, 3]).into_iter().collect();
        assert_eq!(origins.known()["a"], all);
        assert_eq!(origins.problems()["a"], "no answer");
        remember(&origins.memory, &origins.known).unwrap();
        assert_eq!(Origins::remembered_in(folder.path()).known()["a"], all, "by whoever comes after");
    }

    #[tokio::test]
    async fn what_is_new_is_looked_up_at_once_and_what_is_not_asked_for_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let mut origins = Origins::remembered_in(folder.path());
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        origins.look_up(&names(&["192.0.2.1"]), Which::New).await;
        assert_eq!(origins.known().len(), 1);
        origins.look_up(&names(&["192.0.2.2"]), Which::New).await;
        assert_eq!(origins.known().keys().collect::<Vec<_>>(), ["192.0.2.2"]);
    }
}
