//! The register tile of a contraction, by an analytic model of the inner loop.

use crate::Machine;
use crate::decisions::Decisions;

/// Rows and vectors of results that stay in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tile {
    /// Rows: results that share a vector operand.
    pub(crate) rows: usize,
    /// Vectors of each row: results that share a broadcast operand.
    pub(crate) vectors: usize,
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
    /// Bytes from a row of the broadcast operand to the next; 0 where there is one row.
    pub(crate) row_bytes: usize,
}

/// Part of the second-level cache that one operand may fill.
const CACHE_PART: f64 = 0.8;

/// Bytes a cycle that come from behind the second-level cache.
const FAR_BYTES: f64 = 12.8;

/// Bytes a cycle that come from the second-level cache: what Intel's optimization manual (2.6.4)
/// gives as sustained for Ice Lake.
const NEAR_BYTES: f64 = 48.0;

/// Bytes of a line of a cache.
const LINE: usize = 64;

/// Chains that keep the multiply-adds busy, as a multiple of those that the latency alone asks for: one
/// that waits for a load or an issue slot is made up for only where others are ready. Measured on Zen 5
/// with data in the first-level cache, of the peak, vectors of 32 and 64 bytes: 8 chains 91 and 90 %, 10
/// chains 94 and 95 %, 12 chains 99 and 98 %; the latency asks for 8.
const SPARE_CHAINS: f64 = 1.5;

/// Cycles lost for each cycle's worth of chains that is missing; by the same measurement.
const MISSING_CHAIN: f64 = 0.2;

