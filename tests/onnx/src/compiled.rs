//! Compiled code: the whole path from graph to artifact, run on this machine or in an emulator.

use crate::Backend;
use anyhow::{Result, ensure};
use hone_driver::{Options, Target, compile_graph};
use hone_emulator::Emulator;
use hone_ops::Graph;
use hone_runtime::Model;
use hone_types::{Tensor, TensorType, text_of};
use std::sync::Arc;

/// Code for one target, on one thread.
pub struct Compiled {
    options: Options,
    machine: Machine,
}

/// What runs the code.
pub enum Machine {
    /// This machine.
    Here,
    /// An emulator of another.
    Emulated(Emulator),
    /// Nothing at hand: the code is made and not run.
    None,
}

impl Compiled {
    /// Code for the processor that this runs on.
    pub fn for_host() -> Result<Self> {
        Ok(Self::new(Target::host()?, Machine::Here))
    }

    /// Code for `target`, run by `machine`.
    pub fn new(target: Target, machine: Machine) -> Self {
        Self { options: Options::new(target), machine }
    }

    /// What runs the code.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The artifact of a graph, with its schedules as text.
    pub fn artifact(&self, graph: &Graph) -> Result<Vec<u8>> {
        Ok(compile_graph(graph.clone(), b"case", &self.options)?.artifact)
    }

    /// Compiles a graph and runs it; `None` where nothing runs it.
    pub fn run_graph(&self, graph: &Graph, inputs: &[Tensor]) -> Result<Option<Vec<Tensor>>> {
        let artifact = self.artifact(graph)?;
        let given: Vec<&[u8]> = inputs.iter().map(Tensor::bytes).collect();
        let (outputs, shapes) = match &self.machine {
            Machine::Here => run_here(artifact, &given, &texts(graph, inputs)?)?,
            Machine::Emulated(emulator) => {
                let mut model = hone_emulator::Model::load(&artifact, 0, emulator)?;
                for text in texts(graph, inputs)? {
                    model.texts().intern(&text).map_err(anyhow::Error::msg)?;
                }
                let outputs = model.run(&given)?;
                let shapes = model.output_shapes()?;
                (outputs, shapes)
            }
            Machine::None => return Ok(None),
        };
        let types = graph.outputs().iter().map(|port| graph.tensor_type(port.value).dtype);
        let tensors = types.zip(outputs).zip(shapes).map(|((dtype, mut bytes), shape)| {
            let shape: Vec<usize> = shape.into_iter().map(|extent| extent as usize).collect();
            let actual = TensorType::new(dtype, shape);
            // An extent that the run decides leaves zeros behind the tensor.
            ensure!(bytes[actual.bytes()..].iter().all(|byte| *byte == 0), "it ends in garbage");
            bytes.truncate(actual.bytes());
            Ok(Tensor::from_bytes(actual, bytes)?)
        });
        tensors.collect::<Result<_>>().map(Some)
    }
}

/// Outputs and their shapes.
type Outputs = (Vec<Vec<u8>>, Vec<Vec<u64>>);

/// The strings that inputs hold.
fn texts(graph: &Graph, inputs: &[Tensor]) -> Result<Vec<Arc<str>>> {
    let members = graph.interface().inputs.iter();
    let flags = members.flat_map(|own| vec![own.text; own.form.tensors()]);
    let mut found = Vec::new();
    for (input, _) in inputs.iter().zip(flags).filter(|(_, text)| *text) {
        found.extend(input.elements::<u64>()?.into_iter().filter_map(text_of));
    }
    Ok(found)
}

fn run_here(artifact: Vec<u8>, inputs: &[&[u8]], texts: &[Arc<str>]) -> Result<Outputs> {
    let options = hone_runtime::Options { threads: 1, ..Default::default() };
    let mut model = Model::load_memory(artifact, &options)?;
    for text in texts {
        model.text_handle(text)?;
    }
    let mut outputs: Vec<Vec<u8>> =
        model.outputs().iter().map(|info| vec![0; info.bytes as usize]).collect();
    let mut slots: Vec<&mut [u8]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
    model.run(inputs, &mut slots)?;
    let shapes = model.output_shapes().to_vec();
    Ok((outputs, shapes))
}

impl Backend for Compiled {
    fn name(&self) -> &'static str {
        "compiled code"
    }

    fn run(&self, graph: &Graph, inputs: &[Tensor]) -> Result<Option<Vec<Tensor>>> {
        self.run_graph(graph, inputs)
    }
}
