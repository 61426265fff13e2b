//! Pooling over windows.

use crate::convolution::Window;
use crate::express::{Guard, converted, input, load_wide, only_output, reduce_in, wide};
use crate::number::{Number, with_number};
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::shape::bounded;
use crate::shape::output_type;
use crate::strided::{Points, row_major};
use hone_graph::InferError;
use hone_tensor::{BinaryOp, UnaryOp};
use hone_tensor::{BufferId, Builder, Combiner, Expr};
use hone_types::DataType;
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// Each window of the spatial axes combined into one element. Input: `[batch, channels,
/// spatial...]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pool {
    /// How a window's elements are combined.
    pub kind: PoolKind,
    /// Extents of the window.
    pub kernel: Vec<usize>,
    /// How the window slides.
    pub window: Window,
    /// Whether averages divide by the whole window, else by its elements inside the input.
    pub count_padding: bool,
}

/// How the elements of a window are combined; padding counts as nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolKind {
    /// The largest.
    Maximum,
    /// The mean.
    Average,
    /// The p-norm.
    Lp(u32),
}

impl Pool {
    /// Name in text forms.
    pub const NAME: &'static str = "pool";

    /// For each output index along spatial axis `axis`, the input indices of its window.
    fn taps(&self, axis: usize, extent: usize, output: usize) -> Vec<Vec<usize>> {
        let window = &self.window;
        let read = |place: usize, tap: usize| {
            let place = place * window.strides[axis] + tap * window.dilations[axis];
            place.checked_sub(window.pads_begin[axis]).filter(|place| *place < extent)
        };
        (0..output)
            .map(|place| (0..self.kernel[axis]).filter_map(|tap| read(place, tap)).collect())
            .collect()
    }

    fn pooled<N: Number>(
        &self,
        x: &[N],
        shape: &[usize],
        output: &TensorType,
    ) -> Result<Vec<N>, OpError> {
        let (extents, outputs) = (&shape[2..], &output.shape[2..]);
        let plane: usize = extents.iter().product();
        let strides = row_major(extents);
        let taps: Vec<Vec<Vec<usize>>> =
            (0..extents.len()).map(|axis| self.taps(axis, extents[axis], outputs[axis])).collect();
        let least = match Combiner::Maximum.identity(output.dtype) {
            Expr::Constant(value, dtype) => N::constant(value, dtype)?,
            _ => N::ZERO,
        };
        let windows = Windows::new(&taps, &strides, outputs);
        let mut values = Vec::with_capacity(output.elements());
        for x in x.chunks_exact(plane.max(1)) {
            for places in windows.iter() {
                values.push(self.one(x, places, least, output.dtype)?);
            }
        }
        Ok(values)
    }

    /// The value of the window that lies at `places`.
    fn one<N: Number>(
        &self,
        x: &[N],
        places: &[usize],
        least: N,
        dtype: DataType,
    ) -> Result<N, OpError> {
        let reals = || places.iter().map(|place| x[*place].real());
        match self.kind {
            PoolKind::Maximum => {
                Ok(places.iter().fold(least, |largest, place| largest.larger(x[*place])))
            }
            PoolKind::Average => {
                let whole = self.kernel.iter().product::<usize>();
                let count = if self.count_padding { whole } else { places.len() };
                N::constant(reals().sum::<f64>() / count as f64, dtype)
            }
            PoolKind::Lp(order) => {
                let sum: f64 = reals().map(|value| value.abs().powi(order.cast_signed())).sum();
                N::constant(sum.powf(1.0 / f64::from(order)), dtype)
            }
        }
    }

