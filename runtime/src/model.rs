//! The Rust interface: a loaded model.

use std::borrow::Cow;
use std::ffi::c_void;
use std::fmt;
use std::mem::take;
use std::path::Path;
use std::sync::Arc;

use hone_artifact::{
    HostFunction, Manifest, OpenDimension, OutputExtent, PaddedDimension, Part, Shapes, TensorInfo,
    Texts, Variant,
};

use crate::accelerator::{Code, Session};
use crate::checks::{check_address, check_count, check_size, unknown_shape};
use crate::composed::Composed;
use crate::context::Context;
use crate::engine::Engine;
use crate::plan::{Loaded, Plan};
use crate::pool::Pool;
use crate::seat::Seat;
use crate::source::Source;
use crate::{LoadError, Options, Profile, RunError};

/// A loaded model with everything that one run at a time needs. For runs side by side make another with
/// [`Model::share`]: code and weights stay one.
///
/// A model that was compiled for several sizes of its dimensions is set to one of them ([`Model::set_input_shapes`]), at
/// first to the largest: inputs, outputs, steps and runs are of that one. Changing them copies and allocates nothing.
/// Where a dimension may have any size ([`Model::open_dimension`]), one that was not compiled is composed: a run is one of
/// compiled sizes after the other, over consecutive slices of the inputs and outputs.
pub struct Model {
    engine: Engine,
    inputs: Vec<*const c_void>,
    outputs: Vec<*mut c_void>,
    /// The plan that runs follow; that of the largest part where they are composed.
    current: usize,
    /// Sizes that are composed of others; absent where there are none.
    composed: Option<Composed>,
    /// Whether the model is set to such sizes.
    is_composed: bool,
    /// Shapes of the outputs as the last run left them, for each plan.
    shapes: Vec<Vec<Vec<u64>>>,
    loaded: Arc<Loaded>,
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
    loaded: Arc<Loaded>,
    crew: Crew,
    memory: Memory,
}

impl Shared {
    /// As [`Model::share`].
    pub(crate) fn model(&self) -> Result<Model, LoadError> {
        let engine = match &self.crew {
            Crew::Device(code) => Engine::Device(Box::new(Session::new(
                &self.loaded.plans[0],
                code,
                &self.loaded.texts,
            )?)),
            Crew::Threads(pool, seats) => Engine::Processor(Box::new(Context::new(
                &self.loaded,
                pool.clone(),
                seats.clone(),
            )?)),
        };
        Model::with(engine, self.loaded.clone())
    }

    /// What each of the models holds in memory.
    pub(crate) fn memory(&self) -> Memory {
        self.memory
    }
}

