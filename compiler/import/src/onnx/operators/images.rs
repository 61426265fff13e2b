//! Operators of encoded images.

use crate::NodeError;
use crate::onnx::builder::Builder;
use crate::onnx::node::{Node, Outputs};
use hone_ops::{ImageDecoder, PixelFormat};

/// `ImageDecoder`: an image of the size that the model declares for the result.
pub(super) fn decode(builder: &mut Builder, node: &mut Node) -> Outputs {
    let bytes = node.input(0)?;
    let name = node.string_or("pixel_format", PixelFormat::Rgb.name())?;
    let format = PixelFormat::from_name(&name).ok_or_else(|| {
        let why = "it is none of 'RGB', 'BGR' and 'Grayscale'";
        NodeError::invalid(format!("attribute 'pixel_format' is '{name}': {why}"))
    })?;
    let output = node.output_names.first().cloned().unwrap_or_default();
    let Some(shape) = node.declared(0) else {
        return Err(NodeError::unsupported(format!(
            "an image whose size the model does not declare (give its output '{output}' the shape [height, width, channels]; a run is then held to it)"
        )));
    };
    let channels = format.channels();
    let &[height, width, declared] = &shape[..] else {
        let why = "an image has height, width and channels";
        return Err(NodeError::invalid(format!(
            "output '{output}' is declared as {shape:?}: {why}"
        )));
    };
    if declared != channels {
        return Err(NodeError::invalid(format!(
            "output '{output}' is declared with {declared} channels, {name} has {channels}"
        )));
    }
    let input = node.input_names.first().cloned().unwrap_or_default();
    let decoder = ImageDecoder { input, format, height, width };
    Ok(vec![builder.apply(decoder, &[bytes])?])
}