/// The tile with the least predicted time. `unit` is the number of vectors that must stay together.
pub(crate) fn choose_tile(extents: Extents, unit: usize, machine: &Machine) -> Tile {
    let Extents { rows, vectors, .. } = extents;
    let mut best = (f64::INFINITY, Tile { rows: 1, vectors: unit });
    for tile_vectors in (unit..=vectors.max(unit)).step_by(unit) {
        for tile_rows in 1..=rows.max(1) {
            let tile = Tile { rows: tile_rows, vectors: tile_vectors };
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

/// A tile that fits the registers: its vectors are decided first, then its rows, by default those with the
/// least predicted time.
pub(crate) fn decide_tile(
    extents: Extents,
    unit: usize,
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Tile {
    let best = choose_tile(extents, unit, machine);
    let one_row = |vectors: &usize| fits(Tile { rows: 1, vectors: *vectors }, machine);
    let all = (unit..=extents.vectors.max(unit)).step_by(unit).take_while(one_row);
    let vectors = decisions.number("vectors", all, best.vectors);
    let all =
        (1..=extents.rows.max(1)).take_while(|rows| fits(Tile { rows: *rows, vectors }, machine));
    let least = |rows: usize| predicted(extents, Tile { rows, vectors }, machine);
    let rows = match vectors == best.vectors {
        true => best.rows,
        false => all.clone().min_by(|a, b| least(*a).total_cmp(&least(*b))).unwrap_or(1),
    };
    Tile { rows: decisions.number("rows", all, rows), vectors }
}

fn area(tile: Tile) -> usize {
    tile.rows * tile.vectors
}

/// Accumulators, one row of vector operands and one broadcast must fit. 4 x 3 with 16 registers is
/// compiled without a spill and reaches 98 % of the peak.
fn fits(tile: Tile, machine: &Machine) -> bool {
    area(tile) + tile.vectors < machine.registers
}

/// Cycles per summed point over all tiles, the last ones of each axis being smaller.
fn predicted(extents: Extents, tile: Tile, machine: &Machine) -> f64 {
    let Extents { rows, vectors, depth, row_bytes } = extents;
    // What rows of tiles share is read again by each of them.
    let panel = (depth * tile.vectors * machine.lanes * size_of::<f32>()) as f64;
    let far = rows > tile.rows && panel > CACHE_PART * machine.l2_bytes as f64;
    let parts = |extent: usize, size: usize| [(extent / size, size), (1, extent % size)];
    let mut cycles = 0.0;
    for (row_tiles, tile_rows) in parts(rows, tile.rows) {
        for (column_tiles, tile_vectors) in parts(vectors, tile.vectors) {
            if tile_rows > 0 && tile_vectors > 0 {
                let tile = Tile { rows: tile_rows, vectors: tile_vectors };
                cycles +=
                    (row_tiles * column_tiles) as f64 * tile_cycles(tile, far, row_bytes, machine);
            }
        }
    }
    cycles
}

/// Cycles of one tile per summed point: the multiply-adds, the loads, the latency of the chain, or what
/// comes from the outer caches.
fn tile_cycles(tile: Tile, far: bool, row_bytes: usize, machine: &Machine) -> f64 {
    let arithmetic = area(tile) as f64 / machine.fma_per_cycle as f64;
    let loads = (tile.rows + tile.vectors) as f64 / machine.loads_per_cycle as f64;
    let chain = machine.fma_latency as f64;
    let vectors = (tile.vectors * machine.lanes * size_of::<f32>()) as f64;
    let streamed = if far { vectors / FAR_BYTES } else { 0.0 };
    let evicted = match rows_stay(tile, row_bytes, machine) {
        true => 0.0,
        false => (tile.rows * LINE) as f64 / NEAR_BYTES,
    };
    let missing = (SPARE_CHAINS * chain - arithmetic).max(0.0);
    // Loads and multiply-adds compete for issue slots: a part of the smaller shows.
    arithmetic.max(loads).max(chain).max(streamed).max(evicted)
        + 0.1 * arithmetic.min(loads)
        + MISSING_CHAIN * missing
}

/// Whether a line of each row stays in the first-level cache until all of its elements are used. Rows that
/// lie a multiple of a way's size apart meet in one set, where vectors that stream past need lines, too.
/// Measured on Zen 5, whose sets hold 12 lines: 14 rows 12,288 bytes apart reach 4 % less than 12,352
/// bytes apart, 9 rows as much.
fn rows_stay(tile: Tile, row_bytes: usize, machine: &Machine) -> bool {
    let way = machine.l1_bytes / machine.l1_ways.max(1);
    if row_bytes < LINE || way < LINE {
        return true;
    }
    let apart = way / greatest_common_divisor(row_bytes, way);
    // Rows that are less than a line apart in the set's sense still have lines of their own.
    let in_one_set = tile.rows.div_ceil(apart.min(way / LINE));
    let points = LINE / size_of::<f32>();
    let streamed = points * tile.vectors * machine.lanes * size_of::<f32>();
    in_one_set + streamed.div_ceil(way) <= machine.l1_ways
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extents(rows: usize, vectors: usize, depth: usize) -> Extents {
        Extents { rows, vectors, depth, row_bytes: 0 }
    }

    #[test]
    fn long_sums_take_panels_that_stay_in_cache() {
        let machine = Machine::with_vectors(64, 32);
        let tile = choose_tile(extents(196, 48, 4096), 1, &machine);
        assert!(tile.vectors * 4096 * 64 <= machine.l2_bytes, "{tile:?}");
    }

    #[test]
    fn wide_problems_fill_the_registers() {
        let tile = choose_tile(extents(196, 16, 64), 1, &Machine::with_vectors(64, 32));
        assert!(area(tile) >= 24, "{tile:?}");
    }

    #[test]
    fn one_row_takes_many_vectors() {
        let tile = choose_tile(extents(1, 64, 64), 1, &Machine::with_vectors(64, 32));
        assert!(tile.rows == 1 && tile.vectors >= 8, "{tile:?}");
    }

    #[test]
    fn rows_divide_evenly_where_they_can() {
        let tile = choose_tile(extents(28, 2, 64), 1, &Machine::with_vectors(64, 32));
        assert_eq!(28 % tile.rows, 0, "{tile:?}");
    }

    #[test]
    fn chains_are_more_than_the_latency_asks_for() {
        // 4 x 2 divides 128 rows, but its 8 chains are just as many as 4 cycles take.
        let tile = choose_tile(extents(128, 96, 3072), 2, &Machine::with_vectors(32, 16));
        assert!(area(tile) >= 12, "{tile:?}");
    }

    #[test]
    fn sixteen_registers_hold_four_by_three() {
        // Rows of 7 in tiles of two vectors are 4 + 3: a third vector fills the chains.
        let tile = choose_tile(extents(7, 64, 4608), 1, &Machine::with_vectors(32, 16));
        assert_eq!(tile, Tile { rows: 4, vectors: 3 });
    }

    #[test]
    fn rows_that_meet_in_one_set_of_the_first_cache_are_few() {
        let machine = Machine::with_vectors(64, 32);
        let tile = |row_bytes| {
            let extents = Extents { row_bytes, ..extents(14 * 9, 2, 3072) };
            choose_tile(extents, 2, &machine)
        };
        assert_eq!(tile(12_352).rows, 14);
        assert!(tile(12_288).rows < machine.l1_ways, "{:?}", tile(12_288));
    }
}
