//! Steps in time: nodes that are computed once for each element of a sequence, in order.

use crate::express::input;
use crate::operator::{FusionClass, Graph, Op, OpError, Operator, named, required};
use crate::shape::bounded;
use hone_graph::{Definition, InferError, ValueId};
use hone_tensor::{BufferId, Builder, Expr};
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Nodes that are computed once for each element along the first axis of sequences, and hand states on to
/// the next step (ONNX `Scan` with a body of fixed shapes).
///
/// Inputs: the first value of each state; sequences `[steps, ..]`; further values that every step reads.
/// Outputs: a sequence `[steps, ..]` of each value that a step gives, then the last value of each state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recurrence {
    /// Number of states.
    pub states: usize,
    /// Number of sequences that are read.
    pub sequences: usize,
    /// Whether sequences are read and written from their end.
    pub backwards: bool,
    /// What a step computes, in order. Values are numbered: a step's inputs (states, elements of the
    /// sequences, further values), then what the nodes compute.
    pub nodes: Vec<StepNode>,
    /// The new value of each state.
    pub new_states: Vec<usize>,
    /// The values that become sequences.
    pub given: Vec<usize>,
}

/// A node of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepNode {
    /// Its operator's name.
    pub operator: String,
    /// Its operator's attributes.
    pub attributes: serde_json::Value,
    /// Numbers of the values that it reads.
    pub inputs: Vec<Option<usize>>,
}

impl StepNode {
    fn operation(&self) -> Result<Op, InferError> {
        crate::from_attributes(&self.operator, self.attributes.clone())
    }

    /// What the node's inputs are among `values`.
    fn operands<'a, T>(&self, values: &'a [T]) -> Result<Vec<Option<&'a T>>, InferError> {
        let operand = |place: &Option<usize>| match place {
            None => Ok(None),
            Some(place) => values.get(*place).map(Some).ok_or_else(|| missing(*place)),
        };
        self.inputs.iter().map(operand).collect()
    }
}

fn missing(place: usize) -> InferError {
    InferError::new(format!("{} has no value {place}", Recurrence::NAME))
}

fn value<T>(values: &[T], place: usize) -> Result<&T, InferError> {
    values.get(place).ok_or_else(|| missing(place))
}

impl Recurrence {
    /// Name in text forms.
    pub const NAME: &'static str = "recurrence";

    /// The recurrence whose step is `step`: a graph with the inputs of a step, whose outputs are the new
    /// states and then the values that become sequences. Also the step's constants, which are further
    /// inputs after those of the graph.
    pub fn of_step(
        step: &Graph,
        states: usize,
        sequences: usize,
        backwards: bool,
    ) -> (Self, Vec<Tensor>) {
        let mut numbers: HashMap<ValueId, usize> = HashMap::new();
        let mut number = |value: ValueId| {
            let next = numbers.len();
            numbers.insert(value, next);
        };
        step.inputs().iter().for_each(|port| number(port.value));
        let mut constants = Vec::new();
        for (id, value) in step.values().iter() {
            if let Definition::Constant(tensor) = &value.definition {
                number(id);
                constants.push(tensor.clone());
            }
        }
        step.nodes().iter().flat_map(|(_, node)| &node.outputs).for_each(|value| number(*value));
        let nodes = step.nodes().iter().map(|(_, node)| StepNode {
            operator: node.operation.name().to_string(),
            attributes: node.operation.attributes(),
            inputs: node.inputs.iter().map(|input| input.map(|value| numbers[&value])).collect(),
        });
        let nodes = nodes.collect();
        let mut results = step.outputs().iter().map(|port| numbers[&port.value]);
        let new_states = results.by_ref().take(states).collect();
        let given = results.collect();
        (Self { states, sequences, backwards, nodes, new_states, given }, constants)
    }

