//! Compiles a model, runs it on seeded inputs, and compares with the reference; for work on the
//! compiler itself: `cargo run --release -p hone-driver --example try -- MODEL.onnx [threads]`.

use anyhow::{Context, Result};
use hone_driver::{ImportOptions, Options, Target, Tensor, TensorType, compile, evaluate};
use std::time::Instant;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().context("give a model")?;
    let threads: usize = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let model = std::fs::read(&path)?;
    let mut options = Options::new(Target::host()?);
    if let Ok(precision) = std::env::var("PRECISION") {
        options.precision = precision.parse().map_err(anyhow::Error::msg)?;
    }
    let start = Instant::now();
    let compiled = compile(&model, &ImportOptions::default(), &options)?;
    println!("compiled in {:?}: {:#?}", start.elapsed(), compiled.statistics);
    if let Some(path) = std::env::var_os("DUMP") {
        std::fs::write(path, &compiled.artifact)?;
    }
    if let Some(path) = std::env::var_os("SAVE") {
        std::fs::write(path, &compiled.artifact)?;
    }
    let graph = &compiled.references[0];
    let types: Vec<TensorType> =
        graph.inputs().iter().map(|port| graph.tensor_type(port.value).clone()).collect();
    let inputs: Vec<Tensor> =
        types.iter().enumerate().map(|(n, own)| seeded(n as u64, own)).collect();
    let options = hone_runtime::Options { threads, ..Default::default() };
    let mut loaded = hone_runtime::Model::load_memory(compiled.artifact.clone(), &options)?;
    let bytes: Vec<&[u8]> = inputs.iter().map(Tensor::bytes).collect();
    let mut outputs: Vec<Vec<u8>> =
        loaded.outputs().iter().map(|info| vec![0; info.bytes as usize]).collect();
    let mut run = || -> Result<f64> {
        let mut slices: Vec<&mut [u8]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
        let start = Instant::now();
        loaded.run(&bytes, &mut slices)?;
        Ok(start.elapsed().as_secs_f64() * 1e3)
    };
    let mut times: Vec<f64> = (0..20).map(|_| run()).collect::<Result<_>>()?;
    times.sort_by(f64::total_cmp);
    let gflop = compiled.statistics.flops as f64 / 1e9;
    println!(
        "median {:.3} ms, best {:.3} ms, {:.1} GFLOP/s",
        times[10],
        times[0],
        gflop / times[10] * 1e3
    );
    // The least of several runs: what a step takes when nothing else disturbs it.
    let mut least: Vec<f64> = Vec::new();
    for _ in 0..15 {
        let mut profile = hone_runtime::Profile::new(&loaded);
        let mut slices: Vec<&mut [u8]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
        loaded.run_profiled(&bytes, &mut slices, &mut profile)?;
        let times = profile.steps.iter().map(|step| step.time.as_nanos() as f64);
        least = if least.is_empty() {
            times.collect()
        } else {
            least.iter().zip(times).map(|(least, time)| least.min(time)).collect()
        };
    }
    println!("sum of the steps' least times: {:.3} ms", least.iter().sum::<f64>() / 1e6);
    let steps = &loaded.variant().steps;
    let mut order: Vec<usize> = (0..steps.len()).collect();
    order.sort_by(|a, b| least[*b].total_cmp(&least[*a]));
    let shown = std::env::var("STEPS").ok().and_then(|text| text.parse().ok()).unwrap_or(40);
    for own in order.into_iter().take(shown) {
        let (step, time) = (&steps[own], least[own]);
        println!(
            "{:>9.1} us {:>7.1} GFLOP/s {:>6.1} GB/s {:>5} tasks  {} {}",
            time / 1e3,
            step.flops as f64 / time,
            (step.bytes_read + step.bytes_written) as f64 / time,
            step.tasks,
            step.kernel,
            step.nodes.join(" + ").chars().take(90).collect::<String>()
        );
    }
    if let Some(inspect) = hone_artifact::Reader::new(&compiled.artifact)?.inspect()? {
        for kernel in inspect.kernels.iter().filter(|own| {
            std::env::var("SHOW").is_ok_and(|name| own.kernel.ends_with(&name))
                || own.trace.starts_with("template plain")
        }) {
            println!("{}: {}\n{}", kernel.kernel, kernel.trace, kernel.program);
        }
    }
    if std::env::var_os("SKIP_REFERENCE").is_some() {
        return Ok(());
    }
    let start = Instant::now();
    let expected = evaluate(graph, &inputs)?;
    println!("reference in {:?}", start.elapsed());
    for ((expected, actual), info) in expected.iter().zip(&outputs).zip(graph.outputs()) {
        let actual = Tensor::from_bytes(expected.tensor_type().clone(), actual.clone())?;
        let (a, b) = (expected.to_f64(), actual.to_f64());
        let worst = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        let largest = a.iter().fold(0.0f64, |most, value| most.max(value.abs()));
        let nan = b.iter().filter(|value| value.is_nan()).count();
        println!("{}: max error {worst:.3e} of {largest:.3e}, {nan} NaN", info.name);
    }
    Ok(())
}

fn seeded(seed: u64, tensor_type: &TensorType) -> Tensor {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let integer = tensor_type.dtype.is_integer();
    let values: Vec<f64> = (0..tensor_type.elements())
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let unit = (state >> 40) as f64 / (1u64 << 24) as f64;
            if integer { (unit * 2.0).floor() } else { unit * 2.0 - 1.0 }
        })
        .collect();
    Tensor::from_f64(tensor_type.dtype, tensor_type.shape.clone(), &values)
        .unwrap_or_else(|_| Tensor::zeros(tensor_type.clone()))
}
