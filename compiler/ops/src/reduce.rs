//! Reductions of whole axes.

use crate::express::{converted, input, only_output, reduce_in, wide};
use crate::number::{Number, with_number};
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::shape::check_axis;
use crate::shape::output_type;
use crate::transpose::Transpose;
use hone_graph::InferError;
use hone_tensor::UnaryOp;
use hone_tensor::{BufferId, Builder, Combiner, Expr};
use hone_types::DataType;
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// All elements along `axes` combined into one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Reduce {
    /// What is computed of them.
    pub function: ReduceFunction,
    /// The axes, each once; none leaves each element to itself.
    pub axes: Vec<usize>,
    /// Whether the axes stay, with extent 1.
    pub keep_axes: bool,
}

/// A function of many values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReduceFunction {
    /// Sum.
    Sum,
    /// Sum divided by the number of elements.
    Mean,
    /// The largest.
    Maximum,
    /// The smallest.
    Minimum,
    /// Product.
    Product,
    /// Sum of magnitudes.
    L1,
    /// Root of the sum of squares.
    L2,
    /// Sum of squares.
    SumSquare,
    /// Logarithm of the sum.
    LogSum,
    /// Logarithm of the sum of exponentials.
    LogSumExp,
}

impl Reduce {
    /// Name in text forms.
    pub const NAME: &'static str = "reduce";

    /// The function of each of `count` lines of `length` elements.
    fn lines(&self, values: &[f64], length: usize, count: usize, dtype: DataType) -> Vec<f64> {
        let first = self.function.initial(dtype);
        let line = |place: usize| &values[place * length..][..length];
        (0..count).map(|place| self.function.real(line(place), first)).collect()
    }

    /// Where the input is read for output point `point` and place `by` along the axes.
    fn indices(&self, shape: &[usize], point: &[Expr], by: &[Expr]) -> Vec<Expr> {
        let mut kept = point.iter();
        let own = (0..shape.len()).map(|axis| {
            match self.axes.iter().position(|reduced| *reduced == axis) {
                None => kept.next().cloned(),
                Some(place) => {
                    if self.keep_axes {
                        kept.next();
                    }
                    Some(by[place].clone())
                }
            }
        });
        own.flatten().collect()
    }

    fn output_shape(&self, shape: &[usize], keep_axes: bool) -> Vec<usize> {
        let extents = shape.iter().enumerate();
        extents
            .filter_map(|(axis, extent)| match self.axes.contains(&axis) {
                false => Some(*extent),
                true => keep_axes.then_some(1),
            })
            .collect()
    }
}

impl Operator for Reduce {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let input = required(Self::NAME, inputs, 0)?;
        for (place, axis) in self.axes.iter().enumerate() {
            check_axis(input, *axis)?;
            if self.axes[..place].contains(axis) {
                return Err(InferError::new(format!("axis {axis} of {input} is named twice")));
            }
        }
        let shape = self.output_shape(&input.shape, self.keep_axes);
        Ok(vec![TensorType::new(input.dtype, shape)])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Reduction
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let input = required(Self::NAME, inputs, 0)?;
        let output = output_type(self, inputs)?;
        let kept = (0..input.shape().len()).filter(|axis| !self.axes.contains(axis));
        let permutation = kept.chain(self.axes.iter().copied()).collect();
        let lines = Transpose { permutation }.reference(inputs)?.remove(0);
        let length: usize = self.axes.iter().map(|axis| input.shape()[*axis]).product();
        if self.function.is_real() || input.dtype().is_float() {
            let values = self.lines(&lines.to_f64(), length, output.elements(), output.dtype);
            return Ok(vec![f64::write(&output, &values)?]);
        }
        Ok(vec![with_number!(output.dtype, Own => {
            let own = Own::read(&lines);
            let first = Own::constant(self.function.initial(output.dtype), output.dtype)?;
            let line = |place: usize| &own[place * length..][..length];
            let values = (0..output.elements()).map(|place| self.function.exact(line(place), first));
            Own::write(&output, &values.collect::<Vec<Own>>())?
        })])
    }

    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let x = input(inputs, 0)?;
        let output = only_output(self, builder, inputs)?;
        let own = builder.tensor_type(x);
        let calculated = if self.function.is_real() && !own.dtype.is_float() {
            DataType::F64
        } else {
            wide(own.dtype)
        };
        let extents: Vec<usize> = self.axes.iter().map(|axis| own.shape[*axis]).collect();
        let count = extents.iter().product::<usize>();
        let load = |point: &[Expr], by: &[Expr]| {
            converted(Expr::Load(x, self.indices(&own.shape, point, by)), own.dtype, calculated)
        };
        let shift = (self.function == ReduceFunction::LogSumExp)
            .then(|| finite_maximum(builder, calculated, &output.shape, &extents, &load));
        let shifted = |value: Expr, point: &[Expr]| match shift {
            None => value,
            Some(shift) => value - Expr::Load(shift, point.to_vec()),
        };
        let combiner = self.function.combiner();
        let sums = reduce_in(
            builder,
            "reduce",
            calculated,
            &output.shape,
            &extents,
            combiner,
            |point, by| self.function.summand(shifted(load(point, by), point), calculated),
        );
        if output.dtype == calculated && self.function.combines_only() {
            return Some(vec![sums]);
        }
        Some(vec![builder.map("finish", &output, |point| {
            let value = Expr::Load(sums, point.to_vec());
            let mut value = self.function.finished(value, count, calculated);
            if let Some(shift) = shift {
                value = value + Expr::Load(shift, point.to_vec());
            }
            converted(value, calculated, output.dtype)
        })])
    }

    fn flops(&self, inputs: &[Option<&TensorType>], _outputs: &[TensorType]) -> u64 {
        inputs.iter().flatten().map(|input| input.elements() as u64).sum()
    }
}

