//! How long a run takes on a device that is not at hand, by a model: a roofline for each step (Williams, Waterman and
//! Patterson, 2009), of the figures of the device that stands for its architecture.
//!
//! It knows the launches, the operations and bytes of each step, and which kernels have instructions of tensor cores; nothing
//! of the network. Every step is taken to reach the peak of its units but for [`PRODUCTS_REACHED`], and tiles that are not
//! full are not counted, so that its times are lower bounds: it is for comparing two artifacts of one model.

use hone_artifact::{Accelerator, Command, Launch, Variant};
use hone_machine::{Device, LANES_THAT_FILL, LAUNCH_NANOSECONDS, PRODUCTS_REACHED};
use std::collections::HashMap;

/// What is estimated of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceEstimate {
    /// The device whose figures were taken.
    pub device: &'static str,
    /// Nanoseconds of one run.
    pub nanoseconds: f64,
    /// Steps of which instructions of tensor cores are a part.
    pub on_tensor_cores: usize,
}

/// Estimates a run of a variant whose code section is `code`. `None` where it runs on no device of NVIDIA's: of others there
/// are no figures.
pub fn estimate_for_device(variant: &Variant, code: &str) -> Option<DeviceEstimate> {
    let device = Device::of_architecture(variant.target.accelerator.map(Accelerator::name)?)?;
    let kernels = &variant.device.as_ref()?.kernels;
    let launches: HashMap<&str, Vec<(u64, &Launch)>> =
        kernels.iter().map(|own| (own.symbol.as_str(), all(&own.commands, 1))).collect();
    let multiplying = multiplying(code);
    let mut estimate = DeviceEstimate { device: device.name, nanoseconds: 0.0, on_tensor_cores: 0 };
    for step in &variant.steps {
        let launches = launches.get(step.kernel.as_str())?;
        let units = launches.iter().filter_map(|(_, own)| multiplying.get(own.kernel.as_str()));
        let units = units.copied().max().unwrap_or(Units::Lanes);
        let bytes = step.bytes_read + step.bytes_written;
        estimate.nanoseconds += step_time(device, launches, units, (step.flops, bytes));
        estimate.on_tensor_cores += usize::from(units != Units::Lanes);
    }
    Some(estimate)
}

/// Nanoseconds of a step: the longest of what its launches, its operations and its bytes take.
fn step_time(
    device: &Device,
    launches: &[(u64, &Launch)],
    units: Units,
    (flops, bytes): (u64, u64),
) -> f64 {
    let per_cycle = match units {
        Units::Lanes => device.fma_per_cycle as f64,
        Units::Warps => device.products_per_cycle as f64 * PRODUCTS_REACHED,
        Units::Warpgroups => device.warpgroup_products_per_cycle as f64 * PRODUCTS_REACHED,
    };
    let peak = 2.0 * per_cycle * device.multiprocessors as f64 * device.cycles_per_ns;
    // Operations are those of the launch that keeps most multiprocessors busy.
    let busy = launches.iter().map(|(_, launch)| busy(device, launch)).fold(0.0, f64::max);
    let computing = flops as f64 / (peak * busy.max(f64::MIN_POSITIVE));
    let moving = bytes as f64 / device.memory_bytes_per_ns;
    let launching =
        launches.iter().map(|(times, _)| *times).sum::<u64>() as f64 * LAUNCH_NANOSECONDS;
    launching.max(computing).max(moving)
}

/// The share of a device's units that a launch keeps busy: multiprocessors take blocks in turn, and need lanes to fill them.
fn busy(device: &Device, launch: &Launch) -> f64 {
    let blocks = launch.grid.iter().product::<u64>().max(1);
    let rounds = blocks.div_ceil(device.multiprocessors as u64);
    let even = blocks as f64 / (rounds * device.multiprocessors as u64) as f64;
    let lanes = rounds * launch.block.iter().product::<u64>();
    even * (lanes as f64 / LANES_THAT_FILL as f64).min(1.0)
}

/// Every launch, with how often it is run.
fn all(commands: &[Command], times: u64) -> Vec<(u64, &Launch)> {
    let each = commands.iter().flat_map(|command| match command {
        Command::Launch(launch) => vec![(times, launch)],
        Command::Repeat { times: own, body } => all(body, times.saturating_mul(*own)),
    });
    each.collect()
}

/// What multiplies in a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Units {
    /// Lanes, by themselves.
    Lanes,
    /// Tensor cores, for warps.
    Warps,
    /// Tensor cores, for warpgroups.
    Warpgroups,
}

/// The kernels in a text of PTX that have instructions of tensor cores, by name.
fn multiplying(code: &str) -> HashMap<&str, Units> {
    let kernels = code.split(".entry ").skip(1);
    let each = kernels.filter_map(|text| {
        let units = match (text.contains("wgmma.mma_async"), text.contains("mma.sync")) {
            (true, _) => Units::Warpgroups,
            (false, true) => Units::Warps,
            (false, false) => return None,
        };
        Some((text.split(['(', '\n', ' ']).next()?, units))
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn launch(blocks: u64) -> Launch {
        Launch {
            kernel: "k".to_owned(),
            grid: [blocks, 1, 1],
            block: [128, 1, 1],
            shared_bytes: 0,
            arguments: Vec::new(),
        }
    }

    #[test]
    fn a_step_takes_the_longest_of_launch_operations_and_bytes() {
        let a100 = Device::of_architecture("sm_80").unwrap();
        let full = launch(108);
        let time = |units, work| step_time(a100, &[(1, &full)], units, work);
        assert_eq!(time(Units::Lanes, (0, 0)), LAUNCH_NANOSECONDS);
        assert_eq!(time(Units::Lanes, (0, 15_550_000)), 10_000.0);
        let peak = 2.0 * 64.0 * 108.0 * 1.41;
        assert!((time(Units::Lanes, (1 << 32, 0)) - (1u64 << 32) as f64 / peak).abs() < 1.0);
        // Sixteen times as many products in a cycle, of which half are reached.
        let ratio = time(Units::Lanes, (1 << 32, 0)) / time(Units::Warps, (1 << 32, 0));
        assert!((ratio - 8.0).abs() < 1e-9, "{ratio}");
        // Blocks of a second round leave most multiprocessors idle; few blocks nearly all of them.
        assert!((busy(a100, &launch(109)) - 109.0 / 216.0).abs() < 1e-9);
        assert!((busy(a100, &launch(1)) - 1.0 / 108.0).abs() < 1e-9);
        assert_eq!(step_time(a100, &[(7, &full)], Units::Lanes, (0, 0)), 7.0 * LAUNCH_NANOSECONDS);
    }

    #[test]
    fn kernels_on_tensor_cores_are_read_off_the_text() {
        let code = ".visible .entry a_0(\n)\n{ mma.sync.x; }\n.visible .entry b_0(\n)\n{ add; }\n\
                    .visible .entry c_0(\n)\n{ wgmma.mma_async.x; }";
        let found = HashMap::from([("a_0", Units::Warps), ("c_0", Units::Warpgroups)]);
        assert_eq!(multiplying(code), found);
    }
}
