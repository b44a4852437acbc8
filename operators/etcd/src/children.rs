//! What an EtcdCluster consists of: the objects that its operator writes. Pure.

mod seed;

use std::collections::BTreeMap;

use k8s_openapi::api::{
    core::v1::{PersistentVolumeClaim, Pod, Service, ServiceAccount},
    policy::v1::PodDisruptionBudget,
    rbac::v1::{Role, RoleBinding},
};
use kube::ResourceExt as _;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::{
    api::{EtcdCluster, EtcdMember, EtcdMemberSpec, Intent, Options, PodPolicy},
    layout,
    tls::{self, Scheme},
    version::Version,
};

/// The label by which everything of a cluster is found; as in the original.
pub const CLUSTER_LABEL: &str = "etcd_cluster";
/// The label of the member that a pod or a volume belongs to; as in the original.
pub const MEMBER_LABEL: &str = "etcd_node";
/// A cluster of the same name that was there before had other volumes.
pub const CLUSTER_UID_LABEL: &str = "etcd.database.coreos.com/cluster-uid";
/// The version that a pod runs; as in the original.
pub const VERSION: &str = "etcd.version";
/// The incarnation of the cluster that a pod or a volume was made for, unless it is the first.
pub const INCARNATION_LABEL: &str = "etcd.database.coreos.com/incarnation";
/// What people wanted of a pod when it was made.
pub const WANTED: &str = "etcd.database.coreos.com/wanted";

/// Whoever runs in the pods is nobody in particular.
pub(crate) const USER: i64 = 65532;

/// The name of a member: of its record, its pod and its volume.
pub fn member_name(cluster: &str, ordinal: u32) -> String {
    format!("{cluster}-{ordinal}")
}

/// The number in the name of a member.
pub fn ordinal_in(cluster: &str, member: &str) -> Option<u32> {
    let number = member.strip_prefix(cluster)?.strip_prefix('-')?;
    // `01` and `+1` would be read as numbers, and are no names of ours.
    number.parse().ok().filter(|ordinal: &u32| ordinal.to_string() == number)
}

/// The Service by which clients reach a cluster.
pub fn client_service_name(cluster: &str) -> String {
    format!("{cluster}-client")
}

/// Who the supervisors of a cluster are.
pub fn supervisor_name(cluster: &str) -> String {
    format!("{cluster}-member")
}

/// The host by which others reach a member.
pub fn host(cluster: &str, namespace: &str, member: &str) -> String {
    format!("{member}.{cluster}.{namespace}.svc")
}

/// Where the other members reach one. It tells members apart, in etcd's list and for ever.
pub fn peer_url(scheme: Scheme, cluster: &str, namespace: &str, member: &str) -> String {
    format!("{scheme}://{}:{}", host(cluster, namespace, member), layout::PEER_PORT)
}

/// Where clients reach a member.
pub fn client_url(scheme: Scheme, cluster: &str, namespace: &str, member: &str) -> String {
    format!("{scheme}://{}:{}", host(cluster, namespace, member), layout::CLIENT_PORT)
}

/// How many of so many members have to agree.
pub fn quorum(members: usize) -> usize {
    members / 2 + 1
}

/// An object from its JSON, which is written here and so is one.
fn object<K: DeserializeOwned + Default>(content: Value) -> K {
    serde_json::from_value(content).unwrap_or_default()
}

pub(crate) fn labels(cluster: &EtcdCluster) -> BTreeMap<String, String> {
    let pairs = [("app", "etcd".to_owned()), (CLUSTER_LABEL, cluster.name_any())];
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn metadata(cluster: &EtcdCluster, name: String) -> Value {
    json!({"name": name, "labels": labels(cluster)})
}

/// The names of the members; they are found before they are ready, or nobody would ever be.
pub fn peer_service(cluster: &EtcdCluster) -> Service {
    object(json!({
        "metadata": metadata(cluster, cluster.name_any()),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": true,
            "selector": labels(cluster),
            "ports": [
                {"name": "client", "port": layout::CLIENT_PORT, "targetPort": "client"},
                {"name": "peer", "port": layout::PEER_PORT, "targetPort": "peer"},
            ],
        },
    }))
}

