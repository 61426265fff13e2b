//! The Python module `hone._compiler`: a model file's bytes to an artifact's.
//!
//! Reading files, keeping compiled forms and everything that a person sees is in Python (`hone/*.py`).

use std::path::PathBuf;

use hone_artifact::request::Input;
use hone_artifact::{Extent, with_causes};
use hone_dimensions::{DimensionError, Source};
use hone_driver::{
    Bytes, CompileError, DataType, Dimension, ImportError, ImportOptions, InputForm, KeyType,
    Options, PortSignature, Target, Tensor, TensorType,
};
use hone_images::{PixelFormat, Size};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

/// Sizes of each axis of an input, or of a dimension, by its name: texts as `16`, `16|32`, `1..512` and `1..`.
type Shapes = Vec<(String, Vec<String>)>;
/// How many tensors an input has that is a sequence, by name; nothing of an optional input that is left out.
type Forms = Vec<(String, Option<usize>)>;
/// Name, element type, shape and bytes of an input whose value is known.
type Constants = Vec<(String, String, Vec<usize>, Vec<u8>)>;

/// Inputs and outputs as a model declares them: two lists of name, element type or nothing, the shape or
/// nothing, whether it is a sequence of such tensors, whether it may be left out, and of a map to such values the type of
/// its keys; an extent is a number, a name, or nothing.
#[pyfunction]
fn signature<'py>(py: Python<'py>, model: &Bound<'py, PyBytes>) -> PyResult<Bound<'py, PyAny>> {
    let signature = hone_driver::signature(model.as_bytes())
        .map_err(|error| refuse(py, &error, Some(&error)))?;
    let ports = |ports: &[PortSignature]| -> PyResult<Vec<Bound<'py, PyAny>>> {
        ports.iter().map(|own| port(py, own)).collect()
    };
    Ok((ports(&signature.inputs)?, ports(&signature.outputs)?).into_pyobject(py)?.into_any())
}

fn port<'py>(py: Python<'py>, port: &PortSignature) -> PyResult<Bound<'py, PyAny>> {
    let extent = |dimension: &Dimension| -> PyResult<Bound<'py, PyAny>> {
        Ok(match dimension {
            Dimension::Fixed(extent) => extent.into_pyobject(py)?.into_any(),
            Dimension::Symbol(name) => name.into_pyobject(py)?.into_any(),
            Dimension::Unknown => py.None().into_bound(py),
        })
    };
    let shape: Option<Vec<_>> =
        port.shape.as_ref().map(|shape| shape.iter().map(extent).collect()).transpose()?;
    let narrow = port.narrow.map(|narrow| narrow.name());
    let dtype = narrow.or(port.dtype.map(DataType::name));
    let map = port.map.map(|key| match key {
        KeyType::Text => "string",
        KeyType::I64 => "i64",
    });
    let own = (port.name.as_str(), dtype, shape, port.sequence, port.optional, map);
    Ok(own.into_pyobject(py)?.into_any())
}

/// Compiles; gives the artifact and a dictionary of facts: `warnings`, `nodes`, `steps`, `kernels`,
/// `arena_bytes`, `weight_bytes`, `flops`, `seconds`.
#[pyfunction]
#[pyo3(signature = (model, folder, shapes, forms, constants, cpu, arch, precision, inspection))]
#[expect(clippy::too_many_arguments, reason = "keywords of a Python function")]
fn compile<'py>(
    py: Python<'py>,
    model: &Bound<'py, PyBytes>,
    folder: Option<PathBuf>,
    shapes: Shapes,
    forms: Forms,
    constants: Constants,
    cpu: &str,
    arch: &str,
    precision: &str,
    inspection: bool,
) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyDict>)> {
    let import = import_options(folder, forms, constants)?;
    let target = match cpu {
        "host" => Target::host(),
        cpu => Target::for_platform("linux", arch, cpu),
    };
    let target = target.map_err(|error| refuse(py, &error, None))?;
    let precision: DataType = precision.parse().map_err(invalid)?;
    let options = Options { precision, keep_inspection: inspection, ..Options::new(target) };
    let bytes = Bytes::copy_from_slice(model.as_bytes());
    let inputs = inputs(py, &bytes, shapes)?;
    let source = Source { bytes: &bytes, options: &import };
    let sized = py.detach(|| hone_dimensions::resolve(&source, &inputs)?.import(&source));
    let (graphs, dimensions) = sized.map_err(|error| refuse_sizes(py, &error))?;
    let compiled = py.detach(|| hone_driver::compile_dynamic(graphs, dimensions, &bytes, &options));
    let compiled = compiled.map_err(|error| refuse(py, &error, import_error(&error)))?;
    let (facts, statistics) = (PyDict::new(py), &compiled.statistics);
    let seconds: f64 = statistics.stages.iter().map(|(_, time)| time.as_secs_f64()).sum();
    facts.set_item("nodes", statistics.nodes)?;
    facts.set_item("steps", statistics.steps)?;
    facts.set_item("kernels", statistics.kernels)?;
    facts.set_item("arena_bytes", statistics.arena_bytes)?;
    facts.set_item("weight_bytes", statistics.weight_bytes)?;
    facts.set_item("flops", statistics.flops)?;
    facts.set_item("seconds", seconds)?;
    Ok((PyBytes::new(py, &compiled.artifact), facts))
}

