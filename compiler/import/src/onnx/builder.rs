//! The graph while it is built: operands, folding, and shorthands for the operators.
//!
//! An operand is either a constant or a value of the graph. An operation on constants alone is
//! computed at once by its reference result, so shapes that a model computes are known when they are
//! needed. A constant enters the graph when a node first reads it.
//!
//! Branches and bodies of loops are graphs of their own inside of the one around them: a stack. A graph reads nothing
//! of another; what it needs of those around it becomes an input of it when it is first read, and an operand of the
//! node that holds it.

use super::affine::input_place;
use super::external::ExternalFiles;
use super::from_shapes::FromShapes;
use super::narrow::NarrowType;
use super::proto::TensorProto;
use super::ranges::Range;
use super::reshaped_parts::Product;
use super::sized::Part;
use super::tensor::{self, checked_bytes};
use crate::{ImportError, ImportOptions, Limits, NodeError};
use hone_graph::{OutputExtent, ValueId};
use hone_ops::{DequantizeBlocks, FoldingBudget, Graph, Op, Operator, Tokens};
use hone_types::{Backing, DataType, Table, Tensor, TensorType};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

hone_types::define_id!(
    /// A value that import functions pass around.
    Operand,
    "operand"
);

#[derive(Debug)]
enum Source {
    /// A constant, and where it lies in the graph that last read it.
    Constant(Tensor, Option<(GraphNumber, ValueId)>),
    Value(GraphNumber, ValueId),
}

/// Which graph of an import, counted from 0.
type GraphNumber = usize;

/// A graph under construction.
#[derive(Debug)]
pub(super) struct Level {
    id: GraphNumber,
    graph: Graph,
    /// Operands of graphs around this one, and the inputs that they became, in order.
    captured: Vec<(Operand, ValueId)>,
    /// The number of the iteration, and below what it stays.
    number: Option<(usize, u64)>,
}

impl Level {
    fn new(number: GraphNumber) -> Self {
        Self { id: number, graph: Graph::new(), captured: Vec::new(), number: None }
    }
}

/// A graph inside of a node, and what it reads of those around it.
#[derive(Debug)]
pub(super) struct Region {
    /// The graph: inputs that were added first, then one for each captured operand.
    pub graph: Graph,
    /// Operands of the graphs around.
    pub captured: Vec<Operand>,
}

/// See the head of this file.
#[derive(Debug)]
pub(super) struct Builder {
    /// The model's graph, and those inside of it that are being built, innermost last; never empty.
    levels: Vec<Level>,
    /// How many graphs were begun.
    graphs: usize,
    /// Nodes of all graphs.
    nodes: usize,
    /// Operands whose first extent is the most that it may be, and how many there actually are.
    pub(super) extents: HashMap<Operand, (usize, Operand)>,
    /// Those of them whose part lies at its places among all the room, not at the front.
    pub(super) spread: HashSet<Operand>,
    /// Of operands of which a part is there along two axes, the second one.
    pub(super) second_parts: HashMap<Operand, Part>,
    /// Operands with nothing of use behind such parts, and the parts.
    pub(super) filled: HashMap<Operand, Vec<Part>>,
    /// Operands of which what is there along an axis is one and the same, again and again: the axis, and one of it.
    pub(super) repeated: HashMap<Operand, (usize, Operand)>,
    /// Counts that are products of others.
    pub(super) products: HashMap<Operand, Product>,
    /// Counts of which nothing but the room for them is a bound.
    pub(super) held: HashSet<Operand>,
    /// Shapes that the model declares for them.
    pub(super) declared: HashMap<Operand, Vec<usize>>,
    /// Between which numbers the elements of short lists of integers lie.
    pub(super) ranges: HashMap<Operand, Vec<Range>>,
    operands: Table<Operand, Source>,
    limits: Limits,
    files: ExternalFiles,
    /// What keeps the bytes of stored tensors.
    backing: Option<Arc<dyn Backing>>,
    /// Name given to the graph's nodes: that of the ONNX node being imported.
    node_name: String,
    folding: FoldingBudget,
    constant_bytes: usize,
    /// Operands of element types that are carried in bytes.
    narrow: HashMap<Operand, NarrowType>,
    /// Operands that stand for sequences.
    sequences: HashMap<Operand, Vec<Operand>>,
    /// Operands that stand for optional values that are not there.
    pub(super) absent: HashSet<Operand>,
    /// Operands that stand for lists of maps: their keys and values.
    pub(super) maps: HashMap<Operand, (Operand, Operand)>,
    /// Operands that stand for a map: its keys, values, and how many of them are there.
    pub(super) key_maps: HashMap<Operand, [Operand; 3]>,
    /// Tokens, in whatever shape: the texts that they were cut from, and how.
    pub(super) tokens: HashMap<Operand, (Operand, Tokens)>,
    /// Constants that follow from the shapes of inputs.
    pub(super) from_shapes: FromShapes,
    /// See [`ImportOptions::inputs_have_room`].
    pub(super) inputs_have_room: bool,
    /// Random numbers that were drawn.
    pub(super) drawn: usize,
    /// Strings that the model stores.
    pub(super) stored_texts: BTreeSet<String>,
    /// Things worth telling.
    pub warnings: Vec<String>,
}

