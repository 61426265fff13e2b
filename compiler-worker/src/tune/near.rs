//! Whether a candidate's answer is that of the plain program.

use hone_artifact::DataType;

use crate::compare::value;

/// Largest difference of floats of 32 bits and more, as a share of the largest magnitude: sums in another order
/// differ in their last bits.
const WIDE: f64 = 1e-4;
/// The same of narrower floats.
const NARROW: f64 = 2e-2;
/// Share of elements of integers that may be a step off, where a rounded sum lay between two.
const STEPS: f64 = 1e-3;

/// The largest finite magnitude.
fn largest(values: &[f64]) -> f64 {
    let finite = values.iter().filter(|own| own.is_finite());
    finite.fold(0.0, |most, own| most.max(own.abs()))
}

/// Compares two outputs of one type.
///
/// # Errors
/// In words, where they differ.
pub fn is_near(dtype: DataType, expected: &[u8], found: &[u8]) -> Result<(), String> {
    // Schedules that sum in the same order, and integers: every element is the same, whatever it is.
    if expected == found {
        return Ok(());
    }
    let size = dtype.bytes_of(&[]).unwrap_or(1).max(1) as usize;
    let values = |bytes: &'_ [u8]| -> Vec<f64> {
        bytes.chunks_exact(size).map(|bytes| value(dtype, bytes)).collect()
    };
    let (expected, found) = (values(expected), values(found));
    if expected.len() != found.len() {
        return Err(format!("{} elements instead of {}", found.len(), expected.len()));
    }
    let is_float = matches!(dtype, DataType::F16 | DataType::Bf16 | DataType::F32 | DataType::F64);
    let share = match dtype {
        DataType::F16 | DataType::Bf16 => NARROW,
        _ => WIDE,
    };
    // Of the smaller of both, so that one spoiled element that is huge does not hide all others.
    let most = largest(&expected).min(largest(&found));
    let allowed = if is_float { share * most } else { 1.0 };
    let mut off = 0usize;
    for (place, (want, got)) in expected.iter().zip(&found).enumerate() {
        let same = want == got || (want.is_nan() && got.is_nan());
        // Not so where either is no number.
        let is_near = (want - got).abs() <= allowed;
        if !same && !is_near {
            return Err(format!("element {place} is {got:e} instead of {want:e}"));
        }
        off += usize::from(!same);
    }
    match !is_float && off as f64 > STEPS * expected.len() as f64 {
        true => Err(format!("{off} of {} elements are a step off", expected.len())),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    #[test]
    fn last_bits_may_differ_and_nothing_else() {
        let near = |found: &[f32]| is_near(DataType::F32, &floats(&[1.0, -100.0]), &floats(found));
        assert!(near(&[1.000_001, -100.001]).is_ok());
        assert!(near(&[1.5, -100.0]).is_err() && near(&[f32::NAN, -100.0]).is_err());
        // A spoiled element among those that are expected hides nothing.
        let spoiled = is_near(DataType::F32, &floats(&[1.0, 1e30]), &floats(&[7.0, -100.0]));
        assert!(spoiled.is_err());
        let nan = floats(&[f32::NAN]);
        assert!(is_near(DataType::F32, &nan, &nan).is_ok());
        assert!(is_near(DataType::U8, &[0; 2000], &[[0; 1999].as_slice(), &[1]].concat()).is_ok());
        assert!(is_near(DataType::U8, &[0; 20], &[[0; 19].as_slice(), &[1]].concat()).is_err());
        assert!(is_near(DataType::U8, &[0; 2000], &[[0; 1999].as_slice(), &[2]].concat()).is_err());
    }
}
