//! The code of a variant made ready on a device: what all sessions share.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use hone_artifact::{Accelerator, Command, DeviceCode, LaunchArgument, Manifest, Variant};

use super::DeviceError;
use super::driver;
use super::objects::{Buffer, Context, KernelNeeds, Program};
use super::queue::Queue;
use crate::{Options, RunError};

/// See the module's documentation.
pub(crate) struct Code {
    pub(crate) context: Arc<Context>,
    pub(crate) program: Program,
    pub(crate) weights: Buffer,
    /// Each kernel that is launched.
    pub(crate) kernels: Vec<KernelNeeds>,
    /// The commands of each kernel of the step table.
    programs: Vec<Vec<Ready>>,
    /// Of each step, the place of its kernel in `programs`.
    steps: Vec<usize>,
    pub(crate) timeout: Duration,
}

/// A command whose kernel is known by its number.
pub(crate) enum Ready {
    Launch { kernel: usize, grid: [u64; 3], block: [u64; 3], arguments: Vec<LaunchArgument> },
    Repeat { times: u64, body: Vec<Ready> },
}

impl Code {
    /// Opens the device, has the driver compile the kernels and puts the weights into the device's memory.
    ///
    /// # Errors
    /// See [`DeviceError`].
    pub(crate) fn load(
        manifest: &Manifest,
        (variant, device): (&Variant, &DeviceCode),
        (code, weights): (&[u8], &[u8]),
        options: &Options,
    ) -> Result<Self, DeviceError> {
        let timeout = options.device_timeout;
        // The manifest was validated: a variant with launches names an accelerator.
        let accelerator = variant.target.accelerator.unwrap_or(Accelerator::OpenCl);
        let chosen = driver::chosen(accelerator.api(), options.device)?;
        check_architecture(&chosen, accelerator)?;
        check_limits(&chosen, device)?;
        check_memory(&chosen, manifest, variant)?;
        let context = Context::open(&chosen)?;
        let program = Program::build(&context, code)?;
        let buffer = Buffer::new(&context, weights.len() as u64, WEIGHTS)?;
        let mut queue = Queue::new(&context, false, timeout)?;
        let written = queue.write(&buffer, 0, weights).and_then(|()| queue.finish());
        written.map_err(|error| match error {
            RunError::DeviceLost { device, what, error } => {
                DeviceError::Driver { device, what, error }
            }
            _ => {
                let (device, limit) = (context.name(), context.info().memory_bytes);
                let bytes = weights.len() as u64;
                DeviceError::Memory { device, what: WEIGHTS, bytes, limit }
            }
        })?;
        let mut names = Names::default();
        let programs = device.kernels.iter().map(|kernel| names.ready(&kernel.commands)).collect();
        let symbols = device.kernels.iter().enumerate();
        let places: HashMap<&str, usize> =
            symbols.map(|(index, kernel)| (kernel.symbol.as_str(), index)).collect();
        // The manifest was validated: every step's kernel is there.
        let steps = variant.steps.iter().filter_map(|step| places.get(step.kernel.as_str()));
        Ok(Self {
            steps: steps.copied().collect(),
            context,
            program,
            weights: buffer,
            kernels: names.kernels,
            programs,
            timeout,
        })
    }

    /// The commands of a step.
    pub(crate) fn commands(&self, step: usize) -> &[Ready] {
        let program = self.steps.get(step).and_then(|index| self.programs.get(*index));
        program.map_or(&[], Vec::as_slice)
    }

    /// How many launches some steps are.
    pub(crate) fn launches(&self, steps: Range<usize>) -> u64 {
        steps.map(|step| launches(self.commands(step))).fold(0, u64::saturating_add)
    }
}

fn launches(commands: &[Ready]) -> u64 {
    let each = commands.iter().map(|command| match command {
        Ready::Launch { .. } => 1,
        Ready::Repeat { times, body } => times.saturating_mul(launches(body)),
    });
    each.fold(0, u64::saturating_add)
}