/// What `shapes` says. A list of numbers under the name of a dimension is its sizes.
fn inputs(py: Python<'_>, model: &[u8], shapes: Shapes) -> PyResult<Vec<Input>> {
    if shapes.is_empty() {
        return Ok(Vec::new());
    }
    let signature =
        hone_driver::signature(model).map_err(|error| refuse(py, &error, Some(&error)))?;
    let mut given = Vec::new();
    for (name, shape) in shapes {
        let is_input = signature.inputs.iter().any(|port| port.name == name);
        let is_dimension = signature.inputs.iter().any(|port| {
            let mut shape = port.shape.iter().flatten();
            shape.any(|own| matches!(own, Dimension::Symbol(symbol) if *symbol == name))
        });
        let shape = match is_dimension && !is_input && !shape.is_empty() {
            true => vec![shape.join("|")],
            false => shape,
        };
        let extents = shape.iter().map(|text| {
            let extent = text.parse::<Extent>();
            extent.map_err(|error| invalid(format!("the sizes of '{name}': {error}")))
        });
        given.push(Input { shape: extents.collect::<PyResult<_>>()?, name, dtype: None });
    }
    Ok(given)
}

/// What the importer says behind an error.
fn import_error(error: &CompileError) -> Option<&ImportError> {
    match error {
        CompileError::Import(import) => Some(import.as_ref()),
        _ => None,
    }
}

/// The exception of a model that cannot be compiled for its sizes, with sizes that could be given where some must be.
fn refuse_sizes(py: Python<'_>, error: &DimensionError) -> PyErr {
    match error {
        DimensionError::Signature(import) => refuse(py, import.as_ref(), Some(import)),
        DimensionError::Import(import) => refuse(py, import.as_ref(), import_error(import)),
        DimensionError::Open(open) => {
            let entry = |needed: &hone_dimensions::NeededDimension| {
                format!("{:?}: {}", needed.name, needed.proposed)
            };
            let entries: Vec<String> = open.needed.iter().map(entry).collect();
            let text = format!("{open}\nfor example: shapes={{{}}}", entries.join(", "));
            raise(py, "CompileError", text, None)
        }
        other => refuse(py, other, None),
    }
}

fn import_options(
    folder: Option<PathBuf>,
    forms: Forms,
    constants: Constants,
) -> PyResult<ImportOptions> {
    let form = |(name, tensors): (String, Option<usize>)| {
        (name, tensors.map_or(InputForm::Absent, InputForm::Sequence))
    };
    let constants = constants.into_iter().map(|(name, dtype, shape, bytes)| {
        let dtype: DataType = dtype.parse().map_err(invalid)?;
        let tensor = Tensor::from_bytes(TensorType::new(dtype, shape), bytes);
        Ok((name, tensor.map_err(|error| invalid(error.to_string()))?))
    });
    Ok(ImportOptions {
        folder,
        forms: forms.into_iter().map(form).collect(),
        constants: constants.collect::<PyResult<_>>()?,
        ..ImportOptions::default()
    })
}

fn invalid(message: String) -> PyErr {
    pyo3::exceptions::PyValueError::new_err(message)
}

/// The exception of `hone` that says `error` and its causes: `UnsupportedError` where the model is sound, else
/// `CompileError`; with the inputs whose values are needed, where they are.
fn refuse(py: Python<'_>, error: &dyn std::error::Error, import: Option<&ImportError>) -> PyErr {
    let text = with_causes(error);
    let decided_by = import.and_then(ImportError::decided_by).map(<[String]>::to_vec);
    let class = match import {
        Some(ImportError::Unsupported(_) | ImportError::Version { .. }) => "UnsupportedError",
        _ => "CompileError",
    };
    raise(py, class, text, decided_by)
}

/// An exception of `hone`.
fn raise(py: Python<'_>, class: &str, text: String, decided_by: Option<Vec<String>>) -> PyErr {
    let make = || py.import("hone")?.getattr(class)?.call1((text, decided_by));
    make().map_or_else(|error| error, PyErr::from_value)
}

/// Operators that are taken: the operator set (empty for ONNX's own) and the operator.
#[pyfunction]
fn supported() -> Vec<(&'static str, &'static str)> {
    hone_driver::supported_operators().collect()
}

/// Decodes an image of a known size: bytes `[height, width, channels]` as `pixel_format` (`RGB`, `BGR`, `Grayscale`) says. The
/// decoder that `hone` gives to `hone_runtime`.
#[pyfunction]
fn decode_image<'py>(
    py: Python<'py>,
    image: &Bound<'py, PyBytes>,
    height: usize,
    width: usize,
    pixel_format: &str,
) -> PyResult<Bound<'py, PyBytes>> {
    let format = PixelFormat::from_name(pixel_format)
        .ok_or_else(|| invalid(format!("'{pixel_format}' is no format of pixels")))?;
    let room = height.checked_mul(width).and_then(|own| own.checked_mul(format.channels()));
    let room = room.ok_or_else(|| invalid(format!("{height} by {width} pixels are too many")))?;
    let bytes = image.as_bytes();
    PyBytes::new_with(py, room, |pixels| {
        let size = Size { height, width };
        let decoded = py.detach(|| hone_images::decode(bytes, format, size, pixels));
        decoded.map_err(|error| invalid(with_causes(&error)))
    })
}

/// What `hone` is made of, beside `hone_runtime`.
#[pymodule]
fn _compiler(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(signature, module)?)?;
    module.add_function(wrap_pyfunction!(compile, module)?)?;
    module.add_function(wrap_pyfunction!(decode_image, module)?)?;
    module.add_function(wrap_pyfunction!(supported, module)?)
}
