//! `Gradient` of `ai.onnx.preview.training`: the derivative of a value of the graph around the node.
//!
//! The node names values, `y` and what it depends on: `xs`, by which derivatives are taken, and `zs`. Its inputs are the
//! values at which the derivative is taken, those of `xs` first. Where these are other ones than the named ones, what lies
//! between is computed again with them. A derivative is made of plain nodes, so one of a derivative is the second one.
//!
//! A value that is named so stays a value, though it may be a constant: else what is computed of it would be folded.

use super::builder::Operand;
use super::importer::Importer;
use super::node::{Node, Outputs};
use super::proto::NodeProto;
use crate::{ImportError, NodeError};
use hone_gradient::{GradientError, gradients, substitute};
use hone_graph::ValueId;
use hone_ops::{Graph, Op, Reshape};
use std::collections::HashSet;

/// The operator set.
const DOMAIN: &str = "ai.onnx.preview.training";

/// Names of the values that an attribute of a `Gradient` node names; none of other nodes.
fn named<'a>(node: &'a NodeProto, attribute: &'a str) -> impl Iterator<Item = &'a str> {
    let is_gradient = node.op_type.as_deref() == Some("Gradient")
        && node.domain.as_deref().unwrap_or_default() == DOMAIN;
    let attributes = node.attribute.iter().filter(move |_| is_gradient);
    let own = attributes.filter(move |own| own.name.as_deref() == Some(attribute));
    own.flat_map(|own| own.strings.iter().chain(&own.s))
        .filter_map(|name| std::str::from_utf8(name).ok())
}

/// Names of the values that a node reads though they are not among its inputs.
pub(super) fn named_values(node: &NodeProto) -> impl Iterator<Item = &str> {
    ["xs", "zs", "y"].into_iter().flat_map(|attribute| named(node, attribute))
}

impl Importer {
    /// Notes which values derivatives are taken by in the innermost graph. Those that are constants become values, now: in
    /// a branch they would become values of the branch.
    pub(super) fn note_variables(&mut self, nodes: &[NodeProto]) -> Result<(), ImportError> {
        let names = nodes.iter().flat_map(|node| named(node, "xs").chain(named(node, "zs")));
        let names: HashSet<String> = names.map(str::to_string).collect();
        let Some(scope) = self.scopes.last_mut() else { return Ok(()) };
        let known =
            |name: &&String| scope.values.contains_key(*name) || scope.stored.contains_key(*name);
        let known: Vec<String> = names.iter().filter(known).cloned().collect();
        scope.variables = names;
        for name in known {
            if let Some(operand) = self.lookup(&name)? {
                let operand = self.as_variable(operand);
                self.bind(&name, operand);
            }
        }
        Ok(())
    }

    /// A value in place of a constant of floats.
    fn as_variable(&mut self, operand: Operand) -> Operand {
        match self.builder.tensor(operand).is_some() && self.builder.dtype(operand).is_float() {
            true => self.builder.as_computed(operand),
            false => operand,
        }
    }

    /// The result that a node gives `name`. Where derivatives are taken by it and the node handed on one of its `inputs`, it
    /// becomes a value of its own: a change of the one is no change of the other.
    pub(super) fn as_result(
        &mut self,
        name: &str,
        operand: Operand,
        inputs: &[Option<Operand>],
    ) -> Result<Operand, NodeError> {
        if !self.scopes.last().is_some_and(|scope| scope.variables.contains(name)) {
            return Ok(operand);
        }
        if !inputs.contains(&Some(operand)) {
            return Ok(self.as_variable(operand));
        }
        self.check_plain(operand, "a value of a derivative")?;
        let shape = self.builder.shape(operand);
        self.builder.apply(Reshape { shape }, &[operand])
    }

    /// See the head of this file.
    pub(super) fn gradient(&mut self, node: &mut Node) -> Outputs {
        let xs = node.strings("xs")?.unwrap_or_default();
        let zs = node.strings("zs")?.unwrap_or_default();
        let y = node.string("y")?.ok_or_else(|| NodeError::invalid("attribute 'y' is missing"))?;
        if xs.is_empty() || node.inputs.len() != xs.len() + zs.len() {
            return Err(NodeError::invalid(format!(
                "{} inputs are not one for each of {} and {} names in 'xs' and 'zs'",
                node.inputs.len(),
                xs.len(),
                zs.len()
            )));
        }
        let y = self.named_value(&y)?;
        let mut variables = Vec::with_capacity(node.inputs.len());
        for (place, name) in xs.iter().chain(&zs).enumerate() {
            let variable = self.named_value(name)?;
            let given = node.input(place)?;
            self.check_plain(given, "an operand of a derivative")?;
            variables.push((variable, given));
        }
        let builder = &mut self.builder;
        let y = builder.value(y);
        let mut values = Vec::with_capacity(variables.len());
        for (variable, given) in variables {
            values.push((builder.value(variable), builder.value(given)));
        }
        let derivatives = builder.extend(|graph| derivatives(graph, y, &values, xs.len()))?;
        Ok(derivatives.into_iter().map(|value| builder.operand(value)).collect())
    }

    /// The value of a name in the graph under construction.
    fn named_value(&mut self, name: &str) -> Result<Operand, NodeError> {
        let found = self.lookup(name).map_err(|error| NodeError::Inner(Box::new(error)))?;
        let operand = found.ok_or_else(|| {
            NodeError::invalid(format!("'{name}' is no value of the graph around it"))
        })?;
        self.check_plain(operand, "a value of a derivative")?;
        let is_own = self.builder.own_value(operand).is_some();
        match is_own || self.builder.tensor(operand).is_some() {
            true => Ok(operand),
            false => Err(NodeError::unsupported(format!(
                "a derivative in a branch or loop by '{name}', which is computed outside of it"
            ))),
        }
    }

    /// Refuses what is no tensor of numbers of a known size.
    fn check_plain(&self, operand: Operand, what: &str) -> Result<(), NodeError> {
        if self.builder.is_composite(operand) || self.builder.narrow_type(operand).is_some() {
            return Err(NodeError::unsupported(format!("{what} that is no tensor of numbers")));
        }
        self.builder.check_extent(operand, what)
    }
}

/// Adds the derivatives of `y` by the first `count` of `values` (variable, where the derivative is taken).
fn derivatives(
    graph: &mut Graph,
    y: ValueId,
    values: &[(ValueId, ValueId)],
    count: usize,
) -> Result<Vec<ValueId>, NodeError> {
    let distinct: HashSet<ValueId> = values.iter().map(|(variable, _)| *variable).collect();
    if distinct.len() != values.len() {
        return Err(NodeError::unsupported("a derivative by two names of one value"));
    }
    if values.iter().all(|(variable, given)| variable == given) {
        let by: Vec<ValueId> = values.iter().map(|(variable, _)| *variable).collect();
        return gradients(graph, y, &by[..count], &by[count..]).map_err(refusal);
    }
    // Values of their own: the same one may be given for several.
    let mut places = Vec::with_capacity(values.len());
    for (variable, given) in values {
        let shape = graph.tensor_type(*given).shape.clone();
        let copy = graph.add_node("value", Op::new(Reshape { shape }), &[Some(*given)])?;
        places.push((*variable, copy[0]));
    }
    let y = substitute(graph, y, &places).map_err(refusal)?;
    let by: Vec<ValueId> = places.iter().map(|(_, place)| *place).collect();
    gradients(graph, y, &by[..count], &by[count..]).map_err(refusal)
}

fn refusal(error: GradientError) -> NodeError {
    NodeError::Gradient(Box::new(error))
}
