//! Bad input: each is refused, or becomes a condition that names it; and what served
//! before goes on serving.

use super::{
    Cdn, MINUTE,
    support::{Said, eventually, http},
};

const SOURCES: &str = r#"{"spec":{"sources":[{"name":"cache-live","pathCondition":"^/live/"},{"name":"cache-vod","pathCondition":"^/vod/"}]}}"#;

impl Cdn {
    fn tries(&self, cluster: &str, patch: &str) -> Said {
        let arguments = ["patch", "cdncluster", cluster, "--type=merge", "-p", patch];
        self.wheelhouse.kubectl(super::CLUSTER, &arguments)
    }

    /// The API server refuses it with these words.
    fn refuses(&self, what: &str, cluster: &str, patch: &str, words: &str) {
        let said = self.tries(cluster, patch);
        assert_eq!(said.code, Some(1), "{what}: {}", said.stdout);
        let line = said.stderr.lines().find(|line| line.contains(words));
        let line = line.unwrap_or_else(|| panic!("{what}: {}", said.stderr));
        println!("{what}: refused: {line}");
        self.goes_on(what);
    }

    /// It becomes a condition with these words; then it is taken back.
    fn is_told(&self, what: &str, cluster: &str, (patch, back): (&str, &str), words: &str) {
        self.patch(cluster, patch);
        let message = eventually(2 * MINUTE, || self.says(cluster), |message| message.contains(words));
        println!("{what}: told: {message}");
        self.goes_on(what);
        self.patch(cluster, back);
        eventually(
            3 * MINUTE,
            || self.says(cluster),
            |message| message.ends_with("pods serve what is wanted"),
        );
    }

    fn goes_on(&self, what: &str) {
        let balancer = self.address("balancer");
        for path in ["/live/film", "/vod/film"] {
            let answer = http::get(&balancer, path).unwrap();
            assert_eq!(answer.status, 200, "{what}: {answer:?}");
        }
    }
}

fn condition(condition: &str) -> String {
    format!(
        r#"{{"spec":{{"sources":[{{"name":"cache-live","pathCondition":{condition:?}}},{{"name":"cache-vod","pathCondition":"^/vod/"}}]}}}}"#
    )
}

pub(super) fn is_refused_or_told_and_what_served_goes_on(cdn: &Cdn) {
    cdn.goes_on("before");
    cdn.refuses("an invalid regular expression", "balancer", &condition("^/live/("), "no regular expression");
    let lines = condition("^/live/;\n} server { listen 9999;");
    cdn.refuses("lines of configuration", "balancer", &lines, "control characters");
    let defaults = r#"{"spec":{"sources":[{"name":"cache-live"},{"name":"cache-vod"}]}}"#;
    cdn.refuses("two defaults", "balancer", defaults, "at most one source can be without a pathCondition");
    let own = r#"{"spec":{"sources":[{"name":"cache-live"}]}}"#;
    cdn.refuses("its own source", "cache-live", own, "is its own source");
    let wrong_role = r#"{"spec":{"sources":[{"name":"balancer"}]}}"#;
    cdn.refuses("a source of the wrong role", "cache-vod", wrong_role, "source balancer is a balancer");
    let missing = r#"{"spec":{"role":"cache","sources":null}}"#;
    cdn.refuses("no sources", "cache-vod", missing, "sources");

    let block = condition(r#"^/live/"; } server { listen 9999; } #"#);
    cdn.refuses("a block of configuration", "balancer", &block, "no regular expression");

    // It is an expression, if a strange one, and no more than that.
    cdn.patch("balancer", &condition(r#"^/live/"; return 444; #|^/live/"#));
    eventually(MINUTE, || cdn.says("balancer"), |message| message.ends_with("pods serve what is wanted"));
    cdn.goes_on("an expression that looks like configuration");
    cdn.patch("balancer", SOURCES);

    let origin = |host: &str| {
        format!(r#"{{"spec":{{"sources":[{{"name":"origin","origin":{{"host":"{host}"}}}}]}}}}"#)
    };
    let circle = r#"{"spec":{"sources":[{"name":"cache-vod"}]}}"#;
    cdn.patch("cache-live", circle);
    cdn.refuses("a circle", "cache-vod", r#"{"spec":{"sources":[{"name":"cache-live"}]}}"#, "circle");
    cdn.patch("cache-live", &origin("origin-live.default.svc.cluster.local"));

    let nowhere = origin("nowhere.invalid");
    let back = origin("origin-vod.default.svc.cluster.local");
    cdn.is_told("an origin that does not resolve", "cache-vod", (&nowhere, &back), "nowhere.invalid");
    let secret = r#"{"spec":{"tls":{"secretName":"nowhere"}}}"#;
    let none = r#"{"spec":{"tls":null}}"#;
    cdn.is_told("a missing Secret", "cache-live", (secret, none), "Secret nowhere");
}
