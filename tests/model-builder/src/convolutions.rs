//! A small network of every kind of convolution that devices compute differently.

use hone_import::onnx::proto::{AttributeProto, ModelProto};

use crate::graph::{Builder, Value, integer, integers};

/// Channels of the image, of the inner layers and of the result.
const IMAGE: usize = 3;
const INNER: usize = 32;
const RESULT: usize = 40;

/// A layer's window: kernel, stride, padding, dilation, groups.
type Window = [usize; 5];

/// One image `x` f32[1, 3, size, size] to `y` f32[1, 40]; `size` is a multiple of 4.
///
/// A stem of 7×7 with strides, a residual block of 3×3, a block with strides whose way around is 1×1, a dilated convolution,
/// one in groups, a depthwise one, and a product of matrices.
pub fn convolutions(size: usize, seed: u64) -> ModelProto {
    let mut b = Builder::new("convolutions", seed);
    let x = b.input("x", &[1, IMAGE, size, size]);
    let x = layer(&mut b, "stem", &x, [IMAGE, INNER], [7, 2, 3, 1, 1]);
    let x = b.node("Relu", &[&x], Vec::new());
    let main = layer(&mut b, "first", &x, [INNER, INNER], [3, 1, 1, 1, 1]);
    let main = b.node("Relu", &[&main], Vec::new());
    let main = layer(&mut b, "second", &main, [INNER, INNER], [3, 1, 1, 1, 1]);
    let x = b.node("Add", &[&main, &x], Vec::new());
    let x = b.node("Relu", &[&x], Vec::new());
    let main = layer(&mut b, "strided", &x, [INNER, 2 * INNER], [3, 2, 1, 1, 1]);
    let around = layer(&mut b, "around", &x, [INNER, 2 * INNER], [1, 2, 0, 1, 1]);
    let x = b.node("Add", &[&main, &around], Vec::new());
    let x = b.node("Relu", &[&x], Vec::new());
    let x = layer(&mut b, "dilated", &x, [2 * INNER, 2 * INNER], [3, 1, 2, 2, 1]);
    let x = b.node("Sigmoid", &[&x], Vec::new());
    let x = layer(&mut b, "grouped", &x, [2 * INNER, 2 * INNER], [3, 1, 1, 1, 2]);
    let x = layer(&mut b, "depthwise", &x, [2 * INNER, 2 * INNER], [3, 1, 1, 1, 2 * INNER]);
    let x = layer(&mut b, "last", &x, [2 * INNER, RESULT], [1, 1, 0, 1, 1]);
    let x = b.node("GlobalAveragePool", &[&x], Vec::new());
    let x = b.node("Flatten", &[&x], vec![integer("axis", 1)]);
    b.output("y", &x, &[1, RESULT]);
    b.finish()
}

fn layer(
    b: &mut Builder,
    name: &str,
    x: &Value,
    [before, after]: [usize; 2],
    window: Window,
) -> Value {
    let [kernel, _, _, _, groups] = window;
    let each = before / groups * kernel * kernel;
    let deviation = (2.0 / each as f32).sqrt();
    let shape = [after, before / groups, kernel, kernel];
    let weight = b.weight(&format!("{name}.weight"), &shape, 0.0, deviation);
    let bias = b.weight(&format!("{name}.bias"), &[after], 0.0, 0.1);
    b.node("Conv", &[x, &weight, &bias], attributes(window))
}

fn attributes(window: Window) -> Vec<AttributeProto> {
    let [kernel, stride, padding, dilation, groups] = window.map(|number| number as i64);
    vec![
        integers("kernel_shape", &[kernel; 2]),
        integers("strides", &[stride; 2]),
        integers("pads", &[padding; 4]),
        integers("dilations", &[dilation; 2]),
        integer("group", groups),
    ]
}
