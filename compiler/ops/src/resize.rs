//! Resampling to other extents.

use crate::express::{Guard, constant, converted, input, load_wide, only_output, wide};
use crate::gather::Gather;
use crate::matmul::MatMul;
use crate::number::Number;
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::operator::{Graph, required_value};
use crate::resize_axis::{Axis, real};
use crate::shape::{around, output_type};
use crate::shape::{bounded, check_float};
use crate::strided::Points;
use crate::transpose::Transpose;
use hone_graph::InferError;
use hone_graph::ValueId;
use hone_tensor::UnaryOp;
use hone_tensor::{BufferId, Builder, Expr};
use hone_types::DataType;
use hone_types::{Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// The input sampled at other extents, as ONNX `Resize` does it; one entry per axis in each list.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Resize {
    /// How values between elements are made.
    pub mode: ResizeMode,
    /// Which place in the input an output index stands for.
    pub coordinates: CoordinateMode,
    /// Output extent over input extent, per axis, as the model says it (`sizes` may be rounded).
    pub scales: Vec<f64>,
    /// Extents of the output.
    pub sizes: Vec<usize>,
    /// Whether the filter is widened where the output is smaller.
    pub antialias: bool,
    /// Value outside the input, in [`CoordinateMode::TfCropAndResize`].
    #[serde(with = "crate::serde_forms::any_number")]
    pub extrapolation: f64,
    /// The part of the input to sample in [`CoordinateMode::TfCropAndResize`], as fractions of each
    /// axis: all starts, then all ends. Empty otherwise.
    pub region: Vec<f64>,
}

/// How values between elements are made.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResizeMode {
    /// The nearest element's.
    Nearest {
        /// Which is nearest.
        rounding: NearestRounding,
    },
    /// Linear between the two neighbours, per axis.
    Linear,
    /// Cubic over four neighbours, per axis.
    Cubic {
        /// The coefficient of the filter's polynomial.
        coefficient_a: f64,
        /// Whether neighbours outside the input get no weight, else the edge's value counts.
        exclude_outside: bool,
    },
}

/// Which whole number a coordinate is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NearestRounding {
    /// The nearest, halves down.
    RoundPreferFloor,
    /// The nearest, halves up.
    RoundPreferCeil,
    /// The next below.
    Floor,
    /// The next above.
    Ceil,
}

/// Which place `x` in the input the output index `i` stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CoordinateMode {
    /// `(i + 0.5) / scale - 0.5`
    HalfPixel,
    /// As `HalfPixel`; 0 where the output extent is 1.
    PytorchHalfPixel,
    /// `i * (input extent - 1) / (output extent - 1)`
    AlignCorners,
    /// `i / scale`
    Asymmetric,
    /// As `HalfPixel`, moved so that the middle stays in the middle when `sizes` was rounded.
    HalfPixelSymmetric,
    /// First and last output index lie on the ends of the region.
    TfCropAndResize,
}

impl Resize {
    /// Name in text forms.
    pub const NAME: &'static str = "resize";

    /// Places whose coordinate is outside the input, replaced by the extrapolation value.
    fn extrapolated(&self, tensor: Tensor, axes: &[Axis]) -> Result<Tensor, OpError> {
        if self.coordinates != CoordinateMode::TfCropAndResize {
            return Ok(tensor);
        }
        let outside: Vec<(usize, Vec<bool>)> =
            axes.iter().map(|axis| (axis.place, axis.outside())).collect();
        let mut values = tensor.to_f64();
        let mut points = Points::new(tensor.shape());
        for value in &mut values {
            let index = points.index();
            if outside.iter().any(|(axis, outside)| outside[index[*axis]]) {
                *value = self.extrapolation;
            }
            points.advance();
        }
        f64::write(tensor.tensor_type(), &values)
    }

    /// As [`Resize::extrapolated`], as a block.
    fn extrapolation_block(
        &self,
        builder: &mut Builder,
        resized: BufferId,
        output: &TensorType,
        axes: &[Axis],
    ) -> BufferId {
        let outside = |axis: &&Axis| axis.outside().contains(&true);
        if self.coordinates != CoordinateMode::TfCropAndResize
            || !axes.iter().any(|axis| outside(&axis))
        {
            return resized;
        }
        builder.map("extrapolate", output, |point| {
            let mut guard = Guard::default();
            for axis in axes.iter().filter(outside) {
                let coordinate = axis.coordinate_expression(&point[axis.place]);
                guard.require(real(0.0).less_equal(coordinate.clone()));
                guard.require(coordinate.less_equal(real(axis.input as f64 - 1.0)));
            }
            let value = Expr::Load(resized, point.to_vec());
            guard.value(value, constant(self.extrapolation, output.dtype))
        })
    }
}

