//! Expressions to values.
//!
//! A value that is the same in all lanes stays a scalar until it meets one that is not.

use super::emitter::Emitter;
use super::environment::Binding;
use super::ir::{T, V, lanes, scalar_of};
use crate::error::Result;
use crate::prepare::predicate_value;
use hone_tensor::{BinaryOp, Expr, Range, UnaryOp};
use hone_types::DataType;
use inkwell::values::{BasicValue, InstructionOpcode as Op, IntValue, VectorValue};
use inkwell::{FloatPredicate, IntPredicate};
use std::num::NonZero;

impl<'c> Emitter<'c, '_> {
    /// A simplified index whose value is the same in all lanes.
    pub(crate) fn index(&mut self, expr: &Expr) -> Result<IntValue<'c>> {
        match self.value(expr)? {
            V::IntValue(value) => Ok(value),
            // An element that a condition guards was read by each lane that is on: the same one.
            V::VectorValue(values) if values.get_type().get_element_type().is_int_type() => {
                self.in_active_lane(values)
            }
            _ => {
                let index = crate::text::index(self.program, expr);
                Err(self.unsupported(format!("the index '{index}' has no single integer value")))
            }
        }
    }

    /// What the first lane that is on holds; the last lane where none is.
    fn in_active_lane(&mut self, values: VectorValue<'c>) -> Result<IntValue<'c>> {
        let Some(mask) = self.mask else {
            return Ok(self.ir.extract(values, 0)?.into_int_value());
        };
        let (builder, width) = (&self.ir.builder, values.get_type().get_size());
        let bits = NonZero::new(width)
            .and_then(|width| self.ir.context.custom_width_int_type(width).ok())
            .ok_or_else(|| self.unsupported("a vector has no lanes"))?;
        let mask = builder.build_bit_cast(mask, bits, "")?;
        let is_zero_poison = self.ir.context.bool_type().const_zero();
        let first =
            self.ir.intrinsic("llvm.cttz", &[bits.into()], &[mask, is_zero_poison.into()])?;
        let first = builder.build_int_cast_sign_flag(
            first.into_int_value(),
            self.ir.context.i32_type(),
            false,
            "",
        )?;
        let last = self.ir.i32(width as i32 - 1);
        let is_lane = builder.build_int_compare(IntPredicate::ULT, first, last, "")?;
        let lane = builder.build_select(is_lane, first, last, "")?.into_int_value();
        Ok(builder.build_extract_element(values, lane, "")?.into_int_value())
    }

    /// The value of a simplified expression, in the type its elements are computed in.
    pub(crate) fn value(&mut self, expr: &Expr) -> Result<V<'c>> {
        match expr {
            Expr::Integer(value) => Ok(self.ir.i64(*value).into()),
            Expr::Constant(value, dtype) => {
                Ok(self.literal(self.ir.compute_type(*dtype), *value, *dtype))
            }
            Expr::Var(var) => match self.environment.get(*var) {
                Some(Binding::Constant(value)) => Ok(self.ir.i64(value).into()),
                Some(Binding::Running(value, _)) => Ok(value.into()),
                Some(Binding::Lanes(lanes)) => Ok(self.ir.iota(lanes.first, lanes.width)),
                None => Err(self.unsupported(format!(
                    "variable '{}' is used outside its loop",
                    crate::text::index(self.program, expr)
                ))),
            },
            Expr::Load(_, indices) if self.parts_differ(indices) => {
                let Some(lanes) = self.grouped() else { return self.element(expr) };
                let parts = self.by_register(lanes, |emitter, _| emitter.element(expr))?;
                self.joined(parts)
            }
            Expr::Load(buffer, indices) => {
                let access = self.access(*buffer, indices)?;
                self.load_access(&access)
            }
            Expr::Unary(op, operand) => {
                let dtype = operand.dtype(self.program);
                let operand = self.value(operand)?;
                self.unary(*op, dtype, operand)
            }
            Expr::Binary(op, left, right) => self.binary(*op, left, right),
            Expr::Select(condition, then, otherwise) => self.choose(condition, then, otherwise),
            Expr::Cast(to, operand) => {
                let from = operand.dtype(self.program);
                if let Some((rounding, bounds)) = self.quantized(*to, operand) {
                    let value = self.value(rounding.operand)?;
                    return self.rounded_to_narrow(*to, value, rounding.added, bounds);
                }
                // What was quantized need not be narrowed and extended again.
                if let (Expr::Cast(narrow, inner), DataType::F32) = (&**operand, to)
                    && let Some((rounding, bounds)) = self.quantized(*narrow, inner)
                {
                    let value = self.value(rounding.operand)?;
                    return self.rounded_to_float(value, rounding.added, bounds);
                }
                let operand = self.value(operand)?;
                self.cast(from, *to, operand)
            }
        }
    }

    /// What a conversion of `operand` to `to` rounds to nearest, and the bounds of `to`, where one instruction rounds and
    /// converts.
    fn quantized<'e>(&self, to: DataType, operand: &'e Expr) -> Option<(Rounding<'e>, [f64; 2])> {
        let rounding = rounded(operand)?;
        let bounds = self.rounding_bounds(to, rounding.operand.dtype(self.program))?;
        Some((rounding, bounds))
    }

    /// `value`, of element type `dtype`, in every lane of `ty`.
    pub(crate) fn literal(&self, ty: T<'c>, value: f64, dtype: DataType) -> V<'c> {
        match dtype {
            DataType::F16 => self.ir.float(ty, crate::round::to_f16(value)),
            DataType::BF16 => self.ir.float(ty, crate::round::to_bf16(value)),
            _ if dtype.is_float() => self.ir.float(ty, value),
            DataType::Bool => self.ir.int(ty, i64::from(value != 0.0)),
            DataType::U64 => self.ir.int(ty, (value as u64).cast_signed()),
            _ => self.ir.int(ty, value as i64),
        }
    }

    fn binary(&mut self, op: BinaryOp, left: &Expr, right: &Expr) -> Result<V<'c>> {
        let dtype = left.dtype(self.program);
        if let Some(fused) = self.fused(op, dtype, left, right)? {
            return Ok(fused);
        }
        if let (BinaryOp::Power, Expr::Constant(exponent, _)) = (op, right)
            && dtype.is_float()
            && matches!(*exponent, 1.0 | 2.0 | 3.0 | 4.0)
        {
            let a = self.value(left)?;
            return self.small_power(a, *exponent as u32);
        }
        let unsigned = matches!(op, BinaryOp::FloorDivide | BinaryOp::Modulo)
            && dtype == DataType::I64
            && right.as_integer().is_some_and(|divisor| divisor > 0)
            && self.environment.bounds(left).is_some_and(|range| range.min >= 0);
        let (a, b) = (self.value(left)?, self.value(right)?);
        if unsigned {
            let op = if op == BinaryOp::FloorDivide { Op::UDiv } else { Op::URem };
            return self.ir.binary(op, a, b);
        }
        self.arithmetic(op, dtype, a, b)
    }

    /// `a` to the power of 1 to 4, by products: within two units in the last place.
    fn small_power(&self, a: V<'c>, exponent: u32) -> Result<V<'c>> {
        if exponent == 1 {
            return Ok(a);
        }
        let square = self.ir.mul(a, a)?;
        match exponent {
            2 => Ok(square),
            3 => self.ir.mul(square, a),
            _ => self.ir.mul(square, square),
        }
    }

    /// `a * b + c` and `c + a * b` of floats, in one instruction.
    fn fused(
        &mut self,
        op: BinaryOp,
        dtype: DataType,
        left: &Expr,
        right: &Expr,
    ) -> Result<Option<V<'c>>> {
        if op != BinaryOp::Add || !dtype.is_float() {
            return Ok(None);
        }
        let (a, b, addend) = match (left, right) {
            (Expr::Binary(BinaryOp::Multiply, a, b), addend)
            | (addend, Expr::Binary(BinaryOp::Multiply, a, b)) => (a, b, addend),
            _ => return Ok(None),
        };
        let (a, b, addend) = (self.value(a)?, self.value(b)?, self.value(addend)?);
        self.ir.multiply_add(a, b, addend).map(Some)
    }

    /// `if condition { then } else { otherwise }`; a side whose reads might leave their buffer is
    /// evaluated only where it is chosen.
    fn choose(&mut self, condition: &Expr, then: &Expr, otherwise: &Expr) -> Result<V<'c>> {
        let chosen = self.value(condition)?;
        let safe = self.is_safe(then) && self.is_safe(otherwise);
        if let V::VectorValue(mask) = chosen {
            if safe {
                let (then, otherwise) = (self.value(then)?, self.value(otherwise)?);
                return self.ir.select(chosen, then, otherwise);
            }
            let then = self.chosen_lanes(condition, mask, then)?;
            let inverse = self.ir.builder.build_not(mask, "")?;
            let otherwise = self.masked(inverse, |emitter| emitter.value(otherwise))?;
            return self.ir.select(chosen, then, otherwise);
        }
        let (load, converted) = match then {
            Expr::Cast(to, load) => (&**load, Some(*to)),
            load => (load, None),
        };
        if let (Expr::Load(buffer, indices), Expr::Constant(..), false) = (load, otherwise, safe)
            && let Some(mut read) = self.load_where(chosen, *buffer, indices)?
        {
            if let Some(to) = converted {
                read = self.cast(load.dtype(self.program), to, read)?;
            }
            let otherwise = self.value(otherwise)?;
            let chosen = self.ir.to_lanes(chosen, lanes(read))?;
            return self.ir.select(chosen, read, otherwise);
        }
        if safe && Self::is_cheap(then) && Self::is_cheap(otherwise) {
            let (then, otherwise) = (self.value(then)?, self.value(otherwise)?);
            return self.ir.select(chosen, then, otherwise);
        }
        self.branch(chosen.into_int_value(), then, otherwise)
    }

    /// A value in the lanes that satisfy a condition.
    fn chosen_lanes(
        &mut self,
        condition: &Expr,
        mask: VectorValue<'c>,
        then: &Expr,
    ) -> Result<V<'c>> {
        self.active = if self.mask.is_none() { self.known_lanes(condition) } else { None };
        let value = self.masked(mask, |emitter| emitter.value(then));
        self.active = None;
        value
    }

    /// The lanes that satisfy a condition, where that does not depend on running variables.
    fn known_lanes(&self, condition: &Expr) -> Option<Vec<bool>> {
        let lanes = self.environment.lanes()?;
        let selects = |lane: u32| {
            let value = lanes.first + i64::from(lane);
            let known = |var| (var == lanes.var).then(|| Range::point(value));
            predicate_value(&self.environment.simplify_under(condition, &known))
        };
        let mut mask: Vec<bool> = (0..lanes.count).map(selects).collect::<Option<_>>()?;
        mask.resize(lanes.width as usize, false);
        mask.contains(&true).then_some(mask)
    }

    fn branch(&mut self, condition: IntValue<'c>, then: &Expr, otherwise: &Expr) -> Result<V<'c>> {
        let start = self.ir.block(self.function, "then");
        let other = self.ir.block(self.function, "else");
        let after = self.ir.block(self.function, "chosen");
        self.ir.builder.build_conditional_branch(condition, start, other)?;
        self.ir.builder.position_at_end(start);
        let mut chosen = self.value(then)?;
        let mut chosen_end = self.ir.here()?;
        self.ir.builder.position_at_end(other);
        let mut rejected = self.value(otherwise)?;
        let rejected_end = self.ir.here()?;
        rejected = self.ir.to_lanes(rejected, lanes(chosen))?;
        self.ir.builder.build_unconditional_branch(after)?;
        self.ir.builder.position_at_end(chosen_end);
        chosen = self.ir.to_lanes(chosen, lanes(rejected))?;
        chosen_end = self.ir.here()?;
        self.ir.builder.build_unconditional_branch(after)?;
        self.ir.builder.position_at_end(after);
        let phi = self.ir.builder.build_phi(chosen.get_type(), "")?;
        phi.add_incoming(&[
            (&chosen as &dyn BasicValue<'c>, chosen_end),
            (&rejected as &dyn BasicValue<'c>, rejected_end),
        ]);
        Ok(phi.as_basic_value())
    }

    /// An operation on one value of element type `dtype`.
    pub(crate) fn unary(&self, op: UnaryOp, dtype: DataType, a: V<'c>) -> Result<V<'c>> {
        let ir = self.ir;
        let float = dtype.is_float();
        match op {
            UnaryOp::Negate if float => ir.negate(a),
            UnaryOp::Negate => ir.binary(Op::Sub, ir.int(a.get_type(), 0), a),
            UnaryOp::Abs if float => ir.unary_intrinsic("llvm.fabs", a),
            UnaryOp::Abs if dtype.is_signed_integer() => {
                let bit = ir.context.bool_type().const_zero().into();
                ir.intrinsic("llvm.abs", &[a.get_type()], &[a, bit])
            }
            UnaryOp::Abs => Ok(a),
            UnaryOp::Not => {
                let ones = ir.int(a.get_type(), -1);
                ir.binary(Op::Xor, a, ones)
            }
            UnaryOp::IsNan if float => ir.compare_float(FloatPredicate::UNO, a, a),
            UnaryOp::IsInfinite if float => {
                let magnitude = ir.unary_intrinsic("llvm.fabs", a)?;
                let infinity = ir.float(a.get_type(), f64::INFINITY);
                ir.compare_float(FloatPredicate::OEQ, magnitude, infinity)
            }
            UnaryOp::IsNan | UnaryOp::IsInfinite => {
                let bit = ir.context.bool_type().into();
                Ok(ir.int(ir.shaped(bit, a), 0))
            }
            UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round | UnaryOp::Truncate if !float => Ok(a),
            _ if !float => Err(self.unsupported(format!("{op:?} of {dtype} values: cast first"))),
            _ => self.math(op, a),
        }
    }

    /// An operation on two values of element type `dtype`.
    pub(crate) fn arithmetic(
        &self,
        op: BinaryOp,
        dtype: DataType,
        a: V<'c>,
        b: V<'c>,
    ) -> Result<V<'c>> {
        let (a, b) = self.ir.unify(a, b)?;
        if dtype.is_float() {
            self.float_arithmetic(op, a, b)
        } else {
            self.integer_arithmetic(op, dtype, a, b)
        }
    }

    fn float_arithmetic(&self, op: BinaryOp, a: V<'c>, b: V<'c>) -> Result<V<'c>> {
        let ir = self.ir;
        match op {
            BinaryOp::Add => ir.binary(Op::FAdd, a, b),
            BinaryOp::Subtract => ir.binary(Op::FSub, a, b),
            BinaryOp::Multiply => ir.binary(Op::FMul, a, b),
            BinaryOp::Divide => ir.binary(Op::FDiv, a, b),
            BinaryOp::FloorDivide => {
                let quotient = ir.binary(Op::FDiv, a, b)?;
                self.math(UnaryOp::Floor, quotient)
            }
            BinaryOp::Remainder => self.float_remainder(a, b),
            BinaryOp::Modulo => self.float_modulo(a, b),
            BinaryOp::Minimum => self.float_extreme(FloatPredicate::OLT, "llvm.minimum", a, b),
            BinaryOp::Maximum => self.float_extreme(FloatPredicate::OGT, "llvm.maximum", a, b),
            BinaryOp::Power => self.power(a, b),
            BinaryOp::Equal => ir.compare_float(FloatPredicate::OEQ, a, b),
            BinaryOp::Less => ir.compare_float(FloatPredicate::OLT, a, b),
            BinaryOp::LessEqual => ir.compare_float(FloatPredicate::OLE, a, b),
            _ => Err(self.unsupported(format!("{op:?} of floating-point values: cast first"))),
        }
    }

    /// The smaller or larger; NaN where either is NaN. On x86 the processor's instruction gives
    /// its second operand where either is NaN, which is right when the first is a known number.
    fn float_extreme(
        &self,
        better: FloatPredicate,
        name: &str,
        a: V<'c>,
        b: V<'c>,
    ) -> Result<V<'c>> {
        let ir = self.ir;
        // NVIDIA's devices have an instruction that keeps NaN from sm_80 on, and for `f32` alone.
        let native = self.target.cpu != "sm_75" && !ir.is_double(a);
        let chooses =
            self.target.triple.starts_with("x86_64") || (self.target.is_nvptx() && !native);
        if !chooses {
            return ir.binary_intrinsic(name, a, b);
        }
        let (a, b) = if is_constant(b) { (b, a) } else { (a, b) };
        let chosen = match self.native_extreme(better, a, b)? {
            Some(chosen) => chosen,
            None => ir.select(ir.compare_float(better, a, b)?, a, b)?,
        };
        if is_constant(a) {
            return Ok(chosen);
        }
        let nan = ir.compare_float(FloatPredicate::UNO, a, a)?;
        ir.select(nan, a, chosen)
    }

    /// The x86 instruction for the extreme of two registers, as an intrinsic: written as a choice, it
    /// would be merged with the one that follows it.
    fn native_extreme(&self, better: FloatPredicate, a: V<'c>, b: V<'c>) -> Result<Option<V<'c>>> {
        let (a, b) = self.ir.unify(a, b)?;
        let single = scalar_of(a.get_type()) == self.ir.context.f32_type().into();
        let bytes = 4 * lanes(a).unwrap_or(0) as usize;
        if !single || is_constant(a) || bytes > self.target.vector_bytes {
            return Ok(None);
        }
        let kind = if better == FloatPredicate::OGT { "max" } else { "min" };
        let default_rounding: V<'c> = self.ir.i32(4).into();
        let (name, args) = match bytes {
            64 => (format!("llvm.x86.avx512.{kind}.ps.512"), vec![a, b, default_rounding]),
            32 => (format!("llvm.x86.avx.{kind}.ps.256"), vec![a, b]),
            16 => (format!("llvm.x86.sse.{kind}.ps"), vec![a, b]),
            _ => return Ok(None),
        };
        self.ir.intrinsic(&name, &[], &args).map(Some)
    }

    fn integer_arithmetic(
        &self,
        op: BinaryOp,
        dtype: DataType,
        a: V<'c>,
        b: V<'c>,
    ) -> Result<V<'c>> {
        let ir = self.ir;
        let signed = dtype.is_signed_integer();
        let pick = |signed_op, unsigned_op| if signed { signed_op } else { unsigned_op };
        match op {
            BinaryOp::Add if dtype == DataType::Bool => ir.binary(Op::Or, a, b),
            BinaryOp::Multiply if dtype == DataType::Bool => ir.binary(Op::And, a, b),
            BinaryOp::Add => ir.binary(Op::Add, a, b),
            BinaryOp::Subtract => ir.binary(Op::Sub, a, b),
            BinaryOp::Multiply => ir.binary(Op::Mul, a, b),
            BinaryOp::Divide | BinaryOp::Remainder | BinaryOp::FloorDivide | BinaryOp::Modulo => {
                self.integer_division(op, signed, a, b)
            }
            BinaryOp::Minimum => {
                let less = pick(IntPredicate::SLT, IntPredicate::ULT);
                ir.select(ir.compare_int(less, a, b)?, a, b)
            }
            BinaryOp::Maximum => {
                let more = pick(IntPredicate::SGT, IntPredicate::UGT);
                ir.select(ir.compare_int(more, a, b)?, a, b)
            }
            BinaryOp::Equal => ir.compare_int(IntPredicate::EQ, a, b),
            BinaryOp::Less => ir.compare_int(pick(IntPredicate::SLT, IntPredicate::ULT), a, b),
            BinaryOp::LessEqual => ir.compare_int(pick(IntPredicate::SLE, IntPredicate::ULE), a, b),
            BinaryOp::And => ir.binary(Op::And, a, b),
            BinaryOp::Or => ir.binary(Op::Or, a, b),
            BinaryOp::Xor => ir.binary(Op::Xor, a, b),
            BinaryOp::ShiftLeft => self.shift(Op::Shl, a, b),
            BinaryOp::ShiftRight => self.shift(if signed { Op::AShr } else { Op::LShr }, a, b),
            BinaryOp::Power => self.integer_power(a, b),
        }
    }

    /// Shifts by the width and more give 0 (all copies of the sign, to the right).
    fn shift(&self, op: Op, a: V<'c>, b: V<'c>) -> Result<V<'c>> {
        let ir = self.ir;
        let T::IntType(int) = scalar_of(a.get_type()) else { return Ok(a) };
        let bits = i64::from(int.get_bit_width());
        let inside = ir.compare_int(IntPredicate::ULT, b, ir.int(b.get_type(), bits))?;
        let amount = ir.select(inside, b, ir.int(b.get_type(), bits - 1))?;
        let shifted = ir.binary(op, a, amount)?;
        if op == Op::AShr {
            Ok(shifted)
        } else {
            ir.select(inside, shifted, ir.int(a.get_type(), 0))
        }
    }

    /// Division without traps: by zero gives 0 (remainders: the dividend); the minimum by -1
    /// wraps to itself.
    fn integer_division(&self, op: BinaryOp, signed: bool, a: V<'c>, b: V<'c>) -> Result<V<'c>> {
        let ir = self.ir;
        let ty = a.get_type();
        let (zero, one) = (ir.int(ty, 0), ir.int(ty, 1));
        let by_zero = ir.compare_int(IntPredicate::EQ, b, zero)?;
        let mut bad = by_zero;
        if signed {
            let by_minus_one = ir.compare_int(IntPredicate::EQ, b, ir.int(ty, -1))?;
            let T::IntType(int) = scalar_of(ty) else { return Ok(a) };
            let minimum = ir.int(ty, i64::MIN >> (64 - int.get_bit_width()));
            let is_minimum = ir.compare_int(IntPredicate::EQ, a, minimum)?;
            let overflow = ir.binary(Op::And, by_minus_one, is_minimum)?;
            bad = ir.binary(Op::Or, bad, overflow)?;
        }
        let divisor = ir.select(bad, one, b)?;
        let quotient = ir.binary(if signed { Op::SDiv } else { Op::UDiv }, a, divisor)?;
        let remainder = || -> Result<V<'c>> {
            let product = ir.binary(Op::Mul, quotient, b)?;
            ir.binary(Op::Sub, a, product)
        };
        let floored = |quotient: V<'c>| -> Result<(V<'c>, V<'c>)> {
            let remainder = remainder()?;
            let inexact = ir.compare_int(IntPredicate::NE, remainder, zero)?;
            let signs = ir.binary(Op::Xor, remainder, b)?;
            let opposed = ir.compare_int(IntPredicate::SLT, signs, zero)?;
            let down = ir.binary(Op::And, inexact, opposed)?;
            let lower = ir.binary(Op::Sub, quotient, one)?;
            let moved = ir.binary(Op::Add, remainder, b)?;
            Ok((ir.select(down, lower, quotient)?, ir.select(down, moved, remainder)?))
        };
        match op {
            BinaryOp::Divide => ir.select(by_zero, zero, quotient),
            BinaryOp::Remainder => remainder(),
            BinaryOp::FloorDivide => {
                let quotient = if signed { floored(quotient)?.0 } else { quotient };
                ir.select(by_zero, zero, quotient)
            }
            _ if signed => Ok(floored(quotient)?.1),
            _ => remainder(),
        }
    }

    /// Wrapping power by repeated squaring; a negative exponent gives 0, or ±1 of ±1.
    fn integer_power(&self, a: V<'c>, b: V<'c>) -> Result<V<'c>> {
        let ir = self.ir;
        let ty = a.get_type();
        let T::IntType(int) = scalar_of(ty) else { return Ok(a) };
        let (zero, one) = (ir.int(ty, 0), ir.int(ty, 1));
        let (mut result, mut square) = (one, a);
        for bit in 0..int.get_bit_width() {
            let set = ir.binary(Op::And, b, ir.int(ty, 1i64.wrapping_shl(bit)))?;
            let set = ir.compare_int(IntPredicate::NE, set, zero)?;
            let product = ir.binary(Op::Mul, result, square)?;
            result = ir.select(set, product, result)?;
            square = ir.binary(Op::Mul, square, square)?;
        }
        Ok(result)
    }
}

/// Whether a value is a constant (of which the programs here have no NaN but by intent).
fn is_constant(value: V) -> bool {
    match value {
        V::FloatValue(value) => {
            value.is_const() && !value.get_constant().is_none_or(|(v, _)| v.is_nan())
        }
        V::VectorValue(value) => value.is_const(),
        _ => false,
    }
}

/// Numbers of 16 bits are exact in `f32` with more than this added.
const MAX_ADDED: f64 = 65_536.0;

/// What an expression rounds to nearest, and the whole number that it then adds, where it is of that form.
fn rounded(expr: &Expr) -> Option<Rounding<'_>> {
    let (expr, added) = match expr {
        Expr::Binary(BinaryOp::Add, expr, added) => match **added {
            Expr::Constant(added, _) if added.fract() == 0.0 && added.abs() <= MAX_ADDED => {
                (&**expr, added)
            }
            _ => return None,
        },
        expr => (expr, 0.0),
    };
    match expr {
        Expr::Unary(UnaryOp::Round, operand) => Some(Rounding { operand, added }),
        _ => None,
    }
}

/// What is rounded to nearest, and the whole number that is added to it.
struct Rounding<'e> {
    operand: &'e Expr,
    added: f64,
}
