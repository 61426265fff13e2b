//! Small networks over audio whose length is open: windows move on by several samples, and what they leave is sampled up
//! again.

use hone_import::onnx::proto::ModelProto;

use crate::graph::{Builder, Value, integer, integers, open_axis};

const WIDTH: usize = 8;

/// A convolution, its kernel `[to, from, span]`.
fn convolution(b: &mut Builder, x: &Value, kernel: [usize; 3], window: [i64; 3]) -> Value {
    strided(b, "Conv", x, kernel, window)
}

/// A transposed convolution, its kernel `[from, to, span]`.
fn transposed(b: &mut Builder, x: &Value, kernel: [usize; 3], window: [i64; 3]) -> Value {
    strided(b, "ConvTranspose", x, kernel, window)
}

fn strided(
    b: &mut Builder,
    operator: &str,
    x: &Value,
    kernel: [usize; 3],
    [stride, begin, end]: [i64; 3],
) -> Value {
    let name = format!("{operator}_{}_{}_{}_{stride}", kernel[0], kernel[1], kernel[2]);
    let weight = b.weight(&name, &kernel, 0.0, 0.3);
    let attributes = vec![integers("strides", &[stride]), integers("pads", &[begin, end])];
    b.node(operator, &[x, &weight], attributes)
}

/// Features of a signal `x` f32[batch, 1, time] by two convolutions without padding, which leave a frame for each ten samples,
/// and attention of all frames to each other: `y` f32[batch, frames, 8], and their mean.
pub fn speech(seed: u64) -> ModelProto {
    let mut b = Builder::new("speech", seed);
    let x = b.input("x", &[1, 1, 100]);
    let x = convolution(&mut b, &x, [WIDTH, 1, 10], [5, 0, 0]);
    let x = b.node("Relu", &[&x], Vec::new());
    let x = convolution(&mut b, &x, [WIDTH, WIDTH, 3], [2, 0, 0]);
    let keys = b.node("Relu", &[&x], Vec::new());
    let frames = b.node("Transpose", &[&keys], vec![integers("perm", &[0, 2, 1])]);
    let scores = b.node("MatMul", &[&frames, &keys], Vec::new());
    let weights = b.node("Softmax", &[&scores], vec![integer("axis", -1)]);
    let seen = b.node("MatMul", &[&weights, &frames], Vec::new());
    let y = b.node("Add", &[&frames, &seen], Vec::new());
    let reduced = vec![integers("axes", &[1]), integer("keepdims", 0)];
    let mean = b.node("ReduceMean", &[&y], reduced);
    b.output("y", &y, &[1, 9, WIDTH]);
    b.output("mean", &mean, &[1, WIDTH]);
    let mut model = b.finish();
    open_axis(&mut model, 0, "batch");
    let ports = model.graph.as_mut().into_iter().flat_map(|graph| {
        graph
            .input
            .iter_mut()
            .map(|port| (port, 2, "time"))
            .chain(graph.output.iter_mut().take(1).map(|port| (port, 1, "frames")))
    });
    ports.for_each(|(port, axis, name)| crate::graph::open(port, axis, name));
    model
}

/// A network of four samples to one and back, whose halves are joined again: `x` f32[batch, 2, time] to `y` of its shape, where
/// the time is a multiple of four.
pub fn denoiser(seed: u64) -> ModelProto {
    let mut b = Builder::new("denoiser", seed);
    let x = b.input("x", &[1, 2, 16]);
    let half = convolution(&mut b, &x, [WIDTH, 2, 4], [2, 1, 1]);
    let half = b.node("Relu", &[&half], Vec::new());
    let quarter = convolution(&mut b, &half, [WIDTH, WIDTH, 3], [2, 1, 1]);
    let quarter = b.node("Tanh", &[&quarter], Vec::new());
    let up = transposed(&mut b, &quarter, [WIDTH, WIDTH, 2], [2, 0, 0]);
    let up = b.node("Concat", &[&up, &half], vec![integer("axis", 1)]);
    let up = transposed(&mut b, &up, [2 * WIDTH, 2, 4], [2, 1, 1]);
    let y = b.node("Add", &[&up, &x], Vec::new());
    b.output("y", &y, &[1, 2, 16]);
    let mut model = b.finish();
    open_axis(&mut model, 0, "batch");
    open_axis(&mut model, 2, "time");
    model
}