    /// Adds the blocks that pool `x` over its axes from 2 on, as many as the kernel has; axes after
    /// those stay.
    pub(crate) fn blocks(
        &self,
        builder: &mut Builder,
        x: BufferId,
        output: &TensorType,
    ) -> BufferId {
        let own = builder.tensor_type(x);
        let dtype = wide(own.dtype);
        let combiner = match self.kind {
            PoolKind::Maximum => Combiner::Maximum,
            _ => Combiner::Sum,
        };
        let Expr::Constant(outside, _) = combiner.identity(dtype) else { return x };
        let (shape, kernel) = (&output.shape, &self.kernel);
        let combined = reduce_in(builder, "pool", dtype, shape, kernel, combiner, |point, by| {
            let mut guard = Guard::default();
            let mut read = point.to_vec();
            for (axis, tap) in by.iter().enumerate() {
                read[axis + 2] = self.place(axis, &point[axis + 2], tap);
                self.guard(axis, &own.shape, &output.shape, &read[axis + 2], &mut guard);
            }
            let value = self.summand(load_wide(x, read, own.dtype));
            guard.value(value, Expr::Constant(outside, dtype))
        });
        if self.kind == PoolKind::Maximum && dtype == own.dtype {
            return combined;
        }
        builder.map("finish", output, |point| {
            let value = Expr::Load(combined, point.to_vec());
            converted(self.finished(value, point, &own, output), dtype, own.dtype)
        })
    }

    /// Where tap `tap` of the window at `point` lies along a spatial axis.
    fn place(&self, axis: usize, point: &Expr, tap: &Expr) -> Expr {
        let scaled = |index: &Expr, factor: usize| match factor {
            1 => index.clone(),
            _ => index.clone() * factor,
        };
        let start = scaled(point, self.window.strides[axis]);
        let place = start + scaled(tap, self.window.dilations[axis]);
        match self.window.pads_begin[axis] {
            0 => place,
            pad => place - pad,
        }
    }

    /// Whether windows reach beyond the end of an axis.
    fn overhangs(&self, axis: usize, extent: usize, output: usize) -> bool {
        let last = output.saturating_sub(1) * self.window.strides[axis]
            + (self.kernel[axis] - 1) * self.window.dilations[axis];
        last >= extent + self.window.pads_begin[axis]
    }

    /// Requires that `place` is inside, where it may not be.
    fn guard(
        &self,
        axis: usize,
        input: &[usize],
        output: &[usize],
        place: &Expr,
        guard: &mut Guard,
    ) {
        let (extent, output) = (input[axis + 2], output[axis + 2]);
        if self.window.pads_begin[axis] > 0 {
            guard.require(Expr::Integer(0).less_equal(place.clone()));
        }
        if self.overhangs(axis, extent, output) {
            guard.require(place.clone().less(extent.into()));
        }
    }

    /// What an element contributes.
    fn summand(&self, value: Expr) -> Expr {
        match self.kind {
            PoolKind::Maximum | PoolKind::Average => value,
            PoolKind::Lp(1) => value.unary(UnaryOp::Abs),
            PoolKind::Lp(2) => value.clone() * value,
            PoolKind::Lp(order) => (1..order)
                .fold(value.clone().unary(UnaryOp::Abs), |product, _| {
                    product * value.clone().unary(UnaryOp::Abs)
                }),
        }
    }

    /// The value of a window, from what its elements combined to.
    fn finished(
        &self,
        value: Expr,
        point: &[Expr],
        input: &TensorType,
        output: &TensorType,
    ) -> Expr {
        let dtype = wide(input.dtype);
        let constant = |value: f64| Expr::Constant(value, dtype);
        match self.kind {
            PoolKind::Maximum => value,
            PoolKind::Lp(1) => value,
            PoolKind::Lp(2) => value.unary(UnaryOp::Sqrt),
            PoolKind::Lp(order) => value.binary(BinaryOp::Power, constant(1.0 / f64::from(order))),
            PoolKind::Average => {
                let mut whole = 1.0;
                let mut counts: Option<Expr> = None;
                for axis in 0..self.kernel.len() {
                    let count = self.count(axis, &point[axis + 2], input, output);
                    match count {
                        Some(count) => {
                            counts = Some(match counts {
                                None => count,
                                Some(others) => others * count,
                            });
                        }
                        None => whole *= self.kernel[axis] as f64,
                    }
                }
                match counts {
                    None => value * constant(1.0 / whole),
                    Some(counts) => value / (counts.cast(dtype) * constant(whole)),
                }
            }
        }
    }

