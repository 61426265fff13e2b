//! `hone run`: arrays in, arrays out.

use hone_driver::DataType;
use std::path::PathBuf;

use clap::Args;
use hone_artifact::TensorInfo;
use hone_artifact::exit_code::Reason;
use hone_runtime::{Model, Options};

use super::common::{CacheArguments, is_artifact, model, print, subject};
use crate::binding::Arrays;
use crate::compare::value;
use crate::compiler;
use crate::failure::{Failure, Result};
use crate::images;
use crate::maps;
use crate::npz::{self, Array};
use crate::random::Random;
use crate::show::{table, units};
use crate::texts;
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
    let arrays = match arguments.reference {
        true => by_reference(arguments, arrays)?,
        false => by_artifact(arguments, arrays)?,
    };
    match &arguments.outputs {
        Some(path) => npz::write(path, &arrays),
        None => print(&summary(&arrays)),
    }
}

fn by_artifact(arguments: &Arguments, arrays: Option<Arrays>) -> Result<Vec<Array>> {
    let Arguments { subject: path, shape, cache, .. } = arguments;
    let subject = subject(path, shape, arrays.as_ref(), DataType::F32, cache)?;
    let options = Options { threads: arguments.threads, ..Options::default() };
    let mut model = Model::load(&subject.path, &options)?;
    texts::teach_model(&mut model);
    for text in
        arrays.iter().flat_map(|own| &own.arrays).flat_map(|array| array.texts.iter().flatten())
    {
        model.text_handle(text)?;
    }
    let members = model.members(false);
    let arrays = arrays.map(|own| own.laid_out(&maps::of_members(&members))).transpose()?;
    if let Some(Arrays { arrays: given, file }) = &arrays {
        let shapes = shapes_of(model.inputs(), given, file)?;
        let shapes: Vec<&[u64]> = shapes.iter().map(Vec::as_slice).collect();
        // Of an artifact for one size, the arrays are told apart in the words of the model.
        if model.sizes().len() > 1 || model.padded_dimension().is_some() {
            model.set_input_shapes(&shapes)?;
        }
    }
    let inputs = match arrays {
        Some(arrays) => arranged(arrays, model.inputs(), &model.text_tensors(false))?,
        None => {
            let seed = arguments.random.unwrap_or_default();
            let mut inputs = random_inputs(model.inputs(), seed);
            texts::fill(&members, &mut inputs);
            images::fill_model(&model, &mut inputs, &mut Random::new(seed));
            inputs
        }
    };
    let outputs = run_once(&mut model, &inputs)?;
    let arrays = cut(model.outputs(), outputs, model.output_shapes());
    with_texts(arrays, &model.text_tensors(true), |handle| model.text(handle).map(str::to_owned))
}

fn by_reference(arguments: &Arguments, arrays: Option<Arrays>) -> Result<Vec<Array>> {
    if is_artifact(&arguments.subject)? {
        let message = format!(
            "'{}' is an artifact, which holds no reference: give the model that it was compiled from",
            arguments.subject.display()
        );
        return Err(Failure::new(Reason::Usage, message));
    }
    let kept = arguments.cache.open()?;
    let (model, shapes) =
        model(&arguments.subject, &arguments.shape, arrays.as_ref(), kept.folder())?;
    let shapes = match &arrays {
        // Arrays have one size each, whichever others are named.
        Some(arrays) => arrays.bind(&compiler::signature(&model)?, Vec::new())?,
        None => compiler::one_size(&model, &shapes, "the reference")?,
    };
    let graph = compiler::reference(&model, &shapes)?;
    let given =
        arrays.iter().flat_map(|own| &own.arrays).flat_map(|array| array.texts.iter().flatten());
    for text in texts::WORDS.into_iter().chain(given.map(String::as_str)) {
        hone_driver::intern_text(text).map_err(|error| {
            Failure::because(Reason::InvalidInput, "a string cannot be given", error)
        })?;
    }
    let ports = compiler::ports(&graph, false)?;
    let inputs = match arrays {
        Some(arrays) => {
            let arrays = arrays.laid_out(&maps::of_graph(&graph))?;
            arranged(arrays, &ports, &texts::flags(&graph, false))?
        }
        None => {
            let seed = arguments.random.unwrap_or_default();
            let mut inputs = random_inputs(&ports, seed);
            texts::fill_graph(&graph, &mut inputs);
            images::fill_graph(&graph, &mut inputs, &mut Random::new(seed));
            inputs
        }
    };
    let (outputs, shapes) = compiler::evaluate_shaped(&graph, &inputs)?;
    let arrays = cut(&compiler::ports(&graph, true)?, outputs, &shapes);
    with_texts(arrays, &texts::flags(&graph, true), |handle| {
        hone_driver::text_of(handle).map(|text| text.to_string())
    })
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

/// Outputs in the shapes that the run gave them.
fn cut(tensors: &[TensorInfo], outputs: Vec<Vec<u8>>, shapes: &[Vec<u64>]) -> Vec<Array> {
    let array = |((tensor, mut bytes), shape): ((&TensorInfo, Vec<u8>), &Vec<u64>)| {
        let actual = TensorInfo::new(&tensor.name, tensor.dtype, shape.clone());
        let TensorInfo { name, dtype, shape, bytes: count } =
            actual.unwrap_or_else(|| tensor.clone());
        bytes.truncate(count as usize);
        Array { name, dtype, shape, bytes, texts: None }
    };
    tensors.iter().zip(outputs).zip(shapes).map(array).collect()
}

/// Arrays of which those that `of_text` marks have the strings that their elements stand for.
fn with_texts(
    mut arrays: Vec<Array>,
    of_text: &[bool],
    text_of: impl Fn(u64) -> Option<String>,
) -> Result<Vec<Array>> {
    for (array, _) in arrays.iter_mut().zip(of_text).filter(|(_, own)| **own) {
        let handles = array.bytes.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
        let texts: Option<Vec<String>> = handles.map(&text_of).collect();
        let texts = texts.ok_or_else(|| {
            let message = format!(
                "output '{}' has a string that nobody knows; please report this",
                array.name
            );
            Failure::new(Reason::InternalError, message)
        })?;
        array.texts = Some(texts);
    }
    Ok(arrays)
}

/// Arrays in the order of the inputs; `of_text` says which take strings.
fn arranged(
    Arrays { arrays, file }: Arrays,
    ports: &[TensorInfo],
    of_text: &[bool],
) -> Result<Vec<Vec<u8>>> {
    for (port, of_text) in ports.iter().zip(of_text) {
        let array = arrays.iter().find(|array| array.name == port.name);
        if let Some(array) = array.filter(|array| array.texts.is_some() != *of_text) {
            let found = array.description();
            let wanted = if *of_text { "strings: convert it with .astype(str)" } else { "numbers" };
            let why = format!("array '{}' is {found}, the model takes {wanted}", port.name);
            return Err(Failure::because(
                Reason::InvalidInput,
                format!("'{file}' does not fit the model"),
                why,
            ));
        }
    }
    arrange(ports, arrays, &file)
}

/// Least, most and mean of each output.
fn summary(arrays: &[Array]) -> String {
    let mut table = table::table(&["output", "type", "least", "mean", "most"]);
    for array in arrays {
        if let Some(texts) = &array.texts {
            let first: Vec<String> = texts.iter().take(3).map(|text| format!("{text:?}")).collect();
            let rest = if texts.len() > 3 { ", …" } else { "" };
            let shown = format!("{}{rest}", first.join(", "));
            let none = String::new;
            table.add_row(vec![array.name.clone(), array.description(), shown, none(), none()]);
            continue;
        }
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
