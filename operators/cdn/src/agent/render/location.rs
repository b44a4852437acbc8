//! The paths of one route: where they lead, and for how long what comes from there is kept.

use std::{collections::BTreeSet, fmt::Write as _};

use super::{
    Inputs,
    quoting::{answer, quoted, quoted_literally},
    upstream_name,
};
use crate::{
    api::{Cache, KeyPart, Origin, Scheme, Ttl},
    configuration::{Route, Target},
    layout,
};

/// The paths of one route.
pub(super) fn location(inputs: &Inputs, number: usize, route: &Route) -> Result<String, String> {
    let condition = quoted(route.condition.as_deref().unwrap_or("^"))?;
    let passing = passing_on(inputs, number, route)?;
    let mut text = format!("        location ~ {condition} {{\n");
    let ttls = inputs.configuration.cache.as_ref().map(|cache| cache.ttls.as_slice()).unwrap_or_default();
    let mut conditions: Vec<_> = ttls.iter().filter_map(condition_of).collect();
    let mut known = BTreeSet::new();
    conditions.retain(|condition| known.insert(*condition));
    for condition in conditions {
        let _ = writeln!(text, "            location ~ {} {{", quoted(condition)?);
        text.push_str(&passing);
        text.push_str(&valid(ttls, Some(condition)));
        text.push_str("            }\n");
    }
    text.push_str(&passing);
    text.push_str(&valid(ttls, None));
    text.push_str("        }\n");
    let why = inputs.problem(route).unwrap_or_else(|| "it did not answer".to_owned());
    let line = answer(502, &format!("source {}: {why}", route.name))?;
    let _ = write!(text, "        location @failed_{number} {{\n{line}        }}\n");
    Ok(text)
}

fn condition_of(ttl: &Ttl) -> Option<&str> {
    ttl.path_condition.as_deref().filter(|condition| !condition.is_empty())
}

/// For how long answers on paths with this condition are kept: of the rules for them and those for
/// all paths the first that names a status counts, as in nginx.
fn valid(ttls: &[Ttl], condition: Option<&str>) -> String {
    let rules = ttls.iter().filter(|ttl| condition_of(ttl).is_none_or(|own| Some(own) == condition));
    let lines = rules.map(|ttl| {
        let statuses: Vec<_> = ttl.statuses.iter().map(ToString::to_string).collect();
        let statuses = if statuses.is_empty() { "any".to_owned() } else { statuses.join(" ") };
        format!("            proxy_cache_valid {statuses} {}s;\n", ttl.seconds)
    });
    lines.collect()
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
            let host = origin.host_header.clone().unwrap_or_else(|| own_host(origin));
            let _ = writeln!(text, "            proxy_set_header Host {};", quoted_literally(&host)?);
            if origin.scheme == Scheme::Https {
                scheme = "https";
                let name = origin.tls.server_name.as_deref().unwrap_or_else(|| own_name(origin));
                let _ = write!(
                    text,
                    "            proxy_ssl_server_name on;\n            proxy_ssl_name {};\n",
                    quoted_literally(name)?
                );
                // Without them nginx would refuse the whole file; and nobody is asked then.
                if !origin.tls.insecure_skip_verify
                    && let Ok(authorities) = inputs.authorities_of(origin)
                {
                    let _ = write!(
                        text,
                        "            proxy_ssl_verify on;\n            proxy_ssl_verify_depth 5;\n            proxy_ssl_trusted_certificate {};\n",
                        quoted_literally(&authorities)?
                    );
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

/// What an origin is called: the dot at the end of a full name is for resolvers only.
fn own_name(origin: &Origin) -> &str {
    origin.host.strip_suffix('.').unwrap_or(&origin.host)
}

/// How an origin is asked for unless somebody says otherwise.
fn own_host(origin: &Origin) -> String {
    let name = own_name(origin);
    let name = if name.contains(':') { format!("[{name}]") } else { name.to_owned() };
    origin.port.map_or(name.clone(), |port| format!("{name}:{port}"))
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
            "            proxy_cache_lock on;\n            proxy_cache_lock_timeout 30s;\n            proxy_cache_lock_age 30s;\n",
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
    use super::*;

    #[rstest::rstest]
    #[case("films.example.", None, "films.example")]
    #[case("films.example", Some(8080), "films.example:8080")]
    #[case("fd00::1", None, "[fd00::1]")]
    #[case("fd00::1", Some(8080), "[fd00::1]:8080")]
    fn an_origin_is_asked_for_by_its_name(
        #[case] host: &str,
        #[case] port: Option<u16>,
        #[case] expected: &str,
    ) {
        let origin = serde_json::json!({"host": host, "port": port});
        assert_eq!(own_host(&serde_json::from_value(origin).unwrap()), expected);
    }

    #[test]
    fn of_the_rules_on_times_the_first_counts_that_is_for_the_path_and_the_status() {
        let rule = |condition: Option<&str>, status: u16, seconds: u32| Ttl {
            path_condition: condition.map(str::to_owned),
            statuses: vec![status],
            seconds,
        };
        let rules = [
            rule(Some("a"), 200, 1),
            rule(None, 404, 2),
            rule(Some("b"), 200, 3),
            rule(Some("a"), 404, 4),
            rule(None, 200, 5),
        ];
        let seconds = |condition| -> Vec<_> {
            let lines = valid(&rules, condition);
            lines.lines().map(|line| line.trim().replace("proxy_cache_valid ", "")).collect()
        };
        assert_eq!(seconds(Some("a")), ["200 1s;", "404 2s;", "404 4s;", "200 5s;"]);
        assert_eq!(seconds(Some("b")), ["404 2s;", "200 3s;", "200 5s;"]);
        assert_eq!(seconds(None), ["404 2s;", "200 5s;"]);
    }
}
