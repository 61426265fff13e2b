//! How far a kernel's results may be from the reference's, element by element, when both compute on equal
//! operands: what the rounding of the element types alone explains.

use hone_driver::ops::{Attention, node_flops};
use hone_driver::{DataType, Graph, NodeId, Tensor};

/// `|got - want| <= relative * |want| + absolute * scale + floor`, the scale being that of the output's
/// ordinary magnitudes ([`scale`]).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// Relative to the element.
    pub relative: f64,
    /// Relative to the output's scale.
    pub absolute: f64,
    /// In the output's unit: denormal numbers may be flushed to zero.
    pub floor: f64,
}

/// For `f32`. A polynomial for `exp` or `erf` ends within 4 units in the last place, an exponent of 88
/// multiplies the rounding of its argument by as much, and a sum of [`TERMS`] products of one sign, added in any
/// order, is within 1e-5: together well below this. Longer sums err by more ([`growth`]).
pub(super) const RELATIVE_F32: f64 = 5e-5;
/// Terms of a sum up to which [`RELATIVE_F32`] holds.
const TERMS: f64 = 10_000.0;
/// For `f32`: sums cancel, and what was rounded before is relative to the terms. A sum of n products
/// of random signs errs by some sqrt(n) / 20 units in the last place of the largest sums. Winograd's output
/// transformation magnifies most: 7e-7 was the largest error found in ResNet-50, MobileNetV2 and the digits
/// network.
pub(super) const ABSOLUTE_F32: f64 = 5e-6;
/// The same for `f64`, with units in the last place that are 2^-29 of those of `f32`.
const RELATIVE_F64: f64 = 1e-11;
const ABSOLUTE_F64: f64 = 1e-12;

impl Bound {
    /// Nothing may differ: integers, and bytes that are only moved.
    pub const EXACT: Bound = Bound { relative: 0.0, absolute: 0.0, floor: 0.0 };

    /// The bound of an output of type `dtype` of a kernel that computes `nodes`.
    pub fn of(graph: &Graph, nodes: &[NodeId], dtype: DataType) -> Self {
        if !dtype.is_float() {
            return Self::EXACT;
        }
        let mut bound = Self { relative: RELATIVE_F64, absolute: ABSOLUTE_F64, floor: 0.0 };
        let growth = growth(graph, nodes);
        let stored = nodes.iter().flat_map(|node| &graph.nodes()[*node].outputs);
        for value in stored {
            let inner = graph.tensor_type(*value).dtype;
            bound.floor = bound.floor.max(64.0 * smallest_normal(inner));
            match inner {
                DataType::F32 => bound.at_least(RELATIVE_F32 * growth, ABSOLUTE_F32),
                // The reference rounds every value of 16 bits, a kernel only what it stores: one unit in
                // the last place for each, which inside of the kernel is relative to the terms of sums.
                DataType::F16 | DataType::BF16 => {
                    bound.at_least(RELATIVE_F32 * growth, ABSOLUTE_F32);
                    bound.relative += unit(inner);
                    bound.absolute += unit(inner) / 2.0;
                }
                _ => {}
            }
        }
        // The reference rounds an attention's weights as shares of one, a kernel as powers of what is largest so far.
        let attentions = nodes.iter().filter_map(|node| graph.nodes()[*node].operation.downcast());
        for rounded in attentions.filter_map(|own: &Attention| own.rounded) {
            bound.relative += unit(rounded);
            bound.absolute += unit(rounded);
        }
        if matches!(dtype, DataType::F16 | DataType::BF16) {
            // The last of them is what is stored; it is relative to the element alone.
            bound.absolute = (bound.absolute - unit(dtype) / 2.0).max(ABSOLUTE_F32);
        }
        bound
    }

    fn at_least(&mut self, relative: f64, absolute: f64) {
        self.relative = self.relative.max(relative);
        self.absolute = self.absolute.max(absolute);
    }
}

/// How many times as much as a sum of [`TERMS`] the longest sum of `nodes` may err relative to itself: the rounding errors
/// of its additions are a random walk (Higham, *Accuracy and Stability of Numerical Algorithms*, section 2.8).
fn growth(graph: &Graph, nodes: &[NodeId]) -> f64 {
    let terms = nodes.iter().map(|node| {
        let node = &graph.nodes()[*node];
        let outputs = node.outputs.iter().map(|output| graph.tensor_type(*output).elements());
        // A term is a product and an addition.
        node_flops(graph, node) as f64 / (2 * outputs.sum::<usize>().max(1)) as f64
    });
    (terms.fold(0.0, f64::max) / TERMS).sqrt().max(1.0)
}

/// Distance of neighbouring numbers of 16 bits, relative to the smaller ones between powers of two.
fn unit(dtype: DataType) -> f64 {
    if dtype == DataType::F16 { 2f64.powi(-10) } else { 2f64.powi(-7) }
}

fn smallest_normal(dtype: DataType) -> f64 {
    match dtype {
        // Stored denormals of binary16 are multiples of 2^-24.
        DataType::F16 => 2f64.powi(-30),
        DataType::F32 | DataType::BF16 => f64::from(f32::MIN_POSITIVE),
        DataType::F64 => f64::MIN_POSITIVE,
        _ => 0.0,
    }
}

/// How one output compares.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Compared {
    /// Largest error of an element relative to its bound, of those within it.
    pub within: f64,
    /// Elements beyond their bound: index, bound, and the numbers got and wanted.
    pub beyond: Vec<Beyond>,
}

