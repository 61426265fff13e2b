//! `Reshape` and `Flatten` of operands of which a run decides two extents, and to shapes that have two such extents.
//!
//! Extents are products of a number and of counts, so that which extent of the target is made of which counts follows from
//! the products of both shapes being the same. Where an extent is one that the run brings, it is taken to be made of the
//! first counts that there is as much room for, and the run is held to that.

use super::builder::{Builder, Operand};
use super::node::Node;
use super::shorthands::Step;
use super::sized::Part;
use crate::NodeError;
use hone_ops::BinaryFunction as B;
use hone_types::DataType;

/// Counts of a shape, at most.
const MOST_COUNTS: usize = 4;

/// An extent: a number times counts that a run decides, each with the most that it may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Product {
    /// The number.
    pub factor: usize,
    /// The counts, and for how many there is room.
    pub counts: Vec<(Operand, usize)>,
}

impl Product {
    fn number(factor: usize) -> Self {
        Self { factor, counts: Vec::new() }
    }

    fn of(all: &[Self]) -> Self {
        all.iter().fold(Self::number(1), |mut product, own| {
            product.factor = product.factor.saturating_mul(own.factor);
            product.counts.extend(&own.counts);
            product
        })
    }

    /// The most that it may be.
    fn room(&self) -> usize {
        self.counts.iter().fold(self.factor, |all, own| all.saturating_mul(own.1))
    }
}

/// What is known of an extent of the target.
enum Extent {
    Known(Product),
    /// A run brings it, and it is at most so much.
    Decided(usize),
    /// What the others leave.
    Rest,
}

impl Builder {
    /// What a count is a product of.
    pub(super) fn product_of(&self, count: Operand) -> Option<Product> {
        if let Some(known) = self.products.get(&count) {
            return Some(known.clone());
        }
        let most = self.ranges(count)?.first()?.most;
        let room = usize::try_from(most).ok()?;
        Some(Product { factor: 1, counts: vec![(count, room)] })
    }

    /// The extents of an operand, those that a run decides as products of counts.
    fn products(&self, operand: Operand, parts: &[Part]) -> Vec<Product> {
        let shape = self.shape(operand).into_iter().enumerate();
        let own = |(axis, extent): (usize, usize)| {
            let Some(part) = parts.iter().find(|own| own.axis == axis) else {
                return Product::number(extent);
            };
            let known = self.products.get(&part.count).filter(|own| own.room() == extent);
            let alone = || Product { factor: 1, counts: vec![(part.count, extent)] };
            known.cloned().unwrap_or_else(alone)
        };
        shape.map(own).collect()
    }

    /// What an extent is in a run, as an `i64` scalar.
    fn extent(&mut self, product: &Product) -> Step {
        let mut all: Option<Operand> = None;
        for (count, _) in &product.counts {
            let count = self.single(*count)?;
            all = Some(match all {
                None => count,
                Some(all) => self.multiply(all, count)?,
            });
        }
        match (all, product.factor) {
            (None, factor) => self.scalar(DataType::I64, factor as f64),
            (Some(all), 1) => Ok(all),
            (Some(all), factor) => self.with_scalar(B::Multiply, all, factor as f64),
        }
    }
}

/// `Reshape` or `Flatten` where a part of the operand is there along two axes, or a run decides two extents of the target;
/// `None` of others.
///
/// # Errors
/// What an operator refuses.
pub(super) fn reshaped(
    b: &mut Builder,
    node: &mut Node,
    parts: &[(usize, Part)],
) -> Result<Option<Operand>, NodeError> {
    let x = node.input(0)?;
    if parts.iter().any(|(place, _)| *place > 0) || b.shape(x).contains(&0) {
        return Ok(None);
    }
    let parts: Vec<Part> = parts.iter().map(|(_, part)| *part).collect();
    let from = b.products(x, &parts);
    let Some(target) = target(b, node, &from)? else { return Ok(None) };
    let decided = target.iter().filter(|own| matches!(own, Extent::Decided(_))).count();
    if b.narrow_type(x).is_some() || parts.len() < 2 && decided < 2 {
        return Ok(None);
    }
    let Some(to) = solved(&target, &Product::of(&from)) else { return Ok(None) };
    let mut kept = Vec::new();
    for (axis, extent) in to.iter().enumerate().filter(|(_, own)| !own.counts.is_empty()) {
        let same = parts.iter().find(|part| from[part.axis] == *extent);
        let count = match same {
            Some(part) => part.count,
            None => {
                let count = b.extent(extent)?;
                b.note_count(count, extent.room());
                count
            }
        };
        b.products.insert(count, extent.clone());
        kept.push(Part { axis, count });
    }
    if kept.len() > 2 {
        return Ok(None);
    }
    hold_to_target(b, node, &target, &kept)?;
    let made = match keeps_places(&from, &to) {
        true => b.reshape(x, to.iter().map(Product::room).collect())?,
        false => moved(b, x, &from, &to)?,
    };
    b.set_parts(made, &kept);
    Ok(Some(made))
}

