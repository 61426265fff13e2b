//! A graph that is run again and again.

use crate::conditional::{check_condition, check_inputs, graph_flops, is_true, output_types};
use crate::operator::{FusionClass, Graph, Op, OpError, Operator, required};
use crate::reference::evaluate;
use crate::shape::bounded;
use hone_graph::InferError;
use hone_types::{DataType, Tensor, TensorType};

/// Iterations that the reference interpreter computes of a loop at most.
pub const LONGEST_EVALUATION: u64 = 1_000_000;

/// ONNX `Loop`, and `Scan` whose body picks its slices by the number of the iteration.
///
/// Inputs: the number of iterations (`i64` scalar, optional), whether to begin (one `bool`, optional), the first
/// values of what is carried from iteration to iteration, and what every iteration reads.
///
/// The body's inputs: the number of the iteration from 0 (`i64` scalar), the carried values, what every iteration
/// reads. Its outputs: whether to go on (one `bool`, where `tests`), the next carried values of the same types,
/// and values to collect.
///
/// Outputs: the last carried values, for each value to collect all of them `[capacity, ...]` (zeros behind those
/// of the last iteration), and how many iterations there were (`i64` scalar).
#[derive(Clone, Debug)]
pub struct Loop {
    /// What one iteration computes.
    pub body: Graph,
    /// How many values are carried.
    pub carried: usize,
    /// Whether the body's first output says if there is another iteration.
    pub tests: bool,
    /// Iterations after which the loop ends in any case.
    pub most: Option<u64>,
    /// Iterations for whose collected values there is room; another one is an error.
    pub capacity: Option<u64>,
    /// For each value to collect, whether the last iteration's comes first; only where the number of
    /// iterations is fixed.
    pub reversed: Vec<bool>,
}

impl Loop {
    /// Name in text forms.
    pub const NAME: &'static str = "loop";

    /// A loop around a body, with attributes as [`Operator::attributes`] gives them.
    ///
    /// # Errors
    /// Other attributes, or another number of graphs.
    pub fn from_attributes(
        attributes: serde_json::Value,
        regions: Vec<Graph>,
    ) -> Result<Self, InferError> {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Attributes {
            carried: usize,
            tests: bool,
            most: Option<u64>,
            capacity: Option<u64>,
            reversed: Vec<bool>,
        }
        let count = regions.len();
        let [body] = <[Graph; 1]>::try_from(regions)
            .map_err(|_| InferError::new(format!("a loop has one body, not {count}")))?;
        let Attributes { carried, tests, most, capacity, reversed } =
            serde_json::from_value(attributes)
                .map_err(|error| InferError::new(format!("loop: {error}")))?;
        Ok(Self { body, carried, tests, most, capacity, reversed })
    }

    /// Whether the number of iterations is known: `most` of them.
    pub fn is_fixed(&self, has_trips: bool, has_condition: bool) -> bool {
        !has_trips && !has_condition && !self.tests && self.most.is_some()
    }

    /// Begins to compute the loop.
    ///
    /// # Errors
    /// An input that is left out.
    pub fn walk(&self, inputs: &[Option<&Tensor>]) -> Result<LoopWalk<'_>, OpError> {
        let trips = inputs.first().copied().flatten();
        let trips = trips.and_then(|trips| trips.to_i64().first().copied());
        let trips = trips.map(|trips| trips.max(0) as u64);
        let most = self.most.into_iter().chain(trips).min();
        let goes_on = inputs.get(1).copied().flatten().is_none_or(is_true);
        let operand = |place| required(Self::NAME, inputs, place).cloned();
        let first = (2..2 + self.carried).map(operand).collect::<Result<Vec<_>, _>>()?;
        let read = (2 + self.carried..inputs.len()).map(operand).collect::<Result<Vec<_>, _>>()?;
        let collected = vec![Vec::new(); self.reversed.len()];
        Ok(LoopWalk { operator: self, most, goes_on, count: 0, carried: first, read, collected })
    }

    fn types(&self) -> (Vec<TensorType>, Vec<TensorType>) {
        let mut outputs = output_types(&self.body);
        let outputs = outputs.split_off(usize::from(self.tests).min(outputs.len()));
        let (carried, collected) = outputs.split_at(self.carried.min(outputs.len()));
        (carried.to_vec(), collected.to_vec())
    }
}

/// A loop while the reference interpreter computes it.
#[derive(Debug)]
pub struct LoopWalk<'a> {
    operator: &'a Loop,
    most: Option<u64>,
    goes_on: bool,
    count: u64,
    carried: Vec<Tensor>,
    read: Vec<Tensor>,
    /// Bytes of the values of each iteration.
    collected: Vec<Vec<Tensor>>,
}

