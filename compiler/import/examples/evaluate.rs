//! Imports a model, evaluates it by the reference interpreter and compares with stored outputs:
//! `evaluate MODEL.onnx [INPUTS.npz OUTPUTS.npz]`. Without arrays it only imports and says what came.
//!
//! Arrays are those of `numpy.savez` (not compressed), named as the model's inputs and outputs.

use anyhow::{Context, Result, bail, ensure};
use hone_import::{ImportOptions, InputBinding};
use hone_types::{DataType, Tensor, TensorType};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::Instant;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (model, inputs, outputs) = match arguments.as_slice() {
        [model] => (model, HashMap::new(), HashMap::new()),
        [model, inputs, outputs] => (model, read_npz(inputs)?, read_npz(outputs)?),
        _ => bail!("usage: evaluate MODEL.onnx [INPUTS.npz OUTPUTS.npz]"),
    };
    let start = Instant::now();
    let bindings = inputs.iter().map(|(name, tensor)| InputBinding {
        name: name.clone(),
        shape: tensor.shape().to_vec(),
        dtype: None,
    });
    let options = ImportOptions {
        folder: Path::new(model).parent().map(Path::to_path_buf),
        bindings: bindings.collect(),
        ..ImportOptions::default()
    };
    let bytes = std::fs::read(model).with_context(|| format!("cannot read {model}"))?;
    let imported = hone_import::import(&bytes, &options)?;
    drop(bytes);
    report(&imported, start);
    if inputs.is_empty() {
        return Ok(());
    }
    let start = Instant::now();
    let graph = &imported.graph;
    let given: Option<Vec<Tensor>> =
        graph.inputs().iter().map(|port| inputs.get(&port.name).cloned()).collect();
    let given = given.context("an input is missing")?;
    let mut evaluation = hone_ops::Evaluation::new(graph, &given)?;
    graph.nodes().ids().try_for_each(|node| evaluation.compute(node))?;
    let mut results = evaluation.outputs();
    // What a run decides the size of has room for more.
    for (extent, actual) in graph.extents().iter().zip(evaluation.extents()) {
        let result = &mut results[extent.output];
        let mut shape = result.shape().to_vec();
        shape[extent.axis] = usize::try_from(actual)?;
        let actual = TensorType::new(result.dtype(), shape);
        let bytes = result.bytes()[..actual.bytes()].to_vec();
        *result = Tensor::from_bytes(actual, bytes)?;
    }
    println!("evaluated in {:.1} s", start.elapsed().as_secs_f64());
    for (port, result) in graph.outputs().iter().zip(results) {
        if let Some(expected) = outputs.get(&port.name) {
            compare(&port.name, &result, expected)?;
        }
    }
    Ok(())
}

fn report(imported: &hone_import::Imported, start: Instant) {
    let mut operators: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, node) in imported.graph.nodes().iter() {
        *operators.entry(node.operation.name()).or_default() += 1;
    }
    println!("imported in {:.2} s: {operators:?}", start.elapsed().as_secs_f64());
    imported.warnings.iter().for_each(|warning| println!("warning: {warning}"));
}

fn compare(name: &str, result: &Tensor, expected: &Tensor) -> Result<()> {
    let types = (result.tensor_type(), expected.tensor_type());
    ensure!(types.0 == types.1, "{name} is {}, expected {}", types.0, types.1);
    let (result, expected) = (result.to_f64(), expected.to_f64());
    let scale = expected.iter().fold(0.0f64, |most, value| most.max(value.abs()));
    let error = result.iter().zip(&expected).fold(0.0f64, |most, (a, b)| most.max((a - b).abs()));
    println!("{name}: largest difference {error:.3e}, largest value {scale:.3e}");
    ensure!(error <= 1e-3 * scale.max(1e-3), "{name} differs");
    Ok(())
}

/// The arrays of an uncompressed `.npz` file by name.
fn read_npz(path: &str) -> Result<HashMap<String, Tensor>> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {path}"))?;
    let word = |at: usize, width: usize| -> Result<usize> {
        let field = bytes.get(at..at + width).context("the archive is cut short")?;
        Ok(field.iter().rev().fold(0, |value, byte| value << 8 | usize::from(*byte)))
    };
    // The central directory: its place is in the last record.
    let end = bytes.windows(4).rposition(|window| window == b"PK\x05\x06").context("no archive")?;
    let (count, mut at) = (word(end + 10, 2)?, word(end + 16, 4)?);
    let mut arrays = HashMap::new();
    for _ in 0..count {
        ensure!(word(at + 10, 2)? == 0, "the archive is compressed: use numpy.savez");
        let (size, name, extra) = (word(at + 20, 4)?, word(at + 28, 2)?, word(at + 30, 2)?);
        let (comment, local) = (word(at + 32, 2)?, word(at + 42, 4)?);
        let text = String::from_utf8_lossy(&bytes[at + 46..at + 46 + name]).into_owned();
        let data = local + 30 + word(local + 26, 2)? + word(local + 28, 2)?;
        let array = bytes.get(data..data + size).context("the archive is cut short")?;
        let tensor = read_npy(array).with_context(|| format!("array {text}"))?;
        arrays.insert(text.trim_end_matches(".npy").to_string(), tensor);
        at += 46 + name + extra + comment;
    }
    Ok(arrays)
}

/// One `.npy` array, row-major.
fn read_npy(bytes: &[u8]) -> Result<Tensor> {
    ensure!(bytes.starts_with(b"\x93NUMPY"), "no array");
    let (start, length) = match bytes[6] {
        1 => (10, usize::from(u16::from_le_bytes([bytes[8], bytes[9]]))),
        _ => (12, u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]) as usize),
    };
    let header = std::str::from_utf8(&bytes[start..start + length])?;
    ensure!(header.contains("'fortran_order': False"), "the array is column-major");
    let after = |key: &str| header.split_once(key).map(|(_, rest)| rest).context("no header");
    let code = after("'descr': '")?.split('\'').next().unwrap_or_default();
    let dtype = match code {
        "<f4" => DataType::F32,
        "<f8" => DataType::F64,
        "<f2" => DataType::F16,
        "<i8" => DataType::I64,
        "<i4" => DataType::I32,
        "|i1" => DataType::I8,
        "|u1" => DataType::U8,
        "|b1" => DataType::Bool,
        other => bail!("element type {other} is not read here"),
    };
    let shape = after("'shape': (")?.split(')').next().unwrap_or_default();
    let extents = shape.split(',').map(str::trim).filter(|extent| !extent.is_empty());
    let shape: Vec<usize> = extents.map(str::parse).collect::<Result<_, _>>()?;
    Ok(Tensor::from_bytes(TensorType::new(dtype, shape), bytes[start + length..].to_vec())?)
}
