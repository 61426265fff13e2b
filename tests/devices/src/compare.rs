//! How near results have to be.

use anyhow::{Result, ensure};
use hone_tensor::Program;
use hone_types::{DataType, Tensor};

/// How far a device's functions may be off: a few units in the last number of each, summed over a few steps, in the
/// narrowest floating-point type of the program.
fn precision(program: &Program) -> f64 {
    let types = program.buffers.iter().map(|(_, buffer)| match buffer.dtype {
        DataType::F64 => 1e-12,
        DataType::F32 => 2e-5,
        DataType::F16 => 2e-3,
        DataType::BF16 => 2e-2,
        _ => 0.0,
    });
    types.fold(0.0, f64::max)
}

/// Holds what came out of a program against what was expected. Whole numbers are equal, but for one in fifty that may be the other neighbour of what was rounded.
///
/// # Errors
/// The first element that is too far off.
pub fn compare(program: &Program, results: &[Tensor], expected: &[Tensor]) -> Result<()> {
    let relative = precision(program);
    for (number, (result, expected)) in results.iter().zip(expected).enumerate() {
        let (result, expected, dtype) = (result.to_f64(), expected.to_f64(), expected.dtype());
        let largest =
            expected.iter().filter(|value| value.is_finite()).fold(0f64, |a, b| a.max(b.abs()));
        let mut neighbours = 0;
        for (element, (a, b)) in result.iter().zip(&expected).enumerate() {
            let equal = a == b || (a.is_nan() && b.is_nan());
            let near = match dtype.is_float() {
                true => (a - b).abs() <= relative * (b.abs() + 0.1 * largest),
                false => relative > 0.0 && dtype != DataType::Bool && (a - b).abs() == 1.0,
            };
            ensure!(equal || near, "output {number}, element {element}: {a}, expected {b}");
            neighbours += usize::from(!equal && !dtype.is_float());
        }
        let most = 1 + expected.len() / 50;
        ensure!(
            neighbours <= most,
            "output {number}: {neighbours} of {} are one off",
            expected.len()
        );
    }
    Ok(())
}
