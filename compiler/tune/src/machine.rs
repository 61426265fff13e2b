//! What the analytic model knows of a machine.

/// Figures of a target that choices depend on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// `f32` elements in a vector register.
    pub lanes: usize,
    /// Vector registers.
    pub registers: usize,
    /// Fused multiply-adds that can start in one cycle.
    pub fma_per_cycle: usize,
    /// Cycles from the start of a fused multiply-add until its result can be used.
    pub fma_latency: usize,
    /// Vector loads that can start in one cycle.
    pub loads_per_cycle: usize,
    /// Bytes of first-level data cache.
    pub l1_bytes: usize,
    /// Lines that one set of the first-level data cache holds.
    pub l1_ways: usize,
    /// Bytes of second-level cache of one core.
    pub l2_bytes: usize,
    /// Percent of it up to which a panel is read again from it without delay, while rows stream by and the
    /// next panel is prefetched.
    pub l2_panel_percent: usize,
}

impl Machine {
    /// Figures typical of a processor with `registers` vector registers of `vector_bytes` bytes.
    pub fn with_vectors(vector_bytes: usize, registers: usize) -> Self {
        Self {
            lanes: (vector_bytes / 4).max(1),
            registers,
            fma_per_cycle: 2,
            fma_latency: 4,
            loads_per_cycle: 2,
            l1_bytes: 32 << 10,
            l1_ways: 8,
            l2_bytes: 1 << 20,
            l2_panel_percent: L2_PANEL_PERCENT,
        }
    }

    /// The same for products that are summed by another instruction: a register holds the product, and a sum waits for
    /// the addition alone.
    pub(crate) fn with_separate_sums(self) -> Self {
        Self { registers: self.registers.saturating_sub(1).max(1), fma_latency: 1, ..self }
    }

    /// The same with the figures of a processor by LLVM's name for it, where they are known.
    pub fn of_processor(self, cpu: &str) -> Self {
        let Some(core) = CORES.iter().find(|core| core.names.contains(&cpu)) else { return self };
        let bytes = self.lanes * size_of::<f32>();
        let per_cycle = |longest| if bytes <= longest { 2 } else { 1 };
        Self {
            fma_per_cycle: per_cycle(core.unit_bytes),
            fma_latency: core.fma_latency,
            loads_per_cycle: per_cycle(core.load_bytes),
            l1_bytes: core.l1_kib << 10,
            l1_ways: core.l1_ways,
            l2_bytes: core.l2_kib << 10,
            l2_panel_percent: core.l2_panel_percent,
            ..self
        }
    }
}

/// Figures of a core that has two units for multiply-adds and two for loads.
#[derive(Clone, Copy)]
struct Core {
    /// LLVM's names of processors that have it.
    names: &'static [&'static str],
    /// Bytes of a vector that one unit for multiply-adds takes in a cycle; longer ones take two.
    unit_bytes: usize,
    /// Bytes of the longest vectors of which two loads can start in one cycle; one of longer vectors.
    load_bytes: usize,
    /// Cycles of a fused multiply-add.
    fma_latency: usize,
    /// KiB of first-level data cache.
    l1_kib: usize,
    /// Lines in one set of it.
    l1_ways: usize,
    /// KiB of second-level cache of one core.
    l2_kib: usize,
    /// As [`Machine::l2_panel_percent`].
    l2_panel_percent: usize,
}

impl Core {
    /// The core with another share of the second-level cache for a panel.
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

/// Percent of the second-level cache that a panel may fill on cores where it was not measured.
const L2_PANEL_PERCENT: usize = 80;

/// The same of servers with cores of the kind Golden Cove. Measured on Emerald Rapids, 128 rows and 768 columns, sums
/// of 3,072 products, of the peak by the size of the panel: 384 KiB 84 %, 768 KiB 81 %, 1,152 KiB 70 %; sums of
/// 768 products with 288 KiB 92 %.
const GOLDEN_COVE_PANEL_PERCENT: usize = 30;

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
    fn a_named_processor_has_the_caches_and_latency_of_its_core() {
        let generic = Machine::with_vectors(32, 16);
        assert_eq!(generic.of_processor("x86-64-v3"), generic);
        let rome = generic.of_processor("znver2");
        assert_eq!((rome.fma_latency, rome.l2_bytes), (5, 512 << 10));
        let sapphire_rapids = Machine::with_vectors(64, 32).of_processor("sapphirerapids");
        assert_eq!((sapphire_rapids.l1_ways, sapphire_rapids.l2_bytes), (12, 2 << 20));
    }

    #[test]
    fn vectors_longer_than_a_unit_take_it_twice() {
        let genoa = |bytes| Machine::with_vectors(bytes, bytes / 2).of_processor("znver4");
        assert_eq!((genoa(64).fma_per_cycle, genoa(32).fma_per_cycle), (1, 2));
        let with_avx512 = |cpu| Machine::with_vectors(64, 32).of_processor(cpu).fma_per_cycle;
        assert_eq!((with_avx512("tigerlake"), with_avx512("icelake-server")), (1, 2));
    }

    #[test]
    fn loads_are_counted_by_the_length_of_their_vectors() {
        let loads = |bytes, cpu| Machine::with_vectors(bytes, 16).of_processor(cpu).loads_per_cycle;
        assert_eq!([16, 32, 64].map(|bytes| loads(bytes, "sapphirerapids")), [2, 2, 2]);
        assert_eq!([16, 32].map(|bytes| loads(bytes, "znver1")), [2, 1]);
        assert_eq!([32, 64].map(|bytes| loads(bytes, "znver4")), [2, 1]);
        assert_eq!([32, 64].map(|bytes| loads(bytes, "tigerlake")), [2, 2]);
    }

    #[test]
    fn no_processor_is_listed_twice() {
        let mut names: Vec<&str> = CORES.iter().flat_map(|core| core.names).copied().collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
