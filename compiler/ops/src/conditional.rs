//! One of two graphs, chosen at run time.

use crate::operator::{FusionClass, Graph, Op, OpError, Operator, required};
use crate::reference::evaluate;
use hone_graph::InferError;
use hone_types::{DataType, Tensor, TensorType};

/// ONNX `If`: the outputs of `then` where the condition is true, else those of `otherwise`. Inputs: the condition
/// (`bool`, one element), the inputs of `then`, the inputs of `otherwise`. The graphs have equally many outputs
/// of the same types.
#[derive(Clone, Debug)]
pub struct If {
    /// The graph of a true condition.
    pub then: Graph,
    /// The graph of a false one.
    pub otherwise: Graph,
}

impl If {
    /// Name in text forms.
    pub const NAME: &'static str = "if";

    /// An `If` of the two branches.
    ///
    /// # Errors
    /// Another number of graphs.
    pub fn from_regions(regions: Vec<Graph>) -> Result<Self, InferError> {
        let count = regions.len();
        let [then, otherwise] = <[Graph; 2]>::try_from(regions)
            .map_err(|_| InferError::new(format!("if has two branches, not {count}")))?;
        Ok(Self { then, otherwise })
    }

    /// Which region the condition takes (0 is `then`), and the inputs that it gets.
    ///
    /// # Errors
    /// An input that is left out.
    pub fn taken(&self, inputs: &[Option<&Tensor>]) -> Result<(usize, Vec<Tensor>), OpError> {
        let condition = required(Self::NAME, inputs, 0)?;
        let of_then = self.then.inputs().len();
        let (region, places) = match is_true(condition) {
            true => (0, 1..1 + of_then),
            false => (1, 1 + of_then..inputs.len()),
        };
        let operands = places.map(|place| required(Self::NAME, inputs, place).cloned());
        Ok((region, operands.collect::<Result<_, _>>()?))
    }
}

impl Operator for If {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    /// The graphs are compared apart.
    fn attributes(&self) -> serde_json::Value {
        serde_json::Value::Null
    }

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        check_condition(Self::NAME, required(Self::NAME, inputs, 0)?)?;
        let regions = [("then", &self.then), ("else", &self.otherwise)];
        let mut given = inputs.iter().skip(1);
        for (branch, graph) in regions {
            check_inputs(graph, &mut given, branch)?;
        }
        if given.next().is_some() {
            return Err(InferError::new("if has more inputs than its branches"));
        }
        let [then, otherwise] = regions.map(|(_, graph)| output_types(graph));
        if then != otherwise {
            let list = |types: &[TensorType]| {
                types.iter().map(TensorType::to_string).collect::<Vec<_>>().join(", ")
            };
            let (then, otherwise) = (list(&then), list(&otherwise));
            return Err(InferError::new(format!(
                "the branches give different types: {then} and {otherwise}; sizes that depend on the branch are not supported"
            )));
        }
        Ok(then)
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Opaque
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let (region, operands) = self.taken(inputs)?;
        let graph = if region == 0 { &self.then } else { &self.otherwise };
        evaluate(graph, &operands).map_err(|source| OpError::Region(Box::new(source)))
    }

    fn is_compiled(&self) -> bool {
        false
    }

    fn regions(&self) -> Vec<&Graph> {
        vec![&self.then, &self.otherwise]
    }

    fn with_regions(&self, regions: Vec<Graph>) -> Option<Op> {
        Self::from_regions(regions).ok().map(Op::from)
    }

    /// Those of the dearer branch.
    fn flops(&self, _: &[Option<&TensorType>], _: &[TensorType]) -> u64 {
        self.regions().into_iter().map(graph_flops).max().unwrap_or(0)
    }
}

/// Whether a condition of one element holds.
pub(crate) fn is_true(condition: &Tensor) -> bool {
    condition.bytes().first().is_some_and(|byte| *byte != 0)
}

/// Refuses a condition that is not one truth value.
pub(crate) fn check_condition(operator: &str, condition: &TensorType) -> Result<(), InferError> {
    if condition.dtype == DataType::Bool && condition.elements() == 1 {
        return Ok(());
    }
    Err(InferError::new(format!("the condition of {operator} is {condition}, not one truth value")))
}

/// Refuses operands of other types than a region's inputs, and takes as many as there are.
pub(crate) fn check_inputs<'a>(
    graph: &Graph,
    given: &mut impl Iterator<Item = &'a Option<&'a TensorType>>,
    region: &str,
) -> Result<(), InferError> {
    for port in graph.inputs() {
        let expected = graph.tensor_type(port.value);
        let found = given.next().copied().flatten();
        if found != Some(expected) {
            let found = found.map_or("left out".to_owned(), TensorType::to_string);
            let name = &port.name;
            return Err(InferError::new(format!(
                "input '{name}' of the {region} graph is {expected}, the operand is {found}"
            )));
        }
    }
    Ok(())
}

/// Types of a graph's outputs.
pub(crate) fn output_types(graph: &Graph) -> Vec<TensorType> {
    graph.outputs().iter().map(|port| graph.tensor_type(port.value).clone()).collect()
}

/// Floating-point operations of one run of a graph.
pub(crate) fn graph_flops(graph: &Graph) -> u64 {
    let flops = graph.nodes().iter().map(|(_, node)| {
        let inputs: Vec<Option<&TensorType>> =
            node.inputs.iter().map(|input| input.map(|value| graph.tensor_type(value))).collect();
        let outputs: Vec<TensorType> =
            node.outputs.iter().map(|value| graph.tensor_type(*value).clone()).collect();
        node.operation.flops(&inputs, &outputs)
    });
    flops.fold(0, u64::saturating_add)
}