    /// What a step computes, as a graph: the opposite of [`Self::of_step`]. `inputs` are those of the operator, and
    /// `constants` what is known of them: further values that are constants are constants of the step, and no inputs.
    ///
    /// # Errors
    /// Inputs that are not this operator's.
    pub fn step(
        &self,
        inputs: &[Option<&TensorType>],
        constants: &[Option<&Tensor>],
    ) -> Result<Graph, InferError> {
        let types = self.step_types(inputs)?;
        let mut graph = Graph::new();
        let mut values = Vec::with_capacity(types.len());
        for (index, input) in types.iter().enumerate().take(inputs.len()) {
            let known = constants.get(index).copied().flatten();
            values.push(match known.filter(|_| index >= self.states + self.sequences) {
                Some(constant) => graph.add_constant(Self::NAME, constant.clone()),
                None => graph.add_input(Self::NAME, input.clone()),
            });
        }
        for node in &self.nodes {
            let operands = node.operands(&values)?;
            let operands: Vec<Option<ValueId>> =
                operands.into_iter().map(Option::<&ValueId>::copied).collect();
            values.extend(graph.add_node(&node.operator, node.operation()?, &operands)?);
        }
        for result in self.new_states.iter().chain(&self.given) {
            graph.add_output(Self::NAME, *value(&values, *result)?);
        }
        Ok(graph)
    }

    /// The number of steps.
    fn steps(&self, inputs: &[Option<&TensorType>]) -> Result<usize, InferError> {
        let first = required(Self::NAME, inputs, self.states)?;
        match first.shape.first() {
            Some(steps) if *steps > 0 => Ok(*steps),
            _ => Err(InferError::new(format!("{first} is no sequence of a step or more"))),
        }
    }

    /// Whether an input is one of the sequences.
    fn is_sequence(&self, place: usize) -> bool {
        (self.states..self.states + self.sequences).contains(&place)
    }

    /// The types of all values of a step.
    fn step_types(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let steps = self.steps(inputs)?;
        let mut types = Vec::with_capacity(inputs.len() + self.nodes.len());
        for place in 0..inputs.len() {
            let own = required(Self::NAME, inputs, place)?;
            types.push(match self.is_sequence(place) {
                false => own.clone(),
                true if own.shape.first() == Some(&steps) => {
                    TensorType::new(own.dtype, &own.shape[1..])
                }
                true => {
                    return Err(InferError::new(format!("{own} has not {steps} steps")));
                }
            });
        }
        for node in &self.nodes {
            let outputs =
                hone_graph::Operation::infer(&node.operation()?, &node.operands(&types)?)?;
            types.extend(outputs);
        }
        for (state, new) in self.new_states.iter().enumerate() {
            let (old, new) = (value(&types, state)?, value(&types, *new)?);
            if old != new {
                return Err(InferError::new(format!("a state of {old} becomes one of {new}")));
            }
        }
        Ok(types)
    }

    /// The outputs where every step begins with the states that `outputs` has after the step before: what a
    /// right computation gives whose own rounding led to `outputs`. In a long sequence the rounding of
    /// early steps grows; so each step can be judged by itself. `None` where the states are not
    /// all among the sequences that are given.
    ///
    /// # Errors
    /// Inputs or outputs that are not this operator's.
    pub fn follow(
        &self,
        inputs: &[Option<&Tensor>],
        outputs: &[Tensor],
    ) -> Result<Option<Vec<Tensor>>, OpError> {
        let place = |state: &usize| self.given.iter().position(|given| given == state);
        let Some(places) = self.new_states.iter().map(place).collect::<Option<Vec<_>>>() else {
            return Ok(None);
        };
        let sequences: Vec<&Tensor> =
            places.iter().map(|place| value(outputs, *place)).collect::<Result<_, _>>()?;
        let after = |at: usize, state: usize| -> Result<Option<Tensor>, OpError> {
            let whole = value(&sequences, state)?;
            let own = TensorType::new(whole.dtype(), whole.shape().get(1..).unwrap_or_default());
            let bytes = whole.bytes().chunks_exact(own.bytes().max(1)).nth(at);
            let bytes = bytes.map(<[u8]>::to_vec).unwrap_or_default();
            Ok(Some(Tensor::from_bytes(own, bytes)?))
        };
        self.walk(inputs, &after).map(Some)
    }

