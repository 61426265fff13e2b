//! `Loop` and `Scan` as graphs inside of a node; `branches.rs` has `If`. Shapes inside are those of the first iteration: a body that gives its carried values another
//! shape is refused.

use super::builder::{Operand, Region};
use super::importer::{Importer, Scope};
use super::node::Node;
use super::proto::{GraphProto, ValueInfoProto};
use super::shorthands::axis;
use crate::NodeError;
use hone_ops::{Gather, Loop};
use hone_types::{DataType, Tensor, TensorType};
use std::rc::Rc;

/// Trip counts above this are taken as none: exporters write the largest number there is for `while`.
const MOST_TRIPS: u64 = u32::MAX as u64;

/// What is imported of an ONNX body.
pub(super) type Imported = Result<Vec<Operand>, NodeError>;

impl Importer {
    /// Imports a graph in a scope of its own, in which `begin` may name values.
    pub(super) fn inner(
        &mut self,
        graph: GraphProto,
        begin: impl FnOnce(&mut Self) -> Result<(), NodeError>,
    ) -> Imported {
        let outputs: Vec<String> =
            graph.output.iter().map(|output| output.name.clone().unwrap_or_default()).collect();
        let opsets = self.scopes.last().map(|scope| Rc::clone(&scope.opsets)).unwrap_or_default();
        self.enter(Scope { opsets, ..Scope::default() })?;
        let imported = begin(self).and_then(|()| Ok(self.import_graph(graph, &outputs)?));
        self.scopes.pop();
        imported
    }

    /// `Loop`.
    pub(super) fn repetition(&mut self, node: &mut Node) -> Imported {
        let body = node.graph("body")?.ok_or_else(|| NodeError::invalid("the body is left out"))?;
        let first = (2..node.inputs.len()).map(|place| node.input(place));
        let first: Vec<Operand> = first.collect::<Result<_, _>>()?;
        let collected = body.output.len().checked_sub(1 + first.len());
        let collected = collected.filter(|_| body.input.len() == 2 + first.len());
        let collected = collected.ok_or_else(|| {
            let (inputs, outputs, carried) = (body.input.len(), body.output.len(), first.len());
            NodeError::invalid(format!(
                "the body has {inputs} inputs and {outputs} outputs, which do not fit {carried} carried values"
            ))
        })?;
        if first.iter().any(|own| self.builder.is_composite(*own)) {
            return self.unrolled(node, &body, first);
        }
        let mut bounds = self.bounds(node)?;
        if collected > 0 {
            bounds.capacity = self.capacity(node, first.len(), &bounds)?;
        }
        let names = input_names(&body);
        let (inputs, limit) = (first.clone(), bounds.most.into_iter().chain(bounds.capacity).min());
        self.builder.begin_region();
        let mut outputs = self.inner(body, |importer| {
            let number = importer.builder.add_number("iteration", limit);
            importer.bind(&names[0], number);
            let holds = importer.builder.constant(Tensor::scalar(true));
            importer.bind(&names[1], holds);
            importer.add_carried(&names[2..], &inputs);
            Ok(())
        })?;
        let known = self.builder.tensor(outputs[0]);
        let tests = known.is_none_or(|known| known.bytes() != [1]);
        if !tests {
            outputs.remove(0);
        }
        let texts = self.texts(&outputs[usize::from(tests)..]);
        let body = self.builder.end_region(&outputs)?;
        let form = Form { carried: first.len(), tests, reversed: vec![false; collected] };
        let outputs = self.apply_loop(node, body, form, bounds, &first)?;
        Ok(self.marked(outputs, &texts))
    }

    /// Which operands are of strings.
    fn texts(&self, operands: &[Operand]) -> Vec<bool> {
        operands.iter().map(|own| self.builder.is_text(*own)).collect()
    }

    /// Operands of which those that `texts` says are of strings.
    fn marked(&mut self, mut operands: Vec<Operand>, texts: &[bool]) -> Vec<Operand> {
        for (own, _) in operands.iter_mut().zip(texts).filter(|(_, text)| **text) {
            *own = self.builder.as_text(*own);
        }
        operands
    }

    /// Binds names to inputs of the types of `first`.
    fn add_carried(&mut self, names: &[String], first: &[Operand]) {
        for (name, first) in names.iter().zip(first) {
            let tensor_type = self.builder.tensor_type(*first).clone();
            let input = self.builder.add_input(name, tensor_type);
            if self.builder.is_text(*first) {
                self.builder.as_text(input);
            }
            self.bind(name, input);
        }
    }

