//! The order in which the tiles of the depth follow each other.

use super::form::{Form, Window};
use super::tiles::Tiles;

/// Bits of a lane's word that says for each step of a window whether it leaves the operand; the highest is kept for rows
/// that are none.
const BITS: usize = 31;

/// Tiles of the depth, as numbers along axes: the last one runs fastest.
#[derive(Clone, Debug)]
pub(super) struct DepthOrder {
    pub(super) axes: Vec<Steps>,
    /// For each window of the left operand.
    pub(super) windows: Vec<Bits>,
    /// The axis whose last tile is not whole, where one is.
    pub(super) partial: Option<usize>,
}

/// An axis of the tiles.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps {
    pub(super) extent: usize,
    /// Distances of neighbours, in elements of the left and of the right operand.
    pub(super) steps: [i64; 2],
    /// Whether the number along it has a meaning of its own.
    counts: bool,
}

/// The bits of a window in a lane's word: one for each number along an axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bits {
    pub(super) first: usize,
    /// One where the window depends on no axis.
    pub(super) count: usize,
    pub(super) axis: Option<usize>,
    /// What a step along the axis adds to the coordinate.
    pub(super) step: i64,
}

impl DepthOrder {
    /// The order for a product in such tiles; `None` where windows have more steps than a word has bits.
    pub(super) fn of(form: &Form, tiles: &Tiles) -> Option<Self> {
        let (bytes, last) = (form.factors.bytes(), form.depth.len().checked_sub(1)?);
        let depth = tiles.depth(bytes);
        let partial = !form.inner().is_multiple_of(depth);
        let windowed = |axis: usize| {
            form.bounds.iter().any(|window| window.depth.is_some_and(|(at, _)| at == axis))
        };
        let axes = form.depth.iter().enumerate().map(|(number, extent)| {
            let steps = [0, 1].map(|side: usize| form.operands[side].depth[number]);
            let counts = windowed(number) || (number == last && partial);
            match number == last {
                true => Steps {
                    extent: extent.div_ceil(depth),
                    steps: steps.map(|step| step * depth as i64),
                    counts,
                },
                false => Steps { extent: *extent, steps, counts },
            }
        });
        let (axes, numbers) = joined(axes);
        let mut windows = Vec::with_capacity(form.bounds.len());
        let mut first = 0;
        for Window { depth, .. } in &form.bounds {
            let axis = depth.map(|(axis, _)| numbers[axis]);
            let count = axis.map_or(1, |axis| axes[axis].extent);
            windows.push(Bits { first, count, axis, step: depth.map_or(0, |(_, step)| step) });
            first += count;
        }
        let partial = partial.then(|| numbers[last]);
        (first <= BITS).then_some(Self { axes, windows, partial })
    }

    /// Tiles of the depth.
    pub(super) fn rounds(&self) -> usize {
        self.axes.iter().map(|axis| axis.extent).product()
    }

    /// What is added to an operand's address (in elements) where the number along `axis` grows by one and those behind it
    /// begin again.
    pub(super) fn jump(&self, axis: usize, side: usize) -> i64 {
        let behind = self.axes[axis + 1..].iter();
        let back: i64 = behind.map(|inner| (inner.extent as i64 - 1) * inner.steps[side]).sum();
        self.axes[axis].steps[side] - back
    }
}

/// Axes with those made one that follow each other without a gap; and the new number of each old one.
fn joined(axes: impl Iterator<Item = Steps>) -> (Vec<Steps>, Vec<usize>) {
    let (mut all, mut numbers): (Vec<Steps>, Vec<usize>) = (Vec::new(), Vec::new());
    for axis in axes {
        let follows = |outer: &Steps| {
            let ends = |side: usize| axis.steps[side] * axis.extent as i64 == outer.steps[side];
            !outer.counts && !axis.counts && ends(0) && ends(1)
        };
        match all.last_mut() {
            Some(outer) if follows(outer) => {
                *outer = Steps { extent: outer.extent * axis.extent, ..axis };
            }
            _ => all.push(axis),
        }
        numbers.push(all.len() - 1);
    }
    (all, numbers)
}
