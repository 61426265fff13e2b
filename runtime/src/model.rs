//! The Rust interface: a loaded model.

use std::borrow::Cow;
use std::ffi::c_void;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use hone_artifact::{HostFunction, Manifest, OutputExtent, Part, TensorInfo, Variant};

use crate::accelerator::{Code, Session};
use crate::context::Context;
use crate::plan::Plan;
use crate::pool::Pool;
use crate::seat::Seat;
use crate::source::Source;
use crate::{LoadError, Options, Profile, RunError};

/// A loaded model with everything that one run at a time needs. For runs side by side make another with
/// [`Model::share`]: code and weights stay one.
pub struct Model {
    engine: Engine,
    inputs: Vec<*const c_void>,
    outputs: Vec<*mut c_void>,
    /// Shapes of the outputs as the last run left them.
    shapes: Vec<Vec<u64>>,
    plan: Arc<Plan>,
}

/// What runs the steps.
pub(crate) enum Engine {
    Processor(Context),
    Device(Box<Session>),
}

// SAFETY: the two lists of pointers mean something only within a run, which borrows the model.
unsafe impl Send for Model {}
// SAFETY: as above; a shared model gives out plain data only.
unsafe impl Sync for Model {}

/// Bytes that a model holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Packed weights, in the mapped file unless [`crate::HugePages::ArenaAndWeights`] was asked for; on a device in
    /// its memory.
    pub weights: u64,
    /// Values between steps.
    pub arena: u64,
    /// Arena and all threads' scratch; on a device arena, inputs and outputs.
    pub reserved: u64,
}

/// What models share that runs their steps.
enum Crew {
    Threads(Arc<Pool>, Vec<Arc<Seat>>),
    Device(Arc<Code>),
}

/// What models over the same code and weights have in common, which no run changes. It makes further
/// models while another thread runs the one it came from.
pub(crate) struct Shared {
    plan: Arc<Plan>,
    crew: Crew,
    memory: Memory,
}

impl Shared {
    /// As [`Model::share`].
    pub(crate) fn model(&self) -> Result<Model, LoadError> {
        let engine = match &self.crew {
            Crew::Device(code) => Engine::Device(Box::new(Session::new(&self.plan, code)?)),
            Crew::Threads(pool, seats) => {
                Engine::Processor(Context::new(&self.plan, pool.clone(), seats.clone())?)
            }
        };
        Ok(Model::with(engine, self.plan.clone()))
    }

    /// What each of the models holds in memory.
    pub(crate) fn memory(&self) -> Memory {
        self.memory
    }
}

impl Model {
    /// Maps and checks an artifact and makes it ready to run. The file must stay as it is while the
    /// model lives, as that of any running program; to replace it, rename another over it.
    ///
    /// # Errors
    /// A file that cannot be read or is not a sound artifact, a processor that it is not for, no memory.
    pub fn load(path: impl AsRef<Path>, options: &Options) -> Result<Self, LoadError> {
        let path = path.as_ref();
        let source = Source::open(path, options.verify)
            .map_err(|source| LoadError::Open { path: path.to_path_buf(), source })?;
        Self::new(Plan::new(source, path, options)?, options)
    }

    /// The same from memory: `'static` bytes are used in place, where they are 64-byte aligned.
    ///
    /// # Errors
    /// As for [`Model::load`].
    pub fn load_memory(
        artifact: impl Into<Cow<'static, [u8]>>,
        options: &Options,
    ) -> Result<Self, LoadError> {
        let source = Source::Memory(artifact.into());
        Self::new(Plan::new(source, Path::new("memory"), options)?, options)
    }

    fn new(plan: Plan, options: &Options) -> Result<Self, LoadError> {
        let engine = match &plan.device {
            Some(code) => Engine::Device(Box::new(Session::new(&plan, code)?)),
            None => {
                let (pool, seats) =
                    Pool::join(plan.threads, options.affinity).map_err(LoadError::Thread)?;
                Engine::Processor(Context::new(&plan, pool, seats)?)
            }
        };
        Ok(Self::with(engine, Arc::new(plan)))
    }

    fn with(engine: Engine, plan: Arc<Plan>) -> Self {
        let inputs = Vec::with_capacity(plan.manifest.inputs.len());
        let outputs = Vec::with_capacity(plan.manifest.outputs.len());
        let shapes = plan.manifest.outputs.iter().map(|output| output.shape.clone()).collect();
        Self { engine, inputs, outputs, shapes, plan }
    }

