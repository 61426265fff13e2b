//! `FlexAttention`: attention whose scores and probabilities pass through graphs that the node holds.

use super::builder::Operand;
use super::importer::{Importer, Scope};
use super::node::Node;
use super::operators::attention::repeated;
use super::operators::softmax_of;
use super::proto::GraphProto;
use super::tensor::element_type;
use crate::NodeError;
use hone_ops::BinaryFunction as B;
use hone_types::DataType;
use std::rc::Rc;

impl Importer {
    /// See the head of this file; operands are `[batch, heads, length, size]`.
    pub(super) fn flex_attention(&mut self, node: &mut Node) -> Result<Vec<Operand>, NodeError> {
        let (query, key, value) = (node.input(0)?, node.input(1)?, node.input(2)?);
        let (scale, precision) = (node.float("scale")?, node.int("softmax_precision")?);
        let (of_scores, of_shares) = (node.graph("score_mod")?, node.graph("prob_mod")?);
        let b = &mut self.builder;
        let (dtype, shape) = (b.dtype(query), b.shape(query));
        let [_, heads, _, size] = <[usize; 4]>::try_from(shape)
            .map_err(|shape| NodeError::invalid(format!("shape {shape:?} has not four axes")))?;
        let between = match precision {
            Some(number) => {
                element_type(i32::try_from(number).unwrap_or(0)).map_err(NodeError::Invalid)?
            }
            None if dtype == DataType::F64 => dtype,
            None => DataType::F32,
        };
        let (key, value) = (repeated(b, key, heads)?, repeated(b, value, heads)?);
        let [query, key] = [query, key].map(|own| b.cast(own, between));
        let turned = b.transpose(key?, vec![0, 1, 3, 2])?;
        let products = b.matmul(query?, turned)?;
        let scale = scale.unwrap_or(1.0 / (size as f64).sqrt());
        let mut scores = b.with_scalar(B::Multiply, products, scale)?;
        if let Some(graph) = of_scores {
            scores = self.modified(graph, scores)?;
        }
        let mut shares = softmax_of(&mut self.builder, scores, 3, false)?;
        if let Some(graph) = of_shares {
            shares = self.modified(graph, shares)?;
        }
        let b = &mut self.builder;
        let value = b.cast(value, between)?;
        let result = b.matmul(shares, value)?;
        Ok(vec![b.cast(result, dtype)?])
    }

    /// What a graph of one input makes of `operand`.
    fn modified(&mut self, graph: GraphProto, operand: Operand) -> Result<Operand, NodeError> {
        let name = |ports: &[super::proto::ValueInfoProto]| {
            ports.first().and_then(|port| port.name.clone()).unwrap_or_default()
        };
        let (input, outputs) = (name(&graph.input), vec![name(&graph.output)]);
        let opsets = self.scopes.last().map(|scope| Rc::clone(&scope.opsets)).unwrap_or_default();
        let mut scope = Scope { opsets, ..Scope::default() };
        scope.values.insert(input, operand);
        self.enter(scope)?;
        let imported = self.import_graph(graph, &outputs);
        self.scopes.pop();
        let made = imported?.first().copied();
        made.ok_or_else(|| NodeError::invalid("a graph has no output"))
    }
}
