//! Operations that move elements: axes in another order, divided or joined, repeated, cut.

use super::{Added, Step};
use crate::dynamic_padding::bounded::{Along, Behind, Bounded};
use crate::dynamic_padding::length::Length;
use hone_graph::ValueId;
use hone_ops::{Gather, Reshape, Slice, Tile, Transpose};

/// Axes in another order.
pub(super) fn transpose(new: &mut Bounded, step: &mut Step<'_>) -> Added {
    let operator = step.node.operation.downcast::<Transpose>().ok_or("is no transposition")?;
    let first = step.input(0)?;
    for (axis, from) in operator.permutation.iter().enumerate() {
        if let Some(along) = new.along_axis(first, *from) {
            step.behind(axis, along.behind);
        }
    }
    step.copy(new)
}

/// Axes divided and joined: between two positions of the dimension, or two blocks of as many of them, and before and behind it,
/// there are as many elements as before.
pub(super) fn reshape(new: &mut Bounded, step: &mut Step<'_>) -> Added {
    let operator = step.node.operation.downcast::<Reshape>().ok_or("is no reshape")?;
    let first = step.input(0)?;
    let shape = new.graph().tensor_type(first).shape.clone();
    let entries = new.along(first).to_vec();
    let results = step.axes.first_mut().ok_or("has no result")?;
    let refuse = || "joins the dimension with another axis, or divides it".to_owned();
    if entries.len() != results.len() {
        return Err(refuse());
    }
    let factors = entries.iter().zip(results.iter()).map(factors);
    let factors: Vec<[usize; 2]> = factors.collect::<Option<_>>().ok_or_else(refuse)?;
    let outers: Vec<usize> = entries.iter().map(|along| along.outer).collect();
    let before = |index: usize| (entries[index].axis, factors[index][0]);
    let behind = |index: usize| (results[index].axis, factors[index][1]);
    let between = between(&shape, &outers, &before);
    let found = divide(&between, &operator.shape, &behind).ok_or_else(refuse)?;
    for ((along, result), outer) in entries.iter().zip(results).zip(found) {
        result.outer = outer;
        result.behind = along.behind;
    }
    step.copy(new)
}

/// How many elements of an axis before and after a reshape are one step of what both of them count.
fn factors((before, after): (&Along, &Along)) -> Option<[usize; 2]> {
    let [first, second] = [before, after].map(|along| along.length.in_blocks().0);
    let of = |steps: Length| {
        let factor = |along: &Along| usize::try_from(along.length.factor_of(steps)?).ok();
        Some([factor(before)?, factor(after)?])
    };
    of(first).or_else(|| of(second)).or_else(|| of(before.length)).or_else(|| of(after.length))
}

/// Elements before, between and behind the dimension, in the order in which it appears, along axes with a factor.
fn between(
    shape: &[usize],
    outers: &[usize],
    axis: &dyn Fn(usize) -> (usize, usize),
) -> Vec<usize> {
    let (mut begin, mut inner) = (0, 1);
    let mut elements = Vec::with_capacity(outers.len() + 1);
    for (index, outer) in outers.iter().enumerate() {
        let (at, factor) = axis(index);
        elements.push(inner * shape[begin..at].iter().product::<usize>() * outer);
        (begin, inner) = (at + 1, factor / (*outer).max(1));
    }
    elements.push(inner * shape[begin..].iter().product::<usize>());
    elements
}

/// What is before the dimension in each axis, where there are so many elements between its axes; `None` where there is
/// no answer.
fn divide(
    between: &[usize],
    shape: &[usize],
    axis: &dyn Fn(usize) -> (usize, usize),
) -> Option<Vec<usize>> {
    let (last, others) = between.split_last()?;
    let (mut begin, mut inner) = (0, 1);
    let mut outers = Vec::with_capacity(others.len());
    for (index, elements) in others.iter().enumerate() {
        let (at, factor) = axis(index);
        let before = inner * shape[begin..at].iter().product::<usize>();
        let outer = elements.checked_div(before).unwrap_or(0);
        if outer == 0 || outer * before != *elements || factor % outer != 0 {
            return None;
        }
        outers.push(outer);
        (begin, inner) = (at + 1, factor / outer);
    }
    (*last == inner * shape[begin..].iter().product::<usize>()).then_some(outers)
}

/// Repetition along axes of one element; others stay.
pub(super) fn expand(new: &mut Bounded, step: &mut Step<'_>) -> Added {
    let first = step.input(0)?;
    let shape = &new.graph().tensor_type(first).shape;
    let rank = step.results.first().map_or(0, |result| result.rank());
    let added = rank - shape.len().min(rank);
    for axis in 0..rank {
        let entry = axis.checked_sub(added).and_then(|axis| new.along_axis(first, axis));
        let extent = axis.checked_sub(added).and_then(|axis| shape.get(axis)).copied();
        match (entry, step.result(axis)) {
            (Some(entry), Some(result)) if entry.length == result.length => {
                let tile = step.node.operation.downcast::<Tile>();
                if tile.is_some_and(|tile| tile.repeats.get(axis) != Some(&1)) {
                    return Err("repeats the dimension".to_owned());
                }
                step.behind(axis, entry.behind);
            }
            // All positions are equal.
            (None, Some(_)) if extent.unwrap_or(1) == 1 => step.is_alone(axis),
            (None, None) => {}
            _ => return Err("repeats the dimension".to_owned()),
        }
    }
    step.copy(new)
}

/// A triangle of matrices: elements are kept by their positions, which stay.
pub(super) fn trilu(new: &mut Bounded, step: &mut Step<'_>) -> Added {
    for along in new.along(step.input(0)?) {
        if along.behind == Behind::Number(0.0) {
            step.behind(along.axis, along.behind);
        }
    }
    step.copy(new)
}

