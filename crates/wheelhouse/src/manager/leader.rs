//! Leader election by a Lease. It avoids duplicate work, and is never a safety
//! argument: every operator is right even with two leaders.
//!
//! A leader counts from the moment it *sent* its last good renewal, on a clock
//! that goes on while the machine sleeps, and sends nothing once
//! [`ElectionSettings::renew_deadline`] has passed ([`Fence`]). What the kernel
//! still holds by then is given up on before [`ElectionSettings::lease_duration`]
//! is over. A candidate looks at nobody's clock: the lease is free when it has not
//! seen it change for the lease's duration.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    client::{Fence, boot_time},
    metrics::Metrics,
};

/// How leaders are elected.
#[derive(Clone, Debug)]
pub(crate) struct ElectionSettings {
    /// Where the Lease is.
    pub(crate) namespace: String,
    /// What it is called.
    pub(crate) lease: String,
    /// Who we are. Must differ between processes.
    pub(crate) identity: String,
    /// A lease that did not change for so long is free. Default: 15 s.
    pub(crate) lease_duration: Duration,
    /// After that time without a good renewal a leader stops. Default: 10 s.
    pub(crate) renew_deadline: Duration,
    /// How often a leader renews. Default: 2 s.
    pub(crate) renew_every: Duration,
    /// How often a candidate looks. Default: 500 ms.
    pub(crate) look_every: Duration,
}

impl ElectionSettings {
    /// With client-go's times.
    pub(crate) fn new(
        namespace: impl Into<String>,
        lease: impl Into<String>,
        identity: impl Into<String>,
    ) -> Self {
        Self {
            namespace: namespace.into(),
            lease: lease.into(),
            identity: identity.into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            renew_every: Duration::from_secs(2),
            look_every: Duration::from_millis(500),
        }
    }
}

/// Runs for leader, and leads, until stopped.
pub(crate) struct Candidate {
    settings: ElectionSettings,
    leases: Api<Lease>,
    fence: Fence,
    metrics: Metrics,
    /// What the lease was like when it was last seen to change, and when that was.
    seen: Option<(Record, Duration)>,
    leading: watch::Sender<bool>,
}

/// What a change of the lease is told by.
#[derive(Clone, Debug, PartialEq)]
struct Record {
    holder: String,
    version: Option<String>,
    duration: Duration,
}

/// What to do about a lease.
#[derive(Debug, PartialEq)]
enum Claim {
    /// It is ours, or free.
    Take,
    /// Somebody holds it.
    Wait,
}

impl Candidate {
    pub(crate) fn new(
        settings: ElectionSettings,
        client: Client,
        fence: Fence,
        metrics: Metrics,
    ) -> (Self, watch::Receiver<bool>) {
        let leases = Api::namespaced(client, &settings.namespace);
        let (leading, is_leading) = watch::channel(false);
        metrics.show_leading(&settings.lease, false);
        (Self { settings, leases, fence, metrics, seen: None, leading }, is_leading)
    }

