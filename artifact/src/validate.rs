//! Checks that a manifest is sound by itself, so that no kernel is ever handed a byte outside of the
//! buffers that the manifest declares.
//!
//! Checked: the schema's version; that there is a variant; every tensor's size against its type and
//! shape; unique input and output names; every step's tasks; every argument's index, alignment, end and
//! access; the program ([`crate::Part`]); the sizes of variants ([`crate::Shapes`], [`crate::OpenDimension`]); that all
//! sizes fit the address space.

use crate::manifest::{
    Access, Argument, BUFFER_ALIGNMENT, Manifest, OLDEST_SCHEMA_VERSION, SCHEMA_VERSION, Slot,
    Step, TensorInfo, Variant,
};

use std::collections::HashSet;

/// Largest size in bytes that a manifest may declare: the user half of a 48-bit address space.
pub(crate) const MAX_BYTES: u64 = 1 << 47;

/// What is wrong with a manifest.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// Written for another version of the schema.
    #[error(
        "manifest has schema version {found}, this program reads version {OLDEST_SCHEMA_VERSION} to {SCHEMA_VERSION}; compile the model again or use the matching version of hone"
    )]
    SchemaVersion {
        /// The version found.
        found: u32,
    },
    /// There is no variant at all.
    #[error("manifest has no target variant; compile the model again")]
    NoVariant,
    /// A tensor's declaration contradicts itself.
    #[error("{role} '{name}': {what}")]
    Tensor {
        /// `input` or `output`.
        role: &'static str,
        /// The tensor's name.
        name: String,
        /// What is wrong.
        what: String,
    },
    /// A variant's declaration is impossible.
    #[error("variant {variant}: {what}")]
    Variant {
        /// Position of the variant.
        variant: usize,
        /// What is wrong.
        what: String,
    },
    /// A step is impossible or reaches outside of its buffers.
    #[error("variant {variant}, step {step} (kernel '{kernel}', nodes {nodes:?}): {what}")]
    Step {
        /// Position of the variant.
        variant: usize,
        /// Position of the step.
        step: usize,
        /// The kernel's symbol.
        kernel: String,
        /// The graph nodes of the step.
        nodes: Vec<String>,
        /// What is wrong.
        what: String,
    },
}

impl Manifest {
    /// Checks everything that can be checked without the file's other sections.
    ///
    /// # Errors
    /// The first fault found, with the object it is in.
    pub fn validate(&self) -> Result<(), ManifestError> {
        if !(OLDEST_SCHEMA_VERSION..=SCHEMA_VERSION).contains(&self.schema_version) {
            return Err(ManifestError::SchemaVersion { found: self.schema_version });
        }
        tensors("input", &self.inputs)?;
        tensors("output", &self.outputs)?;
        self.check_interface()?;
        if self.variants.is_empty() {
            return Err(ManifestError::NoVariant);
        }
        for (index, variant) in self.variants.iter().enumerate() {
            self.check_variant(variant)
                .and_then(|()| self.check_shapes(index))
                .and_then(|()| self.check_program(variant))
                .and_then(|()| self.check_device(variant))
                .map_err(|what| ManifestError::Variant { variant: index, what })?;
            for (position, step) in variant.steps.iter().enumerate() {
                let checked = self.check_step(variant, step);
                let checked = checked.and_then(|()| check_beside(&variant.steps[position..]));
                checked.map_err(|what| ManifestError::Step {
                    variant: index,
                    step: position,
                    kernel: step.kernel.clone(),
                    nodes: step.nodes.clone(),
                    what,
                })?;
            }
        }
        for index in 0..self.variants.len() {
            let fault = |what| ManifestError::Variant { variant: index, what };
            self.check_siblings(index).map_err(fault)?;
        }
        let checked = self.check_open().and_then(|()| self.check_padded());
        checked.map_err(|what| ManifestError::Variant { variant: 0, what })?;
        Ok(())
    }

    fn check_variant(&self, variant: &Variant) -> Result<(), String> {
        if variant.target.triple.is_empty() {
            return Err("its target triple is empty".into());
        }
        for (what, bytes) in [
            ("arena", variant.arena_bytes),
            ("weights", variant.weights_bytes),
            ("scratch per thread", variant.scratch_bytes_per_thread),
        ] {
            if bytes > MAX_BYTES {
                return Err(format!("its {what} of {bytes} bytes fit no address space"));
            }
        }
        Ok(())
    }

    fn check_step(&self, variant: &Variant, step: &Step) -> Result<(), String> {
        if step.kernel.is_empty() || step.kernel.contains('\0') {
            return Err("the kernel's symbol is empty or holds a zero byte".into());
        }
        if step.tasks > i64::MAX as u64 {
            return Err(format!("{} tasks do not fit 63 bits", step.tasks));
        }
        if step.min_tasks_per_thread == 0 {
            return Err("minTasksPerThread is 0, the least is 1".into());
        }
        check_waves(step)?;
        for (index, argument) in step.arguments.iter().enumerate() {
            self.check_argument(variant, argument)
                .map_err(|what| format!("argument {index}: {what}"))?;
        }
        Ok(())
    }