    /// Another model over the same code and weights, with its own arena, to run beside this one.
    ///
    /// # Errors
    /// Where there is no memory for another arena.
    pub fn share(&self) -> Result<Self, LoadError> {
        self.shared().model()
    }

    pub(crate) fn shared(&self) -> Shared {
        let crew = match &self.engine {
            Engine::Processor(context) => {
                let (pool, seats) = context.crew();
                Crew::Threads(pool, seats)
            }
            Engine::Device(session) => Crew::Device(session.code()),
        };
        Shared { plan: self.plan.clone(), crew, memory: self.memory() }
    }

    /// The artifact's manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.plan.manifest
    }

    /// The variant that was chosen for this processor.
    pub fn variant(&self) -> &Variant {
        self.plan.variant()
    }

    /// The model's inputs in order.
    pub fn inputs(&self) -> &[TensorInfo] {
        self.plan.tensors(false)
    }

    /// The model's outputs in order.
    pub fn outputs(&self) -> &[TensorInfo] {
        self.plan.tensors(true)
    }

    /// Shapes of the outputs as the last run left them: those of [`Model::outputs`], but for axes whose extent is
    /// decided at run time ([`Variant::extents`]). Such an output's first bytes are the tensor of this shape, dense
    /// and row major, and all behind them are zero.
    pub fn output_shapes(&self) -> &[Vec<u64>] {
        &self.shapes
    }

    /// Names of the model's nodes that the runtime computes itself, in the order in which they run; all others are
    /// compiled.
    pub fn host_nodes(&self) -> Vec<&str> {
        let mut nodes = Vec::new();
        computed_here(&self.variant().program, &mut nodes);
        nodes
    }

    /// Most threads that a run uses, the caller's among them; 1 where a device runs the steps.
    pub fn threads(&self) -> usize {
        match &self.engine {
            Engine::Processor(context) => context.threads(),
            Engine::Device(_) => 1,
        }
    }

    /// What the model holds in memory.
    pub fn memory(&self) -> Memory {
        let variant = self.variant();
        Memory {
            weights: variant.weights_bytes,
            arena: variant.arena_bytes,
            reserved: match &self.engine {
                Engine::Processor(context) => context.bytes() as u64,
                Engine::Device(session) => session.bytes(),
            },
        }
    }

    /// Runs the model: reads `inputs` and fills `outputs`, both in the model's order, each dense, row
    /// major and of its tensor's size. Allocates nothing, unless a device runs the steps.
    ///
    /// # Errors
    /// Buffers that do not fit the model; then nothing has run. A loop that goes on beyond the room for what it
    /// collects. A device that fails.
    pub fn run(&mut self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), RunError> {
        self.run_with(inputs, outputs, None)
    }

    /// The same, and writes down how long each step took. The first run after loading is slower than
    /// the next: it is the one that brings in pages and wakes threads.
    ///
    /// # Errors
    /// As for [`Model::run`].
    pub fn run_profiled(
        &mut self,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        profile: &mut Profile,
    ) -> Result<(), RunError> {
        self.run_with(inputs, outputs, Some(profile))
    }

    fn run_with(
        &mut self,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        profile: Option<&mut Profile>,
    ) -> Result<(), RunError> {
        let manifest = &self.plan.manifest;
        check_count("input", manifest.inputs.len(), inputs.len())?;
        check_count("output", manifest.outputs.len(), outputs.len())?;
        self.inputs.clear();
        self.outputs.clear();
        for (tensor, buffer) in manifest.inputs.iter().zip(inputs) {
            check_size("input", tensor, buffer.len())?;
            check_address("input", tensor, buffer.as_ptr() as usize)?;
            self.inputs.push(buffer.as_ptr().cast());
        }
        for (tensor, buffer) in manifest.outputs.iter().zip(outputs) {
            check_size("output", tensor, buffer.len())?;
            check_address("output", tensor, buffer.as_ptr() as usize)?;
            self.outputs.push(buffer.as_mut_ptr().cast());
        }
        let Self { engine, plan, inputs, outputs, .. } = self;
        // SAFETY: sizes and alignment were checked just now, and the borrows last until the end.
        unsafe { engine.run(plan, inputs, outputs, profile)? };
        // SAFETY: the run has ended well.
        unsafe { self.note_shapes() };
        Ok(())
    }

    /// Runs the model over raw pointers, in the model's order.
    ///
    /// # Errors
    /// Another number of pointers than the model has tensors; one that is null or not aligned.
    ///
    /// # Safety
    /// Each pointer leads to as many bytes as its tensor has; outputs overlap neither each other nor an
    /// input; nothing else touches them until the end.
    pub unsafe fn run_pointers(
        &mut self,
        inputs: &[*const c_void],
        outputs: &[*mut c_void],
    ) -> Result<(), RunError> {
        let manifest = &self.plan.manifest;
        check_count("input", manifest.inputs.len(), inputs.len())?;
        check_count("output", manifest.outputs.len(), outputs.len())?;
        for (tensor, buffer) in manifest.inputs.iter().zip(inputs) {
            check_address("input", tensor, buffer.addr())?;
        }
        for (tensor, buffer) in manifest.outputs.iter().zip(outputs) {
            check_address("output", tensor, buffer.addr())?;
        }
        // SAFETY: the caller's promise, and the checks above.
        unsafe { self.engine.run(&self.plan, inputs, outputs, None)? };
        // SAFETY: the run has ended well.
        unsafe { self.note_shapes() };
        Ok(())
    }
}

