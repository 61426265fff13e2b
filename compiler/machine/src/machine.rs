//! A processor that code is made for, as choices see it.

use crate::caches::{L2_PANEL_PERCENT, TYPICAL_L1_BYTES, TYPICAL_L1_WAYS, TYPICAL_L2_BYTES};
use crate::cores::Core;
use crate::rates::Rates;
use crate::units::{FMA_PER_CYCLE, LOADS_PER_CYCLE, TYPICAL_FMA_LATENCY};

/// Figures of one core of a target that choices depend on.
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
    /// Whether it multiplies tiles of bfloat16 and of bytes in registers of their kind.
    pub has_tiles: bool,
}

/// Bytes of a row of a tile register (AMX).
pub const TILE_ROW_BYTES: usize = 64;

/// Products of fewer rows than these are as fast with vectors, which need no tile registers to be configured.
pub const MIN_TILE_ROWS: usize = 4;

impl Machine {
    /// Figures typical of a processor with `registers` vector registers of `vector_bytes` bytes.
    pub fn with_vectors(vector_bytes: usize, registers: usize) -> Self {
        Self {
            lanes: (vector_bytes / 4).max(1),
            registers,
            fma_per_cycle: FMA_PER_CYCLE,
            fma_latency: TYPICAL_FMA_LATENCY,
            loads_per_cycle: LOADS_PER_CYCLE,
            l1_bytes: TYPICAL_L1_BYTES,
            l1_ways: TYPICAL_L1_WAYS,
            l2_bytes: TYPICAL_L2_BYTES,
            l2_panel_percent: L2_PANEL_PERCENT,
            has_tiles: false,
        }
    }

    /// The same with the figures of a processor by LLVM's name for it, where they are known.
    pub fn of_processor(self, cpu: &str) -> Self {
        let Some(core) = Core::named(cpu) else { return self };
        let bytes = self.lanes * size_of::<f32>();
        Self {
            fma_per_cycle: per_cycle(FMA_PER_CYCLE, bytes, core.unit_bytes),
            fma_latency: core.fma_latency,
            loads_per_cycle: per_cycle(LOADS_PER_CYCLE, bytes, core.load_bytes),
            l1_bytes: core.l1_kib << 10,
            l1_ways: core.l1_ways,
            l2_bytes: core.l2_kib << 10,
            l2_panel_percent: core.l2_panel_percent,
            ..self
        }
    }

    /// Bytes of a panel up to which it is read again from the second-level cache without delay.
    pub fn panel_limit(&self) -> usize {
        self.l2_bytes / 100 * self.l2_panel_percent
    }

    /// The same for products that are summed by another instruction: a register holds the product, and a sum waits for
    /// the addition alone.
    pub fn with_separate_sums(self) -> Self {
        Self { registers: self.registers.saturating_sub(1).max(1), fma_latency: 1, ..self }
    }

    /// Rates that algorithms are compared by: those of a typical core that begins as many multiply-adds of such vectors in a
    /// cycle as this one. Clocks and memory are assumed.
    ///
    /// Measured on Zen 4, which takes two cycles for vectors of 64 bytes, with rates of one and of two: where more
    /// convolutions are computed by Winograd's algorithm, or with larger tiles, networks of 1 ms took 0.79 of the time, of 4 ms
    /// 0.86, and others between 1.00 and 1.02.
    pub fn typical_rates(&self) -> Rates {
        Rates::typical(self.lanes, self.fma_per_cycle)
    }
}

/// Instructions on vectors of `bytes` that start in a cycle, where `units` take vectors of up to `unit_bytes` whole and
/// longer ones half by half.
fn per_cycle(units: usize, bytes: usize, unit_bytes: usize) -> usize {
    if bytes <= unit_bytes { units } else { units / 2 }
}

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
    fn rates_follow_from_vectors_and_units() {
        let generic = Machine::with_vectors(64, 32);
        let rates = |machine: Machine| machine.typical_rates().flops_per_ns;
        assert_eq!(rates(generic.of_processor("znver4")) * 2.0, rates(generic));
        assert_eq!(rates(generic.of_processor("znver5")), rates(generic));
    }

    #[test]
    fn loads_are_counted_by_the_length_of_their_vectors() {
        let loads = |bytes, cpu| Machine::with_vectors(bytes, 16).of_processor(cpu).loads_per_cycle;
        assert_eq!([16, 32, 64].map(|bytes| loads(bytes, "sapphirerapids")), [2, 2, 2]);
        assert_eq!([16, 32].map(|bytes| loads(bytes, "znver1")), [2, 1]);
        assert_eq!([32, 64].map(|bytes| loads(bytes, "znver4")), [2, 1]);
        assert_eq!([32, 64].map(|bytes| loads(bytes, "tigerlake")), [2, 2]);
    }
}