    fn check_argument(&self, variant: &Variant, argument: &Argument) -> Result<(), String> {
        self.check_slot(variant, argument.slot, argument.bytes, argument.access)
    }

    /// Whether `bytes` from a slot on lie inside of what the slot is in, aligned, and may be accessed so.
    pub(crate) fn check_slot(
        &self,
        variant: &Variant,
        slot: Slot,
        bytes: u64,
        access: Access,
    ) -> Result<(), String> {
        let reads_only = access == Access::Read;
        let (place, offset, limit, alignment) = match slot {
            Slot::Input { index, offset } => {
                let (size, alignment) = self.port(variant, false, index).ok_or_else(|| {
                    format!("there is no input {index} (the model has {})", self.inputs.len())
                })?;
                ("input", offset, size, alignment)
            }
            Slot::Output { index, offset } => {
                let (size, alignment) = self.port(variant, true, index).ok_or_else(|| {
                    format!("there is no output {index} (the model has {})", self.outputs.len())
                })?;
                ("output", offset, size, alignment)
            }
            Slot::Arena { offset } => ("arena", offset, variant.arena_bytes, BUFFER_ALIGNMENT),
            Slot::Weight { offset } => ("weights", offset, variant.weights_bytes, BUFFER_ALIGNMENT),
        };
        if !reads_only && matches!(place, "input" | "weights") {
            return Err(format!("it would write the {place}, which may only be read"));
        }
        if offset % alignment != 0 {
            return Err(format!(
                "offset {offset} in the {place} is not a multiple of {alignment} bytes"
            ));
        }
        match offset.checked_add(bytes) {
            Some(end) if end <= limit => Ok(()),
            _ => Err(format!(
                "{bytes} bytes at offset {offset} reach outside of the {place} of {limit} bytes"
            )),
        }
    }
}

fn tensors(role: &'static str, list: &[TensorInfo]) -> Result<(), ManifestError> {
    let fault = |tensor: &TensorInfo, what: String| {
        Err(ManifestError::Tensor { role, name: tensor.name.clone(), what })
    };
    let mut names: HashSet<&str> = HashSet::with_capacity(list.len());
    for tensor in list {
        match tensor.dtype.bytes_of(&tensor.shape) {
            Some(bytes) if bytes <= MAX_BYTES => {
                if bytes != tensor.bytes {
                    let (said, dtype, shape) = (tensor.bytes, tensor.dtype, &tensor.shape);
                    return fault(
                        tensor,
                        format!("says {said} bytes where {dtype} {shape:?} has {bytes}"),
                    );
                }
            }
            _ => {
                return fault(tensor, format!("shape {:?} fits no address space", tensor.shape));
            }
        }
        if tensor.name.contains('\0') {
            return fault(tensor, "its name holds a zero byte".into());
        }
        if !names.insert(&tensor.name) {
            return fault(tensor, "the name occurs twice".into());
        }
    }
    Ok(())
}

/// Whether the waves of a step can be numbered, and are of a step of one task.
fn check_waves(step: &Step) -> Result<(), String> {
    let Some(waves) = step.waves else { return Ok(()) };
    if step.tasks != 1 {
        return Err(format!("it has waves and {} tasks, one may be", step.tasks));
    }
    if waves.min_parts_per_thread == 0 {
        return Err("minPartsPerThread is 0, the least is 1".into());
    }
    let last = waves.waves.checked_mul(waves.parts).and_then(|tasks| tasks.checked_add(1));
    match last.is_some_and(|last| i64::try_from(last).is_ok()) {
        true => Ok(()),
        false => Err(format!("{} waves of {} parts do not fit 63 bits", waves.waves, waves.parts)),
    }
}

/// Whether the steps that may run at the same time by what the first one says are there, and apart in memory.
fn check_beside(steps: &[Step]) -> Result<(), String> {
    let Some([first, second]) = steps[0].beside else { return Ok(()) };
    let (first, second) = (first as usize, second as usize);
    if first == 0 || second == 0 || first.saturating_add(second) > steps.len() {
        return Err(format!("{first} steps beside {second} are not there"));
    }
    let (one, rest) = steps.split_at(first);
    for own in one.iter().flat_map(|step| &step.arguments) {
        for other in rest[..second].iter().flat_map(|step| &step.arguments) {
            let is_read = own.access == Access::Read && other.access == Access::Read;
            if !is_read && meet(own, other) {
                return Err("a step beside it writes what it reads or writes".into());
            }
        }
    }
    Ok(())
}

/// Whether two arguments have bytes in common.
fn meet(one: &Argument, other: &Argument) -> bool {
    let begins = match (one.slot, other.slot) {
        (Slot::Arena { offset }, Slot::Arena { offset: other })
        | (Slot::Weight { offset }, Slot::Weight { offset: other }) => (offset, other),
        (Slot::Input { index, offset }, Slot::Input { index: at, offset: other })
        | (Slot::Output { index, offset }, Slot::Output { index: at, offset: other })
            if index == at =>
        {
            (offset, other)
        }
        _ => return false,
    };
    begins.0 < begins.1.saturating_add(other.bytes) && begins.1 < begins.0.saturating_add(one.bytes)
}
