//! Which arithmetic an artifact uses: the narrowest is not always the fastest, and never the nearest.
//! A narrower one is kept where a paired measurement shows that it is faster, and its answers are
//! within the bound that the request sets. For a device that is not here an estimate takes the place of both (`estimate.rs`).

use hone_artifact::exit_code::Reason;
use hone_artifact::request::{Compile, Input};
use hone_driver::{DataType, Graph, Target};
use hone_runtime::Options;

use super::executor::{Executor, Native};
use super::measure::Subject;
use super::{Build, Machine, Outcome, Worker};
use crate::compiler::{self, Model, Recipe};
use crate::failure::Result;
use crate::measure::{interleaved, summarize};

/// Share of the time that a narrower arithmetic must save.
const LEAST_GAIN: f64 = 0.03;

impl Worker<'_> {
    /// Examines `wide`, the build in `f32`, and those in narrower arithmetic that may be used; returns
    /// the one to keep, `outcome` being about that.
    pub(super) fn choose(
        &self,
        request: &Compile,
        model: &Model,
        wide: Build,
        target: &Target,
        outcome: &mut Outcome,
    ) -> Result<Build> {
        self.examine(request, model, &wide, target, &Recipe::analytic(DataType::F32), outcome)?;
        outcome.report.precision = Some(DataType::F32.name().to_owned());
        let mut best = wide;
        for precision in narrower(request) {
            match self.try_narrow(request, model, (&best, &*outcome), target, precision) {
                Ok(Tried::Kept(kept)) => (best, *outcome) = *kept,
                Ok(Tried::Left(why)) => {
                    outcome.details.notes.push(format!("{precision} is not used: {why}"));
                }
                // Code that is wrong in a narrower arithmetic leaves that in `f32` as good as it is.
                Err(failure)
                    if !matches!(failure.reason, Reason::NoisyDevice | Reason::WrongCode) =>
                {
                    return Err(failure);
                }
                Err(failure) => {
                    let why = failure.chain();
                    outcome.details.notes.push(format!("{precision} is not used: {why}"));
                }
            }
        }
        Ok(best)
    }

    fn try_narrow(
        &self,
        request: &Compile,
        model: &Model,
        (best, known): (&Build, &Outcome),
        target: &Target,
        precision: DataType,
    ) -> Result<Tried> {
        let left = |why: &str| Ok(Tried::Left(why.to_owned()));
        if !target.multiplies(precision) {
            return left("the target has no instructions for it");
        }
        let machine = Machine::of(&hone_driver::manifest_target(target));
        if target.accelerator.is_some() && !machine.is_here() {
            return self.try_estimated(request, model, (best, known), target, precision);
        }
        let (Some(correctness), Some(_)) = (&known.report.correctness, &known.report.latency)
        else {
            return left("only verifying and measuring on the target tells whether it pays");
        };
        debug_assert!(correctness.passed);
        let bound = request.max_relative_error.unwrap_or(0.0);
        let mut recipe = Recipe::analytic(precision);
        let (mut build, mut found) = self.examined(request, model, target, &recipe, known)?;
        let mut kept_wide = String::new();
        if !within(&found, bound) {
            let fraction = found.details.max_fraction;
            let spoiled = format!(
                "its largest error is {fraction:.1e} of the largest output, the bound {bound:.1e}"
            );
            let answers = |recipe: &Recipe, (sizes, _): (&[Input], &Graph), inputs: &[Vec<u8>]| {
                let records = self.cache.recorded(target)?;
                let compiled = compiler::compile(model, sizes, target, recipe, &records)?;
                Native::from_bytes(compiled.artifact, &Options::default())?.run(inputs)
            };
            let guarded = self.guarded(request, model, (target, &recipe), bound, &answers)?;
            let Some(guarded) = guarded else { return left(&spoiled) };
            recipe = guarded.recipe;
            (build, found) = self.examined(request, model, target, &recipe, known)?;
            if !within(&found, bound) {
                return left(&spoiled);
            }
            kept_wide = format!(", {} of {} nodes in f32", recipe.wide.len(), guarded.nodes);
        }
        let gain = self.gain(&build, best)?;
        if gain < 1.0 + LEAST_GAIN {
            return left(&format!("it is {gain:.2} times as fast, which does not pay"));
        }
        let fraction = found.details.max_fraction;
        let note = format!(
            "{precision} is kept: {gain:.2} times as fast{kept_wide}, largest error {fraction:.1e} of the largest output (bound {bound:.1e})"
        );
        Ok(kept(build, found, known, note))
    }

    /// A build and what running it tells; answers that are too far from the reference are told like others.
    fn examined(
        &self,
        request: &Compile,
        model: &Model,
        target: &Target,
        recipe: &Recipe,
        known: &Outcome,
    ) -> Result<(Build, Outcome)> {
        let build = self.build(request, model, target, recipe)?;
        let mut found = nothing_found(known, recipe);
        match self.examine(request, model, &build, target, recipe, &mut found) {
            Err(failure) if failure.reason != Reason::CorrectnessBreach => Err(failure),
            _ => Ok((build, found)),
        }
    }

    /// How many times as fast one build is as another, measured in turns.
    fn gain(&self, subject: &Build, rival: &Build) -> Result<f64> {
        self.progress.stage("compare");
        let mut subject = Subject::load(&subject.path, self.options.threads)?;
        let mut rival = Subject::load(&rival.path, self.options.threads)?;
        let mut rival_run = || rival.run();
        let (ours, theirs) =
            interleaved(self.options.effort, || subject.run(), Some(&mut rival_run))?;
        let median = |times: &[u64]| summarize(times).map_or(f64::NAN, |own| own.p50 as f64);
        Ok(median(&theirs) / median(&ours))
    }
}

/// Whether a build was verified, and its errors are within a bound.
fn within(found: &Outcome, bound: f64) -> bool {
    let passed = found.report.correctness.as_ref().is_some_and(|own| own.passed);
    passed && found.details.max_fraction <= bound
}

/// What is found out of a build in a narrower arithmetic: nothing yet, of what `known` is about.
pub(super) fn nothing_found(known: &Outcome, recipe: &Recipe) -> Outcome {
    let mut found = Outcome::new(known.report.subject.clone(), &known.report.target);
    found.report.model_digest = known.report.model_digest.clone();
    found.report.precision = Some(recipe.precision.name().to_owned());
    found.details.wide = recipe.wide.clone();
    found
}

/// A build that is kept: what was known before goes in front, and `note` says why.
pub(super) fn kept(build: Build, mut found: Outcome, known: &Outcome, note: String) -> Tried {
    let told = known.details.notes.iter().filter(|own| !found.details.notes.contains(own));
    let told: Vec<String> = told.cloned().collect();
    found.details.notes.splice(0..0, told);
    found.details.stages.splice(0..0, known.details.stages.iter().cloned());
    found.details.notes.push(note);
    Tried::Kept(Box::new((build, found)))
}

/// What became of a narrower arithmetic.
pub(super) enum Tried {
    /// It is faster and near enough.
    Kept(Box<(Build, Outcome)>),
    /// It is not used, for this reason.
    Left(String),
}

/// What may be used beside `f32`.
fn narrower(request: &Compile) -> impl Iterator<Item = DataType> {
    let known = request.precision.iter().filter_map(|name| name.parse().ok());
    known.filter(|precision: &DataType| *precision != DataType::F32)
}
