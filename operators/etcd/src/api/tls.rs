//! TLS of a cluster, as people write it.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wheelhouse::certificates::Validity;

/// With whose certificates members and clients speak TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "has(self.static) != has(self.automatic)", "message": "TLS is either automatic or static: say one of them"},
    {"rule": "has(self.static) == has(oldSelf.static)", "message": "TLS cannot change between automatic and static on a cluster that is there: its members would not trust each other"},
]))]
pub struct Tls {
    /// With certificates from Secrets that somebody else looks after; as in the original.
    #[serde(rename = "static", default, skip_serializing_if = "Option::is_none")]
    pub from_secrets: Option<StaticTls>,
    /// With certificates of an authority that the operator makes for this cluster, and replaces in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub automatic: Option<AutomaticTls>,
}

/// The Secrets with the certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "has(self.operatorSecret) == (has(self.member) && has(self.member.serverSecret))", "message": "member.serverSecret and operatorSecret go together: members that ask clients for certificates ask the operator, too"},
    {"rule": "has(self.operatorSecret) == has(oldSelf.operatorSecret)", "message": "TLS for clients cannot be turned on or off on a cluster that is there"},
    {"rule": "(has(self.member) && has(self.member.peerSecret)) == (has(oldSelf.member) && has(oldSelf.member.peerSecret))", "message": "TLS between members cannot be turned on or off on a cluster that is there"},
]))]
pub struct StaticTls {
    /// Those of the members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<MemberSecrets>,
    /// With what the operator shows itself to members: `etcd-client.crt`, `etcd-client.key` and `etcd-client-ca.crt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub operator_secret: Option<String>,
}

/// The Secrets of the members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberSecrets {
    /// With what members show themselves to each other: `peer.crt`, `peer.key` and `peer-ca.crt`. Without it they
    /// speak plain HTTP among themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub peer_secret: Option<String>,
    /// With what members show themselves to clients: `server.crt`, `server.key` and `server-ca.crt`. Without it clients
    /// speak plain HTTP with them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub server_secret: Option<String>,
}

/// How long certificates are good for. Each is replaced after two thirds of its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AutomaticTls {
    /// The authority, in days. When it is replaced, members are restarted one after the other, twice.
    #[serde(default = "ten_years")]
    #[schemars(range(min = 1, max = 36_500))]
    pub authority_days: u32,
    /// The certificates, in days: for a third of that a cluster goes on without an operator.
    #[serde(default = "a_year")]
    #[schemars(range(min = 1, max = 3_650))]
    pub certificate_days: u32,
    /// How long clients have to read the Secret again, each time that the authority is replaced, in seconds.
    #[serde(default = "an_hour")]
    #[schemars(range(min = 0, max = 2_592_000))]
    pub overlap_seconds: u32,
}

impl Default for AutomaticTls {
    fn default() -> Self {
        Self { authority_days: ten_years(), certificate_days: a_year(), overlap_seconds: an_hour() }
    }
}

fn ten_years() -> u32 {
    3650
}

fn a_year() -> u32 {
    365
}

fn an_hour() -> u32 {
    3600
}

impl AutomaticTls {
    /// The same, as whoever makes certificates wants it.
    pub fn validity(&self) -> Validity {
        let days = |days: u32| Duration::from_secs(u64::from(days) * 24 * 3600);
        Validity {
            authority: days(self.authority_days),
            leaf: days(self.certificate_days),
            overlap: Duration::from_secs(u64::from(self.overlap_seconds)),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::as_it_is(json!({}), [3650 * 86_400, 365 * 86_400, 3600])]
    #[case::as_they_want(
        json!({"authorityDays": 30, "certificateDays": 7, "overlapSeconds": 5}),
        [30 * 86_400, 7 * 86_400, 5]
    )]
    fn certificates_are_good_for_as_long_as_people_want(#[case] automatic: Value, #[case] seconds: [u64; 3]) {
        let validity = serde_json::from_value::<AutomaticTls>(automatic).unwrap().validity();
        assert_eq!([validity.authority, validity.leaf, validity.overlap].map(|time| time.as_secs()), seconds);
    }
}
