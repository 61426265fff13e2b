//! `reverse_compute_at`: a consumer moves below a loop around its producer.
//!
//! In each iteration of the loop it covers just the box of elements that the producer computed there:
//! one new loop per iterator, in their order and kept even where the extent is 1. The old loops go.
//! The new nest stands behind the last statement of the loop's body that it reads from. A temporary
//! that only lives below the loop then shrinks to the box.
//!
//! Legal: what the block reads below the loop is read at one iterator per axis (apart from an
//! offset) or at two that are the digits of the index, `part * width + rest`, where the loop takes one
//! part; it is reduced to the end in an iteration of the loop, and every point of the block lies in
//! some box; its reduction iterators are not cut. Where loops are around both it and the target, its
//! points in one iteration of them are a box already; what it reads may cut only what they leave whole.
//! Buys: the producer's elements are used while they are in cache or registers.

use crate::compact::compact;
use crate::edit::{
    below, block_path, detach, insert, loop_path, must_hold, nest, realize_at, reduces_over,
};
use crate::error::{Outcome, Refusal, loop_name, refuse_block};
use crate::region::{self, Span};
use hone_tensor::{
    Block, BlockId, BufferId, Domain, Expr, IteratorKind, Program, Realize, Statement, VarId,
};

pub(crate) fn apply(program: &mut Program, block: BlockId, target: VarId) -> Outcome<()> {
    block_path(program, block)?;
    let path = loop_path(program, target)?;
    if below(&path, &block_path(program, block)?) {
        return refuse_block(
            program,
            block,
            format!("it is below {} already", loop_name(program, target)),
        );
    }
    if realize_at(program, block)?.predicate.is_some() {
        return refuse_block(program, block, "it runs under a condition");
    }
    let own = own_box(program, block, &path)?;
    let producers = producers_below(program, block, &path);
    if producers.is_empty() {
        let reason =
            format!("it reads nothing that is computed below {}", loop_name(program, target));
        return refuse_block(program, block, reason);
    }
    let mut boxes = Vec::new();
    for buffer in &producers {
        complete(program, block, *buffer, &path, target)?;
        boxes.push(box_of(program, block, *buffer, path.len())?);
    }
    let first = boxes.swap_remove(0);
    if boxes.iter().any(|other| *other != first) {
        return refuse_block(program, block, "what it reads below the loop covers different boxes");
    }
    let parts = joined(program, block, own, first)?;
    place(program, block, target, parts)?;
    producers.into_iter().for_each(|buffer| compact(program, buffer, target));
    must_hold(program, block)
}

/// For each iterator of the block its values in one iteration of the loops that are around both it and the target: its
/// other points are visited in other iterations.
fn own_box(program: &Program, block: BlockId, path: &[usize]) -> Outcome<Vec<Part>> {
    let own_path = block_path(program, block)?;
    let realize = realize_at(program, block)?;
    let shared = path.iter().zip(&own_path).take_while(|(a, b)| a == b).count();
    let around = program.enclosing(&own_path);
    let (shared, inner) = around.split_at(shared.min(around.len()));
    let iterators = &program.blocks[block].iterators;
    let mentions = |own: &VarId| {
        let mut uses = realize.bindings.iter().chain(program.blocks[block].expressions());
        uses.any(|expr| expr.mentions(*own))
    };
    let Some(first) = shared.iter().find(|own| mentions(&own.var)) else {
        let whole = |extent| (Expr::Integer(0), Expr::from(extent));
        return Ok(iterators.iter().map(|own| whole(own.extent)).collect());
    };
    let is_fixed = |expr: &Expr| !inner.iter().any(|own| expr.mentions(own.var));
    // A loop for each iterator, or one value of it.
    let values = |binding: &Expr| {
        let fed = inner.iter().find(|own| binding.mentions(own.var));
        let Some(own) = fed else { return Some((binding.clone(), Expr::Integer(1), None)) };
        let start = Domain::default().simplify(&(binding.clone() - Expr::Var(own.var)));
        let is_box = is_fixed(&start) && is_fixed(&own.extent);
        is_box.then(|| (start, own.extent.clone(), Some(own.var)))
    };
    let found: Option<Vec<_>> = realize.bindings.iter().map(values).collect();
    let once = |found: &Vec<(Expr, Expr, Option<VarId>)>| {
        let feeds = |var: VarId| found.iter().filter(|(.., own)| *own == Some(var)).count();
        inner.iter().all(|own| feeds(own.var) == 1)
    };
    match found.filter(once) {
        Some(found) => Ok(found.into_iter().map(|(start, extent, _)| (start, extent)).collect()),
        None => {
            let name = loop_name(program, first.var);
            let reason = format!("it is below {name}, which is around that loop too, in no box");
            refuse_block(program, block, reason)
        }
    }
}

