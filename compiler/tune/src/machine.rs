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
        }
    }

    /// The same with the figures of a processor by LLVM's name for it, where they are known.
    pub fn of_processor(self, cpu: &str) -> Self {
        let Some(core) = CORES.iter().find(|core| core.names.contains(&cpu)) else { return self };
        let fits = self.lanes * size_of::<f32>() <= core.unit_bytes;
        let per_cycle = if fits { 2 } else { 1 };
        Self {
            fma_per_cycle: per_cycle,
            fma_latency: core.fma_latency,
            loads_per_cycle: per_cycle,
            l1_bytes: core.l1_kib << 10,
            l1_ways: core.l1_ways,
            l2_bytes: core.l2_kib << 10,
            ..self
        }
    }
}

/// Figures of a core that has two units for multiply-adds and two for loads.
struct Core {
    /// LLVM's names of processors that have it.
    names: &'static [&'static str],
    /// Bytes of a vector that one unit takes in a cycle; longer ones take two.
    unit_bytes: usize,
    /// Cycles of a fused multiply-add.
    fma_latency: usize,
    /// KiB of first-level data cache.
    l1_kib: usize,
    /// Lines in one set of it.
    l1_ways: usize,
    /// KiB of second-level cache of one core.
    l2_kib: usize,
}

const fn core(
    names: &'static [&'static str],
    unit_bytes: usize,
    fma_latency: usize,
    [l1_kib, l1_ways, l2_kib]: [usize; 3],
) -> Core {
    Core { names, unit_bytes, fma_latency, l1_kib, l1_ways, l2_kib }
}

/// Known cores. Sources: Intel 64 and IA-32 Architectures Optimization Reference Manual, chapter 2;
/// AMD's Software Optimization Guides for families 17h, 19h and 1Ah.
const CORES: [Core; 12] = [
    core(&["haswell", "broadwell", "core-avx2"], 32, 5, [32, 8, 256]),
    core(&["skylake"], 32, 4, [32, 8, 256]),
    core(&["skylake-avx512", "cascadelake", "cooperlake"], 64, 4, [32, 8, 1024]),
    // The client cores of this generation have one unit for vectors of 64 bytes, the servers' two.
    core(&["icelake-client", "rocketlake"], 32, 4, [48, 12, 512]),
    core(&["tigerlake"], 32, 4, [48, 12, 1280]),
    core(&["icelake-server", "alderlake"], 64, 4, [48, 12, 1280]),
    core(
        &["sapphirerapids", "emeraldrapids", "graniterapids", "raptorlake"],
        64,
        4,
        [48, 12, 2048],
    ),
    core(&["znver1"], 16, 5, [32, 8, 512]),
    core(&["znver2"], 32, 5, [32, 8, 512]),
    core(&["znver3"], 32, 4, [32, 8, 512]),
    core(&["znver4"], 32, 4, [32, 8, 1024]),
    core(&["znver5"], 64, 4, [48, 12, 1024]),
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
    fn no_processor_is_listed_twice() {
        let mut names: Vec<&str> = CORES.iter().flat_map(|core| core.names).copied().collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
