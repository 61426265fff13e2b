//! `reverse_compute_at`: a consumer moves below a loop around its producer.
//!
//! In each iteration of the loop it covers just the box of elements that the producer computed there:
//! one new loop per iterator, in their order and kept even where the extent is 1. The old loops go.
//! The new nest stands behind the last statement of the loop's body that it reads from. A temporary
//! that only lives below the loop then shrinks to the box.
//!
//! Legal: what the block reads below the loop is read at one iterator per axis (apart from an
//! offset), is reduced to the end in an iteration of the loop, and every point of the block lies in
//! some box; its reduction iterators are not cut. A block that is below a loop around the target
//! already cannot move further in.
//! Buys: the producer's elements are used while they are in cache or registers.

use crate::compact::compact;
use crate::edit::{
    below, block_path, detach, insert, loop_path, must_hold, nest, realize_at, reduces_over,
};
use crate::error::{Outcome, Refusal, loop_name, refuse_block};
use crate::region::{self, Span};
use hone_tensor::{
    BlockId, BufferId, Domain, Expr, IteratorKind, Program, Realize, Statement, VarId,
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
    stands_apart(program, block, &path)?;
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
    let describe = |own: &[Option<Span>]| -> Vec<Option<(Expr, Expr)>> {
        own.iter().map(|span| span.as_ref().map(|span| (span.minimum(), span.extent()))).collect()
    };
    if boxes.iter().any(|other| describe(other) != describe(&first)) {
        return refuse_block(program, block, "what it reads below the loop covers different boxes");
    }
    place(program, block, target, first)?;
    producers.into_iter().for_each(|buffer| compact(program, buffer, target));
    must_hold(program, block)
}

/// Refuses a block that a loop around the target has a part of already: the rest of its points is
/// visited in other iterations, and must not be visited here too.
fn stands_apart(program: &Program, block: BlockId, path: &[usize]) -> Outcome<()> {
    let own_path = block_path(program, block)?;
    let realize = realize_at(program, block)?;
    let shared = path.iter().zip(&own_path).take_while(|(a, b)| a == b).count();
    let around = program.enclosing(&own_path);
    match around.iter().take(shared).find(|around| {
        let mut uses = realize.bindings.iter().chain(program.blocks[block].expressions());
        uses.any(|expr| expr.mentions(around.var))
    }) {
        None => Ok(()),
        Some(around) => {
            let name = loop_name(program, around.var);
            refuse_block(
                program,
                block,
                format!("it is below {name}, which is around that loop too"),
            )
        }
    }
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

/// For each iterator of the block its span in one iteration, `None` where it is whole.
fn box_of(
    program: &Program,
    block: BlockId,
    buffer: BufferId,
    depth: usize,
) -> Outcome<Vec<Option<Span>>> {
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
    let mut result: Vec<Option<Span>> = vec![None; own.iterators.len()];
    for (axis, (index, span)) in indices.iter().zip(spans).enumerate() {
        let whole = program.buffers[buffer].shape[axis];
        let mentioned: Vec<usize> = (0..own.iterators.len())
            .filter(|place| index.mentions(own.iterators[*place].var))
            .collect();
        if span.extent() == Expr::from(whole) {
            continue;
        }
        let [place] = mentioned[..] else {
            return Err(refuse(format!(
                "its index of '{name}' on axis {axis} is not one iterator"
            )));
        };
        let iterator = &own.iterators[place];
        let offset = Domain::default().simplify(&(index.clone() - Expr::Var(iterator.var)));
        if offset.mentions(iterator.var) || result[place].is_some() {
            return Err(refuse(format!(
                "its index of '{name}' on axis {axis} is not one iterator"
            )));
        }
        if iterator.kind == IteratorKind::Reduction {
            return Err(refuse(format!("its reduction over {} would be cut", iterator.var)));
        }
        // A point whose element no iteration computes would never be visited.
        let range = crate::edit::block_domain(own, &Domain::default()).bounds(index);
        if range.is_some_and(|range| range.min < 0 || range.max >= whole as i64) {
            return Err(refuse(format!("it reads beyond '{name}' on axis {axis}")));
        }
        result[place] = Some(span.moved(&(Expr::Integer(0) - offset), iterator.extent));
    }
    Ok(result)
}

fn place(
    program: &mut Program,
    block: BlockId,
    target: VarId,
    spans: Vec<Option<Span>>,
) -> Outcome<()> {
    let (mut loops, mut bindings) = (Vec::new(), Vec::new());
    for (iterator, span) in program.blocks[block].iterators.clone().iter().zip(&spans) {
        let var = program.add_var(format!("{}_loop", program.vars[iterator.var].name));
        let (start, extent) = match span {
            Some(span) => (span.minimum(), span.extent()),
            None => (Expr::Integer(0), Expr::from(iterator.extent)),
        };
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