/// The sizes of a model's dimensions that one of its variants is for.
#[derive(Clone, Copy, Debug)]
pub struct Sizes<'a> {
    /// The open dimensions with their sizes; absent where the model was compiled for one size.
    pub shapes: Option<&'a Shapes>,
    /// The inputs in the model's order.
    pub inputs: &'a [TensorInfo],
    /// The outputs in the model's order.
    pub outputs: &'a [TensorInfo],
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
        Self::new(Loaded::new(source, path, options)?, options)
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
        Self::new(Loaded::new(source, Path::new("memory"), options)?, options)
    }

    fn new(loaded: Loaded, options: &Options) -> Result<Self, LoadError> {
        let engine = match &loaded.device {
            Some(code) => {
                Engine::Device(Box::new(Session::new(&loaded.plans[0], code, &loaded.texts)?))
            }
            None => {
                let (pool, seats) =
                    Pool::join(loaded.threads, options.affinity).map_err(LoadError::Thread)?;
                Engine::Processor(Box::new(Context::new(&loaded, pool, seats)?))
            }
        };
        Self::with(engine, Arc::new(loaded))
    }

    fn with(engine: Engine, loaded: Arc<Loaded>) -> Result<Self, LoadError> {
        let inputs = Vec::with_capacity(loaded.manifest.inputs.len());
        let outputs = Vec::with_capacity(loaded.manifest.outputs.len());
        let shape = |output: &TensorInfo| output.shape.clone();
        let shapes = loaded.plans.iter().map(|plan| plan.outputs.iter().map(shape).collect());
        let (composed, shapes) = (Composed::new(&loaded)?, shapes.collect());
        let is_composed = false;
        let mut model =
            Self { engine, inputs, outputs, current: 0, composed, is_composed, shapes, loaded };
        model.select_largest();
        Ok(model)
    }

    /// Sets the model to the largest sizes, as users of it know them.
    fn select_largest(&mut self) {
        self.select_sizes(0);
        if self.padded_dimension().is_some() {
            let largest = self.loaded.plans[0].inputs.clone();
            let given = &largest[..self.loaded.manifest.given_inputs()];
            let shapes: Vec<&[u64]> = given.iter().map(|tensor| &tensor.shape[..]).collect();
            // They fit: they are those of a plan, and the manifest was validated.
            let _ = self.compose(&shapes);
        }
    }

    fn plan(&self) -> &Plan {
        &self.loaded.plans[self.current]
    }

    /// What the model is set to, where that is composed.
    fn composition(&self) -> Option<&Composed> {
        self.composed.as_ref().filter(|_| self.is_composed)
    }

    /// Another model over the same code and weights, with its own arena, to run beside this one. It is set to the
    /// largest sizes.
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
        Shared { loaded: self.loaded.clone(), crew, memory: self.memory() }
    }

    /// The artifact's manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.loaded.manifest
    }

    /// The variant that was chosen for this processor and the sizes that the model is set to; where these are composed,
    /// that of the largest part.
    pub fn variant(&self) -> &Variant {
        self.loaded.variant(self.plan())
    }

    /// The model's inputs in order, at the sizes that it is set to.
    pub fn inputs(&self) -> &[TensorInfo] {
        self.composition().map_or(&self.plan().inputs, |own| &own.inputs)
    }

    /// The model's outputs in order, at the sizes that it is set to.
    pub fn outputs(&self) -> &[TensorInfo] {
        self.composition().map_or(&self.plan().outputs, |own| &own.outputs)
    }

    /// The sizes that the model can be set to, the largest first; a single entry where it was compiled for one size.
    pub fn sizes(&self) -> impl ExactSizeIterator<Item = Sizes<'_>> {
        let given = self.loaded.manifest.given_inputs();
        self.loaded.plans.iter().map(move |plan| Sizes {
            shapes: self.loaded.variant(plan).shapes.as_ref(),
            inputs: &plan.inputs[..given],
            outputs: &plan.outputs,
        })
    }

    /// Which of [`Model::sizes`] the model is set to; none where its sizes are composed of others.
    pub fn current_sizes(&self) -> Option<usize> {
        (!self.is_composed).then_some(self.current)
    }

    /// The dimension that may have any size, where one may: each size of it that [`Model::sizes`] does not have is
    /// composed of those that are there.
    pub fn open_dimension(&self) -> Option<&OpenDimension> {
        self.composed.as_ref().and_then(Composed::open)
    }

    /// The dimension of which the model takes every size up to the largest of [`Model::sizes`], where one is so: a run
    /// takes the time of the next larger of these.
    pub fn padded_dimension(&self) -> Option<&PaddedDimension> {
        self.composed.as_ref().and_then(Composed::padded)
    }

    /// Sets the model to one of [`Model::sizes`] by its place; `false` where there is none. With a padded dimension
    /// inputs and outputs are then those of the compiled code: of the bound, with the size as a further, last input.
    pub fn select_sizes(&mut self, place: usize) -> bool {
        let is_there = place < self.loaded.plans.len();
        if is_there {
            self.engine.select(place);
            self.engine.set_size(0);
            self.current = place;
            self.is_composed = false;
        }
        is_there
    }

    /// Sets the model to the sizes at which its inputs have these shapes, one for each input in the model's order.
    ///
    /// # Errors
    /// Another number of shapes than inputs; shapes that the model was not compiled for, nor can be composed of such. Then
    /// it stays as it was, but for one that was set to composed sizes: that is set to the largest.
    pub fn set_input_shapes(&mut self, shapes: &[&[u64]]) -> Result<(), RunError> {
        check_count("input", self.loaded.manifest.given_inputs(), shapes.len())?;
        let fits =
            |plan: &Plan| plan.inputs.iter().map(|own| &own.shape[..]).eq(shapes.iter().copied());
        match self.loaded.plans.iter().position(fits) {
            Some(place) => {
                self.select_sizes(place);
                Ok(())
            }
            None => self.compose(shapes),
        }
    }

    /// Sets the model to sizes that are composed of others.
    fn compose(&mut self, shapes: &[&[u64]]) -> Result<(), RunError> {
        let Some(composed) = &mut self.composed else {
            return Err(unknown_shape(&self.loaded.plans, shapes));
        };
        match composed.set(&self.loaded.plans, shapes) {
            Ok(place) => {
                let size = composed.padded_size();
                self.select_sizes(place);
                self.engine.set_size(size);
                self.is_composed = true;
                Ok(())
            }
            Err(error) => {
                // What it was composed of is gone.
                if self.is_composed {
                    self.select_largest();
                }
                Err(error)
            }
        }
    }

    /// Shapes of the outputs as the last run left them: those of [`Model::outputs`], but for axes whose extent is
    /// decided at run time ([`Variant::extents`]). Such an output's first bytes are the tensor of this shape, dense
    /// and row major, and all behind them are zero.
    pub fn output_shapes(&self) -> &[Vec<u64>] {
        self.composition().map_or(&self.shapes[self.current], |own| &own.output_shapes)
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

    /// Threads that the next run uses where no other is under way: [`Model::threads`], or fewer where no step is worth as many,
    /// or where short runs on fewer turned out to be faster.
    pub fn chosen_threads(&self) -> usize {
        match &self.engine {
            Engine::Processor(context) => context.chosen_threads(),
            Engine::Device(_) => 1,
        }
    }

    /// What the model holds in memory: the arena is that of the sizes that it is set to, what is reserved is enough for
    /// the largest.
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
    /// the next: it is the one that brings in pages and wakes threads. Of a run that is composed, the first part is timed.
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
        let (mut sources, mut targets) = (take(&mut self.inputs), take(&mut self.outputs));
        sources.clear();
        targets.clear();
        let checked = self.check(inputs, outputs);
        sources.extend(inputs.iter().map(|buffer| buffer.as_ptr().cast::<c_void>()));
        targets.extend(outputs.iter_mut().map(|buffer| buffer.as_mut_ptr().cast::<c_void>()));
        // SAFETY: sizes and alignment were checked just now, and the borrows last until the end.
        let done = checked.and_then(|()| unsafe { self.execute(&sources, &targets, profile) });
        // Kept, so that the next run allocates nothing.
        (self.inputs, self.outputs) = (sources, targets);
        done
    }

    /// Whether buffers fit the model.
    fn check(&self, inputs: &[&[u8]], outputs: &[&mut [u8]]) -> Result<(), RunError> {
        check_count("input", self.inputs().len(), inputs.len())?;
        check_count("output", self.outputs().len(), outputs.len())?;
        for (tensor, buffer) in self.inputs().iter().zip(inputs) {
            check_size("input", tensor, buffer.len())?;
            check_address("input", tensor, buffer.as_ptr() as usize)?;
        }
        for (tensor, buffer) in self.outputs().iter().zip(outputs) {
            check_size("output", tensor, buffer.len())?;
            check_address("output", tensor, buffer.as_ptr() as usize)?;
        }
        Ok(())
    }

    /// Runs the model over raw pointers, in the model's order. Where an NVIDIA device runs the steps they may also be addresses
    /// in its memory, of tensors whose writers and readers are done; nothing of those crosses to the host.
    ///
    /// # Errors
    /// Another number of pointers than the model has tensors; one that is null or not aligned, or that leads to the device
    /// where inputs are padded.
    ///
    /// # Safety
    /// Each pointer leads to as many bytes as its tensor has; outputs overlap neither each other nor an
    /// input; nothing else touches them until the end.
    pub unsafe fn run_pointers(
        &mut self,
        inputs: &[*const c_void],
        outputs: &[*mut c_void],
    ) -> Result<(), RunError> {
        check_count("input", self.inputs().len(), inputs.len())?;
        check_count("output", self.outputs().len(), outputs.len())?;
        let pads = self.is_composed && self.padded_dimension().is_some();
        let check = |role: &'static str, tensor: &TensorInfo, address: usize| {
            check_address(role, tensor, address)?;
            match pads && self.engine.is_on_device(address) {
                true => Err(RunError::OnDevice { role, name: tensor.name.clone() }),
                false => Ok(()),
            }
        };
        for (tensor, buffer) in self.inputs().iter().zip(inputs) {
            check("input", tensor, buffer.addr())?;
        }
        for (tensor, buffer) in self.outputs().iter().zip(outputs) {
            check("output", tensor, buffer.addr())?;
        }
        // SAFETY: the caller's promise, and the checks above.
        unsafe { self.execute(inputs, outputs, None) }
    }

    /// One run, whole or composed.
    ///
    /// # Safety
    /// The pointers are the inputs and outputs of the sizes that the model is set to, each of its tensor's size and
    /// alignment, and nothing else touches them until the end.
    unsafe fn execute(
        &mut self,
        inputs: &[*const c_void],
        outputs: &[*mut c_void],
        mut profile: Option<&mut Profile>,
    ) -> Result<(), RunError> {
        let Self { engine, loaded, composed, current, .. } = self;
        let (Some(composed), true) = (composed, self.is_composed) else {
            // SAFETY: the caller's promise.
            unsafe { engine.run(&loaded.plans[*current], inputs, outputs, profile)? };
            // SAFETY: the run has ended well.
            unsafe { self.note_shapes() };
            return Ok(());
        };
        let (mut begin, mut done) = (0, Ok(()));
        while let (Some((part, end)), Ok(())) = (composed.part(begin), &done) {
            begin = end;
            engine.select(part.plan);
            let plan = &loaded.plans[part.plan];
            // SAFETY: the caller's promise.
            let (sources, targets) = unsafe { composed.buffers((part, plan), inputs, outputs) };
            // SAFETY: the part's slices lie within the caller's buffers: the manifest was validated, and the sizes of the
            // parts add up to at most that of the whole. What is padded lies in room of the plan's sizes.
            done = unsafe { engine.run(plan, sources, targets, profile.take()) };
            if done.is_ok() {
                // SAFETY: the part has run.
                unsafe { composed.finish(plan) };
            }
        }
        engine.select(*current);
        done
    }
}

