//! Which arithmetic an artifact uses: the narrowest is not always the fastest, and never the nearest.
//! A narrower one is kept where a paired measurement shows that it is faster, and its answers are
//! within the bound that the request sets.

use hone_artifact::exit_code::Reason;
use hone_artifact::request::Compile;
use hone_driver::{DataType, Target};

use super::measure::Subject;
use super::{Build, Outcome, Worker};
use crate::compiler::Model;
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
        self.examine(request, model, &wide, target, 0.0, outcome)?;
        outcome.report.precision = Some(DataType::F32.name().to_owned());
        let mut best = wide;
        for precision in narrower(request) {
            let bound = request.max_relative_error.unwrap_or(0.0);
            let mut notes = Vec::new();
            match self.try_narrow(request, model, (&best, &*outcome), target, precision) {
                Ok(Tried::Kept(kept, gain)) => {
                    let (build, found) = *kept;
                    let share = found.details.max_share;
                    notes.push(format!(
                        "{precision} is kept: {gain:.2} times as fast, largest error {share:.1e} of the largest output (bound {bound:.1e})"
                    ));
                    *outcome = found;
                    best = build;
                }
                Ok(Tried::Left(why)) => notes.push(format!("{precision} is not used: {why}")),
                Err(failure) if failure.reason != Reason::NoisyDevice => return Err(failure),
                Err(failure) => {
                    notes.push(format!("{precision} is not used: {}", failure.chain()));
                }
            }
            outcome.details.notes.extend(notes);
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
        let (Some(correctness), Some(_)) = (&known.report.correctness, &known.report.latency)
        else {
            return left("only verifying and measuring on the target tells whether it pays");
        };
        debug_assert!(correctness.passed);
        let build = self.build(request, model, target, precision)?;
        let mut found = Outcome::new(known.report.subject.clone(), &known.report.target);
        found.report.model_digest = known.report.model_digest.clone();
        found.report.precision = Some(precision.name().to_owned());
        let bound = request.max_relative_error.unwrap_or(0.0);
        match self.examine(request, model, &build, target, bound, &mut found) {
            Err(failure) if failure.reason != Reason::CorrectnessBreach => return Err(failure),
            _ => {}
        }
        if found.details.max_share > bound {
            let share = found.details.max_share;
            return left(&format!(
                "its largest error is {share:.1e} of the largest output, the bound {bound:.1e}"
            ));
        }
        let gain = self.gain(&build, best)?;
        if gain < 1.0 + LEAST_GAIN {
            return left(&format!("it is {gain:.2} times as fast, which does not pay"));
        }
        found.details.notes.splice(0..0, known.details.notes.iter().cloned());
        found.details.stages.splice(0..0, known.details.stages.iter().cloned());
        Ok(Tried::Kept(Box::new((build, found)), gain))
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

/// What became of a narrower arithmetic.
enum Tried {
    /// It is faster, by this factor, and near enough.
    Kept(Box<(Build, Outcome)>, f64),
    /// It is not used, for this reason.
    Left(String),
}

/// What may be used beside `f32`.
fn narrower(request: &Compile) -> impl Iterator<Item = DataType> {
    let known = request.precision.iter().filter_map(|name| name.parse().ok());
    known.filter(|precision: &DataType| *precision != DataType::F32)
}
