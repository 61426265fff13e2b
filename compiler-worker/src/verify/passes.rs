//! Whether the passes kept the model's answers, on the reference interpreter: the graph as imported against
//! the graph as prepared, before anything is compiled.

use hone_driver::{DataType, Graph, Options, Tensor};

use crate::compare::{Comparison, Tolerance};
use crate::compiler::{evaluate_tensors, ports, reference_failed};
use crate::failure::Result;

/// Largest error, relative to the largest magnitude in an output, of `f64` arithmetic in another order.
pub const LIFTED_BOUND: f64 = 1e-7;

/// What checking the passes gave.
#[derive(Clone, Debug, PartialEq)]
pub struct PassCheck {
    /// Whether the model rounds to integers, so that both graphs were computed in `f64`.
    pub lifted: bool,
    /// Largest error as a fraction of the largest magnitude in its output.
    pub error: f64,
    /// What is wrong.
    pub fault: Option<String>,
    /// Why a model that rounds could not be checked.
    pub unchecked: Option<String>,
}

/// Compares outputs of both graphs in the model's own arithmetic, by the user's tolerance: for models that do
/// not round to integers.
///
/// # Errors
/// Outputs that no artifact can have.
pub fn check(
    imported: &Graph,
    want: &[Vec<u8>],
    got: &[Tensor],
    tolerance: Tolerance,
) -> Result<PassCheck> {
    let mut comparison = Comparison::default();
    for ((port, want), got) in ports(imported, true)?.iter().zip(want).zip(got) {
        comparison.add(port, got.bytes(), want, tolerance);
    }
    let fault = comparison.worst.filter(|_| comparison.outside > 0).map(|worst| {
        format!("{} elements are out of tolerance, worst at {worst}", comparison.outside)
    });
    Ok(PassCheck { lifted: false, error: comparison.max_fraction, fault, unchecked: None })
}

/// Compares both graphs in `f64`, and the prepared one with what is compiled: for models that round to
/// integers.
///
/// # Errors
/// A reference that cannot be computed.
pub fn check_lifted(imported: &Graph, options: &Options, inputs: &[Tensor]) -> Result<PassCheck> {
    let mut check = PassCheck { lifted: true, error: 0.0, fault: None, unchecked: None };
    let compiled = hone_driver::prepare_exactly(imported, options, DataType::F32, &mut |_, _| {})
        .map_err(|error| reference_failed(Box::new(error)))?;
    let lifted = match hone_driver::lift(imported) {
        Ok(lifted) => lifted,
        Err(error) => {
            check.unchecked = Some(error.to_string());
            return Ok(check);
        }
    };
    let prepared =
        match hone_driver::prepare_exactly(&lifted, options, DataType::F64, &mut |_, _| {}) {
            Ok(prepared) => prepared,
            Err(error) => {
                check.unchecked = Some(error.to_string());
                return Ok(check);
            }
        };
    let another_way = |difference| Some(format!("passes take another way in f64: {difference}"));
    let apart = match hone_driver::same_structure(&compiled, &prepared) {
        Ok(apart) => apart,
        Err(difference) => {
            check.unchecked = another_way(difference);
            return Ok(check);
        }
    };
    let inputs: std::result::Result<Vec<Tensor>, _> =
        inputs.iter().map(hone_driver::lift_tensor).collect();
    let inputs = inputs.map_err(|error| reference_failed(Box::new(error)))?;
    let want = evaluate_tensors(&lifted, &inputs)?;
    let (got, difference) = hone_driver::evaluate_lifted(&prepared, &apart, &inputs)
        .map_err(|error| reference_failed(error.into()))?;
    check.unchecked = difference.and_then(another_way);
    for ((port, want), got) in imported.outputs().iter().zip(&want).zip(&got) {
        let (error, place) = largest_error(got, want);
        check.error = check.error.max(error);
        if error > LIFTED_BOUND {
            check.fault.get_or_insert(format!(
                "output '{}', element {place}, differs by {error:.1e} of the largest in f64, where {LIFTED_BOUND:.0e} is explained",
                port.name
            ));
        }
    }
    Ok(check)
}

/// The largest error as a fraction of the largest magnitude wanted, and where it is.
fn largest_error(got: &Tensor, want: &Tensor) -> (f64, usize) {
    let (got, want) = (got.to_f64(), want.to_f64());
    let finite = want.iter().map(|own| own.abs()).filter(|own| own.is_finite());
    let largest = finite.fold(f64::MIN_POSITIVE, f64::max);
    let mut worst = (0.0, 0);
    for (index, (got, want)) in got.iter().zip(&want).enumerate() {
        let same = got == want || (got.is_nan() && want.is_nan());
        let error = if same { 0.0 } else { (got - want).abs() / largest };
        let error = if error.is_nan() { f64::INFINITY } else { error };
        if error > worst.0 {
            worst = (error, index);
        }
    }
    worst
}
