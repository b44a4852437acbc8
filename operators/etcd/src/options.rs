//! The options of etcd that people may set, and what they are called in each version. Pure.
//!
//! Invariant: nothing here says who a member is, how it begins, where its data is, how it is reached or whom it
//! trusts. That is the operator's.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{size::Size, version::Version};

/// What etcd itself takes for its quota where none is set.
pub const DEFAULT_QUOTA: Size = Size(2 << 30);

/// Options of etcd. What is not set is as etcd has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "(has(self.electionTimeoutMilliseconds) ? self.electionTimeoutMilliseconds : 1000) >= 5 * (has(self.heartbeatMilliseconds) ? self.heartbeatMilliseconds : 100)",
        "message": "the time-out of elections (1000 ms unless set) must be at least five heartbeats (100 ms unless set)",
    },
]))]
pub struct Options {
    /// How often the leader says that it is there. etcd's default: 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 10_000))]
    pub heartbeat_milliseconds: Option<u32>,
    /// After how long without a leader another is elected. etcd's default: 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 50, max = 50_000))]
    pub election_timeout_milliseconds: Option<u32>,
    /// After how many entries of the log a snapshot is written. etcd's default: 100000 in 3.5, 10000 since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub snapshot_count: Option<u32>,
    /// How large the data may become before writes are refused. etcd's default: 2Gi; it advises against more than 8Gi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[1-9][0-9]{0,5}(Mi|Gi)$"), length(max = 8))]
    pub quota_backend_bytes: Option<String>,
    /// How large a request may be, in bytes. etcd's default: 1572864.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1024, max = 67_108_864))]
    pub max_request_bytes: Option<u32>,
    /// What etcd forgets by itself of what was before. etcd's default: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compaction: Option<Compaction>,
    /// More of etcd's flags, without dashes before them, by the names that they have since 3.6; 3.5 gets them under its own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "extra_schema")]
    pub extra: BTreeMap<String, String>,
}

/// What etcd forgets by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "self.mode == 'Periodic' ? self.retention.matches('^([0-9]{1,6}(h|m|s))+$') : self.retention.matches('^[1-9][0-9]{0,9}$')",
        "message": "retention is how long (such as 1h or 30m) if the mode is Periodic, and how many revisions (such as 1000) if it is Revision",
    },
]))]
pub struct Compaction {
    /// By time, or by number.
    pub mode: CompactionMode,
    /// How long, or how many revisions, are kept.
    #[schemars(length(max = 20))]
    pub retention: String,
}

/// By what etcd decides what to forget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CompactionMode {
    /// By time.
    Periodic,
    /// By the number of revisions.
    Revision,
}

/// What a flag is called where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    /// The same everywhere.
    Same,
    /// With `experimental-` before it until 3.5.
    ExperimentalBefore,
    /// With `experimental-` before it until 3.5; since 3.6 it is this feature gate.
    Gate(&'static str),
}

/// The flags that people may set beside the fields above.
const EXTRA: [(&str, Named); 31] = [
    ("auth-token-ttl", Named::Same),
    ("backend-batch-interval", Named::Same),
    ("backend-batch-limit", Named::Same),
    ("backend-bbolt-freelist-type", Named::Same),
    ("bcrypt-cost", Named::Same),
    ("enable-pprof", Named::Same),
    ("grpc-keepalive-interval", Named::Same),
    ("grpc-keepalive-min-time", Named::Same),
    ("grpc-keepalive-timeout", Named::Same),
    ("initial-election-tick-advance", Named::Same),
    ("log-level", Named::Same),
    ("max-concurrent-streams", Named::Same),
    ("max-snapshots", Named::Same),
    ("max-txn-ops", Named::Same),
    ("max-wals", Named::Same),
    ("metrics", Named::Same),
    ("pre-vote", Named::Same),
    ("raft-read-timeout", Named::Same),
    ("raft-write-timeout", Named::Same),
    ("bootstrap-defrag-threshold-megabytes", Named::ExperimentalBefore),
    ("compact-hash-check-time", Named::ExperimentalBefore),
    ("compaction-batch-limit", Named::ExperimentalBefore),
    ("compaction-sleep-interval", Named::ExperimentalBefore),
    ("corrupt-check-time", Named::ExperimentalBefore),
    ("snapshot-catchup-entries", Named::ExperimentalBefore),
    ("warning-apply-duration", Named::ExperimentalBefore),
    ("watch-progress-notify-interval", Named::ExperimentalBefore),
    ("compact-hash-check-enabled", Named::Gate("CompactHashCheck")),
    ("enable-lease-checkpoint", Named::Gate("LeaseCheckpoint")),
    ("enable-lease-checkpoint-persist", Named::Gate("LeaseCheckpointPersist")),
    ("txn-mode-write-with-shared-buffer", Named::Gate("TxnModeWriteWithSharedBuffer")),
];

