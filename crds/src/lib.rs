//! The words users write: the kinds of `hone.dev/v1alpha1`, their rules, and how a file of them is read.
//!
//! One kind a file. The types are the only source: the CRDs under `crds/` are generated from
//! them (`cargo xtask generate`), and the same schema and CEL rules that the API server
//! enforces are run here on a local file by [`parse::from_yaml`], so that `hone compile -f`
//! and `kubectl apply -f` accept and refuse the same things.
//!
//! Always true: no cluster call, no compiler type, no logic beyond defaults and rules.

// Columns and rules repeat keys such as `type_` on purpose.
#![allow(clippy::duplicated_attributes)]

pub mod common;
pub mod conditions;
pub mod decimal;
pub mod device_pool;
pub mod duration;
pub mod generate;
pub mod inputs;
pub mod model_compilation;
pub mod not_yet;
pub mod parse;
pub mod reference;
pub mod schema_check;
pub mod status;
pub mod tuning_run;

pub use common::{
    Accelerator, ElementType, LocalSecretRef, ModelSource, Platform, PrecisionType, SampleSource,
};
pub use decimal::Decimal;
pub use device_pool::{DevicePool, DevicePoolSpec, DevicePoolStatus};
pub use duration::{Duration, DurationError};
pub use inputs::{InputBinding, SizeRange};
pub use model_compilation::{ModelCompilation, ModelCompilationSpec};
pub use parse::SpecError;
pub use status::{ModelCompilationStatus, Phase, TargetStatus};
pub use tuning_run::{TuningRun, TuningRunSpec, TuningRunStatus};

/// The API group of every kind.
pub const GROUP: &str = "hone.dev";
/// The version of every kind in [`GROUP`].
pub const VERSION: &str = "v1alpha1";
/// `apiVersion` as it stands in a file.
pub const API_VERSION: &str = "hone.dev/v1alpha1";
