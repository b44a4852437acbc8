//! [`SpecTrial`]: applies each change, and takes it back.

use std::{
    fmt,
    time::{Duration, Instant},
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion,
};
use kube::{
    Api,
    api::{Patch, PatchParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};

use super::mutations::{Mutation, mutations};
use crate::{
    control_plane::ControlPlane,
    error::{Error, Result},
    faults::{Difference, OneRun, Schedule, State, Subject, listed_kinds},
};

/// An operator that wrote nothing for so long has settled.
const QUIET: Duration = Duration::from_millis(900);
/// How often is looked for what everything is compared with.
const LOOKS: u32 = 10;
/// One that writes for longer than that never settles.
const PATIENCE: Duration = Duration::from_secs(20);

/// An operator, and a resource of its kind that it can make sense of.
pub struct SpecTrial {
    subject: Subject,
    crd: CustomResourceDefinition,
    resource: Value,
}

/// What was wrong with a change.
#[derive(Clone, Debug, PartialEq)]
pub struct SpecFinding {
    /// The change.
    pub mutation: Mutation,
    /// What was wrong.
    pub problem: String,
}

/// What was tried, and what was found.
#[derive(Clone, Debug, Default)]
pub struct SpecReport {
    /// How many changes were tried.
    pub tried: usize,
    /// How many of them the API server refused.
    pub refused: usize,
    /// How many were applied and taken back.
    pub taken_back: usize,
    /// How long it took.
    pub took: Duration,
    /// What was wrong.
    pub findings: Vec<SpecFinding>,
}

impl fmt::Display for SpecReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "{} specs in {:.0} s: {} refused at admission, {} applied and taken back, {} wrong",
            self.tried,
            self.took.as_secs_f64(),
            self.refused,
            self.taken_back,
            self.findings.len()
        )?;
        for finding in &self.findings {
            writeln!(formatter, "  {}: {}", finding.mutation, finding.problem)?;
        }
        Ok(())
    }
}

impl SpecTrial {
    /// Changes of this resource, as the CRD's schema gives rise to them.
    pub fn new(subject: Subject, crd: CustomResourceDefinition, resource: Value) -> Self {
        Self { subject, crd, resource }
    }

    fn version(&self) -> Result<&CustomResourceDefinitionVersion> {
        let stored = self.crd.spec.versions.iter().find(|version| version.storage);
        stored.ok_or_else(|| Error::Trial {
            subject: self.crd.spec.names.kind.clone(),
            problem: "its CRD has no version that is stored".to_owned(),
        })
    }

    fn mutations(&self) -> Result<Vec<Mutation>> {
        let schema = self.version()?.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
        let spec = schema.and_then(|schema| schema.properties.as_ref()?.get("spec"));
        let value = self.resource.get("spec").cloned().unwrap_or_default();
        let all = spec.map(|schema| mutations(schema, &value, "/spec")).unwrap_or_default();
        Ok(all.into_iter().filter(|mutation| mutation.path != "/spec").collect())
    }

    /// Runs all of it.
    ///
    /// # Errors
    /// When the test's own surroundings fail.
    pub async fn run(&self) -> Result<SpecReport> {
        let began = Instant::now();
        let plane = ControlPlane::shared().await?;
        let kinds = listed_kinds(&plane.client()?).await?;
        let namespace = plane.namespace("specs").await?;
        let identity = namespace.with_rules(self.subject.rules().to_vec()).await?;
        let run = OneRun::start(&self.subject, &namespace, &identity, &Schedule::default()).await?;
        let names = &self.crd.spec.names;
        let gvk = GroupVersionKind::gvk(&self.crd.spec.group, &self.version()?.name, &names.kind);
        let kind = ApiResource::from_gvk_with_plural(&gvk, &names.plural);
        let client = namespace.client()?;
        let resources: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace.name(), &kind);
        let looking =
            Looking { run: &run, resources, kind: &kind, kinds: &kinds, client, namespace: namespace.name() };
        looking.apply(&self.resource).await.map_err(Error::api("apply the resource"))?;
        looking.begun().await;
        let Some(before) = looking.settled_for_good().await? else {
            let problem = "it does not settle".to_owned();
            return Err(Error::Trial { subject: names.kind.clone(), problem });
        };
        let mut report = SpecReport::default();
        for mutation in self.mutations()? {
            report.tried += 1;
            match looking.try_out(&mutation, &self.resource, &before).await? {
                Verdict::Refused => report.refused += 1,
                Verdict::TakenBack => report.taken_back += 1,
                Verdict::Wrong(problem) => report.findings.push(SpecFinding { mutation, problem }),
            }
        }
        report.took = began.elapsed();
        Ok(report)
    }
}

