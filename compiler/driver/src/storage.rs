//! Where each value lies: with the caller, in the weights, or in the arena.

use hone_graph::ValueId;
use std::collections::HashMap;

/// The memory that holds a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Home {
    /// The caller's input of this number.
    Input(usize),
    /// The caller's output of this number, and how many bytes behind its beginning.
    Output(usize, u64),
    /// The weights, so many bytes from their beginning.
    Weight(u64),
    /// The place of this number in the arena.
    Arena(usize),
}

/// A place in the arena.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The number of a buffer.
    pub(crate) buffer: usize,
    /// How many bytes behind its beginning.
    pub(crate) offset: u64,
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

/// A value that lies inside of the memory of another one: a contiguous part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubBuffer {
    /// The value; it is the memory of no other.
    pub part: ValueId,
    /// What it is a part of.
    pub whole: ValueId,
    /// How many bytes behind the beginning of that it begins.
    pub offset: u64,
}

/// The buffer of each value: that of the value whose memory it is, or which has it inside.
#[derive(Debug)]
pub(crate) struct Buffers {
    roots: Roots,
    /// The outermost value that each part is inside of, and where in it.
    inside: HashMap<ValueId, (ValueId, u64)>,
}

impl Buffers {
    /// Of aliases and parts of a graph, each in topological order: a whole is a part of later ones alone.
    pub(crate) fn new(aliases: &[(ValueId, ValueId)], sub_buffers: &[SubBuffer]) -> Self {
        let mut inside: HashMap<ValueId, (ValueId, u64)> = HashMap::new();
        for SubBuffer { part, whole, offset } in sub_buffers.iter().rev() {
            let (outermost, begin) = inside.get(whole).copied().unwrap_or((*whole, 0));
            inside.insert(*part, (outermost, begin + offset));
        }
        Self { roots: Roots::new(aliases), inside }
    }

    /// The value whose memory a value is.
    pub(crate) fn root(&self, value: ValueId) -> ValueId {
        self.roots.of(value)
    }

    /// The value with a buffer of its own in which a value lies, and how many bytes behind its beginning.
    pub(crate) fn of(&self, value: ValueId) -> (ValueId, u64) {
        let root = self.roots.of(value);
        self.inside.get(&root).copied().unwrap_or((root, 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hone_types::Id as _;

    #[test]
    fn parts_of_parts_lie_in_the_outermost_buffer() {
        let value = ValueId::from_index;
        let sub_buffer =
            |part, whole, offset| SubBuffer { part: value(part), whole: value(whole), offset };
        // 2 has 0 and 1 inside and lies behind 4 in 5; 3 is 2 in another shape.
        let sub_buffers =
            [sub_buffer(0, 2, 0), sub_buffer(1, 2, 64), sub_buffer(4, 5, 0), sub_buffer(2, 5, 128)];
        let buffers = Buffers::new(&[(value(3), value(2))], &sub_buffers);
        let found: Vec<(usize, u64)> =
            (0..6).map(|index| buffers.of(value(index))).map(|(at, by)| (at.index(), by)).collect();
        assert_eq!(found, [(5, 128), (5, 192), (5, 128), (5, 128), (5, 0), (5, 0)]);
    }
}
