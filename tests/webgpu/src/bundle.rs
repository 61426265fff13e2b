//! What a page needs to run a model by WebGPU: the step table and memory plan that the compiler makes for OpenCL, the
//! weights, and WGSL of the same programs.

use anyhow::{Context, Result, ensure};
use hone_artifact::{Reader, Slot, Variant};
use hone_codegen_text::{Module, Wgsl, emit, source};
use hone_driver::{
    Accelerator, ImportOptions, Options, Target, compile_edited, device_limits, import,
};
use hone_tensor::{Program, Role};
use std::collections::BTreeMap;
use std::path::Path;

/// The files of a bundle.
pub struct Bundle {
    /// Inputs, outputs, steps and launches, as an artifact's manifest has them.
    pub manifest: serde_json::Value,
    /// One text with every kernel.
    pub text: String,
    /// What the steps read of the weights.
    pub weights: Vec<u8>,
}

impl Bundle {
    /// Compiles a model whose sizes are all given.
    ///
    /// # Errors
    /// A model that has no code for devices; one that needs what a page does not do: control flow, and steps of the
    /// runtime's own.
    pub fn new(model: &[u8]) -> Result<Self> {
        let graph = import(model, &ImportOptions::default())?.graph;
        let target = Target::host()?.with_accelerator(Accelerator::OpenCl)?;
        let limits = device_limits(Accelerator::OpenCl);
        // The programs of the kernels, in the order of their symbols.
        let mut programs = Vec::new();
        let compiled = compile_edited(graph, model, &Options::new(target), &mut |_, program| {
            programs.push(program.clone());
        })?;
        let artifact = Reader::new(&compiled.artifact)?;
        let manifest = artifact.manifest();
        let variant = manifest.variants.first().context("an artifact without a variant")?;
        ensure!(variant.program.is_empty(), "a page runs steps one after another");
        let device = variant.device.as_ref().context("a variant without launches")?;
        ensure!(device.kernels.len() == programs.len(), "kernels without a program");
        let inputs = device.kernels.iter().zip(&programs);
        let inputs = inputs.map(|(kernel, program)| (&*kernel.symbol, inputs_of(program)));
        values_lie_apart(variant, &inputs.collect())?;
        let dialect = Wgsl::default();
        let modules: Vec<Module> = device
            .kernels
            .iter()
            .zip(&programs)
            .map(|(kernel, program)| Ok(emit(program, &dialect, &limits, &kernel.symbol)?))
            .collect::<Result<_>>()?;
        let text = source(&dialect, &modules.iter().collect::<Vec<_>>());
        let manifest = serde_json::json!({
            "inputs": manifest.inputs,
            "outputs": manifest.outputs,
            "steps": variant.steps,
            "kernels": device.kernels,
        });
        let weights = artifact.weights(variant.weights).context("an artifact without weights")?;
        Ok(Self { manifest, text, weights: weights.to_vec() })
    }

    /// Writes `manifest.json`, `kernels.wgsl` and `weights.bin` into a folder.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn write(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder)?;
        std::fs::write(folder.join("manifest.json"), self.manifest.to_string())?;
        std::fs::write(folder.join("kernels.wgsl"), &self.text)?;
        std::fs::write(folder.join("weights.bin"), &self.weights)?;
        Ok(())
    }
}

/// The numbers of a kernel's arguments that are inputs; it computes the others itself.
fn inputs_of(program: &Program) -> Vec<usize> {
    let parameters = program.parameters().into_iter().enumerate();
    let inputs = parameters
        .filter(|(_, buffer)| matches!(program.buffers[*buffer].role, Role::Input(_)))
        .map(|(number, _)| number);
    inputs.collect()
}

/// Refuses a plan in which a step reads the arena where no step wrote from the same place on: WebGPU lets no kernel
/// read one part of a buffer and write another, so that a page gives every place a buffer of its own.
fn values_lie_apart(variant: &Variant, inputs: &BTreeMap<&str, Vec<usize>>) -> Result<()> {
    let mut written: BTreeMap<u64, u64> = BTreeMap::new();
    for step in &variant.steps {
        let inputs = inputs.get(&*step.kernel).context("a step without a kernel")?;
        for (number, argument) in step.arguments.iter().enumerate() {
            let Slot::Arena { offset } = argument.slot else { continue };
            let bytes = argument.bytes;
            if !inputs.contains(&number) {
                written.insert(offset, bytes);
                continue;
            }
            let there = written.get(&offset).copied().unwrap_or(0);
            let nodes = &step.nodes;
            ensure!(
                there >= bytes,
                "{nodes:?}: {bytes} bytes at {offset} are part of another value"
            );
        }
    }
    Ok(())
}
