//! The operands of nodes that are rewritten to packed layouts.

use hone_graph::{Node, ValueId};
use hone_ops::{Graph, Op, OpError, Operator, Pack};
use hone_types::{DataType, Tensor, TensorType};

/// How an operand takes part in a packed element-wise node; full shapes have the output's axes.
pub(crate) enum OperandForm {
    /// One element.
    Scalar,
    /// The same for every channel.
    PerPlace(Vec<usize>),
    /// Has the channels of the output.
    PerChannel(Vec<usize>),
}

/// The operands of a convolution, of `f32` or 32-bit integers, whose weights are constants.
pub(crate) struct ConstantOperands<'a> {
    /// What is convolved, plain.
    pub(crate) input: ValueId,
    /// `[O, C / g, K..]`.
    pub(crate) weights: &'a Tensor,
    /// `[O]`.
    pub(crate) bias: Option<&'a Tensor>,
}

impl<'a> ConstantOperands<'a> {
    /// `None` where a node's operands are others.
    pub(crate) fn of(graph: &'a Graph, node: &Node<Op>, working: DataType) -> Option<Self> {
        let input = node.inputs[0]?;
        let weights = graph.constant(node.inputs[1]?)?;
        let bias = match node.inputs.get(2).copied().flatten() {
            None => None,
            Some(bias) => Some(graph.constant(bias)?),
        };
        let TensorType { dtype, shape } = graph.tensor_type(input);
        ((*dtype == working || *dtype == DataType::I32) && shape.len() > 2).then_some(Self {
            input,
            weights,
            bias,
        })
    }
}

/// What a convolution computes on, its input packed and padded.
pub(crate) struct PackedOperands<'a> {
    pub(crate) input: ValueId,
    /// Channels in a block of the input.
    pub(crate) block: usize,
    pub(crate) weights: &'a Tensor,
    pub(crate) bias: Option<&'a Tensor>,
}

/// `[O, C, K..]` to `[O / o, C / c, K.., c, o]`.
pub(crate) fn pack_weights(weights: &Tensor, c: usize, o: usize) -> Result<Tensor, OpError> {
    let inputs = Pack { axis: 1, block: c }.reference(&[Some(weights)])?;
    Ok(Pack { axis: 0, block: o }.reference(&[Some(&inputs[0])])?.remove(0))
}

/// `[C, 1, K..]` to `[C / c, K.., c]`.
pub(crate) fn pack_depthwise_weights(weights: &Tensor, c: usize) -> Result<Tensor, OpError> {
    let shape = weights.shape();
    let filters = weights.reshaped([&shape[..1], &shape[2..]].concat())?;
    Ok(Pack { axis: 0, block: c }.reference(&[Some(&filters)])?.remove(0))
}
