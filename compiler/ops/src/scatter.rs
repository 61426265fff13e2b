//! Elements or slices replaced at given indices.

use crate::Reshape;
use crate::express::{Guard, converted, input, load_wide, only_output, reduce_in, wide};
use crate::gather::{checked_place, place};
use crate::gather_nd::flat_place;
use crate::number::{Number, with_number};
use crate::operator::{FusionClass, Graph, OpError, Operator, named, required, required_value};
use crate::shape::output_type;
use crate::shape::{bounded, check_axis, check_indices, check_same_type};
use crate::strided::{Points, row_major};
use hone_graph::{InferError, ValueId};
use hone_tensor::{BufferId, Builder, Combiner, Expr};
use hone_types::{DataType, Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// How an update meets the element already there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScatterReduction {
    /// The update replaces it; which of several updates of one element wins is the last.
    None,
    /// Sum.
    Add,
    /// Product.
    Multiply,
    /// The larger.
    Maximum,
    /// The smaller.
    Minimum,
}

/// What the runtime takes for an update, in elements that a kernel compares with an index.
const UPDATE: usize = 16;

/// The same for an element of the result, which is copied twice.
const COPY: usize = 4;

impl ScatterReduction {
    /// Whether the runtime, which looks at every update once, is faster on a processor than a kernel, in which every
    /// element of `data` looks at `count` updates. It combines numbers of 32 and 64 bits alone.
    ///
    /// By the time of both on Zen 4: a kernel compares an element with an index in 0.1 to 0.4 ns, the runtime takes 2 to
    /// 4 ns for an update and 0.3 for an element that it copies.
    fn is_faster_by_runtime(self, data: &TensorType, updates: &TensorType, count: usize) -> bool {
        let wide =
            matches!(data.dtype, DataType::F32 | DataType::F64 | DataType::I32 | DataType::I64);
        let compared = data.elements().saturating_mul(count);
        let moved = COPY.saturating_mul(data.elements());
        let moved = moved.saturating_add(UPDATE.saturating_mul(updates.elements()));
        (wide || self == Self::None) && compared > moved
    }

    /// A copy of `data` with slices of `length` elements updated at `places` (in slices).
    fn apply(
        self,
        output: &TensorType,
        data: &Tensor,
        updates: &Tensor,
        places: &[usize],
        length: usize,
    ) -> Result<Tensor, OpError> {
        with_number!(output.dtype, Own => {
            let (mut values, updates) = (Own::read(data), Own::read(updates));
            for (place, update) in places.iter().zip(updates.chunks_exact(length.max(1))) {
                let slice = &mut values[place * length..][..length];
                slice.iter_mut().zip(update).for_each(|(old, new)| *old = self.combine(*old, *new));
            }
            Own::write(output, &values)
        })
    }

    fn combine<N: Number>(self, old: N, new: N) -> N {
        match self {
            ScatterReduction::None => new,
            ScatterReduction::Add => old.plus(new),
            ScatterReduction::Multiply => old.times(new),
            ScatterReduction::Maximum => old.larger(new),
            ScatterReduction::Minimum => old.smaller(new),
        }
    }
}

/// What the expressions of both operators share: a list of updates, from which each element takes its own.
struct Updates<'a> {
    reduction: ScatterReduction,
    output: &'a TensorType,
    data: BufferId,
    /// How many updates an element looks at.
    count: usize,
}

impl Updates<'_> {
    /// The elements after all updates; `is_own` says whether an update is for a point, `update` loads it.
    fn meet(
        &self,
        builder: &mut Builder,
        is_own: &dyn Fn(&[Expr], &[Expr]) -> Expr,
        update: &dyn Fn(&[Expr], Expr) -> Expr,
    ) -> BufferId {
        let Self { reduction, output, data, count } = self;
        let combiner = match reduction {
            ScatterReduction::None => return self.last(builder, is_own, update),
            ScatterReduction::Add => Combiner::Sum,
            ScatterReduction::Multiply => Combiner::Product,
            ScatterReduction::Maximum => Combiner::Maximum,
            ScatterReduction::Minimum => Combiner::Minimum,
        };
        let (from, to) = (output.dtype, wide(output.dtype));
        let all =
            reduce_in(builder, "updates", to, &output.shape, &[*count], combiner, |point, by| {
                let own = converted(update(point, by[0].clone()), from, to);
                is_own(point, by).select(own, combiner.identity(to))
            });
        builder.map("meet", output, |point| {
            let old = load_wide(*data, point.to_vec(), from);
            let new = Expr::Load(all, point.to_vec());
            let met = match combiner {
                Combiner::Sum => old + new,
                Combiner::Product => old * new,
                Combiner::Maximum => old.maximum(new),
                _ => old.minimum(new),
            };
            converted(met, to, from)
        })
    }

    /// Each element becomes the last of its updates, where it has one.
    fn last(
        &self,
        builder: &mut Builder,
        is_own: &dyn Fn(&[Expr], &[Expr]) -> Expr,
        update: &dyn Fn(&[Expr], Expr) -> Expr,
    ) -> BufferId {
        let Self { output, data, count, .. } = self;
        if *count == 0 {
            return builder.map("copy", output, |point| Expr::Load(*data, point.to_vec()));
        }
        let none = || Expr::Constant(-1.0, DataType::I64);
        let shape = &output.shape;
        let last = reduce_in(
            builder,
            "last",
            DataType::I64,
            shape,
            &[*count],
            Combiner::Maximum,
            |point, by| is_own(point, by).select(by[0].clone().cast(DataType::I64), none()),
        );
        builder.map("replace", output, |point| {
            let found = || Expr::Load(last, point.to_vec());
            let new = update(point, place(found().maximum(0.into()), *count));
            found().less(0.into()).select(Expr::Load(*data, point.to_vec()), new)
        })
    }
}

