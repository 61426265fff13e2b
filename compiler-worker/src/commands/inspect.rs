//! `hone inspect`: what is inside an artifact, or the graph of a model.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use clap::Args;
use hone_artifact::exit_code::Reason;
use hone_artifact::{
    Inspect, KernelText, Language, Manifest, Reader, Slot, Step, TensorInfo, Variant,
};
use hone_driver::Constants;
use serde_json::json;

use super::common::{is_artifact, model, print, print_json, reader};
use crate::cache;
use crate::compiler;
use crate::failure::{Failure, Result};
use crate::npz;
use crate::show::{table, units};
use crate::spec;
use crate::storage::local;

/// What `hone inspect` takes.
#[derive(Args, Debug)]
pub struct Arguments {
    /// The artifact, or a model, whose graph is printed in its text form.
    pub subject: PathBuf,
    /// Of a model: the shape of an input whose dimensions are open.
    #[arg(long, value_name = "NAME=1,2,3")]
    pub shape: Vec<String>,
    /// Of a model: the graph that a pass leaves, for this machine, in place of the one that the model says.
    #[arg(long, value_name = "PASS")]
    pub after: Option<String>,
    /// Show one kernel: its schedule as a trace, its loop program, and its machine code.
    #[arg(long, value_name = "NAME")]
    pub kernel: Option<String>,
    /// Show where in the arena each step reads and writes.
    #[arg(long)]
    pub memory: bool,
    /// Print the manifest as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Shows it.
///
/// # Errors
/// An artifact that is damaged; a kernel that is not in it.
pub fn run(arguments: &Arguments) -> Result<()> {
    let is_artifact = is_artifact(&arguments.subject)?;
    refuse_of_the_other(arguments, is_artifact)?;
    if !is_artifact {
        return graph(arguments);
    }
    let bytes = local::map(&arguments.subject)?;
    let reader = reader(&arguments.subject, &bytes)?;
    if let Some(name) = &arguments.kernel {
        return kernel(&reader, name);
    }
    if arguments.json {
        return print_json(&json!({"digest": reader.digest(), "manifest": reader.manifest()}));
    }
    let mut text = head(&reader);
    if let Some(open) = &reader.manifest().open {
        text.push_str(&format!(
            "any size of '{}': runs at sizes without a variant are composed of those\n",
            open.name
        ));
    }
    if let Some(padded) = &reader.manifest().padded {
        let multiples =
            padded.multiple.map_or(String::new(), |own| format!("multiple of {own} as "));
        let from = padded.least.map_or(String::new(), |least| format!("from {least} "));
        text.push_str(&format!(
            "every {multiples}size of '{}' {from}up to the largest variant's: a run has the next larger variant's room\n",
            padded.name
        ));
    }
    for (index, variant) in reader.manifest().variants.iter().enumerate() {
        let sizes = variant.shapes.as_ref().map_or(String::new(), |shapes| format!(" ({shapes})"));
        text.push_str(&format!("\nvariant {index}{sizes}\n{}\n", summary(&reader, variant)));
        text.push_str(&match arguments.memory {
            true => memory(variant),
            false => steps(variant),
        });
        text.push('\n');
    }
    print(&text)
}

/// Refuses options that mean something for a model only where an artifact was given, and the other way round.
fn refuse_of_the_other(arguments: &Arguments, is_artifact: bool) -> Result<()> {
    let Arguments { kernel, memory, json, shape, after, .. } = arguments;
    let of_artifacts = [(kernel.is_some(), "--kernel"), (*memory, "--memory"), (*json, "--json")];
    let of_models = [(!shape.is_empty(), "--shape"), (after.is_some(), "--after")];
    let (other, what, is) = match is_artifact {
        true => (&of_models[..], "a model", "an artifact"),
        false => (&of_artifacts[..], "an artifact", "a model"),
    };
    let Some((_, option)) = other.iter().find(|(is_given, _)| *is_given) else { return Ok(()) };
    let path = arguments.subject.display();
    let message = format!("{option} is for {what}, and '{path}' is {is}: leave it out");
    Err(Failure::new(Reason::Usage, message))
}

/// Prints a model's graph, long constants as digests.
fn graph(arguments: &Arguments) -> Result<()> {
    let (model, inputs) =
        model(&arguments.subject, &arguments.shape, None, &cache::folder_for_large_files())?;
    let inputs = compiler::one_size(&model, &inputs, "a graph")?;
    let graph = compiler::reference(&model, &inputs)?;
    let Some(wanted) = &arguments.after else {
        return print(&graph.to_text(Constants::Digest));
    };
    let target = compiler::target(&spec::target_from_text("host")?)?;
    let passes = compiler::passes(&graph, &target)?;
    let Some((_, left)) = passes.iter().rev().find(|(pass, _)| pass == wanted) else {
        // Some run twice.
        let mut names: Vec<&str> = Vec::new();
        passes.iter().for_each(|(pass, _)| {
            if !names.contains(pass) {
                names.push(pass);
            }
        });
        let message = format!("there is no pass '{wanted}': use one of {}", names.join(", "));
        return Err(Failure::new(Reason::InvalidInput, message));
    };
    print(left)
}

fn head(reader: &Reader<'_>) -> String {
    let Manifest { model_digest, compiler_version, inputs, outputs, .. } = reader.manifest();
    let ports = |kind: &str, tensors: &[TensorInfo]| -> String {
        let line =
            |t: &TensorInfo| format!("{kind:<9}{} {}\n", t.name, npz::describe(t.dtype, &t.shape));
        tensors.iter().map(line).collect()
    };
    let mut text = format!(
        "digest   {}\nmodel    {model_digest}\ncompiler {compiler_version}\n",
        reader.digest()
    );
    text.push_str(&ports("input", inputs));
    text.push_str(&ports("output", outputs));
    for section in reader.sections() {
        let (kind, length) = (section.kind.name(), units::bytes(section.length));
        text.push_str(&format!("section  {kind} {length} at byte {}\n", section.offset));
    }
    text
}

fn summary(reader: &Reader<'_>, variant: &Variant) -> String {
    let code = reader.code(variant.code).map_or(0, |code| code.len() as u64);
    let flops: u64 = variant.steps.iter().map(|step| step.flops).sum();
    let kernels: BTreeMap<&str, ()> =
        variant.steps.iter().map(|step| (step.kernel.as_str(), ())).collect();
    format!(
        "  target   {} {}\n  features {}\n  steps    {} by {} kernels, {} MFLOP\n  code     {}\n  weights  {}\n  arena    {}\n  scratch  {} a thread",
        variant.target.triple,
        variant.target.cpu,
        variant.target.features.join(" "),
        variant.steps.len(),
        kernels.len(),
        units::digits(flops as f64 / 1e6),
        units::bytes(code),
        units::bytes(variant.weights_bytes),
        units::bytes(variant.arena_bytes),
        units::bytes(variant.scratch_bytes_per_thread),
    )
}

fn steps(variant: &Variant) -> String {
    let mut table = table::table(&["nodes", "kernel", "tasks", "work", "reads", "writes"]);
    for step in &variant.steps {
        table.add_row(vec![
            table::short(&step.nodes),
            step.kernel.clone(),
            tasks(step),
            units::digits(step.flops as f64 / 1e6) + " MFLOP",
            units::bytes(step.bytes_read),
            units::bytes(step.bytes_written),
        ]);
    }
    table.to_string()
}

/// The tasks of a step; where it runs in waves, their number and the parts of each.
fn tasks(step: &Step) -> String {
    match step.waves {
        Some(waves) => format!("{} × {}", waves.waves, waves.parts),
        None => step.tasks.to_string(),
    }
}

/// The memory plan: which bytes of which memory each step touches.
fn memory(variant: &Variant) -> String {
    let mut table = table::table(&["step", "nodes", "access", "memory", "from", "bytes"]);
    for (number, step) in variant.steps.iter().enumerate() {
        for argument in &step.arguments {
            let (memory, from) = match argument.slot {
                Slot::Input { index, offset } => (format!("input {index}"), offset),
                Slot::Output { index, offset } => (format!("output {index}"), offset),
                Slot::Arena { offset } => ("arena".to_owned(), offset),
                Slot::Weight { offset } => ("weights".to_owned(), offset),
            };
            table.add_row(vec![
                number.to_string(),
                table::short(&step.nodes),
                format!("{:?}", argument.access),
                memory,
                from.to_string(),
                argument.bytes.to_string(),
            ]);
        }
    }
    table.to_string()
}

fn kernel(reader: &Reader<'_>, name: &str) -> Result<()> {
    let damaged =
        |error| Failure::because(Reason::InvalidArtifact, "the artifact cannot be shown", error);
    let Inspect { kernels, .. } = reader.inspect().map_err(damaged)?.unwrap_or_default();
    let found: Vec<&KernelText> =
        kernels.iter().filter(|kernel| is_of_stem(name, &kernel.kernel)).collect();
    if found.is_empty() {
        let some: Vec<&str> = kernels.iter().take(5).map(|k| k.kernel.as_str()).collect();
        let message = match some.is_empty() {
            true => "the artifact was compiled without texts of its kernels".to_owned(),
            false => format!("the artifact has no kernel '{name}': it has {}, …", some.join(", ")),
        };
        return Err(Failure::new(Reason::Usage, message));
    }
    let mut text = String::new();
    for own in &found {
        let KernelText { variant, kernel, trace, program, .. } = own;
        text.push_str(&format!(
            "kernel {kernel} of variant {variant}\n\nschedule\n{trace}\n\nprogram\n{program}\n"
        ));
        text.push_str(&instructions(reader, own)?);
    }
    print(&text)
}

/// The machine code of a kernel, function by function.
fn instructions(reader: &Reader<'_>, kernel: &KernelText) -> Result<String> {
    let variant = reader.manifest().variants.get(kernel.variant as usize);
    let Some((variant, code)) = variant.and_then(|own| Some((own, reader.code(own.code)?))) else {
        return Ok(String::new());
    };
    if let Some(device) = &variant.device {
        return Ok(device_text(code, &kernel.kernel, device.language));
    }
    let hone_artifact::Target { triple, cpu, features, .. } = &variant.target;
    let features = features.iter().map(|own| format!("+{own}")).collect();
    let shown = |error: hone_driver::CodegenError| {
        Failure::because(Reason::InvalidArtifact, "the artifact's code cannot be shown", error)
    };
    let target = hone_driver::Target::new(triple, cpu, features).map_err(shown)?;
    let functions: BTreeSet<&str> = variant
        .steps
        .iter()
        .map(|step| step.kernel.as_str())
        .filter(|name| is_of_stem(name, &kernel.kernel))
        .collect();
    let mut text = String::new();
    for function in functions {
        let code = hone_driver::disassemble(code, &target, function).map_err(shown)?;
        text.push_str(&format!("code of {function}\n{}\n", code.unwrap_or_default()));
    }
    Ok(text)
}

/// What an accelerator's driver compiles of a kernel: its functions in the text of all kernels.
fn device_text(code: &[u8], stem: &str, language: Language) -> String {
    let text = String::from_utf8_lossy(code);
    let begin = match language {
        Language::OpenClC => "__kernel ",
        Language::Ptx => ".visible .entry ",
        // A kernel's bindings stand in front of it.
        Language::Wgsl => "@group(0) @binding(0) ",
    };
    let functions = text.split(begin).skip(1).filter(|function| {
        let name = function.split('(').find_map(|part| {
            let name = part.rsplit(' ').next().unwrap_or_default();
            name.starts_with("hone_").then_some(name)
        });
        name.is_some_and(|name| is_of_stem(name, stem))
    });
    functions.map(|function| format!("{begin}{}\n\n", function.trim_end())).collect()
}

/// Whether a function is a kernel's: its only one, or one of several, numbered behind its stem.
fn is_of_stem(name: &str, stem: &str) -> bool {
    let number = name.strip_prefix(stem).and_then(|rest| rest.strip_prefix('_'));
    name == stem || number.is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
}
