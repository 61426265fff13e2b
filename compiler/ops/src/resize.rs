//! Resampling to other extents.

use crate::operator::{FusionClass, OpError, Operator, named, pending, required};
use crate::shape::{bounded, check_float};
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Expr};
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
        let output = bounded(x.dtype, self.sizes.clone())?;
        if x.shape.contains(&0) && !self.sizes.contains(&0) {
            return Err(InferError::new(format!("{x} has nothing to sample")));
        }
        Ok(vec![output])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Injective
    }

    pending!();
}