    /// The outputs, step by step; `after` may give the states to go on with after the step at a place.
    fn walk(
        &self,
        inputs: &[Option<&Tensor>],
        after: &dyn Fn(usize, usize) -> Result<Option<Tensor>, OpError>,
    ) -> Result<Vec<Tensor>, OpError> {
        let types: Vec<Option<&TensorType>> =
            inputs.iter().map(|input| input.map(Tensor::tensor_type)).collect();
        let (steps, step_types) = (self.steps(&types)?, self.step_types(&types)?);
        let outputs = self.infer(&types)?;
        let operations: Vec<Op> =
            self.nodes.iter().map(StepNode::operation).collect::<Result<_, _>>()?;
        let mut values: Vec<Tensor> = inputs.iter().flatten().copied().cloned().collect();
        let mut given: Vec<Vec<u8>> =
            outputs[..self.given.len()].iter().map(|own| vec![0; own.bytes()]).collect();
        for step in 0..steps {
            let place = if self.backwards { steps - 1 - step } else { step };
            for sequence in self.states..self.states + self.sequences {
                let (own, whole) = (&step_types[sequence], required(Self::NAME, inputs, sequence)?);
                let bytes = whole.bytes()[place * own.bytes()..][..own.bytes()].to_vec();
                values[sequence] = Tensor::from_bytes(own.clone(), bytes)?;
            }
            values.truncate(inputs.len());
            for (node, operation) in self.nodes.iter().zip(&operations) {
                let results = operation.reference(&node.operands(&values)?)?;
                values.extend(results);
            }
            for (all, number) in given.iter_mut().zip(&self.given) {
                let bytes = value(&values, *number)?.bytes();
                all[place * bytes.len()..][..bytes.len()].copy_from_slice(bytes);
            }
            let mut new = Vec::with_capacity(self.states);
            for (state, number) in self.new_states.iter().enumerate() {
                let own = value(&values, *number)?;
                new.push(after(place, state)?.unwrap_or_else(|| own.clone()));
            }
            values.splice(..self.states, new);
        }
        let sequences = outputs.iter().zip(given);
        let mut results: Vec<Tensor> = sequences
            .map(|(own, bytes)| Tensor::from_bytes(own.clone(), bytes))
            .collect::<Result<_, _>>()?;
        results.extend(values.into_iter().take(self.states));
        Ok(results)
    }

    /// Where in the sequences a step lies.
    fn place(&self, step: Expr, steps: usize) -> Expr {
        if self.backwards { Expr::Integer(steps as i64 - 1) - step } else { step }
    }
}

