//! How an operator is configured: by flags, and by the environment variables that
//! `--help` names.

use std::{ffi::OsString, net::SocketAddr, num::NonZeroUsize, path::PathBuf};

use crate::{certificates::Validity, webhooks::Address};

use clap::{Args, Command, CommandFactory as _, Parser, Subcommand, ValueEnum};

/// The command line of every operator.
#[derive(Debug, Parser)]
pub(super) struct CommandLine {
    #[command(subcommand)]
    pub(super) verb: Verb,
}

/// The words as people write them: a flag of the original operators with one dash; and without any verb
/// it runs, configured by flags and by its environment.
pub(super) fn with_verb(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<_> = arguments.into_iter().collect();
    for argument in arguments.iter_mut().filter(|argument| *argument == "-cluster-wide") {
        *argument = "--cluster-wide".into();
    }
    let about = ["-h", "--help", "-V", "--version"];
    let first = arguments.get(1).and_then(|first| first.to_str());
    if first.is_none_or(|first| first.starts_with('-') && !about.contains(&first)) {
        arguments.insert(1.min(arguments.len()), "run".into());
    }
    arguments
}

/// The command line of the operator of that name; of one that looks at its own namespace only,
/// unless it is told otherwise.
pub(super) fn command(name: &str, version: &str, is_for_its_own_namespace: bool) -> Command {
    let examples = |verbs: &[&str]| {
        let wanted = EXAMPLES.iter().filter(|example| verbs.contains(&example.verb));
        let shown: Vec<_> = wanted.map(|example| example.of(name)).collect();
        format!("Examples:\n{}", shown.join("\n\n"))
    };
    let mut command =
        CommandLine::command().name(name.to_owned()).version(version.to_owned()).after_help(examples(&VERBS));
    for verb in VERBS {
        let help = examples(&[verb]);
        command = command.mut_subcommand(verb, |verb| verb.after_help(help));
    }
    for verb in ["run", "rbac", "manifests", "plan", "record"] {
        command = command.mut_subcommand(verb, |verb| {
            verb.mut_arg("cluster_wide", |flag| flag.hide(!is_for_its_own_namespace))
        });
    }
    for verb in ["run", "rbac", "manifests", "plan"] {
        command = command.mut_subcommand(verb, |verb| {
            let own = "Look at this namespace only (repeatable); the operator's own by default";
            verb.mut_arg("namespaces", |flag| if is_for_its_own_namespace { flag.help(own) } else { flag })
        });
    }
    command
}

const VERBS: [&str; 8] = ["run", "crds", "rbac", "manifests", "plan", "decisions", "record", "replay"];

/// How a verb is used.
struct Example {
    verb: &'static str,
    what: &'static str,
    arguments: &'static str,
}

impl Example {
    fn of(&self, name: &str) -> String {
        format!("  # {}\n  {name} {} {}", self.what, self.verb, self.arguments.replace("NAME", name))
            .trim_end()
            .to_owned()
    }
}

const EXAMPLES: [Example; 12] = [
    Example {
        verb: "run",
        what: "on a laptop, with your kubeconfig",
        arguments: "--install-crds --no-leader-election",
    },
    Example {
        verb: "run",
        what: "in two namespaces only",
        arguments: "--namespace team-a --namespace team-b",
    },
    Example { verb: "crds", what: "register the kinds, and nothing else", arguments: "| kubectl apply -f -" },
    Example { verb: "rbac", what: "what it may do, in one namespace", arguments: "--namespace team-a" },
    Example {
        verb: "rbac",
        what: "what it may do if it registers its CRDs itself",
        arguments: "--install-crds",
    },
    Example {
        verb: "manifests",
        what: "all that installs it",
        arguments: "--image registry.example.com/NAME:1.0 | kubectl apply -f -",
    },
    Example {
        verb: "manifests",
        what: "one copy, for one namespace",
        arguments: "--replicas 1 --namespace team-a | kubectl apply -f -",
    },
    Example { verb: "plan", what: "what would happen if this were applied", arguments: "-f resource.yaml" },
    Example { verb: "decisions", what: "why it did what it did", arguments: "my-resource -n team-a" },
    Example {
        verb: "decisions",
        what: "of an operator that runs on this machine",
        arguments: "--url http://127.0.0.1:8080 --json",
    },
    Example {
        verb: "record",
        what: "turn what is seen now into a test",
        arguments: "my-resource -n team-a -o tests/recorded/incident.json",
    },
    Example { verb: "replay", what: "on another machine, later", arguments: "tests/recorded/incident.json" },
];

