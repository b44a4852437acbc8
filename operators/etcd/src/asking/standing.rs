//! Asks the supervisor of a member that serves nobody how far it is.

use std::{sync::Arc, time::Duration};

use wheelhouse::Probe;

use crate::{
    asking::check_cluster,
    etcd::{Dial, Id, http},
    layout,
    positions::Position,
    standing::{self, Standing},
};

/// Asks for it; only while nobody knows who the members are.
pub(crate) struct AskStanding {
    /// Supervisors speak plain HTTP, whatever etcd speaks.
    pub(crate) dialer: Arc<dyn Dial>,
    /// Address and port of etcd.
    pub(crate) address: String,
    /// An address can be somebody else's later.
    pub(crate) pod: String,
    /// What etcd calls the cluster, if that is known.
    pub(crate) cluster: Option<Id>,
    /// What etcd calls the member, if that is known.
    pub(crate) member: Option<Id>,
    pub(crate) fresh_for: Duration,
}

impl Probe for AskStanding {
    type Answer = Position;

    fn target(&self) -> String {
        format!("{} {} {:?}", self.address, self.pod, self.cluster)
    }

    fn fresh_for(&self) -> Duration {
        self.fresh_for
    }

    async fn ask(&self) -> Result<Option<Position>, String> {
        let host = self.address.rsplit_once(':').map_or(self.address.as_str(), |(host, _)| host);
        let address = format!("{host}:{}", layout::HEALTH_PORT);
        let (_, body) = http::get(&*self.dialer, &address, standing::PATH).await?;
        let standing: Standing = serde_json::from_slice(&body)
            .map_err(|error| format!("{address} does not say how far etcd is: {error}"))?;
        check_cluster(self.cluster, standing.cluster)?;
        if let Some(known) = self.member.filter(|known| *known != standing.member) {
            return Err(format!("member {} answers there, and not {known}", standing.member));
        }
        Ok(Some(standing.position))
    }
}