impl Operator for Recurrence {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let (steps, types) = (self.steps(inputs)?, self.step_types(inputs)?);
        let mut outputs = Vec::new();
        for given in &self.given {
            let own = value(&types, *given)?;
            outputs.push(bounded(own.dtype, [&[steps], &own.shape[..]].concat())?);
        }
        outputs.extend_from_slice(types.get(..self.states).unwrap_or_default());
        Ok(outputs)
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Opaque
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        self.walk(inputs, &|_, _| Ok(None))
    }

    /// One loop over steps around the blocks of the step's nodes. A state is a sequence, too: a step
    /// reads what the one before stored.
    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let types: Vec<TensorType> =
            inputs.iter().flatten().map(|own| builder.tensor_type(*own)).collect();
        let types: Vec<Option<&TensorType>> = types.iter().map(Some).collect();
        let (steps, types) = (self.steps(&types).ok()?, self.step_types(&types).ok()?);
        let sequence =
            |own: &TensorType| TensorType::new(own.dtype, [&[steps], &own.shape[..]].concat());
        // A state that is given as a sequence is stored once, as that.
        let states: Vec<BufferId> = types[..self.states]
            .iter()
            .map(|own| builder.reserve("state", &sequence(own)))
            .collect();
        let step = builder.begin_loop("step", steps);
        let at = self.place(step.clone(), steps);
        let before = if self.backwards { at.clone() + 1 } else { at.clone() - 1 };
        let element = |at: &Expr, point: &[Expr]| [std::slice::from_ref(at), point].concat();
        let mut values = Vec::with_capacity(types.len());
        for (place, own) in types.iter().enumerate().take(inputs.len()) {
            let whole = input(inputs, place)?;
            values.push(if place < self.states {
                builder.map("state", own, |point| {
                    let stored = Expr::Load(states[place], element(&before, point));
                    let first = Expr::Load(whole, point.to_vec());
                    Expr::Integer(0).less(step.clone()).select(stored, first)
                })
            } else if self.is_sequence(place) {
                builder.map("element", own, |point| Expr::Load(whole, element(&at, point)))
            } else {
                whole
            });
        }
        for node in &self.nodes {
            let operands = node.operands(&values).ok()?;
            let operands: Vec<Option<BufferId>> =
                operands.into_iter().map(|own| own.copied()).collect();
            values.extend(node.operation().ok()?.expression(builder, &operands)?);
        }
        let keep = |builder: &mut Builder, buffer: BufferId, number: usize| {
            let own = values[number];
            let shape = builder.tensor_type(own).shape;
            builder
                .store("keep", buffer, at.clone(), &shape, |point| Expr::Load(own, point.to_vec()));
        };
        for (state, new) in states.iter().zip(&self.new_states) {
            keep(builder, *state, *new);
        }
        let mut results = Vec::new();
        for given in &self.given {
            let same = self.new_states.iter().position(|new| new == given);
            let stored = same.map(|place| states[place]).filter(|own| !results.contains(own));
            results.push(match stored {
                Some(state) => state,
                None => {
                    let own = builder.reserve("given", &sequence(value(&types, *given).ok()?));
                    keep(builder, own, *given);
                    own
                }
            });
        }
        builder.end_loop();
        let last = if self.backwards { 0 } else { steps - 1 };
        for (state, own) in states.iter().zip(&types) {
            results.push(
                builder.map("last", own, |point| {
                    Expr::Load(*state, element(&Expr::from(last), point))
                }),
            );
        }
        Some(results)
    }

    fn flops(&self, inputs: &[Option<&TensorType>], _outputs: &[TensorType]) -> u64 {
        let (Ok(steps), Ok(types)) = (self.steps(inputs), self.step_types(inputs)) else {
            return 0;
        };
        let mut each = 0u64;
        for node in &self.nodes {
            let (Ok(operation), Ok(operands)) = (node.operation(), node.operands(&types)) else {
                return 0;
            };
            let Ok(outputs) = operation.infer(&operands) else { return 0 };
            each = each.saturating_add(operation.flops(&operands, &outputs));
        }
        each.saturating_mul(steps as u64)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{Binary, BinaryFunction};

    /// `a' = a + x`, given at every step.
    fn running_sum() -> Recurrence {
        let add = Op::new(Binary::new(BinaryFunction::Add));
        let node = StepNode {
            operator: add.name().to_string(),
            attributes: add.attributes(),
            inputs: vec![Some(0), Some(1)],
        };
        Recurrence {
            states: 1,
            sequences: 1,
            backwards: false,
            nodes: vec![node],
            new_states: vec![2],
            given: vec![2],
        }
    }

    #[test]
    fn steps_go_on_from_what_was_stored() {
        let first = Tensor::from_elements([1], &[0.0f32]).unwrap();
        let x = Tensor::from_elements([3, 1], &[1.0f32, 2.0, 3.0]).unwrap();
        let inputs = [Some(&first), Some(&x)];
        let right = running_sum().reference(&inputs).unwrap();
        assert_eq!(right[0].elements::<f32>().unwrap(), [1.0, 3.0, 6.0]);
        let followed = running_sum().follow(&inputs, &right).unwrap().unwrap();
        assert_eq!(followed, right);
        // A wrong second step is wrong by itself; the third goes on from it.
        let wrong = Tensor::from_elements([3, 1], &[1.0f32, 7.0, 10.0]).unwrap();
        let last = Tensor::from_elements([1], &[10.0f32]).unwrap();
        let followed = running_sum().follow(&inputs, &[wrong, last]).unwrap().unwrap();
        assert_eq!(followed[0].elements::<f32>().unwrap(), [1.0, 3.0, 10.0]);
        assert_eq!(followed[1].elements::<f32>().unwrap(), [10.0]);
    }

    #[test]
    fn states_that_are_not_given_cannot_be_followed() {
        let first = Tensor::from_elements([1], &[0.0f32]).unwrap();
        let x = Tensor::from_elements([1, 1], &[1.0f32]).unwrap();
        let hidden = Recurrence { given: vec![], ..running_sum() };
        let inputs = [Some(&first), Some(&x)];
        let outputs = hidden.reference(&inputs).unwrap();
        assert_eq!(outputs.len(), 1);
        assert_eq!(hidden.follow(&inputs, &outputs).unwrap(), None);
    }
}
