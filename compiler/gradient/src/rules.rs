//! The rules: one for each operator, joined by the list.
//!
//! To add one: `impl Rule` in a file of `rules/`, a line in the list below, and a case in `tests/`.

mod binary;
mod choice;
mod convolution;
mod cumulative;
mod indexing;
mod matmul;
mod norm;
mod normalization;
mod padding;
mod pool;
mod reduce;
mod resize;
mod shapes;
mod softmax;
mod unary;

use crate::RuleError;
use crate::nodes::Nodes;
use hone_graph::ValueId;
use hone_ops::{
    BatchNormalization, Binary, Cast, Concat, Convolution, ConvolutionTranspose, CumulativeSum,
    DotProducts, Expand, Gather, GatherElements, GatherNd, GroupNormalization,
    InstanceNormalization, LayerNormalization, LocalResponseNormalization, LpNormalization, MatMul,
    Op, Pad, Pool, Reduce, Reshape, Resize, ScatterElements, ScatterNd, Select, Slice, Softmax,
    Tile, TopK, Transpose, Trilu, Unary,
};

/// What each input contributes, in order; `None` where a change of it changes nothing.
pub(crate) type Pulled = Result<Vec<Option<ValueId>>, RuleError>;

/// A node that the walk passes.
pub(crate) struct Site<'a> {
    /// Inputs of the node.
    pub inputs: &'a [Option<ValueId>],
    /// Outputs of the node.
    pub outputs: &'a [ValueId],
    /// The adjoint of each output, of its type; at least one is known.
    pub adjoints: &'a [Option<ValueId>],
    /// For each input, whether its adjoint is asked for. What is not asked for is ignored.
    pub wanted: &'a [bool],
}

impl Site<'_> {
    /// An input that the operator needs.
    pub fn input(&self, place: usize) -> Result<ValueId, RuleError> {
        self.inputs.get(place).copied().flatten().ok_or(RuleError::Input(place))
    }

    /// The only output and its adjoint; of an operator with several, the first one's. `None` where that has none.
    pub fn output(&self) -> Option<(ValueId, ValueId)> {
        let adjoint = self.adjoints.first().copied().flatten()?;
        Some((*self.outputs.first()?, adjoint))
    }

    /// Whether the adjoint of an input is asked for.
    pub fn wants(&self, place: usize) -> bool {
        self.wanted.get(place).copied().unwrap_or(false)
    }
}

/// How an operator hands adjoints from its outputs to its inputs.
pub(crate) trait Rule {
    /// Adds the nodes that compute what each input contributes.
    ///
    /// # Errors
    /// Attributes for which there is no rule.
    fn pull_back(&self, nodes: &mut Nodes<'_>, site: &Site<'_>) -> Pulled;
}

macro_rules! rules {
    ($($operator:ident),* $(,)?) => {
        /// The rule of an operator.
        pub(crate) fn rule(operation: &Op) -> Option<&dyn Rule> {
            $(if let Some(own) = operation.downcast::<$operator>() {
                return Some(own);
            })*
            None
        }

        /// Names of the operators that have a rule, as the text form has them.
        pub const DIFFERENTIABLE: &[&str] = &[$($operator::NAME),*];
    };
}

rules! {
    BatchNormalization,
    Binary,
    Cast,
    Concat,
    Convolution,
    ConvolutionTranspose,
    CumulativeSum,
    DotProducts,
    Expand,
    Gather,
    GatherElements,
    GatherNd,
    GroupNormalization,
    InstanceNormalization,
    LayerNormalization,
    LocalResponseNormalization,
    LpNormalization,
    MatMul,
    Pad,
    Pool,
    Reduce,
    Reshape,
    Resize,
    ScatterElements,
    ScatterNd,
    Select,
    Slice,
    Softmax,
    Tile,
    TopK,
    Transpose,
    Trilu,
    Unary,
}
