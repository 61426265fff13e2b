//! What every operator says of itself.

use crate::conditional::If;
use crate::iteration::Loop;
use crate::shape::check_size;
use hone_graph::{InferError, Node, Operation, ValueId};
use hone_tensor::{BufferId, Builder};
use hone_types::{Tensor, TensorError, TensorType};
use std::any::Any;
use std::fmt::{self, Debug};
use std::sync::Arc;
use thiserror::Error;

/// Why a reference result could not be computed.
#[derive(Debug, Error)]
pub enum OpError {
    /// The operator refuses the types of its inputs.
    #[error("the inputs do not fit")]
    Infer(#[from] InferError),
    /// A host tensor was misused.
    #[error("a tensor is malformed")]
    Tensor(#[from] TensorError),
    /// The values of the inputs are outside what the operator accepts.
    #[error("{0}")]
    Value(String),
    /// A graph inside of the operator could not be computed.
    #[error("a graph inside of it could not be computed")]
    Region(#[source] Box<crate::EvaluateError>),
}

/// How an operator may be joined with its neighbours into one kernel (the four classes of TVM,
/// OSDI 2018).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FusionClass {
    /// Each output element reads a bounded number of input elements: joins producers and consumers.
    Injective,
    /// Reduces axes: takes injective producers in.
    Reduction,
    /// Heavy, and lets injective consumers be computed on its result while that is in registers.
    ComplexOutFusable,
    /// Joins with nothing.
    Opaque,
}

/// An operator with its attributes.
pub trait Operator: Debug + Send + Sync + Any {
    /// The name in text forms, in snake case.
    fn name(&self) -> &'static str;

    /// The attributes as JSON; null where there are none.
    fn attributes(&self) -> serde_json::Value;

    /// Types of the outputs, from the types of the inputs.
    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError>;

    /// How it may be joined with its neighbours.
    fn fusion_class(&self) -> FusionClass;

    /// The outputs, computed plainly. Inputs have passed [`Operator::infer`].
    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError>;

    /// Adds blocks that compute the outputs to a program, and returns the outputs' buffers. Inputs
    /// have passed [`Operator::infer`]. `None` where the operator has no tensor expression: it can
    /// only be folded or taken apart by a pass.
    fn expression(
        &self,
        _builder: &mut Builder,
        _inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        None
    }

    /// Adds nodes of simpler operators to a graph that compute the same of `inputs`, and returns their
    /// outputs. `None` where the operator is not made of simpler ones.
    fn decompose(
        &self,
        _graph: &mut Graph,
        _inputs: &[Option<ValueId>],
    ) -> Result<Option<Vec<ValueId>>, InferError> {
        Ok(None)
    }

    /// Whether the operator becomes part of a kernel. Else it stands alone: a node with graphs inside, or one that
    /// the runtime computes itself.
    fn is_compiled(&self) -> bool {
        true
    }

    /// Whether the one result is the memory of the first input, seen otherwise.
    fn is_view(&self) -> bool {
        false
    }

    /// Whether the node stays in its graph although no output depends on it: it may end a run.
    fn is_required(&self) -> bool {
        false
    }

    /// The graphs inside of the operator; see [`Operation::regions`].
    fn regions(&self) -> Vec<&Graph> {
        Vec::new()
    }

    /// The same operator with other graphs inside, of the same number and with inputs and outputs of the same
    /// types. `None` of an operator without any.
    fn with_regions(&self, _regions: Vec<Graph>) -> Option<Op> {
        None
    }

    /// Floating-point operations of one execution (a multiply-add counts two).
    fn flops(&self, _inputs: &[Option<&TensorType>], outputs: &[TensorType]) -> u64 {
        outputs.iter().map(|output| output.elements() as u64).sum()
    }
}

/// Floating-point operations of one execution of a node of `graph`, as [`Operator::flops`] counts them.
pub fn node_flops(graph: &Graph, node: &Node<Op>) -> u64 {
    let inputs: Vec<_> =
        node.inputs.iter().map(|input| input.map(|value| graph.tensor_type(value))).collect();
    let outputs: Vec<_> =
        node.outputs.iter().map(|output| graph.tensor_type(*output).clone()).collect();
    node.operation.flops(&inputs, &outputs)
}

/// A shared operator, the payload of graph nodes.
#[derive(Clone)]
pub struct Op(Arc<dyn Operator>);

/// A graph of our operators.
pub type Graph = hone_graph::Graph<Op>;

impl Op {
    /// Wraps an operator.
    pub fn new(operator: impl Operator) -> Self {
        Self(Arc::new(operator))
    }

    /// The operator as its own type, where it is a `T`.
    pub fn downcast<T: Operator>(&self) -> Option<&T> {
        let any: &dyn Any = self.0.as_ref();
        any.downcast_ref()
    }
}

impl<T: Operator> From<T> for Op {
    fn from(operator: T) -> Self {
        Self::new(operator)
    }
}

impl std::ops::Deref for Op {
    type Target = dyn Operator;
    fn deref(&self) -> &Self::Target {
        self.0.as_ref()
    }
}

impl Debug for Op {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl PartialEq for Op {
    fn eq(&self, other: &Self) -> bool {
        self.0.name() == other.0.name()
            && self.0.attributes() == other.0.attributes()
            && self.0.regions() == other.0.regions()
    }
}

impl Operation for Op {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn attributes(&self) -> serde_json::Value {
        self.0.attributes()
    }

    fn from_text(
        name: &str,
        attributes: serde_json::Value,
        regions: Vec<Graph>,
    ) -> Result<Self, InferError> {
        match name {
            If::NAME => If::from_regions(regions).map(Self::new),
            Loop::NAME => Loop::from_attributes(attributes, regions).map(Self::new),
            _ if regions.is_empty() => crate::from_attributes(name, attributes),
            _ => Err(InferError::new(format!("{name} has no graphs inside"))),
        }
    }

    fn regions(&self) -> Vec<&Graph> {
        self.0.regions()
    }

    /// No tensor is larger than a bound, so that operators may multiply extents freely.
    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        inputs.iter().flatten().try_for_each(|input| check_size(input))?;
        let outputs = self.0.infer(inputs)?;
        outputs.iter().try_for_each(check_size)?;
        Ok(outputs)
    }
}

/// The input at `place`, or a refusal that names the operator.
pub(crate) fn required<'a, T: ?Sized>(
    operator: &str,
    inputs: &[Option<&'a T>],
    place: usize,
) -> Result<&'a T, InferError> {
    let input = inputs.get(place).copied().flatten();
    input.ok_or_else(|| InferError::new(format!("{operator} needs input {place}")))
}

/// The value of input `place`, or a refusal that names the operator.
pub(crate) fn required_value(
    operator: &str,
    inputs: &[Option<ValueId>],
    place: usize,
) -> Result<ValueId, InferError> {
    let input = inputs.get(place).copied().flatten();
    input.ok_or_else(|| InferError::new(format!("{operator} needs input {place}")))
}

/// The list of operators: each is a type that derives `Serialize` and `Deserialize` and has a
/// constant `NAME`. Makes the constructor from name and attributes that the text form needs.
macro_rules! operators {
    ($($operator:ident),* $(,)?) => {
        /// The operator called `name` with `attributes` (as [`Operator::attributes`] gives them).
        pub fn from_attributes(
            name: &str,
            attributes: serde_json::Value,
        ) -> Result<Op, hone_graph::InferError> {
            match name {
                $($operator::NAME => serde_json::from_value::<$operator>(attributes)
                    .map(Op::new)
                    .map_err(|error| hone_graph::InferError::new(format!("{name}: {error}"))),)*
                _ => Err(hone_graph::InferError::new(format!("unknown operator '{name}'"))),
            }
        }

        /// Names of all operators.
        pub const NAMES: &[&str] = &[$($operator::NAME),*];
    };
}
pub(crate) use operators;

/// The parts of [`Operator`] that follow from `NAME` and serde.
macro_rules! named {
    () => {
        fn name(&self) -> &'static str {
            Self::NAME
        }

        fn attributes(&self) -> serde_json::Value {
            serde_json::to_value(self).unwrap_or_default()
        }
    };
}
pub(crate) use named;
