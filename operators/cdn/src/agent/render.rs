//! From what is wanted and what is known to nginx's configuration. Pure.
//!
//! Invariants:
//! - Text that a person wrote becomes configuration through [`quoted`] only.
//! - What is wrong with one source is said by its own paths, and changes no other's.
//! - The same inputs give the same text.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    net::{IpAddr, SocketAddr},
};

use regex::escape;

use crate::{
    api::{Cache, KeyPart, Role, Scheme, Ttl},
    configuration::{Configuration, Purges, Route, Target},
    layout::{self, CACHE_FOLDER, HEALTH_PORT, HTTP_PORT, HTTPS_PORT, RUN_FOLDER},
};

/// Nobody listens here: who has nowhere to go is told at once.
const NOWHERE: &str = "unix:/run/cdn/nowhere.sock";
/// One megabyte of memory holds the keys of about 8,000 objects.
const KEYS: &str = "64m";

/// Everything that a configuration is made from.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// What is wanted.
    pub configuration: Configuration,
    /// What must not be served any more.
    pub purges: Purges,
    /// Where the pods behind Services are.
    pub pods: BTreeMap<String, Vec<SocketAddr>>,
    /// The addresses of origins; those that never resolved are not there.
    pub addresses: BTreeMap<String, Vec<IpAddr>>,
    /// Which Secrets with authorities are there.
    pub authorities: BTreeMap<String, bool>,
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
                let secret = origin.tls.ca_secret.as_ref();
                let is_missing = |secret: &&String| self.authorities.get(*secret) != Some(&true);
                if !is_known {
                    Some(format!("{} does not resolve", origin.host))
                } else {
                    let missing = secret.filter(is_missing).filter(|_| origin.scheme == Scheme::Https);
                    missing.map(|secret| format!("there is no ca.crt in the Secret {secret}"))
                }
            }
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

    /// What nginx says that it serves.
    pub fn served(&self) -> String {
        format!("{} {} {}", self.configuration.name(), self.purges.began, self.purges.last)
    }
}

