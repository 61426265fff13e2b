//! What tests of whole artifacts share.

use hone_driver::Tensor;
use hone_runtime::Model;

/// The outputs of a run, of `f32`. They lie in memory that was no number before.
pub fn run(model: &mut Model, inputs: &[Tensor]) -> Vec<Vec<f32>> {
    let given: Vec<&[u8]> = inputs.iter().map(Tensor::bytes).collect();
    let sizes = model.outputs().iter().map(|output| output.bytes as usize);
    let mut taken: Vec<Vec<u8>> = sizes.map(|bytes| vec![0xFF; bytes]).collect();
    let mut outputs: Vec<&mut [u8]> = taken.iter_mut().map(Vec::as_mut_slice).collect();
    model.run(&given, &mut outputs).unwrap();
    let floats = |bytes: Vec<u8>| {
        bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
    };
    taken.into_iter().map(floats).collect()
}
