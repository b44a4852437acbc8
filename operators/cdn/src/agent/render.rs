//! From what is wanted and what is known to nginx's configuration. Pure.
//!
//! Invariants:
//! - Text that a person wrote becomes configuration through `quoting` only.
//! - What is wrong with one source is said by its own paths, and changes no other's.
//! - The same inputs give the same text.

mod location;
mod quoting;

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    net::{IpAddr, SocketAddr},
};

use location::location;
use quoting::{answer, quoted, quoted_literally};
use regex::escape;

use crate::{
    api::{Cache, Origin, Role, Scheme},
    configuration::{Configuration, Purges, Route, Target, short_hash},
    layout::{self, CACHE_FOLDER, HEALTH_PORT, HTTP_PORT, HTTPS_PORT, RUN_FOLDER},
};

/// Nobody listens here: who has nowhere to go is told at once.
const NOWHERE: &str = "unix:/run/cdn/nowhere.sock";
/// Whom the image trusts.
pub(crate) const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
/// One megabyte of memory holds the keys of about 8,000 objects.
const KEYS: &str = "64m";

/// Everything that a configuration is made from.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// What is wanted.
    pub configuration: Configuration,
    /// What that is called.
    pub name: String,
    /// What must not be served any more.
    pub purges: Purges,
    /// Where the pods behind Services are.
    pub pods: BTreeMap<String, Vec<SocketAddr>>,
    /// The addresses of origins; those that never resolved are not there.
    pub addresses: BTreeMap<String, Vec<IpAddr>>,
    /// The files with the authorities of Secrets, or what is wrong with them.
    pub authorities: BTreeMap<String, Result<String, String>>,
    /// Whether the image has authorities of its own.
    pub image_has_authorities: bool,
    /// The folder with the certificate and the key, if they are there.
    pub certificate: Option<String>,
    /// Whether this machine has IPv6.
    pub has_ipv6: bool,
}

impl Inputs {
    /// What is wrong with sources, by name.
    pub fn problems(&self) -> BTreeMap<String, String> {
        let routes = self.configuration.routes.iter();
        routes.filter_map(|route| Some((route.name.clone(), self.problem(route)?))).collect()
    }

    fn problem(&self, route: &Route) -> Option<String> {
        match &route.target {
            Target::Pods { service } => {
                let has_pods = self.pods.get(service).is_some_and(|pods| !pods.is_empty());
                (!has_pods).then(|| "none of its pods is ready".to_owned())
            }
            Target::Origin(origin) => {
                let is_known = self.addresses.get(&origin.host).is_some_and(|known| !known.is_empty());
                if !is_known {
                    return Some(format!("{} does not resolve", origin.host));
                }
                if origin.scheme == Scheme::Http || origin.tls.insecure_skip_verify {
                    return None;
                }
                self.authorities_of(origin).err()
            }
        }
    }

    /// The file with whom an origin's certificate has to be from.
    fn authorities_of(&self, origin: &Origin) -> Result<String, String> {
        match &origin.tls.ca_secret {
            Some(secret) => {
                let known = self.authorities.get(secret).cloned();
                let known = known.unwrap_or_else(|| Err("it was not looked at".to_owned()));
                known.map_err(|why| format!("Secret {secret}: {why}"))
            }
            None if self.image_has_authorities => Ok(AUTHORITIES.to_owned()),
            None => Err(format!("the image has no {AUTHORITIES}: name a caSecret")),
        }
    }

    /// Where requests of a route go, if that is known.
    pub(crate) fn servers_of(&self, route: &Route) -> Vec<SocketAddr> {
        if self.problem(route).is_some() {
            return Vec::new();
        }
        match &route.target {
            Target::Pods { service } => self.pods.get(service).cloned().unwrap_or_default(),
            Target::Origin(origin) => {
                let default = if origin.scheme == Scheme::Https { 443 } else { 80 };
                let port = origin.port.unwrap_or(default);
                let known = self.addresses.get(&origin.host).into_iter().flatten();
                known.map(|address| SocketAddr::new(*address, port)).collect()
            }
        }
    }
}

/// A whole configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// What nginx reads.
    pub text: String,
    /// What nginx says when it serves just this.
    pub served: String,
}

