//! `compute_at`: a producer moves below a loop around all its readers.
//!
//! In each iteration of the loop it computes just the box of elements that the readers below need
//! there: one new loop per spatial iterator, in their order and kept even where the extent is 1, then
//! one per reduction iterator. The old loops go. The new nest stands in front of the first statement
//! of the loop's body that reads it. A temporary shrinks to that box and becomes memory of one
//! thread.
//!
//! Legal: the block alone computes its buffer, all its readers are below the loop, its indices are
//! one iterator each, and what it reads itself is computed before the new place.
//! Buys: the elements are used while they are in cache or registers. Costs: where boxes of different
//! iterations overlap, elements are computed again.

use crate::compact::compact;
use crate::compute_inline::axes_of_iterators;
use crate::edit::{below, block_path, detach, insert, loop_path, must_hold, nest, realize_at};
use crate::error::{Outcome, loop_name, refuse_block};
use crate::region::{self, Span};
use hone_tensor::{BlockId, Expr, IteratorKind, Program, Realize, Role, Statement, VarId};

pub(crate) fn apply(program: &mut Program, block: BlockId, target: VarId) -> Outcome<()> {
    block_path(program, block)?;
    let path = loop_path(program, target)?;
    let buffer = program.blocks[block].buffer;
    let mut readers = program.readers(buffer);
    readers.retain(|reader| *reader != block);
    check(program, block, target, &path, &readers)?;
    let axes = match axes_of_iterators(&program.blocks[block]) {
        Ok(axes) => axes,
        Err(reason) => return refuse_block(program, block, reason),
    };
    let spans = region::of_loads(program, buffer, &readers, path.len());
    let (mut loops, mut bindings) = (Vec::new(), Vec::new());
    for (iterator, axis) in program.blocks[block].iterators.clone().iter().zip(&axes) {
        let var = program.add_var(format!("{}_loop", program.vars[iterator.var].name));
        let (start, extent) = match (iterator.kind, axis) {
            (IteratorKind::Spatial, Some((axis, offset))) => {
                let span =
                    spans[*axis].moved(&(Expr::Integer(0) - offset.clone()), iterator.extent);
                whole_where_needed(&span, iterator.extent)
            }
            _ => (Expr::Integer(0), Expr::from(iterator.extent)),
        };
        bindings.push((start, var));
        loops.push((var, extent));
    }
    detach(program, block);
    let path = loop_path(program, target)?;
    let mut domain = program.domain_at(&path);
    if let Some(own) = program.loop_of(target) {
        domain.push(own.var, &own.extent);
    }
    loops.iter().for_each(|(var, extent)| domain.push(*var, extent));
    let bindings =
        bindings.into_iter().map(|(start, var)| domain.simplify(&(start + Expr::Var(var))));
    let realize = Realize { block, bindings: bindings.collect(), predicate: None };
    let place = first_reader(program, &path, &readers);
    insert(program, &path, place, nest(loops, Statement::Realize(realize)));
    compact(program, buffer, target);
    must_hold(program, block)
}

/// Start and extent of a span. One that always starts with the axis, and takes it whole in some iteration,
/// takes it whole in all: what the last one computes too much costs less than loops of two extents.
fn whole_where_needed(span: &Span, axis: usize) -> (Expr, Expr) {
    let (start, extent) = (span.minimum(), span.extent());
    let from_first = start == Expr::Integer(0) && extent.as_integer().is_none();
    if from_first && span.limit(axis) == axis {
        return (start, Expr::from(axis));
    }
    (start, extent)
}

fn check(
    program: &Program,
    block: BlockId,
    target: VarId,
    path: &[usize],
    readers: &[BlockId],
) -> Outcome<()> {
    let buffer = program.blocks[block].buffer;
    if program.writers(buffer).len() > 1 {
        return refuse_block(program, block, "another block writes its buffer too");
    }
    if realize_at(program, block)?.predicate.is_some() {
        return refuse_block(program, block, "it runs under a condition");
    }
    if readers.is_empty() {
        return refuse_block(program, block, "no block reads it");
    }
    if program.blocks[block].reads(buffer) {
        return refuse_block(program, block, "it reads what earlier iterations of it stored");
    }
    if program.buffers[buffer].role != Role::Temporary {
        return refuse_block(
            program,
            block,
            "its buffer is a parameter, of which every element is needed",
        );
    }
    let outside = readers
        .iter()
        .find(|reader| program.find_block(**reader).is_none_or(|own| !below(path, &own)));
    if let Some(reader) = outside {
        let (name, at) = (&program.blocks[*reader].name, loop_name(program, target));
        return refuse_block(program, block, format!("its reader '{name}' is not below {at}"));
    }
    Ok(())
}

/// The position, in the body at `path`, of the first statement that holds one of `readers`.
fn first_reader(program: &Program, path: &[usize], readers: &[BlockId]) -> usize {
    let places = readers.iter().filter_map(|reader| program.find_block(*reader));
    places.filter_map(|place| place.get(path.len()).copied()).min().unwrap_or(0)
}
