//! `hone bench`: how long a run takes.

use std::io::{BufRead, Write, stdin};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use hone_artifact::TensorInfo;
use hone_artifact::exit_code::Reason;
use hone_artifact::report::{self, SizesReport};
use hone_driver::DataType;
use serde_json::json;

use super::common::{self, CacheArguments, precision, print, print_json, subject};
use super::simulate::{self, Simulation};
use crate::binding::Arrays;
use crate::device;
use crate::failure::{Failure, Result};
use crate::maps;
use crate::measure::{Effort, interleaved, summarize};
use crate::npz::{self, Array};
use crate::show::{table, units};
use crate::work::measure::Subject;
use crate::work::verify::arrange;
use crate::work::{Details, steps};

/// What `hone bench` takes.
#[derive(Args, Debug)]
pub struct Arguments {
    /// An artifact, or a model, which is then compiled for this machine.
    pub subject: PathBuf,
    /// With --serve: arrays to run on, as --inputs.
    #[arg(requires = "serve", conflicts_with = "inputs", value_name = "FILE.npz")]
    pub serve_inputs: Option<PathBuf>,
    /// With --serve: threads.
    #[arg(requires = "serve")]
    pub serve_threads: Option<usize>,
    /// Threads; 0 for all.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub threads: usize,
    /// Show each step and what bounds it.
    #[arg(long)]
    pub per_op: bool,
    /// Seconds to measure for.
    #[arg(long, default_value_t = 2.0)]
    pub seconds: f64,
    /// Predict what a run would take on these numbers of threads, by a simulation from times on one thread.
    #[arg(long, value_name = "N,N,…", value_delimiter = ',', conflicts_with = "serve")]
    #[arg(value_parser = simulated_threads)]
    pub simulate_threads: Vec<usize>,
    /// Bandwidth of memory for all simulated threads together, in GB/s; by default eight times what one
    /// core of this machine reads.
    #[arg(long, value_name = "GB/S", requires = "simulate_threads", value_parser = bandwidth)]
    pub simulate_bandwidth: Option<f64>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Answer lines of standard input, as the runners of `cargo xtask bench-peers` do.
    #[arg(long)]
    pub serve: bool,
    /// Arrays named as the model's inputs are, to run on instead of random ones.
    #[arg(long, value_name = "FILE.npz")]
    pub inputs: Option<PathBuf>,
    /// The shape of an input with open dimensions, for models; for artifacts of any batch a size of it, such as batch=13.
    /// Arrays bind them without it.
    #[arg(long, value_name = "NAME=1,2,…")]
    pub shape: Vec<String>,
    /// Arithmetic to compile a model with: f32 or bf16.
    #[arg(long, value_name = "TYPE", default_value = "f32", value_parser = precision)]
    pub precision: DataType,
    /// What is kept between calls.
    #[command(flatten)]
    pub cache: CacheArguments,
}

fn simulated_threads(text: &str) -> std::result::Result<usize, String> {
    match text.parse() {
        Ok(threads @ 1..=1024) => Ok(threads),
        _ => Err("give numbers of threads from 1 to 1024, with commas between them".to_owned()),
    }
}

fn bandwidth(text: &str) -> std::result::Result<f64, String> {
    match text.parse() {
        Ok(rate) if f64::is_finite(rate) && rate > 0.0 => Ok(rate),
        _ => Err("give a positive number of GB/s".to_owned()),
    }
}

/// Measures, simulates, or serves.
///
/// # Errors
/// As for `hone run`.
pub fn run(arguments: &Arguments) -> Result<()> {
    if arguments.serve {
        return serve(arguments);
    }
    let (found, arrays) = artifact(arguments)?;
    let budget = Duration::try_from_secs_f64(arguments.seconds).unwrap_or_default();
    if !arguments.simulate_threads.is_empty() {
        return simulate::run(&Simulation {
            path: &found.path,
            threads: &arguments.simulate_threads,
            bandwidth: arguments.simulate_bandwidth,
            budget,
            json: arguments.json,
        });
    }
    let (mut subject, load) = load(&found, arrays, arguments.threads)?;
    let every = arguments.inputs.is_none() && !open_shape(arguments, &mut subject)?;
    let begin = Instant::now();
    subject.run()?;
    let first = load + begin.elapsed();
    let effort = Effort { budget, most: usize::MAX, ..Effort::default() };
    let (latencies, _) = interleaved(effort, || subject.run(), None)?;
    let chosen = subject.model.chosen_threads();
    let details = details(&found.path, &mut subject, latencies)?;
    let sizes = if every { each_size(&mut subject, effort, &details)? } else { Vec::new() };
    tell(arguments, (&details, chosen), &sizes, load, first)
}

