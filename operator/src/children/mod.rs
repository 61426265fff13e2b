//! What every kind shares about the objects that it makes: names and labels, ownership, Jobs, pods, events and the
//! reasons that they are explained with. Kinds use this; this uses no kind.

pub mod bounds;
pub mod events;
pub mod jobs;
pub mod load;
pub mod names;
pub mod owner;
pub mod pods;
pub mod reasons;
pub mod running;
