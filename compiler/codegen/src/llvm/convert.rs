//! Conversions between element types, and between memory and computation.

use super::emitter::Emitter;
use super::ir::{T, V, scalar_of};
use crate::error::Result;
use hone_types::DataType;
use inkwell::values::InstructionOpcode as Op;
use inkwell::{FloatPredicate, IntPredicate};

impl<'c> Emitter<'c, '_> {
    /// Elements from memory, in the type they are computed in.
    pub(crate) fn computed(&self, dtype: DataType, raw: V<'c>) -> Result<V<'c>> {
        let ir = self.ir;
        match dtype {
            DataType::Bool => ir.compare_int(IntPredicate::NE, raw, ir.int(raw.get_type(), 0)),
            DataType::F16 => self.half_to_float(raw),
            DataType::BF16 => {
                let extended = ir.convert(Op::ZExt, raw, ir.context.i32_type().into())?;
                let bits = ir.binary(Op::Shl, extended, ir.int(extended.get_type(), 16))?;
                ir.convert(Op::BitCast, bits, ir.context.f32_type().into())
            }
            _ => Ok(raw),
        }
    }

    /// Computed elements in the form in which memory holds them.
    pub(crate) fn stored(&self, dtype: DataType, value: V<'c>) -> Result<V<'c>> {
        let ir = self.ir;
        match dtype {
            DataType::Bool => ir.convert(Op::ZExt, value, ir.context.i8_type().into()),
            DataType::F16 => self.float_to_half(value),
            DataType::BF16 => self.float_to_bfloat(value),
            _ => Ok(value),
        }
    }

    /// Conversion as ONNX `Cast` does it.
    pub(crate) fn cast(&self, from: DataType, to: DataType, value: V<'c>) -> Result<V<'c>> {
        if from == to {
            return Ok(value);
        }
        let ir = self.ir;
        let target = ir.compute_type(to);
        match (from, to) {
            (_, DataType::Bool) if from.is_float() => {
                ir.compare_float(FloatPredicate::UNE, value, ir.float(value.get_type(), 0.0))
            }
            (_, DataType::Bool) => {
                ir.compare_int(IntPredicate::NE, value, ir.int(value.get_type(), 0))
            }
            _ if from.is_float() && to.is_float() => self.cast_float(to, value),
            _ if from.is_float() => self.float_to_integer(to, value),
            _ if to.is_float() => {
                let op = if from.is_signed_integer() { Op::SIToFP } else { Op::UIToFP };
                let value = ir.convert(op, value, target)?;
                self.round_to(to, value)
            }
            _ if from.bytes() > to.bytes() => ir.convert(Op::Trunc, value, target),
            _ if from != DataType::Bool && from.bytes() == to.bytes() => Ok(value),
            _ if from.is_signed_integer() => ir.convert(Op::SExt, value, target),
            _ => ir.convert(Op::ZExt, value, target),
        }
    }

    fn cast_float(&self, to: DataType, value: V<'c>) -> Result<V<'c>> {
        let ir = self.ir;
        let double = scalar_of(value.get_type()) == ir.context.f64_type().into();
        let value = match (double, to == DataType::F64) {
            (true, false) => ir.convert(Op::FPTrunc, value, ir.context.f32_type().into())?,
            (false, true) => ir.convert(Op::FPExt, value, ir.context.f64_type().into())?,
            _ => value,
        };
        self.round_to(to, value)
    }

    /// A value computed in `f32`, rounded to what `to` can hold.
    fn round_to(&self, to: DataType, value: V<'c>) -> Result<V<'c>> {
        match to {
            // Without a fence: storing the result needs no second conversion.
            DataType::F16 if self.target.half_conversion => {
                let half = self.ir.convert(Op::FPTrunc, value, self.half_type())?;
                self.ir.convert(Op::FPExt, half, self.ir.context.f32_type().into())
            }
            DataType::F16 | DataType::BF16 => {
                let stored = self.stored(to, value)?;
                self.computed(to, stored)
            }
            _ => Ok(value),
        }
    }

    /// The bounds of a type of fewer bits than `f32`, where an instruction rounds and converts to integers.
    pub(crate) fn rounding_bounds(&self, to: DataType, from: DataType) -> Option<[f64; 2]> {
        let converts = ["x86_64", "aarch64"];
        let converts = converts.iter().any(|name| self.target.triple.starts_with(name));
        integers_of(to).filter(|_| converts && from == DataType::F32)
    }

    /// `value` rounded to nearest, ties to even, plus the whole number `added`, saturated to bounds, in 32 bits; NaN gives
    /// 0. Bounds are whole numbers, so that it is the same to apply them before rounding; and the sum is exact in
    /// integers.
    fn rounded_to_integer(
        &self,
        value: V<'c>,
        added: f64,
        [least, most]: [f64; 2],
    ) -> Result<V<'c>> {
        let ir = self.ir;
        let within = self.bounded(value, [least - added, most - added])?;
        let ty = ir.shaped(ir.context.i32_type().into(), within);
        let rounded = ir.intrinsic("llvm.lrint", &[ty, within.get_type()], &[within])?;
        let sum = ir.binary(Op::Add, rounded, ir.int(rounded.get_type(), added as i64))?;
        self.zero_where_nan(value, sum, least)
    }

    /// As [`Self::rounded_to_integer`], in the type `to` of few bits that the bounds are of. AVX-512 narrows unsigned
    /// integers with saturation, so that the upper bound is none for the float: its conversion gives 2^31 for all numbers
    /// that are too large, which is above the bound as an unsigned one.
    pub(crate) fn rounded_to_narrow(
        &self,
        to: DataType,
        value: V<'c>,
        added: f64,
        bounds: [f64; 2],
    ) -> Result<V<'c>> {
        let ir = self.ir;
        let saturates = self.target.has("x86_64", "avx512f")
            && super::ir::lanes(value) == Some(16)
            && bounds[0] == 0.0;
        if !saturates {
            let integer = self.rounded_to_integer(value, added, bounds)?;
            return ir.convert(Op::Trunc, integer, ir.compute_type(to));
        }
        let least = ir.float(value.get_type(), bounds[0] - added);
        let is_above = ir.compare_float(FloatPredicate::OGT, value, least)?;
        let above = ir.select(is_above, value, least)?;
        let ty = ir.shaped(ir.context.i32_type().into(), above);
        let all = ir.context.i16_type().const_all_ones().into();
        // The rounding that is set, to nearest.
        let args = [above, ir.int(ty, 0), all, ir.i32(4).into()];
        let rounded = ir.intrinsic("llvm.x86.avx512.mask.cvtps2dq.512", &[], &args)?;
        let sum = ir.binary(Op::Add, rounded, ir.int(ty, added as i64))?;
        let within = ir.binary_intrinsic("llvm.umin", sum, ir.int(ty, bounds[1] as i64))?;
        ir.convert(Op::Trunc, within, ir.compute_type(to))
    }

    /// As [`Self::rounded_to_integer`], in `f32`. Added to a number whose units in the last place are 1, a smaller one is
    /// rounded to nearest, and both differences are exact: two additions, in place of two conversions and one.
    pub(crate) fn rounded_to_float(
        &self,
        value: V<'c>,
        added: f64,
        bounds: [f64; 2],
    ) -> Result<V<'c>> {
        const UNITS: f64 = 12_582_912.0;
        let ir = self.ir;
        let [least, most] = bounds.map(|bound| bound - added);
        if bounds[0] != 0.0 || least.abs().max(most.abs()).max(added.abs()) > UNITS / 4.0 {
            let integer = self.rounded_to_integer(value, added, bounds)?;
            return self.cast(DataType::I32, DataType::F32, integer);
        }
        let within = self.bounded(value, [least, most])?;
        let ty = within.get_type();
        let rounded = ir.binary(Op::FAdd, within, ir.float(ty, UNITS))?;
        ir.binary(Op::FSub, rounded, ir.float(ty, UNITS - added))
    }

    /// Towards zero, saturating; NaN gives 0.
    fn float_to_integer(&self, to: DataType, value: V<'c>) -> Result<V<'c>> {
        if let Some(bounds) = integers_of(to) {
            return self.float_within(to, value, bounds);
        }
        match to {
            DataType::I32 if self.converts_at_same_width(value) => {
                self.float_within(to, value, [f64::from(i32::MIN), f64::from(i32::MAX)])
            }
            DataType::U32 if self.converts_at_same_width(value) => {
                self.float_within(to, value, [0.0, f64::from(u32::MAX)])
            }
            _ => self.float_to_saturated_integer(to, value),
        }
    }

    /// Whether a float is converted to an integer of the same width first. On RISC-V that needs no change of
    /// the vectors' configuration, behind which QEMU 7.2 ends on such a conversion with a failed assertion
    /// (its issue 1441).
    fn converts_at_same_width(&self, value: V<'c>) -> bool {
        let double = scalar_of(value.get_type()) == self.ir.context.f64_type().into();
        double && self.target.triple.starts_with("riscv64")
    }

    /// By way of 32 bits, which there is one instruction for when the value is known to be within bounds;
    /// LLVM's saturating conversion to fewer goes element by element.
    fn float_within(&self, to: DataType, value: V<'c>, bounds: [f64; 2]) -> Result<V<'c>> {
        let ir = self.ir;
        let within = self.bounded(value, bounds)?;
        let between = match self.converts_at_same_width(value) {
            true => ir.context.i64_type(),
            false => ir.context.i32_type(),
        };
        let exact = ir.convert(Op::FPToSI, within, between.into())?;
        let integer = ir.convert(Op::Trunc, exact, ir.compute_type(to))?;
        self.zero_where_nan(value, integer, bounds[0])
    }

    /// `value` within bounds; NaN becomes the smallest.
    fn bounded(&self, value: V<'c>, bounds: [f64; 2]) -> Result<V<'c>> {
        let ir = self.ir;
        let [minimum, maximum] = bounds.map(|bound| ir.float(value.get_type(), bound));
        // In this form they are one instruction each.
        let is_above = ir.compare_float(FloatPredicate::OGT, value, minimum)?;
        let above = ir.select(is_above, value, minimum)?;
        let is_below = ir.compare_float(FloatPredicate::OLT, above, maximum)?;
        ir.select(is_below, above, maximum)
    }

    /// `integer`, and 0 where `value` is NaN, for which it is `least`.
    fn zero_where_nan(&self, value: V<'c>, integer: V<'c>, least: f64) -> Result<V<'c>> {
        if least == 0.0 {
            return Ok(integer);
        }
        let ir = self.ir;
        let is_nan = ir.compare_float(FloatPredicate::UNO, value, value)?;
        ir.select(is_nan, ir.int(integer.get_type(), 0), integer)
    }

    fn float_to_saturated_integer(&self, to: DataType, value: V<'c>) -> Result<V<'c>> {
        let name = if to.is_signed_integer() { "llvm.fptosi.sat" } else { "llvm.fptoui.sat" };
        let ty = self.ir.shaped(self.ir.compute_type(to), value);
        self.ir.intrinsic(name, &[ty, value.get_type()], &[value])
    }

    /// `f32` to bfloat16 bits, to nearest, ties to even; NaN stays NaN. The instruction for it takes
    /// subnormal numbers for zero.
    fn float_to_bfloat(&self, value: V<'c>) -> Result<V<'c>> {
        let ir = self.ir;
        if self.target.bfloat_conversion && super::ir::lanes(value).is_some() {
            let rounded = ir.convert(Op::FPTrunc, value, ir.context.bf16_type().into())?;
            return ir.convert(Op::BitCast, rounded, ir.context.i16_type().into());
        }
        let bits = ir.convert(Op::BitCast, value, ir.context.i32_type().into())?;
        let ty = bits.get_type();
        let high = ir.binary(Op::LShr, bits, ir.int(ty, 16))?;
        let odd = ir.binary(Op::And, high, ir.int(ty, 1))?;
        let bias = ir.binary(Op::Add, odd, ir.int(ty, 0x7fff))?;
        let rounded = ir.binary(Op::Add, bits, bias)?;
        let rounded = ir.binary(Op::LShr, rounded, ir.int(ty, 16))?;
        let quiet = ir.binary(Op::Or, high, ir.int(ty, 0x40))?;
        let nan = ir.compare_float(FloatPredicate::UNO, value, value)?;
        let chosen = ir.select(nan, quiet, rounded)?;
        ir.convert(Op::Trunc, chosen, ir.context.i16_type().into())
    }

    fn half_type(&self) -> T<'c> {
        self.ir.context.f16_type().into()
    }

    fn half_to_float(&self, raw: V<'c>) -> Result<V<'c>> {
        let ir = self.ir;
        let float = ir.context.f32_type().into();
        if self.target.half_conversion {
            let half = ir.convert(Op::BitCast, raw, self.half_type())?;
            let float = ir.convert(Op::FPExt, half, float)?;
            // NVIDIA's devices compute in `half` as quickly, and LLVM drops what passes a fence there.
            if self.target.is_nvptx() {
                return Ok(float);
            }
            // Without the fence LLVM compares and adds in `half` where that gives the same, and then has
            // no vector instructions for it.
            return ir.unary_intrinsic("llvm.arithmetic.fence", float);
        }
        // Normal numbers: exponent and fraction move up by 13 bits, and the bias changes by 112. Subnormal
        // ones are the fraction of a number from 2^-14 on, minus 2^-14; no subnormal `f32` occurs on the
        // way, which kernels flush to zero. Infinities and NaN have the maximum exponent in both forms.
        let extended = ir.convert(Op::ZExt, raw, ir.context.i32_type().into())?;
        let ty = extended.get_type();
        let magnitude = ir.binary(Op::And, extended, ir.int(ty, 0x7fff))?;
        let sign = ir.binary(Op::And, extended, ir.int(ty, 0x8000))?;
        let sign = ir.binary(Op::Shl, sign, ir.int(ty, 16))?;
        let moved = ir.binary(Op::Shl, magnitude, ir.int(ty, 13))?;
        let normal = ir.binary(Op::Add, moved, ir.int(ty, 112 << 23))?;
        let above = ir.binary(Op::Add, moved, ir.int(ty, 113 << 23))?;
        let above = ir.convert(Op::BitCast, above, float)?;
        let smallest_normal = ir.float(above.get_type(), 2f64.powi(-14));
        let fraction = ir.binary(Op::FSub, above, smallest_normal)?;
        let fraction = ir.convert(Op::BitCast, fraction, ir.context.i32_type().into())?;
        let is_subnormal = ir.compare_int(IntPredicate::ULT, magnitude, ir.int(ty, 0x400))?;
        let bits = ir.select(is_subnormal, fraction, normal)?;
        let special = ir.binary(Op::Or, moved, ir.int(ty, 0x7f80_0000))?;
        let is_special = ir.compare_int(IntPredicate::UGE, magnitude, ir.int(ty, 0x7c00))?;
        let bits = ir.select(is_special, special, bits)?;
        let bits = ir.binary(Op::Or, bits, sign)?;
        ir.convert(Op::BitCast, bits, float)
    }

    fn float_to_half(&self, value: V<'c>) -> Result<V<'c>> {
        let ir = self.ir;
        let short = ir.context.i16_type().into();
        if self.target.half_conversion {
            let half = ir.convert(Op::FPTrunc, value, self.half_type())?;
            return ir.convert(Op::BitCast, half, short);
        }
        let bits = ir.convert(Op::BitCast, value, ir.context.i32_type().into())?;
        let ty = bits.get_type();
        let sign = ir.binary(Op::LShr, bits, ir.int(ty, 16))?;
        let sign = ir.binary(Op::And, sign, ir.int(ty, 0x8000))?;
        let magnitude = ir.binary(Op::And, bits, ir.int(ty, 0x7fff_ffff))?;
        // Normal numbers: rebias, then round the 13 bits away, ties to even.
        let odd = ir.binary(Op::LShr, magnitude, ir.int(ty, 13))?;
        let odd = ir.binary(Op::And, odd, ir.int(ty, 1))?;
        let bias = ir.int(ty, 0xfff - (112 << 23));
        let normal = ir.binary(Op::Add, magnitude, bias)?;
        let normal = ir.binary(Op::Add, normal, odd)?;
        let normal = ir.binary(Op::LShr, normal, ir.int(ty, 13))?;
        // Subnormal ones: adding 0.5 lines the fraction up and rounds it.
        let float = ir.convert(Op::BitCast, magnitude, ir.context.f32_type().into())?;
        let half = ir.float(float.get_type(), 0.5);
        let lined = ir.binary(Op::FAdd, float, half)?;
        let lined = ir.convert(Op::BitCast, lined, ir.context.i32_type().into())?;
        let subnormal = ir.binary(Op::Sub, lined, ir.int(ty, 0x3f00_0000))?;
        let is_subnormal = ir.compare_int(IntPredicate::ULT, magnitude, ir.int(ty, 0x3880_0000))?;
        let finite = ir.select(is_subnormal, subnormal, normal)?;
        // From 65520 on the nearest is infinity; NaN keeps its upper bits and becomes quiet.
        let infinite = ir.compare_int(IntPredicate::UGE, magnitude, ir.int(ty, 0x477f_f000))?;
        let bounded = ir.select(infinite, ir.int(ty, 0x7c00), finite)?;
        let payload = ir.binary(Op::LShr, magnitude, ir.int(ty, 13))?;
        let payload = ir.binary(Op::And, payload, ir.int(ty, 0x3ff))?;
        let quiet = ir.binary(Op::Or, payload, ir.int(ty, 0x7e00))?;
        let nan = ir.compare_float(FloatPredicate::UNO, value, value)?;
        let magnitude = ir.select(nan, quiet, bounded)?;
        let whole = ir.binary(Op::Or, magnitude, sign)?;
        ir.convert(Op::Trunc, whole, short)
    }
}

/// The smallest and the largest integer of a type of 8 or 16 bits.
fn integers_of(dtype: DataType) -> Option<[f64; 2]> {
    match dtype {
        DataType::I8 => Some([-128.0, 127.0]),
        DataType::U8 => Some([0.0, 255.0]),
        DataType::I16 => Some([-32_768.0, 32_767.0]),
        DataType::U16 => Some([0.0, 65_535.0]),
        _ => None,
    }
}