/// Goes over to the sizes that `--shape` names of dimensions of any size; `false` where it names none.
fn open_shape(arguments: &Arguments, subject: &mut Subject) -> Result<bool> {
    let model = &subject.model;
    let open = model.open_dimension().map(|open| (&open.name, &open.inputs));
    let padded = model.padded_dimension();
    let mut shapes: Vec<Vec<u64>> =
        model.inputs().iter().map(|tensor| tensor.shape.clone()).collect();
    let mut is_named = false;
    let said = |name: &str| {
        let prefix = format!("{name}=");
        let said = arguments.shape.iter().find_map(|shape| shape.strip_prefix(&prefix));
        said.and_then(|size| size.parse::<u64>().ok())
    };
    if let Some((name, axes)) = open
        && let Some(size) = said(name)
    {
        for (shape, axis) in shapes.iter_mut().zip(axes) {
            if let Some(extent) = axis.and_then(|axis| shape.get_mut(axis as usize)) {
                *extent = size;
            }
        }
        is_named = true;
    }
    if let Some(padded) = padded
        && let Some(size) = said(&padded.name)
    {
        let inputs: Vec<TensorInfo> = model.inputs().to_vec();
        for (place, shape) in shapes.iter_mut().enumerate() {
            let axis = padded.inputs.get(place).copied().flatten();
            if let (Some(axis), Some(at)) = (axis, padded.at_size(&inputs, place, size)) {
                shape[axis as usize] = at.shape[axis as usize];
            }
        }
        is_named = true;
    }
    if is_named {
        subject.set_shapes(&shapes)?;
    }
    Ok(is_named)
}

/// The latency at each size of an artifact that has several; at the first it was measured already.
fn each_size(subject: &mut Subject, effort: Effort, first: &Details) -> Result<Vec<SizesReport>> {
    let mut sizes = report::sizes(&subject.labels());
    for (place, own) in sizes.iter_mut().enumerate() {
        let measured = match place {
            0 => first.latencies.clone(),
            place => {
                subject.select(place);
                interleaved(effort, || subject.run(), None)?.0
            }
        };
        own.latency = summarize(&measured).map(|summary| summary.report(None));
    }
    Ok(sizes)
}

/// The artifact to measure, and the arrays to run it on where some are given.
fn artifact(arguments: &Arguments) -> Result<(common::Subject, Option<Arrays>)> {
    let path = arguments.inputs.as_ref().or(arguments.serve_inputs.as_ref());
    let arrays = path.map(|path| Arrays::read(path)).transpose()?;
    let Arguments { subject: path, shape, precision, cache, .. } = arguments;
    Ok((subject(path, shape, arrays.as_ref(), *precision, cache)?, arrays))
}

/// Loads an artifact, with the arrays given or random ones; how long loading took.
fn load(
    found: &common::Subject,
    arrays: Option<Arrays>,
    threads: usize,
) -> Result<(Subject, Duration)> {
    let begin = Instant::now();
    let mut subject = Subject::load(&found.path, threads)?;
    let load = begin.elapsed();
    if let Some(arrays) = arrays {
        for text in arrays.arrays.iter().flat_map(|array| array.texts.iter().flatten()) {
            subject.model.text_handle(text)?;
        }
        let arrays = arrays.laid_out(&maps::of_members(&subject.model.members(false)))?;
        let model = &subject.model;
        match model.open_dimension().is_some() || model.padded_dimension().is_some() {
            true => {
                let ports = subject.model.inputs();
                let shape = |port: &TensorInfo| {
                    let array = arrays.arrays.iter().find(|array| array.name == port.name);
                    array.map_or_else(|| port.shape.clone(), |array| array.shape.clone())
                };
                let shapes: Vec<Vec<u64>> = ports.iter().map(shape).collect();
                subject.set_shapes(&shapes)?;
            }
            false => {
                let place = arrays.sizes(subject.model.sizes().map(|own| own.inputs.to_vec()));
                subject.select(place);
            }
        }
        let Arrays { arrays, file } = arrays;
        subject.inputs = arrange(subject.model.inputs(), arrays, &file)?;
    }
    Ok((subject, load))
}

fn details(path: &Path, subject: &mut Subject, latencies: Vec<u64>) -> Result<Details> {
    let variant = subject.model.variant();
    let mut details = Details {
        target: variant.target.clone(),
        threads: subject.model.threads(),
        latencies,
        weights_bytes: variant.weights_bytes,
        arena_bytes: variant.arena_bytes,
        steps: steps(variant),
        peaks: device::peaks_of(&variant.target, subject.model.threads()),
        ..Details::default()
    };
    let times = subject.profile(9)?;
    details.step_times(&times);
    let bytes = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    details.code_bytes = bytes.saturating_sub(details.weights_bytes);
    Ok(details)
}

