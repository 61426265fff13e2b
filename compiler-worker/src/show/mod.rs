//! What people see: progress, tables, a page, the status; numbers with their units.

pub mod html;
mod plot;
mod progress;
pub mod status;
pub mod table;
pub mod units;

pub use progress::{Progress, stage_of};