impl Builder {
    /// An empty graph; tensors stored in files are read from the folder of `options`.
    pub fn new(options: &ImportOptions) -> Self {
        let limits = &options.limits;
        Self {
            levels: vec![Level::new(0)],
            graphs: 1,
            nodes: 0,
            extents: HashMap::new(),
            spread: HashSet::new(),
            second_parts: HashMap::new(),
            filled: HashMap::new(),
            repeated: HashMap::new(),
            products: HashMap::new(),
            held: HashSet::new(),
            declared: HashMap::new(),
            ranges: HashMap::new(),
            operands: Table::new(),
            limits: limits.clone(),
            files: ExternalFiles::new(options),
            backing: options.backing.clone(),
            node_name: String::new(),
            folding: FoldingBudget::new(limits.folding.clone()),
            constant_bytes: 0,
            narrow: HashMap::new(),
            sequences: HashMap::new(),
            absent: HashSet::new(),
            maps: HashMap::new(),
            key_maps: HashMap::new(),
            tokens: HashMap::new(),
            from_shapes: FromShapes::default(),
            inputs_have_room: options.inputs_have_room,
            drawn: 0,
            stored_texts: BTreeSet::new(),
            warnings: Vec::new(),
        }
    }

    /// Sets the name that nodes get from here on.
    pub fn name_nodes(&mut self, name: &str) {
        self.node_name = name.to_string();
    }

    fn level(&mut self) -> &mut Level {
        // There is always the model's graph.
        let last = self.levels.len() - 1;
        &mut self.levels[last]
    }

    /// An operand for a value of the graph under construction.
    pub(super) fn operand(&mut self, value: ValueId) -> Operand {
        let number = self.level().id;
        self.operands.push(Source::Value(number, value))
    }

    /// Adds an input of the graph under construction.
    pub fn add_input(&mut self, name: &str, tensor_type: TensorType) -> Operand {
        let value = self.level().graph.add_input(name, tensor_type);
        self.operand(value)
    }

    /// Begins a graph inside of the one under construction.
    pub fn begin_region(&mut self) {
        let number = self.graphs;
        self.graphs += 1;
        self.levels.push(Level::new(number));
    }

    /// Ends the innermost graph, with these outputs.
    ///
    /// # Errors
    /// An output whose size is decided at run time.
    pub fn end_region(&mut self, outputs: &[Operand]) -> Result<Region, NodeError> {
        for (place, output) in outputs.iter().enumerate() {
            self.check_extent(*output, "an output of a branch or loop")?;
            let value = self.value(*output);
            self.level().graph.add_output(format!("output {place}"), value);
        }
        let level = self.pop_region();
        let (captured, _): (Vec<Operand>, Vec<ValueId>) = level.captured.into_iter().unzip();
        Ok(Region { graph: level.graph, captured })
    }

    /// Lays the innermost graph aside.
    pub fn suspend_region(&mut self) -> Level {
        self.pop_region()
    }

    /// Goes on with a graph that was laid aside.
    pub fn resume_region(&mut self, level: Level) {
        self.levels.push(level);
    }

    fn pop_region(&mut self) -> Level {
        let last = if self.levels.len() > 1 { self.levels.pop() } else { None };
        last.unwrap_or_else(|| Level::new(0))
    }

    /// How many graphs are under construction, each inside of the one before.
    pub fn depth(&self) -> usize {
        self.levels.len()
    }

    /// Gives up the innermost graphs until so many are left. Operands of theirs are never used again.
    pub fn abandon_regions(&mut self, depth: usize) {
        self.levels.truncate(depth.max(1));
    }

    /// The graph under construction.
    pub fn graph(&self) -> &Graph {
        &self.levels[self.levels.len() - 1].graph
    }

