//! What every kind shares about the objects that it makes: names and labels, ownership, Jobs and how they start and
//! end, pods, events and the reasons that they are explained with. Kinds use this; this uses no kind.

pub mod apply;
pub mod bounds;
pub mod conditions;
pub mod digest;
pub mod ended;
pub mod events;
pub mod forgotten;
pub mod inputs;
pub mod jobs;
pub mod load;
pub mod lost;
pub mod manifest;
pub mod names;
pub mod observe;
pub mod owner;
pub mod placement;
pub mod pods;
pub mod quantity;
mod queued;
pub mod reasons;
pub mod refusal;
pub mod running;
pub mod runs;
pub mod start;
pub mod steps;
pub mod warnings;