impl Operator for Resize {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let x = required(Self::NAME, inputs, 0)?;
        let rank = x.rank();
        let region = if self.coordinates == CoordinateMode::TfCropAndResize { 2 * rank } else { 0 };
        if [self.scales.len(), self.sizes.len()] != [rank; 2] || self.region.len() != region {
            return Err(InferError::new(format!("scales, sizes or region do not fit {x}")));
        }
        let positive = |scale: &f64| scale.is_finite() && *scale > 0.0;
        if !self.scales.iter().all(positive) || !self.region.iter().all(|end| end.is_finite()) {
            return Err(InferError::new(format!(
                "scales {:?} or region are no factors",
                self.scales
            )));
        }
        if !matches!(self.mode, ResizeMode::Nearest { .. }) {
            check_float(x)?;
        } else if self.antialias {
            return Err(InferError::new("nearest elements cannot be antialiased"));
        }
        // The widened filter would reach over more than the whole input.
        let mut extents = self.scales.iter().zip(&x.shape);
        if self.antialias && extents.any(|(scale, input)| 1.0 / scale > 4.0 * *input as f64 + 4.0) {
            return Err(InferError::new(format!("scales {:?} are too small for {x}", self.scales)));
        }
        let output = bounded(x.dtype, self.sizes.clone())?;
        if x.shape.contains(&0) && !self.sizes.contains(&0) {
            return Err(InferError::new(format!("{x} has nothing to sample")));
        }
        Ok(vec![output])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Injective
    }

    /// Axis by axis, each a product with a sparse matrix of weights.
    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let input = required(Self::NAME, inputs, 0)?;
        let output = output_type(self, inputs)?;
        if output.elements() == 0 {
            return Ok(vec![Tensor::zeros(output)]);
        }
        let axes = Axis::all(self, input.shape());
        let resized = match self.mode {
            ResizeMode::Nearest { .. } => nearest(input, &axes)?,
            _ => weighted(input, &axes, &output)?,
        };
        Ok(vec![self.extrapolated(resized, &axes)?])
    }

    /// One block per axis, or one for all where the nearest element is taken.
    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let x = input(inputs, 0)?;
        let output = only_output(self, builder, inputs)?;
        let own = builder.tensor_type(x);
        if output.elements() == 0 {
            return Some(vec![builder.map("resize", &output, |_| Expr::Constant(0.0, own.dtype))]);
        }
        let axes = Axis::all(self, &own.shape);
        let resized = match self.mode {
            ResizeMode::Nearest { rounding } => nearest_block(builder, x, &output, &axes, rounding),
            _ if self.antialias => return None,
            _ => weighted_blocks(builder, x, &axes),
        };
        Some(vec![self.extrapolation_block(builder, resized, &output, &axes)])
    }

    /// Antialiased: a product with a matrix of weights per axis.
    fn decompose(
        &self,
        graph: &mut Graph,
        inputs: &[Option<ValueId>],
    ) -> Result<Option<Vec<ValueId>>, InferError> {
        let x = required_value(Self::NAME, inputs, 0)?;
        let shape = graph.tensor_type(x).shape.clone();
        let is_cropped = self.coordinates == CoordinateMode::TfCropAndResize;
        if !self.antialias || is_cropped || shape.contains(&0) || self.sizes.contains(&0) {
            return Ok(None);
        }
        let mut value = x;
        for axis in Axis::all(self, &shape) {
            value = matrix_product(graph, value, &axis)?;
        }
        Ok(Some(vec![value]))
    }
}

/// Elements taken from the input, axis by axis.
fn nearest(input: &Tensor, axes: &[Axis]) -> Result<Tensor, OpError> {
    let mut tensor = input.clone();
    for axis in axes {
        let ResizeMode::Nearest { rounding } = axis.mode() else { continue };
        let places: Vec<i64> = axis.nearest(rounding).iter().map(|place| *place as i64).collect();
        let indices = Tensor::from_elements([places.len()], &places)?;
        let gather = Gather { axis: axis.place };
        tensor = gather.reference(&[Some(&tensor), Some(&indices)])?.remove(0);
    }
    Ok(tensor)
}