/// `chosen` are the threads that the last runs used.
fn tell(
    arguments: &Arguments,
    (details, chosen): (&Details, usize),
    sizes: &[SizesReport],
    load: Duration,
    first: Duration,
) -> Result<()> {
    let Some(summary) = summarize(&details.latencies) else { return Ok(()) };
    if arguments.json {
        let mut text = json!({
            "latency": summary.report(None),
            "runs": summary.runs,
            "loadNanoseconds": load.as_nanos() as u64,
            "firstResultNanoseconds": first.as_nanos() as u64,
            "shareOfPeak": details.share_of_peak(summary.p50),
            "chosenThreads": chosen,
            "details": details,
        });
        if !sizes.is_empty() {
            text["sizes"] = json!(sizes);
        }
        return print_json(&text);
    }
    let mut table = table::table(&["", "value"]);
    let (low, high) = summary.interval;
    table.add_row(vec!["median".to_owned(), units::time(summary.p50)]);
    table.add_row(vec![
        "95 % sure within".to_owned(),
        format!("{} – {}", units::time(low), units::time(high)),
    ]);
    table.add_row(vec!["90th percentile".to_owned(), units::time(summary.p90)]);
    table.add_row(vec!["runs".to_owned(), summary.runs.to_string()]);
    table.add_row(vec!["threads".to_owned(), details.threads.to_string()]);
    table.add_row(vec!["of these a run uses".to_owned(), chosen.to_string()]);
    table.add_row(vec!["load".to_owned(), units::time(load.as_nanos() as u64)]);
    table.add_row(vec!["load to first result".to_owned(), units::time(first.as_nanos() as u64)]);
    let rate = details.flops() as f64 / (summary.p50 as f64 * 1e-9);
    table.add_row(vec!["rate".to_owned(), units::rate(rate, "FLOP")]);
    if let (Some(share), Some(peaks)) = (details.share_of_peak(summary.p50), details.peaks) {
        let peak = units::rate(peaks.flops, "FLOP");
        table.add_row(vec![format!("of the f32 FMA peak ({peak})"), units::share(share)]);
    }
    let mut text = table.to_string();
    if let Some(table) = table::sizes(sizes) {
        text.push_str(&format!("\n\n{table}\nwhat stands above is of the largest sizes"));
    }
    if arguments.per_op {
        text.push_str(&format!("\n{}", table::steps(details)));
    }
    print(&text)
}

/// Answers `run N` with latencies and `outputs PATH` by writing the last run's outputs.
fn serve(arguments: &Arguments) -> Result<()> {
    let threads = arguments.serve_threads.unwrap_or(arguments.threads);
    let (found, arrays) = artifact(arguments)?;
    let (mut subject, load) = load(&found, arrays, threads)?;
    let milliseconds = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
    let settings =
        format!("{}, {} threads", subject.model.variant().target.cpu, subject.model.threads());
    answer(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "settings": settings,
        "compile_ms": milliseconds(found.compile),
        "load_ms": milliseconds(load),
    }))?;
    for line in stdin().lock().lines() {
        let line = line.map_err(|error| Failure::io("standard input cannot be read", error))?;
        match line.trim().split_once(' ') {
            Some(("run", count)) => answer(&json!(latencies(&mut subject, count)?))?,
            Some(("outputs", path)) => {
                npz::write(Path::new(path.trim()), &outputs(&subject))?;
                answer(&json!({}))?;
            }
            _ => {
                let message = format!("'{line}' is not understood: use 'run N' or 'outputs PATH'");
                return Err(Failure::new(Reason::Usage, message));
            }
        }
    }
    Ok(())
}

fn answer(value: &serde_json::Value) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let written = writeln!(out, "{value}").and_then(|()| out.flush());
    written.map_err(|error| Failure::io("standard output cannot be written", error))
}

fn latencies(subject: &mut Subject, count: &str) -> Result<Vec<u64>> {
    let count: usize = count.trim().parse().map_err(|_| {
        Failure::new(
            Reason::Usage,
            format!("'run {count}' is not understood: give a number of runs"),
        )
    })?;
    let mut latencies = Vec::new();
    for _ in 0..count {
        let begin = Instant::now();
        subject.run()?;
        latencies.push(begin.elapsed().as_nanos() as u64);
    }
    Ok(latencies)
}

fn outputs(subject: &Subject) -> Vec<Array> {
    let outputs = subject.model.outputs().iter().zip(&subject.outputs);
    let array = |(tensor, bytes): (&hone_artifact::TensorInfo, &Vec<u8>)| Array {
        name: tensor.name.clone(),
        dtype: tensor.dtype,
        shape: tensor.shape.clone(),
        bytes: bytes.clone(),
        texts: None,
    };
    outputs.map(array).collect()
}
