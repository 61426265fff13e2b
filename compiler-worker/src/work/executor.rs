//! Running an artifact, whole and by single steps: on this machine, or by whatever else can run its code.

use std::ops::Range;
use std::path::Path;

use hone_runtime::{Model, Options, StepArgument};

use crate::failure::{Failure, Result};
use crate::texts;

/// Something that runs one artifact's code, at first at its largest sizes. Verification needs no more than this.
pub trait Executor {
    /// What runs the code, for reports: `native`, or an emulator and its version.
    fn description(&self) -> String;

    /// Goes over to the artifact's variant of this number, counted among those for different sizes of one target.
    ///
    /// # Errors
    /// A number that is none; an emulator that fails.
    fn select(&mut self, sizes: usize) -> Result<()>;

    /// Goes over to sizes that are composed of the artifact's, by the shapes of the inputs; `false` where this executor runs
    /// those of single variants alone.
    ///
    /// # Errors
    /// Shapes that the artifact does not take.
    fn set_shapes(&mut self, _inputs: &[Vec<u64>]) -> Result<bool> {
        Ok(false)
    }

    /// One run of the model: its outputs for `inputs`, both in the manifest's order, each dense and little
    /// endian.
    ///
    /// # Errors
    /// Inputs that do not fit; an emulator that fails.
    fn run(&mut self, inputs: &[Vec<u8>]) -> Result<Vec<Vec<u8>>>;

    /// Runs the consecutive steps `steps` of the variant alone; all of them have the same arguments (they
    /// are the functions of one kernel), and `arguments` says what becomes of each, in the order of the
    /// step table. Offsets in the arena and weights are those of the artifact.
    ///
    /// # Errors
    /// Arguments that do not fit; a kernel that stores outside of its buffers, where that is noticed.
    fn run_steps(&mut self, steps: Range<usize>, arguments: &mut [StepArgument<'_>]) -> Result<()>;
}

/// The runtime in this process.
#[derive(Debug)]
pub struct Native {
    model: Model,
}

impl Native {
    /// Loads an artifact.
    ///
    /// # Errors
    /// As for [`Model::load`].
    pub fn load(artifact: &Path, options: &Options) -> Result<Self> {
        let mut model = Model::load(artifact, options)?;
        texts::teach_model(&mut model);
        Ok(Self { model })
    }

    /// Loads an artifact from memory.
    ///
    /// # Errors
    /// As for [`Model::load_memory`].
    pub fn from_bytes(artifact: Vec<u8>, options: &Options) -> Result<Self> {
        let mut model = Model::load_memory(artifact, options)?;
        texts::teach_model(&mut model);
        Ok(Self { model })
    }
}

impl Executor for Native {
    fn description(&self) -> String {
        super::Machine::of(&self.model.variant().target).name().unwrap_or_default().to_owned()
    }

    fn select(&mut self, sizes: usize) -> Result<()> {
        match self.model.select_sizes(sizes) {
            true => Ok(()),
            false => Err(Failure::internal("the artifact has no variant of this number")),
        }
    }

    fn set_shapes(&mut self, inputs: &[Vec<u64>]) -> Result<bool> {
        let shapes: Vec<&[u64]> = inputs.iter().map(Vec::as_slice).collect();
        self.model.set_input_shapes(&shapes)?;
        Ok(true)
    }

    fn run(&mut self, inputs: &[Vec<u8>]) -> Result<Vec<Vec<u8>>> {
        let of_text = self.model.text_tensors(false);
        // What is refused here is refused by the run, with its node.
        texts::each_given(&of_text, inputs, |text| drop(self.model.text_handle(text)));
        let sizes = self.model.outputs().iter().map(|tensor| tensor.bytes as usize);
        let mut outputs: Vec<Vec<u8>> = sizes.map(|bytes| vec![0; bytes]).collect();
        let read: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let mut written: Vec<&mut [u8]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
        self.model.run(&read, &mut written)?;
        Ok(outputs)
    }

    fn run_steps(&mut self, steps: Range<usize>, arguments: &mut [StepArgument<'_>]) -> Result<()> {
        Ok(self.model.run_steps(steps, arguments)?)
    }
}
