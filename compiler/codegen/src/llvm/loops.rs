//! Loops: running, unrolled, and vectorized.
//!
//! A loop's extent may be `min(factor, bound - outer * factor)`. Where a variable's last value alone
//! makes such extents differ, that value is split off (a peeled iteration, or a branch where the
//! variable comes from outside), so that all loops below have constant extents in either version.

use super::emitter::Emitter;
use super::environment::{Binding, Lanes, is_atom};
use crate::error::Result;
use hone_tensor::{
    BlockBody, BufferId, Expr, Launch, Loop, LoopKind, Range, Realize, Scope, Statement, VarId,
};
use inkwell::IntPredicate;
use inkwell::values::{BasicValue, InstructionValue, IntValue};

/// A vectorized loop of up to this many registers is unrolled; a longer one runs over single registers.
const MAX_UNROLLED_REGISTERS: i64 = 8;

impl<'c> Emitter<'c, '_> {
    pub(crate) fn statements(&mut self, statements: &[Statement]) -> Result<()> {
        let mut left = statements;
        while let [first, rest @ ..] = left {
            left = rest;
            match self.as_region_from_zero(first, rest.first()) {
                Some(done) => {
                    done?;
                    left = &rest[1..];
                }
                None => self.statement(first)?,
            }
        }
        Ok(())
    }

    fn statement(&mut self, statement: &Statement) -> Result<()> {
        if self.is_for_first_lane(statement) {
            return self.by_first_lane(|emitter| emitter.statement(statement));
        }
        match statement {
            Statement::Loop(inner) => self.loop_statement(inner),
            Statement::Realize(realize) => self.realize(realize),
            Statement::Sync(_) => self.sync(),
        }
    }

    /// The outermost loop of a kernel, where it is parallel: the caller's range of its iterations.
    pub(crate) fn parallel(&mut self, outer: &Loop) -> Result<()> {
        let extent = self.environment.simplify(&outer.extent);
        let Some(extent) = extent.as_integer() else {
            return Err(self.unsupported("the extent of a parallel loop must be constant"));
        };
        let (begin, end) = self.tasks;
        let range = Range::extent(extent.max(1));
        self.counted(outer.var, begin, end, range, true, |emitter| {
            emitter.with_prefetches(outer, |emitter| {
                emitter
                    .where_needed(outer.var, |emitter| emitter.bound(outer.var, true, &outer.body))
            })
        })
    }

    pub(crate) fn loop_statement(&mut self, inner: &Loop) -> Result<()> {
        if let Some(done) = self.as_region(inner) {
            return done;
        }
        let extent = self.environment.simplify(&inner.extent);
        let constant = extent.as_integer();
        match (inner.kind, constant) {
            (LoopKind::Bound(axis), _) => self.over_lanes(inner, axis),
            (_, Some(..=0)) => Ok(()),
            (_, Some(1)) => self.one_needed_value(inner, 0),
            (LoopKind::Unrolled, Some(extent)) => {
                if let Some(merged) = self.merged(inner, extent) {
                    return self.loop_statement(&merged);
                }
                (0..extent).try_for_each(|value| self.one_value(inner, value))
            }
            (LoopKind::Vectorized, Some(extent)) if self.environment.lanes().is_none() => {
                self.vectorized(inner, extent)
            }
            (LoopKind::Vectorized, Some(extent)) => {
                (0..extent).try_for_each(|value| self.one_value(inner, value))
            }
            (LoopKind::Tensorized(intrinsic), Some(extent)) => {
                self.tensorized(inner, intrinsic, extent)
            }
            (LoopKind::Serial | LoopKind::Parallel, Some(extent)) => self.serial(inner, extent),
            (LoopKind::Serial | LoopKind::Parallel, None) => self.serial_dynamic(inner, &extent),
            (LoopKind::Tensorized(_), None) => self.serial_dynamic(inner, &extent),
            (LoopKind::Unrolled | LoopKind::Vectorized, None) => self.guarded_part(inner, &extent),
        }
    }

    /// The body for one known value of the variable.
    fn one_value(&mut self, inner: &Loop, value: i64) -> Result<()> {
        self.environment.bind(inner.var, Binding::Constant(value));
        let result = self.statements(&inner.body);
        self.environment.unbind(inner.var);
        result
    }

    /// A running loop of constant extent; its last iteration is peeled where that makes the extents
    /// inside constant.
    fn serial(&mut self, inner: &Loop, extent: i64) -> Result<()> {
        let peel = self.last_differs(inner.var, Range::extent(extent), &inner.body);
        let rolled = if peel { extent - 1 } else { extent };
        if rolled == 1 {
            self.one_needed_value(inner, 0)?;
        } else {
            let begin = self.ir.i64(0);
            let limited = self.limited_end(inner.var, rolled)?;
            let end = limited.unwrap_or(self.ir.i64(rolled));
            let range = Range::extent(rolled);
            self.counted(inner.var, begin, end, range, limited.is_some(), |emitter| {
                emitter.with_prefetches(inner, |emitter| match limited {
                    Some(_) => emitter.bound(inner.var, false, &inner.body),
                    None => emitter.where_needed(inner.var, |emitter| {
                        emitter.bound(inner.var, false, &inner.body)
                    }),
                })
            })?;
        }
        if peel { self.one_needed_value(inner, extent - 1) } else { Ok(()) }
    }

    /// A running loop whose extent is known only when it is reached.
    fn serial_dynamic(&mut self, inner: &Loop, extent: &Expr) -> Result<()> {
        let maximum = self.upper_bound(extent)?;
        let end = self.index(extent)?;
        let begin = self.ir.i64(0);
        self.counted(inner.var, begin, end, Range::extent(maximum.max(1)), true, |emitter| {
            emitter.where_needed(inner.var, |emitter| emitter.bound(inner.var, false, &inner.body))
        })
    }

    /// An unrolled or vectorized loop whose extent is known only when it is reached: every value below
    /// the upper bound, each under a predicate.
    fn guarded_part(&mut self, inner: &Loop, extent: &Expr) -> Result<()> {
        let maximum = self.upper_bound(extent)?;
        let bound = self.index(extent)?;
        if inner.kind == LoopKind::Vectorized && self.environment.lanes().is_none() {
            return self.vectorized_under(inner, maximum, Some(bound));
        }
        for value in 0..maximum {
            let within =
                self.ir.compare_int(IntPredicate::SLT, self.ir.i64(value).into(), bound.into())?;
            self.guarded(within, |emitter| emitter.one_value(inner, value))?;
        }
        Ok(())
    }

    fn upper_bound(&self, extent: &Expr) -> Result<i64> {
        self.environment.bounds(extent).map(|range| range.max).ok_or_else(|| {
            self.unsupported(format!("the extent '{extent:?}' of a loop has no known bound"))
        })
    }

    fn vectorized(&mut self, inner: &Loop, extent: i64) -> Result<()> {
        self.vectorized_under(inner, extent, None)
    }

    /// A vectorized loop in parts that fit a register; with a bound, lanes from there on are off.
    fn vectorized_under(
        &mut self,
        inner: &Loop,
        extent: i64,
        bound: Option<IntValue<'c>>,
    ) -> Result<()> {
        let native = (self.target.vector_bytes / self.widest(&inner.body)).max(1) as i64;
        let group = if bound.is_none() { self.group_lanes(&inner.body, native) } else { native };
        if extent > native * MAX_UNROLLED_REGISTERS
            && bound.is_none()
            && self.can_strip(inner.var, &inner.body)
        {
            let rolled = self.strip(inner, extent, group);
            return self.loop_statement(&rolled);
        }
        let mut first = 0;
        while first < extent {
            let left = extent - first;
            self.group = group > native && left >= group;
            let (count, width) = if left >= group {
                (group, group)
            } else if left >= native {
                (native, native)
            } else if self.target.masks {
                (left, (left as u64).next_power_of_two() as i64)
            } else {
                let power = 1 << left.ilog2();
                (power, power)
            };
            let result = self.part(inner, first, count as u32, width as u32, bound);
            self.group = false;
            result?;
            first += count;
        }
        Ok(())
    }

    /// A vectorized loop of many vectors as a running loop over single ones.
    fn strip(&mut self, inner: &Loop, extent: i64, native: i64) -> Loop {
        let (outer, lane) = (self.environment.fresh(), self.environment.fresh());
        let rest = Expr::Integer(extent) - Expr::Var(outer) * native;
        let index = Expr::Var(outer) * native + Expr::Var(lane);
        let replace = |var: VarId| (var == inner.var).then(|| index.clone());
        let body = inner.body.iter().map(|statement| substitute(statement, &replace)).collect();
        let width = Expr::Integer(native).minimum(rest);
        let lanes = Loop { var: lane, extent: width, kind: LoopKind::Vectorized, body };
        let count = Expr::Integer((extent + native - 1) / native);
        let body = vec![Statement::Loop(Box::new(lanes))];
        Loop { var: outer, extent: count, kind: LoopKind::Serial, body }
    }

    /// Whether the blocks below need no constant indices and depend on `var` by their
    /// bindings only: they use no registers and no buffer shrunk to one value of `var`.
    fn can_strip(&self, var: VarId, statements: &[Statement]) -> bool {
        let in_registers = |buffer: BufferId| self.program.buffers[buffer].scope == Scope::Register;
        statements.iter().all(|statement| match statement {
            Statement::Loop(inner) => self.can_strip(var, &inner.body),
            Statement::Sync(_) => false,
            Statement::Realize(realize) => {
                let block = &self.program.blocks[realize.block];
                let (BlockBody::Map(value) | BlockBody::Reduce { value, .. }) = &block.body;
                let mut fits = !in_registers(block.buffer);
                for expr in block.indices.iter().chain([value]) {
                    expr.visit(&mut |part| match part {
                        Expr::Load(buffer, _) => fits &= !in_registers(*buffer),
                        Expr::Var(other) => fits &= *other != var,
                        _ => {}
                    });
                }
                fits
            }
        })
    }

    fn part(
        &mut self,
        inner: &Loop,
        first: i64,
        count: u32,
        width: u32,
        bound: Option<IntValue<'c>>,
    ) -> Result<()> {
        if width == 1 && bound.is_none() {
            return self.one_value(inner, first);
        }
        let lanes = Lanes { var: inner.var, first, count, width };
        self.environment.bind(inner.var, Binding::Lanes(lanes));
        let outer = self.mask;
        if count < width {
            self.mask = Some(self.ir.prefix_mask(count, width));
        }
        let result = match bound {
            None => self.statements(&inner.body),
            Some(bound) => {
                let iota = self.ir.iota(first, width);
                let within = self.ir.compare_int(IntPredicate::SLT, iota, bound.into())?;
                self.guarded(within, |emitter| emitter.statements(&inner.body))
            }
        };
        self.mask = outer;
        self.environment.unbind(inner.var);
        result
    }

    /// Size in bytes of the widest elements that the blocks below touch.
    fn widest(&self, statements: &[Statement]) -> usize {
        let mut widest = 1;
        for statement in statements {
            match statement {
                Statement::Loop(inner) => widest = widest.max(self.widest(&inner.body)),
                Statement::Realize(realize) => {
                    widest = widest.max(self.widest_of_block(realize.block));
                }
                Statement::Sync(_) => {}
            }
        }
        widest
    }

    fn widest_of_block(&self, block: hone_tensor::BlockId) -> usize {
        let block = &self.program.blocks[block];
        let (hone_tensor::BlockBody::Map(value) | hone_tensor::BlockBody::Reduce { value, .. }) =
            &block.body;
        let bytes = |dtype| self.ir.compute_bytes(dtype);
        let mut widest = self.program.buffers[block.buffer].dtype.bytes();
        let float = self.program.buffers[block.buffer].dtype.is_float();
        if float {
            widest = widest.max(bytes(self.program.buffers[block.buffer].dtype));
        }
        value.visit(&mut |expr| match expr {
            Expr::Load(buffer, _) => {
                let dtype = self.program.buffers[*buffer].dtype;
                let plain_copy = matches!(value, Expr::Load(..));
                widest = widest.max(if plain_copy { dtype.bytes() } else { bytes(dtype) });
            }
            Expr::Cast(dtype, _) | Expr::Constant(_, dtype) => widest = widest.max(bytes(*dtype)),
            _ => {}
        });
        widest
    }

    /// `for var in begin..end`, tested at the end; with `test`, also before the first iteration.
    pub(super) fn counted(
        &mut self,
        var: VarId,
        begin: IntValue<'c>,
        end: IntValue<'c>,
        range: Range,
        test: bool,
        body: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let builder = &self.ir.builder;
        let head = self.ir.block(self.function, "loop");
        let after = self.ir.block(self.function, "done");
        if test {
            let any = builder.build_int_compare(IntPredicate::SLT, begin, end, "")?;
            let enter = self.ir.block(self.function, "enter");
            builder.build_conditional_branch(any, enter, after)?;
            builder.position_at_end(enter);
        }
        let before = self.ir.here()?;
        builder.build_unconditional_branch(head)?;
        builder.position_at_end(head);
        let phi = builder.build_phi(self.ir.context.i64_type(), "")?;
        phi.add_incoming(&[(&begin as &dyn BasicValue<'c>, before)]);
        let value = phi.as_basic_value().into_int_value();
        self.environment.bind(var, Binding::Running(value, range));
        let moves = self.may_move(begin);
        if moves {
            self.enter_loop(var, before, head);
        }
        self.forget_tiles();
        let result = body(self);
        self.forget_tiles();
        self.environment.unbind(var);
        result?;
        if moves {
            self.leave_loop()?;
        }
        let builder = &self.ir.builder;
        let next = builder.build_int_nsw_add(value, self.ir.i64(1), "")?;
        phi.add_incoming(&[(&next as &dyn BasicValue<'c>, self.ir.here()?)]);
        let continues = builder.build_int_compare(IntPredicate::SLT, next, end, "")?;
        let latch = builder.build_conditional_branch(continues, head, after)?;
        self.keep_rolled(latch);
        builder.position_at_end(after);
        Ok(())
    }

    /// Tells LLVM to leave a loop as it is: schedules decide about unrolling.
    fn keep_rolled(&self, latch: InstructionValue<'c>) {
        let context = self.ir.context;
        let text = |text: &str| context.metadata_string(text).into();
        let disable = context.metadata_node(&[text("llvm.loop.unroll.disable")]);
        let node = context.metadata_node(&[disable.into()]);
        let _ = latch.set_metadata(node, context.get_kind_id("llvm.loop"));
    }

    /// The body under a newly bound running variable: names its quotients and remainders, and
    /// branches where the last value of one of them makes the extents below differ.
    pub(super) fn bound(&mut self, var: VarId, split_var: bool, body: &[Statement]) -> Result<()> {
        let atoms = self.environment.atoms();
        let mut fresh = if split_var { vec![var] } else { vec![] };
        self.name_atoms(body, &mut fresh)?;
        let result = self.split(&fresh, body);
        self.environment.forget_atoms(atoms);
        result
    }

    fn split(&mut self, variables: &[VarId], body: &[Statement]) -> Result<()> {
        let Some((var, rest)) = variables.split_first() else { return self.statements(body) };
        let Some(Binding::Running(value, range)) = self.environment.get(*var) else {
            return self.split(rest, body);
        };
        // Lanes that wait for each other do so at one place.
        if body.iter().any(Launch::waits) || !self.last_differs(*var, range, body) {
            return self.split(rest, body);
        }
        let builder = &self.ir.builder;
        let full = self.ir.block(self.function, "full");
        let tail = self.ir.block(self.function, "tail");
        let after = self.ir.block(self.function, "joined");
        let last = self.ir.i64(range.max);
        let is_last = builder.build_int_compare(IntPredicate::EQ, value, last, "")?;
        builder.build_conditional_branch(is_last, tail, full)?;
        let shorter = Range { min: range.min, max: range.max - 1 };
        for (block, binding) in
            [(full, Binding::Running(value, shorter)), (tail, Binding::Constant(range.max))]
        {
            self.ir.builder.position_at_end(block);
            self.environment.bind(*var, binding);
            self.split(rest, body)?;
            self.ir.builder.build_unconditional_branch(after)?;
        }
        self.environment.bind(*var, Binding::Running(value, range));
        self.ir.builder.position_at_end(after);
        Ok(())
    }

    /// Whether some loop extent below, not constant over `range`, is constant without its last value,
    /// whatever the values of the loops between.
    fn last_differs(&self, var: VarId, range: Range, body: &[Statement]) -> bool {
        if range.max <= range.min {
            return false;
        }
        let shorter = Range { min: range.min, max: range.max - 1 };
        let mut differs = false;
        extents(body, &mut Vec::new(), &mut |extent, between| {
            if differs || extent.as_integer().is_some() {
                return;
            }
            let under = |range: Range| {
                self.environment.simplify_under(extent, &|other: VarId| {
                    let inner = || between.iter().find(|(inner, _)| *inner == other);
                    if other == var { Some(range) } else { inner().map(|(_, range)| *range) }
                })
            };
            let open = under(range);
            if open.as_integer().is_none() && open.mentions(var) {
                let full = under(shorter);
                differs = full.as_integer().is_some() || !full.mentions(var);
            }
        });
        differs
    }

    /// Binds a variable to each quotient and remainder below whose operands have values here.
    fn name_atoms(&mut self, body: &[Statement], fresh: &mut Vec<VarId>) -> Result<()> {
        loop {
            let mut found: Vec<Expr> = Vec::new();
            expressions(body, &mut |expr| {
                let simple = self.environment.simplify(expr);
                simple.visit(&mut |part| {
                    let new =
                        is_atom(part) && !found.contains(part) && !self.environment.is_named(part);
                    if new
                        && part.operands().iter().all(|operand| self.environment.is_bound(operand))
                    {
                        found.push(part.clone());
                    }
                });
            });
            // Innermost first: an atom inside another is named before it.
            found.retain(|atom| !atom.operands().iter().any(|operand| contains_atom(operand)));
            if found.is_empty() {
                return Ok(());
            }
            for atom in found {
                let Some(range) = self.environment.bounds(&atom) else { return Ok(()) };
                let value = self.index(&atom)?;
                let var = self.environment.define_atom(atom);
                self.environment.bind(var, Binding::Running(value, range));
                fresh.push(var);
            }
        }
    }
}

/// The statement with variables replaced in its extents, bindings and predicates.
pub(crate) fn substitute(
    statement: &Statement,
    replace: &dyn Fn(VarId) -> Option<Expr>,
) -> Statement {
    match statement {
        Statement::Loop(loop_) => Statement::Loop(Box::new(Loop {
            var: loop_.var,
            extent: loop_.extent.substitute(replace),
            kind: loop_.kind,
            body: loop_.body.iter().map(|inner| substitute(inner, replace)).collect(),
        })),
        Statement::Sync(level) => Statement::Sync(*level),
        Statement::Realize(realize) => Statement::Realize(Realize {
            block: realize.block,
            bindings: realize.bindings.iter().map(|binding| binding.substitute(replace)).collect(),
            predicate: realize.predicate.as_ref().map(|predicate| predicate.substitute(replace)),
        }),
    }
}

fn contains_atom(expr: &Expr) -> bool {
    let mut found = false;
    expr.visit(&mut |part| found |= is_atom(part));
    found
}

/// Gets an expression, and the loops of constant extent around it.
type Visit<'a> = dyn FnMut(&Expr, &[(VarId, Range)]) + 'a;

/// Every loop extent in the statements, with the loops of constant extent around it.
fn extents(statements: &[Statement], around: &mut Vec<(VarId, Range)>, visit: &mut Visit<'_>) {
    for statement in statements {
        if let Statement::Loop(inner) = statement {
            visit(&inner.extent, around);
            let outer = around.len();
            let extent = inner.extent.as_integer().filter(|extent| *extent > 0);
            around.extend(extent.map(|extent| (inner.var, Range::extent(extent))));
            extents(&inner.body, around, visit);
            around.truncate(outer);
        }
    }
}

/// Every loop extent, binding and predicate in the statements.
fn expressions(statements: &[Statement], visit: &mut dyn FnMut(&Expr)) {
    for statement in statements {
        match statement {
            Statement::Loop(inner) => {
                visit(&inner.extent);
                expressions(&inner.body, visit);
            }
            Statement::Realize(realize) => {
                realize.bindings.iter().chain(&realize.predicate).for_each(&mut *visit);
            }
            Statement::Sync(_) => {}
        }
    }
}