/// A parameter of nginx's configuration that means this text.
///
/// # Errors
/// When there is no way to write it.
pub fn quoted(text: &str) -> Result<String, String> {
    if text.chars().any(char::is_control) {
        return Err(format!("{text:?} has control characters"));
    }
    Ok(format!("\"{}\"", text.replace('\\', r"\\").replace('"', r#"\""#)))
}

/// The same where nginx would put variables in: a dollar sign cannot be written there.
fn quoted_literally(text: &str) -> Result<String, String> {
    match text.contains('$') {
        true => Err(format!("{text:?} has a dollar sign")),
        false => quoted(text),
    }
}

/// An answer of one line.
fn answer(status: u16, line: &str) -> Result<String, String> {
    let line = quoted_literally(line)?;
    let line = line.strip_suffix('"').unwrap_or(&line);
    Ok(format!("            default_type text/plain;\n            return {status} {line}\\n\";\n"))
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
pub fn render(inputs: &Inputs) -> Result<String, String> {
    let configuration = &inputs.configuration;
    let mut text = format!(
        "\
# Written by the agent: configuration {name}, purges up to {purged}.
daemon off;
worker_processes auto;
worker_rlimit_nofile 65536;
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
        name = configuration.name(),
        purged = inputs.purges.last,
    );
    if let Some(cache) = &configuration.cache {
        text.push_str(&cache_settings(cache));
        text.push_str(&purge_map(&inputs.purges)?);
    }
    for (number, route) in configuration.routes.iter().enumerate() {
        text.push_str(&upstream(inputs, number, route));
    }
    text.push_str(&health_server(inputs));
    text.push_str(&server(inputs)?);
    text.push_str("}\n");
    Ok(text)
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
    // nginx compares these without regard to case: then the larger number counts for all.
    let mut paths: BTreeMap<String, u64> = BTreeMap::new();
    for path in purges.purged.iter().flat_map(|purged| &purged.paths) {
        let number = paths.entry(path.to_lowercase()).or_default();
        *number = purges.number_for(path).max(*number);
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

fn health_server(inputs: &Inputs) -> String {
    format!(
        "
    server {{
{listen}        access_log off;
        default_type text/plain;
        location = /healthz {{
            return 200 \"ok\\n\";
        }}
        location = /served {{
            return 200 \"{served}\";
        }}
    }}
",
        listen = listen(inputs, HEALTH_PORT, ""),
        served = inputs.served(),
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
    let mut has_default = false;
    for (number, route) in configuration.routes.iter().enumerate() {
        has_default |= route.condition.is_none();
        text.push_str(&location(inputs, number, route)?);
    }
    if !has_default {
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

/// The paths of one route.
fn location(inputs: &Inputs, number: usize, route: &Route) -> Result<String, String> {
    let matching = match &route.condition {
        Some(condition) => format!("~ {}", quoted(condition)?),
        None => "/".to_owned(),
    };
    let passing = passing_on(inputs, number, route)?;
    let mut text = format!("        location {matching} {{\n");
    match &inputs.configuration.cache {
        None => text.push_str(&passing),
        Some(cache) => {
            let with_condition = cache.ttls.iter().filter(|ttl| ttl.path_condition.is_some());
            for ttl in with_condition {
                let condition = quoted(ttl.path_condition.as_deref().unwrap_or_default())?;
                let _ = writeln!(text, "            location ~ {condition} {{");
                text.push_str(&passing);
                text.push_str(&valid(ttl));
                text.push_str("            }\n");
            }
            text.push_str(&passing);
            cache
                .ttls
                .iter()
                .filter(|ttl| ttl.path_condition.is_none())
                .for_each(|ttl| text.push_str(&valid(ttl)));
        }
    }
    text.push_str("        }\n");
    let why = inputs.problem(route).unwrap_or_else(|| "it did not answer".to_owned());
    let line = answer(502, &format!("source {}: {why}", route.name))?;
    let _ = write!(text, "        location @failed_{number} {{\n{line}        }}\n");
    Ok(text)
}

fn valid(ttl: &Ttl) -> String {
    let statuses: Vec<_> = ttl.statuses.iter().map(ToString::to_string).collect();
    let statuses = if statuses.is_empty() { "any".to_owned() } else { statuses.join(" ") };
    format!("            proxy_cache_valid {statuses} {}s;\n", ttl.seconds)
}

/// How a request goes on to its source.
fn passing_on(inputs: &Inputs, number: usize, route: &Route) -> Result<String, String> {
    let balancing = &inputs.configuration.balancing;
    let upstream = upstream_name(number);
    let mut text = format!(
        "            set $cdn_source {name};
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_set_header X-Forwarded-Proto $scheme;
            proxy_connect_timeout {connect}ms;
            proxy_read_timeout {read}s;
            proxy_send_timeout {read}s;
            proxy_next_upstream error timeout;
            proxy_next_upstream_tries {tries};
            error_page 502 504 @failed_{number};
",
        name = quoted_literally(&route.name)?,
        connect = balancing.connect_timeout_milliseconds,
        read = balancing.read_timeout_seconds,
        tries = balancing.tries,
    );
    let mut scheme = "http";
    match &route.target {
        Target::Pods { .. } => text.push_str("            proxy_set_header Host $http_host;\n"),
        Target::Origin(origin) => {
            let host = origin.host_header.clone().unwrap_or_else(|| match origin.port {
                Some(port) => format!("{}:{port}", origin.host),
                None => origin.host.clone(),
            });
            let _ = writeln!(text, "            proxy_set_header Host {};", quoted_literally(&host)?);
            if origin.scheme == Scheme::Https {
                scheme = "https";
                let name = origin.tls.server_name.as_ref().unwrap_or(&origin.host);
                let _ = write!(
                    text,
                    "            proxy_ssl_server_name on;\n            proxy_ssl_name {};\n",
                    quoted_literally(name)?
                );
                if !origin.tls.insecure_skip_verify {
                    let authorities = match &origin.tls.ca_secret {
                        Some(secret) => format!("{}/ca.crt", layout::authority_folder(secret)),
                        None => "/etc/ssl/certs/ca-certificates.crt".to_owned(),
                    };
                    // Without them nginx would refuse the whole file.
                    if inputs.problem(route).is_none() {
                        let _ = write!(
                            text,
                            "            proxy_ssl_verify on;\n            proxy_ssl_verify_depth 5;\n            proxy_ssl_trusted_certificate {};\n",
                            quoted_literally(&authorities)?
                        );
                    }
                }
            }
        }
    }
    match &inputs.configuration.cache {
        Some(cache) => text.push_str(&caching(cache)),
        None => text.push_str("            proxy_max_temp_file_size 0;\n"),
    }
    let _ = writeln!(text, "            proxy_pass {scheme}://{upstream};");
    Ok(text)
}

fn caching(cache: &Cache) -> String {
    let has = |part| cache.key.contains(&part);
    // A request's own line has no spaces, so no two different requests have the same key.
    let mut key = vec!["$cdn_purged"];
    if has(KeyPart::Scheme) {
        key.push("$scheme");
    }
    if has(KeyPart::Host) {
        key.push("$host");
    }
    if cache.slice_size.is_some() {
        key.push("$slice_range");
    }
    key.push(if has(KeyPart::Query) { "$request_uri" } else { "$uri" });
    let mut text = format!(
        "            proxy_cache cdn;\n            proxy_cache_key \"{}\";\n            proxy_cache_revalidate on;\n",
        key.join(" ")
    );
    if cache.override_origin {
        text.push_str("            proxy_ignore_headers Cache-Control Expires X-Accel-Expires;\n");
    }
    let mut stale = Vec::new();
    if cache.stale_while_revalidate {
        stale.push("updating");
        text.push_str("            proxy_cache_background_update on;\n");
    }
    if cache.stale_if_error {
        stale.extend(["error", "timeout", "http_500", "http_502", "http_503", "http_504"]);
    }
    if !stale.is_empty() {
        let _ = writeln!(text, "            proxy_cache_use_stale {};", stale.join(" "));
    }
    if cache.request_collapsing {
        text.push_str(
            "            proxy_cache_lock on;\n            proxy_cache_lock_timeout 1h;\n            proxy_cache_lock_age 1h;\n",
        );
    }
    if let Some(size) = cache.slice_size.as_deref().and_then(layout::bytes) {
        let _ = write!(
            text,
            "            slice {}k;\n            proxy_set_header Range $slice_range;\n",
            size >> 10
        );
    }
    text.push_str(
        "            add_header X-Cache-Status $upstream_cache_status always;\n            add_header X-Served-By $hostname always;\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn inputs(configuration: serde_json::Value) -> Inputs {
        let cluster: crate::api::CdnCluster = serde_json::from_value(configuration).unwrap();
        Inputs {
            configuration: Configuration::of(&cluster),
            purges: Purges::default(),
            pods: BTreeMap::from([(
                "cache-live".to_owned(),
                vec!["10.0.0.1:8080".parse().unwrap(), "10.0.0.2:8080".parse().unwrap()],
            )]),
            addresses: BTreeMap::from([("origin.example".to_owned(), vec!["192.0.2.1".parse().unwrap()])]),
            authorities: BTreeMap::new(),
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
        insta::assert_snapshot!(render(&inputs).unwrap());
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
        insta::assert_snapshot!(render(&inputs).unwrap());
    }

    #[test]
    fn a_cache_without_sources_names_what_it_lacks() {
        let text = render(&inputs(cluster(json!({"role": "cache", "sources": []})))).unwrap();
        assert!(text.contains(r#"return 502 "c has no origin yet: add one to its sources\n";"#), "{text}");
        let text = render(&inputs(cluster(json!({"role": "balancer", "sources": []})))).unwrap();
        assert!(text.contains(r#"return 404 "no source of c is for this path\n";"#), "{text}");
    }

    #[rstest]
    #[case::quotes(r#"a"; } server { listen 1; } #"#, r#""a\"; } server { listen 1; } #""#)]
    #[case::backslashes(r"\.ts$", r#""\\.ts$""#)]
    #[case::a_backslash_at_the_end(r"a\\", r#""a\\\\""#)]
    fn what_is_quoted_stays_one_parameter(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(quoted(text).unwrap(), expected);
    }

    #[test]
    fn what_cannot_be_quoted_is_refused() {
        quoted("a\nb").unwrap_err();
        quoted_literally("$host").unwrap_err();
    }

    #[test]
    fn a_purged_path_has_the_number_of_the_latest_purge_that_covers_it() {
        let mut purges = Purges { began: "T".to_owned(), ..Purges::default() };
        purges.include("1", &["/a/x".to_owned(), "/A/X".to_owned()], None);
        purges.include("2", &[], Some("/a/"));
        purges.include("3", &[], Some("/a/y.z"));
        let map = purge_map(&purges).unwrap();
        let lines: Vec<_> = map.lines().map(str::trim).collect();
        assert_eq!(
            lines,
            [
                "map $uri $cdn_purged {",
                r#"default "T/0";"#,
                r#""/a/x" "T/2";"#,
                r#""~^/a/y\\.z" "T/3";"#,
                r#""~^/a/" "T/2";"#,
                "}",
            ]
        );
    }
}
