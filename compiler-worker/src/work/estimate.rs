//! Whether a narrower arithmetic pays on a device that is not here: by a model of its time, and by the reference
//! interpreter on the graph that is compiled, whose operands are rounded as the device's are.

use hone_artifact::Reader;
use hone_artifact::exit_code::Reason;
use hone_artifact::request::{Compile, Input};
use hone_driver::{DataType, DeviceEstimate, Graph, Target, estimate_for_device};
use serde::{Deserialize, Serialize};

use super::precision::{Tried, kept, nothing_found};
use super::verify::samples;
use super::{Build, Outcome, Worker};
use crate::compare::{Comparison, Tolerance};
use crate::compiler::{self, Model, Recipe};
use crate::failure::{Failure, Result};
use crate::inputs::CHEAP_FLOPS;

/// Share of the time that a narrower arithmetic must save by an estimate: more than by a measurement, since both times are
/// lower bounds.
const LEAST_ESTIMATED_GAIN: f64 = 0.1;

/// Why an arithmetic was chosen that nobody measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Estimated {
    /// The device whose figures were taken.
    pub device: String,
    /// Nanoseconds of a run in `f32`, or in the narrower arithmetic that was the best before.
    pub before: f64,
    /// Nanoseconds of a run in the arithmetic that was chosen.
    pub after: f64,
    /// Largest error of the rounded graph, by the reference interpreter, as a share of the largest output.
    pub max_fraction: f64,
}

impl Worker<'_> {
    /// Tries a narrower arithmetic for a device that is not here.
    pub(super) fn try_estimated(
        &self,
        request: &Compile,
        model: &Model,
        (best, known): (&Build, &Outcome),
        target: &Target,
        precision: DataType,
    ) -> Result<Tried> {
        if !self.options.verify {
            let why = "only verifying tells whether its answers are near enough";
            return Ok(Tried::Left(why.to_owned()));
        }
        let mut recipe = Recipe::analytic(precision);
        let mut build = self.build(request, model, target, &recipe)?;
        let before = estimate(best)?;
        let mut after = estimate(&build)?;
        let gain = |after: &DeviceEstimate| before.nanoseconds / after.nanoseconds;
        if let Some(refusal) = refusal(gain(&after), &after) {
            return Ok(Tried::Left(refusal));
        }
        self.progress.stage("find the error of rounding");
        let bound = request.max_relative_error.unwrap_or(0.0);
        let mut error = self.rounding_error(request, model, (&build, known), (target, &recipe))?;
        let mut kept_wide = String::new();
        if error > bound || error.is_nan() {
            let spoiled = format!(
                "its largest error is {error:.1e} of the largest output by the reference, the bound {bound:.1e}"
            );
            let answers = |recipe: &Recipe, (_, graph): (&[Input], &Graph), inputs: &[Vec<u8>]| {
                compiler::evaluate_prepared(graph, &recipe.options(target), inputs)
            };
            let guarded = self.guarded(request, model, (target, &recipe), bound, &answers)?;
            let Some(guarded) = guarded else { return Ok(Tried::Left(spoiled)) };
            recipe = guarded.recipe;
            build = self.build(request, model, target, &recipe)?;
            after = estimate(&build)?;
            error = self.rounding_error(request, model, (&build, known), (target, &recipe))?;
            if error > bound || error.is_nan() {
                return Ok(Tried::Left(spoiled));
            }
            if let Some(refusal) = refusal(gain(&after), &after) {
                return Ok(Tried::Left(refusal));
            }
            kept_wide = format!(", {} of {} nodes in f32", recipe.wide.len(), guarded.nodes);
        }
        let mut found = nothing_found(known, &recipe);
        self.examine(request, model, &build, target, &recipe, &mut found)?;
        found.details.estimated = Some(Estimated {
            device: after.device.to_owned(),
            before: before.nanoseconds,
            after: after.nanoseconds,
            max_fraction: error,
        });
        let note = format!(
            "{precision} is kept by an estimate, not measured: {:.2} times as fast by a model of {}{kept_wide}, largest error {error:.1e} of the largest output by the reference (bound {bound:.1e})",
            gain(&after),
            after.device
        );
        Ok(kept(build, found, known, note))
    }

    /// The largest error of the graph that is compiled, as a share of the largest magnitude in its output, over all samples.
    fn rounding_error(
        &self,
        request: &Compile,
        model: &Model,
        (build, known): (&Build, &Outcome),
        (target, recipe): (&Target, &Recipe),
    ) -> Result<f64> {
        let graphs = compiler::references(model, &build.manifest()?)?;
        let decisions = build.decisions()?;
        let options = recipe.options(target).with_decisions(&decisions);
        let cheap = known.details.flops() < CHEAP_FLOPS;
        let none = Tolerance { rtol: 0.0, atol: Some(0.0), fraction: 0.0 };
        let mut comparison = Comparison::default();
        let all = samples(self, request, &graphs, cheap)?;
        for (graph, samples) in graphs.iter().zip(&all) {
            for sample in samples.iter().filter(|sample| !sample.edges) {
                let want = compiler::evaluate(graph, &sample.inputs)?;
                let got = compiler::evaluate_prepared(graph, &options, &sample.inputs)?;
                let ports = compiler::ports(graph, true)?;
                for ((port, got), want) in ports.iter().zip(&got).zip(&want) {
                    comparison.add(port, got, want, none);
                }
            }
        }
        Ok(comparison.max_fraction)
    }
}

/// Why an arithmetic does not pay, if it does not.
fn refusal(gain: f64, after: &DeviceEstimate) -> Option<String> {
    if after.on_tensor_cores == 0 {
        return Some("no kernel of it has a form that tensor cores take".to_owned());
    }
    (gain.is_nan() || gain < 1.0 + LEAST_ESTIMATED_GAIN).then(|| {
        format!(
            "by an estimate for {}, not measured, it is {gain:.2} times as fast, which does not pay",
            after.device
        )
    })
}

/// The estimated time of a run of a build, at its largest sizes.
fn estimate(build: &Build) -> Result<DeviceEstimate> {
    let bytes = build.bytes()?;
    let reader = Reader::new(&bytes).map_err(|error| {
        Failure::because(Reason::InvalidArtifact, "the compiled artifact cannot be read", error)
    })?;
    let variant = reader.manifest().variants.first();
    let code =
        variant.and_then(|own| Some((own, std::str::from_utf8(reader.code(own.code)?).ok()?)));
    code.and_then(|(variant, code)| estimate_for_device(variant, code))
        .ok_or_else(|| Failure::internal("an artifact for tensor cores has no launches"))
}
