//! ResNet (He et al., "Deep residual learning for image recognition", 2015), with the stride in the
//! 3×3 convolution of a bottleneck as torchvision has it.

use hone_import::onnx::proto::ModelProto;

use crate::graph::{Builder, Value, integer, integers, open_axis};

/// How deep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResNetDepth {
    /// 18 layers of basic blocks.
    D18,
    /// 50 layers of bottleneck blocks.
    D50,
    /// 101 layers of bottleneck blocks.
    D101,
}

impl ResNetDepth {
    fn blocks(self) -> [usize; 4] {
        match self {
            Self::D18 => [2, 2, 2, 2],
            Self::D50 => [3, 4, 6, 3],
            Self::D101 => [3, 4, 23, 3],
        }
    }

    /// How many times wider a block's output is than its inner convolutions.
    fn expansion(self) -> usize {
        if self == Self::D18 { 1 } else { 4 }
    }
}

/// The same for any number of images: x f32[batch, 3, size, size] to y f32[batch, classes].
pub fn resnet_of_any_batch(
    depth: ResNetDepth,
    size: usize,
    classes: usize,
    seed: u64,
) -> ModelProto {
    let mut model = resnet(depth, size, classes, seed);
    open_axis(&mut model, 0, "batch");
    model
}

/// One image `x` f32[1, 3, size, size] to `y` f32[1, classes]; `size` is a multiple of 32.
///
/// Batch normalisations are nodes of their own.
pub fn resnet(depth: ResNetDepth, size: usize, classes: usize, seed: u64) -> ModelProto {
    let mut b = Builder::new("resnet", seed);
    let x = b.input("x", &[1, 3, size, size]);
    let x = convolution(&mut b, "stem", &x, [3, 64], 7, 2);
    let x = b.node("Relu", &[&x], Vec::new());
    let pool = vec![
        integers("kernel_shape", &[3, 3]),
        integers("strides", &[2, 2]),
        integers("pads", &[1, 1, 1, 1]),
    ];
    let mut x = b.node("MaxPool", &[&x], pool);
    let mut channels = 64;
    for (stage, &blocks) in depth.blocks().iter().enumerate() {
        let inner = 64 << stage;
        for index in 0..blocks {
            let stride = if stage > 0 && index == 0 { 2 } else { 1 };
            let name = format!("stage{}.{index}", stage + 1);
            x = block(&mut b, depth, &name, &x, [channels, inner], stride);
            channels = inner * depth.expansion();
        }
    }
    let x = b.node("GlobalAveragePool", &[&x], Vec::new());
    let x = b.node("Flatten", &[&x], vec![integer("axis", 1)]);
    let weight = b.weight("head.weight", &[classes, channels], 0.0, 1.0 / (channels as f32).sqrt());
    let bias = b.weight("head.bias", &[classes], 0.0, 0.02);
    let y = b.node("Gemm", &[&x, &weight, &bias], vec![integer("transB", 1)]);
    b.output("y", &y, &[1, classes]);
    b.finish()
}

fn block(
    b: &mut Builder,
    depth: ResNetDepth,
    name: &str,
    x: &Value,
    [before, inner]: [usize; 2],
    stride: usize,
) -> Value {
    let after = inner * depth.expansion();
    let layers: &[(usize, [usize; 2], usize)] = if depth == ResNetDepth::D18 {
        &[(3, [before, inner], stride), (3, [inner, after], 1)]
    } else {
        &[(1, [before, inner], 1), (3, [inner, inner], stride), (1, [inner, after], 1)]
    };
    let mut main = x.clone();
    for (index, &(kernel, channels, stride)) in layers.iter().enumerate() {
        if index > 0 {
            main = b.node("Relu", &[&main], Vec::new());
        }
        main = convolution(b, &format!("{name}.conv{index}"), &main, channels, kernel, stride);
    }
    let skip = if before == after && stride == 1 {
        x.clone()
    } else {
        convolution(b, &format!("{name}.skip"), x, [before, after], 1, stride)
    };
    let sum = b.node("Add", &[&main, &skip], Vec::new());
    b.node("Relu", &[&sum], Vec::new())
}

/// Convolution without bias, Kaiming-initialised by its outputs, and batch normalisation.
fn convolution(
    b: &mut Builder,
    name: &str,
    x: &Value,
    [before, after]: [usize; 2],
    kernel: usize,
    stride: usize,
) -> Value {
    let deviation = (2.0 / (after * kernel * kernel) as f32).sqrt();
    let shape = [after, before, kernel, kernel];
    let weight = b.weight(&format!("{name}.weight"), &shape, 0.0, deviation);
    let attributes = convolution_attributes(kernel, stride, 1);
    let x = b.node("Conv", &[x, &weight], attributes);
    b.batch_normalisation(name, &x, after)
}

/// The attributes of a square convolution that keeps the size but for its stride.
pub(crate) fn convolution_attributes(
    kernel: usize,
    stride: usize,
    group: usize,
) -> Vec<hone_import::onnx::proto::AttributeProto> {
    let [kernel, stride, pad] = [kernel, stride, kernel / 2].map(|number| number as i64);
    vec![
        integers("kernel_shape", &[kernel; 2]),
        integers("strides", &[stride; 2]),
        integers("pads", &[pad; 4]),
        integer("group", group as i64),
    ]
}

impl Builder {
    /// Batch normalisation over axis 1 of `x`, which has `channels`.
    pub(crate) fn batch_normalisation(&mut self, name: &str, x: &Value, channels: usize) -> Value {
        let scale = self.weight(&format!("{name}.scale"), &[channels], 1.0, 0.02);
        let shift = self.weight(&format!("{name}.shift"), &[channels], 0.0, 0.02);
        let mean = self.weight(&format!("{name}.mean"), &[channels], 0.0, 0.1);
        let variance = self.positive(&format!("{name}.variance"), channels);
        self.node("BatchNormalization", &[x, &scale, &shift, &mean, &variance], Vec::new())
    }
}