/// A copy of `data` with `data[a..., indices[a..., i, b...], b...] = updates[a..., i, b...]`.
/// Inputs: data, indices (`i32` or `i64`; negative ones count from the end), updates.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ScatterElements {
    /// The axis of `data` that is indexed.
    pub axis: usize,
    /// How updates meet what is there.
    pub reduction: ScatterReduction,
    /// Whether the runtime computes it itself, and not a kernel.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_runtime: bool,
}

impl ScatterElements {
    /// Name in text forms.
    pub const NAME: &'static str = "scatter_elements";

    /// Updates along `axis`.
    pub fn new(axis: usize, reduction: ScatterReduction) -> Self {
        Self { axis, reduction, by_runtime: false }
    }

    /// The same, computed by the runtime where that is faster than a kernel on a processor for data and updates of these
    /// types.
    pub fn on_processors(&self, data: &TensorType, updates: &TensorType) -> Self {
        let count = updates.shape.get(self.axis).copied().unwrap_or(0);
        let by_runtime = self.reduction.is_faster_by_runtime(data, updates, count);
        Self { by_runtime, ..self.clone() }
    }
}

impl Operator for ScatterElements {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let (data, indices) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        let updates = required(Self::NAME, inputs, 2)?;
        check_axis(data, self.axis)?;
        check_indices(indices)?;
        check_same_type(data, &[updates])?;
        let inside = indices.rank() == data.rank()
            && indices.shape == updates.shape
            && (0..data.rank())
                .all(|axis| axis == self.axis || indices.shape[axis] <= data.shape[axis]);
        bounded(indices.dtype, indices.shape.clone())?;
        if !inside || (data.shape[self.axis] == 0 && indices.elements() > 0) {
            return Err(InferError::new(format!(
                "indices {indices} and updates {updates} do not fit {data}"
            )));
        }
        Ok(vec![bounded(data.dtype, data.shape.clone())?])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Opaque
    }

    fn is_compiled(&self) -> bool {
        !self.by_runtime
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let (data, indices) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        let updates = required(Self::NAME, inputs, 2)?;
        let output = output_type(self, inputs)?;
        let (extent, strides) = (data.shape()[self.axis], row_major(data.shape()));
        let mut points = Points::new(indices.shape());
        let mut places = Vec::new();
        for index in indices.to_i64() {
            places.push(points.flat(&strides, self.axis, checked_place(index, extent)?));
            points.advance();
        }
        Ok(vec![self.reduction.apply(&output, data, updates, &places, 1)?])
    }

    /// Every element looks at the updates of its line for those that are its own.
    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let (data, indices, updates) = (input(inputs, 0)?, input(inputs, 1)?, input(inputs, 2)?);
        let output = only_output(self, builder, inputs)?;
        let shape = builder.tensor_type(indices).shape;
        let (axis, extent) = (self.axis, output.shape[self.axis]);
        // Beside the indices a point has no updates; what is read there instead does not count.
        let narrower = |other: usize| other != axis && shape[other] < output.shape[other];
        let at = |point: &[Expr], by: &Expr| {
            let mut at = point.to_vec();
            for other in (0..shape.len()).filter(|other| narrower(*other)) {
                at[other] = at[other].clone().minimum((shape[other] as i64 - 1).into());
            }
            at[axis] = by.clone();
            at
        };
        let is_own = |point: &[Expr], by: &[Expr]| {
            let mut inside = Guard::default();
            for other in (0..shape.len()).filter(|other| narrower(*other)) {
                inside.require(point[other].clone().less(shape[other].into()));
            }
            let index = Expr::Load(indices, at(point, &by[0]));
            let own = place(index, extent).equal(point[axis].clone());
            inside.value(own, Expr::Constant(0.0, DataType::Bool))
        };
        let count = if shape.contains(&0) { 0 } else { shape[axis] };
        let own = Updates { reduction: self.reduction, output: &output, data, count };
        Some(vec![own.meet(builder, &is_own, &|point, by| Expr::Load(updates, at(point, &by)))])
    }
}

