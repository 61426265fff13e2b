//! What all contexts of a loaded model share: code, weights, and the step table of each of its sizes made ready to
//! call.

use std::ffi::c_void;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use hone_artifact::{Manifest, Reader, Slot, TensorInfo, Texts, Variant};

use crate::accelerator::Code;
use crate::claim;
use crate::cpu;
use crate::gang::MAX_WAVES;
use crate::images;
use crate::library::{Kernel, Library};
use crate::memory::Region;
use crate::options::{HugePages, Options};
use crate::program::{Part, program};
use crate::source::Source;
use crate::{DeviceError, LoadError};

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
    /// The numbers of calls from this one on, and behind them, that may run at the same time.
    pub(crate) beside: Option<[usize; 2]>,
    /// Fewest tasks that a thread claims at a time.
    pub(crate) grain: u32,
    /// How threads divide a step of one task, where they do.
    pub(crate) waves: Option<Waves>,
}

impl Call {
    /// Most threads that may have something to do; two where chains of steps run beside each other.
    fn most_threads(&self) -> usize {
        let chains = if self.beside.is_some() { 2 } else { 1 };
        let waves = self.waves.as_ref().map_or(1, |waves| waves.threads);
        self.threads.max(chains).max(waves)
    }
}

/// The waves of a step ([`hone_artifact::Waves`]).
pub(crate) struct Waves {
    /// Their number.
    pub(crate) waves: u32,
    /// Parts of each.
    pub(crate) parts: u32,
    /// Most threads that they are worth; at least 2.
    pub(crate) threads: usize,
}

impl Waves {
    /// The waves of a step; none where they are worth one thread alone, or are too many to count.
    fn of(own: &hone_artifact::Waves) -> Option<Self> {
        let waves = u32::try_from(own.waves).ok().filter(|waves| *waves <= MAX_WAVES)?;
        let parts = u32::try_from(own.parts).ok()?;
        let threads = own.parts / own.min_parts_per_thread.max(1);
        let threads = usize::try_from(threads).ok().filter(|threads| *threads > 1)?;
        Some(Self { waves, parts, threads })
    }
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
    pub(crate) manifest: Arc<Manifest>,
    /// One for each of the sizes that the code for this machine is for; never empty.
    pub(crate) plans: Vec<Plan>,
    /// What runs the steps, where that is not the processor.
    pub(crate) device: Option<Arc<Code>>,
    pub(crate) threads: usize,
    pub(crate) huge_pages: bool,
    /// The strings of constants.
    pub(crate) texts: Texts,
    weights: *const u8,
    // What the pointers above point into; dropped after them.
    _library: Option<Library>,
    _copy: Option<Region>,
    _source: Source,
}

// SAFETY: the weights are only read, and everything else is plain data or itself Send and Sync.
unsafe impl Send for Loaded {}
// SAFETY: as above.
unsafe impl Sync for Loaded {}

/// What a run of one variant follows. It is made when the model is loaded, and kept.
pub(crate) struct Plan {
    manifest: Arc<Manifest>,
    /// Position of the variant in the manifest.
    position: usize,
    /// The model's inputs and outputs in this variant's shapes.
    pub(crate) inputs: Vec<TensorInfo>,
    pub(crate) outputs: Vec<TensorInfo>,
    /// Empty where a device runs the steps.
    pub(crate) calls: Vec<Call>,
    /// The first entry of each step in the table of pointers, with their number at the end.
    #[cfg_attr(
        not(any(feature = "opencl", feature = "cuda")),
        expect(dead_code, reason = "devices alone ask for it")
    )]
    entries: Vec<usize>,
    /// In which order the calls run.
    pub(crate) program: Vec<Part>,
    /// Slots of what the program reads and writes itself, and at last of the extents of outputs; their entries in
    /// the table of pointers are behind those of the steps' arguments.
    operands: Vec<Slot>,
    pub(crate) patches: Vec<Patch>,
    /// Entries of the table of pointers that lead to the extents of outputs, in the manifest's order.
    extents: Range<usize>,
}

impl Loaded {
    /// Checks the artifact and brings its code and weights in. `name` is for messages.
    pub(crate) fn new(source: Source, name: &Path, options: &Options) -> Result<Self, LoadError> {
        let fault = |source| LoadError::Artifact { path: name.to_path_buf(), source };
        let reader = Reader::new(source.bytes()).map_err(fault)?;
        if options.verify {
            reader.verify().map_err(fault)?;
        }
        let (chosen, device) = choose(&reader, options)?;
        let variant = &reader.manifest().variants[chosen];
        // A device has the code of one size.
        let siblings = match device {
            Some(_) => vec![chosen],
            None => reader.manifest().siblings(chosen),
        };
        let library = match device {
            Some(_) => None,
            // The reader has checked that the section is there.
            None => Some(Library::load(reader.code(variant.code).unwrap_or_default())?),
        };
        let manifest = Arc::new(reader.manifest().clone());
        let plans = siblings.into_iter().map(|index| Plan::new(&manifest, index, library.as_ref()));
        let plans = plans.collect::<Result<Vec<Plan>, _>>()?;
        images::check(plans.iter().map(Plan::variant))?;
        let texts = manifest.interface.texts.iter().map(String::as_str);
        let texts = Texts::new(texts).map_err(LoadError::Text)?;
        let packed = reader.weights(variant.weights).unwrap_or_default();
        let copy = match device {
            Some(_) => None,
            None => copy_weights(&source, packed, options.huge_pages)?,
        };
        let weights = copy.as_ref().map_or(packed.as_ptr(), |region| region.base().cast_const());
        Ok(Self {
            manifest,
            plans,
            device,
            threads: options.threads,
            huge_pages: options.huge_pages != HugePages::None,
            texts,
            weights,
            _library: library,
            _copy: copy,
            _source: source,
        })
    }