    /// Until stopped; then hands the lease over.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        loop {
            let tried = tokio::time::timeout(self.time_for_a_try(), self.try_to_lead()).await;
            match tried {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::warn!(lease = self.settings.lease, "cannot renew or look at the lease: {error}")
                }
                Err(_) => tracing::warn!(
                    lease = self.settings.lease,
                    "the API server does not answer about the lease"
                ),
            }
            self.show();
            let pause = match *self.leading.borrow() {
                true => self.settings.renew_every,
                false => self.settings.look_every,
            };
            // Whoever leads looks at its fence more often than it renews.
            let until = boot_time() + pause;
            while boot_time() < until {
                let nap = self.settings.look_every.min(until.saturating_sub(boot_time()));
                if stop.run_until_cancelled(tokio::time::sleep(nap)).await.is_none() {
                    return self.hand_over().await;
                }
                self.show();
            }
        }
    }

    fn time_for_a_try(&self) -> Duration {
        self.settings.renew_deadline / 2
    }

    fn show(&self) {
        let is_leading = self.fence.is_open();
        let changed =
            self.leading.send_if_modified(|known| std::mem::replace(known, is_leading) != is_leading);
        if changed {
            let settings = &self.settings;
            let what = if is_leading { "leading" } else { "not leading any more" };
            tracing::info!(lease = settings.lease, identity = settings.identity, "{what}");
            self.metrics.show_leading(&settings.lease, is_leading);
        }
    }

    async fn try_to_lead(&mut self) -> kube::Result<()> {
        let sent = boot_time();
        let written = match self.leases.get_opt(&self.settings.lease).await? {
            None => self.leases.create(&PostParams::default(), &self.lease(None)).await,
            Some(lease) => match self.judge(&lease, boot_time()) {
                Claim::Wait => {
                    // Even if our time is not up: somebody took it from us.
                    self.fence.close();
                    return Ok(());
                }
                Claim::Take => {
                    let new = self.lease(Some(lease));
                    self.leases.replace(&self.settings.lease, &PostParams::default(), &new).await
                }
            },
        };
        match written {
            Ok(_) => self.fence.open_until(sent + self.settings.renew_deadline),
            // Somebody was faster, or changed our lease: look again.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn judge(&mut self, lease: &Lease, now: Duration) -> Claim {
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.unwrap_or_default();
        if holder.is_empty() || holder == self.settings.identity {
            return Claim::Take;
        }
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let record = Record {
            holder,
            version: lease.metadata.resource_version.clone(),
            duration: seconds.map_or(self.settings.lease_duration, Duration::from_secs),
        };
        match &self.seen {
            Some((known, since)) if *known == record => match now >= *since + record.duration {
                true => Claim::Take,
                false => Claim::Wait,
            },
            _ => {
                self.seen = Some((record, now));
                Claim::Wait
            }
        }
    }

    /// The lease as it is to be, on top of what it is.
    fn lease(&self, current: Option<Lease>) -> Lease {
        let now = MicroTime(Timestamp::now());
        let spec = current.as_ref().and_then(|lease| lease.spec.clone()).unwrap_or_default();
        let is_ours = spec.holder_identity.as_ref() == Some(&self.settings.identity);
        let metadata = current.map(|lease| lease.metadata).unwrap_or_else(|| ObjectMeta {
            name: Some(self.settings.lease.clone()),
            namespace: Some(self.settings.namespace.clone()),
            ..ObjectMeta::default()
        });
        Lease {
            metadata,
            spec: Some(LeaseSpec {
                holder_identity: Some(self.settings.identity.clone()),
                lease_duration_seconds: i32::try_from(self.settings.lease_duration.as_secs().max(1)).ok(),
                acquire_time: if is_ours { spec.acquire_time } else { Some(now.clone()) },
                renew_time: Some(now),
                lease_transitions: Some(spec.lease_transitions.unwrap_or(0) + i32::from(!is_ours)),
                ..LeaseSpec::default()
            }),
        }
    }

    /// So that nobody has to wait until the lease runs out.
    async fn hand_over(&self) {
        if !self.fence.is_open() {
            return;
        }
        self.fence.close();
        self.show();
        let give_up = async {
            let mut lease = self.leases.get(&self.settings.lease).await?;
            let spec = lease.spec.get_or_insert_default();
            if spec.holder_identity.as_ref() == Some(&self.settings.identity) {
                spec.holder_identity = Some(String::new());
                spec.lease_duration_seconds = Some(1);
                self.leases.replace(&self.settings.lease, &PostParams::default(), &lease).await?;
            }
            Ok::<(), kube::Error>(())
        };
        if !matches!(tokio::time::timeout(Duration::from_secs(3), give_up).await, Ok(Ok(()))) {
            tracing::warn!(
                lease = self.settings.lease,
                "could not hand the lease over: the next leader waits until it runs out"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::{Config, client::ClientBuilder};

    use super::*;

    fn candidate() -> Candidate {
        let config = Config::new("http://127.0.0.1:1".parse().unwrap());
        let client = ClientBuilder::try_from(config).unwrap().build();
        let settings = ElectionSettings::new("n", "lease", "me");
        Candidate::new(settings, client, Fence::closed(), Metrics::default()).0
    }

    fn held(holder: &str, version: &str, seconds: i32) -> Lease {
        Lease {
            metadata: ObjectMeta { resource_version: Some(version.to_owned()), ..ObjectMeta::default() },
            spec: Some(LeaseSpec {
                holder_identity: Some(holder.to_owned()),
                lease_duration_seconds: Some(seconds),
                // A clock that is wrong by years makes no difference.
                renew_time: Some(MicroTime(Timestamp::UNIX_EPOCH)),
                ..LeaseSpec::default()
            }),
        }
    }

    #[tokio::test]
    async fn a_lease_is_free_when_it_did_not_change_for_its_duration() {
        let mut candidate = candidate();
        let at = Duration::from_secs;
        assert_eq!(candidate.judge(&held("other", "1", 15), at(100)), Claim::Wait);
        assert_eq!(candidate.judge(&held("other", "1", 15), at(114)), Claim::Wait);
        assert_eq!(candidate.judge(&held("other", "2", 15), at(114)), Claim::Wait, "it was renewed");
        assert_eq!(candidate.judge(&held("other", "2", 15), at(128)), Claim::Wait);
        assert_eq!(candidate.judge(&held("other", "2", 15), at(129)), Claim::Take);
    }

    #[tokio::test]
    async fn a_lease_that_was_handed_over_is_free_at_once() {
        assert_eq!(candidate().judge(&held("", "1", 1), Duration::ZERO), Claim::Take);
        assert_eq!(candidate().judge(&held("me", "1", 15), Duration::ZERO), Claim::Take);
    }

    #[tokio::test]
    async fn taking_over_counts_as_a_transition_and_renewing_does_not() {
        let candidate = candidate();
        let taken = candidate.lease(Some(held("other", "1", 15)));
        assert_eq!(taken.spec.as_ref().unwrap().lease_transitions, Some(1));
        let renewed = candidate.lease(Some(taken.clone()));
        assert_eq!(renewed.spec.as_ref().unwrap().lease_transitions, Some(1));
        assert_eq!(renewed.spec.unwrap().acquire_time, taken.spec.unwrap().acquire_time);
        assert_eq!(renewed.metadata.resource_version.as_deref(), Some("1"), "a lock against others");
    }
}
