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
    aliases: HashMap<ValueId, ValueId>,
    outputs: HashMap<ValueId, usize>,
}

impl<'a> Storage<'a> {
    /// The storage of `graph`, each output of which has memory of its own.
    pub(crate) fn new(graph: &'a Graph, aliases: &[(ValueId, ValueId)]) -> Self {
        let aliases = aliases.iter().copied().collect();
        let mut storage = Self { graph, aliases, outputs: HashMap::new() };
        for (place, port) in graph.outputs().iter().enumerate() {
            let root = storage.root(port.value);
            storage.outputs.insert(root, place);
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

    fn root(&self, mut value: ValueId) -> ValueId {
        while let Some(source) = self.aliases.get(&value) {
            value = *source;
        }
        value
    }
}