    /// The variant of a plan.
    pub(crate) fn variant<'a>(&'a self, plan: &'a Plan) -> &'a Variant {
        plan.variant()
    }

    /// The pointers of all steps' arguments of a plan in order; those that a run sets are null.
    pub(crate) fn table(&self, plan: &Plan, arena: *mut u8) -> Vec<*mut c_void> {
        let address = |slot| match slot {
            Slot::Arena { offset } => arena.wrapping_add(offset as usize),
            Slot::Weight { offset } => self.weights.cast_mut().wrapping_add(offset as usize),
            Slot::Input { .. } | Slot::Output { .. } => std::ptr::null_mut(),
        };
        plan.slots().map(|slot| address(slot).cast()).collect()
    }
}

impl Plan {
    fn new(
        manifest: &Arc<Manifest>,
        position: usize,
        library: Option<&Library>,
    ) -> Result<Self, LoadError> {
        let variant = &manifest.variants[position];
        let entries = entries(variant);
        let calls = match library {
            Some(library) => calls(variant, library, &entries)?,
            None => Vec::new(),
        };
        let (program, mut operands) = program(variant, &entries);
        operands.extend(variant.extents.iter().map(|extent| extent.slot));
        let patches = patches(variant, &operands);
        let end = entries.last().copied().unwrap_or(0) + operands.len();
        Ok(Self {
            manifest: Arc::clone(manifest),
            position,
            inputs: manifest.inputs_of(variant),
            outputs: manifest.outputs_of(variant),
            calls,
            entries,
            program,
            operands,
            patches,
            extents: end - variant.extents.len()..end,
        })
    }

    /// The variant that it is of.
    pub(crate) fn variant(&self) -> &Variant {
        &self.manifest.variants[self.position]
    }

    /// Most threads that any of its steps is worth.
    pub(crate) fn most_threads(&self) -> usize {
        self.calls.iter().map(Call::most_threads).max().unwrap_or(1)
    }

    /// The inputs, or the outputs, in the variant's shapes.
    #[cfg(any(feature = "opencl", feature = "cuda"))]
    pub(crate) fn tensors(&self, output: bool) -> &[TensorInfo] {
        if output { &self.outputs } else { &self.inputs }
    }

    /// Entries of the table of pointers that lead to the extents of outputs, in the manifest's order.
    pub(crate) fn extents(&self) -> Range<usize> {
        self.extents.clone()
    }

    /// Slots of all entries of the table of pointers in order.
    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        slots(self.variant(), &self.operands)
    }

    /// The first entry of a step in the table of pointers.
    #[cfg(any(feature = "opencl", feature = "cuda"))]
    pub(crate) fn first_entry(&self, step: usize) -> usize {
        self.entries[step]
    }
}

/// The first variant that this machine can execute, with its code on a device where it is for one.
fn choose(reader: &Reader<'_>, options: &Options) -> Result<(usize, Option<Arc<Code>>), LoadError> {
    let manifest = reader.manifest();
    let mut refused: Option<DeviceError> = None;
    let mut next = 0;
    loop {
        let chosen = match (cpu::choose(&manifest.variants[next..]), refused) {
            (Ok(chosen), _) => next + chosen,
            (Err(_), Some(device)) => return Err(LoadError::Device(device)),
            (Err(refusals), None) => return Err(LoadError::Cpu { refusals }),
        };
        let variant = &manifest.variants[chosen];
        let Some(device) = &variant.device else { return Ok((chosen, None)) };
        // The reader has checked that both sections are there.
        let code = reader.code(variant.code).unwrap_or_default();
        let sections = (code, reader.weights(variant.weights).unwrap_or_default());
        match Code::load(manifest, (variant, device), sections, options) {
            Ok(code) => return Ok((chosen, Some(Arc::new(code)))),
            Err(error) => (refused, next) = (Some(error), chosen + 1),
        }
    }
}

/// The first entry of each step in the table of pointers, with their number at the end.
fn entries(variant: &Variant) -> Vec<usize> {
    let mut entries = Vec::with_capacity(variant.steps.len() + 1);
    entries.push(0);
    for step in &variant.steps {
        entries.push(entries.last().copied().unwrap_or(0) + step.arguments.len());
    }
    entries
}

/// The calls of a variant.
fn calls(variant: &Variant, library: &Library, entries: &[usize]) -> Result<Vec<Call>, LoadError> {
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
            first: entries[index],
            tasks: step.tasks as i64,
            threads: usize::try_from(worth).unwrap_or(usize::MAX).max(1),
            beside: step.beside.map(|counts| counts.map(|count| count as usize)),
            grain: claim::grain(step.min_tasks_per_thread),
            waves: step.waves.as_ref().and_then(Waves::of),
        });
    }
    Ok(calls)
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
