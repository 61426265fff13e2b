//! What lies between convolutions, on packed channels: nodes that compute channel by channel.

use crate::PassError;
use crate::layout::Layout;
use crate::packed_operands::OperandForm;
use hone_graph::{Node, ValueId};
use hone_ops::{
    Binary, BinaryFunction, Concat, Op, Pack, PackedPool, Pad, Pool, Reduce, Reshape, Resize,
    Unary, UnaryFunction,
};

impl Layout<'_> {
    pub(crate) fn cast(&mut self, node: &Node<Op>) -> Result<bool, PassError> {
        let Some(input) = node.inputs[0].filter(|input| self.is_packed(*input)) else {
            return Ok(false);
        };
        let input = self.packed(input, self.block, &node.name)?;
        let output = self.rewriter.add_simple(&node.name, node.operation.clone(), &[input])?;
        Ok(self.finish(node, output))
    }

    pub(crate) fn unary(&mut self, node: &Node<Op>, unary: &Unary) -> Result<bool, PassError> {
        let Some(input) = node.inputs[0] else { return Ok(false) };
        let has_pole = matches!(unary.function, UnaryFunction::Log | UnaryFunction::Reciprocal);
        if !self.is_packed(input) || (has_pole && !self.fills_blocks(input)) {
            return Ok(false);
        }
        let input = self.packed(input, self.block, &node.name)?;
        let output = self.rewriter.add_simple(&node.name, node.operation.clone(), &[input])?;
        Ok(self.finish(node, output))
    }

    pub(crate) fn binary(&mut self, node: &Node<Op>, binary: &Binary) -> Result<bool, PassError> {
        let (Some(left), Some(right)) = (node.inputs[0], node.inputs[1]) else { return Ok(false) };
        let output_shape = self.shape(node.outputs[0]);
        let leads = |old: ValueId| self.is_packed(old) && self.shape(old) == output_shape;
        let has_pole = matches!(
            binary.function,
            BinaryFunction::Divide
                | BinaryFunction::Power
                | BinaryFunction::Modulo
                | BinaryFunction::Remainder
        ) && self
            .graph
            .constant(right)
            .is_none_or(|divisor| divisor.tensor_type().elements() != 1);
        let safe = !has_pole || self.fills_blocks(node.outputs[0]);
        let fits = |old: ValueId| self.operand_form(old, output_shape).is_some();
        if !safe || !(leads(left) || leads(right)) || !fits(left) || !fits(right) {
            return Ok(false);
        }
        let left = self.packed_operand(left, output_shape, &node.name)?;
        let right = self.packed_operand(right, output_shape, &node.name)?;
        let output =
            self.rewriter.add_simple(&node.name, node.operation.clone(), &[left, right])?;
        Ok(self.finish(node, output))
    }

    /// How an operand that broadcasts to `output` is given to a packed node.
    fn operand_form(&self, old: ValueId, output: &[usize]) -> Option<OperandForm> {
        let shape = self.shape(old);
        if output.len() < 3 || shape.len() > output.len() {
            return None;
        }
        let mut full = vec![1; output.len() - shape.len()];
        full.extend_from_slice(shape);
        if full.iter().all(|extent| *extent == 1) {
            return Some(OperandForm::Scalar);
        }
        if full[1] == 1 {
            return Some(OperandForm::PerPlace(full));
        }
        (full[1] == output[1]).then_some(OperandForm::PerChannel(full))
    }

    fn packed_operand(
        &mut self,
        old: ValueId,
        output: &[usize],
        node: &str,
    ) -> Result<ValueId, PassError> {
        match self.operand_form(old, output) {
            Some(OperandForm::PerChannel(full)) if self.shape(old).len() < output.len() => {
                let plain = self.plain(old, node)?;
                let full = self.rewriter.add_simple(node, Reshape { shape: full }, &[plain])?;
                self.rewriter.add_simple(node, Pack { axis: 1, block: self.block }, &[full])
            }
            Some(OperandForm::PerChannel(_)) => self.packed(old, self.block, node),
            Some(OperandForm::PerPlace(mut full)) => {
                full.push(1);
                let plain = self.plain(old, node)?;
                self.rewriter.add_simple(node, Reshape { shape: full }, &[plain])
            }
            Some(OperandForm::Scalar) | None => {
                let plain = self.plain(old, node)?;
                self.rewriter.add_simple(node, Reshape { shape: vec![1] }, &[plain])
            }
        }
    }

    pub(crate) fn pool(&mut self, node: &Node<Op>, pool: &Pool) -> Result<bool, PassError> {
        let Some(input) = node.inputs[0] else { return Ok(false) };
        if !self.is_packed(input) || node.outputs.len() != 1 {
            return Ok(false);
        }
        let input = self.packed(input, self.block, &node.name)?;
        let Pool { kind, kernel, window, count_padding } = pool.clone();
        let packed = PackedPool { kind, kernel, window, count_padding };
        let output = self.rewriter.add_simple(&node.name, packed, &[input])?;
        Ok(self.finish(node, output))
    }

    pub(crate) fn reduce(&mut self, node: &Node<Op>, reduce: &Reduce) -> Result<bool, PassError> {
        let Some(input) = node.inputs[0] else { return Ok(false) };
        let spatial = reduce.axes.iter().all(|axis| (2..self.shape(input).len()).contains(axis));
        if !self.is_packed(input) || !spatial {
            return Ok(false);
        }
        let input = self.packed(input, self.block, &node.name)?;
        let output = self.rewriter.add_simple(&node.name, reduce.clone(), &[input])?;
        Ok(self.finish(node, output))
    }

    pub(crate) fn concat(&mut self, node: &Node<Op>, concat: &Concat) -> Result<bool, PassError> {
        let inputs: Vec<ValueId> = node.inputs.iter().copied().flatten().collect();
        let packed = inputs.iter().filter(|input| self.is_packed(**input)).count();
        let whole =
            inputs.iter().all(|input| self.fills_blocks(*input) && self.shape(*input).len() > 2);
        if concat.axis != 1 || !whole || packed * 2 < inputs.len().max(1) {
            return Ok(false);
        }
        let mut parts = Vec::with_capacity(inputs.len());
        for input in inputs {
            parts.push(self.packed(input, self.block, &node.name)?);
        }
        let output = self.rewriter.add_simple(&node.name, concat.clone(), &parts)?;
        Ok(self.finish(node, output))
    }

    pub(crate) fn resize(&mut self, node: &Node<Op>, resize: &Resize) -> Result<bool, PassError> {
        let Some(input) = node.inputs[0] else { return Ok(false) };
        let shape = self.shape(input);
        let spatial =
            shape.len() > 2 && resize.sizes[..2] == shape[..2] && resize.region.is_empty();
        if !self.is_packed(input) || !spatial {
            return Ok(false);
        }
        let packed = self.packed(input, self.block, &node.name)?;
        let mut resize = resize.clone();
        resize.sizes[1] = self.rewriter.target().tensor_type(packed).shape[1];
        resize.sizes.push(self.block);
        resize.scales.push(1.0);
        let output = self.rewriter.add_simple(&node.name, resize, &[packed])?;
        Ok(self.finish(node, output))
    }

    pub(crate) fn pad(&mut self, node: &Node<Op>, pad: &Pad) -> Result<bool, PassError> {
        let Some(input) = node.inputs[0] else { return Ok(false) };
        let spatial = pad.begin.len() > 2
            && pad.begin[..2].iter().chain(&pad.end[..2]).all(|amount| *amount == 0);
        if !self.is_packed(input) || !spatial {
            return Ok(false);
        }
        let input = self.packed(input, self.block, &node.name)?;
        let mut pad = pad.clone();
        pad.begin.push(0);
        pad.end.push(0);
        let output = self.rewriter.add_simple(&node.name, pad, &[input])?;
        Ok(self.finish(node, output))
    }
}