/// Weighted sums of the input, axis by axis.
fn weighted(input: &Tensor, axes: &[Axis], output: &TensorType) -> Result<Tensor, OpError> {
    let (mut values, mut shape) = (input.to_f64(), input.shape().to_vec());
    for axis in axes {
        let (outer, extent, inner) = around(&shape, axis.place);
        let weights = axis.weights();
        let mut sums = vec![0.0; outer * axis.output * inner];
        let slices = sums.chunks_exact_mut(axis.output * inner);
        for (sums, values) in slices.zip(values.chunks_exact(extent * inner)) {
            for (sums, weights) in sums.chunks_exact_mut(inner).zip(&weights) {
                for (source, weight) in weights {
                    let source = &values[source * inner..][..inner];
                    sums.iter_mut().zip(source).for_each(|(sum, value)| *sum += value * weight);
                }
            }
        }
        shape[axis.place] = axis.output;
        values = sums;
    }
    f64::write(output, &values)
}

/// A block that reads the nearest elements.
fn nearest_block(
    builder: &mut Builder,
    x: BufferId,
    output: &TensorType,
    axes: &[Axis],
    rounding: NearestRounding,
) -> BufferId {
    builder.map("resize", output, |point| {
        let mut read = point.to_vec();
        for axis in axes {
            read[axis.place] = axis.nearest_expression(&point[axis.place], rounding);
        }
        Expr::Load(x, read)
    })
}

/// A block for each axis that sums its weighted neighbours.
fn weighted_blocks(builder: &mut Builder, x: BufferId, axes: &[Axis]) -> BufferId {
    let mut buffer = x;
    for axis in axes {
        let own = builder.tensor_type(buffer);
        let mut output = own.clone();
        output.shape[axis.place] = axis.output;
        buffer = builder.map("resize", &output, |point| {
            let x = axis.coordinate_expression(&point[axis.place]);
            let floor = x.clone().unary(UnaryOp::Floor);
            let base = floor.clone().cast(DataType::I64);
            let mut sums: Option<[Expr; 2]> = None;
            for (step, weight) in axis.neighbours(&(x - floor)) {
                let index = base.clone() + step;
                let mut read = point.to_vec();
                read[axis.place] = axis.clamped(index.clone());
                let weight = if axis.excludes_outside() {
                    let inside = Expr::Integer(0).less_equal(index.clone());
                    let inside = inside.and(index.less(axis.input.into()));
                    inside.select(weight, real(0.0))
                } else {
                    weight
                };
                let weight = weight.cast(wide(own.dtype));
                let value = load_wide(buffer, read, own.dtype) * weight.clone();
                sums = Some(match sums {
                    None => [value, weight],
                    Some([values, weights]) => [values + value, weights + weight],
                });
            }
            let [value, weight] = sums.unwrap_or([real(0.0), real(1.0)]);
            let value = if axis.excludes_outside() { value / weight } else { value };
            converted(value, wide(own.dtype), own.dtype)
        });
    }
    buffer
}

/// Nodes that multiply an axis by its matrix of weights.
fn matrix_product(graph: &mut Graph, x: ValueId, axis: &Axis) -> Result<ValueId, InferError> {
    let own = graph.tensor_type(x).clone();
    let mut matrix = vec![0.0; axis.input * axis.output];
    for (place, weights) in axis.weights().iter().enumerate() {
        weights.iter().for_each(|(source, weight)| matrix[source * axis.output + place] += weight);
    }
    let matrix = Tensor::from_f64(own.dtype, [axis.input, axis.output], &matrix)
        .map_err(|error| InferError::new(error.to_string()))?;
    let matrix = graph.add_constant("resize weights", matrix);
    // The axis goes last and back.
    let last = own.rank() - 1;
    let mut permutation: Vec<usize> = (0..own.rank()).collect();
    permutation.swap(axis.place, last);
    let turn = |graph: &mut Graph, value: ValueId| match axis.place == last {
        true => Ok(value),
        false => {
            let permutation = permutation.clone();
            graph
                .add_node("resize", Transpose { permutation }.into(), &[Some(value)])
                .map(|outputs| outputs[0])
        }
    };
    let turned = turn(graph, x)?;
    let product = graph.add_node("resize", MatMul {}.into(), &[Some(turned), Some(matrix)])?[0];
    turn(graph, product)
}
