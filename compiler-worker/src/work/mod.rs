//! One target from request to stored artifact: fetch, compile, verify, measure, store.
//!
//! The same for `hone compile` and for `hone worker`, so that both give the same bytes.

mod build;
pub mod emulated;
mod estimate;
pub mod executor;
mod given;
mod guard;
pub mod measure;
mod precision;
mod result;
mod search;
mod session;
mod tune;
pub mod verify;

use std::path::{Path, PathBuf};
use std::time::Instant;

use hone_artifact::exit_code::Reason;
use hone_artifact::report::{self, ArtifactReport, Report};
use hone_artifact::request::{Compile, Source};
use hone_dimensions::is_dynamic;
use hone_driver::{DataType, Target};
use serde_json::json;

pub use build::{Build, build, is_sound};
pub use emulated::Machine;
pub use estimate::Estimated;
pub use result::{Details, StepDetail, StoredResult, steps};
pub use search::OpenLog;
pub use session::serve;

use crate::cache::{Cache, Key, compiler_identity};
use crate::compiler::{self, Model, Recipe};
use crate::device;
use crate::failure::{Failure, Result};
use crate::measure::Effort;
use crate::show::{Progress, html};
use crate::storage::{Access, Destination, Fetched, shared};
use crate::tune::Summary;
use crate::tune::store::Recorded;

/// What one call of the program does for all its targets.
#[derive(Debug)]
pub struct Worker<'a> {
    /// What may be read and written.
    pub access: &'a Access,
    /// What was done before.
    pub cache: &'a Cache,
    /// Whom to tell how far it is.
    pub progress: &'a Progress,
    /// How the work is done.
    pub options: WorkOptions,
}

/// How the work is done.
#[derive(Clone, Debug)]
pub struct WorkOptions {
    /// Threads to measure on; 0 for all.
    pub threads: usize,
    /// Whether to hold answers against the reference.
    pub verify: bool,
    /// Whether to measure.
    pub measure: bool,
    /// Whether to measure naive schedules as well.
    pub baseline: bool,
    /// Whether this machine was given the device that a target for an accelerator is for, so that one without it is a
    /// fault.
    pub given_device: bool,
    /// How long to measure.
    pub effort: Effort,
}

impl Default for WorkOptions {
    fn default() -> Self {
        Self {
            threads: 0,
            verify: true,
            measure: true,
            baseline: false,
            given_device: false,
            effort: Effort::default(),
        }
    }
}

/// What came out for a target; on failure, what is known of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The contract with whoever asked.
    pub report: Report,
    /// What people and programs look at beside it.
    pub details: Details,
    /// The artifact on this machine.
    pub artifact: Option<PathBuf>,
    /// Where the page for people was stored.
    pub page: Option<String>,
}