    /// What the first two inputs of a `Loop` say.
    fn bounds(&mut self, node: &Node) -> Result<Bounds, NodeError> {
        let mut bounds = Bounds { trips: None, condition: None, most: None, capacity: None };
        if let Some(trips) = node.optional(0) {
            match self.builder.tensor(trips).map(Tensor::to_i64) {
                Some(known) => {
                    let known = known.first().copied().unwrap_or(0).max(0) as u64;
                    bounds.most = Some(known).filter(|known| *known <= MOST_TRIPS);
                }
                None => {
                    // As often as there are elements of what a run finds: at most for all the room.
                    let most = self.builder.ranges(trips).and_then(|own| own.first().copied());
                    let most = most.and_then(|own| u64::try_from(own.most.max(0)).ok());
                    bounds.most = most.filter(|most| *most <= MOST_TRIPS);
                    bounds.trips = Some(self.builder.reshape(trips, Vec::new())?);
                }
            }
        }
        if let Some(condition) = node.optional(1) {
            match self.builder.tensor(condition) {
                Some(known) if known.bytes() == [0] => bounds.most = Some(0),
                Some(_) => {}
                None => bounds.condition = Some(condition),
            }
        }
        Ok(bounds)
    }

    /// For how many iterations there is room: the model's bound, or what it declares of the outputs.
    fn capacity(
        &self,
        node: &Node,
        carried: usize,
        bounds: &Bounds,
    ) -> Result<Option<u64>, NodeError> {
        let scope = self.scopes.last();
        let names = node.output_names.iter().skip(carried);
        let first = |name: &String| scope?.declared.get(name)?.first().copied().flatten();
        let declared = names.filter_map(first).min().map(|extent| extent as u64);
        match bounds.most.into_iter().chain(declared).min() {
            None => Err(NodeError::Unbounded { output: carried }),
            capacity => Ok(capacity),
        }
    }

    /// The node of a loop, and its outputs.
    fn apply_loop(
        &mut self,
        node: &Node,
        body: Region,
        form: Form,
        bounds: Bounds,
        first: &[Operand],
    ) -> Imported {
        let Form { carried, tests, reversed } = form;
        let Bounds { trips, condition, most, mut capacity } = bounds;
        let collected = reversed.len();
        let operator = Loop { body: body.graph, carried, tests, most, capacity, reversed };
        let is_fixed = operator.is_fixed(trips.is_some(), condition.is_some());
        // A bound that is the number of iterations itself is no guess of the exporter's.
        if is_fixed && collected > 0 {
            capacity = most;
        }
        let operator = Loop { capacity, ..operator };
        let operands = [trips, condition].into_iter().chain(first.iter().copied().map(Some));
        let operands: Vec<Option<Operand>> =
            operands.chain(body.captured.into_iter().map(Some)).collect();
        self.builder.name_nodes(&node.name);
        let mut outputs = self.builder.apply_all(operator, &operands)?;
        let count = outputs.pop().ok_or_else(|| NodeError::invalid("the loop has no result"))?;
        if !is_fixed {
            if let Some(most) = capacity.and_then(|own| usize::try_from(own).ok()) {
                self.builder.note_count(count, most);
            }
            outputs[carried..].iter().for_each(|own| self.builder.set_extent(*own, 0, count));
        }
        Ok(outputs)
    }

    /// `Scan`: a loop whose body picks its slices by the number of the iteration.
    pub(super) fn scan(&mut self, node: &mut Node) -> Imported {
        if node.opset < 9 {
            return self.scan_batch(node);
        }
        let body = node.graph("body")?.ok_or_else(|| NodeError::invalid("the body is left out"))?;
        let scanned = node.int_or("num_scan_inputs", 0)?;
        let scanned =
            usize::try_from(scanned).ok().filter(|own| (1..=node.inputs.len()).contains(own));
        let scanned =
            scanned.ok_or_else(|| NodeError::invalid("num_scan_inputs does not fit the inputs"))?;
        let operands = (0..node.inputs.len()).map(|place| node.input(place));
        let operands: Vec<Operand> = operands.collect::<Result<_, _>>()?;
        let carried = operands.len() - scanned;
        let collected = body.output.len().checked_sub(carried);
        let collected = collected.filter(|_| body.input.len() == operands.len());
        let collected = collected.ok_or_else(|| {
            NodeError::invalid("the inputs and outputs of the body do not fit those of the node")
        })?;
        let mut lists = |name: &str, count: usize| -> Result<Vec<i64>, NodeError> {
            match node.ints(name)? {
                None => Ok(vec![0; count]),
                Some(list) if list.len() == count => Ok(list),
                Some(list) => Err(NodeError::invalid(format!(
                    "{name} has {} numbers, not {count}",
                    list.len()
                ))),
            }
        };
        let backwards = lists("scan_input_directions", scanned)?;
        let input_axes = lists("scan_input_axes", scanned)?;
        let reversed = lists("scan_output_directions", collected)?;
        let output_axes = lists("scan_output_axes", collected)?;
        let (first, sequences) = operands.split_at(carried);
        let mut slices = Vec::new();
        for ((sequence, number), backwards) in sequences.iter().zip(input_axes).zip(backwards) {
            let axis = axis(number, self.builder.rank(*sequence))?;
            slices.push(Slices { sequence: *sequence, axis, backwards: backwards != 0 });
        }
        let lengths = slices.iter().map(|own| self.builder.shape(own.sequence)[own.axis]);
        let lengths: Vec<usize> = lengths.collect();
        if lengths.windows(2).any(|pair| pair[0] != pair[1]) {
            return Err(NodeError::invalid(format!("the sequences differ in length: {lengths:?}")));
        }
        let length = lengths[0] as u64;
        let names = input_names(&body);
        self.builder.begin_region();
        let outputs = self.inner(body, |importer| {
            let number = importer.builder.add_number("iteration", Some(length));
            importer.add_carried(&names[..carried], first);
            importer.bind_slices(&names[carried..], &slices, number, length)
        })?;
        let texts = self.texts(&outputs);
        let body = self.builder.end_region(&outputs)?;
        let reversed = reversed.iter().map(|direction| *direction != 0).collect();
        let form = Form { carried, tests: false, reversed };
        let capacity = (collected > 0).then_some(length);
        let bounds = Bounds { trips: None, condition: None, most: Some(length), capacity };
        let mut outputs = self.apply_loop(node, body, form, bounds, first)?;
        for (output, number) in outputs[carried..].iter_mut().zip(output_axes) {
            let rank = self.builder.rank(*output);
            let place = axis(number, rank)?;
            let permutation = (1..=place).chain([0]).chain(place + 1..rank).collect();
            *output = self.builder.transpose(*output, permutation)?;
        }
        Ok(self.marked(outputs, &texts))
    }

