//! The register tile of a contraction, by an analytic model of the inner loop.

use crate::Machine;

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
}

/// Share of the second-level cache that one operand may fill.
const CACHE_SHARE: f64 = 0.8;

/// Cycles to bring a vector from behind the second-level cache.
const FAR_VECTOR: f64 = 5.0;

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

fn area(tile: Tile) -> usize {
    tile.rows * tile.vectors
}

/// Accumulators, one row of vector operands and one broadcast must fit (with one register spare).
fn fits(tile: Tile, machine: &Machine) -> bool {
    area(tile) + tile.vectors + 1 < machine.registers
}

/// Cycles per summed point over all tiles, the last ones of each axis being smaller.
fn predicted(extents: Extents, tile: Tile, machine: &Machine) -> f64 {
    let Extents { rows, vectors, depth } = extents;
    // What rows of tiles share is read again by each of them.
    let panel = (depth * tile.vectors * machine.lanes * size_of::<f32>()) as f64;
    let far = rows > tile.rows && panel > CACHE_SHARE * machine.l2_bytes as f64;
    let parts = |extent: usize, size: usize| [(extent / size, size), (1, extent % size)];
    let mut cycles = 0.0;
    for (row_tiles, tile_rows) in parts(rows, tile.rows) {
        for (column_tiles, tile_vectors) in parts(vectors, tile.vectors) {
            if tile_rows > 0 && tile_vectors > 0 {
                let tile = Tile { rows: tile_rows, vectors: tile_vectors };
                cycles += (row_tiles * column_tiles) as f64 * tile_cycles(tile, far, machine);
            }
        }
    }
    cycles
}

/// Cycles of one tile per summed point: the multiply-adds, the loads, or the latency of the chain.
fn tile_cycles(tile: Tile, far: bool, machine: &Machine) -> f64 {
    let arithmetic = area(tile) as f64 / machine.fma_per_cycle as f64;
    let loads = (tile.rows + tile.vectors) as f64 / machine.loads_per_cycle as f64;
    let chain = machine.fma_latency as f64;
    // Loads and multiply-adds compete for issue slots: a share of the smaller shows.
    let streamed = if far { tile.vectors as f64 * FAR_VECTOR } else { 0.0 };
    arithmetic.max(loads).max(chain).max(streamed) + 0.1 * arithmetic.min(loads)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extents(rows: usize, vectors: usize, depth: usize) -> Extents {
        Extents { rows, vectors, depth }
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
}
