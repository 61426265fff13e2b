//! The register tile of a contraction, by an analytic model of the inner loop.

use crate::Machine;
use crate::decisions::Decisions;
use hone_machine::{
    BEYOND_L2_BYTES_PER_CYCLE, ISSUE_CONTENTION, L2_BYTES_PER_CYCLE, LINE_BYTES, LOADS_REACHED,
    MISSING_CHAIN, SPARE_CHAINS,
};

/// The register tile of the micro-kernel: results that stay in registers (Goto and van de Geijn, 2008).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tile {
    /// Rows: results that share a vector of the panel.
    pub(crate) mr: usize,
    /// Vectors of each row: results that share a broadcast element.
    pub(crate) nr: usize,
}

impl Tile {
    /// Bytes of the panel that all rows of tiles read, of sums of `depth` numbers of four bytes.
    pub(crate) fn panel_bytes(self, depth: usize, machine: &Machine) -> usize {
        depth * self.nr * machine.lanes * size_of::<f32>()
    }
}

/// What is tiled: results, and the length of their sums.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extents {
    /// Rows of results.
    pub(crate) rows: usize,
    /// Vectors in a row.
    pub(crate) vectors: usize,
    /// Points summed for each result.
    pub(crate) depth: usize,
    /// Stride between rows of the broadcast operand in bytes; 0 where there is one row.
    pub(crate) row_bytes: usize,
    /// Whether tiles have to divide the vectors of a row evenly: further ones read other broadcast elements.
    pub(crate) divides: bool,
}

impl Extents {
    /// Vectors that a tile may have, each so many that stay together.
    fn columns(&self, unit: usize) -> impl Iterator<Item = usize> + Clone + use<> {
        let Self { vectors, divides, .. } = *self;
        let all = (unit..=vectors.max(unit)).step_by(unit);
        all.filter(move |nr| !divides || vectors.is_multiple_of(*nr))
    }
}

/// The tile with the minimum predicted time. `unit` is the number of vectors that must stay together.
pub(crate) fn choose_tile(extents: Extents, unit: usize, machine: &Machine) -> Tile {
    let rows = extents.rows;
    let mut best = (f64::INFINITY, Tile { mr: 1, nr: unit });
    for nr in extents.columns(unit) {
        for mr in 1..=rows.max(1) {
            let tile = Tile { mr, nr };
            if !fits(tile, machine) {
                break;
            }
            let time = predicted(extents, tile, machine);
            // Larger tiles win ties: they read operands fewer times.
            if time < best.0 * 0.999 || (time <= best.0 && area(tile) > area(best.1)) {
                best = (time, tile);
            }
        }
    }
    best.1
}

