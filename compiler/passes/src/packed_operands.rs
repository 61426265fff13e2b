//! The operands of nodes that are rewritten to packed layouts.

use hone_graph::{Node, ValueId};
use hone_ops::{Graph, Op, OpError, Operator, Pack};
use hone_types::{DataType, Tensor, TensorType};

/// How an operand takes part in a packed element-wise node; full shapes have the output's axes.
pub(crate) enum OperandForm {
    /// One element.
    Scalar,
    /// The same for every channel.
    PerPosition(Vec<usize>),
    /// Has the channels of the output.
    PerChannel(Vec<usize>),
}

/// An operand of a convolution beside what is convolved.
#[derive(Clone, Copy)]
pub(crate) enum Weights<'a> {
    /// Known now: packed now.
    Constant(&'a Tensor),
    /// Computed, or an input of the model: packed by nodes in every run.
    Computed(ValueId),
}

impl<'a> Weights<'a> {
    fn of(graph: &'a Graph, value: ValueId) -> Self {
        graph.constant(value).map_or(Weights::Computed(value), Weights::Constant)
    }

    /// The tensor, where it is known.
    pub(crate) fn constant(self) -> Option<&'a Tensor> {
        match self {
            Weights::Constant(tensor) => Some(tensor),
            Weights::Computed(_) => None,
        }
    }
}

/// The operands of a convolution of the working type or of 32-bit integers.
pub(crate) struct Operands<'a> {
    /// What is convolved, plain.
    pub(crate) input: ValueId,
    /// `[O, C / g, K..]`.
    pub(crate) weights: Weights<'a>,
    /// The shape of the weights.
    pub(crate) shape: &'a [usize],
    /// `[O]`.
    pub(crate) bias: Option<Weights<'a>>,
}

impl<'a> Operands<'a> {
    /// `None` where a node's operands are others.
    pub(crate) fn of(graph: &'a Graph, node: &Node<Op>, working: DataType) -> Option<Self> {
        let (input, weights) = (node.inputs[0]?, node.inputs[1]?);
        let bias = node.inputs.get(2).copied().flatten();
        let TensorType { dtype, shape } = graph.tensor_type(input);
        ((*dtype == working || *dtype == DataType::I32) && shape.len() > 2).then(|| Self {
            input,
            weights: Weights::of(graph, weights),
            shape: &graph.tensor_type(weights).shape,
            bias: bias.map(|bias| Weights::of(graph, bias)),
        })
    }
}

/// What a convolution computes on, its input packed and padded.
pub(crate) struct PackedOperands<'a> {
    pub(crate) input: ValueId,
    /// Channels in a block of the input.
    pub(crate) block: usize,
    pub(crate) weights: Weights<'a>,
    pub(crate) bias: Option<Weights<'a>>,
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
