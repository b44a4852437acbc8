//! How an operator is configured: by flags, and by the environment variables that
//! `--help` names.

use std::{net::SocketAddr, num::NonZeroUsize};

use clap::{Args, Command, CommandFactory as _, Parser, Subcommand, ValueEnum};

/// The command line of every operator.
#[derive(Debug, Parser)]
pub(super) struct CommandLine {
    #[command(subcommand)]
    pub(super) verb: Verb,
}

/// The command line of the operator of that name.
pub(super) fn command(name: &str, version: &str) -> Command {
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
    command
}

const VERBS: [&str; 4] = ["run", "crds", "rbac", "manifests"];

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

const EXAMPLES: [Example; 7] = [
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

/// How the operator runs.
#[derive(Args, Clone, Debug)]
pub struct RunSettings {
    /// Look at this namespace only (repeatable); all of them by default
    #[arg(long = "namespace", env = "WATCH_NAMESPACE", value_delimiter = ',', value_name = "NAME")]
    pub namespaces: Vec<String>,
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

impl Default for RunSettings {
    fn default() -> Self {
        Self {
            namespaces: Vec::new(),
            no_leader_election: false,
            lease_namespace: None,
            install_crds: false,
            listen: SocketAddr::from(([0, 0, 0, 0], 8080)),
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
