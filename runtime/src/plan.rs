//! What all contexts of a loaded model share: code, weights, and the step table of each of its sizes made ready to
//! call.

use std::ffi::c_void;
use std::ops::Range;
use std::path::Path;

use hone_artifact::{Manifest, Reader, Slot, TensorInfo, Variant};

use crate::LoadError;
use crate::claim;
use crate::cpu;
use crate::library::{Kernel, Library};
use crate::memory::Region;
use crate::options::{HugePages, Options};
use crate::program::{Part, program};
use crate::source::Source;

/// Bytes copied at a time when weights move out of the file, so that both copies are never whole.
const COPY: usize = 4 << 20;

/// One step, ready to call.
pub(crate) struct Call {
    pub(crate) kernel: Kernel,
    /// Where its arguments begin in a context's table of pointers.
    pub(crate) first: usize,
    pub(crate) tasks: i64,
    /// Most threads that the step is worth; at least 1. A step of more tasks than [`claim::MAX_TASKS`]
    /// stays on one thread: none that is worth its tasks has as many.
    pub(crate) threads: usize,
    /// Fewest tasks that a thread claims at a time.
    pub(crate) grain: u32,
}

/// An entry of the table of pointers that every run sets anew.
pub(crate) struct Patch {
    pub(crate) entry: usize,
    pub(crate) output: bool,
    pub(crate) index: usize,
    pub(crate) offset: usize,
}

/// A loaded artifact: see the module's documentation.
pub(crate) struct Loaded {
    pub(crate) manifest: Manifest,
    /// One for each of the sizes that the code for this machine is for; never empty.
    pub(crate) plans: Vec<Plan>,
    pub(crate) threads: usize,
    pub(crate) huge_pages: bool,
    weights: *const u8,
    // What the pointers above point into; dropped after them.
    _library: Library,
    _copy: Option<Region>,
    _source: Source,
}

// SAFETY: the weights are only read, and everything else is plain data or itself Send and Sync.
unsafe impl Send for Loaded {}
// SAFETY: as above.
unsafe impl Sync for Loaded {}

/// What a run of one variant follows. It is made when the model is loaded, and kept.
pub(crate) struct Plan {
    /// Position of the variant in the manifest.
    pub(crate) variant: usize,
    /// The model's inputs and outputs in this variant's shapes.
    pub(crate) inputs: Vec<TensorInfo>,
    pub(crate) outputs: Vec<TensorInfo>,
    pub(crate) calls: Vec<Call>,
    /// In which order the calls run.
    pub(crate) program: Vec<Part>,
    /// Slots of what the program reads and writes itself, and at last of the extents of outputs; their entries in
    /// the table of pointers are behind those of the steps' arguments.
    operands: Vec<Slot>,
    pub(crate) patches: Vec<Patch>,
    /// Entries of the table of pointers that lead to the extents of outputs, in the manifest's order.
    pub(crate) extents: Range<usize>,
}

impl Loaded {
    /// Checks the artifact and brings its code and weights in. `name` is for messages.
    pub(crate) fn new(source: Source, name: &Path, options: &Options) -> Result<Self, LoadError> {
        let fault = |source| LoadError::Artifact { path: name.to_path_buf(), source };
        let reader = Reader::new(source.bytes()).map_err(fault)?;
        let chosen = cpu::choose(&reader.manifest().variants)
            .map_err(|refusals| LoadError::Cpu { refusals })?;
        if options.verify {
            reader.verify().map_err(fault)?;
        }
        let variant = &reader.manifest().variants[chosen];
        // The reader has checked that both sections are there.
        let library = Library::load(reader.code(variant.code).unwrap_or_default())?;
        let siblings = reader.manifest().siblings(chosen);
        let plans = siblings.into_iter().map(|own| Plan::new(reader.manifest(), own, &library));
        let plans = plans.collect::<Result<_, _>>()?;
        let packed = reader.weights(variant.weights).unwrap_or_default();
        let copy = copy_weights(&source, packed, options.huge_pages)?;
        let weights = copy.as_ref().map_or(packed.as_ptr(), |region| region.base().cast_const());
        Ok(Self {
            manifest: reader.into_manifest(),
            plans,
            threads: options.threads,
            huge_pages: options.huge_pages != HugePages::None,
            weights,
            _library: library,
            _copy: copy,
            _source: source,
        })
    }

    /// The variant of a plan.
    pub(crate) fn variant(&self, plan: &Plan) -> &Variant {
        &self.manifest.variants[plan.variant]
    }

