//! Where origins are. A name that resolved once keeps its addresses until it resolves
//! to others: who cannot be asked has not moved.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use hickory_resolver::TokioResolver;

/// How long a look-up may take.
const RESOLVED_WITHIN: Duration = Duration::from_secs(5);

/// Resolves the names of origins, and remembers.
pub(crate) struct Origins {
    resolver: Option<TokioResolver>,
    known: BTreeMap<String, Vec<IpAddr>>,
    /// Why a name could not be looked up the last time.
    problems: BTreeMap<String, String>,
}

impl Origins {
    /// With what this machine says about name servers.
    pub(crate) fn new() -> Self {
        let resolver = TokioResolver::builder_tokio().and_then(|builder| builder.build());
        if let Err(error) = &resolver {
            tracing::warn!("names cannot be looked up: {error}");
        }
        Self { resolver: resolver.ok(), known: BTreeMap::new(), problems: BTreeMap::new() }
    }

    /// What is known of these names; of others nothing any more.
    pub(crate) fn known(&self) -> &BTreeMap<String, Vec<IpAddr>> {
        &self.known
    }

    /// Why names could not be looked up the last time.
    pub(crate) fn problems(&self) -> &BTreeMap<String, String> {
        &self.problems
    }

    /// Looks all of these up.
    pub(crate) async fn look_up(&mut self, names: &BTreeSet<String>) {
        self.known.retain(|name, _| names.contains(name));
        self.problems.retain(|name, _| names.contains(name));
        for name in names {
            match self.addresses(name).await {
                Ok(addresses) => {
                    if self.known.get(name) != Some(&addresses) {
                        tracing::info!("origin {name} is at {addresses:?}");
                    }
                    self.known.insert(name.clone(), addresses);
                    self.problems.remove(name);
                }
                Err(why) => {
                    if self.problems.get(name) != Some(&why) {
                        tracing::warn!("{why}");
                    }
                    self.problems.insert(name.clone(), why);
                }
            }
        }
    }

    async fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, String> {
        if let Ok(address) = name.parse::<IpAddr>() {
            return Ok(vec![address]);
        }
        let Some(resolver) = &self.resolver else { return Err(format!("{name} cannot be looked up")) };
        let found = tokio::time::timeout(RESOLVED_WITHIN, resolver.lookup_ip(name)).await;
        let found = found.map_err(|_| format!("{name} does not resolve: no answer"))?;
        let found = found.map_err(|error| format!("{name} does not resolve: {error}"))?;
        let addresses: BTreeSet<IpAddr> = found.iter().collect();
        match addresses.is_empty() {
            true => Err(format!("{name} does not resolve: it has no address")),
            false => Ok(addresses.into_iter().collect()),
        }
    }
}