/// The extents that a node asks for; `None` where they are not bounded.
fn target(
    b: &Builder,
    node: &mut Node,
    from: &[Product],
) -> Result<Option<Vec<Extent>>, NodeError> {
    if node.operator == "Flatten" {
        let rank = from.len() as i64;
        let along = node.int_or("axis", 1)?;
        let along = (if along < 0 { along + rank } else { along }).clamp(0, rank) as usize;
        let (before, behind) = from.split_at(along);
        return Ok(Some([before, behind].map(|own| Extent::Known(Product::of(own))).into()));
    }
    let keeps_zero = node.flag("allowzero", false)?;
    let ranges = node.optional(1).and_then(|list| b.ranges(list));
    let Some(ranges) = ranges else { return Ok(None) };
    let extent = |(place, own): (usize, &super::ranges::Range)| match own.only() {
        Some(-1) => Some(Extent::Rest),
        Some(0) if keeps_zero => None,
        Some(0) => from.get(place).cloned().map(Extent::Known),
        Some(known) => usize::try_from(known).ok().map(|own| Extent::Known(Product::number(own))),
        None if own.least < 0 => None,
        None => usize::try_from(own.most).ok().map(Extent::Decided),
    };
    Ok(ranges.iter().enumerate().map(extent).collect())
}

/// The extents of the target as products, such that all of them together are `total`.
fn solved(target: &[Extent], total: &Product) -> Option<Vec<Product>> {
    let mut left = total.counts.clone();
    for extent in target {
        let Extent::Known(known) = extent else { continue };
        for count in &known.counts {
            left.remove(left.iter().position(|own| own == count)?);
        }
    }
    if left.len() > MOST_COUNTS {
        return None;
    }
    chosen(target, total, &left, Vec::new())
}

/// The extents from `found` on, made of the counts that are `left`.
fn chosen(
    target: &[Extent],
    total: &Product,
    left: &[(Operand, usize)],
    found: Vec<Product>,
) -> Option<Vec<Product>> {
    let with = |left: &[(Operand, usize)], own: Product| {
        chosen(target, total, left, [&found[..], &[own]].concat())
    };
    match target.get(found.len()) {
        None => completed(target, total, left, found),
        Some(Extent::Known(known)) => with(left, known.clone()),
        // Its counts and number are those that the others leave.
        Some(Extent::Rest) => with(left, Product::number(1)),
        Some(Extent::Decided(most)) => {
            let mut sets: Vec<usize> = (1..1 << left.len()).collect();
            sets.sort_by_key(|set| set.count_ones());
            sets.into_iter().find_map(|set| {
                let (own, rest): (Vec<_>, Vec<_>) =
                    left.iter().enumerate().partition(|(place, _)| set >> place & 1 == 1);
                let [own, rest] = [own, rest]
                    .map(|all| all.into_iter().map(|(_, count)| *count).collect::<Vec<_>>());
                let room = Product { factor: 1, counts: own.clone() }.room();
                let factor = most.checked_div(room).filter(|own| own * room == *most)?;
                (factor > 0).then(|| with(&rest, Product { factor, counts: own }))?
            })
        }
    }
}

fn completed(
    target: &[Extent],
    total: &Product,
    left: &[(Operand, usize)],
    mut found: Vec<Product>,
) -> Option<Vec<Product>> {
    let factor = Product::of(&found).factor;
    let rest = total.factor.checked_div(factor).filter(|rest| rest * factor == total.factor)?;
    let mut open = found
        .iter_mut()
        .zip(target)
        .filter(|(_, own)| matches!(own, Extent::Rest))
        .map(|own| own.0);
    match (open.next(), open.next()) {
        (Some(open), None) => *open = Product { factor: rest, counts: left.to_vec() },
        (None, _) if rest == 1 && left.is_empty() => {}
        _ => return None,
    }
    Some(found)
}

/// Holds a run to the extents that it brings.
fn hold_to_target(
    b: &mut Builder,
    node: &Node,
    target: &[Extent],
    kept: &[Part],
) -> Result<(), NodeError> {
    for (axis, _) in target.iter().enumerate().filter(|(_, own)| matches!(own, Extent::Decided(_)))
    {
        let Some(part) = kept.iter().find(|own| own.axis == axis) else { continue };
        let list = b.reshape(node.input(1)?, vec![target.len()])?;
        let wanted = b.narrow(list, 0, axis, 1)?;
        let wanted = b.single(wanted)?;
        let count = b.single(part.count)?;
        let same = b.binary(B::Equal, wanted, count)?;
        b.require(same, "a shape does not fit the elements that are there")?;
    }
    Ok(())
}

/// Whether what is there has the same places among all the room in both shapes: each extent that a run decides lies behind as
/// much, and is made of the same counts.
fn keeps_places(from: &[Product], to: &[Product]) -> bool {
    to.iter().enumerate().filter(|(_, own)| !own.counts.is_empty()).all(|(axis, extent)| {
        let before = Product::of(&to[..axis]);
        from.iter().enumerate().any(|(place, own)| {
            own.counts == extent.counts && Product::of(&from[..place]) == before
        })
    })
}

