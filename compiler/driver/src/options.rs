//! What a compilation may be asked.

use crate::Target;
use hone_artifact::{Recipe, Variant};
use hone_tune::Prescription;
use hone_types::DataType;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How schedules are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulePolicy {
    /// The plain loop order, spread over threads; the baseline that speed-ups are counted from.
    Naive,
    /// By the analytic model, without measuring.
    Analytic,
}

/// Options of a compilation; equal options and models give bit-identical artifacts.
#[derive(Clone, Debug)]
pub struct Options {
    /// The machine to compile for.
    pub target: Target,
    /// How schedules are chosen.
    pub schedules: SchedulePolicy,
    /// The element type in which kernels hand numbers to one another, and multiply them where the
    /// target has instructions for it: [`DataType::F32`] or [`DataType::BF16`].
    pub precision: DataType,
    /// Names of nodes that stay in `f32` whatever the precision.
    pub wide: Vec<String>,
    /// Schedules of programs by their structural digest, which go before those of the analytic model; from
    /// tuning records.
    pub records: Arc<BTreeMap<String, Prescription>>,
    /// Keep schedules, loop programs and assembly of each kernel in the artifact, for `hone inspect`.
    pub keep_inspection: bool,
}

impl Options {
    /// Analytic schedules for `target`, with inspection texts.
    pub fn new(target: impl Into<Target>) -> Self {
        Self {
            target: target.into(),
            schedules: SchedulePolicy::Analytic,
            precision: DataType::F32,
            wide: Vec::new(),
            records: Arc::default(),
            keep_inspection: true,
        }
    }

    /// What an artifact's manifest says of these options.
    pub fn recipe(&self) -> Recipe {
        let schedules = match self.schedules {
            SchedulePolicy::Naive => "naive",
            SchedulePolicy::Analytic => "analytic",
        };
        Recipe {
            schedules: schedules.to_owned(),
            precision: self.precision.name().to_owned(),
            wide: self.wide.clone(),
            features: self.target.features.clone(),
        }
    }

    /// The options that a variant of an artifact was compiled with; `None` where its manifest does not say
    /// so, or says what this compiler does not know.
    pub fn of_variant(variant: &Variant) -> Option<Self> {
        let Recipe { schedules, precision, wide, features } = variant.recipe.clone()?;
        let schedules = match schedules.as_str() {
            "naive" => SchedulePolicy::Naive,
            "analytic" => SchedulePolicy::Analytic,
            _ => return None,
        };
        let hone_artifact::Target { triple, cpu, accelerator, .. } = &variant.target;
        let target =
            Target { accelerator: *accelerator, ..Target::new(triple, cpu, features).ok()? };
        let precision = precision.parse().ok()?;
        Some(Self { schedules, precision, wide, ..Self::new(target) })
    }
}
