//! The CRDs: `cluster.anevia.com/v1`, `CdnCluster` as in the talk, and `CdnPurge`.

#![allow(clippy::duplicated_attributes, reason = "every printed column has a type")]

use std::{collections::BTreeMap, fmt};

use k8s_openapi::{api::core::v1::ResourceRequirements, apimachinery::pkg::apis::meta::v1::Condition};
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A cluster of balancers or of caches, all with the same configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "cluster.anevia.com",
    version = "v1",
    kind = "CdnCluster",
    plural = "cdnclusters",
    singular = "cdncluster",
    shortname = "cdn",
    namespaced,
    derive = "PartialEq",
    status = "CdnClusterStatus",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    validation = ("self.metadata.name.size() <= 45", "the name must have at most 45 characters: other names are made of it"),
    validation = ("self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')", "the name becomes that of a Service: it must begin with a letter and have only letters, digits and -"),
    printcolumn(name = "Role", type_ = "string", json_path = ".spec.role"),
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(name = "Wanted", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.readyReplicas"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "self.role == 'cache' || self.sources.all(source, !has(source.origin))",
        "message": "only a cache has origins: a balancer takes from caches",
    },
    {
        "rule": "self.sources.filter(source, !has(source.pathCondition) || source.pathCondition == '').size() <= 1",
        "message": "at most one source can be without a pathCondition: it is the default",
    },
    {
        "rule": "self.role == 'cache' || !has(self.cache)",
        "message": "only caches have cache settings",
    },
]))]
pub struct CdnClusterSpec {
    /// Whether these are balancers, which pass requests on to caches, or caches.
    pub role: Role,
    /// Where requests go: the first whose condition matches the path. A missing list is
    /// refused; an empty one is fine, until origins are added.
    #[schemars(length(max = 64))]
    pub sources: Vec<Source>,
    /// How many pods are to run.
    #[serde(default = "two")]
    #[schemars(range(min = 0, max = 1000))]
    pub replicas: i32,
    /// How many of them are to be there at any time that Kubernetes can choose: while a
    /// change rolls out, and while nodes are drained. All but one by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub min_available: Option<i32>,
    /// What is cached, and for how long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<Cache>,
    /// How requests are passed on.
    #[serde(default)]
    pub balancing: Balancing,
    /// Serve HTTPS too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// An image with nginx; the operator's own if none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub image: Option<String>,
    /// What nginx gets, and may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Whether two pods may be on one node: rather not (`Preferred`), not at all
    /// (`Required`), or as it comes (`None`).
    #[serde(default)]
    pub anti_affinity: AntiAffinity,
    /// For how long a pod that is to go finishes what it has begun.
    #[serde(default = "half_a_minute")]
    #[schemars(range(min = 1, max = 3600))]
    pub drain_seconds: i64,
    /// What is to be different about the pods: part of a pod template, with
    /// `metadata` (labels, annotations) and `spec`. The containers are called `nginx`
    /// and `agent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub template: Option<Value>,
}

impl CdnClusterSpec {
    /// A cluster without sources, and all else as it is by default.
    pub fn new(role: Role) -> Self {
        Self {
            role,
            sources: Vec::new(),
            replicas: two(),
            min_available: None,
            cache: None,
            balancing: Balancing::default(),
            tls: None,
            image: None,
            resources: None,
            anti_affinity: AntiAffinity::default(),
            drain_seconds: half_a_minute(),
            template: None,
        }
    }
}

fn two() -> i32 {
    2
}

fn half_a_minute() -> i64 {
    30
}

fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// What the pods of a cluster are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// They pass requests on to caches.
    Balancer,
    /// They keep what they fetch.
    Cache,
}

impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Balancer => "balancer",
            Self::Cache => "cache",
        })
    }
}

fn path_condition(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "nullable": true,
        "maxLength": 512,
        "x-kubernetes-validations": [
            {
                "rule": "''.matches(self) || !''.matches(self)",
                "message": "this is no regular expression",
            },
            {
                "rule": "!self.contains('(?P<') && !self.contains('(?<')",
                "message": "a regular expression with a named group cannot be a path condition",
            },
            {
                "rule": "!self.matches('[[:cntrl:]]')",
                "message": "a path condition cannot have line breaks or other control characters",
            },
        ],
    })
}

/// Where requests for some paths go.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Source {
    /// The CdnCluster that it is, in the same namespace; or, with an origin, what to call it.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// Which paths go there: a regular expression (in the syntax of RE2, without named
    /// groups). Without one it is the default source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "path_condition")]
    pub path_condition: Option<String>,
    /// A server outside of the CDN; for caches only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