enum Verdict {
    Refused,
    TakenBack,
    Wrong(String),
}

struct Looking<'a> {
    run: &'a OneRun<'a>,
    resources: Api<DynamicObject>,
    kind: &'a ApiResource,
    kinds: &'a [ApiResource],
    client: kube::Client,
    namespace: &'a str,
}

impl Looking<'_> {
    /// As `kubectl apply --server-side` does.
    async fn apply(&self, resource: &Value) -> kube::Result<DynamicObject> {
        let mut object = resource.clone();
        if let Some(fields) = object.as_object_mut() {
            fields.insert("apiVersion".to_owned(), json!(self.kind.api_version));
            fields.insert("kind".to_owned(), json!(self.kind.kind));
        }
        let name = resource.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let params = PatchParams::apply("somebody").force();
        self.resources.patch(name, &params, &Patch::Apply(object)).await
    }

    /// Waits until the operator has written something: on a busy machine it may be quiet because it has not begun.
    async fn begun(&self) {
        let began = Instant::now();
        while !self.run.has_written() && began.elapsed() < PATIENCE {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// What everything is compared with: two looks see the same, some time apart. On a busy machine an operator may be quiet
    /// because it has not gone on yet.
    async fn settled_for_good(&self) -> Result<Option<State>> {
        let mut last = self.settled().await?;
        for _ in 0..LOOKS {
            tokio::time::sleep(QUIET * 2).await;
            let now = self.settled().await?;
            if now == last {
                return Ok(now);
            }
            last = now;
        }
        Ok(None)
    }

    /// What there is once the operator has settled; nothing if it does not.
    async fn settled(&self) -> Result<Option<State>> {
        let began = Instant::now();
        tokio::time::sleep(QUIET).await;
        while self.run.quiet_for() < QUIET {
            if began.elapsed() > PATIENCE {
                return Ok(None);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        State::of(&self.client, self.namespace, self.kinds).await.map(Some)
    }

    async fn try_out(&self, mutation: &Mutation, resource: &Value, before: &State) -> Result<Verdict> {
        match self.apply(&mutation.apply(resource)).await {
            Err(kube::Error::Api(status)) if (400..500).contains(&status.code) => {
                return Ok(Verdict::Refused);
            }
            // A schema that does not fit is told by server-side apply like this.
            Err(kube::Error::Api(status)) if !mutation.is_valid && status.code == 500 => {
                return Ok(Verdict::Refused);
            }
            Err(error) => return Err(Error::api(format!("apply {mutation}"))(error)),
            Ok(_) => {}
        }
        if !mutation.is_valid {
            return Ok(Verdict::Wrong("the schema does not allow it, and it was accepted".to_owned()));
        }
        let is_settled = self.settled().await?.is_some();
        self.apply(resource).await.map_err(Error::api(format!("take back {mutation}")))?;
        let after = self.settled().await?;
        Ok(match after {
            _ if self.run.has_died() => Verdict::Wrong("the operator ended".to_owned()),
            None => Verdict::Wrong("taken back, it does not settle".to_owned()),
            Some(_) if !is_settled => Verdict::Wrong("it does not settle".to_owned()),
            Some(after) => match after.differences(before).as_slice() {
                [] => Verdict::TakenBack,
                differences => {
                    let all: Vec<_> = differences.iter().map(Difference::to_string).collect();
                    Verdict::Wrong(format!("taken back, it is not as it was: {}", all.join("; ")))
                }
            },
        })
    }
}
