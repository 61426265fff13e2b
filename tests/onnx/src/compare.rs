//! Comparison of a result with what is expected.

use anyhow::{Result, ensure};
use hone_types::{DataType, Tensor};

/// Refuses a result that is of another type than expected, or differs by more than `atol + rtol *
/// |expected|` anywhere. What 16-bit floats cannot tell apart counts as equal.
pub(crate) fn compare(result: &Tensor, expected: &Tensor, rtol: f64, atol: f64) -> Result<()> {
    let (found, wanted) = (result.tensor_type(), expected.tensor_type());
    ensure!(found == wanted, "is {found}, expected {wanted}");
    let rounding = match wanted.dtype {
        DataType::F16 => 2f64.powi(-9),
        DataType::BF16 => 2f64.powi(-6),
        _ => 0.0,
    };
    let rtol = rtol.max(rounding);
    let atol = atol.max(rounding / 16.0);
    for (place, (a, b)) in result.to_f64().into_iter().zip(expected.to_f64()).enumerate() {
        let equal = a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= atol + rtol * b.abs();
        ensure!(equal, "element {place} of {wanted} is {a}, expected {b}");
    }
    Ok(())
}