/// A server outside of the CDN.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Origin {
    /// `http` or `https`.
    #[serde(default)]
    pub scheme: Scheme,
    /// Its name or address.
    #[schemars(
        length(min = 1, max = 253),
        regex(
            pattern = r"^([A-Za-z0-9_]([-A-Za-z0-9_]*[A-Za-z0-9_])?)(\.[A-Za-z0-9_]([-A-Za-z0-9_]*[A-Za-z0-9_])?)*\.?$|^[0-9A-Fa-f:]+$"
        )
    )]
    pub host: String,
    /// 80 or 443 if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,
    /// The `Host` that it is asked for; its own by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 260), regex(pattern = r"^[-A-Za-z0-9._]+(:[0-9]{1,5})?$"))]
    pub host_header: Option<String>,
    /// How an `https` origin is trusted.
    #[serde(default)]
    pub tls: OriginTls,
}

/// A scheme.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    /// Without TLS.
    #[default]
    Http,
    /// With TLS.
    Https,
}

/// How an origin is trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OriginTls {
    /// The name that its certificate must have; the host's by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[-A-Za-z0-9._]+$"))]
    pub server_name: Option<String>,
    /// A Secret with the authorities that are trusted, as `ca.crt`; those that the
    /// image trusts, by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub ca_secret: Option<String>,
    /// Trust any certificate.
    #[serde(default)]
    pub insecure_skip_verify: bool,
}

/// What is cached, and for how long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cache {
    /// How much a pod keeps, such as `10Gi`.
    #[serde(default = "a_gibibyte")]
    #[schemars(regex(pattern = "^[1-9][0-9]{0,5}(Mi|Gi)$"))]
    pub size: String,
    /// What tells two objects apart; the path always does.
    #[serde(default = "host_path_and_query")]
    #[schemars(length(min = 1, max = 4), extend("x-kubernetes-validations" = [
        {"rule": "self.exists(part, part == 'Path')", "message": "without Path all objects would be one"},
    ]))]
    pub key: Vec<KeyPart>,
    /// For how long what is kept, where the origin does not say it. The first rule whose
    /// condition matches the path counts; a rule without a condition matches all.
    #[serde(default = "ten_minutes")]
    #[schemars(length(max = 32))]
    pub ttls: Vec<Ttl>,
    /// Whether these rules count also where the origin says something else.
    #[serde(default)]
    pub override_origin: bool,
    /// What nobody asked for in this time is thrown away.
    #[serde(default = "a_day")]
    #[schemars(range(min = 1, max = 31_536_000))]
    pub inactive_seconds: u32,
    /// Answer with what is too old while a fresh copy is fetched.
    #[serde(default = "yes")]
    pub stale_while_revalidate: bool,
    /// Answer with what is too old when the source does not answer, or with an error.
    #[serde(default = "yes")]
    pub stale_if_error: bool,
    /// Of many requests for an object that is not there, let one through, and answer all
    /// of them with what it brings.
    #[serde(default = "yes")]
    pub request_collapsing: bool,
    /// Fetch and keep large objects in slices of this size, such as `1Mi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[1-9][0-9]{0,5}(Ki|Mi)$"))]
    pub slice_size: Option<String>,
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            size: a_gibibyte(),
            key: host_path_and_query(),
            ttls: ten_minutes(),
            override_origin: false,
            inactive_seconds: a_day(),
            stale_while_revalidate: true,
            stale_if_error: true,
            request_collapsing: true,
            slice_size: None,
        }
    }
}

fn a_gibibyte() -> String {
    "1Gi".to_owned()
}

fn host_path_and_query() -> Vec<KeyPart> {
    vec![KeyPart::Host, KeyPart::Path, KeyPart::Query]
}

fn ten_minutes() -> Vec<Ttl> {
    vec![Ttl { path_condition: None, statuses: vec![200, 206, 301, 302], seconds: 600 }]
}

fn a_day() -> u32 {
    86400
}

fn yes() -> bool {
    true
}

/// A part of what tells two objects apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum KeyPart {
    /// `http` or `https`.
    Scheme,
    /// The host that was asked.
    Host,
    /// The path.
    Path,
    /// What comes after the question mark.
    Query,
}

/// For how long something is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ttl {
    /// Which paths this is about, as in a source; all of them, without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "path_condition")]
    pub path_condition: Option<String>,
    /// Which answers; all of them, if none are given.
    #[serde(default)]
    #[schemars(length(max = 32), inner(range(min = 100, max = 599)))]
    pub statuses: Vec<u16>,
    /// For how long. Nothing is kept for 0 seconds.
    #[schemars(range(min = 0, max = 31_536_000))]
    pub seconds: u32,
}

