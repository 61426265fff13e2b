//! Answers held against the reference.

use half::{bf16, f16};
use hone_artifact::{DataType, TensorInfo};

/// What comparing gave, over all outputs and inputs so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    /// Largest absolute error.
    pub max_abs: f64,
    /// Largest relative error of elements whose magnitude is above the absolute tolerance; errors of
    /// smaller ones say nothing relative to them.
    pub max_rel: f64,
    /// Largest absolute error of any element as a fraction of the largest magnitude in its output.
    pub max_fraction: f64,
    /// Elements out of tolerance.
    pub outside: u64,
    /// Elements compared.
    pub elements: u64,
    /// The element that is furthest out of tolerance, in words.
    pub worst: Option<String>,
    /// The first element at which the reference itself is not finite, in words.
    pub not_finite: Option<String>,
    excess: f64,
    /// Each floating-point output, and the largest magnitude in it over all samples.
    largest: Vec<(String, f64)>,
}

/// An element passes where `|got - want| <= atol + rtol * |want| + fraction * largest`, the largest being
/// that of the magnitudes in its output. Without `atol`, [`DEFAULT_ATOL`] of the largest takes its place: what
/// an error is worth depends on what the output's numbers are like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Relative.
    pub rtol: f64,
    /// Absolute, in the output's unit.
    pub atol: Option<f64>,
    /// Relative to the output's largest magnitude; 0 but for arithmetic below `f32`, and for models that
    /// round to integers where the user bounds their error so.
    pub fraction: f64,
}

/// The absolute tolerance where none is given, as a share of an output's largest magnitude. A network whose every
/// kernel is within 5e-6 of its reference was seen 2e-4 apart after a hundred layers.
pub const DEFAULT_ATOL: f64 = 1e-3;

impl Comparison {
    /// Adds one output: its bytes and the reference's, of the tensor's type and shape.
    pub fn add(&mut self, tensor: &TensorInfo, got: &[u8], want: &[u8], tolerance: Tolerance) {
        let size = (tensor.dtype.bits() / 8) as usize;
        let magnitudes = want.chunks_exact(size).map(|bytes| value(tensor.dtype, bytes).abs());
        let largest = magnitudes.filter(|own| own.is_finite()).fold(0.0, f64::max);
        self.note_largest(tensor, largest);
        let rtol = tolerance.rtol.max(spacing(tensor.dtype));
        let tolerance = Tolerance { rtol, ..tolerance };
        let atol = tolerance.atol.unwrap_or(DEFAULT_ATOL * largest);
        let tolerance = Tolerance { atol: Some(atol), ..tolerance };
        let allowed = atol + tolerance.fraction * largest;
        let before = std::mem::replace(&mut self.max_abs, 0.0);
        let pairs = got.chunks_exact(size).zip(want.chunks_exact(size));
        for (index, (got, want)) in pairs.enumerate() {
            let (got, want) = (value(tensor.dtype, got), value(tensor.dtype, want));
            self.element(tensor, index, (got, want), tolerance, allowed);
        }
        if self.max_abs > 0.0 {
            self.max_fraction = self.max_fraction.max(self.max_abs / largest);
        }
        self.max_abs = self.max_abs.max(before);
    }

    fn note_largest(&mut self, tensor: &TensorInfo, largest: f64) {
        use DataType::{Bf16, F16, F32, F64};
        if !matches!(tensor.dtype, F16 | Bf16 | F32 | F64) || tensor.bytes == 0 {
            return;
        }
        match self.largest.iter_mut().find(|(name, _)| *name == tensor.name) {
            Some((_, known)) => *known = known.max(largest),
            None => self.largest.push((tensor.name.clone(), largest)),
        }
    }

    /// The first floating-point output in which no magnitude reaches `bound`, and the largest in it.
    pub fn smallest_output(&self, bound: f64) -> Option<(&str, f64)> {
        let small = self.largest.iter().find(|(_, largest)| *largest < bound);
        small.map(|(name, largest)| (name.as_str(), *largest))
    }

    fn element(
        &mut self,
        tensor: &TensorInfo,
        index: usize,
        (got, want): (f64, f64),
        tolerance: Tolerance,
        absolute: f64,
    ) {
        self.elements += 1;
        if !want.is_finite() {
            let place = || format!("output '{}', element {index}: {want}", tensor.name);
            self.not_finite.get_or_insert_with(place);
            return;
        }
        let error = (got - want).abs();
        // A result that is not a number must not vanish in a comparison.
        let error = if error.is_nan() { f64::INFINITY } else { error };
        self.max_abs = self.max_abs.max(error);
        if tolerance.atol.is_none_or(|atol| want.abs() > atol) {
            self.max_rel = self.max_rel.max(error / want.abs());
        }
        let allowed = absolute + tolerance.rtol * want.abs();
        if error <= allowed {
            return;
        }
        self.outside += 1;
        if error - allowed > self.excess || self.worst.is_none() {
            self.excess = error - allowed;
            self.worst = Some(format!(
                "output '{}', element {index}: {got} where the reference gives {want}",
                tensor.name
            ));
        }
    }

    /// Whether every element is within tolerance.
    pub fn passed(&self) -> bool {
        self.outside == 0 && self.not_finite.is_none()
    }
}

