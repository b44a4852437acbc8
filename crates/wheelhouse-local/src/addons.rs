//! What a bare control plane lacks to be a cluster that people expect: DNS, a
//! default StorageClass, and the rules that let their programs in.
//!
//! CoreDNS and the provisioner run beside the control plane rather than in pods:
//! they need no image, start before any node is ready, and a node that is cut
//! off does not take them along.

use std::path::Path;

use serde_json::json;

use crate::{
    address_plan::{AddressPlan, MAX_NODES},
    certificates::Subject,
    control_plane::{KUBELET_CLIENT, Kit},
    error::Result,
    folders,
    machine::Machine,
    machine_image,
    manifests::Manifest,
    node,
    volumes::{self, PLAIN_CLASS, SIZED_CLASS},
};

const DNS_USER: &str = "system:coredns";
/// Where CoreDNS says that it is ready, at the control plane's address.
pub(crate) const READY_PORT: u16 = 8181;
const PROVISIONER_USER: &str = "system:local-path-provisioner";

/// Starts CoreDNS and the storage provisioner beside the control plane.
pub(crate) async fn ensure_daemons(machine: &Machine, plan: &AddressPlan, kit: &Kit<'_>) -> Result<()> {
    let Kit { settings, credentials, binaries } = kit;
    let kubeconfig = settings.ensure_kubeconfig(credentials, "coredns", &Subject::user(DNS_USER))?;
    let corefile = machine.folder().join("Corefile");
    folders::write_file(&corefile, corefile_text(plan, &kubeconfig), 0o644)?;
    let args = ["-conf".to_owned(), corefile.to_string_lossy().into_owned()];
    machine.ensure_daemon("coredns", &binaries.program("coredns"), &args).await?;

    let kubeconfig =
        settings.ensure_kubeconfig(credentials, "provisioner", &Subject::user(PROVISIONER_USER))?;
    let args = [
        "start".to_owned(),
        format!("--kubeconfig={}", kubeconfig.display()),
        "--namespace=kube-system".to_owned(),
        "--configmap-name=local-path-config".to_owned(),
        format!("--helper-image={}", machine_image::NAME),
        "--service-account-name=local-path-provisioner".to_owned(),
    ];
    machine.ensure_daemon("provisioner", &binaries.program("local-path-provisioner"), &args).await
}

fn corefile_text(plan: &AddressPlan, kubeconfig: &Path) -> String {
    // There is no `forward`: names outside of the cluster do not exist here, and a
    // client is told so at once. Nor is there a `cache`: what the plugin for Kubernetes
    // answers it has in memory, and a pod that has just come would not be found for seconds.
    format!(
        "\
.:53 {{
    errors
    ready {address}:{READY_PORT}
    kubernetes cluster.local {reverse} {{
        kubeconfig {kubeconfig}
        ttl 5
    }}
    template ANY ANY . {{
        rcode NXDOMAIN
    }}
}}
",
        address = plan.control_plane(),
        reverse = plan.whole(),
        kubeconfig = kubeconfig.display(),
    )
}

/// The objects of the cluster in `folder` with so many nodes.
pub(crate) fn manifests(plan: &AddressPlan, folder: &Path, nodes: usize) -> Result<Vec<Manifest>> {
    let mut yaml = format!(
        r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: "wheelhouse:kubelet-client"}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:kubelet-api-admin"}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: {KUBELET_CLIENT}}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: "{DNS_USER}"}}
rules:
- {{apiGroups: [""], resources: [services, pods, namespaces, nodes], verbs: [get, list, watch]}}
- {{apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: "{DNS_USER}"}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "{DNS_USER}"}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: "{DNS_USER}"}}]
---
apiVersion: v1
kind: Service
metadata:
  name: kube-dns
  namespace: kube-system
  labels: {{k8s-app: kube-dns, kubernetes.io/name: CoreDNS}}