    /// Says that an input of the graph under construction is the number of an iteration, below `limit`.
    pub fn note_limit(&mut self, input: usize, limit: Option<u64>) {
        self.level().number = limit.map(|limit| (input, limit));
    }

    /// Below what a value stays that is the number of an iteration.
    pub fn limit_of(&self, value: ValueId) -> Option<u64> {
        let level = &self.levels[self.levels.len() - 1];
        let (input, limit) = level.number?;
        (input_place(&level.graph, value) == Some(input)).then_some(limit)
    }

    /// The value of an operand that the graph under construction computes itself.
    pub fn own_value(&self, operand: Operand) -> Option<ValueId> {
        let id = self.levels[self.levels.len() - 1].id;
        match self.operands[operand] {
            Source::Value(own, value) if own == id => Some(value),
            _ => None,
        }
    }

    /// A constant.
    pub fn constant(&mut self, tensor: Tensor) -> Operand {
        self.operands.push(Source::Constant(tensor, None))
    }

    /// The narrow type of an operand, where it has one.
    pub fn narrow_type(&self, operand: Operand) -> Option<NarrowType> {
        self.narrow.get(&operand).copied()
    }

    /// Notes that an operand is of a narrow type.
    pub fn set_narrow(&mut self, operand: Operand, narrow: NarrowType) {
        self.narrow.insert(operand, narrow);
    }

    /// A sequence of operands. It stands in lists of operands and is no tensor.
    pub fn sequence(&mut self, items: Vec<Operand>) -> Operand {
        let own = self.constant(Tensor::scalar(items.len() as i64));
        self.sequences.insert(own, items);
        own
    }

    /// The operands of a sequence.
    pub fn items(&self, operand: Operand) -> Option<Vec<Operand>> {
        self.sequences.get(&operand).cloned()
    }

    /// Another operand for the same value, of no narrow type.
    pub fn alias(&mut self, operand: Operand) -> Operand {
        let source = match &self.operands[operand] {
            Source::Constant(tensor, place) => Source::Constant(tensor.clone(), *place),
            Source::Value(graph, value) => Source::Value(*graph, *value),
        };
        self.operands.push(source)
    }

    /// A constant that the model stores; counted against the bound on all constants.
    pub fn load(&mut self, proto: TensorProto) -> Result<Operand, ImportError> {
        let narrow = NarrowType::of_number(proto.data_type.unwrap_or(0));
        let mut tensor = tensor::load(proto, &mut self.files, &self.limits)?;
        self.count_constant(tensor.tensor_type().bytes())?;
        if let Some(backing) = &self.backing {
            tensor = tensor.kept_by(backing.clone());
        }
        let operand = self.constant(tensor);
        if let Some(narrow) = narrow {
            self.set_narrow(operand, narrow);
        }
        if narrow == Some(NarrowType::Text) {
            let handles = self.tensor(operand).and_then(|own| own.elements::<u64>().ok());
            self.note_texts(&handles.unwrap_or_default());
        }
        Ok(operand)
    }

    fn count_constant(&mut self, bytes: usize) -> Result<(), ImportError> {
        self.constant_bytes = self.constant_bytes.saturating_add(bytes);
        let (actual, limit) = (self.constant_bytes, self.limits.constant_bytes);
        if actual > limit {
            let what = "the size of all constants in bytes".into();
            return Err(ImportError::TooLarge { what, actual: actual as u64, limit: limit as u64 });
        }
        Ok(())
    }

    /// A scalar of type `dtype`.
    pub fn scalar(&mut self, dtype: DataType, value: f64) -> Result<Operand, NodeError> {
        let tensor = Tensor::from_f64(dtype, [], &[value])?;
        Ok(self.constant(tensor))
    }

    /// A list of 64-bit integers.
    pub fn integers(&mut self, values: &[i64]) -> Result<Operand, NodeError> {
        let tensor = Tensor::from_elements([values.len()], values)?;
        Ok(self.constant(tensor))
    }

    /// Type of an operand.
    pub fn tensor_type(&self, operand: Operand) -> &TensorType {
        match &self.operands[operand] {
            Source::Constant(tensor, _) => tensor.tensor_type(),
            Source::Value(number, value) => {
                let level = self.levels.iter().find(|level| level.id == *number);
                // Operands of a graph that has ended are never used.
                level.unwrap_or(&self.levels[0]).graph.tensor_type(*value)
            }
        }
    }

    /// Shape of an operand.
    pub fn shape(&self, operand: Operand) -> Vec<usize> {
        self.tensor_type(operand).shape.clone()
    }

    /// Number of axes of an operand.
    pub fn rank(&self, operand: Operand) -> usize {
        self.tensor_type(operand).rank()
    }

