//! One axis of a resize: coordinates, neighbours, weights.

use crate::resize::{CoordinateMode, NearestRounding, Resize, ResizeMode};
use hone_tensor::{Expr, UnaryOp};
use hone_types::DataType;

/// One axis to be resized.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    /// Its place in the shape.
    pub place: usize,
    /// Its extent in the input.
    pub input: usize,
    /// Its extent in the output.
    pub output: usize,
    mode: ResizeMode,
    coordinates: CoordinateMode,
    antialias: bool,
    scale: f64,
    region: [f64; 2],
}

/// An input index with its weight.
pub(crate) type Weight = (usize, f64);

impl Axis {
    /// How values between elements are made.
    pub fn mode(&self) -> ResizeMode {
        self.mode
    }

    /// The axes that change.
    pub fn all(resize: &Resize, shape: &[usize]) -> Vec<Self> {
        let rank = shape.len();
        let region = |place: usize| match resize.coordinates {
            CoordinateMode::TfCropAndResize => [resize.region[place], resize.region[place + rank]],
            _ => [0.0, 1.0],
        };
        let axes = (0..rank).map(|place| Self {
            place,
            input: shape[place],
            output: resize.sizes[place],
            mode: resize.mode,
            coordinates: resize.coordinates,
            antialias: resize.antialias,
            scale: resize.scales[place],
            region: region(place),
        });
        axes.filter(|axis| !axis.is_unchanged()).collect()
    }

    fn is_unchanged(&self) -> bool {
        let whole = self.region == [0.0, 1.0];
        self.input == self.output && (self.scale - 1.0).abs() < 1e-12 && whole
    }

    /// Output extent before rounding.
    fn width(&self) -> f64 {
        let width = self.scale * self.input as f64;
        if (width - self.output as f64).abs() < 1e-6 { self.output as f64 } else { width }
    }

    /// Whether the output stands for a single place.
    fn is_single(&self) -> bool {
        self.width() <= 1.0 || self.output <= 1
    }

    /// The coordinate of output index `index`: `(index + before) * factor / divisor + after`.
    fn line(&self) -> [f64; 4] {
        let (input, width) = (self.input as f64, self.width());
        let half_pixel = [0.5, 1.0, self.scale, -0.5];
        match self.coordinates {
            CoordinateMode::HalfPixel => half_pixel,
            CoordinateMode::PytorchHalfPixel if self.output <= 1 => [0.0, 0.0, 1.0, 0.0],
            CoordinateMode::PytorchHalfPixel => half_pixel,
            CoordinateMode::Asymmetric => [0.0, 1.0, self.scale, 0.0],
            CoordinateMode::AlignCorners if self.is_single() => [0.0, 0.0, 1.0, 0.0],
            CoordinateMode::AlignCorners => [0.0, input - 1.0, width - 1.0, 0.0],
            CoordinateMode::HalfPixelSymmetric => {
                let offset = input / 2.0 * (1.0 - self.output as f64 / (self.scale * input));
                [0.5, 1.0, self.scale, offset - 0.5]
            }
            CoordinateMode::TfCropAndResize => {
                let [start, end] = self.region;
                if self.output > 1 {
                    let factor = (end - start) * (input - 1.0);
                    [0.0, factor, width - 1.0, start * (input - 1.0)]
                } else {
                    [0.0, 0.0, 1.0, 0.5 * (start + end) * (input - 1.0)]
                }
            }
        }
    }

    /// The place in the input that an output index stands for.
    pub fn coordinate(&self, index: usize) -> f64 {
        let [before, factor, divisor, after] = self.line();
        (index as f64 + before) * factor / divisor + after
    }

    /// As [`Axis::coordinate`], of an index expression; in `f64`, with the same roundings.
    pub fn coordinate_expression(&self, index: &Expr) -> Expr {
        let [before, factor, divisor, after] = self.line();
        let mut value = index.clone().cast(DataType::F64);
        if before != 0.0 {
            value = value + real(before);
        }
        if factor != 1.0 {
            value = value * real(factor);
        }
        if divisor != 1.0 {
            value = value / real(divisor);
        }
        if after == 0.0 { value } else { value + real(after) }
    }

    /// For each output index, whether its coordinate is outside the input.
    pub fn outside(&self) -> Vec<bool> {
        let last = self.input as f64 - 1.0;
        (0..self.output).map(|index| !(0.0..=last).contains(&self.coordinate(index))).collect()
    }

    /// For each output index, the input index nearest.
    pub fn nearest(&self, rounding: NearestRounding) -> Vec<usize> {
        let last = self.input as f64 - 1.0;
        let rounded = |x: f64| match rounding {
            NearestRounding::RoundPreferFloor => (x - 0.5).ceil(),
            NearestRounding::RoundPreferCeil => (x + 0.5).floor(),
            NearestRounding::Floor => x.floor(),
            NearestRounding::Ceil => x.ceil(),
        };
        (0..self.output)
            .map(|index| rounded(self.coordinate(index)).clamp(0.0, last) as usize)
            .collect()
    }