impl Worker<'_> {
    /// Does all of it and fills in `outcome` as far as it comes.
    ///
    /// # Errors
    /// Every reason that [`Reason`] has for a compilation.
    pub fn run(&self, request: &Compile, outcome: &mut Outcome) -> Result<()> {
        let begin = Instant::now();
        let done = self.steps(request, outcome);
        outcome.report.compile_seconds = begin.elapsed().as_secs_f64();
        outcome.report.finished =
            Some(jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        self.progress.finish();
        done?;
        self.store_report(request, outcome)
    }

    fn steps(&self, request: &Compile, outcome: &mut Outcome) -> Result<()> {
        refuse_unsupported(request, &self.options)?;
        // Whether results can be stored is known before hours of work, not after.
        let destination = self.destination(request)?;
        self.progress.stage("fetch");
        let model = self.fetch(&request.model)?;
        outcome.report.model_digest = Some(model.digest.clone());
        if self.options.given_device {
            given::device(&request.target)?;
        }
        let target = compiler::target(&request.target)?;
        let taken = self.take_records(request)?;
        self.tune(request, &model, &target, outcome)?;
        let wide = self.build(request, &model, &target, &Recipe::analytic(DataType::F32))?;
        let key = self.result_key(request, &target, &wide.key);
        let build = match self.cache.result::<StoredResult>(&key).filter(|_| wide.hit) {
            Some(stored) => {
                let recipe = stored.recipe();
                let build = match recipe.precision {
                    DataType::F32 => wide,
                    _ => self.build(request, &model, &target, &recipe)?,
                };
                stored.fill(outcome);
                build
            }
            None => {
                let build = self.choose(request, &model, wide, &target, outcome)?;
                self.cache.keep_result(&key, &StoredResult::of(outcome))?;
                build
            }
        };
        outcome.details.notes.extend(taken);
        outcome.report.cache_hit = build.hit;
        let folder = self.cache.records_folder();
        // A search is for one size of each dimension.
        if !request.inputs.iter().any(|input| input.shape.iter().any(is_dynamic)) {
            let sizes = compiler::requests_of_sizes(&model, &request.inputs)?;
            outcome.details.tuning = Summary::read(&folder, &model, &sizes[0], &target);
        }
        // What the model keeps elsewhere may change under the same digest.
        outcome.report.reusable = !model.has_external_data();
        self.store_artifact(&destination, request, &build, outcome)
    }

    fn build(
        &self,
        request: &Compile,
        model: &Model,
        target: &Target,
        recipe: &Recipe,
    ) -> Result<Build> {
        build(self, model, &request.inputs, target, recipe)
    }

    /// Everything about the artifact, made by `recipe`, that is found out by running it.
    fn examine(
        &self,
        request: &Compile,
        model: &Model,
        build: &Build,
        target: &Target,
        recipe: &Recipe,
        outcome: &mut Outcome,
    ) -> Result<()> {
        outcome.report.records = outcome.details.describe(build)?;
        outcome.report.sizes = report::sizes(&build.sizes()?);
        let machine = Machine::of(&outcome.details.target);
        if let (Machine::Missing(why), true) = (&machine, self.options.verify) {
            outcome.report.unverified = Some(why.clone());
        }
        if self.options.verify
            && let Some(mut executor) = machine.load(&build.path)?
        {
            self.progress.stage("verify");
            let decisions = build.decisions()?;
            let options = recipe.options(target).with_decisions(&decisions);
            let bound = request.max_relative_error;
            let subject = (model, build);
            verify::verify(self, request, subject, &options, bound, &mut *executor, outcome)?;
        }
        if !machine.is_here() {
            outcome.details.notes.push(not_measured(&machine, self.options.verify));
        } else if self.options.measure {
            measure::measure(self, request, model, build, target, outcome)?;
        }
        Ok(())
    }

    /// Fetches the model, its digest checked.
    ///
    /// # Errors
    /// What the place refuses.
    pub fn fetch(&self, source: &Source) -> Result<Model> {
        let Fetched { bytes, files, digest } = self.access.fetch(source, self.cache.folder())?;
        let uri = &source.uri;
        let local =
            uri.starts_with("file://").then(|| self.access.places.existing(uri)).transpose()?;
        let folder = local.as_deref().and_then(Path::parent).map(Path::to_path_buf);
        let name = uri.rsplit('/').next().unwrap_or(uri).to_owned();
        Ok(Model { name, bytes, files, digest, folder })
    }

    fn destination(&self, request: &Compile) -> Result<Destination> {
        let credentials = request.output.credentials.as_deref();
        Destination::open(&request.output.uri, credentials, self.access)
    }

    /// The key of what was found out about an artifact: everything that it depends on beside it.
    fn result_key(&self, request: &Compile, target: &Target, artifact: &Key) -> Key {
        let machine = Machine::of(&hone_driver::manifest_target(target));
        let WorkOptions { threads, verify, measure, baseline, given_device: _, effort: _ } =
            self.options;
        artifact.with(&json!({
            "correctness": request.correctness,
            "precision": [json!(request.precision), json!(request.max_relative_error)],
            "threads": threads, "verify": verify, "measure": measure, "baseline": baseline,
            "machine": device::fingerprint_of(&hone_driver::manifest_target(target)),
            "executedBy": machine.name(),
        }))
    }

    fn store_artifact(
        &self,
        destination: &Destination,
        request: &Compile,
        build: &Build,
        outcome: &mut Outcome,
    ) -> Result<()> {
        self.progress.stage("store");
        let bytes = build.bytes()?;
        let digest = build.digest_of(&bytes);
        let stem = stem(&request.target.name, &digest);
        let uid = &outcome.report.subject.uid;
        if !uid.is_empty() {
            // Before it is there, so that no other compilation deletes it.
            shared::enter(destination, &format!("{stem}.hone"), uid)?;
        }
        destination.create(&format!("{stem}.hone"), &build.path, &bytes)?;
        if !uid.is_empty() {
            shared::confirm(destination, &format!("{stem}.hone"), uid)?;
        }
        outcome.report.artifact = Some(ArtifactReport {
            uri: destination.uri(&format!("{stem}.hone")),
            digest,
            size_bytes: bytes.len() as u64,
        });
        outcome.artifact = Some(build.path.clone());
        Ok(())
    }

    /// Stores the report beside the artifact, for programs and for people.
    fn store_report(&self, request: &Compile, outcome: &mut Outcome) -> Result<()> {
        let Some(artifact) = &outcome.report.artifact else { return Ok(()) };
        let destination = self.destination(request)?;
        let stem = stem(&request.target.name, &artifact.digest);
        let stem = report::stem(&stem, &outcome.report.subject.uid);
        let json = result::to_json(&outcome.report, &outcome.details);
        destination.overwrite(&format!("{stem}.json"), json.as_bytes())?;
        let page = html::page(&outcome.report, &outcome.details);
        destination.overwrite(&format!("{stem}.html"), page.as_bytes())?;
        outcome.page = Some(destination.uri(&format!("{stem}.html")));
        Ok(())
    }
}