    /// Element type of an operand.
    pub fn dtype(&self, operand: Operand) -> DataType {
        self.tensor_type(operand).dtype
    }

    /// The tensor behind an operand that is a constant.
    pub fn tensor(&self, operand: Operand) -> Option<&Tensor> {
        match &self.operands[operand] {
            Source::Constant(tensor, _) => Some(tensor),
            Source::Value(..) => None,
        }
    }

    /// Names of the model's inputs that an operand is computed from, in the model's order.
    pub fn decided_by(&self, operand: Operand) -> Vec<String> {
        let mut seen: HashSet<(GraphNumber, ValueId)> = HashSet::new();
        let mut left: Vec<(GraphNumber, ValueId)> = Vec::new();
        let place = |operand: Operand| match self.operands[operand] {
            Source::Value(graph, value) => Some((graph, value)),
            Source::Constant(..) => None,
        };
        left.extend(place(operand));
        while let Some((number, value)) = left.pop() {
            if !seen.insert((number, value)) {
                continue;
            }
            let Some(level) = self.levels.iter().find(|level| level.id == number) else { continue };
            if let Some(node) = level.graph.producer(value) {
                let inputs = level.graph.nodes()[node].inputs.iter().flatten();
                left.extend(inputs.map(|input| (number, *input)));
            }
            let captured = level.captured.iter().filter(|(_, inside)| *inside == value);
            left.extend(captured.filter_map(|(outside, _)| place(*outside)));
        }
        let Some(model) = self.levels.first() else { return Vec::new() };
        let ports = model.graph.inputs().iter();
        let ports = ports.filter(|port| seen.contains(&(model.id, port.value)));
        ports.map(|port| port.name.clone()).collect()
    }

    /// An operand that nothing is folded of, though it may be a constant.
    pub fn as_computed(&mut self, operand: Operand) -> Operand {
        let value = self.value(operand);
        self.operand(value)
    }

    /// The one result of `operator` on `inputs`.
    pub fn apply(
        &mut self,
        operator: impl Operator,
        inputs: &[Operand],
    ) -> Result<Operand, NodeError> {
        let inputs: Vec<Option<Operand>> = inputs.iter().copied().map(Some).collect();
        self.apply_optional(operator, &inputs)
    }

    /// The first result of `operator` on `inputs`, some of which may be left out.
    pub fn apply_optional(
        &mut self,
        operator: impl Operator,
        inputs: &[Option<Operand>],
    ) -> Result<Operand, NodeError> {
        let results = self.apply_all(operator, inputs)?;
        let first = results.first().copied();
        first.ok_or_else(|| NodeError::invalid("the operator has no result"))
    }

    /// All results of `operator` on `inputs`: constants where the inputs are constants and the
    /// results are not too large, else a new node's.
    pub fn apply_all(
        &mut self,
        operator: impl Operator,
        inputs: &[Option<Operand>],
    ) -> Result<Vec<Operand>, NodeError> {
        let operator = Op::new(operator);
        let types: Vec<Option<TensorType>> =
            inputs.iter().map(|input| input.map(|input| self.tensor_type(input).clone())).collect();
        let types: Vec<Option<&TensorType>> = types.iter().map(Option::as_ref).collect();
        let results = operator.infer(&types)?;
        for result in &results {
            self.check_size(result)?;
        }
        let is_constant = inputs.iter().flatten().all(|input| self.tensor(*input).is_some());
        // Weights that are stored in few bits stay so: what multiplies by them may read them as they are.
        let is_stored = operator.downcast::<DequantizeBlocks>().is_some();
        let is_kept = is_stored || self.from_shapes.keep(&operator, &types);
        if is_constant && !is_kept && self.folding.take(&operator, &types, &results) {
            return self.fold(&operator, inputs);
        }
        let ranges = match &results[..] {
            [of] => self.result_ranges(&operator, inputs, of).map(|own| (own, of)),
            _ => None,
        };
        if let Some(known) = ranges.as_ref().and_then(|(own, of)| self.known_by_ranges(own, of)) {
            return Ok(vec![known]);
        }
        let ranges = ranges.map(|(own, _)| own);
        let inputs: Vec<Option<ValueId>> =
            inputs.iter().map(|input| input.map(|input| self.value(input))).collect();
        self.count_nodes(1)?;
        let name = self.node_name.clone();
        let values = self.level().graph.add_node(name, operator, &inputs)?;
        let outputs: Vec<Operand> = values.into_iter().map(|value| self.operand(value)).collect();
        if let (Some(ranges), [output]) = (ranges, &outputs[..]) {
            self.ranges.insert(*output, ranges);
        }
        Ok(outputs)
    }

