//! What this machine was measured to reach, now: the yardstick of every rate that is shown.

use hone_machine::Measured;
use serde::{Deserialize, Serialize};

use crate::show::units;

/// Rates on some number of threads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Peaks {
    /// Threads that worked; units of a device.
    pub threads: usize,
    /// f32 operations a second by fused multiply-adds, each of which counts 2.
    pub flops: f64,
    /// Bytes a second read from memory beyond all caches.
    pub bandwidth: f64,
    /// 8-bit integer operations a second by dot products, where the processor has such.
    pub int8: Option<f64>,
    /// bfloat16 operations a second by dot products, where the processor has such.
    pub bf16: Option<f64>,
}

/// The least time that work can take, and what it is that takes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Roofline {
    /// Seconds.
    pub seconds: f64,
    /// `arithmetic` or `memory`.
    pub bound_by: &'static str,
}

impl Peaks {
    /// Each rate's name and value, for a table.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = vec![("FMA f32", units::rate(self.flops, "FLOP"))];
        lines.extend(self.int8.map(|rate| ("VNNI int8", units::rate(rate, "op"))));
        lines.extend(self.bf16.map(|rate| ("dot bf16", units::rate(rate, "FLOP"))));
        lines.push(("memory read", units::rate(self.bandwidth, "B")));
        lines
    }

    /// The bound for work of so many operations over so many bytes.
    pub fn roofline(&self, flops: u64, bytes: u64) -> Roofline {
        let (arithmetic, memory) = (flops as f64 / self.flops, bytes as f64 / self.bandwidth);
        match arithmetic >= memory {
            true => Roofline { seconds: arithmetic, bound_by: "arithmetic" },
            false => Roofline { seconds: memory, bound_by: "memory" },
        }
    }
}

/// Measures the peaks of one core, and reckons that `threads` reach as many times that: so it is where
/// every thread has a core, and for memory where one core cannot use all of its bandwidth. `None` where
/// this machine has no probe.
pub fn peaks(threads: usize) -> Option<Peaks> {
    Some(for_threads(&hone_driver::probe().ok()?, threads))
}

/// The same of code for the target of an artifact that runs here: its vectors may be narrower than this
/// machine's, and so is its peak. For an accelerator those of the device that is used.
pub fn peaks_of(target: &hone_artifact::Target, threads: usize) -> Option<Peaks> {
    if let Some(accelerator) = target.accelerator {
        let device = hone_runtime::accelerator::chosen_device(accelerator.api());
        return super::device_peaks(&device.ok()?);
    }
    let features = target.features.iter().map(|name| format!("+{name}")).collect();
    let target = hone_driver::Target::new(&target.triple, &target.cpu, features).ok()?;
    Some(for_threads(&hone_driver::probe_as(&target).ok()?, threads))
}

fn for_threads(core: &Measured, threads: usize) -> Peaks {
    let all = threads as f64 * 1e9;
    Peaks {
        threads,
        flops: core.f32_gflops * all,
        bandwidth: core.memory_gbytes * all,
        int8: core.int8_gops.map(|rate| rate * all),
        bf16: core.bf16_gflops.map(|rate| rate * all),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_longest_bounds() {
        let peaks = Peaks { threads: 1, flops: 1e9, bandwidth: 1e8, int8: None, bf16: None };
        assert_eq!(peaks.roofline(100, 1), Roofline { seconds: 1e-7, bound_by: "arithmetic" });
        assert_eq!(peaks.roofline(1, 1), Roofline { seconds: 1e-8, bound_by: "memory" });
    }
}