/// The distance to the next number of a 16-bit type, relative: two results that differ in the last bit
/// of `f32` may be rounded to both. Of wider types it is below any tolerance that makes sense.
fn spacing(dtype: DataType) -> f64 {
    match dtype {
        DataType::F16 => 2f64.powi(-10),
        DataType::Bf16 => 2f64.powi(-7),
        _ => 0.0,
    }
}

/// One little-endian element as a double.
#[inline]
pub fn value(dtype: DataType, bytes: &[u8]) -> f64 {
    match dtype {
        DataType::F32 => f64::from(f32::from_le_bytes(leading(bytes))),
        DataType::F64 => f64::from_le_bytes(leading(bytes)),
        DataType::F16 => f16::from_le_bytes(leading(bytes)).to_f64(),
        DataType::Bf16 => bf16::from_le_bytes(leading(bytes)).to_f64(),
        DataType::I8 => f64::from(i8::from_le_bytes(leading(bytes))),
        DataType::I16 => f64::from(i16::from_le_bytes(leading(bytes))),
        DataType::I32 => f64::from(i32::from_le_bytes(leading(bytes))),
        DataType::I64 => i64::from_le_bytes(leading(bytes)) as f64,
        _ => {
            let mut raw = [0; 8];
            let count = bytes.len().min(8);
            raw[..count].copy_from_slice(&bytes[..count]);
            u64::from_le_bytes(raw) as f64
        }
    }
}

/// The first bytes; zeros where there are fewer.
fn leading<const COUNT: usize>(bytes: &[u8]) -> [u8; COUNT] {
    bytes.first_chunk().copied().unwrap_or([0; COUNT])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const T: Tolerance = Tolerance { rtol: 1e-3, atol: Some(1e-4), fraction: 0.0 };

    fn compare(got: &[f32], want: &[f32]) -> Comparison {
        compare_within(got, want, T)
    }

    fn compare_within(got: &[f32], want: &[f32], tolerance: Tolerance) -> Comparison {
        let tensor = TensorInfo::new("y", DataType::F32, vec![got.len() as u64]).unwrap();
        let bytes = |values: &[f32]| -> Vec<u8> {
            values.iter().flat_map(|value| value.to_le_bytes()).collect()
        };
        let mut comparison = Comparison::default();
        comparison.add(&tensor, &bytes(got), &bytes(want), tolerance);
        comparison
    }

    #[test]
    fn without_an_absolute_tolerance_the_largest_magnitude_decides() {
        let relative = Tolerance { rtol: 0.0, atol: None, fraction: 0.0 };
        assert!(compare_within(&[1000.0, 0.9], &[1000.0, 0.0], relative).passed());
        assert!(!compare_within(&[1000.0, 1.1], &[1000.0, 0.0], relative).passed());
        assert!(!compare_within(&[1e-6, 2e-9], &[1e-6, 0.0], relative).passed());
    }

    #[test]
    fn the_tolerance_decides() {
        assert!(compare(&[1.0005, 0.00005], &[1.0, 0.0]).passed());
        let outside = compare(&[1.0, 2.0], &[1.0, 2.5]);
        assert!(!outside.passed());
        assert_eq!(outside.outside, 1);
        assert!(outside.worst.unwrap().contains("element 1: 2 where the reference gives 2.5"));
    }

    #[test]
    fn neighbouring_numbers_of_16_bits_are_equal() {
        let types = [DataType::F16, DataType::Bf16];
        for (dtype, one) in types.into_iter().zip([f16::ONE.to_bits(), bf16::ONE.to_bits()]) {
            let tensor = TensorInfo::new("y", dtype, vec![1]).unwrap();
            let passed = |apart: u16| {
                let mut comparison = Comparison::default();
                let got = (one + apart).to_le_bytes();
                let exact = Tolerance { rtol: 0.0, atol: Some(0.0), fraction: 0.0 };
                comparison.add(&tensor, &got, &one.to_le_bytes(), exact);
                comparison.passed()
            };
            assert!(passed(1) && !passed(2), "{dtype}");
        }
    }

    #[test]
    fn what_is_not_a_number_never_passes() {
        assert!(!compare(&[f32::NAN], &[1.0]).passed());
        assert_eq!(compare(&[f32::NAN], &[1.0]).max_abs, f64::INFINITY);
        let nan = compare(&[f32::NAN], &[f32::NAN]);
        assert!(!nan.passed() && nan.outside == 0);
        assert!(nan.not_finite.unwrap().contains("NaN"));
    }

    #[test]
    fn relative_errors_are_those_above_the_users_own_tolerance() {
        let tensor = TensorInfo::new("y", DataType::F32, vec![2]).unwrap();
        let bytes = |values: [f32; 2]| values.map(f32::to_le_bytes).concat();
        let mut comparison = Comparison::default();
        let loose = Tolerance { fraction: 0.5, ..T };
        comparison.add(&tensor, &bytes([1.0, 0.15]), &bytes([1.0, 0.1]), loose);
        // Within the tolerance, and not hidden by it.
        assert!(comparison.passed());
        assert!((comparison.max_rel - 0.5).abs() < 1e-6, "{}", comparison.max_rel);
    }

    #[test]
    fn an_output_as_small_as_its_tolerance_is_named() {
        let comparison = compare(&[1e-3], &[1e-3]);
        assert_eq!(comparison.smallest_output(1e-2).unwrap().0, "y");
        assert!(compare(&[1.0], &[1.0]).smallest_output(1e-2).is_none());
    }
}
