//! Tuning on one machine: searches for faster schedules of a model's programs by measuring, keeps every
//! trial in records, and lets a schedule replace the one before only where the whole network is faster.
//!
//! `session` is a search, `resume` what it takes up of records, `rounds` its loop over programs, which `searched` holds; `device` and `measure` are the two ends of the process that measures;
//! `board` is another machine that candidates run on, and `loaded` an artifact here or there;
//! `devices` is all devices of a search, and `fleet` those on other machines; `measuring` is the one that is asked one thing at a time,
//! and `least` says below which time none can be;
//! `graph` decides about the graph before that; `confirm` is the comparison in the network, `finalists` who gets there, `revisions` when that is done before the end; `store` says where records lie, and `run_log`
//! carries those of a run in a cluster to and from object storage, and `post` tells the operator how far it is.

mod board;
mod confirm;
mod device;
mod devices;
mod finalists;
pub mod fleet;
mod graph;
mod interrupt;
mod least;
mod loaded;
mod measure;
mod measuring;
mod near;
mod outcome;
mod post;
mod protocol;
mod resume;
mod revisions;
mod rounds;
pub mod run_log;
mod run_progress;
mod searched;
mod session;
mod settings;
mod statistics;
pub mod store;
mod summary;

pub use board::Board;
pub use confirm::Verdict;
pub use device::DEVICE_VARIABLE;
pub use interrupt::Interrupt;
pub use measure::serve;
pub use outcome::{Outcome, TaskOutcome};
pub use post::Posts;
pub use session::{BATCH, Session};
pub use settings::{NOISE, Settings};
pub use summary::Summary;