/// What a person should know of an artifact that this machine cannot run.
fn not_measured(machine: &Machine, verify: bool) -> String {
    match machine {
        Machine::Emulated(emulator) if verify => {
            format!("this machine cannot run it: verified by {}, not measured", emulator.name())
        }
        Machine::Missing(why) if verify => {
            format!("this machine cannot run it: neither verified nor measured ({why})")
        }
        _ => "this machine cannot run it: neither verified nor measured".to_owned(),
    }
}

/// The name of a target's files: content-addressed, so that no artifact is stored twice, and by the whole digest, so
/// that nobody finds other bytes for a name.
fn stem(target: &str, digest: &str) -> String {
    let hex = digest.strip_prefix("sha256:").unwrap_or(digest);
    format!("{target}-{hex}")
}

/// Requests of another origin may ask for what this release cannot do.
fn refuse_unsupported(request: &Compile, options: &WorkOptions) -> Result<()> {
    let mut refused = Vec::new();
    // What a target has no instructions for is left out of its artifact, with a note.
    let known = ["f32", "bf16", "f16"];
    if let Some(accelerator) = &request.target.accelerator {
        let plain = matches!(accelerator.as_str(), "opencl" | "webgpu");
        if plain && request.precision.iter().any(|own| own != "f32") {
            refused.push(
                "arithmetic below f32 on OpenCL and WebGPU arrives in a later release: leave f32",
            );
        }
        if request.tuning.policy != "Never" {
            refused.push("tuning for accelerators arrives in a later release: set policy Never");
        }
        if options.baseline {
            refused.push("accelerators have no naive schedules: leave out the baseline");
        }
    }
    let is_known = |own: &String| known.contains(&own.as_str());
    if !request.precision.iter().all(is_known) || request.calibration.is_some() {
        refused.push("int8 arrives in a later release: leave f32, bf16 and, on tensor cores, f16");
    }
    if !matches!(request.tuning.policy.as_str(), "Never" | "IfNotCached" | "Always") {
        refused.push("this tuning policy is of another release: set Never, IfNotCached or Always");
    }
    match refused.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(Reason::NotSupportedYet, refused.join("; "))),
    }
}

impl Outcome {
    /// Nothing done yet.
    pub fn new(subject: hone_artifact::request::Subject, target: &str) -> Self {
        Self {
            report: Report::new(subject, target, env!("CARGO_PKG_VERSION")),
            details: Details::default(),
            artifact: None,
            page: None,
        }
    }
}

/// The key of an artifact: everything that decides its bytes.
fn artifact_key(
    model: &Model,
    inputs: &[hone_artifact::request::Input],
    target: &Target,
    recipe: &Recipe,
    records: &Recorded,
) -> Key {
    Key::of(&json!({
        "model": model.digest,
        "inputs": inputs,
        "target": [json!([&target.triple, &target.cpu]), json!(target.features)],
        "accelerator": target.accelerator,
        "schedules": format!("{:?}", recipe.schedules),
        "precision": [json!(recipe.precision.name()), json!(recipe.wide)],
        "compiler": compiler_identity(),
        "records": **records,
    }))
}
