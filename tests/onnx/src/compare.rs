//! Comparison of a result with what is expected.

use anyhow::{Result, ensure};
use hone_types::{DataType, Tensor};

/// Refuses a result that is of another type than expected, or differs by more than `atol + rtol *
/// |expected|` anywhere. A 16-bit float may be two units in the last place off: the cases round to 16
/// bits after every operation of a function such as attention, Hone computes in between in 32 bits.
pub(crate) fn compare(result: &Tensor, expected: &Tensor, rtol: f64, atol: f64) -> Result<()> {
    let (found, wanted) = (result.tensor_type(), expected.tensor_type());
    ensure!(found == wanted, "is {found}, expected {wanted}");
    for (place, (a, b)) in result.to_f64().into_iter().zip(expected.to_f64()).enumerate() {
        let tolerance = (atol + rtol * b.abs()).max(UNITS * unit(wanted.dtype, b));
        let equal = a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance;
        ensure!(equal, "element {place} of {wanted} is {a}, expected {b}");
    }
    Ok(())
}

/// Units in the last place that a 16-bit float may be off.
const UNITS: f64 = 2.0;

/// The unit in the last place of `value` in a 16-bit floating-point type; 0 for other types.
fn unit(dtype: DataType, value: f64) -> f64 {
    // Bits of the significand behind the point, and the exponent of the least normal number.
    let (bits, least) = match dtype {
        DataType::F16 => (10, -14),
        DataType::BF16 => (7, -126),
        _ => return 0.0,
    };
    match value.is_finite() && value != 0.0 {
        true => 2f64.powi((value.abs().log2().floor() as i32).max(least) - bits),
        false => 2f64.powi(least - bits),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn tensor(dtype: DataType, value: f64) -> Tensor {
        Tensor::from_f64(dtype, [1], &[value]).unwrap()
    }

    #[test]
    fn two_units_in_the_last_place_pass_and_three_do_not() {
        for (dtype, one) in [(DataType::F16, 2f64.powi(-10)), (DataType::BF16, 2f64.powi(-7))] {
            for value in [1.0, -1.5, 3.0, 1024.0] {
                let unit = one * 2f64.powi(f64::log2(f64::abs(value)).floor() as i32);
                let expected = tensor(dtype, value);
                let compared = |off: f64| compare(&tensor(dtype, value + off), &expected, 0.0, 0.0);
                assert!(compared(0.0).is_ok() && compared(2.0 * unit).is_ok(), "{dtype} {value}");
                assert!(compared(3.0 * unit).is_err(), "{dtype} {value}");
            }
        }
        let exact = |value: f64| tensor(DataType::F32, value);
        assert!(compare(&exact(1.0 + 2f64.powi(-20)), &exact(1.0), 0.0, 0.0).is_err());
    }
}
