//! Runs whole models and compares their outputs with what another runtime computed.
//!
//! A model is `NAME.onnx` with `NAME.inputs.npz` and `NAME.outputs.npz`, whose arrays are named as the
//! model's inputs and outputs, as `cargo xtask models` writes them.

mod npz;

pub use npz::read as read_npz;

use std::path::Path;

use anyhow::{Context, Result, ensure};
use hone_import::{ImportOptions, import};
use hone_types::Tensor;

/// How far outputs are from what was expected.
#[derive(Clone, Copy, Debug)]
pub struct Difference {
    /// The largest absolute difference.
    pub absolute: f64,
    /// That over the largest expected number.
    pub relative: f64,
}

/// The outputs of the model file for arrays by name, by the reference interpreter; by name.
pub fn interpret(model: &Path, inputs: &[(String, Tensor)]) -> Result<Vec<(String, Tensor)>> {
    let bytes = std::fs::read(model).with_context(|| format!("cannot read {}", model.display()))?;
    let imported = import(&bytes, &ImportOptions::default())?;
    let graph = imported.graph;
    let find = |name: &str| {
        let input = inputs.iter().find(|(given, _)| given == name);
        input
            .map(|(_, tensor)| tensor.clone())
            .with_context(|| format!("no array for input {name}"))
    };
    let ordered: Result<Vec<Tensor>> = graph.inputs().iter().map(|port| find(&port.name)).collect();
    let outputs = hone_ops::evaluate(&graph, &ordered?)?;
    let names = graph.outputs().iter().map(|port| port.name.clone());
    Ok(names.zip(outputs).collect())
}

/// The difference of `outputs` from `expected`; an error where names, shapes or types differ or a
/// number is not finite.
pub fn compare(outputs: &[(String, Tensor)], expected: &[(String, Tensor)]) -> Result<Difference> {
    let (mut absolute, mut relative) = (0.0_f64, 0.0_f64);
    for (name, wanted) in expected {
        let output = outputs.iter().find(|(given, _)| given == name);
        let (_, output) = output.with_context(|| format!("no output {name}"))?;
        let (found, asked) = (output.tensor_type(), wanted.tensor_type());
        ensure!(found == asked, "output {name} is {found}, expected {asked}");
        let (mut furthest, mut largest) = (0.0_f64, f64::MIN_POSITIVE);
        for (a, b) in output.to_f64().into_iter().zip(wanted.to_f64()) {
            ensure!(a.is_finite(), "output {name} holds {a}");
            furthest = furthest.max((a - b).abs());
            largest = largest.max(b.abs());
        }
        absolute = absolute.max(furthest);
        relative = relative.max(furthest / largest);
    }
    Ok(Difference { absolute, relative })
}
