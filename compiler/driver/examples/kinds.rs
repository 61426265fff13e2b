//! Times kernels of many kinds: `cargo run --release -p hone-driver --example kinds`.

use anyhow::Result;
use hone_driver::{Graph, Options, Target, Tensor, TensorType, compile_graph};
use hone_ops::{
    GroupNormalization, InstanceNormalization, LayerNormalization, Op, Pool, PoolKind, Reduce,
    ReduceFunction, Softmax, Transpose, Unary, UnaryFunction, Window,
};
use hone_types::DataType;

fn main() -> Result<()> {
    for length in [7, 50, 197, 333, 1000] {
        time(
            &format!("softmax, rows of {length}"),
            Softmax { axis: 1, log: false },
            &[&[400, length]],
        )?;
        time(
            &format!("layer norm, rows of {length}"),
            LayerNormalization { axis: 1, epsilon: 1e-5 },
            &[&[400, length], &[length], &[length]],
        )?;
        time(&format!("sum, rows of {length}"), sum(&[1]), &[&[400, length]])?;
        time(&format!("sum over {length} rows"), sum(&[0]), &[&[length, 400]])?;
    }
    time("softmax, one row", Softmax { axis: 1, log: false }, &[&[1, 50_000]])?;
    time("softmax over channels", Softmax { axis: 1, log: false }, &[&[1, 21, 64, 64]])?;
    time("sum of everything", sum(&[0, 1]), &[&[300, 300]])?;
    time("mean of planes", sum(&[2, 3]), &[&[1, 512, 7, 7]])?;
    time("mean of large planes", sum(&[2, 3]), &[&[1, 32, 56, 56]])?;
    let own: &[&[usize]] = &[&[1, 32, 55, 55], &[32], &[32]];
    time("instance norm", InstanceNormalization { epsilon: 1e-5 }, own)?;
    time("group norm", GroupNormalization { groups: 8, epsilon: 1e-5 }, own)?;
    for (kernel, stride) in [(3, 2), (2, 2), (3, 1)] {
        let window = Window { strides: vec![stride; 2], ..Window::plain(2) };
        let pool =
            Pool { kind: PoolKind::Maximum, kernel: vec![kernel; 2], window, count_padding: false };
        time(&format!("max pool {kernel} by {stride}, plain"), pool, &[&[1, 32, 112, 112]])?;
    }
    time("transpose of a square", Transpose { permutation: vec![1, 0] }, &[&[512, 512]])?;
    time("transpose of 197 x 333", Transpose { permutation: vec![1, 0] }, &[&[197, 333]])?;
    time("to channels last", Transpose { permutation: vec![0, 2, 3, 1] }, &[&[1, 64, 56, 56]])?;
    time("to channels first", Transpose { permutation: vec![0, 3, 1, 2] }, &[&[1, 56, 56, 64]])?;
    time("interleave planes", Transpose { permutation: vec![0, 2, 3, 1] }, &[&[1, 3, 224, 224]])?;
    time("tanh", Unary::new(UnaryFunction::Tanh), &[&[99_999]])?;
    time("sine", Unary::new(UnaryFunction::Sin), &[&[99_999]])
}

fn sum(axes: &[usize]) -> Reduce {
    Reduce { function: ReduceFunction::Sum, axes: axes.to_vec(), keep_axes: false }
}

/// Least time of many runs of one operator on inputs of the given shapes.
fn time(name: &str, operation: impl Into<Op>, shapes: &[&[usize]]) -> Result<()> {
    let mut graph = Graph::new();
    let mut inputs = Vec::new();
    for (place, shape) in shapes.iter().enumerate() {
        let own = TensorType::new(DataType::F32, *shape);
        inputs.push(Some(graph.add_input(format!("x{place}"), own)));
    }
    let output = graph.add_node("node", operation.into(), &inputs)?[0];
    graph.add_output("y", output);
    let bytes: usize = graph.values().iter().map(|(_, value)| value.tensor_type.bytes()).sum();
    let compiled = compile_graph(graph, b"kind", &Options::new(Target::host()?))?;
    let options = hone_runtime::Options { threads: 1, ..Default::default() };
    let mut loaded = hone_runtime::Model::load_memory(compiled.artifact.clone(), &options)?;
    let inputs: Vec<Tensor> = shapes
        .iter()
        .map(|shape| {
            let count = shape.iter().product::<usize>();
            let values: Vec<f64> = (0..count).map(|n| (n % 17) as f64 * 0.1 - 0.8).collect();
            Tensor::from_f64(DataType::F32, shape.to_vec(), &values)
        })
        .collect::<Result<_, _>>()?;
    let slices: Vec<&[u8]> = inputs.iter().map(Tensor::bytes).collect();
    let mut outputs: Vec<Vec<u8>> =
        loaded.outputs().iter().map(|info| vec![0; info.bytes as usize]).collect();
    let mut least = f64::INFINITY;
    for _ in 0..50 {
        let mut profile = hone_runtime::Profile::new(&loaded);
        let mut slices_out: Vec<&mut [u8]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
        loaded.run_profiled(&slices, &mut slices_out, &mut profile)?;
        least = least.min(profile.steps.iter().map(|step| step.time.as_nanos() as f64).sum());
    }
    let inspect = hone_artifact::Reader::new(&compiled.artifact)?.inspect()?;
    if std::env::var("SHOW").is_ok_and(|part| name.contains(&part)) {
        inspect.iter().flat_map(|own| &own.kernels).for_each(|own| println!("{}", own.program));
    }
    let templates: Vec<String> = inspect
        .map(|own| own.kernels.iter().map(|kernel| template(&kernel.trace)).collect())
        .unwrap_or_default();
    println!(
        "{:<28} {:>9.1} us {:>7.1} GB/s  {}",
        name,
        least / 1e3,
        bytes as f64 / least,
        templates.join(", ")
    );
    Ok(())
}

/// The template that a trace begins with.
fn template(trace: &str) -> String {
    trace.lines().next().unwrap_or_default().trim_start_matches("template ").to_string()
}
