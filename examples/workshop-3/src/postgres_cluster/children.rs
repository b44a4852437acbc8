//! What a PostgreSQL is made of: a password, a volume, a name, and one pod. All of it goes with its PostgresCluster:
//! a volume that stayed would have the password of before.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{StatefulSet, StatefulSetSpec},
        core::v1::{
            Capabilities, Container, ContainerPort, EnvVar, EnvVarSource, ExecAction, PersistentVolumeClaim,
            PersistentVolumeClaimSpec, PersistentVolumeClaimVolumeSource, PodSecurityContext, PodSpec,
            PodTemplateSpec, Probe, SeccompProfile, SecretKeySelector, SecurityContext, Service, ServicePort,
            ServiceSpec, Volume, VolumeMount, VolumeResourceRequirements,
        },
    },
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::LabelSelector},
};
use kube::{ResourceExt as _, core::ObjectMeta};
use wheelhouse::plan::{EnsureSecret, SecretValue};

use super::api::PostgresCluster;

/// What every server runs: `images/postgres` of the tree that this example is in.
const IMAGE: &str = "wheelhouse.dev/postgres:0.1.0";
/// Which PostgreSQL that image has, whatever is asked for.
pub(super) const SERVER: &str = "17";
const PORT: i32 = 5432;
/// The user `postgres` of the image.
const USER: i64 = 65532;
/// Where the image has its data: in a folder of this volume.
const VOLUME: &str = "/data";

/// The password of the user `postgres`.
pub(super) fn password(resource: &PostgresCluster) -> EnsureSecret {
    let values = BTreeMap::from([("password".to_owned(), SecretValue::Password { length: 24 })]);
    EnsureSecret { name: resource.name_any(), labels: labels(resource), values }
}

/// Where the data is, whichever pod has it.
pub(super) fn volume(resource: &PostgresCluster) -> PersistentVolumeClaim {
    let request = BTreeMap::from([("storage".to_owned(), Quantity("1Gi".to_owned()))]);
    PersistentVolumeClaim {
        metadata: metadata(resource),
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            resources: Some(VolumeResourceRequirements { requests: Some(request), ..Default::default() }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Where clients find the server.
pub(super) fn service(resource: &PostgresCluster) -> Service {
    let port = ServicePort { name: Some("postgres".to_owned()), port: PORT, ..Default::default() };
    Service {
        metadata: metadata(resource),
        spec: Some(ServiceSpec {
            selector: Some(labels(resource)),
            ports: Some(vec![port]),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// One pod, which comes back under its name and with its volume when it is lost.
pub(super) fn seed(resource: &PostgresCluster) -> StatefulSet {
    let labels = labels(resource);
    StatefulSet {
        metadata: metadata(resource),
        spec: Some(StatefulSetSpec {
            replicas: Some(1),
            service_name: Some(resource.name_any()),
            selector: LabelSelector { match_labels: Some(labels.clone()), ..Default::default() },
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta { labels: Some(labels), ..Default::default() }),
                spec: Some(pod(resource)),
            },
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn pod(resource: &PostgresCluster) -> PodSpec {
    let password = EnvVar {
        name: "POSTGRES_PASSWORD".to_owned(),
        value_from: Some(EnvVarSource {
            secret_key_ref: Some(SecretKeySelector {
                name: resource.name_any(),
                key: "password".to_owned(),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    };
    let is_ready = ["pg_isready", "--username=postgres", "--host=127.0.0.1"];
    let container = Container {
        name: "postgres".to_owned(),
        image: Some(IMAGE.to_owned()),
        env: Some(vec![password]),
        ports: Some(vec![ContainerPort {
            name: Some("postgres".to_owned()),
            container_port: PORT,
            ..Default::default()
        }]),
        volume_mounts: Some(vec![VolumeMount {
            name: "data".to_owned(),
            mount_path: VOLUME.to_owned(),
            ..Default::default()
        }]),
        readiness_probe: Some(Probe {
            exec: Some(ExecAction { command: Some(is_ready.map(str::to_owned).to_vec()) }),
            period_seconds: Some(2),
            ..Default::default()
        }),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), ..Default::default() }),
            ..Default::default()
        }),
        ..Default::default()
    };
    let volume = Volume {
        name: "data".to_owned(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: resource.name_any(),
            ..Default::default()
        }),
        ..Default::default()
    };
    PodSpec {
        containers: vec![container],
        volumes: Some(vec![volume]),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(USER),
            fs_group: Some(USER),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn metadata(resource: &PostgresCluster) -> ObjectMeta {
    ObjectMeta { name: Some(resource.name_any()), labels: Some(labels(resource)), ..Default::default() }
}

fn labels(resource: &PostgresCluster) -> BTreeMap<String, String> {
    BTreeMap::from([
        ("app".to_owned(), "postgres".to_owned()),
        ("postgres_cluster".to_owned(), resource.name_any()),
    ])
}
