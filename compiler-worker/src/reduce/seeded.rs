//! Seeded numbers and texts in place of those that a model stores.

use hone_driver::onnx::proto::{AttributeProto, ModelProto, NodeProto, TensorProto, tensor_proto};
use hone_driver::{Random, Tensor, onnx};

use super::minimize::minimize;
use super::trials::Trials;
use crate::failure::Result;

/// Lists of numbers in attributes that are longer are weights; shorter ones are settings, such as axes.
const LONG: usize = 8;

/// Replaces what a model stores by seeded numbers and texts, all but as little as possible; how many tensors and lists
/// keep what they held.
///
/// # Errors
/// As for [`Trials::is_alike`].
pub fn seed(trials: &mut Trials<'_>) -> Result<usize> {
    let base = trials.best().clone();
    let mut count = 0;
    visit(&mut base.clone(), &mut |_, _| count += 1);
    let all: Vec<usize> = (0..count).collect();
    let kept = minimize(all, &mut |kept| {
        let mut model = base.clone();
        visit(&mut model, &mut |index, content| {
            if !kept.contains(&index) {
                content.replace(index as u64 + 1);
            }
        });
        trials.is_alike(model)
    })?;
    Ok(kept.len())
}

/// Something that a model stores.
enum Content<'a> {
    Tensor(&'a mut TensorProto),
    Floats(&'a mut Vec<f32>),
    Texts(&'a mut Vec<Vec<u8>>),
}

/// Visits all that a model stores, with its place in an order that stays.
fn visit(model: &mut ModelProto, visit: &mut dyn FnMut(usize, Content<'_>)) {
    let mut index = 0;
    let mut count = || {
        index += 1;
        index - 1
    };
    onnx::edit::for_each_tensor(model, &mut |tensor| visit(count(), Content::Tensor(tensor)));
    let mut of_attribute = |attribute: &mut AttributeProto| {
        if attribute.floats.len() > LONG {
            visit(count(), Content::Floats(&mut attribute.floats));
        }
        if !attribute.strings.is_empty() {
            visit(count(), Content::Texts(&mut attribute.strings));
        }
    };
    if let Some(graph) = &mut model.graph {
        for_each_attribute(&mut graph.node, &mut of_attribute);
    }
    for function in &mut model.functions {
        for_each_attribute(&mut function.node, &mut of_attribute);
    }
}

/// Visits the attributes of nodes, and those of nodes in graphs inside of them.
fn for_each_attribute(nodes: &mut [NodeProto], visit: &mut dyn FnMut(&mut AttributeProto)) {
    for attribute in nodes.iter_mut().flat_map(|node| &mut node.attribute) {
        visit(attribute);
        for graph in attribute.g.iter_mut().chain(&mut attribute.graphs) {
            for_each_attribute(&mut graph.node, visit);
        }
    }
}

impl Content<'_> {
    /// Puts numbers or texts in its place that follow from `seed`.
    fn replace(self, seed: u64) {
        let mut random = Random::new(seed);
        match self {
            Self::Tensor(tensor) => replace_tensor(tensor, &mut random),
            Self::Floats(floats) => {
                floats.iter_mut().for_each(|entry| *entry = random.signed_unit() as f32);
            }
            Self::Texts(texts) => replace_texts(texts),
        }
    }
}

/// Equal texts stay equal.
fn replace_texts(texts: &mut [Vec<u8>]) {
    let before = texts.to_vec();
    for text in texts {
        let first = before.iter().position(|entry| entry == text).unwrap_or_default();
        *text = format!("text{first}").into_bytes();
    }
}

/// Real numbers between -1 and 1, whole ones between the smallest and the largest that were there. Numbers of fewer than
/// eight bits are drawn bit by bit.
fn replace_tensor(tensor: &mut TensorProto, random: &mut Random) {
    if !tensor.string_data.is_empty() {
        return replace_texts(&mut tensor.string_data);
    }
    let kind = tensor.data_type.unwrap_or(0);
    let is_packed = kind > tensor_proto::DataType::Bfloat16 as i32;
    if is_packed {
        if let Some(raw) = &tensor.raw_data {
            tensor.raw_data = Some((0..raw.len()).map(|_| random.bits() as u8).collect());
        }
        return;
    }
    // One that cannot be read fails by what it is.
    let Ok(before) = onnx::tensor(tensor.clone()) else { return };
    let is_real = before.dtype().is_float();
    let values = before.to_f64();
    let (low, high) =
        values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), entry| {
            (low.min(*entry), high.max(*entry))
        });
    let new: Vec<f64> = values
        .iter()
        .map(|_| match is_real {
            true => random.signed_unit(),
            false => (low + random.unit() * (high - low + 1.0)).floor().min(high),
        })
        .collect();
    let Ok(drawn) = Tensor::from_f64(before.dtype(), before.shape(), &new) else { return };
    *tensor = TensorProto {
        name: tensor.name.take(),
        dims: std::mem::take(&mut tensor.dims),
        data_type: tensor.data_type,
        raw_data: Some(drawn.bytes().to_vec().into()),
        ..TensorProto::default()
    };
}
