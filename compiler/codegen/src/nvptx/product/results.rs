//! What is done with each sum of a product.

use super::emit::{Origin, Product};
use super::form::Axis;
use crate::Target;
use crate::error::Result;
use crate::llvm::emitter::Emitter;
use crate::llvm::environment::{Binding, Environment};
use crate::llvm::ir::V;
use hone_tensor::{BufferId, Expr, Program, Range, Realize, Scope};
use inkwell::IntPredicate;
use inkwell::values::{InstructionOpcode as Op, IntValue, PointerValue};
use std::collections::HashMap;

/// Computes and stores the results of a lane's sums, which are by rows of 16, columns of 8, and register.
pub(super) fn store<'c>(
    product: &Product<'_, 'c>,
    program: &Program,
    target: &Target,
    mut buffers: HashMap<BufferId, PointerValue<'c>>,
    sums: &[V<'c>],
    origin: Origin<'c>,
) -> Result<()> {
    let (ir, form) = (product.ir, product.form);
    let program = with_one_sum(program, form.sums, form.store);
    let dtype = program.buffers[form.sums].dtype;
    let sum = ir.builder.build_alloca(ir.memory_type(dtype), "")?;
    buffers.insert(form.sums, sum);
    let environment = Environment::new(program.vars.len());
    let named = (product.kernel.name.as_str(), product.function);
    let emitter = Emitter::new(ir, (&program, target), named, environment, buffers);
    let iterators = program.blocks[form.store].iterators.len();
    let mut results =
        Results { product, emitter, sum, bindings: vec![Expr::Integer(0); iterators] };
    results.store(sums, [origin.row, origin.column])
}

/// The results of a lane while they are stored.
struct Results<'a, 'c> {
    product: &'a Product<'a, 'c>,
    emitter: Emitter<'c, 'a>,
    /// Where the one sum is that the program reads.
    sum: PointerValue<'c>,
    /// The result that is computed, by iterator.
    bindings: Vec<Expr>,
}

/// Rows (0) or columns (1) of a lane.
struct Side<'c> {
    side: usize,
    /// The number of the first one.
    first: IntValue<'c>,
    /// The axes' parts of iterators at the first line, and the extent of the last axis, where a constant that depends on the
    /// line is all that is added.
    shared: Option<Vec<(Axis, Expr, usize)>>,
}

/// Rows or columns at one distance from a lane's first one.
struct Line<'c> {
    /// The parts of iterators that its axes are: numbers of iterators, and what they are.
    parts: Vec<(usize, Expr)>,
    /// Whether there is such a row or column; `None` where there always is.
    exists: Option<V<'c>>,
}