impl Engine {
    /// # Safety
    /// As for [`Context::run`].
    unsafe fn run(
        &mut self,
        plan: &Plan,
        inputs: &[*const c_void],
        outputs: &[*mut c_void],
        profile: Option<&mut Profile>,
    ) -> Result<(), RunError> {
        match self {
            // SAFETY: the caller's promise.
            Self::Processor(context) => unsafe { context.run(plan, inputs, outputs, profile) },
            // SAFETY: as above.
            Self::Device(session) => unsafe { session.run(plan, inputs, outputs, profile) },
        }
    }
}

impl Model {
    /// What runs the steps, and the plan that it runs.
    pub(crate) fn engine(&mut self) -> (&Plan, &mut Engine) {
        (&self.plan, &mut self.engine)
    }

    /// Takes down the extents that the last run decided.
    ///
    /// # Safety
    /// A run has ended well, and its outputs are still there.
    unsafe fn note_shapes(&mut self) {
        let Self { engine, plan, shapes, .. } = self;
        let note = |(extent, actual): (&OutputExtent, u64)| {
            let (output, axis) = (extent.output as usize, extent.axis as usize);
            // The manifest was validated: output and axis are there.
            shapes[output][axis] = actual.min(plan.manifest.outputs[output].shape[axis]);
        };
        let declared = plan.variant().extents.iter();
        match engine {
            // SAFETY: the caller's promise.
            Engine::Processor(own) => declared.zip(unsafe { own.extents(plan) }).for_each(note),
            Engine::Device(own) => declared.zip(own.extents().iter().copied()).for_each(note),
        }
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model")
            .field("inputs", &self.inputs())
            .field("outputs", &self.outputs())
            .field("steps", &self.variant().steps.len())
            .field("threads", &self.threads())
            .finish()
    }
}

/// The nodes among some parts that the runtime computes itself. What a run is held to is not computed.
fn computed_here<'a>(parts: &'a [Part], nodes: &mut Vec<&'a str>) {
    for part in parts {
        match part {
            Part::Steps { .. } => {}
            Part::If(own) => {
                computed_here(&own.then, nodes);
                computed_here(&own.otherwise, nodes);
            }
            Part::Loop(own) => computed_here(&own.body, nodes),
            Part::Host(own) if matches!(own.function, HostFunction::Require { .. }) => {}
            Part::Host(own) => nodes.push(&own.node),
        }
    }
}

fn check_count(role: &'static str, expected: usize, found: usize) -> Result<(), RunError> {
    match found == expected {
        true => Ok(()),
        false => Err(RunError::Count { role, expected, found }),
    }
}

fn check_size(role: &'static str, tensor: &TensorInfo, found: usize) -> Result<(), RunError> {
    match found as u64 == tensor.bytes {
        true => Ok(()),
        false => Err(RunError::Size {
            role,
            name: tensor.name.clone(),
            expected: tensor.bytes,
            found: found as u64,
        }),
    }
}

fn check_address(role: &'static str, tensor: &TensorInfo, address: usize) -> Result<(), RunError> {
    let alignment = tensor.dtype.alignment();
    let usable = address != 0 && (address as u64).is_multiple_of(alignment);
    match usable || tensor.bytes == 0 {
        true => Ok(()),
        false => Err(RunError::Address { role, name: tensor.name.clone(), alignment, address }),
    }
}