const WEIGHTS: &str = "the weights";

/// Numbers kernels by their names.
#[derive(Default)]
struct Names {
    known: HashMap<String, usize>,
    kernels: Vec<KernelNeeds>,
}

impl Names {
    fn ready(&mut self, commands: &[Command]) -> Vec<Ready> {
        let make = |command: &Command| match command {
            Command::Launch(launch) => {
                let (grid, block) = (launch.grid, launch.block);
                let needs = KernelNeeds {
                    name: launch.kernel.clone(),
                    lanes: block.iter().product(),
                    shared_bytes: launch.shared_bytes,
                };
                let kernel = self.number(needs);
                Ready::Launch { kernel, grid, block, arguments: launch.arguments.clone() }
            }
            Command::Repeat { times, body } => {
                Ready::Repeat { times: *times, body: self.ready(body) }
            }
        };
        commands.iter().map(make).collect()
    }

    fn number(&mut self, needs: KernelNeeds) -> usize {
        if let Some(number) = self.known.get(&needs.name) {
            let most = &mut self.kernels[*number];
            most.lanes = needs.lanes.max(most.lanes);
            most.shared_bytes = needs.shared_bytes.max(most.shared_bytes);
            return *number;
        }
        self.known.insert(needs.name.clone(), self.kernels.len());
        self.kernels.push(needs);
        self.kernels.len() - 1
    }
}

/// Whether one of NVIDIA's devices, and its driver, run code for an architecture.
fn check_architecture(
    info: &super::DeviceInfo,
    accelerator: Accelerator,
) -> Result<(), DeviceError> {
    let Some(has) = info.capability else { return Ok(()) };
    let device = info.name.clone();
    if !accelerator.runs_on(has) {
        return Err(DeviceError::Architecture { device, has, accelerator });
    }
    let (has, needs) = (driver_version(&info.driver), accelerator.least_driver());
    match has < needs {
        true => Err(DeviceError::OldDriver { device, accelerator, has, needs }),
        false => Ok(()),
    }
}

/// The version of CUDA that a driver is of, from the words in which [`super::DeviceInfo::driver`] says it.
fn driver_version(words: &str) -> (u32, u32) {
    let mut parts = words.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

/// Whether a device offers what launches were made for.
fn check_limits(info: &super::DeviceInfo, device: &DeviceCode) -> Result<(), DeviceError> {
    let limits = &device.limits;
    let along = info.lanes_along.iter().zip(&limits.lanes_along);
    let along = along.map(|(has, needs)| ("lanes of a block along a dimension", *needs, *has));
    let others = [
        ("lanes of a block", limits.lanes, info.lanes),
        ("bytes of memory that a block shares", limits.shared_bytes, info.shared_bytes),
    ];
    for (what, needs, has) in along.chain(others) {
        if has < needs {
            return Err(DeviceError::Limit { device: info.name.clone(), what, needs, has });
        }
    }
    let (needs, has) = (limits.alignment, info.alignment);
    match has <= needs {
        true => Ok(()),
        false => {
            let (device, what) = (info.name.clone(), "bytes between offsets into a buffer");
            Err(DeviceError::Limit { device, what, needs, has })
        }
    }
}

/// Whether everything that one session needs fits into a device's memory.
fn check_memory(
    info: &super::DeviceInfo,
    manifest: &Manifest,
    variant: &Variant,
) -> Result<(), DeviceError> {
    let ports = manifest.inputs.iter().chain(&manifest.outputs).map(|tensor| tensor.bytes);
    let all = ports.chain([variant.arena_bytes, variant.weights_bytes]);
    let bytes = all.fold(0u64, u64::saturating_add);
    match bytes <= info.memory_bytes {
        true => Ok(()),
        false => {
            let what = "weights, values between steps, inputs and outputs";
            let (device, limit) = (info.name.clone(), info.memory_bytes);
            Err(DeviceError::Memory { device, what, bytes, limit })
        }
    }
}
