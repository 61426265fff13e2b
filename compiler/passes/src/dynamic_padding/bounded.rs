//! The new graph while it is built: where its values have the dimension, what lies behind the size there, and numbers that are
//! computed from the size.

use super::constants::Affine;
use super::twins::Axis;
use hone_graph::ValueId;
use hone_ops::{Binary, BinaryFunction, Cast, Graph, Op};
use hone_types::{DataType, Id, Tensor, TensorType};
use std::collections::HashMap;

/// An axis of a value that is the dimension: its first `size + extra` positions are the model's. Where it is joined with
/// others, elements of the axis are numbered `(outer · positions + position) · inner + rest`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Along {
    pub axis: usize,
    /// How many positions more than the size there are, or less.
    pub extra: i64,
    /// Elements of what the dimension is joined with in the axis, `outer · inner`.
    pub factor: usize,
    /// Extent of what is before the dimension in the axis; 0 where that is not known yet.
    pub outer: usize,
    /// What the other positions hold.
    pub behind: Behind,
}

/// What the positions of an axis behind the size hold, at positions of the other axes that are the model's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Behind {
    /// Anything, also what is not a number.
    Anything,
    /// This number.
    Number(f64),
    /// Zeros, as a softmax leaves them: or NaN, where all positions before are NaN, too.
    Weights,
}

impl Along {
    /// An axis of which nothing but its extents is known.
    pub fn new(Axis { axis, extra, factor }: Axis) -> Self {
        let outer = usize::from(factor == 1);
        Self { axis, extra, factor, outer, behind: Behind::Anything }
    }

    /// Whether the axis is the dimension and something else.
    pub fn is_joined(&self) -> bool {
        self.factor > 1
    }

    /// Extent of what is behind the dimension in the axis.
    pub fn inner(&self) -> usize {
        self.factor / self.outer.max(1)
    }
}

/// Which positions of an axis are asked for: truth values `[outer · count · inner, 1, ...]` with so many axes behind, of whether a
/// position is less than the size and `extra`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Before {
    pub count: usize,
    pub extra: i64,
    pub outer: usize,
    pub inner: usize,
    pub axes_behind: usize,
}

/// A graph under construction.
pub(super) struct Bounded {
    pub(super) graph: Graph,
    size: ValueId,
    least: usize,
    bound: usize,
    /// Of each value, by its index, the axes that are the dimension, in order.
    along: Vec<Vec<Along>>,
    /// Constants that were found to be affine functions of the size.
    affine: HashMap<ValueId, Affine>,
    /// The size and so much more, as a scalar of a type.
    sizes: HashMap<(DataType, i64), ValueId>,
    /// Whether positions are before others, by what `super::masks` asks for.
    pub(super) conditions: HashMap<Before, ValueId>,
    /// Values with a number behind the size along an axis.
    pub(super) filled: HashMap<(ValueId, usize, u64), ValueId>,
}

impl Bounded {
    /// A graph with inputs, and the size as its last one.
    pub fn new(mut graph: Graph, size_input: &str, (least, bound): (usize, usize)) -> Self {
        let size = graph.add_input(size_input, TensorType::new(DataType::I64, []));
        Self {
            graph,
            size,
            least,
            bound,
            along: Vec::new(),
            affine: HashMap::new(),
            sizes: HashMap::new(),
            conditions: HashMap::new(),
            filled: HashMap::new(),
        }
    }

    /// The graph so far.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The whole graph.
    pub fn into_graph(self) -> Graph {
        self.graph
    }

    /// The smallest size.
    pub fn least(&self) -> usize {
        self.least
    }

    /// The largest size.
    pub fn bound(&self) -> usize {
        self.bound
    }

    /// How many positions an axis has at the bound that has so many more than the size.
    pub fn extent(&self, extra: i64) -> Result<usize, String> {
        let extent = i64::try_from(self.bound).ok().and_then(|bound| bound.checked_add(extra));
        let extent = extent.and_then(|extent| usize::try_from(extent).ok());
        extent.ok_or_else(|| format!("has {extra} positions more than the dimension"))
    }

    /// The axes of a value that are the dimension, in order.
    pub fn along(&self, value: ValueId) -> &[Along] {
        self.along.get(value.index()).map_or(&[], Vec::as_slice)
    }

    /// The dimension along an axis of a value.
    pub fn along_axis(&self, value: ValueId, axis: usize) -> Option<Along> {
        self.along(value).iter().find(|along| along.axis == axis).copied()
    }

    /// Says which axes of a value are the dimension, in order.
    pub fn set(&mut self, value: ValueId, along: Vec<Along>) {
        if self.along.len() <= value.index() {
            self.along.resize(value.index() + 1, Vec::new());
        }
        self.along[value.index()] = along;
    }