/// The variables by which etcd, or its supervisor, would take what is the operator's, as a pattern: who a member is, how it
/// begins, where its data and its words go, how it is reached, and whom it trusts.
pub(crate) const OPERATORS_VARIABLES: &str = "^((PEER|SERVER|CLIENT)_TLS|ETCD_(NAME|DATA_DIR|WAL_DIR|CONFIG_FILE|FORCE_NEW_CLUSTER|UNSAFE_NO_FSYNC|STRICT_RECONFIG_CHECK|INITIAL_(ADVERTISE_PEER_URLS|CLUSTER|CLUSTER_STATE|CLUSTER_TOKEN)|LISTEN_.*|ADVERTISE_CLIENT_URLS|DISCOVERY.*|PROXY.*|.*(CERT|KEY|CA|CRL)_FILE|.*AUTO_TLS|.*CLIENT_CERT_AUTH|.*CERT_ALLOWED_.*|ENABLE_V2|V2_DEPRECATION|LOGGER|LOG_OUTPUTS|LOG_FORMAT|SOCKET_REUSE_.*|.*DOWNGRADE_CHECK_TIME|MAX_LEARNERS|VERSION))$";

fn extra_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let names: Vec<_> = EXTRA.iter().map(|(name, _)| format!("'{name}'")).collect();
    let names = names.join(", ");
    schemars::json_schema!({
        "type": "object",
        "maxProperties": 32,
        "additionalProperties": {"type": "string", "maxLength": 128, "pattern": "^[-A-Za-z0-9.,:_/+=]*$"},
        "x-kubernetes-validations": [{
            "rule": format!("self.all(flag, flag in [{names}])"),
            "message": format!("other flags than these are the operator's, have a field of their own, or are not there in every version: {}", names.replace('\'', "")),
        }],
    })
}

impl Options {
    /// How large the data may become.
    pub fn quota(&self) -> Size {
        self.quota_backend_bytes.as_deref().and_then(Size::of).unwrap_or(DEFAULT_QUOTA)
    }