/// Listens on a port, in every way that this machine can.
fn listen(inputs: &Inputs, port: u16, how: &str) -> String {
    let mut text = format!("        listen {port}{how};\n");
    if inputs.has_ipv6 {
        let _ = writeln!(text, "        listen [::]:{port}{how};");
    }
    text
}

/// The whole configuration.
///
/// # Errors
/// When some of it cannot be written, in words.
pub fn render(inputs: &Inputs) -> Result<Rendered, String> {
    let configuration = &inputs.configuration;
    let mut text = format!(
        "\
# Written by the agent: configuration {name}, purges up to {purged}.
daemon off;
worker_processes auto;
worker_rlimit_nofile 65536;
worker_shutdown_timeout 1h;
pid {RUN_FOLDER}/nginx.pid;
error_log stderr warn;

events {{
    worker_connections 8192;
}}

http {{
    log_format cdn '$cdn_source $status $upstream_cache_status $request_time $upstream_response_time $bytes_sent';
    access_log {RUN_FOLDER}/access.log cdn buffer=32k flush=1s;
    client_body_temp_path /tmp/client-body;
    proxy_temp_path /tmp/proxy;
    fastcgi_temp_path /tmp/fastcgi;
    uwsgi_temp_path /tmp/uwsgi;
    scgi_temp_path /tmp/scgi;
    server_tokens off;
    default_type application/octet-stream;
    sendfile on;
    tcp_nopush on;
    keepalive_timeout 75s;
    keepalive_requests 100000;
    map_hash_bucket_size 4096;
    map_hash_max_size 4096;
    variables_hash_max_size 2048;
",
        name = inputs.name,
        purged = inputs.purges.last,
    );
    if let Some(cache) = &configuration.cache {
        text.push_str(&cache_settings(cache));
        text.push_str(&purge_map(&inputs.purges)?);
    }
    for (number, route) in configuration.routes.iter().enumerate() {
        text.push_str(&upstream(inputs, number, route));
    }
    let server = server(inputs)?;
    let served = short_hash(&format!("{text}{server}"));
    text.push_str(&health_server(inputs, &served));
    text.push_str(&server);
    text.push_str("}\n");
    Ok(Rendered { text, served })
}

fn cache_settings(cache: &Cache) -> String {
    let size = layout::bytes(&cache.size).unwrap_or(1 << 30) >> 20;
    format!(
        "    proxy_cache_path {CACHE_FOLDER} levels=1:2 keys_zone=cdn:{KEYS} max_size={size}m inactive={inactive}s use_temp_path=off;
    open_file_cache max=16384 inactive=60s;
    open_file_cache_valid 60s;
    open_file_cache_min_uses 2;\n",
        inactive = cache.inactive_seconds,
    )
}

/// The number that what is cached under a path must have. A path that was purged by itself is
/// found first, so it is told what prefixes say of it, too.
fn purge_map(purges: &Purges) -> Result<String, String> {
    let value = |number: u64| quoted_literally(&format!("{}/{number}", purges.began));
    let mut text = format!("    map $uri $cdn_purged {{\n        default {};\n", value(purges.everything)?);
    // nginx compares these without regard to the case of ASCII letters.
    let mut paths: BTreeMap<String, u64> = BTreeMap::new();
    for path in purges.purged.iter().flat_map(|purged| &purged.paths) {
        paths.insert(path.to_ascii_lowercase(), purges.number_for(path));
    }
    for (path, number) in &paths {
        let _ = writeln!(text, "        {} {};", quoted(path)?, value(*number)?);
    }
    let prefixes = purges.purged.iter().rev().filter(|purged| purged.number > purges.everything);
    for purged in prefixes {
        if let Some(prefix) = &purged.prefix {
            let prefix = quoted(&format!("~^{}", escape(prefix)))?;
            let _ = writeln!(text, "        {prefix} {};", value(purged.number)?);
        }
    }
    text.push_str("    }\n");
    Ok(text)
}

fn upstream_name(number: usize) -> String {
    format!("source_{number}")
}

fn upstream(inputs: &Inputs, number: usize, route: &Route) -> String {
    let balancing = &inputs.configuration.balancing;
    let servers = inputs.servers_of(route);
    let mut text = format!("    upstream {} {{\n", upstream_name(number));
    if matches!(route.target, Target::Pods { .. }) {
        text.push_str("        hash $uri consistent;\n");
    }
    for server in &servers {
        let _ = writeln!(
            text,
            "        server {server} max_fails=1 fail_timeout={}s;",
            balancing.fail_timeout_seconds
        );
    }
    match servers.is_empty() {
        true => {
            let _ = writeln!(text, "        server {NOWHERE};");
        }
        false => text.push_str("        keepalive 64;\n        keepalive_timeout 30s;\n"),
    }
    text.push_str("    }\n");
    text
}

fn health_server(inputs: &Inputs, served: &str) -> String {
    // Who was promised HTTPS is not sent to a pod that has never had a certificate.
    let ready = match inputs.configuration.tls && inputs.certificate.is_none() {
        true => r#"503 "no certificate yet\n""#,
        false => r#"200 "ok\n""#,
    };
    format!(
        "
    server {{
{listen}        access_log off;
        default_type text/plain;
        location = /healthz {{
            return 200 \"ok\\n\";
        }}
        location = /readyz {{
            return {ready};
        }}
        location = /served {{
            return 200 \"{served}\";
        }}
    }}
",
        listen = listen(inputs, HEALTH_PORT, ""),
    )
}

fn server(inputs: &Inputs) -> Result<String, String> {
    let configuration = &inputs.configuration;
    let mut text = format!("\n    server {{\n{}", listen(inputs, HTTP_PORT, " backlog=4096"));
    if let Some(folder) = inputs.certificate.as_ref().filter(|_| configuration.tls) {
        text.push_str(&listen(inputs, HTTPS_PORT, " ssl backlog=4096"));
        let _ = write!(
            text,
            "        http2 on;
        ssl_certificate {folder}/tls.crt;
        ssl_certificate_key {folder}/tls.key;
        ssl_protocols TLSv1.2 TLSv1.3;
        ssl_session_cache shared:tls:10m;
        ssl_session_timeout 1h;
"
        );
    }
    text.push_str("        set $cdn_source -;\n");
    let routes = || configuration.routes.iter().enumerate();
    // The default comes last, as an expression that everything matches: what is nested in a location
    // without one would be looked at before the other sources.
    for (number, route) in routes().filter(|(_, route)| route.condition.is_some()) {
        text.push_str(&location(inputs, number, route)?);
    }
    let default = routes().find(|(_, route)| route.condition.is_none());
    if let Some((number, route)) = default {
        text.push_str(&location(inputs, number, route)?);
    } else {
        let (status, why) = match (configuration.role, configuration.routes.is_empty()) {
            (Role::Cache, true) => {
                (502, format!("{} has no origin yet: add one to its sources", configuration.cluster))
            }
            _ => (404, format!("no source of {} is for this path", configuration.cluster)),
        };
        let _ = write!(text, "        location / {{\n{}        }}\n", answer(status, &why)?);
    }
    text.push_str("    }\n");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn inputs(configuration: serde_json::Value) -> Inputs {
        let cluster: crate::api::CdnCluster = serde_json::from_value(configuration).unwrap();
        let configuration = Configuration::of(&cluster);
        Inputs {
            name: configuration.name(),
            configuration,
            purges: Purges::default(),
            pods: BTreeMap::from([(
                "cache-live".to_owned(),
                vec!["10.0.0.1:8080".parse().unwrap(), "10.0.0.2:8080".parse().unwrap()],
            )]),
            addresses: BTreeMap::from([("origin.example".to_owned(), vec!["192.0.2.1".parse().unwrap()])]),
            authorities: BTreeMap::new(),
            image_has_authorities: true,
            certificate: None,
            has_ipv6: false,
        }
    }

    fn cluster(spec: serde_json::Value) -> serde_json::Value {
        json!({"apiVersion": "cluster.anevia.com/v1", "kind": "CdnCluster", "metadata": {"name": "c"}, "spec": spec})
    }

    #[test]
    fn a_balancer_hashes_over_pods_and_says_which_source_has_none() {
        let inputs = inputs(cluster(json!({"role": "balancer", "sources": [
            {"name": "cache-live", "pathCondition": "^/live/"},
            {"name": "cache-vod", "pathCondition": "^/vod/"},
        ]})));
        insta::assert_snapshot!(render(&inputs).unwrap().text);
        assert_eq!(inputs.problems()["cache-vod"], "none of its pods is ready");
    }

    #[test]
    fn a_cache_fetches_from_origins_and_keeps_what_it_is_told_to() {
        let mut inputs = inputs(cluster(json!({
            "role": "cache",
            "sources": [
                {"name": "films", "pathCondition": r"\.mp4$", "origin": {"scheme": "https", "host": "origin.example"}},
                {"name": "rest", "origin": {"host": "nowhere.example", "port": 8000}},
            ],
            "cache": {
                "ttls": [
                    {"pathCondition": r"\.m3u8$", "seconds": 2},
                    {"statuses": [200, 404], "seconds": 60},
                ],
                "sliceSize": "1Mi",
                "overrideOrigin": true,
            },
        })));
        inputs.purges.include("u1", &["/A.mp4".to_owned()], None);
        inputs.purges.include("u2", &[], Some("/old/"));
        insta::assert_snapshot!(render(&inputs).unwrap().text);
    }

    #[test]
    fn a_cache_without_sources_names_what_it_lacks() {
        let text = render(&inputs(cluster(json!({"role": "cache", "sources": []})))).unwrap().text;
        assert!(text.contains(r#"return 502 "c has no origin yet: add one to its sources\n";"#), "{text}");
        let text = render(&inputs(cluster(json!({"role": "balancer", "sources": []})))).unwrap().text;
        assert!(text.contains(r#"return 404 "no source of c is for this path\n";"#), "{text}");
    }

    #[test]
    fn whatever_changes_nginx_says_that_it_serves_something_else() {
        let mut inputs = inputs(cluster(json!({"role": "balancer", "sources": [{"name": "cache-live"}]})));
        let before = render(&inputs).unwrap();
        assert!(before.text.contains(&format!("return 200 \"{}\";", before.served)), "{before:?}");
        inputs.pods.get_mut("cache-live").unwrap().pop();
        assert_ne!(render(&inputs).unwrap().served, before.served);
    }

    #[test]
    fn a_source_without_authorities_is_told_and_changes_no_other() {
        let origin = |name: &str, scheme: &str| json!({"name": name, "pathCondition": name, "origin": {"scheme": scheme, "host": "origin.example"}});
        let sources = json!([origin("plain", "http"), origin("secure", "https")]);
        let inputs = Inputs {
            image_has_authorities: false,
            ..inputs(cluster(json!({"role": "cache", "sources": sources})))
        };
        let problems = inputs.problems();
        assert!(problems["secure"].ends_with("name a caSecret") && problems.len() == 1, "{problems:?}");
        assert!(!render(&inputs).unwrap().text.contains("proxy_ssl_trusted_certificate"));
    }

    #[test]
    fn who_was_promised_https_is_not_sent_to_a_pod_without_a_certificate() {
        let mut inputs =
            inputs(cluster(json!({"role": "balancer", "sources": [], "tls": {"secretName": "s"}})));
        assert!(render(&inputs).unwrap().text.contains("return 503 \"no certificate yet"));
        inputs.certificate = Some("/run/cdn/tls-1".to_owned());
        assert!(!render(&inputs).unwrap().text.contains("503"));
    }

    #[test]
    fn a_purged_path_has_the_number_of_the_latest_purge_that_covers_it() {
        let mut purges = Purges { began: "T".to_owned(), ..Purges::default() };
        purges.include("1", &["/a/x".to_owned(), "/A/X".to_owned()], None);
        purges.include("2", &[], Some("/a/"));
        purges.include("3", &[], Some("/a/y.z"));
        purges.include("4", &["/É".to_owned()], None);
        let map = purge_map(&purges).unwrap();
        let lines: Vec<_> = map.lines().map(str::trim).collect();
        assert_eq!(
            lines,
            [
                "map $uri $cdn_purged {",
                r#"default "T/0";"#,
                r#""/a/x" "T/2";"#,
                r#""/É" "T/4";"#,
                r#""~^/a/y\\.z" "T/3";"#,
                r#""~^/a/" "T/2";"#,
                "}",
            ]
        );
    }
}
