//! Where each value lies: with the caller, in the weights, or in the arena.

use hone_graph::{Definition, ValueId};
use hone_ops::Graph;
use std::collections::HashMap;

/// The kind of memory that holds a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Home {
    /// The caller's input of this number.
    Input(usize),
    /// The caller's output of this number.
    Output(usize),
    /// A constant.
    Weight(ValueId),
    /// The arena.
    Arena(ValueId),
}

/// Finds the home of values; values that only rename another's memory share its home.
pub(crate) struct Storage<'a> {
    graph: &'a Graph,
    /// The value whose memory an alias is.
    roots: HashMap<ValueId, ValueId>,
    outputs: HashMap<ValueId, usize>,
}

impl<'a> Storage<'a> {
    /// The storage of `graph`, each output of which has memory of its own; `aliases` are values and
    /// the values whose memory they are, in topological order.
    pub(crate) fn new(graph: &'a Graph, aliases: &[(ValueId, ValueId)]) -> Self {
        // The source of an alias comes first, so that a chain of aliases has one root.
        let mut roots: HashMap<ValueId, ValueId> = HashMap::new();
        for (value, source) in aliases {
            let root = roots.get(source).copied().unwrap_or(*source);
            roots.insert(*value, root);
        }
        let mut storage = Self { graph, roots, outputs: HashMap::new() };
        for (index, port) in graph.outputs().iter().enumerate() {
            let root = storage.root(port.value);
            storage.outputs.insert(root, index);
        }
        storage
    }

    pub(crate) fn home(&self, value: ValueId) -> Home {
        let root = self.root(value);
        match self.graph.values()[root].definition {
            Definition::Input(place) => Home::Input(place),
            Definition::Constant(_) => Home::Weight(root),
            Definition::Output(..) => match self.outputs.get(&root) {
                Some(place) => Home::Output(*place),
                None => Home::Arena(root),
            },
        }
    }

    /// The value whose memory a value is.
    pub(crate) fn root(&self, value: ValueId) -> ValueId {
        self.roots.get(&value).copied().unwrap_or(value)
    }
}
