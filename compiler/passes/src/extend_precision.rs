//! Models of 16-bit floats, computed in `f32`.
//!
//! ONNX does not say how an operator on `f16` or `bf16` computes inside, and machines differ: sums in
//! `f32` or in 16 bits, results rounded after each operator or after each kernel. Here those types are
//! storage. What is given, returned and kept as large tables stays in them; every operator computes in
//! `f32` and no result in between is rounded, so that answers are at least as near to exact ones as
//! those of any machine that rounds, and all that is known of `f32` code applies.

use crate::{PassError, Rewriter};
use hone_graph::{Definition, Node, ValueId};
use hone_ops::{BitCast, Cast, Gather, Graph, Op, Operator};
use hone_types::DataType;
use std::collections::HashMap;

/// Replaces operators on 16-bit floats by such on `f32`, with conversions of the graph's inputs and
/// outputs. Constants are converted here, but for tables of which a [`Gather`] reads a few rows.
pub fn extend_precision(graph: &Graph) -> Result<Graph, PassError> {
    if !graph.nodes().iter().any(|(_, node)| computes_in_half(graph, node)) {
        return Ok(graph.clone());
    }
    let mut pass =
        ExtendPrecision { graph, rewriter: Rewriter::new(graph), extended: HashMap::new() };
    for (id, node) in graph.nodes().iter() {
        if pass.rewriter.is_needed(id) {
            pass.node(node)?;
        }
    }
    let outputs = graph.outputs().iter().map(|port| pass.output(port.value));
    let outputs: Vec<ValueId> = outputs.collect::<Result<_, _>>()?;
    Ok(pass.rewriter.finish_with(&outputs))
}

/// Whether a node does more with 16-bit floats than to convert or gather them.
fn computes_in_half(graph: &Graph, node: &Node<Op>) -> bool {
    let operation = &node.operation;
    let moves = operation.downcast::<Cast>().is_some()
        || operation.downcast::<BitCast>().is_some()
        || operation.downcast::<Gather>().is_some();
    let mut values = node.inputs.iter().flatten().chain(&node.outputs);
    !moves && values.any(|value| is_half(graph, *value))
}

fn is_half(graph: &Graph, value: ValueId) -> bool {
    matches!(graph.tensor_type(value).dtype, DataType::F16 | DataType::BF16)
}

struct ExtendPrecision<'a> {
    graph: &'a Graph,
    rewriter: Rewriter<'a>,
    /// New `f32` values of old inputs and constants in 16 bits.
    extended: HashMap<ValueId, ValueId>,
}

impl ExtendPrecision<'_> {
    fn node(&mut self, node: &Node<Op>) -> Result<(), PassError> {
        let values = node.inputs.iter().flatten().chain(&node.outputs);
        if !values.into_iter().any(|value| is_half(self.graph, *value)) {
            return self.rewriter.copy(node);
        }
        // Bits are those of the narrow type.
        let bits = node.operation.downcast::<BitCast>().is_some();
        if bits || !node.operation.regions().is_empty() {
            return self.keep_types(node);
        }
        if let Some(table) = self.table(node) {
            return self.gather(node, table);
        }
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for input in &node.inputs {
            inputs.push(input.map(|input| self.extend(input, &node.name)).transpose()?);
        }
        let outputs = match node.operation.downcast::<Cast>() {
            Some(cast) => vec![self.cast(node, cast, inputs[0])?],
            None => self.rewriter.add(&node.name, node.operation.clone(), &inputs)?,
        };
        for (old, new) in node.outputs.iter().zip(outputs) {
            self.rewriter.replace(*old, new);
        }
        Ok(())
    }

    /// A node with graphs inside, or one that reads bits, whose inputs and outputs keep their types.
    fn keep_types(&mut self, node: &Node<Op>) -> Result<(), PassError> {
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for input in &node.inputs {
            inputs.push(input.map(|input| self.output(input)).transpose()?);
        }
        let outputs = self.rewriter.add(&node.name, node.operation.clone(), &inputs)?;
        for (old, new) in node.outputs.iter().zip(outputs) {
            let new = match is_half(self.graph, *old) {
                true => self.rewriter.add_simple(&node.name, Cast { to: DataType::F32 }, &[new])?,
                false => new,
            };
            self.rewriter.replace(*old, new);
        }
        Ok(())
    }

    /// A conversion, to `f32` where it was to 16 bits.
    fn cast(
        &mut self,
        node: &Node<Op>,
        cast: &Cast,
        input: Option<ValueId>,
    ) -> Result<ValueId, PassError> {
        let to = match cast.to {
            DataType::F16 | DataType::BF16 => DataType::F32,
            to => to,
        };
        match input {
            Some(same) if self.rewriter.target().tensor_type(same).dtype == to => Ok(same),
            input => Ok(self.rewriter.add(&node.name, Cast { to }, &[input])?[0]),
        }
    }

    /// The constant of which a node gathers rows.
    fn table(&self, node: &Node<Op>) -> Option<ValueId> {
        node.operation.downcast::<Gather>()?;
        let table = node.inputs.first().copied().flatten()?;
        (self.graph.constant(table).is_some() && is_half(self.graph, table)).then_some(table)
    }

    /// Gathers in 16 bits and converts what was gathered.
    fn gather(&mut self, node: &Node<Op>, table: ValueId) -> Result<(), PassError> {
        let table = self.rewriter.value(table);
        let indices = node.inputs.get(1).copied().flatten().map(|input| self.rewriter.value(input));
        let rows =
            self.rewriter.add(&node.name, node.operation.clone(), &[Some(table), indices])?;
        let extended =
            self.rewriter.add_simple(&node.name, Cast { to: DataType::F32 }, &[rows[0]])?;
        self.rewriter.replace(node.outputs[0], extended);
        Ok(())
    }

    /// The new value of an old one, in `f32` where that was of 16 bits.
    fn extend(&mut self, old: ValueId, node: &str) -> Result<ValueId, PassError> {
        let definition = &self.graph.values()[old].definition;
        if !is_half(self.graph, old) || matches!(definition, Definition::Output(..)) {
            return Ok(self.rewriter.value(old));
        }
        if let Some(known) = self.extended.get(&old) {
            return Ok(*known);
        }
        let cast = Cast { to: DataType::F32 };
        let new = match self.graph.constant(old) {
            Some(constant) => {
                let converted = cast
                    .reference(&[Some(constant)])
                    .map_err(|source| PassError::Constant { node: node.to_string(), source })?;
                let name = self.graph.values()[old].name.clone();
                let tensor = converted.into_iter().next().unwrap_or_else(|| constant.clone());
                self.rewriter.constant(&name, tensor)
            }
            None => {
                let input = self.rewriter.value(old);
                self.rewriter.add_simple(node, cast, &[input])?
            }
        };
        self.extended.insert(old, new);
        Ok(new)
    }

    /// A graph output or an operand of a node with graphs inside, in the type that the model declares.
    fn output(&mut self, old: ValueId) -> Result<ValueId, PassError> {
        let new = self.rewriter.value(old);
        let declared = self.graph.tensor_type(old).dtype;
        if self.rewriter.target().tensor_type(new).dtype == declared {
            return Ok(new);
        }
        let name = self.graph.values()[old].name.clone();
        self.rewriter.add_simple(&name, Cast { to: declared }, &[new])
    }
}
