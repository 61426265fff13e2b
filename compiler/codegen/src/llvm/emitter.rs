//! The state of one kernel's emission, and blocks.

use super::environment::Environment;
use super::ir::{Ir, V};
use super::pointers::MovingLoop;
use super::prefetch::Stream;
use crate::Target;
use crate::error::{CodegenError, Result};
use crate::prepare::predicate_value;
use hone_tensor::{BlockBody, BufferId, Combiner, Expr, Program, Realize, UnaryOp, VarId};
use hone_types::DataType;
use inkwell::values::{FunctionValue, PointerValue, VectorValue};
use std::collections::HashMap;

/// Emits one kernel's body.
pub(crate) struct Emitter<'c, 'p> {
    pub(crate) ir: &'p Ir<'c>,
    pub(crate) program: &'p Program,
    pub(crate) target: &'p Target,
    pub(crate) symbol: &'p str,
    pub(crate) function: FunctionValue<'c>,
    pub(crate) environment: Environment<'c>,
    /// Start of each buffer that the kernel uses.
    pub(crate) buffers: HashMap<BufferId, PointerValue<'c>>,
    /// Whether pointers move with loops, where LLVM's pass for that is not run.
    pub(crate) moves_pointers: bool,
    /// The running loops around, outermost first, that move pointers.
    pub(crate) loops: Vec<MovingLoop<'c>>,
    /// What is being prefetched here.
    pub(crate) streams: Vec<Stream<'c>>,
    /// Lanes that are active, where not all are.
    pub(crate) mask: Option<VectorValue<'c>>,
    /// Which lanes the mask leaves on, where that is known when code is made.
    pub(crate) active: Option<Vec<bool>>,
    /// Whether the mask may be off in lane 0 too: it comes from a condition.
    pub(crate) conditional: bool,
    /// Whether the lanes are those of several registers.
    pub(crate) group: bool,
    /// The range of parallel iterations to run, as the kernel was given it.
    pub(crate) tasks: (inkwell::values::IntValue<'c>, inkwell::values::IntValue<'c>),
    /// What is in tile registers, inside a region of products of tiles.
    pub(crate) tiles: Option<super::tiles::Region>,
    /// Where tile registers are configured.
    pub(crate) configured: Vec<super::tiles::Configured<'c>>,
    /// The lanes of a block, where the code is for a device of many lanes.
    pub(crate) device: Option<super::lanes::Lanes>,
}

impl<'c, 'p> Emitter<'c, 'p> {
    /// The emission of one kernel at its beginning: on one thread, without masks and without lanes of a device.
    pub(crate) fn new(
        ir: &'p Ir<'c>,
        (program, target): (&'p Program, &'p Target),
        (symbol, function): (&'p str, FunctionValue<'c>),
        environment: Environment<'c>,
        buffers: HashMap<BufferId, PointerValue<'c>>,
    ) -> Self {
        Self {
            ir,
            program,
            target,
            symbol,
            function,
            environment,
            buffers,
            moves_pointers: false,
            loops: Vec::new(),
            streams: Vec::new(),
            mask: None,
            active: None,
            conditional: false,
            group: false,
            tasks: (ir.i64(0), ir.i64(0)),
            tiles: None,
            configured: Vec::new(),
            device: None,
        }
    }
}