    /// `Scan` before opset 9: a scan of each sample of a batch.
    fn scan_batch(&mut self, node: &mut Node) -> Imported {
        const MOST_SAMPLES: usize = 1024;
        if node.optional(0).is_some() {
            return Err(NodeError::unsupported(
                "Scan before opset 9 with lengths of its sequences",
            ));
        }
        let operands = (1..node.inputs.len()).map(|place| node.input(place));
        let operands: Vec<Operand> = operands.collect::<Result<_, _>>()?;
        let extents: Vec<Option<usize>> =
            operands.iter().map(|own| self.builder.shape(*own).first().copied()).collect();
        let batch =
            extents.first().copied().flatten().filter(|own| (1..=MOST_SAMPLES).contains(own));
        let Some(batch) = batch.filter(|own| extents.iter().all(|other| *other == Some(*own)))
        else {
            return Err(NodeError::invalid(format!("{extents:?} are no samples of a batch")));
        };
        let mut attributes = std::mem::take(&mut node.attributes);
        if let Some(directions) = attributes.remove("directions") {
            attributes.insert("scan_input_directions".into(), directions);
        }
        let mut rows: Vec<Vec<Operand>> = Vec::new();
        for sample in 0..batch {
            let mut inputs = Vec::with_capacity(operands.len());
            for operand in &operands {
                let own = self.builder.narrow(*operand, 0, sample, 1)?;
                let shape = self.builder.shape(own)[1..].to_vec();
                inputs.push(Some(self.builder.reshape(own, shape)?));
            }
            let mut inner = Node {
                opset: 9,
                attributes: attributes.clone(),
                wanted: node.wanted.clone(),
                ..node.alike("Scan", inputs)
            };
            let outputs = self.scan(&mut inner)?;
            rows.resize(outputs.len(), Vec::new());
            rows.iter_mut().zip(outputs).for_each(|(row, own)| row.push(own));
        }
        rows.iter().map(|row| self.stacked(row)).collect()
    }

    /// Binds names to the slices of an iteration.
    fn bind_slices(
        &mut self,
        names: &[String],
        slices: &[Slices],
        number: Operand,
        length: u64,
    ) -> Result<(), NodeError> {
        for (name, Slices { sequence, axis, backwards }) in names.iter().zip(slices) {
            let index = match backwards {
                false => number,
                true => {
                    let last = self.builder.constant(Tensor::scalar(length as i64 - 1));
                    self.builder.subtract(last, number)?
                }
            };
            let slice = self.builder.apply(Gather { axis: *axis }, &[*sequence, index])?;
            if self.builder.is_text(*sequence) {
                self.builder.as_text(slice);
            }
            self.bind(name, slice);
        }
        Ok(())
    }
}

/// How often a loop runs.
struct Bounds {
    /// The number of iterations, where it is decided at run time.
    trips: Option<Operand>,
    /// Whether there is a first one, where that is.
    condition: Option<Operand>,
    /// Iterations after which the loop ends in any case.
    most: Option<u64>,
    /// Iterations for which there is room.
    capacity: Option<u64>,
}

/// What a loop's outputs are.
struct Form {
    carried: usize,
    tests: bool,
    reversed: Vec<bool>,
}

/// A sequence of which each iteration reads a slice.
struct Slices {
    sequence: Operand,
    axis: usize,
    backwards: bool,
}

fn input_names(graph: &GraphProto) -> Vec<String> {
    let name = |input: &ValueInfoProto| input.name.clone().unwrap_or_default();
    graph.input.iter().map(name).collect()
}

/// The type of the number of an iteration.
pub(super) fn number_type() -> TensorType {
    TensorType::new(DataType::I64, [])
}