/// Where clients reach whoever is ready.
pub fn client_service(cluster: &EtcdCluster) -> Service {
    object(json!({
        "metadata": metadata(cluster, client_service_name(&cluster.name_any())),
        "spec": {
            "selector": labels(cluster),
            "ports": [{"name": "client", "port": layout::CLIENT_PORT, "targetPort": "client"}],
        },
    }))
}

/// Whoever drains nodes leaves a quorum, of those that there are and of those that there are to be; of one or
/// two members none can go.
pub fn disruption_budget(cluster: &EtcdCluster, voters: usize) -> PodDisruptionBudget {
    let size = usize::try_from(cluster.spec.size).unwrap_or(1).max(voters);
    object(json!({
        "metadata": metadata(cluster, cluster.name_any()),
        "spec": {"minAvailable": quorum(size), "selector": {"matchLabels": labels(cluster)}},
    }))
}

/// Who the supervisors are.
pub fn service_account(cluster: &EtcdCluster) -> ServiceAccount {
    object(json!({
        "metadata": metadata(cluster, supervisor_name(&cluster.name_any())),
        "automountServiceAccountToken": false,
    }))
}

/// What they may do: read the records of this cluster, and say in them what they found.
pub fn role(cluster: &EtcdCluster, members: &[String]) -> Role {
    let group = "etcd.database.coreos.com";
    object(json!({
        "metadata": metadata(cluster, supervisor_name(&cluster.name_any())),
        "rules": [
            {
                "apiGroups": [group],
                "resources": ["etcdclusters"],
                "resourceNames": [cluster.name_any()],
                "verbs": ["get"],
            },
            {
                "apiGroups": [group],
                "resources": ["etcdmembers"],
                "resourceNames": members,
                "verbs": ["get", "list", "watch"],
            },
            {
                "apiGroups": [group],
                "resources": ["etcdmembers/status"],
                "resourceNames": members,
                "verbs": ["patch"],
            },
        ],
    }))
}

/// That they may.
pub fn role_binding(cluster: &EtcdCluster) -> RoleBinding {
    let name = supervisor_name(&cluster.name_any());
    object(json!({
        "metadata": metadata(cluster, name.clone()),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name}],
    }))
}

/// The record of a new member of that incarnation.
pub fn record(
    cluster: &EtcdCluster,
    ordinal: u32,
    intent: Intent,
    incarnation: u32,
    version: Option<Version>,
) -> EtcdMember {
    let cluster_name = cluster.name_any();
    let mut record = EtcdMember::new(
        &member_name(&cluster_name, ordinal),
        EtcdMemberSpec {
            cluster: cluster_name,
            ordinal,
            incarnation,
            intent,
            join: None,
            source: None,
            version,
            defragment: None,
        },
    );
    record.metadata.labels = Some(labels(cluster));
    record
}

/// The volume of a member of that incarnation.
pub fn volume(cluster: &EtcdCluster, member: &str, incarnation: u32) -> PersistentVolumeClaim {
    let storage = &cluster.spec.storage;
    let theirs = cluster.spec.pod.as_ref().and_then(|pod| pod.persistent_volume_claim_spec.as_ref());
    let spec = match theirs {
        Some(theirs) => json!(theirs),
        None => json!({
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage.storage_class,
            "resources": {"requests": {"storage": storage.size}},
        }),
    };
    let mut labels = labels(cluster);
    labels.insert(MEMBER_LABEL.to_owned(), member.to_owned());
    labels.insert(CLUSTER_UID_LABEL.to_owned(), cluster.uid().unwrap_or_default());
    if incarnation > 0 {
        labels.insert(INCARNATION_LABEL.to_owned(), incarnation.to_string());
    }
    object(json!({"metadata": {"name": member, "labels": labels}, "spec": spec}))
}

/// The image of etcd.
pub fn image(cluster: &EtcdCluster, default_repository: &str, version: Version) -> String {
    let repository = cluster.spec.repository.as_deref().unwrap_or(default_repository);
    format!("{}:v{version}", repository.trim_end_matches('/'))
}

