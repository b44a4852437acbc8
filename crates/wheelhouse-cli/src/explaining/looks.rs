//! Where an operator looks, as its pods are told: an operator may run several times in a cluster, each for some namespaces.
//! Pure.

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use kube::ResourceExt as _;

/// Where the pods of an operator for its own namespace learn which that is.
const OWN_NAMESPACE: &str = "MY_POD_NAMESPACE";
const WATCH_NAMESPACE: &str = "WATCH_NAMESPACE";

/// What an operator's pods are told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Looks {
    /// At these namespaces.
    namespaces: Vec<String>,
    /// At all of them.
    cluster_wide: bool,
    /// At its own one, unless it is told another.
    at_its_own: bool,
    /// Whether it registers its kinds itself.
    installs_crds: bool,
}

impl Looks {
    pub(super) fn of(spec: &PodSpec) -> Self {
        let mut looks = Self::default();
        for container in &spec.containers {
            let mut arguments = container.args.iter().flatten().map(String::as_str);
            while let Some(argument) = arguments.next() {
                match argument {
                    "--cluster-wide" | "-cluster-wide" => looks.cluster_wide = true,
                    "--install-crds" => looks.installs_crds = true,
                    "--namespace" => looks.add(arguments.next().unwrap_or_default()),
                    other => looks.add(other.strip_prefix("--namespace=").unwrap_or_default()),
                }
            }
            for variable in container.env.iter().flatten() {
                match (variable.name.as_str(), variable.value.as_deref()) {
                    (OWN_NAMESPACE, _) => looks.at_its_own = true,
                    (WATCH_NAMESPACE, Some(value)) => looks.add(value),
                    _ => {}
                }
            }
        }
        looks
    }

    fn add(&mut self, names: &str) {
        self.namespaces.extend(names.split(',').filter(|name| !name.is_empty()).map(str::to_owned));
    }

    /// Whether it was told to look at all namespaces.
    pub(super) fn is_cluster_wide(&self) -> bool {
        self.cluster_wide
    }

    /// How much it is meant for a namespace when it runs in another, or the same: for just this one, for all, or not at all.
    fn is_for(&self, namespace: Option<&str>, its_own: &str) -> MeantFor {
        let is_everywhere = self.cluster_wide || self.namespaces.is_empty() && !self.at_its_own;
        match namespace {
            _ if is_everywhere => MeantFor::All,
            Some(namespace) if self.namespaces.iter().any(|name| name == namespace) => MeantFor::This,
            Some(namespace) if self.namespaces.is_empty() && namespace == its_own => MeantFor::This,
            _ => MeantFor::Others,
        }
    }

    /// The flags that its verbs take, so that they print what was installed there.
    pub(super) fn flags(&self, install_namespace: &str) -> Vec<String> {
        let mut flags = vec!["--install-namespace".to_owned(), install_namespace.to_owned()];
        for name in &self.namespaces {
            flags.extend(["--namespace".to_owned(), name.clone()]);
        }
        let switches = [(self.cluster_wide, "--cluster-wide"), (self.installs_crds, "--install-crds")];
        flags.extend(switches.into_iter().filter(|(is_on, _)| *is_on).map(|(_, flag)| flag.to_owned()));
        flags
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MeantFor {
    This,
    All,
    Others,
}

/// Those of an operator's pods that look after a namespace, or after what is in none: those that are for it in particular,
/// and otherwise those that are for all.
pub(super) fn after<'a>(pods: &'a [Pod], namespace: Option<&str>) -> Vec<&'a Pod> {
    let meant = |pod: &Pod| {
        let looks = pod.spec.as_ref().map(Looks::of).unwrap_or_default();
        looks.is_for(namespace, &pod.namespace().unwrap_or_default())
    };
    let which = |wanted: MeantFor| pods.iter().filter(|pod| meant(pod) == wanted).collect::<Vec<_>>();
    match which(MeantFor::This) {
        none if none.is_empty() => which(MeantFor::All),
        some => some,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn pod(namespace: &str, arguments: &[&str], variables: &[(&str, Option<&str>)]) -> Pod {
        let variables: Vec<_> =
            variables.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        serde_json::from_value(json!({
            "metadata": {"name": format!("etcd-in-{namespace}"), "namespace": namespace},
            "spec": {"containers": [{"name": "operator", "args": arguments, "env": variables}]},
        }))
        .unwrap()
    }

    /// One for its own namespace, in each of two; one for two others; one for all.
    fn pods() -> Vec<Pod> {
        let own = [(OWN_NAMESPACE, None)];
        vec![
            pod("etc", &["run"], &own),
            pod("etc2", &["run", "--install-crds"], &own),
            pod("teams", &["run", "--namespace", "team-a", "--namespace=team-b"], &own),
            pod("others", &["run"], &[(WATCH_NAMESPACE, Some("team-c,team-d"))]),
            pod("wide", &["run", "--cluster-wide"], &own),
        ]
    }

    #[rstest]
    #[case::its_own(Some("etc"), "etcd-in-etc")]
    #[case::its_own_in_another(Some("etc2"), "etcd-in-etc2")]
    #[case::one_of_two(Some("team-b"), "etcd-in-teams")]
    #[case::of_a_variable(Some("team-d"), "etcd-in-others")]
    #[case::nobodys_in_particular(Some("teams"), "etcd-in-wide")]
    #[case::of_the_cluster(None, "etcd-in-wide")]
    fn who_looks_after_a_namespace_is_asked(#[case] namespace: Option<&str>, #[case] expected: &str) {
        let pods = pods();
        let names: Vec<_> = after(&pods, namespace).iter().map(|pod| pod.name_any()).collect();
        assert_eq!(names, [expected]);
    }

    #[test]
    fn where_nobody_looks_nobody_is_asked() {
        let pods = pods();
        assert!(after(&pods[..2], Some("default")).is_empty() && after(&pods[..2], None).is_empty());
    }

    #[test]
    fn the_rules_are_printed_for_where_it_was_installed() {
        let flags: Vec<_> = pods()
            .iter()
            .map(|pod| Looks::of(pod.spec.as_ref().unwrap()).flags(&pod.namespace().unwrap()).join(" "))
            .collect();
        assert_eq!(
            flags,
            [
                "--install-namespace etc",
                "--install-namespace etc2 --install-crds",
                "--install-namespace teams --namespace team-a --namespace team-b",
                "--install-namespace others --namespace team-c --namespace team-d",
                "--install-namespace wide --cluster-wide",
            ]
        );
    }
}
