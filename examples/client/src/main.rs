//! The client of the talk: a native ConfigMap and a CdnCluster, created with the types
//! of the operator's crate, in the namespace that the kubeconfig selects.

use cdn_operator::api::{CdnCluster, CdnClusterSpec, Role};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, api::PostParams, core::ObjectMeta};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let client = Client::try_default().await?;

    let config_maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let config_map = ConfigMap {
        metadata: ObjectMeta { name: Some("cmap".to_owned()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    };
    config_maps.create(&PostParams::default(), &config_map).await?;
    println!("created ConfigMap cmap");

    let clusters: Api<CdnCluster> = Api::default_namespaced(client);
    let cluster = CdnCluster::new("cdn", CdnClusterSpec::new(Role::Balancer));
    clusters.create(&PostParams::default(), &cluster).await?;
    println!("created CdnCluster cdn");
    Ok(())
}