/// What people want of pods, in short. What only the operator changed is no reason to
/// restart what runs.
pub fn wanted(cluster: &EtcdCluster) -> String {
    let mut wishes = vec![json!(cluster.spec.pod), json!(cluster.spec.repository)];
    // Volumes become larger without a new pod, and the others have no effect.
    if let Some(pod) = wishes.first_mut()
        && let Some(fields) = pod.as_object_mut()
    {
        let theirs = ["persistentVolumeClaimSpec", "busyboxImage", "DNSTimeoutInSecond", "ClusterDomain"]
            .map(|field| fields.remove(field));
        if fields.is_empty() && theirs.iter().any(Option::is_some) {
            *pod = Value::Null;
        }
    }
    if cluster.spec.options != Options::default() {
        wishes.push(json!(cluster.spec.options));
    }
    // Other Secrets are other volumes; how their certificates are made is nothing of the pod's.
    let secrets = tls::Wanted::by(cluster).secrets;
    wishes.extend((!secrets.is_empty()).then(|| json!(secrets)));
    let text = Value::from(wishes).to_string();
    Sha256::digest(text).iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

pub use seed::seed_pod;

/// What a pod is made with.
#[derive(Clone, Debug)]
pub struct Images<'a> {
    /// The repository of etcd, unless the cluster says otherwise.
    pub repository: &'a str,
    /// With the supervisor.
    pub supervisor: &'a str,
}

/// The pod of a member.
///
/// # Errors
/// When what people want makes no pod, in words.
pub fn pod(
    cluster: &EtcdCluster,
    member: &str,
    version: Version,
    images: &Images<'_>,
) -> Result<Pod, String> {
    let policy = cluster.spec.pod.clone().unwrap_or_default();
    let mut labels = policy.labels.clone();
    labels.extend(self::labels(cluster));
    labels.insert(MEMBER_LABEL.to_owned(), member.to_owned());
    let mut annotations = policy.annotations.clone();
    // Whoever execs into the pod means etcd.
    annotations.insert("kubectl.kubernetes.io/default-container".to_owned(), layout::CONTAINER.to_owned());
    annotations.insert(VERSION.to_owned(), version.to_string());
    annotations.insert(WANTED.to_owned(), wanted(cluster));
    let etcd = image(cluster, images.repository, version);
    let mut spec = pod_spec(cluster, &policy, member, &etcd, images.supervisor);
    tls::pod::add(&mut spec, cluster, version);
    let mut content = json!({
        "metadata": {"name": member, "labels": labels, "annotations": annotations},
        "spec": spec,
    });
    if let Some(etcd) = content.pointer_mut("/spec/containers/0").and_then(Value::as_object_mut) {
        let flags = cluster.spec.options.flags(version);
        etcd.extend((!flags.is_empty()).then(|| ("args".to_owned(), json!(flags))));
    }
    serde_json::from_value(content).map_err(|error| format!("spec.pod makes no pod: {error}"))
}