    /// The pointers of all steps' arguments of a plan in order; those that a run sets are null.
    pub(crate) fn table(&self, plan: &Plan, arena: *mut u8) -> Vec<*mut c_void> {
        let slots = slots(self.variant(plan), &plan.operands);
        let place = |slot| match slot {
            Slot::Arena { offset } => arena.wrapping_add(offset as usize),
            Slot::Weight { offset } => self.weights.cast_mut().wrapping_add(offset as usize),
            Slot::Input { .. } | Slot::Output { .. } => std::ptr::null_mut(),
        };
        slots.map(|slot| place(slot).cast()).collect()
    }
}

impl Plan {
    fn new(manifest: &Manifest, position: usize, library: &Library) -> Result<Self, LoadError> {
        let variant = &manifest.variants[position];
        let (calls, entries) = calls(variant, library)?;
        let (program, mut operands) = program(variant, &entries);
        operands.extend(variant.extents.iter().map(|extent| extent.slot));
        let patches = patches(variant, &operands);
        let end = entries.last().copied().unwrap_or(0) + operands.len();
        Ok(Self {
            variant: position,
            inputs: manifest.inputs_of(variant),
            outputs: manifest.outputs_of(variant),
            calls,
            program,
            operands,
            patches,
            extents: end - variant.extents.len()..end,
        })
    }
}

/// The calls of a variant, and the first entry of each in the table of pointers, with their number at the end.
fn calls(variant: &Variant, library: &Library) -> Result<(Vec<Call>, Vec<usize>), LoadError> {
    let mut first = 0;
    let mut calls = Vec::with_capacity(variant.steps.len());
    for (index, step) in variant.steps.iter().enumerate() {
        let kernel = library
            .kernel(&step.kernel)
            .ok_or_else(|| LoadError::NoKernel { kernel: step.kernel.clone(), step: index })?;
        let worth = match step.tasks <= claim::MAX_TASKS {
            true => step.tasks / step.min_tasks_per_thread,
            false => 1,
        };
        calls.push(Call {
            kernel,
            first,
            tasks: step.tasks as i64,
            threads: usize::try_from(worth).unwrap_or(usize::MAX).max(1),
            grain: claim::grain(step.min_tasks_per_thread),
        });
        first += step.arguments.len();
    }
    let entries = calls.iter().map(|call| call.first).chain([first]).collect();
    Ok((calls, entries))
}

/// Slots of all entries of the table of pointers in order.
fn slots<'a>(variant: &'a Variant, operands: &'a [Slot]) -> impl Iterator<Item = Slot> + 'a {
    let arguments = variant.steps.iter().flat_map(|step| &step.arguments);
    arguments.map(|argument| argument.slot).chain(operands.iter().copied())
}

fn patches(variant: &Variant, operands: &[Slot]) -> Vec<Patch> {
    slots(variant, operands)
        .enumerate()
        .filter_map(|(entry, slot)| match slot {
            Slot::Input { index, offset } => Some((entry, false, index, offset)),
            Slot::Output { index, offset } => Some((entry, true, index, offset)),
            Slot::Arena { .. } | Slot::Weight { .. } => None,
        })
        .map(|(entry, output, index, offset)| Patch {
            entry,
            output,
            index: index as usize,
            offset: offset as usize,
        })
        .collect()
}

/// A copy of the weights where huge pages are wanted for them or they are not aligned where they lie.
fn copy_weights(
    source: &Source,
    packed: &[u8],
    huge_pages: HugePages,
) -> Result<Option<Region>, LoadError> {
    let aligned = (packed.as_ptr() as u64).is_multiple_of(hone_artifact::BUFFER_ALIGNMENT);
    if packed.is_empty() || (aligned && huge_pages != HugePages::ArenaAndWeights) {
        return Ok(None);
    }
    let region = reserve(packed.len(), huge_pages != HugePages::None, "the weights")?;
    let start = packed.as_ptr() as usize - source.bytes().as_ptr() as usize;
    for (index, chunk) in packed.chunks(COPY).enumerate() {
        let offset = index * COPY;
        // SAFETY: the region has the weights' size, is new, and so overlaps nothing.
        unsafe { region.base().add(offset).copy_from_nonoverlapping(chunk.as_ptr(), chunk.len()) };
        source.forget(start + offset, chunk.len());
    }
    Ok(Some(region))
}

/// A region, or an error that says what it was for.
pub(crate) fn reserve(
    bytes: usize,
    huge_pages: bool,
    what: &'static str,
) -> Result<Region, LoadError> {
    Region::new(bytes, huge_pages).map_err(|source| LoadError::Memory {
        bytes: bytes as u64,
        what,
        source,
    })
}
