//! Operators that the runtime computes itself.

use crate::host_text::{text_function, token_rule};
use hone_artifact::{
    HostFunction, ImageFunction, MapFunction, MapKind, NGrams, PixelFormat, ScatterPlaces,
    ScatterReduction,
};
use hone_ops::{
    Compress, ImageDecoder, Map, NonMaxSuppression, NonZero, Op, Require, ScatterElements,
    ScatterNd, Text, TopK, Unique,
};

/// The runtime's function that computes an operator, where one does.
pub(crate) fn host_function(operation: &Op) -> Option<HostFunction> {
    let axis = |axis: Option<usize>| axis.map(|axis| axis as u32);
    if operation.downcast::<NonZero>().is_some() {
        return Some(HostFunction::NonZero);
    }
    if let Some(compress) = operation.downcast::<Compress>() {
        return Some(HostFunction::Compress { axis: axis(compress.axis) });
    }
    if let Some(unique) = operation.downcast::<Unique>() {
        return Some(HostFunction::Unique { axis: axis(unique.axis), sorted: unique.sorted });
    }
    if let Some(top_k) = operation.downcast::<TopK>().filter(|top_k| top_k.by_runtime) {
        let (k, axis) = (top_k.k as u64, top_k.axis as u32);
        return Some(HostFunction::TopK { k, axis, largest: top_k.largest });
    }
    if let Some(scatter) = operation.downcast::<ScatterElements>().filter(|own| own.by_runtime) {
        let places = ScatterPlaces::Elements { axis: scatter.axis as u32 };
        return Some(HostFunction::Scatter { places, reduction: reduction(scatter.reduction) });
    }
    if let Some(scatter) = operation.downcast::<ScatterNd>().filter(|own| own.by_runtime) {
        let (places, reduction) = (ScatterPlaces::Slices, reduction(scatter.reduction));
        return Some(HostFunction::Scatter { places, reduction });
    }
    if let Some(require) = operation.downcast::<Require>() {
        return Some(HostFunction::Require { message: require.message.clone() });
    }
    if let Some(text) = operation.downcast::<Text>() {
        return text_function(&text.function).map(HostFunction::Text);
    }
    if let Some(own) = operation.downcast::<hone_ops::NGrams>() {
        let tokens = own.tokens.as_ref().map(token_rule);
        return Some(HostFunction::NGrams(NGrams {
            least: own.least as u64,
            most: own.most as u64,
            skips: own.skips as u64,
            once: own.once,
            size: own.size as u64,
            // A pattern that the importer would refuse.
            tokens: tokens.map(|own| own.ok_or(())).transpose().ok()?,
            knows_padding: own.knows_padding,
        }));
    }
    if let Some(map) = operation.downcast::<Map>() {
        let kind = match map.function {
            hone_ops::MapFunction::Lookup => MapKind::Lookup,
            hone_ops::MapFunction::Ordered => MapKind::Ordered,
        };
        let refuses_negative = map.refuses_negative;
        return Some(HostFunction::Map(MapFunction { kind, refuses_negative }));
    }
    if let Some(image) = operation.downcast::<ImageDecoder>() {
        let format = match image.format {
            hone_ops::PixelFormat::Rgb => PixelFormat::Rgb,
            hone_ops::PixelFormat::Bgr => PixelFormat::Bgr,
            hone_ops::PixelFormat::Grayscale => PixelFormat::Grayscale,
        };
        let (height, width) = (image.height as u64, image.width as u64);
        let input = image.input.clone();
        return Some(HostFunction::Image(ImageFunction { input, format, height, width }));
    }
    let suppression = operation.downcast::<NonMaxSuppression>()?;
    Some(HostFunction::NonMaxSuppression {
        centers: suppression.centers,
        most: suppression.most as u64,
    })
}

/// How updates meet what is there, in the runtime's words.
fn reduction(reduction: hone_ops::ScatterReduction) -> ScatterReduction {
    use hone_ops::ScatterReduction as Own;
    match reduction {
        Own::None => ScatterReduction::Replace,
        Own::Add => ScatterReduction::Add,
        Own::Multiply => ScatterReduction::Multiply,
        Own::Maximum => ScatterReduction::Maximum,
        Own::Minimum => ScatterReduction::Minimum,
    }
}
