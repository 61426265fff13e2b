//! Where each value lies: with the caller, in the weights, or in the arena.

use hone_graph::ValueId;
use std::collections::HashMap;

/// The memory that holds a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Home {
    /// The caller's input of this number.
    Input(usize),
    /// The caller's output of this number.
    Output(usize),
    /// The weights, so many bytes from their beginning.
    Weight(u64),
    /// The buffer of this number in the arena.
    Arena(usize),
}

/// The values whose memory others are.
#[derive(Debug)]
pub(crate) struct Roots(HashMap<ValueId, ValueId>);

impl Roots {
    /// Of `aliases`, which are values and the values whose memory they are, in topological order.
    pub(crate) fn new(aliases: &[(ValueId, ValueId)]) -> Self {
        // The source of an alias comes first, so that a chain of aliases has one root.
        let mut roots: HashMap<ValueId, ValueId> = HashMap::new();
        for (value, source) in aliases {
            let root = roots.get(source).copied().unwrap_or(*source);
            roots.insert(*value, root);
        }
        Self(roots)
    }

    /// The value whose memory a value is.
    pub(crate) fn of(&self, value: ValueId) -> ValueId {
        self.0.get(&value).copied().unwrap_or(value)
    }
}
