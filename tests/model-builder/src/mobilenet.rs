//! MobileNetV2 (Sandler et al., "MobileNetV2: inverted residuals and linear bottlenecks", 2018).

use hone_import::onnx::proto::ModelProto;

use crate::graph::{Builder, Value, integer};
use crate::resnet::convolution_attributes;

/// Expansion, channels, repetitions and first stride of each stage.
const STAGES: [(usize, usize, usize, usize); 7] = [
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
];

/// One image `x` f32[1, 3, size, size] to `y` f32[1, classes]; `size` is a multiple of 32.
pub fn mobilenet_v2(size: usize, classes: usize, seed: u64) -> ModelProto {
    let mut b = Builder::new("mobilenet_v2", seed);
    let x = b.input("x", &[1, 3, size, size]);
    let bounds = Bounds { low: b.scalar("low", 0.0), high: b.scalar("high", 6.0) };
    let mut x = clipped(&mut b, &bounds, "stem", &x, [3, 32], [3, 2, 1]);
    let mut channels = 32;
    for (stage, (expansion, after, repeats, first)) in STAGES.into_iter().enumerate() {
        for index in 0..repeats {
            let name = format!("stage{stage}.{index}");
            let stride = if index == 0 { first } else { 1 };
            x = block(&mut b, &bounds, &name, &x, [channels, after], expansion, stride);
            channels = after;
        }
    }
    let x = clipped(&mut b, &bounds, "last", &x, [channels, 1280], [1, 1, 1]);
    let x = b.node("GlobalAveragePool", &[&x], Vec::new());
    let x = b.node("Flatten", &[&x], vec![integer("axis", 1)]);
    let weight = b.weight("head.weight", &[classes, 1280], 0.0, 0.01);
    let bias = b.weight("head.bias", &[classes], 0.0, 0.02);
    let y = b.node("Gemm", &[&x, &weight, &bias], vec![integer("transB", 1)]);
    b.output("y", &y, &[1, classes]);
    b.finish()
}

/// What activations are clipped to.
struct Bounds {
    low: Value,
    high: Value,
}

fn block(
    b: &mut Builder,
    bounds: &Bounds,
    name: &str,
    x: &Value,
    [before, after]: [usize; 2],
    expansion: usize,
    stride: usize,
) -> Value {
    let inner = before * expansion;
    let mut wide = x.clone();
    if expansion > 1 {
        let name = format!("{name}.expand");
        wide = clipped(b, bounds, &name, &wide, [before, inner], [1, 1, 1]);
    }
    let depthwise = [3, stride, inner];
    wide = clipped(b, bounds, &format!("{name}.depthwise"), &wide, [inner, inner], depthwise);
    let y = convolution(b, &format!("{name}.project"), &wide, [inner, after], [1, 1, 1]);
    if stride == 1 && before == after { b.node("Add", &[x, &y], Vec::new()) } else { y }
}

/// Convolution, batch normalisation and clipping; the last argument is kernel, stride, groups.
fn clipped(
    b: &mut Builder,
    bounds: &Bounds,
    name: &str,
    x: &Value,
    channels: [usize; 2],
    shape: [usize; 3],
) -> Value {
    let y = convolution(b, name, x, channels, shape);
    b.node("Clip", &[&y, &bounds.low, &bounds.high], Vec::new())
}

fn convolution(
    b: &mut Builder,
    name: &str,
    x: &Value,
    [before, after]: [usize; 2],
    [kernel, stride, group]: [usize; 3],
) -> Value {
    let fan_out = after * kernel * kernel / group;
    let shape = [after, before / group, kernel, kernel];
    let deviation = (2.0 / fan_out as f32).sqrt();
    let weight = b.weight(&format!("{name}.weight"), &shape, 0.0, deviation);
    let x = b.node("Conv", &[x, &weight], convolution_attributes(kernel, stride, group));
    b.batch_normalisation(name, &x, after)
}