spec:
  clusterIP: {dns}
  ports:
  - {{name: dns, port: 53, protocol: UDP}}
  - {{name: dns-tcp, port: 53, protocol: TCP}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: kube-dns-control-plane
  namespace: kube-system
  labels: {{kubernetes.io/service-name: kube-dns}}
addressType: IPv4
ports:
- {{name: dns, port: 53, protocol: UDP}}
- {{name: dns-tcp, port: 53, protocol: TCP}}
endpoints:
- {{addresses: ["{control_plane}"], conditions: {{ready: true}}}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {{name: local-path-provisioner, namespace: kube-system}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: "{PROVISIONER_USER}"}}
rules:
- {{apiGroups: [""], resources: [nodes, persistentvolumeclaims, configmaps, pods, pods/log], verbs: [get, list, watch]}}
- {{apiGroups: [""], resources: [persistentvolumes], verbs: [get, list, watch, create, patch, update, delete]}}
- {{apiGroups: [""], resources: [events], verbs: [create, patch]}}
- {{apiGroups: [storage.k8s.io], resources: [storageclasses], verbs: [get, list, watch]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: "{PROVISIONER_USER}"}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "{PROVISIONER_USER}"}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: "{PROVISIONER_USER}"}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: "{PROVISIONER_USER}", namespace: kube-system}}
rules:
- {{apiGroups: [""], resources: [pods], verbs: [create, patch, update, delete]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: "{PROVISIONER_USER}", namespace: kube-system}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: "{PROVISIONER_USER}"}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: "{PROVISIONER_USER}"}}]
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: {PLAIN_CLASS}
  annotations:
    storageclass.kubernetes.io/is-default-class: "true"
    # Volumes of the type `local`, because fsGroup is not applied to those of the type `hostPath`.
    defaultVolumeType: local
provisioner: rancher.io/local-path
volumeBindingMode: WaitForFirstConsumer
reclaimPolicy: Delete
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: {SIZED_CLASS}
  annotations: {{defaultVolumeType: local}}
provisioner: rancher.io/local-path
volumeBindingMode: WaitForFirstConsumer
reclaimPolicy: Delete
"#,
        dns = plan.dns_service(),
        control_plane = plan.control_plane(),
    );
    yaml.push_str(&provisioner_config(folder));
    for number in (1..=MAX_NODES).take(nodes) {
        yaml.push_str(&format!(
            "---\napiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\nspec: {{podCIDR: {pods}, podCIDRs: [{pods}]}}\n",
            name = node::name(number),
            pods = plan.pods_of(number)
        ));
    }
    Manifest::read_all(Path::new("addons.rs"), &yaml)
}

/// Where each node keeps its volumes, and what the helper pods do there. All nodes that could be
/// there are named, because the provisioner reads this only when it starts.
fn provisioner_config(cluster: &Path) -> String {
    let node_paths = |class: &str| -> Vec<_> {
        (1..=MAX_NODES)
            .map(node::name)
            .map(|name| json!({"node": name, "paths": [volumes::folder(&cluster.join(&name), class)]}))
            .collect()
    };
    let classes: serde_json::Map<_, _> = [PLAIN_CLASS, SIZED_CLASS]
        .map(|class| (class.to_owned(), json!({"nodePathMap": node_paths(class)})))
        .into_iter()
        .collect();
    // Privileged, and among the machine's processes: it mounts for the machine.
    let helper = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "helper-pod"},
        "spec": {
            "priorityClassName": "system-node-critical",
            "terminationGracePeriodSeconds": 0,
            "hostPID": true,
            // Every pod with a new volume waits for this one: it has what it needs, and nothing that takes time to make.
            "hostNetwork": true,
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "containers": [{
                "name": "helper-pod",
                "image": machine_image::NAME,
                "imagePullPolicy": "Never",
                "securityContext": {"privileged": true},
            }],
        },
    });
    let config = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "local-path-config", "namespace": "kube-system"},
        "data": {
            "config.json": json!({"storageClassConfigs": classes}).to_string(),
            "setup": volumes::setup_script(),
            "teardown": volumes::teardown_script(),
            "helperPod.yaml": helper.to_string(),
        },
    });
    format!("---\n{config}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_objects_of_a_cluster_read_as_manifests() {
        let plan = AddressPlan::of_slot(0).unwrap();
        let kinds: Vec<_> = manifests(&plan, Path::new("/state/demo"), 1)
            .unwrap()
            .iter()
            .map(|each| format!("{} {}", each.kind(), each.name()))
            .collect();
        insta::assert_snapshot!(kinds.join("\n"));
    }

    #[test]
    fn dns_answers_for_the_cluster_and_asks_nobody_else() {
        let text = corefile_text(&AddressPlan::of_slot(0).unwrap(), Path::new("/state/coredns.kubeconfig"));
        assert!(!text.contains("forward"));
        insta::assert_snapshot!(text);
    }
}
