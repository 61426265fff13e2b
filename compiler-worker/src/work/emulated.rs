//! Running an artifact for another processor in an emulator, and who can run an artifact at all.

use std::ops::Range;
use std::path::Path;

use hone_artifact::exit_code::Reason;
use hone_artifact::{Accelerator, Manifest, Reader, Target};
use hone_emulator::{Emulator, EmulatorError, Model};
use hone_runtime::{Options, StepArgument};

use super::executor::{Executor, Native};
use crate::device::DeviceFacts;
use crate::failure::{Failure, Result};

/// What can run code for a target.
#[derive(Debug)]
pub enum Machine {
    /// This machine, as it is.
    Here,
    /// A device of this machine, with its name and driver.
    Device(String),
    /// An emulator that is installed here; its speed means nothing.
    Emulated(Emulator),
    /// Nothing, for this reason.
    Missing(String),
}

impl Machine {
    /// The machine for a target: this one before any emulator.
    pub fn of(target: &Target) -> Self {
        match (hone_runtime::cpu::refusal(target), target.accelerator) {
            (None, None) => return Self::Here,
            (None, Some(accelerator)) => return Self::with_device(accelerator),
            (Some(_), Some(_)) => {
                return Self::Missing("it is for another host than this".to_owned());
            }
            (Some(_), None) => {}
        }
        match Emulator::find(target) {
            Ok(emulator) => Self::Emulated(emulator),
            Err(error) => Self::Missing(error.to_string()),
        }
    }

    /// This machine with its device, where it has one.
    fn with_device(accelerator: Accelerator) -> Self {
        match hone_runtime::accelerator::chosen_device(accelerator.api()) {
            Ok(info) if info.capability.is_some_and(|has| !accelerator.runs_on(has)) => {
                let (name, version) = (&info.name, &info.version);
                Self::Missing(format!("its device '{name}' has {version}"))
            }
            Ok(info) => Self::Device(DeviceFacts::of(&info).title()),
            Err(error) => Self::Missing(error.to_string()),
        }
    }

    /// The machine for an artifact: that of its first variant that this one can run, else of its first.
    pub fn for_artifact(manifest: &Manifest) -> Self {
        let mut targets = manifest.variants.iter().map(|variant| &variant.target);
        let mut runnable = targets.clone();
        match (runnable.find(|own| hone_runtime::cpu::refusal(own).is_none()), targets.next()) {
            (Some(first), _) | (None, Some(first)) => Self::of(first),
            (None, None) => Self::Missing("the artifact has no code".to_owned()),
        }
    }

    /// Whether it is this machine or a device of it, so that times mean something.
    pub fn is_here(&self) -> bool {
        matches!(self, Self::Here | Self::Device(_))
    }

    /// What reports call it: `native`, or the emulator with its version; `None` where nothing runs the code.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Here => Some(NATIVE),
            Self::Device(title) => Some(title),
            Self::Emulated(emulator) => Some(emulator.name()),
            Self::Missing(_) => None,
        }
    }

    /// Loads an artifact to run it; `None` where nothing can.
    ///
    /// # Errors
    /// An artifact that cannot be loaded.
    pub fn load(&self, artifact: &Path) -> Result<Option<Box<dyn Executor>>> {
        Ok(match self {
            Self::Here | Self::Device(_) => {
                Some(Box::new(Native::load(artifact, &Options::default())?))
            }
            Self::Emulated(emulator) => Some(Box::new(Emulated::load(artifact, emulator)?)),
            Self::Missing(_) => None,
        })
    }
}

/// What reports call this machine.
pub const NATIVE: &str = "native";

/// A variant of an artifact for its first target, in an emulated process.
#[derive(Debug)]
pub struct Emulated {
    model: Model,
    /// Which of the variants for different sizes it is.
    sizes: usize,
    artifact: Vec<u8>,
    emulator: Emulator,
}

impl Emulated {
    /// Loads an artifact.
    ///
    /// # Errors
    /// A file that cannot be read, or is no sound artifact; an emulator that does not start.
    pub fn load(artifact: &Path, emulator: &Emulator) -> Result<Self> {
        let bytes = std::fs::read(artifact).map_err(|error| {
            Failure::io(format!("artifact '{}' cannot be read", artifact.display()), error)
        })?;
        let mut model = Model::load(&bytes, 0, emulator)?;
        crate::texts::teach(model.texts());
        Ok(Self { model, sizes: 0, artifact: bytes, emulator: emulator.clone() })
    }
}

impl Executor for Emulated {
    fn description(&self) -> String {
        self.emulator.name().to_owned()
    }

    fn select(&mut self, sizes: usize) -> Result<()> {
        let reader = Reader::new(&self.artifact).map_err(|error| {
            Failure::because(Reason::InvalidArtifact, "the artifact cannot be read", error)
        })?;
        let variants = reader.manifest().siblings(0);
        let none = || Failure::internal("the artifact has no variant of this number");
        let variant = *variants.get(sizes).ok_or_else(none)?;
        if sizes != self.sizes {
            self.model = Model::load(&self.artifact, variant, &self.emulator)?;
            self.sizes = sizes;
        }
        Ok(())
    }

    fn run(&mut self, inputs: &[Vec<u8>]) -> Result<Vec<Vec<u8>>> {
        let of_text = self.model.text_inputs();
        let known = self.model.texts();
        // What is refused here is refused by the run, with its node.
        crate::texts::each_given(&of_text, inputs, |text| drop(known.intern(text)));
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        Ok(self.model.run(&inputs)?)
    }

    fn run_steps(&mut self, steps: Range<usize>, arguments: &mut [StepArgument<'_>]) -> Result<()> {
        let first = steps.start;
        for (place, argument) in arguments.iter().enumerate() {
            match argument {
                StepArgument::Leave => {}
                StepArgument::Fill(bytes) => self.model.write_argument(first, place, bytes)?,
                StepArgument::Exchange(bytes) => self.model.write_argument(first, place, bytes)?,
            }
        }
        for step in steps {
            self.model.call(step)?;
        }
        for (place, argument) in arguments.iter_mut().enumerate() {
            if let StepArgument::Exchange(bytes) = argument {
                bytes.copy_from_slice(&self.model.read_argument(first, place)?);
            }
        }
        Ok(())
    }
}

impl From<EmulatorError> for Failure {
    fn from(error: EmulatorError) -> Self {
        use EmulatorError as E;
        let reason = match &error {
            E::Missing { .. } | E::Features { .. } => Reason::TargetMismatch,
            E::Artifact(_) | E::Variant { .. } | E::Code { .. } | E::Text { .. } => {
                Reason::InvalidArtifact
            }
            E::Size { .. }
            | E::Count { .. }
            | E::Step { .. }
            | E::Overrun { .. }
            | E::Host { .. } => Reason::InvalidInput,
            E::Memory { .. } => Reason::OutOfMemory,
            // The code itself crashed, or the program beside it cannot be made: neither is the user's.
            E::Ended { .. } | E::Runner(_) => Reason::CompilerError,
            E::Start { .. } | E::File(_) | E::Failed { .. } => Reason::InternalError,
        };
        Self::because(reason, "the artifact cannot be run in an emulator", error)
    }
}