/// A copy of `data` with `data[indices[i..., :]..., s...] = updates[i..., s...]`: the last axis of
/// `indices` holds tuples of indices into `data`. Inputs: data, indices (`i32` or `i64`; negative
/// ones count from the end), updates.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ScatterNd {
    /// How updates meet what is there.
    pub reduction: ScatterReduction,
    /// Whether the runtime computes it itself, and not a kernel.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_runtime: bool,
}

impl ScatterNd {
    /// Name in text forms.
    pub const NAME: &'static str = "scatter_nd";

    /// Updates of slices.
    pub fn new(reduction: ScatterReduction) -> Self {
        Self { reduction, by_runtime: false }
    }

    /// The same, computed by the runtime where that is faster than a kernel on a processor for data, updates and so many
    /// index tuples.
    pub fn on_processors(&self, data: &TensorType, updates: &TensorType, tuples: usize) -> Self {
        let by_runtime = self.reduction.is_faster_by_runtime(data, updates, tuples);
        Self { by_runtime, ..self.clone() }
    }
}

impl Operator for ScatterNd {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let (data, indices) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        let updates = required(Self::NAME, inputs, 2)?;
        check_indices(indices)?;
        check_same_type(data, &[updates])?;
        bounded(indices.dtype, indices.shape.clone())?;
        let fits = indices.shape.split_last().is_some_and(|(tuple, points)| {
            *tuple <= data.rank() && updates.shape == [points, &data.shape[*tuple..]].concat()
        });
        if !fits {
            return Err(InferError::new(format!(
                "index tuples {indices} and updates {updates} do not fit {data}"
            )));
        }
        Ok(vec![bounded(data.dtype, data.shape.clone())?])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Opaque
    }

    fn is_compiled(&self) -> bool {
        !self.by_runtime
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let (data, indices) = (required(Self::NAME, inputs, 0)?, required(Self::NAME, inputs, 1)?);
        let updates = required(Self::NAME, inputs, 2)?;
        let output = output_type(self, inputs)?;
        let tuple = indices.shape()[indices.shape().len() - 1];
        let points: usize = indices.shape()[..indices.shape().len() - 1].iter().product();
        let (indexed, slice) = data.shape().split_at(tuple);
        let flat = indices.to_i64();
        let places: Result<Vec<usize>, OpError> =
            (0..points).map(|point| flat_place(&flat[point * tuple..][..tuple], indexed)).collect();
        let slice: usize = slice.iter().product();
        Ok(vec![self.reduction.apply(&output, data, updates, &places?, slice)?])
    }

    /// Every slice looks at all updates for those that are its own.
    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let (data, indices, updates) = (input(inputs, 0)?, input(inputs, 1)?, input(inputs, 2)?);
        let output = only_output(self, builder, inputs)?;
        let shape = builder.tensor_type(indices).shape;
        let [count, tuple] = <[usize; 2]>::try_from(shape).ok()?;
        let is_own = |point: &[Expr], by: &[Expr]| {
            let mut own = Guard::default();
            for (entry, own_place) in point[..tuple].iter().enumerate() {
                let index = Expr::Load(indices, vec![by[0].clone(), entry.into()]);
                own.require(place(index, output.shape[entry]).equal(own_place.clone()));
            }
            own.value(Expr::Constant(1.0, DataType::Bool), Expr::Constant(0.0, DataType::Bool))
        };
        let update =
            |point: &[Expr], by: Expr| Expr::Load(updates, [&[by], &point[tuple..]].concat());
        let own = Updates { reduction: self.reduction, output: &output, data, count };
        Some(vec![own.meet(builder, &is_own, &update)])
    }

    /// The same with all index tuples along one axis.
    fn decompose(
        &self,
        graph: &mut Graph,
        inputs: &[Option<ValueId>],
    ) -> Result<Option<Vec<ValueId>>, InferError> {
        let [data, indices, updates] =
            [0, 1, 2].map(|place| required_value(Self::NAME, inputs, place));
        let (data, indices, updates) = (data?, indices?, updates?);
        let (shape, slice) = (graph.tensor_type(indices).shape.clone(), graph.tensor_type(updates));
        let Some((tuple, points)) =
            shape.split_last().filter(|(_, points)| points.len() != 1 && !self.by_runtime)
        else {
            return Ok(None);
        };
        let count: usize = points.iter().product();
        let own = slice.shape[points.len()..].to_vec();
        let mut list = |value, shape| -> Result<ValueId, InferError> {
            Ok(graph.add_node(Self::NAME, Reshape { shape }.into(), &[Some(value)])?.remove(0))
        };
        let indices = list(indices, vec![count, *tuple])?;
        let updates = list(updates, [&[count], &own[..]].concat())?;
        let inputs = [Some(data), Some(indices), Some(updates)];
        Ok(Some(graph.add_node(Self::NAME, self.clone().into(), &inputs)?))
    }
}
