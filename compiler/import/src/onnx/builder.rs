//! The graph while it is built: operands, folding, and shorthands for the operators.
//!
//! An operand is either a constant or a value of the graph. An operation on constants alone is
//! computed at once by its reference result, so shapes that a model computes are known when they are
//! needed. A constant enters the graph when a node first reads it.

use super::external::ExternalFiles;
use super::proto::TensorProto;
use super::tensor::{self, checked_bytes};
use crate::{ImportError, Limits, NodeError};
use hone_graph::ValueId;
use hone_ops::{FoldingBudget, Graph, Op, Operator};
use hone_types::{DataType, Table, Tensor, TensorType};
use std::path::Path;

hone_types::define_id!(
    /// A value that import functions pass around.
    Operand,
    "operand"
);

#[derive(Debug)]
enum Source {
    Constant(Tensor, Option<ValueId>),
    Value(ValueId),
}

/// See the head of this file.
#[derive(Debug)]
pub(super) struct Builder {
    graph: Graph,
    operands: Table<Operand, Source>,
    limits: Limits,
    files: ExternalFiles,
    /// Name given to the graph's nodes: that of the ONNX node being imported.
    node_name: String,
    folding: FoldingBudget,
    constant_bytes: usize,
    /// Things worth telling.
    pub warnings: Vec<String>,
}

impl Builder {
    /// An empty graph; tensors stored in files are read from `folder`.
    pub fn new(folder: Option<&Path>, limits: &Limits) -> Self {
        Self {
            graph: Graph::new(),
            operands: Table::new(),
            limits: limits.clone(),
            files: ExternalFiles::new(folder, limits),
            node_name: String::new(),
            folding: FoldingBudget::new(limits.folding.clone()),
            constant_bytes: 0,
            warnings: Vec::new(),
        }
    }

    /// Sets the name that nodes get from here on.
    pub fn name_nodes(&mut self, name: &str) {
        self.node_name = name.to_string();
    }

    /// Adds an input of the model.
    pub fn add_input(&mut self, name: &str, tensor_type: TensorType) -> Operand {
        let value = self.graph.add_input(name, tensor_type);
        self.operands.push(Source::Value(value))
    }

    /// A constant.
    pub fn constant(&mut self, tensor: Tensor) -> Operand {
        self.operands.push(Source::Constant(tensor, None))
    }

    /// A constant that the model stores; counted against the bound on all constants.
    pub fn load(&mut self, proto: TensorProto) -> Result<Operand, ImportError> {
        let tensor = tensor::load(proto, &mut self.files, &self.limits)?;
        self.count_constant(tensor.bytes().len())?;
        Ok(self.constant(tensor))
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
            Source::Value(value) => self.graph.tensor_type(*value),
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
            Source::Value(_) => None,
        }
    }

    /// An operand that nothing is folded of, though it may be a constant.
    pub fn as_computed(&mut self, operand: Operand) -> Operand {
        let value = self.value(operand);
        self.operands.push(Source::Value(value))
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
        if is_constant && self.folding.take(&operator, &types, &results) {
            return self.fold(&operator, inputs);
        }
        let inputs: Vec<Option<ValueId>> =
            inputs.iter().map(|input| input.map(|input| self.value(input))).collect();
        if self.graph.nodes().len() >= self.limits.nodes {
            return Err(NodeError::Inner(Box::new(ImportError::TooLarge {
                what: "the number of nodes".into(),
                actual: self.limits.nodes as u64 + 1,
                limit: self.limits.nodes as u64,
            })));
        }
        let values = self.graph.add_node(self.node_name.clone(), operator, &inputs)?;
        Ok(values.into_iter().map(|value| self.operands.push(Source::Value(value))).collect())
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
        let results = operator.reference(&tensors)?;
        let bytes = results.iter().map(|result| result.bytes().len()).sum();
        self.count_constant(bytes)?;
        Ok(results.into_iter().map(|result| self.constant(result)).collect())
    }

    /// The operand as a value of the graph.
    pub fn value(&mut self, operand: Operand) -> ValueId {
        match &mut self.operands[operand] {
            Source::Value(value) | Source::Constant(_, Some(value)) => *value,
            Source::Constant(tensor, place) => {
                let value = self.graph.add_constant("", tensor.clone());
                *place = Some(value);
                value
            }
        }
    }

    /// Names a value of the graph after the model's name for it.
    pub fn name_value(&mut self, operand: Operand, name: &str) {
        if let Source::Value(value) = self.operands[operand] {
            self.graph.name_value(value, name);
        }
    }

    /// Adds an output of the model.
    pub fn add_output(&mut self, name: &str, operand: Operand) {
        let value = self.value(operand);
        self.graph.add_output(name, value);
    }

    /// The graph.
    pub fn finish(self) -> (Graph, Vec<String>) {
        (self.graph, self.warnings)
    }
}