impl<'c> Results<'_, 'c> {
    fn store(&mut self, sums: &[V<'c>], origin: [IntValue<'c>; 2]) -> Result<()> {
        let [rows, columns] = self.product.tiles.warp;
        let batch = self.product.form.batch.clone();
        let mut fixed = Vec::with_capacity(batch.len());
        for (number, axis) in batch.iter().enumerate() {
            let value = self.product.along_batch(number)?;
            fixed.push((axis.iterator, self.part(axis, value, axis.extent)));
        }
        let sides = [self.side(0, origin[0])?, self.side(1, origin[1])?];
        // A lane has two neighbours of each eight columns: both or none of them are there where there is an even number.
        let together = if self.product.form.extent(1).is_multiple_of(2) { 2 } else { 1 };
        let added: Vec<usize> = (0..columns / 4).map(|n| 8 * (n / 2) + n % 2).collect();
        let columns_of = added.iter().map(|added| self.line(&sides[1], *added));
        let columns_of = columns_of.collect::<Result<Vec<_>>>()?;
        for number in 0..rows / 8 {
            let row = self.line(&sides[0], 8 * number)?;
            // Two rows of a tile of 16 are in registers 0 and 1, and 2 and 3.
            let first = number / 2 * columns / 2 + 2 * (number % 2);
            let in_row = |column: usize| sums[first + 4 * (column / 2) + column % 2];
            guarded(self, row.exists, &mut |results| {
                let groups = columns_of.chunks(together).enumerate();
                groups.into_iter().try_for_each(|(group, neighbours)| {
                    guarded(results, neighbours[0].exists, &mut |results| {
                        neighbours.iter().enumerate().try_for_each(|(number, column)| {
                            let parts = fixed.iter().chain(&row.parts).chain(&column.parts);
                            results.store_one(in_row(group * together + number), parts)
                        })
                    })
                })
            })?;
        }
        Ok(())
    }

    /// Rows (0) or columns (1) of a lane from `first` on.
    fn side(&mut self, side: usize, first: IntValue<'c>) -> Result<Side<'c>> {
        let product = self.product;
        let (axes, warp) = (&product.form.across[side], product.tiles.warp[side]);
        // The lines of a warp are within one of the innermost axis, or in whole ones of it: what is added to the first line
        // never carries over.
        let split = match axes[..] {
            [_] => None,
            [_, inner] if warp % inner.extent == 0 || inner.extent % warp == 0 => {
                Some(inner.extent)
            }
            _ => return Ok(Side { side, first, shared: None }),
        };
        // Lines that there are not are counted in whole tiles.
        let counted = product.form.extent(side).next_multiple_of(product.tiles.block[side]);
        let shared = match split {
            None => vec![(axes[0], self.part(&axes[0], first, counted - (warp - 8)), usize::MAX)],
            Some(extent) => {
                let outer = product.op(Op::UDiv, first, extent as i64)?;
                let inner = product.op(Op::URem, first, extent as i64)?;
                let room = extent - warp.min(extent);
                vec![
                    (axes[0], self.part(&axes[0], outer, counted.div_ceil(extent)), extent),
                    (axes[1], self.part(&axes[1], inner, room + 8), extent),
                ]
            }
        };
        Ok(Side { side, first, shared: Some(shared) })
    }

    /// The line at a distance from the first one.
    fn line(&mut self, side: &Side<'c>, added: usize) -> Result<Line<'c>> {
        let (product, ir) = (self.product, self.product.ir);
        let index = product.op(Op::Add, side.first, added as i64)?;
        let parts = match &side.shared {
            Some(shared) => {
                let part = |(number, (axis, first, extent)): (usize, &(Axis, Expr, usize))| {
                    // Of two axes the first one counts whole ones of the second one.
                    let added = match number + 1 < shared.len() {
                        true => added / extent,
                        false => added % extent,
                    };
                    (axis.iterator, first.clone() + added * axis.scale)
                };
                shared.iter().enumerate().map(part).collect()
            }
            None => {
                let axes = &product.form.across[side.side];
                let values = product.along(axes, index)?;
                let parts = axes.iter().zip(values);
                let part = |(axis, value): (&Axis, IntValue<'c>)| {
                    (axis.iterator, self.part(axis, value, axis.extent))
                };
                parts.map(part).collect()
            }
        };
        let exists = match product.tiles.whole(product.form, side.side) {
            true => None,
            false => {
                let end = ir.i64(product.form.extent(side.side) as i64).into();
                Some(ir.compare_int(IntPredicate::ULT, index.into(), end)?)
            }
        };
        Ok(Line { parts, exists })
    }

    /// The part of an iterator that an axis is, with a value below `extent`.
    fn part(&mut self, axis: &Axis, value: IntValue<'c>, extent: usize) -> Expr {
        let var = self.emitter.environment.fresh();
        let binding = Binding::Running(value, Range::extent(extent as i64));
        self.emitter.environment.bind(var, binding);
        match axis.scale {
            1 => Expr::Var(var),
            scale => Expr::Var(var) * scale,
        }
    }

    /// Stores the result of one sum, at iterators that are the sums of these parts.
    fn store_one<'p>(
        &mut self,
        value: V<'c>,
        parts: impl Iterator<Item = &'p (usize, Expr)>,
    ) -> Result<()> {
        self.bindings.fill(Expr::Integer(0));
        for (iterator, part) in parts {
            let known = std::mem::replace(&mut self.bindings[*iterator], Expr::Integer(0));
            self.bindings[*iterator] = match known {
                Expr::Integer(0) => part.clone(),
                known => known + part.clone(),
            };
        }
        self.product.ir.store(self.sum, value, 4)?;
        let block = self.product.form.store;
        let realize = Realize { block, bindings: self.bindings.clone(), predicate: None };
        self.emitter.realize(&realize)
    }
}

/// Runs `body` where a condition, if there is one, is true.
fn guarded<'a, 'c>(
    results: &mut Results<'a, 'c>,
    condition: Option<V<'c>>,
    body: &mut dyn FnMut(&mut Results<'a, 'c>) -> Result<()>,
) -> Result<()> {
    let Some(condition) = condition else { return body(results) };
    let (ir, function) = (results.product.ir, results.product.function);
    let (then, after) = (ir.block(function, "then"), ir.block(function, "after"));
    ir.builder.build_conditional_branch(condition.into_int_value(), then, after)?;
    ir.builder.position_at_end(then);
    body(results)?;
    ir.builder.build_unconditional_branch(after)?;
    ir.builder.position_at_end(after);
    Ok(())
}

/// The program with one sum, in a register, in place of all.
fn with_one_sum(program: &Program, sums: BufferId, store: hone_tensor::BlockId) -> Program {
    let mut program = program.clone();
    program.buffers[sums].shape = vec![1];
    program.buffers[sums].scope = Scope::Register;
    program.blocks[store].map_expressions(&mut |expr| first_of(expr, sums));
    program
}

fn first_of(expr: &Expr, sums: BufferId) -> Expr {
    match expr {
        Expr::Load(buffer, _) if *buffer == sums => Expr::Load(sums, vec![Expr::Integer(0)]),
        _ => expr.map_operands(&mut |operand| first_of(operand, sums)),
    }
}