/// What an operator's binary can do.
#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Run the operator (also without any verb)
    Run(RunSettings),
    /// Print the CustomResourceDefinitions
    Crds,
    /// Print the RBAC rules that the operator needs
    Rbac(Place),
    /// Print everything that installs the operator: CRDs, RBAC, Deployment
    Manifests(ManifestSettings),
    /// Say what would be done about the resources in a file, and do nothing
    Plan(PlanSettings),
    /// Show the last decisions of the operator that runs
    Decisions(DecisionsSettings),
    /// Write down what is seen and decided about a resource now, to be replayed
    Record(RecordSettings),
    /// Decide again on what was recorded, and say where the plan differs
    Replay(ReplaySettings),
}

/// What is looked at without being acted on.
#[derive(Args, Clone, Debug)]
pub(super) struct PlanSettings {
    /// The resources, as YAML or JSON; `-` for what is piped in
    #[arg(short, long, value_name = "FILE")]
    pub(super) file: PathBuf,
    /// Look at this namespace only (repeatable); all of them by default
    #[arg(long = "namespace", value_name = "NAME")]
    pub(super) namespaces: Vec<String>,
    /// Look at all namespaces
    #[arg(long, conflicts_with = "namespaces")]
    pub(super) cluster_wide: bool,
    /// As JSON: what was seen, what was decided, and what of it would change something
    #[arg(long)]
    pub(super) json: bool,
}

/// Which resource is meant.
#[derive(Args, Clone, Debug)]
pub(super) struct OneResource {
    /// The resource: NAME, or KIND/NAME where the operator has more than one kind
    #[arg(value_name = "RESOURCE")]
    pub(super) resource: String,
    /// Its namespace; that of the kubeconfig by default
    #[arg(short, long, value_name = "NAME")]
    pub(super) namespace: Option<String>,
}

/// What is written down.
#[derive(Args, Clone, Debug)]
pub(super) struct RecordSettings {
    #[command(flatten)]
    pub(super) one: OneResource,
    /// Look at all namespaces
    #[arg(long)]
    pub(super) cluster_wide: bool,
    /// Where it goes; to the terminal by default
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
}

/// What is decided on again.
#[derive(Args, Clone, Debug)]
pub(super) struct ReplaySettings {
    /// What `record` or `decisions --json` wrote; `-` for what is piped in
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
}

/// Which decisions are shown, and how they are got at.
#[derive(Args, Clone, Debug)]
pub(super) struct DecisionsSettings {
    /// Those about this resource (NAME, or KIND/NAME); all there are by default
    #[arg(value_name = "RESOURCE")]
    pub(super) resource: Option<String>,
    /// Its namespace; that of the kubeconfig by default
    #[arg(short, long, value_name = "NAME")]
    pub(super) namespace: Option<String>,
    /// The namespace of the operator itself
    #[arg(long, default_value = "wheelhouse-system", value_name = "NAME")]
    pub(super) install_namespace: String,
    /// Ask the operator at this address, such as http://127.0.0.1:8080, and not the one in the cluster
    #[arg(long, value_name = "URL")]
    pub(super) url: Option<String>,
    /// Ask as this ServiceAccount of the operator's namespace, where the kubeconfig has no token
    #[arg(long, value_name = "NAME")]
    pub(super) service_account: Option<String>,
    /// As JSON: everything that was seen and decided
    #[arg(long)]
    pub(super) json: bool,
}

/// Where the operator is to run.
#[derive(Args, Clone, Debug)]
pub(super) struct Place {
    /// The namespace of the operator itself
    #[arg(long, default_value = "wheelhouse-system", value_name = "NAME")]
    pub(super) install_namespace: String,
    /// Look at this namespace only (repeatable); all of them by default
    #[arg(long = "namespace", value_name = "NAME")]
    pub(super) namespaces: Vec<String>,
    /// Look at all namespaces
    #[arg(long, conflicts_with = "namespaces")]
    pub(super) cluster_wide: bool,
    /// The operator registers its CRDs itself, and may do so
    #[arg(long)]
    pub(super) install_crds: bool,
}

/// What the Deployment is like.
#[derive(Args, Clone, Debug)]
pub(super) struct ManifestSettings {
    #[command(flatten)]
    pub(super) place: Place,
    /// The operator's image; `wheelhouse.dev/NAME:VERSION` by default
    #[arg(long, value_name = "IMAGE")]
    pub(super) image: Option<String>,
    /// How many copies run: one leads, the others are warm
    #[arg(long, default_value_t = 2)]
    pub(super) replicas: u32,
}

/// As they are where nothing is said.
impl Default for ManifestSettings {
    fn default() -> Self {
        let place = Place {
            install_namespace: "wheelhouse-system".to_owned(),
            namespaces: Vec::new(),
            cluster_wide: false,
            install_crds: false,
        };
        Self { place, image: None, replicas: 2 }
    }
}

