//! `hone run`: arrays in, arrays out.

use hone_driver::DataType;
use std::path::{Path, PathBuf};

use clap::Args;
use hone_artifact::TensorInfo;
use hone_artifact::exit_code::Reason;
use hone_runtime::{Model, Options};

use super::common::{CacheArguments, is_artifact, model, print, subject};
use crate::binding::Arrays;
use crate::compare::value;
use crate::compiler;
use crate::failure::{Failure, Result};
use crate::npz::{self, Array};
use crate::show::{table, units};
use crate::work::verify::{arrange, random_inputs, run as run_once};

/// What `hone run` takes.
#[derive(Args, Debug)]
#[command(
    override_usage = "hone run [OPTIONS] <SUBJECT> --inputs <FILE.npz>\n       hone run [OPTIONS] <SUBJECT> --random <SEED>"
)]
pub struct Arguments {
    /// An artifact, or a model, which is then compiled for this machine.
    pub subject: PathBuf,
    /// Arrays named as the model's inputs are.
    #[arg(long, value_name = "FILE.npz", required_unless_present = "random")]
    pub inputs: Option<PathBuf>,
    /// Random inputs from this seed instead.
    #[arg(long, value_name = "SEED", conflicts_with = "inputs")]
    pub random: Option<u64>,
    /// Where to write arrays named as the model's outputs are; a summary is printed without it.
    #[arg(long, value_name = "FILE.npz")]
    pub outputs: Option<PathBuf>,
    /// Compute by the reference interpreter, slowly; takes a model.
    #[arg(long)]
    pub reference: bool,
    /// Threads; 0 for all.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub threads: usize,
    /// The shape of an input with open dimensions; for models. Arrays bind them without it.
    #[arg(long, value_name = "NAME=1,2,…")]
    pub shape: Vec<String>,
    /// What is kept between calls.
    #[command(flatten)]
    pub cache: CacheArguments,
}

/// Runs once.
///
/// # Errors
/// Inputs that do not fit, an artifact that cannot be used, a file that cannot be written.
pub fn run(arguments: &Arguments) -> Result<()> {
    let arrays = arguments.inputs.as_deref().map(Arrays::read).transpose()?;
    let (tensors, outputs) = match arguments.reference {
        true => by_reference(arguments, arrays)?,
        false => by_artifact(arguments, arrays)?,
    };
    let arrays = tensors.into_iter().zip(outputs).map(|(tensor, bytes)| Array {
        name: tensor.name,
        dtype: tensor.dtype,
        shape: tensor.shape,
        bytes,
    });
    let arrays: Vec<Array> = arrays.collect();
    match &arguments.outputs {
        Some(path) => npz::write(path, &arrays),
        None => print(&summary(&arrays)),
    }
}

type Outputs = (Vec<TensorInfo>, Vec<Vec<u8>>);

fn by_artifact(arguments: &Arguments, arrays: Option<Arrays>) -> Result<Outputs> {
    let Arguments { subject: path, shape, cache, .. } = arguments;
    let subject = subject(path, shape, arrays.as_ref(), DataType::F32, cache)?;
    let options = Options { threads: arguments.threads, ..Options::default() };
    let mut model = Model::load(&subject.path, &options)?;
    let members = [model.members(false), model.members(true)].concat();
    refuse_strings(path, members.iter().any(|(member, _)| member.text))?;
    if let Some(Arrays { arrays: given, file }) = &arrays {
        let shapes = shapes_of(model.inputs(), given, file)?;
        let shapes: Vec<&[u64]> = shapes.iter().map(Vec::as_slice).collect();
        // Of an artifact for one size, the arrays are told apart in the words of the model.
        if model.sizes().len() > 1 {
            model.set_input_shapes(&shapes)?;
        }
    }
    let inputs = inputs(arguments, arrays, model.inputs())?;
    let outputs = run_once(&mut model, &inputs)?;
    let shapes = model.output_shapes();
    Ok(cut(model.outputs().to_vec(), outputs, shapes))
}

fn by_reference(arguments: &Arguments, arrays: Option<Arrays>) -> Result<Outputs> {
    if is_artifact(&arguments.subject)? {
        let message = format!(
            "'{}' is an artifact, which holds no reference: give the model that it was compiled from",
            arguments.subject.display()
        );
        return Err(Failure::new(Reason::Usage, message));
    }
    let (model, shapes) = model(&arguments.subject, &arguments.shape, arrays.as_ref())?;
    let shapes = match &arrays {
        // Arrays have one size each, whichever others are named.
        Some(arrays) => arrays.bind(&compiler::signature(&model)?, Vec::new())?,
        None => compiler::one_size(&model, &shapes, "the reference")?,
    };
    let graph = compiler::reference(&model, &shapes)?;
    let mut members = graph.interface().inputs.iter().chain(&graph.interface().outputs);
    refuse_strings(&arguments.subject, members.any(|member| member.text))?;
    let inputs = inputs(arguments, arrays, &compiler::ports(&graph, false)?)?;
    let (outputs, shapes) = compiler::evaluate_shaped(&graph, &inputs)?;
    Ok(cut(compiler::ports(&graph, true)?, outputs, &shapes))
}

/// The shape of the array for each input.
fn shapes_of(ports: &[TensorInfo], arrays: &[Array], file: &str) -> Result<Vec<Vec<u64>>> {
    let shape = |port: &TensorInfo| {
        let array = arrays.iter().find(|array| array.name == port.name);
        let array = array.ok_or_else(|| {
            let message = format!("'{file}' does not fit the model");
            let why = format!("it has no array '{}', which the model takes", port.name);
            Failure::because(Reason::InvalidInput, message, why)
        })?;
        Ok(array.shape.clone())
    };
    ports.iter().map(shape).collect()
}

/// Refuses what takes or gives strings: arrays of them are neither read nor written here.
fn refuse_strings(path: &Path, has_strings: bool) -> Result<()> {
    if !has_strings {
        return Ok(());
    }
    let message = format!(
        "'{}' takes or gives strings, which 'hone run' neither reads nor writes: run it from Python, Rust or C",
        path.display()
    );
    Err(Failure::new(Reason::Usage, message))
}

/// Outputs in the shapes that the run gave them.
fn cut(mut tensors: Vec<TensorInfo>, mut outputs: Vec<Vec<u8>>, shapes: &[Vec<u64>]) -> Outputs {
    for ((tensor, bytes), shape) in tensors.iter_mut().zip(&mut outputs).zip(shapes) {
        if let Some(actual) = TensorInfo::new(&tensor.name, tensor.dtype, shape.clone()) {
            bytes.truncate(actual.bytes as usize);
            *tensor = actual;
        }
    }
    (tensors, outputs)
}

fn inputs(
    arguments: &Arguments,
    arrays: Option<Arrays>,
    ports: &[TensorInfo],
) -> Result<Vec<Vec<u8>>> {
    match arrays {
        Some(Arrays { arrays, file }) => arrange(ports, arrays, &file),
        None => Ok(random_inputs(ports, arguments.random.unwrap_or_default())),
    }
}

/// Least, most and mean of each output.
fn summary(arrays: &[Array]) -> String {
    let mut table = table::table(&["output", "type", "least", "mean", "most"]);
    for array in arrays {
        let size = (array.dtype.bits() / 8) as usize;
        let values: Vec<f64> =
            array.bytes.chunks_exact(size).map(|bytes| value(array.dtype, bytes)).collect();
        let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        table.add_row(vec![
            array.name.clone(),
            array.description(),
            units::significant(least),
            units::significant(mean),
            units::significant(most),
        ]);
    }
    table.to_string()
}
