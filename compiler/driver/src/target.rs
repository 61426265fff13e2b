//! What an artifact is made for: a processor, and an accelerator beside it where one runs the steps.

use hone_artifact::Accelerator;
use hone_codegen::CodegenError;
use hone_machine::Machine;
use hone_tensor::Intrinsic;
use hone_types::DataType;
use std::ops::Deref;

/// What an artifact is made for. It stands for its processor wherever only that matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The processor: that of the host, where an accelerator runs the steps.
    pub processor: hone_codegen::Target,
    /// What runs the steps, where that is not the processor.
    pub accelerator: Option<Accelerator>,
}

impl Target {
    /// This machine; see [`hone_codegen::Target::host`].
    ///
    /// # Errors
    /// A processor that LLVM does not know.
    pub fn host() -> Result<Self, CodegenError> {
        hone_codegen::Target::host().map(Self::from)
    }

    /// The machine that a platform names; see [`hone_codegen::Target::for_platform`].
    ///
    /// # Errors
    /// A platform or a processor that is not known.
    pub fn for_platform(os: &str, arch: &str, cpu: &str) -> Result<Self, CodegenError> {
        hone_codegen::Target::for_platform(os, arch, cpu).map(Self::from)
    }

    /// A target by LLVM's names; see [`hone_codegen::Target::new`].
    ///
    /// # Errors
    /// A triple, a processor or a feature that LLVM does not know.
    pub fn new(triple: &str, cpu: &str, features: Vec<String>) -> Result<Self, CodegenError> {
        hone_codegen::Target::new(triple, cpu, features).map(Self::from)
    }

    /// The same with an accelerator that runs the steps. The host runs no code of ours, so any processor of its
    /// architecture will do.
    ///
    /// # Errors
    /// An architecture that is not known.
    pub fn with_accelerator(self, accelerator: Accelerator) -> Result<Self, CodegenError> {
        let arch = self.processor.triple.split('-').next().unwrap_or_default();
        let processor = hone_codegen::Target::for_platform("linux", arch, "")?;
        Ok(Self { processor, accelerator: Some(accelerator) })
    }

    /// The processor as choices see it: vectors by its instruction set, the rest by its name where that is known.
    pub(crate) fn machine(&self) -> Machine {
        // A product that is not fused with its sum needs a register for itself.
        let registers = self.vector_registers - usize::from(!self.fuses_multiply_add());
        let machine = Machine::with_vectors(self.vector_bytes, registers).of_processor(&self.cpu);
        let products = [Intrinsic::TILE_BF16, Intrinsic::TILE_U8_I8];
        Machine { has_tiles: products.into_iter().all(|of| self.has_intrinsic(of)), ..machine }
    }

    /// Floating-point types of 16 bits whose vectors the processor widens to `f32` in an instruction or two: bfloat16 by a
    /// shift, binary16 where it has the instruction. A number alone would take as many as a vector.
    pub(crate) fn narrow_floats(&self) -> &'static [DataType] {
        let is_scalar =
            self.triple.starts_with("riscv64") && !self.resolved.iter().any(|on| on == "+v");
        match (is_scalar, self.half_conversion) {
            (true, _) => &[],
            (false, true) => &[DataType::BF16, DataType::F16],
            (false, false) => &[DataType::BF16],
        }
    }

    /// Whether it has instructions for products of a type: the accelerator's, where one runs the steps.
    pub fn multiplies(&self, dtype: DataType) -> bool {
        match self.accelerator {
            Some(accelerator) => crate::device::multiplies(accelerator, dtype),
            None => self.processor.multiplies(dtype),
        }
    }
}

impl Deref for Target {
    type Target = hone_codegen::Target;

    fn deref(&self) -> &hone_codegen::Target {
        &self.processor
    }
}

impl From<hone_codegen::Target> for Target {
    fn from(processor: hone_codegen::Target) -> Self {
        Self { processor, accelerator: None }
    }
}
