//! Cores by the names of their processors.

use crate::caches::L2_PANEL_PERCENT;

/// Figures of a core that has two units for multiply-adds and two for loads.
#[derive(Clone, Copy)]
pub(crate) struct Core {
    /// LLVM's names of processors that have it.
    names: &'static [&'static str],
    /// Bytes of a vector that one unit for multiply-adds takes in a cycle; longer ones take two.
    pub(crate) unit_bytes: usize,
    /// Bytes of the longest vectors of which two loads can start in one cycle; one of longer vectors.
    pub(crate) load_bytes: usize,
    /// Cycles of a fused multiply-add.
    pub(crate) fma_latency: usize,
    /// KiB of first-level data cache.
    pub(crate) l1_kib: usize,
    /// Lines in one set of it.
    pub(crate) l1_ways: usize,
    /// KiB of second-level cache of one core.
    pub(crate) l2_kib: usize,
    /// As [`crate::Machine::l2_panel_percent`].
    pub(crate) l2_panel_percent: usize,
}

impl Core {
    /// The core of a processor by LLVM's name for it.
    pub(crate) fn named(cpu: &str) -> Option<&'static Self> {
        CORES.iter().find(|core| core.names.contains(&cpu))
    }

    /// The core with another part of the second-level cache for a panel, in percent.
    const fn l2_panel(self, l2_panel_percent: usize) -> Self {
        Self { l2_panel_percent, ..self }
    }
}

const fn core(
    names: &'static [&'static str],
    [unit_bytes, load_bytes]: [usize; 2],
    fma_latency: usize,
    [l1_kib, l1_ways, l2_kib]: [usize; 3],
) -> Core {
    let l2_panel_percent = L2_PANEL_PERCENT;
    Core { names, unit_bytes, load_bytes, fma_latency, l1_kib, l1_ways, l2_kib, l2_panel_percent }
}

/// Percent of the second-level cache that a panel may fill on servers with cores of the kind Golden Cove. Measured on
/// Emerald Rapids, 128 rows and 768 columns, sums of 3,072 products, of the peak by the size of the panel: 384 KiB 84 %,
/// 768 KiB 81 %, 1,152 KiB 70 %; sums of 768 products with 288 KiB 92 %. On Granite Rapids, where 288 KiB reach 72 %, with
/// 6 % in place of 30 %: BERT-base 134 -> 125 ms, ViT-B/16 189 -> 183, ResNet-50 40.2 -> 37.5, MobileNetV2 4.05 -> 3.79.
const GOLDEN_COVE_PANEL_PERCENT: usize = 6;

/// Known cores. Sources: Intel 64 and IA-32 Architectures Optimization Reference Manual, chapter 2;
/// AMD's Software Optimization Guides for families 17h, 19h and 1Ah. On Emerald Rapids the latency (4.0 cycles) and the
/// loads were measured, and sizes and ways are what CPUID says.
const CORES: [Core; 14] = [
    core(&["haswell", "broadwell", "core-avx2"], [32, 32], 5, [32, 8, 256]),
    core(&["skylake"], [32, 32], 4, [32, 8, 256]),
    core(&["skylake-avx512", "cascadelake", "cooperlake"], [64, 64], 4, [32, 8, 1024]),
    // The client cores of this generation have one unit for multiply-adds of 64 bytes, the servers' two; both
    // load two such vectors.
    core(&["icelake-client", "rocketlake"], [32, 64], 4, [48, 12, 512]),
    core(&["tigerlake"], [32, 64], 4, [48, 12, 1280]),
    core(&["icelake-server"], [64, 64], 4, [48, 12, 1280]),
    // The manual gives Golden Cove three loads of up to 32 bytes in a cycle; Emerald Rapids was measured at two, of 4,
    // 32 and 64 bytes alike.
    core(&["alderlake"], [64, 64], 4, [48, 12, 1280]),
    core(&["raptorlake"], [64, 64], 4, [48, 12, 2048]),
    core(&["sapphirerapids", "emeraldrapids", "graniterapids"], [64, 64], 4, [48, 12, 2048])
        .l2_panel(GOLDEN_COVE_PANEL_PERCENT),
    core(&["znver1"], [16, 16], 5, [32, 8, 512]),
    core(&["znver2"], [32, 32], 5, [32, 8, 512]),
    core(&["znver3"], [32, 32], 4, [32, 8, 512]),
    core(&["znver4"], [32, 32], 4, [32, 8, 1024]),
    core(&["znver5"], [64, 64], 4, [48, 12, 1024]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_processor_is_listed_twice() {
        let mut names: Vec<&str> = CORES.iter().flat_map(|core| core.names).copied().collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
