//! In which order a variant's steps run, where that is decided at run time: a tree over the step table.
//!
//! The tree names every step once, in the order of the table. A runner may exchange the two buffers of a carried
//! value instead of copying one into the other: no kernel sees a difference.

use serde::{Deserialize, Serialize};

use crate::{Host, Slot};

/// A part of a program. Parts run one after another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Part {
    /// Steps in the order of the table, with a barrier between any two.
    Steps {
        /// The first.
        first: u32,
        /// How many.
        count: u32,
    },
    /// One of two.
    If(If),
    /// The same again and again.
    Loop(Box<Loop>),
    /// What the runtime computes itself.
    Host(Host),
}

impl Part {
    /// The functions of the runtime in some parts, those of branches and loops too, in the order in which they are written.
    pub fn hosts(parts: &[Self]) -> Vec<&Host> {
        let mut hosts = Vec::new();
        for part in parts {
            match part {
                Self::Steps { .. } => {}
                Self::If(own) => {
                    hosts.extend(Self::hosts(&own.then));
                    hosts.extend(Self::hosts(&own.otherwise));
                }
                Self::Loop(own) => hosts.extend(Self::hosts(&own.body)),
                Self::Host(own) => hosts.push(own),
            }
        }
        hosts
    }
}

/// A choice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct If {
    /// Name of the graph node.
    pub node: String,
    /// One byte: zero takes `otherwise`.
    pub condition: Slot,
    /// What runs where the condition is not zero.
    pub then: Vec<Part>,
    /// What runs where it is.
    pub otherwise: Vec<Part>,
}

/// A repetition. Before it each carried value's first content is put into its current buffer. Then, as long as the
/// condition holds and there are iterations left: the iteration's number is stored, the body runs, what is
/// collected is copied, and what lies in the next buffer of each carried value becomes what lies in its current
/// one. At last the carried values are copied to their results, and the room behind the last collected value is
/// filled with zeros.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Loop {
    /// Name of the graph node.
    pub node: String,
    /// Iterations after which the loop ends in any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<u64>,
    /// The same, as a 64-bit integer that lies there when the loop begins; negative ones count as zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trips: Option<Slot>,
    /// One byte: where it is zero when the loop begins, there is no iteration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<Slot>,
    /// One byte that the body stores: where it is zero after an iteration, that was the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goes_on: Option<Slot>,
    /// Iterations for whose collected values there is room; a run that needs another one ends in an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<u64>,
    /// Where the number of the iteration is put, a 64-bit integer.
    pub number: Slot,
    /// Where the number of iterations is put at last, a 64-bit integer.
    pub count: Slot,
    /// Values that iterations hand on.
    pub carried: Vec<Carried>,
    /// Values of which each iteration gives one.
    pub collected: Vec<Collected>,
    /// One iteration.
    pub body: Vec<Part>,
}

/// A value that each iteration of a loop hands on to the next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Carried {
    /// What the first iteration gets.
    pub initial: Slot,
    /// What an iteration reads; in the arena.
    pub current: Slot,
    /// What an iteration stores; in the arena.
    pub next: Slot,
    /// Where the last value is put.
    pub result: Slot,
    /// Size in bytes of each of the four.
    pub bytes: u64,
}

/// Values that the iterations of a loop give, one after another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Collected {
    /// What an iteration stores.
    pub from: Slot,
    /// Where all of them lie, as many as the loop's capacity says.
    pub all: Slot,
    /// Size in bytes of one.
    pub bytes: u64,
    /// Whether the last iteration's lies first. Then the loop has exactly as many iterations as its capacity says.
    #[serde(default)]
    pub reversed: bool,
}

/// What is decided at run time of an output's shape: the first elements of the output are those of the actual
/// shape, row major, and all behind them are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OutputExtent {
    /// Position in [`crate::Manifest::outputs`].
    pub output: u32,
    /// The axis.
    pub axis: u32,
    /// Where the actual extent lies when a run has ended, a 64-bit integer.
    pub slot: Slot,
}

/// Parts of a program lie in one another no deeper, which keeps the manifest within what readers of JSON take.
pub const MAX_PROGRAM_DEPTH: usize = 32;
