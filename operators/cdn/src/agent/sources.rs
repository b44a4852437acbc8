//! Where the pods of sources are: from EndpointSlices. Pure.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt as _;

/// Which Service a slice is of.
const SERVICE: &str = "kubernetes.io/service-name";

/// The addresses of the pods that are ready, by the name of their Service.
pub(crate) fn pods(slices: &[Arc<EndpointSlice>]) -> BTreeMap<String, Vec<SocketAddr>> {
    let mut found: BTreeMap<String, Vec<SocketAddr>> = BTreeMap::new();
    for slice in slices {
        let Some(service) = slice.labels().get(SERVICE) else { continue };
        let ports = slice.ports.iter().flatten();
        let port = ports.filter(|port| port.name.as_deref() == Some("http")).find_map(|port| port.port);
        let Some(port) = port.and_then(|port| u16::try_from(port).ok()) else { continue };
        for endpoint in slice.endpoints.iter().flatten() {
            let is_ready =
                endpoint.conditions.as_ref().is_none_or(|conditions| conditions.ready != Some(false));
            let address = endpoint.addresses.first().and_then(|address| address.parse::<IpAddr>().ok());
            if let Some(address) = address.filter(|_| is_ready) {
                found.entry(service.clone()).or_default().push(SocketAddr::new(address, port));
            }
        }
    }
    for addresses in found.values_mut() {
        addresses.sort();
        addresses.dedup();
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_that_are_ready_are_found_in_all_slices_of_their_service() {
        let slice = |service: &str, endpoints: serde_json::Value| {
            let slice = json!({
                "metadata": {"name": "s", "labels": {SERVICE: service}},
                "addressType": "IPv4",
                "ports": [{"name": "https", "port": 8443}, {"name": "http", "port": 8080}],
                "endpoints": endpoints,
            });
            Arc::new(serde_json::from_value::<EndpointSlice>(slice).unwrap())
        };
        let slices = [
            slice(
                "a",
                json!([
                    {"addresses": ["10.0.0.2"], "conditions": {"ready": true}},
                    {"addresses": ["10.0.0.9"], "conditions": {"ready": false, "terminating": true}},
                ]),
            ),
            slice("a", json!([{"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2"], "conditions": {}}])),
            slice("b", json!([])),
        ];
        let found = pods(&slices);
        assert_eq!(found["a"], ["10.0.0.1:8080", "10.0.0.2:8080"].map(|text| text.parse().unwrap()));
        assert!(!found.contains_key("b"));
    }
}