/// What is there of `x`, moved to its places among the room of another shape: by its number among what is there.
fn moved(b: &mut Builder, x: Operand, from: &[Product], to: &[Product]) -> Step {
    let last = |own: &[Product]| own.iter().rposition(|own| !own.counts.is_empty()).unwrap_or(0);
    let room = |own: &[Product]| own.iter().map(Product::room).product::<usize>();
    let behind = |own: &[Product]| room(&own[last(own) + 1..]);
    // Elements that stay beside one another.
    let inner = common_divisor(behind(from), behind(to));
    let outer = |own: &[Product]| {
        let rest = Product::number(behind(own) / inner.max(1));
        [&own[..=last(own)], &[rest]].concat()
    };
    let (from, outer_to) = (outer(from), outer(to));
    let (rows_from, rows) = (room(&from), room(&outer_to));
    // The number of each row of the result among those that are there.
    let mut number: Option<Operand> = None;
    for (axis, extent) in outer_to.iter().enumerate() {
        let stride = room(&outer_to[axis + 1..]);
        let index = |row: usize| (row / stride % extent.room().max(1)) as i64;
        let index = b.integers(&(0..rows).map(index).collect::<Vec<_>>())?;
        number = Some(match number {
            None => index,
            Some(number) => {
                let extent = b.extent(extent)?;
                let moved = b.multiply(number, extent)?;
                b.add(moved, index)?
            }
        });
    }
    let Some(mut rest) = number else { return Err(NodeError::invalid("a shape has no axes")) };
    let (mut place, mut stride) = (b.scalar(DataType::I64, 0.0)?, 1usize);
    for (axis, extent) in from.iter().enumerate().rev() {
        let extent_of_run = b.extent(extent)?;
        let extent_of_run = b.with_scalar(B::Maximum, extent_of_run, 1.0)?;
        let outer = if axis == 0 { None } else { Some(b.divide(rest, extent_of_run)?) };
        let index = match outer {
            None => rest,
            Some(outer) => {
                let gone = b.multiply(outer, extent_of_run)?;
                b.subtract(rest, gone)?
            }
        };
        let index = b.with_scalar(B::Multiply, index, stride as f64)?;
        place = b.add(place, index)?;
        stride *= extent.room();
        rest = outer.unwrap_or(rest);
    }
    let place = b.with_scalar(B::Minimum, place, rows_from.saturating_sub(1) as f64)?;
    let flat = b.reshape(x, vec![rows_from, inner])?;
    let found = b.apply(hone_ops::Gather { axis: 0 }, &[flat, place])?;
    b.reshape(found, to.iter().map(Product::room).collect())
}

fn common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hone_types::Id as _;

    /// A factor of counts by number, of which there is room for 10 of the first and 20 of the second.
    fn product(factor: usize, counts: &[usize]) -> Product {
        let count = |number: &usize| (Operand::from_index(*number), 10 * (number + 1));
        Product { factor, counts: counts.iter().map(count).collect() }
    }

    #[test]
    fn what_a_run_brings_is_made_of_the_counts_that_there_is_as_much_room_for() {
        let total = product(4, &[0, 1]);
        let known = |factor| Extent::Known(Product::number(factor));
        let solve = |target: &[Extent]| solved(target, &total);
        let rows = [product(1, &[0]), product(4, &[1])];
        assert_eq!(solve(&[Extent::Decided(10), Extent::Rest]), Some(rows.to_vec()));
        // 20 may be twice the first count, but the other one is then not what is left.
        let columns = [product(1, &[1]), product(1, &[0]), product(4, &[])];
        let asked = [Extent::Decided(20), Extent::Decided(10), known(4)];
        assert_eq!(solve(&asked), Some(columns.to_vec()));
        assert_eq!(
            solve(&[Extent::Rest, known(4)]),
            Some(vec![product(1, &[0, 1]), product(4, &[])])
        );
        assert_eq!(solve(&[Extent::Rest, known(3)]), None);
        assert_eq!(solve(&[Extent::Rest, Extent::Rest]), None);
        assert_eq!(solve(&[Extent::Decided(11), Extent::Rest]), None);
    }

    #[test]
    fn places_are_kept_behind_as_much_of_the_same_counts() {
        let from = [product(1, &[0]), product(1, &[1]), product(4, &[])];
        assert!(keeps_places(&from, &[product(1, &[0]), product(4, &[1])]));
        assert!(keeps_places(&from, &[product(1, &[0]), product(2, &[1]), product(2, &[])]));
        assert!(!keeps_places(&from, &[product(1, &[0, 1]), product(4, &[])]));
        assert!(!keeps_places(&from, &[product(1, &[1]), product(1, &[0]), product(4, &[])]));
    }
}