/// The block's values in one iteration of the target: those that its producers have there, and else its own.
fn joined(
    program: &Program,
    block: BlockId,
    own: Vec<Part>,
    produced: Vec<Option<Part>>,
) -> Outcome<Vec<Part>> {
    let iterators = &program.blocks[block].iterators;
    let mut result = Vec::new();
    for ((own, produced), iterator) in own.into_iter().zip(produced).zip(iterators) {
        let whole = own == (Expr::Integer(0), Expr::from(iterator.extent));
        match produced {
            Some(produced) if whole => result.push(produced),
            None => result.push(own),
            Some(_) => {
                let reason = format!("loops around both cut {} already", iterator.var);
                return refuse_block(program, block, reason);
            }
        }
    }
    Ok(result)
}

/// The buffers that the block reads and that are written below the loop at `path`.
fn producers_below(program: &Program, block: BlockId, path: &[usize]) -> Vec<BufferId> {
    let written_below = |buffer: &BufferId| {
        let mut writers = program.writers(*buffer).into_iter();
        writers.any(|writer| program.find_block(writer).is_some_and(|own| below(path, &own)))
    };
    let buffers = program.buffers.ids();
    buffers.filter(|own| program.blocks[block].reads(*own)).filter(written_below).collect()
}

/// Whether one iteration of the loop computes its elements of `buffer` to the end.
fn complete(
    program: &Program,
    block: BlockId,
    buffer: BufferId,
    path: &[usize],
    target: VarId,
) -> Outcome<()> {
    let around: Vec<VarId> =
        program.enclosing(path).into_iter().map(|own| own.var).chain([target]).collect();
    for writer in program.writers(buffer) {
        let (own, name) = (&program.blocks[writer], &program.blocks[writer].name);
        if !below(path, &block_path(program, writer)?) {
            let reason =
                format!("'{name}' writes what it reads outside {}", loop_name(program, target));
            return refuse_block(program, block, reason);
        }
        let realize = realize_at(program, writer)?;
        if let Some(var) = around.iter().find(|var| reduces_over(own, &realize, **var)) {
            let reason =
                format!("'{name}' is still being reduced over {}", loop_name(program, *var));
            return refuse_block(program, block, reason);
        }
    }
    Ok(())
}

/// The first value of an iterator in one iteration of the loop, and the number of its values.
type Part = (Expr, Expr);