fn pod_spec(cluster: &EtcdCluster, policy: &PodPolicy, member: &str, etcd: &str, supervisor: &str) -> Value {
    let name = cluster.name_any();
    let restricted = json!({
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]},
    });
    let data = match cluster.spec.storage.empty_dir {
        true => json!({"name": "data", "emptyDir": {}}),
        false => json!({"name": "data", "persistentVolumeClaim": {"claimName": member}}),
    };
    let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
    // What people set comes first, so that nothing of it replaces what the supervisor has to know.
    let mut environment: Vec<_> = policy.etcd_env.iter().map(|variable| json!(variable)).collect();
    environment.extend([
        json!({"name": "CLUSTER", "value": name}),
        json!({"name": "CLUSTER_UID", "value": cluster.uid().unwrap_or_default()}),
        json!({"name": "POD_NAME", "valueFrom": field("metadata.name")}),
        json!({"name": "POD_NAMESPACE", "valueFrom": field("metadata.namespace")}),
        json!({"name": "POD_UID", "valueFrom": field("metadata.uid")}),
        json!({"name": layout::VERSION_VARIABLE, "valueFrom": field(&format!("metadata.annotations['{VERSION}']"))}),
        json!({"name": "ETCDCTL_API", "value": "3"}),
    ]);
    let resources = json!({"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}});
    let probe = |path: &str, period: u32, failures: u32| {
        json!({
            "httpGet": {"path": path, "port": "health"},
            "periodSeconds": period,
            "timeoutSeconds": 2,
            "failureThreshold": failures,
        })
    };
    let security = policy.security_context.as_ref().map_or_else(
        || {
            json!({
                "runAsNonRoot": true,
                "runAsUser": USER,
                "runAsGroup": USER,
                "fsGroup": USER,
                "fsGroupChangePolicy": "OnRootMismatch",
                "seccompProfile": {"type": "RuntimeDefault"},
            })
        },
        |theirs| json!(theirs),
    );
    json!({
        "hostname": member,
        "subdomain": name,
        "serviceAccountName": supervisor_name(&name),
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": 30,
        // A node that is gone for a while comes back with its data.
        "restartPolicy": "Always",
        "securityContext": security,
        "affinity": affinity(cluster, policy),
        "tolerations": policy.tolerations,
        "nodeSelector": policy.node_selector,
        "initContainers": [{
            "name": "install",
            "image": supervisor,
            "args": ["supervisor", "install", layout::PROGRAM],
            "volumeMounts": [{"name": "program", "mountPath": layout::PROGRAM_FOLDER}],
            "resources": resources,
            "securityContext": restricted,
        }],
        "containers": [{
            "name": layout::CONTAINER,
            "image": etcd,
            "command": [layout::PROGRAM, "supervisor", "run"],
            "env": environment,
            "ports": [
                {"name": "client", "containerPort": layout::CLIENT_PORT},
                {"name": "peer", "containerPort": layout::PEER_PORT},
                {"name": "metrics", "containerPort": layout::METRICS_PORT},
                {"name": "health", "containerPort": layout::HEALTH_PORT},
            ],
            // Whether it can serve: without a quorum nobody can, and nobody is restarted for that.
            "readinessProbe": probe("/readyz", 1, 3),
            // Whether the supervisor is alive; it looks after etcd.
            "livenessProbe": probe("/healthz", 10, 6),
            "resources": policy.resources.clone().unwrap_or_default(),
            "volumeMounts": [
                {"name": "data", "mountPath": layout::VOLUME},
                {"name": "program", "mountPath": layout::PROGRAM_FOLDER, "readOnly": true},
                {"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true},
                {"name": "tmp", "mountPath": "/tmp"},
            ],
            "securityContext": restricted,
        }],
        "volumes": [
            data,
            {"name": "program", "emptyDir": {}},
            {"name": "tmp", "emptyDir": {}},
            {"name": "token", "projected": {"sources": [
                {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
            ]}},
        ],
    })
}

/// Each member rather on a node of its own, or not otherwise. Where it has to be so, that is among those of one incarnation: who is to
/// take the place of others comes while they are there.
fn affinity(cluster: &EtcdCluster, policy: &PodPolicy) -> Value {
    let mut affinity = policy.affinity.as_ref().map_or_else(|| json!({}), |theirs| json!(theirs));
    if affinity.get("podAntiAffinity").is_none() {
        let term = json!({
            "labelSelector": {"matchLabels": {CLUSTER_LABEL: cluster.name_any()}},
            "topologyKey": "kubernetes.io/hostname",
        });
        let wish = match policy.anti_affinity {
            Some(true) => {
                let mut of_the_first = json!({"labelSelector": {"matchExpressions": [seed::of_the_first()]}});
                wheelhouse::overrides::merge(&mut of_the_first, &term);
                json!({"requiredDuringSchedulingIgnoredDuringExecution": [of_the_first]})
            }
            _ => {
                json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]})
            }
        };
        if let Some(fields) = affinity.as_object_mut() {
            fields.insert("podAntiAffinity".to_owned(), wish);
        }
    }
    affinity
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::api::EtcdClusterSpec;

    fn cluster(spec: Value) -> EtcdCluster {
        let spec: EtcdClusterSpec = serde_json::from_value(spec).unwrap();
        let mut cluster = EtcdCluster::new("example", spec);
        cluster.metadata.uid = Some("uid-1".to_owned());
        cluster
    }

    #[rstest]
    #[case("example-0", Some(0))]
    #[case("example-12", Some(12))]
    #[case("example-01", None)]
    #[case("example-+1", None)]
    #[case("example-two", None)]
    #[case("other-1", None)]
    #[case("example", None)]
    fn a_member_is_known_by_the_number_in_its_name(#[case] name: &str, #[case] ordinal: Option<u32>) {
        assert_eq!(ordinal_in("example", name), ordinal);
        if let Some(ordinal) = ordinal {
            assert_eq!(member_name("example", ordinal), name);
        }
    }

    #[rstest]
    #[case(1, 0, 1)]
    #[case(2, 2, 2)]
    #[case(3, 3, 2)]
    #[case(4, 4, 3)]
    #[case(5, 5, 3)]
    #[case(6, 6, 4)]
    #[case(7, 7, 4)]
    #[case::while_members_are_still_to_go(3, 5, 3)]
    #[case::while_members_are_still_to_come(7, 3, 4)]
    fn a_drain_leaves_a_quorum_and_of_one_or_two_takes_none(
        #[case] size: i32,
        #[case] voters: usize,
        #[case] stay: i32,
    ) {
        let budget = disruption_budget(&cluster(json!({"size": size})), voters);
        let spec = budget.spec.unwrap();
        assert_eq!(serde_json::to_value(spec.min_available).unwrap(), json!(stay));
        assert_eq!(spec.selector.unwrap().match_labels, Some(labels(&cluster(json!({"size": size})))));
    }

    /// The pod of the first member, as the API server gets it.
    fn pod_of(cluster: &EtcdCluster) -> Value {
        let images = Images { repository: "r", supervisor: "s" };
        serde_json::to_value(pod(cluster, "example-0", Version::new(3, 6, 16), &images).unwrap()).unwrap()
    }

    fn anti_affinity(theirs: &str) -> Value {
        json!({theirs: [{"labelSelector": {"matchLabels": {"team": "a"}}, "topologyKey": "zone"}]})
    }

    #[rstest]
    #[case::labels(json!({"labels": {"team": "a"}}), "/metadata/labels/team", json!("a"))]
    #[case::annotations(
        json!({"annotations": {"prometheus.io/scrape": "true"}}),
        "/metadata/annotations/prometheus.io~1scrape",
        json!("true")
    )]
    #[case::resources(
        json!({"resources": {"limits": {"memory": "200Mi"}, "requests": {"cpu": "200m"}}}),
        "/spec/containers/0/resources",
        json!({"limits": {"memory": "200Mi"}, "requests": {"cpu": "200m"}})
    )]
    #[case::affinity_to_nodes(
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}}),
        "/spec/affinity/nodeAffinity",
        json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}})
    )]
    #[case::affinity_in_place_of_ours(
        json!({"affinity": {"podAntiAffinity": anti_affinity("requiredDuringSchedulingIgnoredDuringExecution")}}),
        "/spec/affinity/podAntiAffinity",
        anti_affinity("requiredDuringSchedulingIgnoredDuringExecution")
    )]
    #[case::anti_affinity(
        json!({"antiAffinity": true}),
        "/spec/affinity/podAntiAffinity",
        json!({"requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "labelSelector": {
                    "matchLabels": {"etcd_cluster": "example"},
                    "matchExpressions": [{"key": INCARNATION_LABEL, "operator": "DoesNotExist"}],
                },
                "topologyKey": "kubernetes.io/hostname",
            },
        ]})
    )]
    #[case::tolerations(
        json!({"tolerations": [{"key": "dedicated", "operator": "Exists"}]}),
        "/spec/tolerations",
        json!([{"key": "dedicated", "operator": "Exists"}])
    )]
    #[case::node_selector(json!({"nodeSelector": {"diskType": "ssd"}}), "/spec/nodeSelector", json!({"diskType": "ssd"}))]
    #[case::environment(
        json!({"etcdEnv": [{"name": "ETCD_AUTO_COMPACTION_RETENTION", "value": "1"}]}),
        "/spec/containers/0/env/0",
        json!({"name": "ETCD_AUTO_COMPACTION_RETENTION", "value": "1"})
    )]
    #[case::security_context(
        json!({"securityContext": {"runAsNonRoot": true, "runAsUser": 9000, "fsGroup": 9000}}),
        "/spec/securityContext",
        json!({"runAsNonRoot": true, "runAsUser": 9000, "fsGroup": 9000})
    )]
    fn what_people_want_of_pods_is_in_the_pods(
        #[case] policy: Value,
        #[case] path: &str,
        #[case] expected: Value,
    ) {
        let (plain, theirs) = (cluster(json!({"size": 3})), cluster(json!({"size": 3, "pod": policy})));
        assert_eq!(pod_of(&theirs).pointer(path), Some(&expected));
        assert_ne!(pod_of(&plain).pointer(path), Some(&expected), "it is so without being asked for");
        assert_ne!(wanted(&plain), wanted(&theirs), "pods that are there are made anew");
    }

    #[test]
    fn members_are_rather_on_nodes_of_their_own() {
        let term = json!({"labelSelector": {"matchLabels": {"etcd_cluster": "example"}}, "topologyKey": "kubernetes.io/hostname"});
        let rather = json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]});
        for policy in [Value::Null, json!({"antiAffinity": false}), json!({"affinity": {"nodeAffinity": {}}})]
        {
            let pod = pod_of(&cluster(json!({"size": 3, "pod": policy})));
            assert_eq!(pod.pointer("/spec/affinity/podAntiAffinity"), Some(&rather), "{policy}");
        }
    }

    #[rstest]
    #[case::busybox(json!({"busyboxImage": "busybox:1.28.0-glibc"}))]
    #[case::dns(json!({"DNSTimeoutInSecond": 30}))]
    #[case::domain(json!({"ClusterDomain": ".cluster.local"}))]
    #[case::volumes(json!({"persistentVolumeClaimSpec": {"accessModes": ["ReadWriteOnce"]}}))]
    fn what_is_no_wish_about_pods_changes_none(#[case] policy: Value) {
        let (plain, theirs) = (cluster(json!({"size": 3})), cluster(json!({"size": 3, "pod": policy})));
        assert_eq!(pod_of(&plain), pod_of(&theirs));
    }

    #[test]
    fn a_variable_of_somebody_does_not_tell_a_supervisor_who_it_is() {
        let theirs = ["CLUSTER", "CLUSTER_UID", "POD_NAME", "POD_NAMESPACE", "POD_UID"]
            .map(|name| json!({"name": name, "value": "another"}));
        let pod = pod_of(&cluster(json!({"size": 3, "pod": {"etcdEnv": theirs}})));
        let environment = pod.pointer("/spec/containers/0/env").and_then(Value::as_array).unwrap();
        for name in ["CLUSTER", "CLUSTER_UID", "POD_NAME", "POD_NAMESPACE", "POD_UID"] {
            // Of several with one name the last counts.
            let last = environment.iter().rfind(|variable| variable["name"] == name).unwrap();
            assert_ne!(last["value"], "another", "{name}");
        }
    }

    #[rstest]
    #[case::of_the_operator(Value::Null, "r:v3.6.16")]
    #[case::of_theirs(json!("docker.io/prgcont/etcd"), "docker.io/prgcont/etcd:v3.6.16")]
    #[case::with_a_port(json!("registry:5000/etcd"), "registry:5000/etcd:v3.6.16")]
    #[case::with_a_slash(json!("registry/etcd/"), "registry/etcd:v3.6.16")]
    fn the_image_is_in_the_repository_under_the_version(#[case] repository: Value, #[case] image: &str) {
        let mut spec = json!({"size": 3});
        if !repository.is_null() {
            spec["repository"] = repository;
        }
        assert_eq!(pod_of(&cluster(spec)).pointer("/spec/containers/0/image"), Some(&json!(image)));
    }

    #[test]
    fn data_is_on_a_volume_of_the_member_unless_it_is_to_be_in_the_pod() {
        let data = |spec: Value| pod_of(&cluster(spec)).pointer("/spec/volumes/0").cloned().unwrap();
        let claim = json!({"name": "data", "persistentVolumeClaim": {"claimName": "example-0"}});
        assert_eq!(data(json!({"size": 3})), claim);
        let in_pods = json!({"size": 3, "storage": {"emptyDir": true}});
        assert_eq!(data(in_pods), json!({"name": "data", "emptyDir": {}}));
    }

    #[rstest]
    #[case::as_it_is(json!({}), json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "8Gi"}}}))]
    #[case::as_they_want(
        json!({"size": "20Gi", "storageClass": "fast"}),
        json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "20Gi"}}, "storageClassName": "fast"})
    )]
    fn a_volume_has_its_size_and_class(#[case] storage: Value, #[case] expected: Value) {
        let cluster = cluster(json!({"size": 3, "storage": storage}));
        assert_eq!(serde_json::to_value(volume(&cluster, "example-0", 0).spec).unwrap(), expected);
    }

    #[test]
    fn members_are_found_before_they_are_ready_and_clients_find_those_that_are() {
        let cluster = cluster(json!({"size": 3}));
        let seen = |service: Service| {
            let spec = service.spec.unwrap();
            let ports: Vec<_> = spec.ports.unwrap().iter().map(|port| port.port).collect();
            assert_eq!(spec.selector, Some(labels(&cluster)));
            (service.metadata.name.unwrap(), spec.cluster_ip, spec.publish_not_ready_addresses, ports)
        };
        let members = ("example".to_owned(), Some("None".to_owned()), Some(true), vec![2379, 2380]);
        assert_eq!(seen(peer_service(&cluster)), members);
        assert_eq!(seen(client_service(&cluster)), ("example-client".to_owned(), None, None, vec![2379]));
        let pod = pod_of(&cluster);
        for (label, value) in labels(&cluster) {
            assert_eq!(pod["metadata"]["labels"][label], json!(value), "the Services select it");
        }
        assert_eq!(pod["spec"]["subdomain"], "example", "members have names of their own there");
    }

    #[test]
    fn kubelet_restarts_a_pod_only_if_its_supervisor_is_dead() {
        let etcd = pod_of(&cluster(json!({"size": 3})))["spec"]["containers"][0].clone();
        let probes = ["livenessProbe", "readinessProbe", "startupProbe"];
        let asked = probes.map(|probe| etcd.pointer(&format!("/{probe}/httpGet/path")).cloned());
        assert_eq!(asked, [Some(json!("/healthz")), Some(json!("/readyz")), None]);
    }

    #[test]
    fn the_original_words_for_volumes_are_understood() {
        let theirs = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        let cluster = cluster(json!({"size": 3, "pod": {"persistentVolumeClaimSpec": theirs}}));
        assert_eq!(serde_json::to_value(volume(&cluster, "example-0", 0).spec).unwrap(), theirs);
    }

    #[test]
    fn an_operator_that_changed_restarts_nobody() {
        let cluster = cluster(json!({"size": 3}));
        let images = |supervisor| Images { repository: "r", supervisor };
        let made = |supervisor| {
            pod(&cluster, "example-0", Version::new(3, 6, 16), &images(supervisor)).unwrap().metadata
        };
        assert_eq!(made("operator:1").annotations, made("operator:2").annotations);
    }

    #[test]
    fn a_pod_with_tls_has_its_certificates_and_an_etcdctl_that_is_ready_to_use() {
        let images = Images { repository: "r", supervisor: "s" };
        let made = |tls| {
            let cluster = cluster(json!({"size": 3, "TLS": tls}));
            let pod = pod(&cluster, "example-0", Version::new(3, 5, 35), &images).unwrap();
            (wanted(&cluster), serde_json::to_value(pod.spec).unwrap())
        };
        let (for_the_first, automatic) = made(json!({"automatic": {}}));
        let (_, plain) = made(Value::Null);
        let added = |list: &str| {
            let of = |spec: &Value| spec.pointer(list).and_then(Value::as_array).cloned().unwrap_or_default();
            let known = of(&plain);
            of(&automatic).into_iter().filter(|item| !known.contains(item)).collect::<Vec<_>>()
        };
        let lists = ["/volumes", "/containers/0/volumeMounts", "/containers/0/env"].map(added);
        insta::assert_snapshot!(serde_json::to_string_pretty(&lists).unwrap());
        let (for_another, _) = made(json!({"automatic": {"overlapSeconds": 5}}));
        assert_eq!(for_the_first, for_another, "nobody is restarted for that");
        let theirs = |name| made(json!({"static": {"member": {"peerSecret": name}}})).0;
        assert_ne!(theirs("a"), theirs("b"), "another Secret is another pod");
    }

    #[test]
    fn a_pod_meets_the_restricted_standard_and_has_no_flag_that_begins_anything() {
        let images =
            Images { repository: "wheelhouse.dev/etcd", supervisor: "wheelhouse.dev/etcd-operator:1" };
        let pod = pod(&cluster(json!({"size": 3})), "example-0", Version::new(3, 6, 16), &images).unwrap();
        insta::assert_snapshot!(serde_json::to_string_pretty(&pod).unwrap());
    }
}
