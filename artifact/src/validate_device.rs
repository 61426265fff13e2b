//! Checks of code for an accelerator: every step has its commands, every launch keeps to the limits that the variant
//! declares, and names no argument and no counter that is not there.

use std::collections::HashMap;

use crate::accelerator::{Command, DeviceCode, Language, Launch, LaunchArgument, MAX_REPEAT_DEPTH};
use crate::manifest::{BUFFER_ALIGNMENT, Manifest, Slot, Step, Variant};
use crate::program::Part;

/// The first version of the schema that has code for accelerators in a language.
pub(crate) const fn since(language: Language) -> u32 {
    match language {
        Language::OpenClC => 3,
        Language::Ptx => 4,
        Language::Wgsl => 5,
    }
}

/// Largest extent of a grid along a dimension, as CUDA and OpenCL drivers take it.
const MOST_BLOCKS: u64 = (1 << 31) - 1;

impl Manifest {
    /// Checks the accelerator and its code of a variant.
    pub(crate) fn check_device(&self, variant: &Variant) -> Result<(), String> {
        let device = match (&variant.target.accelerator, &variant.device) {
            (None, None) => return Ok(()),
            (Some(own), Some(device)) if own.language() == device.language => device,
            (Some(own), Some(device)) => {
                let found = device.language.name();
                return Err(format!("it is for {own} and holds {found}"));
            }
            (Some(own), None) => return Err(format!("it is for {own} and has no launches")),
            (None, Some(_)) => return Err("it has launches and names no accelerator".into()),
        };
        if self.schema_version < since(device.language) {
            let found = self.schema_version;
            let language = device.language.name();
            return Err(format!(
                "it has launches of {language}, which schema version {found} does not know"
            ));
        }
        if !variant.target.features.is_empty() {
            return Err("it is for an accelerator and asks for features of a processor".into());
        }
        let limits = &device.limits;
        if limits.alignment < BUFFER_ALIGNMENT || !limits.alignment.is_power_of_two() {
            let found = limits.alignment;
            return Err(format!("an alignment of {found} bytes is no power of two from 64 on"));
        }
        let mut needed = HashMap::with_capacity(device.kernels.len());
        for kernel in &device.kernels {
            let symbol = kernel.symbol.as_str();
            let arguments = arguments_of(device, &kernel.commands, 0)
                .map_err(|what| format!("kernel '{symbol}': {what}"))?;
            if needed.insert(symbol, arguments).is_some() {
                return Err(format!("kernel '{symbol}' is there twice"));
            }
        }
        for (index, step) in variant.steps.iter().enumerate() {
            let arguments = needed.get(step.kernel.as_str());
            let arguments = arguments.ok_or_else(|| {
                format!("step {index} calls kernel '{}', which is not there", step.kernel)
            })?;
            if *arguments > step.arguments.len() as u64 {
                let given = step.arguments.len();
                return Err(format!(
                    "step {index} has {given} arguments, its kernel takes {arguments}"
                ));
            }
            aligned(step, limits.alignment).map_err(|what| format!("step {index}: {what}"))?;
        }
        carried_aligned(&variant.program, limits.alignment)
    }
}

/// How many arguments of its step a list of commands takes.
fn arguments_of(device: &DeviceCode, commands: &[Command], depth: usize) -> Result<u64, String> {
    if depth > MAX_REPEAT_DEPTH {
        return Err(format!("repetitions lie deeper in one another than {MAX_REPEAT_DEPTH}"));
    }
    let mut most = 0;
    for command in commands {
        let own = match command {
            Command::Launch(launch) => launch_arguments(device, launch, depth)
                .map_err(|what| format!("launch of '{}': {what}", launch.kernel))?,
            Command::Repeat { times, body } => {
                if *times > i64::MAX as u64 {
                    return Err(format!("{times} repetitions do not fit 63 bits"));
                }
                arguments_of(device, body, depth + 1)?
            }
        };
        most = most.max(own);
    }
    Ok(most)
}

fn launch_arguments(device: &DeviceCode, launch: &Launch, depth: usize) -> Result<u64, String> {
    let Launch { kernel, grid, block, shared_bytes, arguments } = launch;
    let limits = &device.limits;
    if kernel.is_empty() || kernel.contains('\0') {
        return Err("its name is empty or holds a zero byte".into());
    }
    if grid.iter().any(|extent| !(1..=MOST_BLOCKS).contains(extent)) {
        return Err(format!("a grid of {grid:?} blocks cannot be launched"));
    }
    let fits = block.iter().zip(&limits.lanes_along).all(|(own, most)| (1..=*most).contains(own));
    let lanes = block.iter().try_fold(1u64, |product, own| product.checked_mul(*own));
    if !fits || lanes.is_none_or(|lanes| lanes > limits.lanes) {
        return Err(format!("a block of {block:?} lanes is beyond the declared limits"));
    }
    if *shared_bytes > limits.shared_bytes {
        return Err(format!("{shared_bytes} bytes of shared memory are beyond the declared limit"));
    }
    let mut most = 0;
    for argument in arguments {
        match *argument {
            LaunchArgument::Buffer(place) => most = most.max(u64::from(place) + 1),
            LaunchArgument::Counter(own) if (own as usize) < depth => {}
            LaunchArgument::Counter(own) => {
                return Err(format!("there is no repetition {own} around it"));
            }
        }
    }
    Ok(most)
}

fn aligned(step: &Step, alignment: u64) -> Result<(), String> {
    step.arguments.iter().try_for_each(|argument| slot_aligned(argument.slot, alignment))
}

fn slot_aligned(slot: Slot, alignment: u64) -> Result<(), String> {
    let (offset, alignment) = match slot {
        Slot::Arena { offset } | Slot::Weight { offset } => (offset, alignment),
        // A device reads and writes inputs and outputs whole.
        Slot::Input { offset, .. } | Slot::Output { offset, .. } => (offset, u64::MAX),
    };
    match offset % alignment {
        0 => Ok(()),
        _ => Err(format!("a buffer at offset {offset} is not aligned for a device")),
    }
}

/// Buffers that are exchanged take each other's place as arguments of steps.
fn carried_aligned(parts: &[Part], alignment: u64) -> Result<(), String> {
    for part in parts {
        match part {
            Part::Steps { .. } | Part::Host(_) => {}
            Part::If(own) => {
                carried_aligned(&own.then, alignment)?;
                carried_aligned(&own.otherwise, alignment)?;
            }
            Part::Loop(own) => {
                for carried in &own.carried {
                    for slot in [carried.current, carried.next] {
                        slot_aligned(slot, alignment)
                            .map_err(|what| format!("loop '{}': {what}", own.node))?;
                    }
                }
                carried_aligned(&own.body, alignment)?;
            }
        }
    }
    Ok(())
}