    /// As [`Axis::nearest`], of an index expression. Whole factors need no floating-point numbers.
    pub fn nearest_expression(&self, index: &Expr, rounding: NearestRounding) -> Expr {
        let table = self.nearest(rounding);
        let is = |place: &dyn Fn(usize) -> usize| {
            table.iter().enumerate().all(|(index, own)| *own == place(index))
        };
        let (up, down) = (self.output / self.input, self.input / self.output.max(1));
        if up > 0 && is(&|index| index / up) {
            return index.clone().floor_divide(up.into());
        }
        let first = table.first().copied().unwrap_or(0);
        if is(&|index| index * down + first) {
            return index.clone() * down + first;
        }
        let x = self.coordinate_expression(index);
        let rounded = match rounding {
            NearestRounding::RoundPreferFloor => (x - real(0.5)).unary(UnaryOp::Ceil),
            NearestRounding::RoundPreferCeil => (x + real(0.5)).unary(UnaryOp::Floor),
            NearestRounding::Floor => x.unary(UnaryOp::Floor),
            NearestRounding::Ceil => x.unary(UnaryOp::Ceil),
        };
        self.clamped(rounded.cast(DataType::I64))
    }

    /// An index moved inside the input.
    pub fn clamped(&self, index: Expr) -> Expr {
        index.maximum(0.into()).minimum((self.input as i64 - 1).into())
    }

    /// For each output index, the input elements it is the weighted sum of.
    pub fn weights(&self) -> Vec<Vec<Weight>> {
        (0..self.output).map(|index| self.weights_at(self.coordinate(index))).collect()
    }

    fn weights_at(&self, x: f64) -> Vec<Weight> {
        // Far outside, all neighbours are the edge.
        let x = x.clamp(-2.0 * self.input as f64 - 8.0, 3.0 * self.input as f64 + 8.0);
        let base = x.ceil() - 1.0;
        let ratio = x - base;
        let scale = if self.antialias { self.scale.min(1.0) } else { 1.0 };
        let reach = if matches!(self.mode, ResizeMode::Cubic { .. }) { 2.0 } else { 1.0 };
        let start = (-reach / scale).floor() as i64 + 1;
        let mut weights: Vec<(i64, f64)> = (start..2 - start)
            .map(|step| (base as i64 + step, self.filter((step as f64 - ratio) * scale)))
            .collect();
        if self.excludes_outside() {
            let inside = 0..self.input as i64;
            weights.retain(|(index, _)| inside.contains(index));
        }
        let sum: f64 = weights.iter().map(|(_, weight)| weight).sum();
        let is_normal = !self.antialias && !self.excludes_outside();
        let factor = if is_normal || sum == 0.0 { 1.0 } else { 1.0 / sum };
        let last = self.input as i64 - 1;
        let weights = weights.into_iter().filter(|(_, weight)| *weight != 0.0);
        weights.map(|(index, weight)| (index.clamp(0, last) as usize, weight * factor)).collect()
    }

    /// Whether elements outside get no weight.
    pub fn excludes_outside(&self) -> bool {
        matches!(self.mode, ResizeMode::Cubic { exclude_outside: true, .. })
    }

    /// The filter's value at a distance.
    fn filter(&self, distance: f64) -> f64 {
        let x = distance.abs();
        match self.mode {
            ResizeMode::Cubic { coefficient_a: a, .. } => {
                if x <= 1.0 {
                    ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
                } else if x < 2.0 {
                    ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a
                } else {
                    0.0
                }
            }
            _ => (1.0 - x).max(0.0),
        }
    }

    /// Neighbours of a coordinate without antialiasing, as steps from the whole number below it,
    /// with their weights; `ratio` is what is above that number.
    pub fn neighbours(&self, ratio: &Expr) -> Vec<(i64, Expr)> {
        let below = ratio.clone();
        let above = real(1.0) - ratio.clone();
        let ResizeMode::Cubic { coefficient_a: a, .. } = self.mode else {
            return vec![(0, above), (1, below)];
        };
        let near =
            |x: Expr| (real(a + 2.0) * x.clone() - real(a + 3.0)) * x.clone() * x + real(1.0);
        let far = |x: Expr| {
            ((real(a) * x.clone() - real(5.0 * a)) * x.clone() + real(8.0 * a)) * x - real(4.0 * a)
        };
        vec![
            (-1, far(below.clone() + real(1.0))),
            (0, near(below)),
            (1, near(above.clone())),
            (2, far(above + real(1.0))),
        ]
    }
}

/// An `f64` constant.
pub(crate) fn real(value: f64) -> Expr {
    Expr::Constant(value, DataType::F64)
}
