//! The loop nest of a scheduled program as a tree of numbers: what a cost model sees that is shaped like the program.
//!
//! Nodes stand in the order of the text: a loop before what it repeats. All values but the places and kinds are sixteenths of
//! `log2(1 + x)`, so that nests of all sizes compare and that records keep exactly what a search has seen.

use serde::{Deserialize, Serialize};

/// What a loop is measured by, besides its kind, in the order of [`Node::values`].
pub const LOOP_VALUES: [&str; 5] =
    ["extent", "extent where it varies", "rounds outside", "touched bytes", "blocks inside"];

/// What a block is measured by, in the order of [`Node::values`].
pub const BLOCK_VALUES: [&str; 17] = [
    "arithmetic",
    "scalar arithmetic",
    "functions",
    "vector loads",
    "broadcasts",
    "strided loads",
    "stores",
    "bytes from the second cache",
    "bytes from behind it",
    "accumulators",
    "largest body",
    "loop rounds",
    "innermost rounds",
    "cycles",
    "chains",
    "operands",
    "sums",
];

/// Kinds of loops; [`BLOCK`] is the kind of the nodes that are no loops.
pub const LOOP_KINDS: usize = 6;
/// The kind of a block.
pub const BLOCK: u16 = LOOP_KINDS as u16;

/// Nodes beyond which a nest is not kept: it would not fit a line of records, nor the time that a search has.
const MAX_NODES: usize = 400;

/// A loop or a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<u16>", into = "Vec<u16>")]
pub struct Node {
    /// Loops around it.
    pub depth: u16,
    /// Kind of the loop, or [`BLOCK`].
    pub kind: u16,
    /// Those of [`LOOP_VALUES`] or of [`BLOCK_VALUES`], in sixteenths of `log2(1 + x)`.
    pub values: Vec<u16>,
}

impl From<Node> for Vec<u16> {
    fn from(node: Node) -> Self {
        [node.depth, node.kind].into_iter().chain(node.values).collect()
    }
}

impl TryFrom<Vec<u16>> for Node {
    type Error = String;

    fn try_from(all: Vec<u16>) -> Result<Self, String> {
        let [depth, kind, values @ ..] = &all[..] else {
            return Err("a node of a loop nest has a depth and a kind".to_owned());
        };
        let expected = if *kind < BLOCK { LOOP_VALUES.len() } else { BLOCK_VALUES.len() };
        match *kind <= BLOCK && values.len() == expected {
            true => Ok(Self { depth: *depth, kind: *kind, values: values.to_vec() }),
            false => Err(format!("a node of kind {kind} with {} values is none", values.len())),
        }
    }
}

/// A whole loop nest; empty where it is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Node>", into = "Vec<Node>")]
pub struct Nest(Vec<Node>);

impl From<Nest> for Vec<Node> {
    fn from(nest: Nest) -> Self {
        nest.0
    }
}

impl TryFrom<Vec<Node>> for Nest {
    type Error = String;

    fn try_from(nodes: Vec<Node>) -> Result<Self, String> {
        let mut open = 0;
        for node in &nodes {
            if node.depth > open {
                return Err("a node of a loop nest is deeper than the loop before it".to_owned());
            }
            open = node.depth + u16::from(node.kind < BLOCK);
        }
        match nodes.len() <= MAX_NODES {
            true => Ok(Self(nodes)),
            false => Err(format!("a loop nest has more than {MAX_NODES} nodes")),
        }
    }
}

impl Nest {
    /// The nest of nodes in the order of the text; empty where there are too many.
    pub(crate) fn of(nodes: Vec<Node>) -> Self {
        Self::try_from(nodes).unwrap_or_default()
    }

    /// Its nodes, every loop before what it repeats.
    pub fn nodes(&self) -> &[Node] {
        &self.0
    }

    /// Whether nothing is known of it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A number as nodes keep it.
pub(crate) fn sixteenths(value: f64) -> u16 {
    (16.0 * (1.0 + value.max(0.0)).log2()).round().min(f64::from(u16::MAX)) as u16
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn node(depth: u16, kind: u16) -> Node {
        let count = if kind < BLOCK { LOOP_VALUES.len() } else { BLOCK_VALUES.len() };
        Node { depth, kind, values: (0..count as u16).collect() }
    }

    #[test]
    fn records_keep_a_nest_as_it_is() {
        let nest = Nest::of(vec![node(0, 0), node(1, 3), node(2, BLOCK), node(1, BLOCK)]);
        let text = serde_json::to_string(&nest).unwrap();
        assert!(text.starts_with("[[0,0,0,1,2,3,4],[1,3,"), "{text}");
        assert_eq!(serde_json::from_str::<Nest>(&text).unwrap(), nest);
    }

    #[test]
    fn what_is_no_nest_is_refused() {
        for (text, word) in [
            ("[[0]]", "a depth and a kind"),
            ("[[0,7,1,2,3,4,5]]", "is none"),
            ("[[0,0,1]]", "with 1 values"),
            ("[[1,0,1,2,3,4,5]]", "deeper"),
            ("[[0,0,1,2,3,4,-5]]", "-5"),
        ] {
            let error = serde_json::from_str::<Nest>(text).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
        assert!(Nest::of(vec![node(0, BLOCK); MAX_NODES + 1]).is_empty());
    }

    #[test]
    fn numbers_of_all_sizes_fit() {
        assert_eq!(sixteenths(0.0), 0);
        assert_eq!(sixteenths(1.0), 16);
        assert_eq!(sixteenths(-3.0), 0);
        assert_eq!(sixteenths(f64::MAX), 16384);
    }
}