/// How the operator runs.
#[derive(Args, Clone, Debug)]
pub struct RunSettings {
    /// Look at this namespace only (repeatable); all of them by default
    #[arg(long = "namespace", env = "WATCH_NAMESPACE", value_delimiter = ',', value_name = "NAME")]
    pub namespaces: Vec<String>,
    /// Look at all namespaces
    #[arg(long, conflicts_with = "namespaces")]
    pub cluster_wide: bool,
    /// Run without a Lease: make sure that there is only one of these
    #[arg(long, env = "NO_LEADER_ELECTION")]
    pub no_leader_election: bool,
    /// Where the Lease is; by default the namespace of the pod, or of the kubeconfig
    #[arg(long, env = "LEASE_NAMESPACE", value_name = "NAME")]
    pub lease_namespace: Option<String>,
    /// Register the CRDs at the start, and wait until they are served
    #[arg(long, env = "INSTALL_CRDS")]
    pub install_crds: bool,
    /// Where /healthz, /readyz and /metrics are answered
    #[arg(long, env = "LISTEN", default_value = "0.0.0.0:8080", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Where webhooks are answered, if the operator has any
    #[arg(long, env = "WEBHOOK_LISTEN", default_value = "0.0.0.0:9443", value_name = "ADDRESS")]
    pub webhook_listen: SocketAddr,
    /// Where the API server finds them: a URL, or `self` for the address that is listened on; by
    /// default the Service of the operator's name
    #[arg(long, env = "WEBHOOK_URL", value_name = "URL")]
    pub webhook_url: Option<String>,
    /// How long the webhooks' certificates are good for.
    #[arg(skip)]
    pub certificate_validity: Validity,
    /// How much memory the last decisions may take, in MiB
    #[arg(long, env = "DECISION_MEMORY", default_value_t = 4, value_name = "MIB")]
    pub decision_memory: usize,
    /// How many resources of a controller are worked on at the same time
    #[arg(long, env = "WORKERS", value_name = "N")]
    pub workers: Option<NonZeroUsize>,
    /// How logs are written
    #[arg(long, env = "LOG_FORMAT", value_enum, default_value_t = LogFormat::Readable)]
    pub log_format: LogFormat,
    /// What is logged, such as `debug` or `info,wheelhouse=debug`
    #[arg(long, env = "LOG_LEVEL", default_value = "info", value_name = "FILTER")]
    pub log_level: String,
    /// Where traces go, by OTLP over HTTP, such as `http://collector.observability:4318`
    #[cfg(feature = "opentelemetry")]
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_name = "URL")]
    pub otlp_endpoint: Option<String>,
}

impl RunSettings {
    /// Where the API server finds the webhooks; none: at the address that is listened on.
    pub(super) fn webhook_address(&self, operator: &str, namespace: &str) -> Option<Address> {
        match self.webhook_url.as_deref() {
            Some("self") => None,
            Some(url) => Some(Address::Url(url.to_owned())),
            None => Some(Address::Service {
                name: operator.to_owned(),
                namespace: self.lease_namespace.clone().unwrap_or_else(|| namespace.to_owned()),
            }),
        }
    }
}

impl Default for RunSettings {
    fn default() -> Self {
        Self {
            namespaces: Vec::new(),
            cluster_wide: false,
            no_leader_election: false,
            lease_namespace: None,
            install_crds: false,
            listen: SocketAddr::from(([0, 0, 0, 0], 8080)),
            webhook_listen: SocketAddr::from(([0, 0, 0, 0], 9443)),
            webhook_url: None,
            certificate_validity: Validity::default(),
            decision_memory: 4,
            workers: None,
            log_format: LogFormat::default(),
            log_level: "info".to_owned(),
            #[cfg(feature = "opentelemetry")]
            otlp_endpoint: None,
        }
    }
}

/// How logs are written.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Readable,
    /// For machines: one JSON object a line.
    Json,
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn manifests_are_by_default_what_the_verb_prints_that_is_told_nothing() {
        let line = CommandLine::try_parse_from(["op", "manifests"]).unwrap();
        let Verb::Manifests(told) = line.verb else { panic!("that is another verb") };
        assert_eq!(format!("{told:?}"), format!("{:?}", ManifestSettings::default()));
    }

    #[rstest]
    #[case(&["op"], &["op", "run"])]
    #[case(&["op", "-cluster-wide"], &["op", "run", "--cluster-wide"])]
    #[case(&["op", "--namespace", "a"], &["op", "run", "--namespace", "a"])]
    #[case(&["op", "rbac", "-cluster-wide"], &["op", "rbac", "--cluster-wide"])]
    #[case(&["op", "--help"], &["op", "--help"])]
    fn without_a_verb_it_runs(#[case] written: &[&str], #[case] understood: &[&str]) {
        assert_eq!(with_verb(written.iter().map(OsString::from)), understood);
    }
}
