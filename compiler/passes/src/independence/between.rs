//! Whether the graph of a model at another size computes the same function of a slice.

use super::{Dependence, Independence, first_positions, is_uniform, slice_of};
use hone_graph::{Definition, Node, ValueId};
use hone_ops::{Graph, Op};
use hone_types::Id;
use serde_json::Value as Json;

/// Attributes that say an extent of the result, which its type says too.
const EXTENTS: [(&str, &str); 5] = [
    ("expand", "shape"),
    ("reshape", "shape"),
    ("slice", "extents"),
    ("tile", "repeats"),
    ("resize", "sizes"),
];

impl Independence {
    /// Checks that `other`, the same model at another size (1 or more), is node by node `graph`, which was proven, with
    /// this size along the dimension: operations, attributes, constants, and who reads what.
    ///
    /// # Errors
    /// [`Dependence::Size`] with the first difference.
    pub fn proves_at(&self, graph: &Graph, other: &Graph, size: usize) -> Result<(), Dependence> {
        let differs = |why: String| Dependence::Size { size, of: self.size, why };
        let mut pairs =
            Pairs { proof: self, graph, other, size, of: vec![None; self.values.len()] };
        let ports = [
            ("inputs", graph.inputs().len(), other.inputs().len()),
            ("outputs", graph.outputs().len(), other.outputs().len()),
            ("nodes", graph.nodes().len(), other.nodes().len()),
        ];
        for (what, known, found) in ports {
            if known != found {
                return Err(differs(format!("it has {found} {what}, not {known}")));
            }
        }
        if !other.extents().is_empty() || graph.interface() != other.interface() {
            return Err(differs("its inputs and outputs are others".to_owned()));
        }
        for (port, twin) in graph.inputs().iter().zip(other.inputs()) {
            let what = format!("input '{}' has another type", port.name);
            pairs.join(port.value, twin.value).map_err(|_| differs(what))?;
        }
        for ((_, node), (_, twin)) in graph.nodes().iter().zip(other.nodes().iter()) {
            pairs.node(node, twin).map_err(|why| {
                differs(format!("node '{}' ({}) {why}", node.name, node.operation.name()))
            })?;
        }
        for (port, twin) in graph.outputs().iter().zip(other.outputs()) {
            let same = pairs.operand(port.value, twin.value);
            same.map_err(|why| differs(format!("output '{}' {why}", port.name)))?;
        }
        Ok(())
    }
}

/// Which value of one graph is which of the other.
struct Pairs<'a> {
    proof: &'a Independence,
    graph: &'a Graph,
    other: &'a Graph,
    size: usize,
    of: Vec<Option<ValueId>>,
}

impl Pairs<'_> {
    /// Takes down that two values are one, where their types allow it.
    fn join(&mut self, value: ValueId, twin: ValueId) -> Result<(), String> {
        let (expected, found) = (self.graph.tensor_type(value), self.other.tensor_type(twin));
        let mut shape = expected.shape.clone();
        if let Some(sliced) = self.proof.of(value) {
            shape[sliced.axis] = sliced.extent(self.size);
        }
        if expected.dtype != found.dtype || shape != found.shape {
            return Err(format!("gives {found} and not {expected} at this size"));
        }
        self.of[value.index()] = Some(twin);
        Ok(())
    }

    fn node(&mut self, node: &Node<Op>, twin: &Node<Op>) -> Result<(), String> {
        let name = node.operation.name();
        if name != twin.operation.name() || !same_attributes(node, twin) {
            return Err(format!("is another operation ({})", twin.operation.name()));
        }
        if node.inputs.len() != twin.inputs.len() || node.outputs.len() != twin.outputs.len() {
            return Err("has another number of operands".to_owned());
        }
        for (input, found) in node.inputs.iter().zip(&twin.inputs) {
            match (input, found) {
                (None, None) => {}
                (Some(input), Some(found)) => self.operand(*input, *found)?,
                _ => return Err("has another number of operands".to_owned()),
            }
        }
        let mut outputs = node.outputs.iter().zip(&twin.outputs);
        outputs.try_for_each(|(value, twin)| self.join(*value, *twin))
    }

    /// Whether a value that is read is its twin.
    fn operand(&mut self, value: ValueId, twin: ValueId) -> Result<(), String> {
        if let Some(known) = self.of[value.index()] {
            return match known == twin {
                true => Ok(()),
                false => Err("reads another value".to_owned()),
            };
        }
        let constants = (&self.graph.values()[value].definition, self.other.constant(twin));
        let (Definition::Constant(expected), Some(found)) = constants else {
            return Err("reads another value".to_owned());
        };
        if let Some(positions) = self.proof.positions.get(&value) {
            let known = first_positions(expected, *positions, self.proof.size);
            let same = expected.shape().len() == found.shape().len()
                && known.is_some()
                && known == first_positions(found, *positions, self.size);
            self.of[value.index()] = Some(twin);
            return same.then_some(()).ok_or_else(|| "reads other positions".to_owned());
        }
        let same = match self.proof.of(value) {
            None => expected == found,
            Some(at) => {
                let fits = found.shape().get(at.axis) == Some(&at.extent(self.size));
                let first =
                    |size| slice_of(if size == self.size { found } else { expected }, at, size, 0);
                fits && expected.dtype() == found.dtype()
                    && is_uniform(found, at, self.size)
                    && first(self.size).eq(slice_of(expected, at, self.proof.size, 0))
            }
        };
        match same {
            true => self.join(value, twin),
            false => Err(format!("reads a constant {} with other values", expected.tensor_type())),
        }
    }
}

/// Whether two nodes of one operation have the same attributes but for the extents of their results.
pub(crate) fn same_attributes(node: &Node<Op>, twin: &Node<Op>) -> bool {
    let name = node.operation.name();
    let Some((_, extents)) = EXTENTS.iter().find(|(expected, _)| *expected == name) else {
        return node.operation == twin.operation;
    };
    let rest = |expected: &Node<Op>| match expected.operation.attributes() {
        Json::Object(mut attributes) => {
            attributes.remove(*extents);
            Json::Object(attributes)
        }
        other => other,
    };
    rest(node) == rest(twin)
}
