//! Which part of a program matters where only the first positions of a dimension count: a program for a bound of the
//! dimension runs with a size up to it, and what lies behind the size is of no use.
//!
//! It is dead code elimination by elements. From what is needed of a program's outputs follows, block by block from the last
//! to the first, which of a block's instances (points of its iterators) store something that is needed, and which
//! elements of its inputs these read ([`Prefix::of`]). A read does not count on the side of a selection that is not taken
//! behind the size, and terms of a reduction behind the size do not count where they change nothing: that follows
//! from what the whole program stores there ([`contents`], the only thing that is assumed of the inputs). Nothing else
//! is known of operators or shapes: a position is `element / stride % extent`, and what arithmetic on indices does not
//! show is needed whole. Terms are left out only by reductions that end with the size exactly in the program's schedule
//! ([`Prefix::exact`]): a loop over several terms at once would read what is not needed.
//!
//! A loop over steps, whose blocks read what earlier steps stored, ends with the size where nobody needs what steps of the size
//! and more store: later steps are for nobody then.
//!
//! So the claim is: where a run leaves out instances that are not needed, and every element that is needed of the inputs
//! is that of a run that leaves out nothing, then so is every needed element of the outputs, whatever the other elements of
//! inputs, and of memory, are. Being not a number counts as equal.
//!
//! A schedule keeps which instances there are and what they read of each other; [`Prefix::limit`] finds the loops of
//! a scheduled program whose iterations hold no instance that is needed, from the bindings of blocks in it.

mod behind;
mod fold;
mod limits;
mod needed;
mod value;

use crate::{Block, BlockId, BufferId, Expr, Program, Range, VarId, simplify};
use std::collections::BTreeMap;

pub use behind::contents;

/// Where the positions of a dimension lie in a dense buffer: its element `o`, counted in row-major order, is at position
/// `o / stride % extent - halo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Positions {
    /// Elements from one position to the next.
    pub stride: usize,
    /// Number of positions: the bound, and the halo.
    pub extent: usize,
    /// How many elements beyond its own position a window reads at the most: the border of a padded axis.
    pub halo: usize,
}

impl Positions {
    /// Those along an axis of a shape; `None` where it has no such axis.
    pub fn along(shape: &[usize], axis: usize) -> Option<Self> {
        let stride = shape.get(axis + 1..)?.iter().product();
        Some(Self { stride, extent: *shape.get(axis)?, halo: 0 })
    }

    /// The position of an element; 0 for those in a halo before the first one.
    pub fn of(self, element: usize) -> usize {
        (element / self.stride.max(1) % self.extent.max(1)).saturating_sub(self.halo)
    }

    /// The same way with the halo that it has where the bound is so large; `None` where the axis has no room for the
    /// bound, or more beside it than the bound itself.
    fn of_bound(self, bound: usize) -> Option<Self> {
        let halo = self.extent.checked_sub(bound).filter(|halo| *halo <= bound)?;
        Some(Self { halo, ..self })
    }

    /// Whether a buffer of so many elements is made of whole turns of the positions.
    fn fit(self, elements: usize) -> bool {
        let turn = self.stride.checked_mul(self.extent);
        turn.is_some_and(|turn| turn > 0 && elements >= turn && elements.is_multiple_of(turn))
    }
}

/// What lies behind the size, where a program is run whole.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Behind {
    /// This number.
    Number(f64),
    /// Zeros; or what is not a number, in lines whose first element is not a number either: what a softmax leaves.
    Weights,
}

/// What is known of the elements of a buffer, at every size, in a run that leaves out nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contents {
    /// Each is the size itself.
    pub is_size: bool,
    /// Each is its position.
    pub numbers: Vec<Positions>,
    /// What those behind the size are.
    pub behind: Vec<(Positions, Behind)>,
}

/// Which elements of a buffer are needed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Need {
    /// None.
    #[default]
    Nothing,
    /// Those at positions before the size, by each of these ways in which positions lie in it.
    Before(Vec<Positions>),
    /// All.
    Everything,
}

impl Need {
    /// What two readers need.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Nothing, need) | (need, Self::Nothing) => need,
            (Self::Everything, _) | (_, Self::Everything) => Self::Everything,
            (Self::Before(mut first), Self::Before(second)) => {
                first.retain(|positions| second.contains(positions));
                Self::before(first)
            }
        }
    }

    /// Those before the size by each of some ways; all where there are none.
    pub fn before(mut ways: Vec<Positions>) -> Self {
        ways.sort_unstable();
        ways.dedup();
        if ways.is_empty() { Self::Everything } else { Self::Before(ways) }
    }

    /// Whether an element is needed at a size.
    pub fn has(&self, element: usize, size: usize) -> bool {
        match self {
            Self::Nothing => false,
            Self::Before(ways) => ways.iter().all(|positions| positions.of(element) < size),
            Self::Everything => true,
        }
    }

    /// Ways in which positions lie in the buffer.
    fn ways(&self) -> &[Positions] {
        if let Self::Before(ways) = self { ways } else { &[] }
    }
}