use ReduceFunction as F;

impl ReduceFunction {
    /// Whether integers are computed as real numbers, and cut at the end.
    fn is_real(self) -> bool {
        matches!(self, F::L2 | F::LogSum | F::LogSumExp)
    }

    fn combiner(self) -> Combiner {
        match self {
            F::Maximum => Combiner::Maximum,
            F::Minimum => Combiner::Minimum,
            F::Product => Combiner::Product,
            _ => Combiner::Sum,
        }
    }

    /// The combination of no elements.
    fn initial(self, dtype: DataType) -> f64 {
        match self.combiner().identity(dtype) {
            Expr::Constant(value, _) => value,
            _ => 0.0,
        }
    }

    /// Whether nothing is left to do after the elements are combined.
    fn combines_only(self) -> bool {
        !self.is_real() && self != F::Mean
    }

    /// The function of integers that needs no real numbers.
    fn exact<N: Number>(self, line: &[N], first: N) -> N {
        let combined = line.iter().fold(first, |combined, value| match self {
            F::Maximum => combined.larger(*value),
            F::Minimum => combined.smaller(*value),
            F::Product => combined.times(*value),
            F::L1 => combined.plus(value.magnitude()),
            F::SumSquare => combined.plus(value.times(*value)),
            _ => combined.plus(*value),
        });
        if self == F::Mean { combined.over(line.len()) } else { combined }
    }

    /// The function of real numbers.
    fn real(self, line: &[f64], first: f64) -> f64 {
        match self {
            F::L2 => line.iter().map(|value| value * value).sum::<f64>().sqrt(),
            F::LogSum => line.iter().sum::<f64>().ln(),
            F::LogSumExp => {
                let largest = line.iter().fold(f64::NEG_INFINITY, |a, b| a.larger(*b));
                let shift = if largest.is_infinite() { 0.0 } else { largest };
                line.iter().map(|value| (value - shift).exp()).sum::<f64>().ln() + shift
            }
            _ => self.exact(line, first),
        }
    }

    /// What an element contributes.
    fn summand(self, value: Expr, dtype: DataType) -> Expr {
        match self {
            F::L1
                if !matches!(
                    dtype,
                    DataType::U8 | DataType::U16 | DataType::U32 | DataType::U64
                ) =>
            {
                value.unary(UnaryOp::Abs)
            }
            F::L2 | F::SumSquare => value.clone() * value,
            F::LogSumExp => value.unary(UnaryOp::Exp),
            _ => value,
        }
    }

    /// The result, from what `count` elements combined to.
    fn finished(self, value: Expr, count: usize, dtype: DataType) -> Expr {
        match self {
            // The mean of no integers is zero.
            F::Mean if count == 0 && !dtype.is_float() => value,
            F::Mean => value / Expr::Constant(count as f64, dtype),
            F::L2 => value.unary(UnaryOp::Sqrt),
            F::LogSum | F::LogSumExp => value.unary(UnaryOp::Log),
            _ => value,
        }
    }
}

/// The largest element of each line, zero where that is infinite.
fn finite_maximum(
    builder: &mut Builder,
    dtype: DataType,
    shape: &[usize],
    extents: &[usize],
    load: &dyn Fn(&[Expr], &[Expr]) -> Expr,
) -> BufferId {
    let largest =
        reduce_in(builder, "maximum", dtype, shape, extents, Combiner::Maximum, |point, by| {
            load(point, by)
        });
    builder.map("shift", &TensorType::new(dtype, shape), |point| {
        let value = Expr::Load(largest, point.to_vec());
        let zero = Expr::Constant(0.0, dtype);
        value.clone().unary(UnaryOp::IsInfinite).select(zero, value)
    })
}