/// An element beyond its bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beyond {
    /// Position in the output, row major.
    pub index: usize,
    /// What its error may be.
    pub bound: f64,
    /// What the kernel gave.
    pub got: f64,
    /// What the reference gives.
    pub want: f64,
}

impl Beyond {
    /// The error; infinite where only one of both is a number.
    pub fn error(&self) -> f64 {
        let error = (self.got - self.want).abs();
        if error.is_nan() { f64::INFINITY } else { error }
    }
}

/// Compares a kernel's output with the reference's.
pub fn compare(got: &Tensor, want: &Tensor, bound: Bound) -> Compared {
    let mut compared = Compared::default();
    if got.bytes() == want.bytes() {
        return compared;
    }
    let (got, want) = (got.to_f64(), want.to_f64());
    let absolute = bound.absolute * scale(&want) + bound.floor;
    for (index, (&got, &want)) in got.iter().zip(&want).enumerate() {
        if got == want || (got.is_nan() && want.is_nan()) {
            continue;
        }
        let bound = absolute + bound.relative * want.abs();
        let element = Beyond { index, bound, got, want };
        let error = element.error();
        // An infinite reference has an infinite bound, and is met by itself alone.
        match error <= bound && want.is_finite() {
            true => compared.within = compared.within.max(error / bound),
            false => compared.beyond.push(element),
        }
    }
    compared
}

/// The largest magnitude among an output's ordinary ones. Magnitudes near the largest with none between them and a
/// millionth of it are no ordinary ones: the constants of attention masks would hide every error beside them.
pub fn scale(values: &[f64]) -> f64 {
    const SAMPLE: usize = 4096;
    const APART: f64 = 1.0 / (1 << 20) as f64;
    let magnitudes = || values.iter().map(|own| own.abs()).filter(|own| own.is_finite());
    let stride = (values.len() / SAMPLE).max(1);
    let largest = magnitudes().fold(0.0, f64::max);
    let is_between = |own: f64| own > APART * largest && own < largest / 4.0;
    if magnitudes().step_by(stride).any(is_between) {
        return largest;
    }
    let below = magnitudes().filter(|own| *own <= APART * largest).fold(0.0, f64::max);
    if below > 0.0 { below } else { largest }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use hone_driver::TensorType;
    use hone_driver::ops::MatMul;

    fn floats(values: &[f32]) -> Tensor {
        Tensor::from_elements([values.len()], values).unwrap()
    }

    const F32: Bound = Bound { relative: RELATIVE_F32, absolute: ABSOLUTE_F32, floor: 1e-36 };

    #[test]
    fn rounding_is_within_and_a_wrong_element_is_not() {
        let want = floats(&[1.0, -2.0, 1e-4, 0.0]);
        let near = compare(&floats(&[1.000_01, -2.0, 1.05e-4, 1e-37]), &want, F32);
        assert!(near.beyond.is_empty() && near.within > 0.1 && near.within < 1.0, "{near:?}");
        let far = compare(&floats(&[1.0, -2.0, 1e-4, 1e-3]), &want, F32);
        assert_eq!(far.beyond.len(), 1);
        assert_eq!(far.beyond[0].index, 3);
    }

    #[test]
    fn sums_of_many_terms_may_err_by_more() {
        let bound = |terms: usize| {
            let mut graph = Graph::new();
            let x = graph.add_input("x", TensorType::new(DataType::F32, [4, terms]));
            let y = graph.add_input("y", TensorType::new(DataType::F32, [terms, 8]));
            graph.add_node("product", MatMul {}.into(), &[Some(x), Some(y)]).unwrap();
            let nodes: Vec<NodeId> = graph.nodes().ids().collect();
            Bound::of(&graph, &nodes, DataType::F32).relative
        };
        assert_eq!(bound(10), RELATIVE_F32);
        assert_eq!(bound(10_000), RELATIVE_F32);
        assert_eq!(bound(1_000_000), 10.0 * RELATIVE_F32);
    }

    #[test]
    fn what_is_not_finite_must_be_the_same() {
        let infinite = f32::NEG_INFINITY;
        let want = floats(&[infinite, f32::NAN, 1.0]);
        assert!(compare(&want, &want, F32).beyond.is_empty());
        assert!(compare(&floats(&[infinite, -f32::NAN, 1.0]), &want, F32).beyond.is_empty());
        assert_eq!(compare(&floats(&[0.0, 1.0, f32::NAN]), &want, F32).beyond.len(), 3);
        assert_eq!(compare(&floats(&[-infinite, f32::NAN, 1.0]), &want, F32).beyond.len(), 1);
    }

    #[test]
    fn the_constant_of_a_mask_hides_no_error() {
        let mut want = vec![1.0f32; 64];
        want[32..].fill(-1e9);
        let mut got = want.clone();
        got[3] = 1.01;
        assert_eq!(scale(&floats(&want).to_f64()), 1.0);
        assert_eq!(compare(&floats(&got), &floats(&want), F32).beyond.len(), 1);
    }

    #[test]
    fn numbers_that_are_rounding_noise_alone_do_not_set_the_scale() {
        // Differences of equal neighbours beside those of others: a third is noise.
        let wide = (0..300).map(|n| if n % 3 == 0 { 1e-10 } else { f64::from(n) / 1000.0 });
        assert_eq!(scale(&wide.collect::<Vec<f64>>()), 0.299);
    }

    #[test]
    fn integers_are_exact() {
        let want = Tensor::from_elements([2], &[3u8, 4]).unwrap();
        let got = Tensor::from_elements([2], &[3u8, 5]).unwrap();
        assert_eq!(compare(&got, &want, Bound::EXACT).beyond.len(), 1);
    }
}