    /// Number of a window's elements inside along a spatial axis; `None` where all count.
    fn count(
        &self,
        axis: usize,
        point: &Expr,
        input: &TensorType,
        output: &TensorType,
    ) -> Option<Expr> {
        let (extent, dilation) = (input.shape[axis + 2], self.window.dilations[axis]);
        let (taps, pad) = (self.kernel[axis], self.window.pads_begin[axis]);
        let overhangs = self.overhangs(axis, extent, output.shape[axis + 2]);
        if self.count_padding || (pad == 0 && !overhangs) {
            return None;
        }
        let start = point.clone() * self.window.strides[axis] - pad;
        let divided = |distance: Expr| match dilation {
            1 => distance,
            _ => distance.floor_divide(dilation.into()),
        };
        // The first and one after the last tap that lie inside.
        let first = divided(Expr::from(dilation - 1) - start.clone()).maximum(0.into());
        let end = divided(Expr::from(extent + dilation - 1) - start).minimum(taps.into());
        Some((end - first).maximum(0.into()))
    }
}

/// The flat places of each window's elements in a plane.
struct Windows {
    places: Vec<usize>,
    ends: Vec<usize>,
}

impl Windows {
    /// `taps` has the indices of each output index along each axis.
    fn new(taps: &[Vec<Vec<usize>>], strides: &[isize], outputs: &[usize]) -> Self {
        let mut windows = Self { places: Vec::new(), ends: Vec::new() };
        let mut points = Points::new(outputs);
        for _ in 0..outputs.iter().product::<usize>() {
            let own: Vec<&[usize]> =
                points.index().iter().zip(taps).map(|(at, taps)| &taps[*at][..]).collect();
            windows.add(&own, strides, 0);
            windows.ends.push(windows.places.len());
            points.advance();
        }
        windows
    }

    /// Adds the flat place of every combination of indices.
    fn add(&mut self, indices: &[&[usize]], strides: &[isize], place: usize) {
        match indices.split_first() {
            None => self.places.push(place),
            Some((own, rest)) => {
                for index in *own {
                    self.add(rest, &strides[1..], place + index * strides[0] as usize);
                }
            }
        }
    }

    /// Each window's places.
    fn iter(&self) -> impl Iterator<Item = &[usize]> {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts.zip(&self.ends).map(|(start, end)| &self.places[*start..*end])
    }
}

impl Operator for Pool {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let x = required(Self::NAME, inputs, 0)?;
        if x.rank() < 3 {
            return Err(InferError::new(format!("{x} has no spatial axes")));
        }
        check_kind(self.kind, x)?;
        bounded(x.dtype, self.kernel.clone())?;
        let mut shape = x.shape[..2].to_vec();
        shape.extend(self.window.output(&x.shape[2..], &self.kernel)?);
        Ok(vec![bounded(x.dtype, shape)?])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Reduction
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let input = required(Self::NAME, inputs, 0)?;
        let output = output_type(self, inputs)?;
        Ok(vec![with_number!(output.dtype, Own => {
            Own::write(&output, &self.pooled(&Own::read(input), input.shape(), &output)?)?
        })])
    }

    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let x = input(inputs, 0)?;
        let output = only_output(self, builder, inputs)?;
        Some(vec![self.blocks(builder, x, &output)])
    }

    fn flops(&self, _inputs: &[Option<&TensorType>], outputs: &[TensorType]) -> u64 {
        let taps = self.kernel.iter().product::<usize>() as u64;
        outputs.iter().map(|output| taps.saturating_mul(output.elements() as u64)).sum()
    }
}

/// Refuses kinds that the element type has no meaning for.
pub(crate) fn check_kind(kind: PoolKind, x: &TensorType) -> Result<(), InferError> {
    match kind {
        PoolKind::Lp(0 | 17..) => Err(InferError::new("only norms of order 1 to 16 are pooled")),
        PoolKind::Average | PoolKind::Lp(_) => crate::shape::check_float(x),
        PoolKind::Maximum => Ok(()),
    }
}
