//! Searches for faster schedules: candidates of a task, strategies that propose them, a cost model that
//! learns from measurements, and the records that are kept. It measures nothing itself and makes no code.
//!
//! A *task* is one program of a network and how often a run needs it. A *candidate* is a template and its
//! decisions. A *trial* is a candidate that was measured, or found to be wrong. Everything here is
//! deterministic: equal seeds and equal measurements give equal proposals.

mod accuracy;
mod allocate;
pub mod autotvm;
mod candidate;
mod features;
mod model;
mod nest;
mod neural;
mod older;
mod records;
mod source;
mod strategy;
mod transfer;
mod trees;

pub use accuracy::{Accuracy, FIRST, Judgement, MIN_TRIALS, judgements};
pub use allocate::{Allocator, Progress};
pub use candidate::{Candidate, Space, Trial};
pub use features::{FEATURES, Features, features};
pub use hone_types::Random;
pub use model::{COST_MODELS, CostModel, Learned, Sample, cost_model};
pub use nest::{BLOCK, BLOCK_VALUES, LOOP_VALUES, Nest, Node};
pub use neural::Neural;
pub use older::{Migrated, migrate};
pub use records::{
    Class, Kind, Log, Record, RecordsError, SCHEMA, Skipped, Winners, file_names, read_file,
    read_folder,
};
pub use strategy::{STRATEGIES, Strategy, Task, strategy};
pub use transfer::Transfer;
