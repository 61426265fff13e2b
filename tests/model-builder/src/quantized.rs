//! A convolutional network of 8-bit integers, as quantizing exporters write it: every activation and
//! every weight passes through a pair of `QuantizeLinear` and `DequantizeLinear`.

use hone_import::onnx::proto::{ModelProto, tensor_proto::DataType};

use crate::graph::{Builder, Value, integer, integers};
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

/// Channels and columns of the network below.
const SIGNED: usize = 16;
const COLUMNS: usize = 24;

/// One image `x` f32[1, 16, size, size] to `y` f32[size * size, 24].
///
/// Convolutions and products of matrices of signed bytes, with zero points that are and that are not 0; the last product is
/// `QLinearMatMul` of unsigned bytes, its weights, too.
pub fn quantized_signed(size: usize, seed: u64) -> ModelProto {
    let mut b = Builder::new("quantized signed", seed);
    let x = b.input("x", &[1, SIGNED, size, size]);
    let x = rounded_signed(&mut b, "image", &x, 1.0 / 96.0, 0);
    let x = convolution(&mut b, "symmetric", &x, [SIGNED, 2 * SIGNED], [3, 1, 1]);
    let x = rounded_signed(&mut b, "symmetric", &x, 1.0 / 60.0, -5);
    let x = convolution(&mut b, "moved", &x, [2 * SIGNED, 3 * SIGNED], [3, 1, 1]);
    let x = rounded_signed(&mut b, "moved", &x, 1.0 / 60.0, 0);
    let x = b.node("Transpose", &[&x], vec![integers("perm", &[0, 2, 3, 1])]);
    let x = rounded_signed(&mut b, "transposed", &x, 1.0 / 60.0, 0);
    let rows = [(size * size) as i64, 3 * SIGNED as i64];
    let rows = b.integers("rows", &rows);
    let x = b.node("Reshape", &[&x, &rows], Vec::new());
    let x = rounded_signed(&mut b, "rows", &x, 1.0 / 60.0, 0);
    let bytes = b.random_bytes(6 * SIGNED * SIGNED);
    let shape = [3 * SIGNED, 2 * SIGNED];
    let weight = b.initializer("product.weight", DataType::Int8, &shape, bytes);
    let scale = b.scalar("product.scale", 1.0 / 512.0);
    let weight = b.node("DequantizeLinear", &[&weight, &scale], Vec::new());
    let x = b.node("MatMul", &[&x, &weight], Vec::new());
    let (scale, zero) = scale_and_zero(&mut b, "last", 1.0 / 60.0, (DataType::Uint8, 119));
    let x = b.node("QuantizeLinear", &[&x, &scale, &zero], Vec::new());
    let bytes = b.random_bytes(2 * SIGNED * COLUMNS);
    let weight = b.initializer("last.weight", DataType::Uint8, &[2 * SIGNED, COLUMNS], bytes);
    let of_weight = scale_and_zero(&mut b, "last.weight", 1.0 / 512.0, (DataType::Uint8, 130));
    let of_result = scale_and_zero(&mut b, "result", 1.0 / 40.0, (DataType::Uint8, 127));
    let inputs = [&x, &scale, &zero, &weight, &of_weight.0, &of_weight.1];
    let inputs = [&inputs[..], &[&of_result.0, &of_result.1]].concat();
    let y = b.node("QLinearMatMul", &inputs, Vec::new());
    let y = b.node("DequantizeLinear", &[&y, &of_result.0, &of_result.1], Vec::new());
    b.output("y", &y, &[size * size, COLUMNS]);
    b.finish()
}

/// Rows `a` f32[32, 48] and an image `x` f32[1, 16, size, size], rounded to bytes with zero points of 131 and -7, to the sums of
/// `MatMulInteger`, f32[32, 24], and of `ConvInteger`, f32[1, 24, size, size]: exact, whatever computes them.
pub fn integer_sums(size: usize, seed: u64) -> ModelProto {
    let mut b = Builder::new("integer sums", seed);
    let a = b.input("a", &[2 * SIGNED, 3 * SIGNED]);
    let (scale, zero) = scale_and_zero(&mut b, "a", 1.0 / 100.0, (DataType::Uint8, 131));
    let a = b.node("QuantizeLinear", &[&a, &scale, &zero], Vec::new());
    let bytes = b.random_bytes(3 * SIGNED * COLUMNS);
    let weight = b.initializer("a.weight", DataType::Int8, &[3 * SIGNED, COLUMNS], bytes);
    let sums = b.node("MatMulInteger", &[&a, &weight, &zero], Vec::new());
    let sums = b.node("Cast", &[&sums], vec![integer("to", DataType::Float as i64)]);
    b.output("rows", &sums, &[2 * SIGNED, COLUMNS]);
    let x = b.input("x", &[1, SIGNED, size, size]);
    let (scale, zero) = scale_and_zero(&mut b, "x", 1.0 / 100.0, (DataType::Int8, -7i8 as u8));
    let x = b.node("QuantizeLinear", &[&x, &scale, &zero], Vec::new());
    let bytes = b.random_bytes(9 * SIGNED * COLUMNS);
    let weight = b.initializer("x.weight", DataType::Int8, &[COLUMNS, SIGNED, 3, 3], bytes);
    let attributes = convolution_attributes(3, 1, 1);
    let sums = b.node("ConvInteger", &[&x, &weight, &zero], attributes);
    let sums = b.node("Cast", &[&sums], vec![integer("to", DataType::Float as i64)]);
    b.output("image", &sums, &[1, COLUMNS, size, size]);
    b.finish()
}

/// A scale and a zero point of bytes of a type, given by its bits.
fn scale_and_zero(
    b: &mut Builder,
    name: &str,
    scale: f32,
    (dtype, zero): (DataType, u8),
) -> (Value, Value) {
    let scale = b.scalar(&format!("{name}.scale"), scale);
    (scale, b.initializer(&format!("{name}.zero"), dtype, &[], vec![zero]))
}

/// `x` rounded to signed bytes and back.
fn rounded_signed(b: &mut Builder, name: &str, x: &Value, scale: f32, zero: i8) -> Value {
    let (scale, zero) = scale_and_zero(b, name, scale, (DataType::Int8, zero as u8));
    let bytes = b.node("QuantizeLinear", &[x, &scale, &zero], Vec::new());
    b.node("DequantizeLinear", &[&bytes, &scale, &zero], Vec::new())
}

/// `x` rounded to bytes and back.
fn rounded(b: &mut Builder, name: &str, x: &Value, scale: f32, zero: u8) -> Value {
    let (scale, zero) = scale_and_zero(b, name, scale, (DataType::Uint8, zero));
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