impl Model {
    /// The strings that handles stand for.
    pub(crate) fn texts(&mut self) -> &mut Texts {
        match &mut self.engine {
            Engine::Processor(context) => context.texts(),
            Engine::Device(session) => session.texts(),
        }
    }

    /// As [`Model::text`].
    pub(crate) fn known_text(&self, handle: u64) -> Option<&str> {
        match &self.engine {
            Engine::Processor(context) => context.text(handle),
            Engine::Device(session) => session.text(handle),
        }
    }

    /// What runs the steps, and the plan that it runs.
    pub(crate) fn engine(&mut self) -> (&Plan, &mut Engine) {
        (&self.loaded.plans[self.current], &mut self.engine)
    }

    /// Takes down the extents that the last run decided.
    ///
    /// # Safety
    /// A run has ended well, and its outputs are still there.
    unsafe fn note_shapes(&mut self) {
        let Self { engine, loaded, current, shapes, .. } = self;
        let (plan, shapes) = (&loaded.plans[*current], &mut shapes[*current]);
        let note = |(extent, actual): (&OutputExtent, u64)| {
            let (output, axis) = (extent.output as usize, extent.axis as usize);
            // The manifest was validated: output and axis are there.
            shapes[output][axis] = actual.min(plan.outputs[output].shape[axis]);
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
            .field("sizes", &self.loaded.plans.len())
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