/// What is needed of a program; see the head of this file.
#[derive(Clone, Debug, PartialEq)]
pub struct Prefix {
    parts: BTreeMap<BlockId, Part>,
    /// Blocks that go in steps, with the loop that may end with the size.
    stepped: BTreeMap<BlockId, Option<VarId>>,
    /// Buffers that the program has in the plain loop order.
    buffers: usize,
    /// What is needed of each of the program's inputs, by number.
    pub inputs: Vec<Need>,
}

/// Which instances of a block are needed: those where none of these indices over its iterators is the size or more.
#[derive(Clone, Debug, Default, PartialEq)]
struct Part {
    /// The buffer that it writes.
    buffer: Option<BufferId>,
    /// Positions that the block stores at.
    stored: Vec<Expr>,
    /// The iterators over positions whose terms count before the size only.
    reduced: Vec<VarId>,
}

impl Prefix {
    /// The blocks whose reductions end with the size.
    pub fn reductions(&self) -> Vec<BlockId> {
        let reduces = self.parts.iter().filter(|(_, part)| !part.reduced.is_empty());
        reduces.map(|(id, _)| *id).collect()
    }

    /// Whether some instances are not needed.
    pub fn leaves_out(&self) -> bool {
        self.parts.values().any(|part| !part.stored.is_empty() || !part.reduced.is_empty())
    }
}

/// The value of an iterator of a block, or of a loop around several blocks.
fn range_in(program: &Program, block: &Block, var: VarId) -> Option<Range> {
    let of_loop = || program.loop_of(var)?.extent.as_integer().map(Range::extent);
    range(block, var).or_else(of_loop)
}

/// The value of an iterator of a block.
fn range(block: &Block, var: VarId) -> Option<Range> {
    let own = block.iterators.iter().find(|own| own.var == var)?;
    i64::try_from(own.extent).ok().map(Range::extent)
}

/// The position at which a block accesses a buffer.
fn position(
    program: &Program,
    block: &Block,
    (buffer, indices): (BufferId, &[Expr]),
    positions: Positions,
) -> Option<Expr> {
    let entry = &program.buffers[buffer];
    if !positions.fit(entry.elements()) || indices.len() != entry.shape.len() {
        return None;
    }
    let element = element(&entry.shape, indices)?;
    let [stride, extent, halo] =
        [positions.stride, positions.extent, positions.halo].map(i64::try_from);
    let position = element.floor_divide(stride.ok()?.into()).modulo(extent.ok()?.into());
    let position = position - Expr::Integer(halo.ok()?);
    Some(simplify(&position, &|var| range_in(program, block, var)))
}

/// The number of an element in row-major order.
fn element(shape: &[usize], indices: &[Expr]) -> Option<Expr> {
    let mut stride: i64 = 1;
    let mut element = Expr::Integer(0);
    for (extent, index) in shape.iter().zip(indices).rev() {
        element = fold::folded(index) * stride + element;
        stride = stride.checked_mul(i64::try_from(*extent).ok()?)?;
    }
    Some(element)
}

/// Ways in which positions may lie in a buffer: along an axis that has room for the bound, or as `others` have them.
fn ways(
    program: &Program,
    buffer: BufferId,
    bound: usize,
    others: impl IntoIterator<Item = Positions>,
) -> Vec<Positions> {
    let entry = &program.buffers[buffer];
    let axes = (0..entry.shape.len()).filter_map(|axis| Positions::along(&entry.shape, axis));
    let mut ways: Vec<Positions> = Vec::new();
    for way in others.into_iter().chain(axes).filter_map(|way| way.of_bound(bound)) {
        if way.fit(entry.elements()) && !ways.contains(&way) {
            ways.push(way);
        }
    }
    ways
}

/// Whether one index is never less than another.
fn at_least(block: &Block, index: &Expr, other: &Expr) -> bool {
    let ranges = |var| range(block, var);
    let difference = simplify(&(index.clone() - other.clone()), &ranges);
    crate::bounds(&difference, &ranges).is_some_and(|range| range.min >= 0)
}

#[cfg(test)]
mod tests;