    /// As flags of that version of etcd.
    pub fn flags(&self, version: Version) -> Vec<String> {
        let mut flags = Vec::new();
        let mut set = |name: &str, value: Option<String>| {
            flags.extend(value.map(|value| format!("--{name}={value}")));
        };
        set("heartbeat-interval", self.heartbeat_milliseconds.map(|number| number.to_string()));
        set("election-timeout", self.election_timeout_milliseconds.map(|number| number.to_string()));
        set("snapshot-count", self.snapshot_count.map(|number| number.to_string()));
        let quota = self.quota_backend_bytes.as_deref().and_then(Size::of);
        set("quota-backend-bytes", quota.map(|quota| quota.0.to_string()));
        set("max-request-bytes", self.max_request_bytes.map(|number| number.to_string()));
        if let Some(compaction) = &self.compaction {
            let mode = match compaction.mode {
                CompactionMode::Periodic => "periodic",
                CompactionMode::Revision => "revision",
            };
            set("auto-compaction-mode", Some(mode.to_owned()));
            set("auto-compaction-retention", Some(compaction.retention.clone()));
        }
        let has_gates = version.minor >= 6;
        let mut gates = Vec::new();
        for (name, named) in EXTRA {
            let Some(value) = self.extra.get(name) else { continue };
            match named {
                Named::Gate(gate) if has_gates => gates.push(format!("{gate}={value}")),
                Named::ExperimentalBefore | Named::Gate(_) if !has_gates => {
                    set(&format!("experimental-{name}"), Some(value.clone()));
                }
                _ => set(name, Some(value.clone())),
            }
        }
        set("feature-gates", (!gates.is_empty()).then(|| gates.join(",")));
        flags
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;
    use wheelhouse_local::{binaries::Binaries, progress::Progress};

    use super::*;

    #[rstest]
    #[case::of_3_5(35, "--experimental-corrupt-check-time=1h --experimental-compact-hash-check-enabled=true")]
    #[case::of_3_6(36, "--corrupt-check-time=1h --feature-gates=CompactHashCheck=true")]
    fn a_flag_gets_the_name_that_it_has_in_that_version(#[case] version: u32, #[case] flags: &str) {
        let options: Options = serde_json::from_value(
            json!({"extra": {"corrupt-check-time": "1h", "compact-hash-check-enabled": "true", "name": "mine"}}),
        )
        .unwrap();
        assert_eq!(options.flags(Version::new(3, version - 30, 0)).join(" "), flags);
    }

    #[test]
    fn every_field_becomes_a_flag_and_what_is_not_set_none() {
        let options: Options = serde_json::from_value(json!({
            "heartbeatMilliseconds": 200,
            "electionTimeoutMilliseconds": 2000,
            "snapshotCount": 5000,
            "quotaBackendBytes": "4Gi",
            "maxRequestBytes": 2_097_152,
            "compaction": {"mode": "Periodic", "retention": "1h"},
        }))
        .unwrap();
        assert_eq!(
            options.flags(Version::new(3, 7, 3)),
            [
                "--heartbeat-interval=200",
                "--election-timeout=2000",
                "--snapshot-count=5000",
                "--quota-backend-bytes=4294967296",
                "--max-request-bytes=2097152",
                "--auto-compaction-mode=periodic",
                "--auto-compaction-retention=1h",
            ]
        );
        assert_eq!(Options::default().flags(Version::new(3, 7, 3)), [""; 0]);
    }
    #[rstest]
    #[case("Periodic", "1h30m", "--auto-compaction-mode=periodic --auto-compaction-retention=1h30m")]
    #[case("Revision", "1000", "--auto-compaction-mode=revision --auto-compaction-retention=1000")]
    fn etcd_is_told_what_to_forget(#[case] mode: &str, #[case] retention: &str, #[case] flags: &str) {
        let compaction = json!({"compaction": {"mode": mode, "retention": retention}});
        let options: Options = serde_json::from_value(compaction).unwrap();
        assert_eq!(options.flags(Version::new(3, 6, 16)).join(" "), flags);
    }

    /// A value that such a flag can have.
    fn value_of(flag: &str) -> &'static str {
        match flag {
            "backend-bbolt-freelist-type" => "map",
            "log-level" => "warn",
            "metrics" => "basic",
            "enable-pprof" | "initial-election-tick-advance" | "pre-vote" => "true",
            flag if flag.starts_with("enable-") || flag.ends_with("-enabled") || flag.starts_with("txn-") => {
                "true"
            }
            flag if flag.ends_with("-time")
                || flag.ends_with("-timeout")
                || flag.ends_with("-interval")
                || flag.ends_with("-duration") =>
            {
                "1s"
            }
            _ => "10",
        }
    }

    /// Flags are read before the version is told. It is that of the test control plane.
    #[tokio::test]
    async fn etcd_knows_every_flag_that_people_may_set() {
        let binaries = Binaries::for_tests(&Progress::shown()).await.unwrap();
        let program = binaries.program("etcd");
        let understood = |flags: &[String]| {
            let said = std::process::Command::new(&program).args(flags).arg("--version").output().unwrap();
            (said.status.success(), String::from_utf8_lossy(&said.stderr).into_owned())
        };
        let mut options: Options = serde_json::from_value(json!({
            "heartbeatMilliseconds": 200,
            "electionTimeoutMilliseconds": 2000,
            "snapshotCount": 5000,
            "quotaBackendBytes": "4Gi",
            "maxRequestBytes": 2_097_152,
            "compaction": {"mode": "Revision", "retention": "1000"},
        }))
        .unwrap();
        options.extra =
            EXTRA.iter().map(|(flag, _)| ((*flag).to_owned(), value_of(flag).to_owned())).collect();
        let flags = options.flags(Version::new(3, 6, 16));
        let (is_understood, why) = understood(&flags);
        assert!(is_understood, "{why}");
        let (is_understood, _) = understood(&["--corrupt-check-tyme=1s".to_owned()]);
        assert!(!is_understood, "etcd is told something that it does not know, and says nothing");
    }
}
