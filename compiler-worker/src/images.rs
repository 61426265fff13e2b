//! Encoded images of sample inputs, of the sizes that a model declares.

use hone_artifact::{HostFunction, Part, Slot};
use hone_driver::ops::{ImageDecoder, ImageSize, sample_image};
use hone_driver::{Graph, Random};

/// Puts images into the inputs that a graph decodes. Where there is no room for one an input stays as it is, and the
/// reference says why it is not decoded.
pub fn fill_graph(graph: &Graph, inputs: &mut [Vec<u8>], random: &mut Random) {
    for (_, node) in graph.nodes().iter() {
        let Some(own) = node.operation.downcast::<ImageDecoder>() else { continue };
        let place = graph
            .inputs()
            .iter()
            .position(|port| Some(Some(port.value)) == node.inputs.first().copied());
        let size = ImageSize { height: own.height, width: own.width };
        if let Some(input) = place.and_then(|place| inputs.get_mut(place)) {
            fill(input, size, random);
        }
    }
}

/// The same of a loaded model, at the sizes that it is set to.
pub fn fill_model(model: &hone_runtime::Model, inputs: &mut [Vec<u8>], random: &mut Random) {
    let mut pending: Vec<&Part> = model.variant().program.iter().collect();
    while let Some(part) = pending.pop() {
        match part {
            Part::Steps { .. } => {}
            Part::If(own) => pending.extend(own.then.iter().chain(&own.otherwise)),
            Part::Loop(own) => pending.extend(&own.body),
            Part::Host(own) => {
                let HostFunction::Image(image) = &own.function else { continue };
                let slot = own.inputs.first().and_then(|input| input.as_ref()).map(|own| own.slot);
                let Some(Slot::Input { index, .. }) = slot else { continue };
                // No image is as large as what does not fit.
                let side = |pixels: u64| usize::try_from(pixels).unwrap_or(usize::MAX);
                let size = ImageSize { height: side(image.height), width: side(image.width) };
                if let Some(input) = inputs.get_mut(index as usize) {
                    fill(input, size, random);
                }
            }
        }
    }
}

/// An image at the beginning of an input, zeros behind it.
fn fill(input: &mut [u8], size: ImageSize, random: &mut Random) {
    let Some(image) = sample_image(size, input.len(), || random.below(256) as u8) else { return };
    let (own, behind) = input.split_at_mut(image.len());
    own.copy_from_slice(&image);
    behind.fill(0);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use hone_driver::ops::PixelFormat;
    use hone_driver::{DataType, Tensor, TensorType, evaluate};

    #[test]
    fn inputs_that_are_decoded_hold_images_and_others_stay() {
        let mut graph = Graph::new();
        let other = graph.add_input("other", TensorType::new(DataType::U8, [4]));
        let data = graph.add_input("data", TensorType::new(DataType::U8, [100]));
        let decoder =
            ImageDecoder { input: "data".into(), format: PixelFormat::Rgb, height: 5, width: 4 };
        let pixels = graph.add_node("decode", decoder.into(), &[Some(data)]).unwrap();
        graph.add_output("y", pixels[0]);
        graph.add_output("z", other);
        let mut inputs = vec![vec![7; 4], vec![7; 100]];
        fill_graph(&graph, &mut inputs, &mut Random::new(1));
        assert_eq!(inputs[0], [7; 4]);
        let tensors: Vec<Tensor> = inputs
            .iter()
            .map(|bytes| Tensor::from_elements([bytes.len()], bytes).unwrap())
            .collect();
        let outputs = evaluate(&graph, &tensors).unwrap();
        assert!(outputs[0].bytes().iter().any(|byte| *byte != outputs[0].bytes()[0]));
    }
}