/// How requests are passed on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Balancing {
    /// For how long a connection may take.
    #[serde(default = "half_a_second")]
    #[schemars(range(min = 10, max = 60000))]
    pub connect_timeout_milliseconds: u32,
    /// How many pods are tried for one request.
    #[serde(default = "three")]
    #[schemars(range(min = 1, max = 10))]
    pub tries: u32,
    /// For how long an answer may make a pause.
    #[serde(default = "a_minute")]
    #[schemars(range(min = 1, max = 3600))]
    pub read_timeout_seconds: u32,
    /// For how long a pod that did not answer is left alone.
    #[serde(default = "ten")]
    #[schemars(range(min = 1, max = 3600))]
    pub fail_timeout_seconds: u32,
}

impl Default for Balancing {
    fn default() -> Self {
        Self {
            connect_timeout_milliseconds: half_a_second(),
            tries: three(),
            read_timeout_seconds: a_minute(),
            fail_timeout_seconds: ten(),
        }
    }
}

fn half_a_second() -> u32 {
    500
}

fn three() -> u32 {
    3
}

fn a_minute() -> u32 {
    60
}

fn ten() -> u32 {
    10
}

/// HTTPS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tls {
    /// The Secret with `tls.crt` and `tls.key`.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub secret_name: String,
}

/// Whether two pods may be on one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AntiAffinity {
    /// Rather not.
    #[default]
    Preferred,
    /// Not at all.
    Required,
    /// As it comes.
    None,
}

/// What became of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CdnClusterStatus {
    /// How it is, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// The generation of the spec that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How many pods there are.
    #[serde(default)]
    pub replicas: i32,
    /// How many of them are ready.
    #[serde(default)]
    pub ready_replicas: i32,
    /// How many of them serve the configuration that is wanted.
    #[serde(default)]
    pub configured_replicas: i32,
    /// How to find them by label.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub selector: String,
    /// The configuration that is wanted of them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub configuration: String,
    /// Where it can be reached in the cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<String>,
    /// Every one of its pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<PodStatus>,
    /// Whether all is well (`Ready`), and if not, why not.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

/// How a cluster is, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum State {
    /// A source is not there, or not ready yet.
    WaitingSource,
    /// Its pods are on their way.
    Deploying,
    /// All is well.
    Ready,
    /// It serves, but not all is well.
    Degraded,
    /// What is wanted cannot be.
    Invalid,
}

/// One pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodStatus {
    /// Its name.
    pub name: String,
    /// Where it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Whether it takes requests.
    pub ready: bool,
    /// The configuration that it serves, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<String>,
    /// What is wrong with it, if something is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Something is not to be served from the caches of a cluster any more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "cluster.anevia.com",
    version = "v1",
    kind = "CdnPurge",
    plural = "cdnpurges",
    singular = "cdnpurge",
    namespaced,
    derive = "PartialEq",
    status = "CdnPurgeStatus",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.cluster"),
    printcolumn(name = "Confirmed", type_ = "integer", json_path = ".status.confirmed"),
    printcolumn(name = "Pods", type_ = "integer", json_path = ".status.pods"),
    printcolumn(
        name = "Status",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Complete")].reason"#
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self == oldSelf", "message": "a purge cannot be changed: make another one"},
    {"rule": "has(self.prefix) != (has(self.paths) && self.paths.size() > 0)", "message": "say either paths or a prefix"},
]))]
pub struct CdnPurgeSpec {
    /// The CdnCluster, in the same namespace.
    #[schemars(length(min = 1, max = 63))]
    pub cluster: String,
    /// These paths, with whatever query.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 64),
        inner(length(min = 1, max = 1024), regex(pattern = "^/[^\\x00-\\x1f\\x7f]*$"))
    )]
    pub paths: Vec<String>,
    /// Every path that begins with this; `/` is everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024), regex(pattern = "^/[^\\x00-\\x1f\\x7f]*$"))]
    pub prefix: Option<String>,
}

/// What became of a purge.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CdnPurgeStatus {
    /// The generation of the spec that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Its number among the purges of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    /// How many pods the cluster has.
    #[serde(default)]
    pub pods: i32,
    /// How many of them confirmed it.
    #[serde(default)]
    pub confirmed: i32,
    /// Whether all of them did (`Complete`), and if not, who is missing.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

/// What an agent tells about its pod, at `/state`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentState {
    /// The pod that it is in.
    #[serde(default)]
    pub pod: String,
    /// The configuration that nginx serves.
    pub configuration: Option<String>,
    /// When the list of purges began that holds for every request from now on.
    pub purges_began: String,
    /// The last purge of it that does.
    pub purged: u64,
    /// Why the wanted configuration is not what is served, if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// What is wrong with sources, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sources: BTreeMap<String, String>,
    /// What is wrong with the certificate, if something is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<String>,
}