impl LoopWalk<'_> {
    /// Inputs of the body for the next iteration, if there is one.
    ///
    /// # Errors
    /// More iterations than there is room for, or than the interpreter computes.
    pub fn next_inputs(&self) -> Result<Option<Vec<Tensor>>, OpError> {
        if !self.goes_on || self.most.is_some_and(|most| self.count >= most) {
            return Ok(None);
        }
        if let Some(capacity) = self.operator.capacity.filter(|capacity| self.count >= *capacity) {
            return Err(OpError::Value(format!(
                "the loop goes on after {capacity} iterations, for which there is room"
            )));
        }
        if self.count >= LONGEST_EVALUATION {
            return Err(OpError::Value(format!(
                "the loop goes on after {LONGEST_EVALUATION} iterations, the most that are computed here"
            )));
        }
        let number = Tensor::scalar(self.count as i64);
        let inputs = [number].into_iter().chain(self.carried.iter().chain(&self.read).cloned());
        Ok(Some(inputs.collect()))
    }

    /// Takes the body's outputs of an iteration.
    pub fn take(&mut self, mut outputs: Vec<Tensor>) {
        if self.operator.tests {
            self.goes_on = outputs.first().is_some_and(is_true);
            outputs.drain(..outputs.len().min(1));
        }
        let collected = outputs.split_off(self.operator.carried.min(outputs.len()));
        self.carried = outputs;
        self.collected.iter_mut().zip(collected).for_each(|(all, one)| all.push(one));
        self.count += 1;
    }

    /// The loop's outputs, when there is no further iteration.
    ///
    /// # Errors
    /// Sizes beyond those of tensors.
    pub fn outputs(self) -> Result<Vec<Tensor>, OpError> {
        let (_, types) = self.operator.types();
        let capacity = self.operator.capacity.unwrap_or(0) as usize;
        let mut outputs = self.carried;
        let collected = self.collected.into_iter().zip(types).zip(&self.operator.reversed);
        for ((mut all, element), reversed) in collected {
            let output = collected_type(&element, capacity)?;
            if *reversed {
                all.reverse();
            }
            let mut bytes: Vec<u8> = all.iter().flat_map(|one| one.bytes()).copied().collect();
            bytes.resize(output.bytes(), 0);
            outputs.push(Tensor::from_bytes(output, bytes)?);
        }
        outputs.push(Tensor::scalar(self.count as i64));
        Ok(outputs)
    }
}

impl Operator for Loop {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    /// The body is compared apart.
    fn attributes(&self) -> serde_json::Value {
        let Self { carried, tests, most, capacity, reversed, .. } = self;
        serde_json::json!({
            "carried": carried, "tests": tests, "most": most, "capacity": capacity, "reversed": reversed,
        })
    }

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let number = TensorType::new(DataType::I64, []);
        let [trips, condition] = [0, 1].map(|place| inputs.get(place).copied().flatten());
        if let Some(trips) = trips.filter(|trips| **trips != number) {
            return Err(InferError::new(format!(
                "the number of iterations is {trips}, not {number}"
            )));
        }
        condition.map_or(Ok(()), |condition| check_condition(Self::NAME, condition))?;
        let given = [Some(&number)];
        let mut given = given.iter().chain(inputs.iter().skip(2));
        check_inputs(&self.body, &mut given, "body")?;
        if given.next().is_some() {
            return Err(InferError::new("the loop has more inputs than its body"));
        }
        let outputs = output_types(&self.body);
        if outputs.len() != usize::from(self.tests) + self.carried + self.reversed.len() {
            return Err(InferError::new("the body of the loop has another number of outputs"));
        }
        if let Some(condition) = outputs.first().filter(|_| self.tests) {
            check_condition(Self::NAME, condition)?;
        }
        let (mut types, collected) = self.types();
        for (place, next) in types.iter().enumerate() {
            let first = inputs.get(2 + place).copied().flatten();
            if first != Some(next) {
                let first = first.map_or("left out".to_owned(), TensorType::to_string);
                return Err(InferError::new(format!(
                    "value {place} that the loop carries is {first} at first and {next} after an iteration; sizes that grow are not supported"
                )));
            }
        }
        if self.reversed.contains(&true) && !self.is_fixed(trips.is_some(), condition.is_some()) {
            return Err(InferError::new(
                "values are collected backwards without a fixed number of them",
            ));
        }
        if !collected.is_empty() && self.capacity.is_none() {
            return Err(InferError::new("nothing says how many values the loop collects at most"));
        }
        let capacity = usize::try_from(self.capacity.unwrap_or(0)).unwrap_or(usize::MAX);
        for element in &collected {
            types.push(collected_type(element, capacity)?);
        }
        types.push(number);
        Ok(types)
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Opaque
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let mut walk = self.walk(inputs)?;
        while let Some(inputs) = walk.next_inputs()? {
            let outputs = evaluate(&self.body, &inputs);
            walk.take(outputs.map_err(|source| OpError::Region(Box::new(source)))?);
        }
        walk.outputs()
    }

    fn is_compiled(&self) -> bool {
        false
    }

    fn regions(&self) -> Vec<&Graph> {
        vec![&self.body]
    }

    fn with_regions(&self, regions: Vec<Graph>) -> Option<Op> {
        let [body] = <[Graph; 1]>::try_from(regions).ok()?;
        Some(Self { body, ..self.clone() }.into())
    }

    /// Those of the most iterations, or of one where nothing is known of their number.
    fn flops(&self, _: &[Option<&TensorType>], _: &[TensorType]) -> u64 {
        let most = self.most.into_iter().chain(self.capacity).min().unwrap_or(1);
        graph_flops(&self.body).saturating_mul(most)
    }
}

/// Type of all values of `element`'s type, one after another.
fn collected_type(element: &TensorType, capacity: usize) -> Result<TensorType, InferError> {
    let shape: Vec<usize> = [capacity].into_iter().chain(element.shape.iter().copied()).collect();
    bounded(element.dtype, shape)
}