/// For each iterator of the block its values in one iteration, `None` where it is whole.
fn box_of(
    program: &Program,
    block: BlockId,
    buffer: BufferId,
    depth: usize,
) -> Outcome<Vec<Option<Part>>> {
    let own = &program.blocks[block];
    let refuse =
        |reason: String| Refusal { object: crate::error::block_name(program, block), reason };
    let name = &program.buffers[buffer].name;
    let mut loads = own.loads(buffer).into_iter();
    let indices = loads.next().unwrap_or_default().to_vec();
    if loads.any(|other| other != indices) {
        return Err(refuse(format!("it reads '{name}' at several places")));
    }
    let spans = region::of_stores(program, buffer, &program.writers(buffer), depth);
    let mut result: Vec<Option<Part>> = vec![None; own.iterators.len()];
    for (axis, (index, span)) in indices.iter().zip(spans).enumerate() {
        let whole = program.buffers[buffer].shape[axis];
        let mentioned: Vec<usize> = (0..own.iterators.len())
            .filter(|place| index.mentions(own.iterators[*place].var))
            .collect();
        if span.extent() == Expr::from(whole) {
            continue;
        }
        let part = match mentioned[..] {
            [place] => alone(own, index, place, &span).map(|part| (place, part)),
            [first, second] => digits(own, index, [first, second], &span),
            _ => None,
        };
        let Some((place, part)) = part.filter(|(place, _)| result[*place].is_none()) else {
            return Err(refuse(format!(
                "its index of '{name}' on axis {axis} is neither one iterator nor digits"
            )));
        };
        let iterator = &own.iterators[place];
        if iterator.kind == IteratorKind::Reduction {
            return Err(refuse(format!("its reduction over {} would be cut", iterator.var)));
        }
        // A point whose element no iteration computes would never be visited.
        let range = crate::edit::block_domain(own, &Domain::default()).bounds(index);
        if range.is_some_and(|range| range.min < 0 || range.max >= whole as i64) {
            return Err(refuse(format!("it reads beyond '{name}' on axis {axis}")));
        }
        result[place] = Some(part);
    }
    Ok(result)
}

/// The values of the iterator at `place`, which is the index apart from an offset.
fn alone(own: &Block, index: &Expr, place: usize, span: &Span) -> Option<Part> {
    let iterator = &own.iterators[place];
    let offset = Domain::default().simplify(&(index.clone() - Expr::Var(iterator.var)));
    let moved = span.moved(&(Expr::Integer(0) - offset.clone()), iterator.extent);
    (!offset.mentions(iterator.var)).then(|| (moved.minimum(), moved.extent()))
}

/// The only value of the high digit, and which of the two iterators it is: the index is
/// `high * width + low` with `low` below `width`, and the span takes `low` whole for one `high`.
fn digits(own: &Block, index: &Expr, pair: [usize; 2], span: &Span) -> Option<(usize, Part)> {
    let [first, second] = pair;
    [(first, second), (second, first)].into_iter().find_map(|(high, low)| {
        let width = Expr::from(own.iterators[low].extent);
        let [high_var, low_var] = [high, low].map(|place| Expr::Var(own.iterators[place].var));
        let domain = crate::edit::block_domain(own, &Domain::default());
        let rest = index.clone() - high_var * width.clone() - low_var;
        let value = span.divided(&width)?;
        let is_digits = domain.simplify(&rest) == Expr::Integer(0) && span.extent() == width;
        is_digits.then_some((high, (value, Expr::Integer(1))))
    })
}

fn place(program: &mut Program, block: BlockId, target: VarId, parts: Vec<Part>) -> Outcome<()> {
    let (mut loops, mut bindings) = (Vec::new(), Vec::new());
    for (iterator, (start, extent)) in program.blocks[block].iterators.clone().iter().zip(parts) {
        let var = program.add_var(format!("{}_loop", program.vars[iterator.var].name));
        loops.push((var, extent));
        bindings.push(start + Expr::Var(var));
    }
    detach(program, block);
    let path = loop_path(program, target)?;
    let mut domain = program.domain_at(&path);
    if let Some(own) = program.loop_of(target) {
        domain.push(own.var, &own.extent);
    }
    loops.iter().for_each(|(var, extent)| domain.push(*var, extent));
    let bindings = bindings.iter().map(|binding| domain.simplify(binding)).collect();
    let realize = Realize { block, bindings, predicate: None };
    let behind = last_producer(program, &path, block);
    insert(program, &path, behind, nest(loops, Statement::Realize(realize)));
    Ok(())
}

/// The position behind the last statement of the body at `path` that computes what `block` reads.
fn last_producer(program: &Program, path: &[usize], block: BlockId) -> usize {
    let own = &program.blocks[block];
    let mut producers = program.blocks_in_order();
    producers.retain(|other| own.reads(program.blocks[*other].buffer));
    let places = producers.into_iter().filter_map(|producer| program.find_block(producer));
    let places = places.filter(|place| below(path, place));
    places.filter_map(|place| place.get(path.len()).copied()).max().map_or(0, |place| place + 1)
}