/// A tile that fits the registers: `nr` is decided first, then `mr`, by default those with the minimum
/// predicted time.
pub(crate) fn decide_tile(
    extents: Extents,
    unit: usize,
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Tile {
    let best = choose_tile(extents, unit, machine);
    let one_row = |nr: &usize| fits(Tile { mr: 1, nr: *nr }, machine);
    let all = extents.columns(unit).take_while(one_row);
    let nr = decisions.number("vectors", all, best.nr);
    let all = (1..=extents.rows.max(1)).take_while(|mr| fits(Tile { mr: *mr, nr }, machine));
    let time = |mr: usize| predicted(extents, Tile { mr, nr }, machine);
    let mr = match nr == best.nr {
        true => best.mr,
        false => all.clone().min_by(|a, b| time(*a).total_cmp(&time(*b))).unwrap_or(1),
    };
    Tile { mr: decisions.number("rows", all, mr), nr }
}

fn area(tile: Tile) -> usize {
    tile.mr * tile.nr
}

/// Accumulators, `nr` vectors of the panel and one broadcast element must fit. 4 x 3 with 16 registers is
/// compiled without a spill and reaches 98 % of the peak.
fn fits(tile: Tile, machine: &Machine) -> bool {
    area(tile) + tile.nr < machine.registers
}

/// Cycles per summed point over all tiles, the last ones of each axis being smaller.
fn predicted(extents: Extents, tile: Tile, machine: &Machine) -> f64 {
    let Extents { rows, vectors, depth, row_bytes, .. } = extents;
    // Rows of tiles share a panel: each of them reads it again.
    let evicted = rows > tile.mr && tile.panel_bytes(depth, machine) > machine.panel_limit();
    let tiles_and_tail = |extent: usize, size: usize| [(extent / size, size), (1, extent % size)];
    let mut cycles = 0.0;
    for (row_tiles, mr) in tiles_and_tail(rows, tile.mr) {
        for (column_tiles, nr) in tiles_and_tail(vectors, tile.nr) {
            if mr > 0 && nr > 0 {
                let tile = Tile { mr, nr };
                cycles += (row_tiles * column_tiles) as f64
                    * tile_cycles(tile, evicted, row_bytes, machine);
            }
        }
    }
    cycles
}

/// Cycles of one tile per summed point: the multiply-adds, the loads, the latency of the chain, or what
/// comes from the outer caches. `evicted` says that the panel does not stay in the second-level cache.
fn tile_cycles(tile: Tile, evicted: bool, row_bytes: usize, machine: &Machine) -> f64 {
    let arithmetic = area(tile) as f64 / machine.fma_per_cycle as f64;
    let loads = (tile.mr + tile.nr) as f64 / (LOADS_REACHED * machine.loads_per_cycle as f64);
    let chain = machine.fma_latency as f64;
    let vector_bytes = (tile.nr * machine.lanes * size_of::<f32>()) as f64;
    let panel = if evicted { vector_bytes / BEYOND_L2_BYTES_PER_CYCLE } else { 0.0 };
    let rows = match rows_stay_in_l1(tile, row_bytes, machine) {
        true => 0.0,
        false => (tile.mr * LINE_BYTES) as f64 / L2_BYTES_PER_CYCLE,
    };
    let missing = (SPARE_CHAINS * chain - arithmetic).max(0.0);
    arithmetic.max(loads).max(chain).max(panel).max(rows)
        + ISSUE_CONTENTION * arithmetic.min(loads)
        + MISSING_CHAIN * missing
}

/// Whether a line of each row stays in the first-level cache until all of its elements are used. Rows that
/// lie a multiple of a way's size apart map to one set, where the vectors of the panel need lines, too.
/// Measured on Zen 5, whose sets hold 12 lines: 14 rows 12,288 bytes apart reach 4 % less than 12,352
/// bytes apart, 9 rows as much.
fn rows_stay_in_l1(tile: Tile, row_bytes: usize, machine: &Machine) -> bool {
    let way = machine.l1_bytes / machine.l1_ways.max(1);
    if row_bytes < LINE_BYTES || way < LINE_BYTES {
        return true;
    }
    let sets_apart = way / greatest_common_divisor(row_bytes, way);
    // Rows whose sets are less than a line apart still have lines of their own.
    let in_one_set = tile.mr.div_ceil(sets_apart.min(way / LINE_BYTES));
    let points = LINE_BYTES / size_of::<f32>();
    let panel_bytes = points * tile.nr * machine.lanes * size_of::<f32>();
    in_one_set + panel_bytes.div_ceil(way) <= machine.l1_ways
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extents(rows: usize, vectors: usize, depth: usize) -> Extents {
        Extents { rows, vectors, depth, row_bytes: 0, divides: false }
    }

    #[test]
    fn long_sums_take_panels_that_stay_in_cache() {
        let machine = Machine::with_vectors(64, 32);
        let tile = choose_tile(extents(196, 48, 4096), 1, &machine);
        assert!(tile.nr * 4096 * 64 <= machine.l2_bytes, "{tile:?}");
    }

    #[test]
    fn large_problems_fill_the_registers() {
        let tile = choose_tile(extents(196, 16, 64), 1, &Machine::with_vectors(64, 32));
        assert!(area(tile) >= 24, "{tile:?}");
    }

    #[test]
    fn one_row_takes_many_vectors() {
        let tile = choose_tile(extents(1, 64, 64), 1, &Machine::with_vectors(64, 32));
        assert!(tile.mr == 1 && tile.nr >= 8, "{tile:?}");
    }

    #[test]
    fn rows_divide_evenly_where_they_can() {
        let tile = choose_tile(extents(28, 2, 64), 1, &Machine::with_vectors(64, 32));
        assert_eq!(28 % tile.mr, 0, "{tile:?}");
    }

    #[test]
    fn chains_are_more_than_the_latency_requires() {
        // 4 x 2 divides 128 rows, but its 8 chains are just as many as 4 cycles take.
        let tile = choose_tile(extents(128, 96, 3072), 2, &Machine::with_vectors(32, 16));
        assert!(area(tile) >= 12, "{tile:?}");
    }

    #[test]
    fn tiles_stay_within_a_group() {
        let machine = Machine::with_vectors(32, 16);
        for vectors in [1, 2, 4, 8] {
            let group = Extents { divides: true, ..extents(28, vectors, 576) };
            let tile = choose_tile(group, 1, &machine);
            assert!(vectors.is_multiple_of(tile.nr) && tile.nr >= vectors.min(2), "{tile:?}");
        }
    }

    #[test]
    fn sixteen_registers_hold_four_by_three() {
        // Rows of 7 in tiles of two vectors are 4 + 3: a third vector fills the chains.
        let tile = choose_tile(extents(7, 64, 4608), 1, &Machine::with_vectors(32, 16));
        assert_eq!(tile, Tile { mr: 4, nr: 3 });
    }

    #[test]
    fn panels_fill_no_more_of_the_second_cache_than_the_core_takes_well() {
        let sums = Extents { row_bytes: 12_288, ..extents(128, 48, 3072) };
        let tile = |cpu| choose_tile(sums, 2, &Machine::with_vectors(64, 32).of_processor(cpu));
        assert_eq!(tile("emeraldrapids").nr, 2, "{:?}", tile("emeraldrapids"));
        // Other cores keep the panel of more vectors, which needs fewer loads.
        let sums = Extents { row_bytes: 3_072, ..extents(128, 48, 768) };
        let tile = |cpu| choose_tile(sums, 2, &Machine::with_vectors(64, 32).of_processor(cpu));
        assert_eq!(tile("emeraldrapids").nr, 2, "{:?}", tile("emeraldrapids"));
        assert!(tile("icelake-server").nr >= 4, "{:?}", tile("icelake-server"));
    }

    #[test]
    fn rows_that_map_to_one_set_of_the_first_cache_are_few() {
        let machine = Machine::with_vectors(64, 32);
        let tile = |row_bytes| {
            let extents = Extents { row_bytes, ..extents(14 * 9, 2, 3072) };
            choose_tile(extents, 2, &machine)
        };
        assert_eq!(tile(12_352).mr, 14);
        assert!(tile(12_288).mr < machine.l1_ways, "{:?}", tile(12_288));
    }
}
