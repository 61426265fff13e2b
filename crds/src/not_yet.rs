//! What the types already say but this release does not do: refused in words, never ignored.
//!
//! One list for both doors: `hone compile` refuses before it starts, the operator with a
//! terminal condition. What begins to work loses its line here.

use crate::model_compilation::{ModelCompilationSpec, Target, TuningPolicy};
use crate::tuning_run::TuningRunSpec;
use crate::{Accelerator, InputBinding, PrecisionType};

/// A field that this release cannot honour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotYet {
    /// Path of the field, such as `spec.precision.allow`.
    pub field: &'static str,
    /// What to do instead.
    pub advice: &'static str,
}

/// Every field of a tuning run's `spec` that this release cannot honour.
pub fn not_yet_in_runs(spec: &TuningRunSpec) -> Vec<NotYet> {
    let mut found = Vec::new();
    let mut refuse = |field, advice| found.push(NotYet { field, advice });
    if spec.inputs.iter().flatten().any(InputBinding::has_several) {
        refuse(
            "spec.inputs",
            "a run tunes one size of each dimension in this release: name one, and make a run for each of the others",
        );
    }
    if spec.target.accelerator.is_some() {
        refuse(
            "spec.target.accelerator",
            "tuning for accelerators arrives in a later release: remove it, and name a pool of kind CPU",
        );
    }
    found
}

/// Every field of `spec` that this release cannot honour.
pub fn not_yet(spec: &ModelCompilationSpec) -> Vec<NotYet> {
    let mut found = Vec::new();
    let mut refuse = |field, advice| found.push(NotYet { field, advice });
    if let Some(precision) = &spec.precision {
        let allows = |type_: PrecisionType| precision.allow.contains(&type_);
        let halves = spec.targets.iter().any(has_tensor_cores);
        if allows(PrecisionType::Int8) || (allows(PrecisionType::F16) && !halves) {
            refuse(
                "spec.precision.allow",
                match halves {
                    true => "int8 arrives in a later release: leave f32, bf16 and f16",
                    false => "f16 and int8 arrive in a later release: leave f32 and bf16",
                },
            );
        }
        if precision.calibration.is_some() {
            refuse(
                "spec.precision.calibration",
                "calibration arrives in a later release: remove it",
            );
        }
    }
    if spec.tuning.as_ref().is_some_and(|tuning| tuning.policy != TuningPolicy::Never) {
        found.extend(not_yet_tuned(spec));
    }
    found
}

/// Whether code for a target may multiply numbers of 16 bits on tensor cores. What platform a pool has is not known here, nor
/// what device `cuda` is: where there are no instructions for an arithmetic that is allowed, the worker leaves it out with a
/// note.
fn has_tensor_cores(target: &Target) -> bool {
    let Some(platform) = &target.platform else { return true };
    platform.accelerator.is_some_and(|own| {
        matches!(
            own,
            Accelerator::Cuda
                | Accelerator::Sm80
                | Accelerator::Sm86
                | Accelerator::Sm89
                | Accelerator::Sm90
        )
    })
}

/// Why the targets of `spec` cannot be tuned in a cluster.
fn not_yet_tuned(spec: &ModelCompilationSpec) -> Option<NotYet> {
    let narrow = spec.precision.iter().flat_map(|precision| &precision.allow);
    let advice = if narrow.into_iter().any(|own| *own != PrecisionType::F32) {
        "a run tunes arithmetic in f32 in this release: set policy to Never, or leave f32 alone in spec.precision.allow"
    } else if spec.inputs.iter().any(InputBinding::has_several) {
        "a run tunes one size of each dimension in this release: set policy to Never, or name one size of each in spec.inputs"
    } else if spec.targets.iter().any(|t| t.platform.iter().any(|own| own.accelerator.is_some())) {
        "tuning for accelerators arrives in a later release: set policy to Never"
    } else {
        return None;
    };
    Some(NotYet { field: "spec.tuning", advice })
}