impl<'c> Emitter<'c, '_> {
    pub(crate) fn unsupported(&self, message: impl Into<String>) -> CodegenError {
        CodegenError::Unsupported { symbol: self.symbol.to_string(), message: message.into() }
    }

    /// One block, where it is realized.
    pub(crate) fn realize(&mut self, realize: &Realize) -> Result<()> {
        let block = &self.program.blocks[realize.block];
        let bindings: HashMap<VarId, Expr> = block
            .iterators
            .iter()
            .zip(&realize.bindings)
            .map(|(iterator, binding)| (iterator.var, self.environment.simplify(binding)))
            .collect();
        let Some(predicate) = &realize.predicate else {
            return self.store_block(realize, &bindings);
        };
        let predicate = self.environment.simplify(predicate);
        match predicate_value(&predicate) {
            Some(true) => self.store_block(realize, &bindings),
            Some(false) => Ok(()),
            None => {
                let condition = self.value(&predicate)?;
                self.guarded(condition, |emitter| emitter.store_block(realize, &bindings))
            }
        }
    }

    /// Runs `body` where `condition` is true: by a branch, or by a mask where it differs by lane.
    pub(crate) fn guarded(
        &mut self,
        condition: V<'c>,
        body: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        match condition {
            V::VectorValue(condition) => self.masked(condition, body),
            _ => {
                let then = self.ir.block(self.function, "then");
                let after = self.ir.block(self.function, "after");
                let condition = condition.into_int_value();
                self.ir.builder.build_conditional_branch(condition, then, after)?;
                self.ir.builder.position_at_end(then);
                body(self)?;
                self.ir.builder.build_unconditional_branch(after)?;
                self.ir.builder.position_at_end(after);
                Ok(())
            }
        }
    }

    /// Runs `body` with only those lanes active where `condition` is true.
    pub(crate) fn masked<R>(
        &mut self,
        condition: VectorValue<'c>,
        body: impl FnOnce(&mut Self) -> Result<R>,
    ) -> Result<R> {
        let outer = self.mask;
        self.mask = Some(match outer {
            Some(outer) => self.ir.builder.build_and(outer, condition, "")?,
            None => condition,
        });
        let was_conditional = std::mem::replace(&mut self.conditional, true);
        let result = body(self);
        self.mask = outer;
        self.conditional = was_conditional;
        result
    }

    fn store_block(&mut self, realize: &Realize, bindings: &HashMap<VarId, Expr>) -> Result<()> {
        let program = self.program;
        let block = &program.blocks[realize.block];
        let resolve = |emitter: &Self, expr: &Expr| {
            emitter.environment.simplify(&expr.substitute(&|var| bindings.get(&var).cloned()))
        };
        let indices: Vec<Expr> = block.indices.iter().map(|index| resolve(self, index)).collect();
        match &block.body {
            BlockBody::Map(value) => {
                let value = resolve(self, value);
                let value = self.value(&value)?;
                self.store_element(block.buffer, &indices, value)
            }
            BlockBody::Reduce { combiner, value, .. } => {
                let value = resolve(self, value);
                self.reduce(block.buffer, &indices, *combiner, &value)
            }
        }
    }

    /// `buffer[indices] = combine(buffer[indices], value)`
    fn reduce(
        &mut self,
        buffer: BufferId,
        indices: &[Expr],
        combiner: Combiner,
        value: &Expr,
    ) -> Result<()> {
        let dtype = self.program.buffers[buffer].dtype;
        let access = self.access(buffer, indices)?;
        if access.is_uniform() && self.environment.lanes().is_some() {
            let contribution = self.value(value)?;
            let contribution = self.across_lanes(combiner, dtype, contribution)?;
            let before = self.load_access(&access)?;
            let after = self.combine(combiner, dtype, before, contribution)?;
            return self.store_uniform(&access, after);
        }
        let after = match value {
            Expr::Binary(hone_tensor::BinaryOp::Multiply, a, b)
                if combiner == Combiner::Sum && dtype.is_float() =>
            {
                let (a, b) = (self.value(a)?, self.value(b)?);
                let before = self.load_access(&access)?;
                self.ir.multiply_add(a, b, before)?
            }
            _ => {
                let contribution = self.value(value)?;
                let before = self.load_access(&access)?;
                self.combine(combiner, dtype, before, contribution)?
            }
        };
        self.store_access(&access, after)
    }

    pub(crate) fn combine(
        &self,
        combiner: Combiner,
        dtype: DataType,
        a: V<'c>,
        b: V<'c>,
    ) -> Result<V<'c>> {
        use hone_tensor::BinaryOp::{Add, Maximum, Minimum, Multiply};
        let op = match combiner {
            Combiner::Sum => Add,
            Combiner::Product => Multiply,
            Combiner::Maximum => Maximum,
            Combiner::Minimum => Minimum,
        };
        self.arithmetic(op, dtype, a, b)
    }

    /// The combination of all active lanes, as a scalar.
    fn across_lanes(&self, combiner: Combiner, dtype: DataType, value: V<'c>) -> Result<V<'c>> {
        let Some(lanes) = self.environment.lanes() else { return Ok(value) };
        let mut value = self.ir.to_lanes(value, Some(lanes.width))?;
        if let Some(mask) = self.mask {
            let identity = self.constant(value.get_type(), combiner.identity(dtype))?;
            value = self.ir.select(mask.into(), value, identity)?;
        }
        let mut width = lanes.width;
        let identity = |emitter: &Self| {
            emitter.constant(emitter.ir.compute_type(dtype), combiner.identity(dtype))
        };
        while width > 1 {
            let V::VectorValue(vector) = value else { break };
            let half = width.div_ceil(2);
            let low: Vec<u32> = (0..half).collect();
            let high: Vec<u32> = (half..2 * half).collect();
            let mut upper = self.ir.shuffle(vector, &high)?;
            if width % 2 == 1 {
                upper = self.ir.insert(upper, identity(self)?, half - 1)?;
            }
            let lower = self.ir.shuffle(vector, &low)?;
            value = self.combine(combiner, dtype, lower.into(), upper.into())?;
            width = half;
        }
        match value {
            V::VectorValue(vector) => self.ir.extract(vector, 0),
            scalar => Ok(scalar),
        }
    }

    /// The value of a constant expression in every lane of `ty`.
    fn constant(&self, ty: super::ir::T<'c>, expr: Expr) -> Result<V<'c>> {
        match expr {
            Expr::Constant(value, dtype) => Ok(self.literal(ty, value, dtype)),
            _ => Err(self.unsupported("the identity of a reduction is no constant")),
        }
    }

    /// Whether reading `value`'s operands can never fault, so that it may be computed where it is
    /// not needed.
    pub(crate) fn is_safe(&self, expr: &Expr) -> bool {
        let safe = match expr {
            Expr::Load(buffer, indices) => {
                let shape = &self.program.buffers[*buffer].shape;
                indices.iter().zip(shape).all(|(index, extent)| {
                    self.environment
                        .bounds(&self.environment.simplify(index))
                        .is_some_and(|range| range.min >= 0 && range.max < *extent as i64)
                })
            }
            _ => true,
        };
        safe && expr.operands().into_iter().all(|operand| self.is_safe(operand))
    }

    /// Whether a value is so cheap that computing it needlessly beats a branch.
    pub(crate) fn is_cheap(expr: &Expr) -> bool {
        let cheap = match expr {
            Expr::Unary(op, _) => matches!(op, UnaryOp::Negate | UnaryOp::Abs | UnaryOp::Not),
            Expr::Binary(op, ..) => *op != hone_tensor::BinaryOp::Power,
            _ => true,
        };
        cheap && expr.operands().into_iter().all(Self::is_cheap)
    }
}
