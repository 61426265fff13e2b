//! Compiled code: the whole path from graph to artifact to runtime.

use crate::Backend;
use anyhow::Result;
use hone_driver::{Options, Target, compile_graph};
use hone_ops::Graph;
use hone_runtime::Model;
use hone_types::Tensor;

/// Code for this machine, run by the runtime on one thread.
pub struct Compiled {
    options: Options,
}

impl Compiled {
    /// Code for the processor that this runs on.
    pub fn for_host() -> Result<Self> {
        Ok(Self { options: Options::new(Target::host()?) })
    }
}

impl Backend for Compiled {
    fn name(&self) -> &'static str {
        "compiled code"
    }

    fn run(&self, graph: &Graph, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let artifact = compile_graph(graph.clone(), b"case", &self.options)?.artifact;
        let options = hone_runtime::Options { threads: 1, ..Default::default() };
        let mut model = Model::load_memory(artifact, &options)?;
        let mut outputs: Vec<Vec<u8>> =
            model.outputs().iter().map(|info| vec![0; info.bytes as usize]).collect();
        let given: Vec<&[u8]> = inputs.iter().map(Tensor::bytes).collect();
        let mut places: Vec<&mut [u8]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
        model.run(&given, &mut places)?;
        let types = graph.outputs().iter().map(|port| graph.tensor_type(port.value).clone());
        types.zip(outputs).map(|(own, bytes)| Ok(Tensor::from_bytes(own, bytes)?)).collect()
    }
}