    /// What a constant that depends on the size is.
    pub fn affine_of(&self, value: ValueId) -> Option<&Affine> {
        self.affine.get(&value)
    }

    /// Names a value.
    pub fn name(&mut self, value: ValueId, name: &str) {
        self.graph.name_value(value, name);
    }

    /// Adds an output.
    pub fn output(&mut self, name: &str, value: ValueId) {
        self.graph.add_output(name, value);
    }

    /// Adds a constant.
    pub fn constant(&mut self, name: &str, tensor: Tensor) -> ValueId {
        self.graph.add_constant(name, tensor)
    }

    /// Adds a node.
    pub fn nodes(
        &mut self,
        name: &str,
        operation: impl Into<Op>,
        inputs: &[Option<ValueId>],
    ) -> Result<Vec<ValueId>, String> {
        let added = self.graph.add_node(name, operation.into(), inputs);
        added.map_err(|error| format!("refuses its inputs after rewriting: {error}"))
    }

    /// Adds a node with one output that reads all its inputs.
    pub fn add(
        &mut self,
        name: &str,
        operation: impl Into<Op>,
        inputs: &[ValueId],
    ) -> Result<ValueId, String> {
        let inputs: Vec<Option<ValueId>> = inputs.iter().copied().map(Some).collect();
        let outputs = self.nodes(name, operation, &inputs)?;
        outputs.first().copied().ok_or_else(|| "has no result".to_owned())
    }

    /// Adds a constant of a type whose elements are `values`, rounded to the type.
    pub fn numbers(
        &mut self,
        dtype: DataType,
        shape: &[usize],
        values: &[f64],
    ) -> Result<ValueId, String> {
        let tensor = Tensor::from_f64(dtype, shape, values).map_err(|error| error.to_string())?;
        Ok(self.graph.add_constant("", tensor))
    }

    /// The size and `extra`, as a scalar of a type.
    pub fn size(&mut self, dtype: DataType, extra: i64) -> Result<ValueId, String> {
        if let Some(known) = self.sizes.get(&(dtype, extra)) {
            return Ok(*known);
        }
        let name = "size";
        let mut size = self.size;
        if extra != 0 {
            let extra = self.graph.add_constant("", Tensor::scalar(extra));
            size = self.add(name, Binary::new(BinaryFunction::Add), &[size, extra])?;
        }
        if dtype != DataType::I64 {
            size = self.add(name, Cast { to: dtype }, &[size])?;
        }
        self.sizes.insert((dtype, extra), size);
        Ok(size)
    }

    /// A tensor whose elements are affine functions of the size.
    pub fn affine(
        &mut self,
        name: &str,
        tensor_type: &TensorType,
        affine: Affine,
    ) -> Result<ValueId, String> {
        let TensorType { dtype, shape } = tensor_type;
        let mut value = self.size(*dtype, 0)?;
        if !shape.is_empty() || affine.slopes.iter().any(|slope| *slope != 1.0) {
            let slopes = self.numbers(*dtype, shape, &affine.slopes)?;
            value = self.add(name, Binary::new(BinaryFunction::Multiply), &[value, slopes])?;
        }
        if affine.offsets.iter().any(|offset| *offset != 0.0) {
            let offsets = self.numbers(*dtype, shape, &affine.offsets)?;
            value = self.add(name, Binary::new(BinaryFunction::Add), &[value, offsets])?;
        }
        self.affine.insert(value, affine);
        Ok(value)
    }

    /// Indices of the last ones of `count` positions at the bound: as many as there are at the size, and behind them the last
    /// one.
    pub fn positions_from_end(&mut self, count: usize) -> Result<ValueId, String> {
        let name = "positions";
        let last = i64::try_from(count).map_err(|error| error.to_string())?;
        let behind: Vec<f64> =
            (0..last).map(|position| (position + self.bound as i64) as f64).collect();
        let behind = self.numbers(DataType::I64, &[count], &behind)?;
        let size = self.size(DataType::I64, 0)?;
        let positions = self.add(name, Binary::new(BinaryFunction::Subtract), &[behind, size])?;
        let last = self.numbers(DataType::I64, &[], &[last as f64 - 1.0])?;
        self.add(name, Binary::new(BinaryFunction::Minimum), &[positions, last])
    }

    /// Indices `size + offset`, as `i64`.
    pub fn size_and(&mut self, shape: &[usize], offsets: Vec<f64>) -> Result<ValueId, String> {
        let affine = Affine { slopes: vec![1.0; offsets.len()], offsets };
        self.affine("positions", &TensorType::new(DataType::I64, shape), affine)
    }
}
