//! A convolutional network of 8-bit integers, as quantizing exporters write it: every activation and
//! every weight passes through a pair of `QuantizeLinear` and `DequantizeLinear`.

use hone_import::onnx::proto::{ModelProto, tensor_proto::DataType};

use crate::graph::{Builder, Value, integer};
use crate::resnet::convolution_attributes;

/// Channels of the inner layers and of the result.
const INNER: usize = 24;
const LAST: usize = 40;

/// One image `x` f32[1, 3, size, size] to features `y` f32[1, 40, size / 2, size / 2]; `size` is even.
///
/// A dense convolution, a depthwise one and a 1×1 one. Weights have a scale for each channel, the
/// activations one, and zero points that are and that are not 0.
pub fn quantized(size: usize, seed: u64) -> ModelProto {
    let mut b = Builder::new("quantized", seed);
    let x = b.input("x", &[1, 3, size, size]);
    let x = rounded(&mut b, "image", &x, 1.0 / 96.0, 128);
    let x = convolution(&mut b, "dense", &x, [3, INNER], [3, 2, 1]);
    let x = b.node("Relu", &[&x], Vec::new());
    let x = rounded(&mut b, "dense", &x, 1.0 / 80.0, 0);
    let x = convolution(&mut b, "depthwise", &x, [INNER, INNER], [3, 1, INNER]);
    let x = rounded(&mut b, "depthwise", &x, 1.0 / 40.0, 117);
    let x = convolution(&mut b, "pointwise", &x, [INNER, LAST], [1, 1, 1]);
    let y = rounded(&mut b, "pointwise", &x, 1.0 / 24.0, 131);
    b.output("y", &y, &[1, LAST, size / 2, size / 2]);
    b.finish()
}

/// Channels of the inner layers of the network below: as many terms as tiles of bytes take at a time.
const WIDE: usize = 64;

/// One image `x` f32[1, 3, size, size] to features `y` f32[1, 40, size / 2, size / 2]; `size` is even.
///
/// Dense convolutions alone, whose sums are long enough for tile registers: 3×3 and 1×1 of 64 channels behind one of the
/// image.
pub fn quantized_dense(size: usize, seed: u64) -> ModelProto {
    let mut b = Builder::new("quantized dense", seed);
    let x = b.input("x", &[1, 3, size, size]);
    let x = rounded(&mut b, "image", &x, 1.0 / 96.0, 128);
    let x = convolution(&mut b, "first", &x, [3, WIDE], [3, 2, 1]);
    let x = b.node("Relu", &[&x], Vec::new());
    let x = rounded(&mut b, "first", &x, 1.0 / 80.0, 0);
    let x = convolution(&mut b, "square", &x, [WIDE, WIDE], [3, 1, 1]);
    let x = rounded(&mut b, "square", &x, 1.0 / 40.0, 117);
    let x = convolution(&mut b, "pointwise", &x, [WIDE, LAST], [1, 1, 1]);
    let y = rounded(&mut b, "pointwise", &x, 1.0 / 24.0, 131);
    b.output("y", &y, &[1, LAST, size / 2, size / 2]);
    b.finish()
}

/// `x` rounded to bytes and back.
fn rounded(b: &mut Builder, name: &str, x: &Value, scale: f32, zero: u8) -> Value {
    let scale = b.scalar(&format!("{name}.scale"), scale);
    let zero = b.initializer(&format!("{name}.zero"), DataType::Uint8, &[], vec![zero]);
    let bytes = b.node("QuantizeLinear", &[x, &scale, &zero], Vec::new());
    b.node("DequantizeLinear", &[&bytes, &scale, &zero], Vec::new())
}

/// A convolution with weights of signed bytes; the last argument is kernel, stride, groups.
fn convolution(
    b: &mut Builder,
    name: &str,
    x: &Value,
    [before, after]: [usize; 2],
    [kernel, stride, group]: [usize; 3],
) -> Value {
    let shape = [after, before / group, kernel, kernel];
    let terms = shape[1..].iter().product::<usize>();
    let bytes = b.random_bytes(after * terms);
    let weight = b.initializer(&format!("{name}.weight"), DataType::Int8, &shape, bytes);
    // Sums of so many products of numbers spread evenly have a deviation near that of one input.
    let scales: Vec<f32> = (0..after)
        .map(|channel| (1.0 + 0.1 * (channel % 5) as f32) / (74.0 * (terms as f32).sqrt()))
        .collect();
    let scales = b.floats(&format!("{name}.scales"), &scales);
    let zeros = b.initializer(&format!("{name}.zeros"), DataType::Int8, &[after], vec![0; after]);
    let weight = b.node("DequantizeLinear", &[&weight, &scales, &zeros], vec![integer("axis", 0)]);
    let bias = b.weight(&format!("{name}.bias"), &[after], 0.0, 0.1);
    b.node("Conv", &[x, &weight, &bias], convolution_attributes(kernel, stride, group))
}
