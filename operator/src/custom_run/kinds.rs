//! The kinds that a run may be of, in one table: a line of each match is all that a further kind takes.

use hone_crds::conditions::READY;
use hone_crds::status::Failure;
use hone_crds::{ModelCompilation, Phase, TuningRun, generate, parse};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::Resource;
use kube::api::ApiResource;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::model::ChildView;
use super::resource::RunResult;
use super::results;
use crate::children::owner;

/// A kind that a run may be of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Compiles a model.
    ModelCompilation,
    /// Searches for faster schedules.
    TuningRun,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::ModelCompilation, Self::TuningRun];

    /// The kind of these words, where there is one.
    pub fn of(api_version: &str, kind: &str) -> Option<Self> {
        let found = Self::ALL.into_iter().find(|own| own.as_str() == kind);
        found.filter(|_| api_version == hone_crds::API_VERSION)
    }

    /// The word in `kind`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ModelCompilation => "ModelCompilation",
            Self::TuningRun => "TuningRun",
        }
    }

    /// What the API server calls it.
    pub fn resource(self) -> ApiResource {
        match self {
            Self::ModelCompilation => ApiResource::erase::<ModelCompilation>(&()),
            Self::TuningRun => ApiResource::erase::<TuningRun>(&()),
        }
    }

    /// The OpenAPI schema of its spec.
    pub fn schema(self) -> Value {
        let mut whole = match self {
            Self::ModelCompilation => generate::schema_of::<ModelCompilation>(),
            Self::TuningRun => generate::schema_of::<TuningRun>(),
        };
        whole["properties"]["spec"].take()
    }

    /// Why the API server would not take `object`, unknown fields included; `None` where it would.
    pub fn fault(self, object: Value) -> Option<String> {
        let fault = match self {
            Self::ModelCompilation => parse::from_value::<ModelCompilation>(object).err(),
            Self::TuningRun => parse::from_value::<TuningRun>(object).err(),
        };
        fault.map(|fault| fault.to_string())
    }
}

/// What planning sees of an object of one of the kinds; `run` is the uid of the run.
pub trait Followed {
    /// That view.
    fn view(&self, run: &str) -> ChildView;
    /// Its spec, as a template for others.
    fn template(&self) -> Value;
}

impl Followed for ModelCompilation {
    fn view(&self, run: &str) -> ChildView {
        let told = self.status.as_ref().map(|status| Told {
            generation: status.observed_generation,
            phase: status.phase,
            conditions: &status.conditions,
            failure: status.failure.as_ref(),
            results: results::of_compilation(status),
        });
        view((&self.metadata, self.spec.suspend), told, run)
    }

    fn template(&self) -> Value {
        without_suspend(serde_json::to_value(&self.spec))
    }
}

impl Followed for TuningRun {
    fn view(&self, run: &str) -> ChildView {
        let told = self.status.as_ref().map(|status| Told {
            generation: status.observed_generation,
            phase: status.phase,
            conditions: &status.conditions,
            failure: status.failure.as_ref(),
            results: results::of_tuning_run(&self.spec, status),
        });
        view((&self.metadata, self.spec.suspend), told, run)
    }

    fn template(&self) -> Value {
        without_suspend(serde_json::to_value(&self.spec))
    }
}

/// What the statuses of both kinds say in the same words, and what came out.
struct Told<'a> {
    generation: Option<i64>,
    phase: Phase,
    conditions: &'a [Condition],
    failure: Option<&'a Failure>,
    results: Vec<RunResult>,
}

/// The view of an object, suspended or not. A status that speaks of an earlier spec says nothing.
fn view(
    (metadata, suspended): (&ObjectMeta, bool),
    told: Option<Told<'_>>,
    run: &str,
) -> ChildView {
    let controller = owner::controller(metadata, super::resource::GROUP, super::resource::KIND);
    let told = told.filter(|own| own.generation == metadata.generation);
    let ready = told.as_ref().and_then(|own| own.conditions.iter().find(|own| own.type_ == READY));
    ChildView {
        owned: controller.is_some_and(|owner| owner.uid == run),
        suspended,
        phase: told.as_ref().map(|own| own.phase).unwrap_or_default(),
        reason: ready.map(|own| own.reason.clone()).unwrap_or_default(),
        message: ready.map(|own| own.message.clone()).unwrap_or_default(),
        failure: told.as_ref().and_then(|own| own.failure.cloned()),
        results: told.map(|own| own.results).unwrap_or_default(),
    }
}

/// A template may be suspended, so that it is nothing but one.
fn without_suspend(spec: serde_json::Result<Value>) -> Value {
    let mut spec = spec.unwrap_or_default();
    if let Some(fields) = spec.as_object_mut() {
        fields.remove("suspend");
    }
    spec
}

/// The group and version of both kinds.
pub fn api_version() -> String {
    ModelCompilation::api_version(&()).into_owned()
}