/// Where an axis is cut, in the graphs at all sizes.
struct Cut {
    axis: usize,
    /// First element, at each size, the bound first.
    starts: Vec<usize>,
    step: i64,
    extent: usize,
}

/// Elements of a range: of all axes but the dimension anything, and of the dimension what is at the same position from its
/// beginning, or a fixed number from its end.
pub(super) fn slice(new: &mut Bounded, step: &mut Step<'_>) -> Added {
    let operator = step.node.operation.downcast::<Slice>().ok_or("is no slice")?;
    let mut first = step.input(0)?;
    let mut whole = operator.clone();
    let mut others = Vec::with_capacity(step.others.len());
    for other in &step.others {
        let other = other.operation.downcast::<Slice>().ok_or("is no slice at another size")?;
        if other.steps != operator.steps || other.starts.len() != operator.starts.len() {
            return Err("takes other elements at another size".to_owned());
        }
        others.push(other);
    }
    for axis in 0..operator.starts.len() {
        let starts = std::iter::once(operator).chain(others.iter().copied());
        let cut = Cut {
            axis,
            starts: starts.map(|slice| slice.starts[axis]).collect(),
            step: operator.steps[axis],
            extent: operator.extents[axis],
        };
        let entry = new.along_axis(first, axis);
        let is_fixed = cut.starts.iter().all(|start| *start == cut.starts[0]);
        match (entry, step.result(axis)) {
            (None, _) if is_fixed => {}
            (None, None) => {
                first = cut.of_table(new, step, first)?;
                (whole.starts[axis], whole.steps[axis]) = (0, 1);
            }
            (Some(entry), Some(result)) if is_fixed => {
                if cut.step < 1 && cut.extent > 1 {
                    return Err("takes positions along the dimension from others".to_owned());
                }
                // What is behind the size stays there, where nothing before it is cut off at the end.
                let start = i64::try_from(cut.starts[0]).map_err(|error| error.to_string())?;
                if cut.step == 1 && result.length.plus(start) == Some(entry.length) {
                    step.behind(axis, entry.behind);
                }
            }
            (Some(entry), None) if cut.is_first(new.least(), entry) => {}
            (Some(entry), None) => {
                first = cut.at_end(new, step, (first, entry))?;
                (whole.starts[axis], whole.steps[axis]) = (0, 1);
            }
            _ => return Err("takes positions along the dimension from others".to_owned()),
        }
    }
    Ok(vec![new.add(&step.node.name, whole, &[first])?])
}

impl Cut {
    /// Whether the same positions are taken at every size, and are there at the smallest.
    fn is_first(&self, least: usize, entry: Along) -> bool {
        let last = self.extent.saturating_sub(1) as i64 * self.step + self.starts[0] as i64;
        let most = self.starts[0].max(usize::try_from(last).unwrap_or(usize::MAX));
        self.starts.iter().all(|start| *start == self.starts[0])
            && i64::try_from(most).is_ok_and(|most| most < entry.length.at(least))
    }

    /// The elements at a fixed distance from the end, by their positions computed from the size.
    fn at_end(
        &self,
        new: &mut Bounded,
        step: &Step<'_>,
        (value, entry): (ValueId, Along),
    ) -> Result<ValueId, String> {
        let offsets = self.offsets(new, step, entry.length)?;
        if offsets.iter().any(|offset| *offset >= 0) {
            return Err("takes positions along the dimension from others".to_owned());
        }
        self.taken(new, step, (value, entry.length, offsets))
    }

    /// Elements of an axis that is not the dimension, from one on that goes with the size: such as rows of a table.
    fn of_table(
        &self,
        new: &mut Bounded,
        step: &Step<'_>,
        value: ValueId,
    ) -> Result<ValueId, String> {
        let whole = new.whole();
        let offsets = self.offsets(new, step, whole)?;
        let extent = new.graph().tensor_type(value).shape[self.axis] as i64;
        if offsets.iter().any(|offset| whole.at(new.bound()) + offset >= extent) {
            return Err("takes positions that are not there at every size".to_owned());
        }
        self.taken(new, step, (value, whole, offsets))
    }

    /// How much more than a length the elements are; at the smallest size all of them are there.
    fn offsets(&self, new: &Bounded, step: &Step<'_>, length: Length) -> Result<Vec<i64>, String> {
        let refuse = || "takes positions along the dimension from others".to_owned();
        let offset = self.starts[0] as i64 - length.at(new.bound());
        let offsets: Vec<i64> =
            (0..self.extent as i64).map(|position| offset + position * self.step).collect();
        let from = -length.at(new.least());
        if offsets.iter().any(|offset| *offset < from) {
            return Err(refuse());
        }
        let mut starts = self.starts.iter().zip(&step.sizes);
        match starts.all(|(start, size)| *start as i64 == length.at(*size) + offset) {
            true => Ok(offsets),
            false => Err(refuse()),
        }
    }

    fn taken(
        &self,
        new: &mut Bounded,
        step: &Step<'_>,
        (value, length, offsets): (ValueId, Length, Vec<i64>),
    ) -> Result<ValueId, String> {
        let shape = [offsets.len()];
        let offsets = offsets.iter().map(|offset| *offset as f64).collect();
        let indices = new.offset_from(length, &shape, offsets)?;
        let gather = Gather { axis: self.axis };
        let result = new.add(&step.node.name, gather, &[value, indices])?;
        let kept = new.along(value).iter().copied().filter(|along| along.axis != self.axis);
        let kept = kept.collect();
        new.set(result, kept);
        Ok(result)
    }
}