    fn check_size(&self, tensor_type: &TensorType) -> Result<(), NodeError> {
        let fits = tensor_type.rank() <= self.limits.rank
            && checked_bytes(tensor_type).is_some_and(|bytes| bytes <= self.limits.tensor_bytes);
        if fits {
            return Ok(());
        }
        let (rank, bytes) = (self.limits.rank, self.limits.tensor_bytes);
        Err(NodeError::invalid(format!(
            "its result {tensor_type} passes the limit of {rank} axes or {bytes} bytes"
        )))
    }

    fn fold(
        &mut self,
        operator: &Op,
        inputs: &[Option<Operand>],
    ) -> Result<Vec<Operand>, NodeError> {
        let tensors: Vec<Option<&Tensor>> =
            inputs.iter().map(|input| input.and_then(|input| self.tensor(input))).collect();
        let results = hone_ops::fold(operator, &tensors)?;
        let bytes = results.iter().map(|result| result.tensor_type().bytes()).sum();
        self.count_constant(bytes)?;
        Ok(results.into_iter().map(|result| self.constant(result)).collect())
    }

    /// Adds what `add` adds to the graph under construction, and counts its nodes.
    pub fn extend<T>(
        &mut self,
        add: impl FnOnce(&mut Graph) -> Result<T, NodeError>,
    ) -> Result<T, NodeError> {
        let before = self.graph().nodes().len();
        let added = add(&mut self.level().graph)?;
        self.count_nodes(self.graph().nodes().len() - before)?;
        Ok(added)
    }

    fn count_nodes(&mut self, count: usize) -> Result<(), NodeError> {
        self.nodes = self.nodes.saturating_add(count);
        if self.nodes <= self.limits.nodes {
            return Ok(());
        }
        Err(NodeError::Inner(Box::new(ImportError::TooLarge {
            what: "the number of nodes".into(),
            actual: self.nodes as u64,
            limit: self.limits.nodes as u64,
        })))
    }

    /// The operand as a value of the graph under construction.
    pub fn value(&mut self, operand: Operand) -> ValueId {
        let number = self.level().id;
        match &self.operands[operand] {
            Source::Value(own, value) if *own == number => *value,
            Source::Constant(_, Some((own, value))) if *own == number => *value,
            Source::Constant(tensor, _) => {
                let tensor = tensor.clone();
                let value = self.level().graph.add_constant("", tensor.clone());
                self.operands[operand] = Source::Constant(tensor, Some((number, value)));
                value
            }
            Source::Value(own, _) => {
                let own = *own;
                self.capture(operand, own)
            }
        }
    }

    /// Hands a value of graph `own` down to the innermost one, through all between them.
    fn capture(&mut self, operand: Operand, own: GraphNumber) -> ValueId {
        let tensor_type = self.tensor_type(operand).clone();
        let outer = self.levels.iter().position(|level| level.id == own).unwrap_or(0);
        for level in &mut self.levels[outer + 1..] {
            if level.captured.iter().all(|(known, _)| *known != operand) {
                let name = format!("captured {}", level.captured.len());
                let value = level.graph.add_input(name, tensor_type.clone());
                level.captured.push((operand, value));
            }
        }
        let captured = &self.level().captured;
        let found = captured.iter().find(|(known, _)| *known == operand);
        // It was added just now.
        found.map_or_else(|| hone_types::Id::from_index(0), |(_, value)| *value)
    }

    /// Names a value of the graph after the model's name for it.
    pub fn name_value(&mut self, operand: Operand, name: &str) {
        if let Source::Value(number, value) = self.operands[operand]
            && number == self.level().id
        {
            self.level().graph.name_value(value, name);
        }
    }

    /// Adds an output of the model.
    pub fn add_output(&mut self, name: &str, operand: Operand) {
        let value = self.value(operand);
        let parts = self.parts(operand);
        let parts: Vec<(usize, ValueId)> =
            parts.into_iter().map(|part| (part.axis, self.value(part.count))).collect();
        let graph = &mut self.level().graph;
        graph.add_output(name, value);
        for (axis, value) in parts {
            graph.add_extent(OutputExtent { output: graph.outputs().len() - 1, axis, value });
        }
    }

    /// The graph.
    pub fn finish(mut self) -> (Graph, Vec<String>) {
        let graph = std::mem::take(&mut self.levels[0].graph);
        (graph, self.warnings)
    }
}
