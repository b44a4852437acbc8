//! Where everything is in a pod: what the operator mounts and the agent finds.

/// The agent's own folder.
pub(crate) const AGENT_FOLDER: &str = "/agent";
/// What nginx and the agent share, in memory.
pub(crate) const RUN_FOLDER: &str = "/run/cdn";
/// What is cached.
pub(crate) const CACHE_FOLDER: &str = "/cache";
/// The certificate of HTTPS.
pub(crate) const TLS_FOLDER: &str = "/secrets/tls";
/// What nginx reads.
pub(crate) const NGINX_CONFIGURATION: &str = "/run/cdn/nginx.conf";

/// Where requests come to.
pub(crate) const HTTP_PORT: u16 = 8080;
/// Where those with TLS come to.
pub(crate) const HTTPS_PORT: u16 = 8443;
/// Where nginx says that it is well, and what it serves.
pub(crate) const HEALTH_PORT: u16 = 8081;
/// Where the agent says how it is.
pub(crate) const AGENT_PORT: u16 = 9113;

/// The agent.
pub(crate) fn agent() -> String {
    format!("{AGENT_FOLDER}/cdn-agent")
}

/// Where the authorities of a Secret are.
pub(crate) fn authority_folder(secret: &str) -> String {
    format!("/secrets/ca/{secret}")
}

/// How many bytes a size such as `10Gi` is.
pub(crate) fn bytes(size: &str) -> Option<u64> {
    let digits = size.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match size.get(digits.len()..)? {
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// That size and as much again, and a little more.
pub(crate) fn with_leeway(size: &str) -> String {
    let bytes = bytes(size).unwrap_or(1 << 30);
    format!("{}Mi", (bytes.saturating_mul(2) >> 20) + 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        assert_eq!([Some(10 << 30), Some(1 << 10), None], ["10Gi", "1Ki", "10G"].map(bytes));
        assert_eq!(with_leeway("1Gi"), "2112Mi");
    }
}
