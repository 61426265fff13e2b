//! What a lane does with its scores, and with its results.

use super::emit::{Attention, first_of};
use super::form::{Axis, Form};
use super::{ROWS, TILE};
use crate::error::Result;
use crate::llvm::emitter::Emitter;
use crate::llvm::environment::Binding;
use crate::llvm::ir::{Ir, V};
use hone_tensor::{BufferId, Expr, Range, Realize, VarId};
use inkwell::values::{InstructionOpcode as Op, IntValue};
use inkwell::{FloatPredicate, IntPredicate};
use std::f64::consts::LOG2_E;

/// What is known of the softmax of a lane's two rows.
#[derive(Clone, Copy)]
pub(super) struct Softmax<'c> {
    /// The largest scores so far; alike in the four lanes of a row.
    largest: [V<'c>; 2],
    /// Sums of the powers of the scores that the lane has.
    sums: [V<'c>; 2],
}

impl<'c> Softmax<'c> {
    /// Before the first key.
    pub(super) fn none(ir: &Ir<'c>) -> Self {
        let f32 = ir.context.f32_type();
        let least = ir.float(f32.into(), f64::NEG_INFINITY);
        Self { largest: [least; 2], sums: [f32.const_zero().into(); 2] }
    }

    pub(super) fn values(&self) -> Vec<V<'c>> {
        [self.largest, self.sums].concat()
    }

    /// The same of other values, of which there are four.
    pub(super) fn with(values: &[V<'c>]) -> Self {
        Self { largest: [values[0], values[1]], sums: [values[2], values[3]] }
    }
}

/// A lane's two rows, and the expressions that are computed of their scores and results.
pub(super) struct Rows<'c, 'e> {
    pub(super) emitter: Emitter<'c, 'e>,
    /// What becomes of a score, in the variables of the axes of scores.
    masked: Expr,
    /// The rows' queries: the numbers, which are below the extent, and whether there are such; always where it is none.
    queries: [(Expr, Option<V<'c>>); 2],
    /// The number of the lane in those of its row.
    in_row: IntValue<'c>,
}

impl<'c, 'e> Rows<'c, 'e> {
    pub(super) fn new(kernel: &Attention<'_, 'c>, mut emitter: Emitter<'c, 'e>) -> Result<Self> {
        let (code, form) = (&kernel.code, kernel.form);
        for (axis, number) in form.batch.iter().zip(&kernel.batch) {
            let range = Range::extent(axis.extent as i64);
            emitter.environment.bind(axis.var, Binding::Running(*number, range));
        }
        let (warp, in_warp) =
            (code.op(Op::LShr, kernel.lane, 5)?, code.op(Op::And, kernel.lane, 31)?);
        let first = code.op(Op::Mul, kernel.block, TILE as i64)?;
        let first = code.add(first, code.op(Op::Mul, warp, ROWS as i64)?)?;
        let first = code.add(first, code.op(Op::LShr, in_warp, 2)?)?;
        let in_row = code.op(Op::And, in_warp, 3)?;
        let masked = first_of(&form.masked, &[form.scores]);
        let none = (Expr::Integer(0), None);
        let mut rows = Self { emitter, masked, queries: [none.clone(), none], in_row };
        for half in 0..2 {
            let index = code.op(Op::Add, first, 8 * half as i64)?;
            rows.queries[half] = rows.below(code.ir, index, &form.query)?;
        }
        Ok(rows)
    }

    /// The number along an axis that an index is, or the last one where there is no such; and whether there is, where not all
    /// are.
    fn below(
        &mut self,
        ir: &Ir<'c>,
        index: IntValue<'c>,
        axis: &Axis,
    ) -> Result<(Expr, Option<V<'c>>)> {
        let (mut value, mut exists) = (index, None);
        if !axis.extent.is_multiple_of(TILE) {
            let end = ir.i64(axis.extent as i64).into();
            let inside = ir.compare_int(IntPredicate::ULT, index.into(), end)?;
            let last = ir.i64(axis.extent as i64 - 1).into();
            value = ir.select(inside, index.into(), last)?.into_int_value();
            exists = Some(inside);
        }
        Ok((self.number(value, axis.extent), exists))
    }

    /// A number below an extent, as expressions read it.
    fn number(&mut self, value: IntValue<'c>, extent: usize) -> Expr {
        let var = self.emitter.environment.fresh();
        let binding = Binding::Running(value, Range::extent(extent as i64));
        self.emitter.environment.bind(var, binding);
        Expr::Var(var)
    }

    /// The weights of a tile's keys as registers of left operands, four for each 16 keys, and what is known of the softmax
    /// then; `products` are multiplied so that they fit it.
    pub(super) fn weigh(
        &mut self,
        kernel: &Attention<'_, 'c>,
        tile: IntValue<'c>,
        sums: &[V<'c>],
        (before, products): (&Softmax<'c>, &mut [V<'c>]),
    ) -> Result<(Softmax<'c>, Vec<V<'c>>)> {
        let (code, ir) = (&kernel.code, kernel.code.ir);
        let mut scores = self.scores(kernel, tile, sums)?;
        let mut after = *before;
        for half in 0..2 {
            let of_half: Vec<usize> =
                (0..scores.len()).filter(|register| register / 2 % 2 == half).collect();
            let mut largest = before.largest[half];
            for register in &of_half {
                largest = ir.binary_intrinsic("llvm.maxnum", largest, scores[*register])?;
            }
            for bits in [1, 2] {
                let other = code.exchanged(largest, bits)?;
                largest = ir.binary_intrinsic("llvm.maxnum", largest, other)?;
            }
            // Where all scores are negative infinity their powers are zeros.
            let zero: V<'c> = ir.context.f32_type().const_zero().into();
            let subtracted = ir.select(is_least(ir, largest)?, zero, largest)?;
            let shrunk = self.power(kernel, before.largest[half], subtracted)?;
            let mut sum = ir.binary(Op::FMul, before.sums[half], shrunk)?;
            for register in &of_half {
                scores[*register] = self.power(kernel, scores[*register], subtracted)?;
                sum = ir.binary(Op::FAdd, sum, scores[*register])?;
            }
            for (register, product) in products.iter_mut().enumerate() {
                if register / 2 % 2 == half {
                    *product = ir.binary(Op::FMul, *product, shrunk)?;
                }
            }
            (after.largest[half], after.sums[half]) = (largest, sum);
        }
        let pairs =
            scores.chunks(2).map(|pair| code.rounded_pair(kernel.form.dtype, [pair[0], pair[1]]));
        Ok((after, pairs.collect::<Result<_>>()?))
    }

    /// The scores of a lane, as the softmax takes them: of keys that there are not negative infinity.
    fn scores(
        &mut self,
        kernel: &Attention<'_, 'c>,
        tile: IntValue<'c>,
        sums: &[V<'c>],
    ) -> Result<Vec<V<'c>>> {
        let (code, ir, form) = (&kernel.code, kernel.code.ir, kernel.form);
        let first = code.op(Op::Mul, tile, TILE as i64)?;
        let first = code.add(first, code.op(Op::Mul, self.in_row, 2)?)?;
        let least = ir.float(ir.context.f32_type().into(), f64::NEG_INFINITY);
        let scale = ir.float(ir.context.f32_type().into(), form.scale);
        let mut scores = sums.to_vec();
        for register in 0..TILE / 4 {
            // Registers of two rows have the same keys.
            let (column, of_pair) = (register / 2, register % 2);
            let index = code.op(Op::Add, first, (8 * column + of_pair) as i64)?;
            let (key, exists) = self.below(ir, index, &form.key)?;
            for half in 0..2 {
                let number = 4 * column + 2 * half + of_pair;
                let score = match form.scale {
                    1.0 => sums[number],
                    _ => ir.binary(Op::FMul, sums[number], scale)?,
                };
                self.write(form.scores, score)?;
                let query = self.queries[half].0.clone();
                let masked = at(&self.masked, form, &key, &query);
                let masked = self.emitter.environment.simplify(&masked);
                let score = self.value(ir, &masked)?;
                scores[number] = match exists {
                    None => score,
                    Some(exists) => ir.select(exists, score, least)?,
                };
            }
        }
        Ok(scores)
    }

    /// The value of an expression, without branches where both sides of a choice can be computed: lanes of a warp that
    /// parted would have to wait for each other before the next instruction of all of them.
    fn value(&mut self, ir: &Ir<'c>, expr: &Expr) -> Result<V<'c>> {
        match expr {
            Expr::Select(condition, then, otherwise)
                if self.emitter.is_safe(then) && self.emitter.is_safe(otherwise) =>
            {
                let condition = self.emitter.value(condition)?;
                let (then, otherwise) = (self.value(ir, then)?, self.value(ir, otherwise)?);
                ir.select(condition, then, otherwise)
            }
            _ => self.emitter.value(expr),
        }
    }

    /// `exp(score - largest)`
    fn power(&self, kernel: &Attention<'_, 'c>, score: V<'c>, largest: V<'c>) -> Result<V<'c>> {
        let ir = kernel.code.ir;
        let difference = ir.binary(Op::FSub, score, largest)?;
        let factor = ir.float(ir.context.f32_type().into(), LOG2_E);
        kernel.code.power_of_two(ir.binary(Op::FMul, difference, factor)?)
    }

    /// Writes what the program reads of a buffer of which there is one number.
    fn write(&self, buffer: BufferId, value: V<'c>) -> Result<()> {
        match self.emitter.buffers.get(&buffer) {
            Some(memory) => self.emitter.ir.store(*memory, value, 4),
            None => Ok(()),
        }
    }

    /// Computes and stores a lane's results.
    pub(super) fn store(
        &mut self,
        kernel: &Attention<'_, 'c>,
        products: &[V<'c>],
        softmax: &Softmax<'c>,
    ) -> Result<()> {
        let (code, ir, form) = (&kernel.code, kernel.code.ir, kernel.form);
        let nan = ir.float(ir.context.f32_type().into(), f64::NAN);
        let first = code.op(Op::Mul, self.in_row, 2)?;
        let columns = (0..form.width / 4).map(|number| {
            let column = code.op(Op::Add, first, (8 * (number / 2) + number % 2) as i64)?;
            Ok(self.number(column, form.width))
        });
        let columns = columns.collect::<Result<Vec<Expr>>>()?;
        let iterators = self.emitter.program.blocks[form.store].iterators.len();
        for half in 0..2 {
            let mut sum = softmax.sums[half];
            for bits in [1, 2] {
                sum = ir.binary(Op::FAdd, sum, code.exchanged(sum, bits)?)?;
            }
            // As the softmax gives where no key is seen.
            let least = is_least(ir, softmax.largest[half])?;
            let sum = ir.select(least, nan, sum)?;
            self.write(form.sums, sum)?;
            self.write(form.largest, softmax.largest[half])?;
            let (query, exists) = self.queries[half].clone();
            let mut bindings = vec![Expr::Integer(0); iterators];
            for axis in &form.batch {
                if let Some(iterator) = axis.iterator {
                    bindings[iterator] = Expr::Var(axis.var);
                }
            }
            bindings[form.stored_query] = query;
            let after = match exists {
                None => None,
                Some(exists) => {
                    let then = ir.block(kernel.function, "then");
                    let after = ir.block(kernel.function, "after");
                    ir.builder.build_conditional_branch(exists.into_int_value(), then, after)?;
                    ir.builder.position_at_end(then);
                    Some(after)
                }
            };
            for (number, column) in columns.iter().enumerate() {
                self.write(form.products, products[4 * (number / 2) + 2 * half + number % 2])?;
                bindings[form.stored_width] = column.clone();
                let bindings = bindings.clone();
                self.emitter.realize(&Realize { block: form.store, bindings, predicate: None })?;
            }
            if let Some(after) = after {
                ir.builder.build_unconditional_branch(after)?;
                ir.builder.position_at_end(after);
            }
        }
        Ok(())
    }
}

/// An expression at a key and a query.
fn at(masked: &Expr, form: &Form, key: &Expr, query: &Expr) -> Expr {
    masked.substitute(&|var: VarId| match var {
        _ if var == form.key.var => Some(key.clone()),
        _ if var == form.query.var => Some(query.clone()),
        _ => None,
    })
}

/// Whether a number is negative infinity.
fn is_least<'c>(ir: &Ir<'c>, value: V<'c>) -> Result<V<'c>> {
    let least = ir.float(ir.context.f32_type().into(), f64::NEG_INFINITY);
    ir.compare_float(FloatPredicate::OEQ, value, least)
}
