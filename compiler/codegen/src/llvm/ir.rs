//! Instructions over scalars and vectors alike.
//!
//! A value is a [`V`]: a scalar or a vector of scalars. Operations take operands of one shape; where
//! one is a scalar and the other a vector, [`Ir::unify`] spreads the scalar first.

use crate::Target;
use crate::error::{CodegenError, Result};
use hone_types::DataType;
use inkwell::basic_block::BasicBlock;
use inkwell::builder::Builder;
use inkwell::context::Context;
use inkwell::intrinsics::Intrinsic;
use inkwell::llvm_sys::core::LLVMBuildGEP2;
use inkwell::module::Module;
use inkwell::types::{AsTypeRef, BasicTypeEnum, VectorType};
use inkwell::values::{
    AsValueRef, BasicMetadataValueEnum, BasicValue, BasicValueEnum, FunctionValue,
    InstructionOpcode, IntValue, PointerValue, VectorValue,
};
use inkwell::{FloatPredicate, IntPredicate};

/// A scalar or vector value.
pub(crate) type V<'c> = BasicValueEnum<'c>;
/// A scalar or vector type.
pub(crate) type T<'c> = BasicTypeEnum<'c>;

/// A module under construction, and the position in it where instructions are inserted.
pub(crate) struct Ir<'c> {
    pub(crate) context: &'c Context,
    pub(crate) module: Module<'c>,
    pub(crate) builder: Builder<'c>,
    /// Whether the target scales vectors and estimates reciprocals by instruction.
    pub(crate) scaling: bool,
    /// Whether a product is added to a number with one rounding, by instruction.
    pub(crate) fused: bool,
}

/// Number of lanes of a vector; `None` for a scalar.
pub(crate) fn lanes(value: V) -> Option<u32> {
    match value {
        V::VectorValue(vector) => Some(vector.get_type().get_size()),
        _ => None,
    }
}

/// The scalar type of a scalar or vector type.
pub(crate) fn scalar_of<'c>(ty: T<'c>) -> T<'c> {
    match ty {
        T::VectorType(vector) => vector.get_element_type(),
        other => other,
    }
}

impl<'c> Ir<'c> {
    pub(crate) fn new(context: &'c Context, name: &str, target: &Target) -> Self {
        let (module, builder) = (context.create_module(name), context.create_builder());
        let fused = target.fuses_multiply_add();
        Self { context, module, builder, scaling: target.scaling, fused }
    }

    /// The type in which values of `dtype` are computed: 16-bit floats as `f32`, booleans as one
    /// bit.
    pub(crate) fn compute_type(&self, dtype: DataType) -> T<'c> {
        match dtype {
            DataType::F32 | DataType::F16 | DataType::BF16 => self.context.f32_type().into(),
            DataType::Bool => self.context.bool_type().into(),
            _ => self.memory_type(dtype),
        }
    }

    /// The type of one element of `dtype` in memory.
    pub(crate) fn memory_type(&self, dtype: DataType) -> T<'c> {
        match dtype {
            DataType::F32 => self.context.f32_type().into(),
            DataType::F64 => self.context.f64_type().into(),
            DataType::F16 | DataType::BF16 | DataType::I16 | DataType::U16 => {
                self.context.i16_type().into()
            }
            DataType::I8 | DataType::U8 | DataType::Bool => self.context.i8_type().into(),
            DataType::I32 | DataType::U32 => self.context.i32_type().into(),
            DataType::I64 | DataType::U64 => self.context.i64_type().into(),
        }
    }

    /// Size in bytes of the type in which values of `dtype` are computed.
    pub(crate) fn compute_bytes(&self, dtype: DataType) -> usize {
        match dtype {
            DataType::F16 | DataType::BF16 => 4,
            _ => dtype.bytes(),
        }
    }

    /// `lanes` of a scalar type, or the scalar type.
    pub(crate) fn with_lanes(&self, scalar: T<'c>, lanes: Option<u32>) -> T<'c> {
        match (lanes, scalar) {
            (None, _) => scalar,
            (Some(lanes), T::IntType(ty)) => ty.vec_type(lanes).into(),
            (Some(lanes), T::FloatType(ty)) => ty.vec_type(lanes).into(),
            (Some(lanes), T::PointerType(ty)) => ty.vec_type(lanes).into(),
            (Some(_), other) => other,
        }
    }

    /// The type `scalar` in the shape of `like`.
    pub(crate) fn shaped(&self, scalar: T<'c>, like: V<'c>) -> T<'c> {
        self.with_lanes(scalar, lanes(like))
    }

    pub(crate) fn i64(&self, value: i64) -> IntValue<'c> {
        self.context.i64_type().const_int(value as u64, true)
    }

    pub(crate) fn i32(&self, value: i32) -> IntValue<'c> {
        self.context.i32_type().const_int(value as u64, true)
    }

    /// The constant `value` in every lane of `ty`.
    pub(crate) fn float(&self, ty: T<'c>, value: f64) -> V<'c> {
        let scalar: V<'c> = match scalar_of(ty) {
            T::FloatType(float) => float.const_float(value).into(),
            _ => self.context.f32_type().const_float(value).into(),
        };
        self.constant_lanes(ty, scalar)
    }

    /// The integer constant `value` in every lane of `ty`.
    pub(crate) fn int(&self, ty: T<'c>, value: i64) -> V<'c> {
        let scalar: V<'c> = match scalar_of(ty) {
            T::IntType(int) => int.const_int(value as u64, true).into(),
            _ => self.i64(value).into(),
        };
        self.constant_lanes(ty, scalar)
    }

    fn constant_lanes(&self, ty: T<'c>, scalar: V<'c>) -> V<'c> {
        match ty {
            T::VectorType(vector) => {
                self.constant_vector(&vec![scalar; vector.get_size() as usize])
            }
            _ => scalar,
        }
    }

    /// A vector of constants of one type.
    pub(crate) fn constant_vector(&self, scalars: &[V<'c>]) -> V<'c> {
        VectorType::const_vector(scalars).into()
    }

    /// A mask that is set in the first `count` of `width` lanes.
    pub(crate) fn prefix_mask(&self, count: u32, width: u32) -> VectorValue<'c> {
        let bit = self.context.bool_type();
        let bits: Vec<IntValue<'c>> =
            (0..width).map(|lane| bit.const_int(u64::from(lane < count), false)).collect();
        VectorType::const_vector(&bits)
    }

    /// `first, first + 1, …` as `i64`.
    pub(crate) fn iota(&self, first: i64, width: u32) -> V<'c> {
        let values: Vec<IntValue<'c>> =
            (0..width).map(|lane| self.i64(first + i64::from(lane))).collect();
        VectorType::const_vector(&values).into()
    }

    /// `scalar` in `width` lanes.
    pub(crate) fn splat(&self, scalar: V<'c>, width: u32) -> Result<V<'c>> {
        let T::VectorType(ty) = self.with_lanes(scalar.get_type(), Some(width)) else {
            return Ok(scalar);
        };
        let builder = &self.builder;
        let one = builder.build_insert_element(ty.get_poison(), scalar, self.i32(0), "")?;
        let zeros = self.context.i32_type().vec_type(width).const_zero();
        Ok(builder.build_shuffle_vector(one, ty.get_poison(), zeros, "")?.into())
    }

    /// Both operands in one shape.
    pub(crate) fn unify(&self, a: V<'c>, b: V<'c>) -> Result<(V<'c>, V<'c>)> {
        Ok(match (lanes(a), lanes(b)) {
            (Some(width), None) => (a, self.splat(b, width)?),
            (None, Some(width)) => (self.splat(a, width)?, b),
            _ => (a, b),
        })
    }

    /// `value` spread to `width` lanes, unless it is a vector already.
    pub(crate) fn to_lanes(&self, value: V<'c>, width: Option<u32>) -> Result<V<'c>> {
        match (lanes(value), width) {
            (None, Some(width)) => self.splat(value, width),
            _ => Ok(value),
        }
    }

    pub(crate) fn binary(&self, op: InstructionOpcode, a: V<'c>, b: V<'c>) -> Result<V<'c>> {
        let (a, b) = self.unify(a, b)?;
        Ok(self.builder.build_binop(op, a, b, "")?)
    }

    pub(crate) fn convert(&self, op: InstructionOpcode, a: V<'c>, scalar: T<'c>) -> Result<V<'c>> {
        Ok(self.builder.build_cast(op, a, self.shaped(scalar, a), "")?)
    }

    pub(crate) fn compare_float(&self, op: FloatPredicate, a: V<'c>, b: V<'c>) -> Result<V<'c>> {
        let (a, b) = self.unify(a, b)?;
        Ok(match (a, b) {
            (V::VectorValue(a), V::VectorValue(b)) => {
                self.builder.build_float_compare(op, a, b, "")?.into()
            }
            _ => self
                .builder
                .build_float_compare(op, a.into_float_value(), b.into_float_value(), "")?
                .into(),
        })
    }

    pub(crate) fn compare_int(&self, op: IntPredicate, a: V<'c>, b: V<'c>) -> Result<V<'c>> {
        let (a, b) = self.unify(a, b)?;
        Ok(match (a, b) {
            (V::VectorValue(a), V::VectorValue(b)) => {
                self.builder.build_int_compare(op, a, b, "")?.into()
            }
            _ => self
                .builder
                .build_int_compare(op, a.into_int_value(), b.into_int_value(), "")?
                .into(),
        })
    }

    /// `condition ? then : otherwise`, lane by lane where the condition is a vector.
    pub(crate) fn select(&self, condition: V<'c>, then: V<'c>, otherwise: V<'c>) -> Result<V<'c>> {
        let (then, otherwise) = self.unify(then, otherwise)?;
        Ok(match condition {
            V::VectorValue(condition) => {
                let width = Some(condition.get_type().get_size());
                let then = self.to_lanes(then, width)?;
                let otherwise = self.to_lanes(otherwise, width)?;
                self.builder.build_select(condition, then, otherwise, "")?
            }
            _ => self.builder.build_select(condition.into_int_value(), then, otherwise, "")?,
        })
    }

    /// Calls an intrinsic overloaded over `types`.
    pub(crate) fn intrinsic(&self, name: &str, types: &[T<'c>], args: &[V<'c>]) -> Result<V<'c>> {
        self.intrinsic_call(name, types, args)?.ok_or_else(|| missing(name))
    }

    /// Calls an intrinsic that gives no value.
    pub(crate) fn intrinsic_call(
        &self,
        name: &str,
        types: &[T<'c>],
        args: &[V<'c>],
    ) -> Result<Option<V<'c>>> {
        let function = Intrinsic::find(name)
            .and_then(|intrinsic| intrinsic.get_declaration(&self.module, types))
            .ok_or_else(|| missing(name))?;
        let args: Vec<BasicMetadataValueEnum<'c>> = args.iter().map(|arg| (*arg).into()).collect();
        Ok(self.builder.build_call(function, &args, "")?.try_as_basic_value().basic())
    }

    /// An intrinsic of one operand and its type.
    pub(crate) fn unary_intrinsic(&self, name: &str, a: V<'c>) -> Result<V<'c>> {
        self.intrinsic(name, &[a.get_type()], &[a])
    }

    /// An intrinsic of two operands of one type.
    pub(crate) fn binary_intrinsic(&self, name: &str, a: V<'c>, b: V<'c>) -> Result<V<'c>> {
        let (a, b) = self.unify(a, b)?;
        self.intrinsic(name, &[a.get_type()], &[a, b])
    }

    /// `a * b + c` with one rounding where the target has the instruction.
    pub(crate) fn multiply_add(&self, a: V<'c>, b: V<'c>, c: V<'c>) -> Result<V<'c>> {
        let width = lanes(a).or(lanes(b)).or(lanes(c));
        let (a, b, c) =
            (self.to_lanes(a, width)?, self.to_lanes(b, width)?, self.to_lanes(c, width)?);
        self.intrinsic("llvm.fmuladd", &[a.get_type()], &[a, b, c])
    }

    /// The address `bytes` after `pointer`.
    pub(crate) fn offset(
        &self,
        pointer: PointerValue<'c>,
        bytes: IntValue<'c>,
    ) -> Result<PointerValue<'c>> {
        // SAFETY: an address may leave the buffer on the way to the element (a negative constant
        // is added last), which this form of the instruction, without `inbounds`, allows.
        Ok(unsafe { self.builder.build_gep(self.context.i8_type(), pointer, &[bytes], "")? })
    }

    /// The addresses of `elements` of type `scalar` from `pointer` on, one per lane.
    pub(crate) fn offsets(
        &self,
        scalar: T<'c>,
        pointer: PointerValue<'c>,
        elements: VectorValue<'c>,
    ) -> Result<V<'c>> {
        self.here()?;
        let mut indices = [elements.as_value_ref()];
        // SAFETY: builder, type, pointer and index belong to one context and outlive the call; the
        // builder is placed (checked above); the name is a C string. An address of a lane that
        // leaves the buffer is never used: it is masked where the result is.
        Ok(unsafe {
            V::new(LLVMBuildGEP2(
                self.builder.as_mut_ptr(),
                scalar.as_type_ref(),
                pointer.as_value_ref(),
                indices.as_mut_ptr(),
                1,
                c"".as_ptr(),
            ))
        })
    }

    pub(crate) fn load(&self, ty: T<'c>, pointer: PointerValue<'c>, align: u32) -> Result<V<'c>> {
        let value = self.builder.build_load(ty, pointer, "")?;
        if let Some(instruction) = value.as_instruction_value() {
            let _ = instruction.set_alignment(align);
        }
        Ok(value)
    }

    pub(crate) fn store(&self, pointer: PointerValue<'c>, value: V<'c>, align: u32) -> Result<()> {
        let _ = self.builder.build_store(pointer, value)?.set_alignment(align);
        Ok(())
    }

    pub(crate) fn extract(&self, vector: VectorValue<'c>, lane: u32) -> Result<V<'c>> {
        Ok(self.builder.build_extract_element(vector, self.i32(lane as i32), "")?)
    }

    pub(crate) fn insert(
        &self,
        vector: VectorValue<'c>,
        value: V<'c>,
        lane: u32,
    ) -> Result<VectorValue<'c>> {
        Ok(self.builder.build_insert_element(vector, value, self.i32(lane as i32), "")?)
    }

    /// Two vectors of one type as one of twice the lanes.
    pub(crate) fn join(
        &self,
        low: VectorValue<'c>,
        high: VectorValue<'c>,
    ) -> Result<VectorValue<'c>> {
        let size = low.get_type().get_size() + high.get_type().get_size();
        let lane = self.context.i32_type();
        let picks: Vec<IntValue<'c>> =
            (0..size).map(|pick| lane.const_int(u64::from(pick), false)).collect();
        Ok(self.builder.build_shuffle_vector(low, high, VectorType::const_vector(&picks), "")?)
    }

    /// For each lane one of `low`'s, or of `high`'s counted on from there, or none in particular.
    pub(crate) fn choose_lanes(
        &self,
        low: VectorValue<'c>,
        high: VectorValue<'c>,
        picks: &[Option<u32>],
    ) -> Result<VectorValue<'c>> {
        let lane = self.context.i32_type();
        let picks: Vec<IntValue<'c>> = picks
            .iter()
            .map(|pick| match pick {
                Some(pick) => lane.const_int(u64::from(*pick), false),
                None => lane.get_poison(),
            })
            .collect();
        Ok(self.builder.build_shuffle_vector(low, high, VectorType::const_vector(&picks), "")?)
    }

    /// The lanes of `vector` at `picks`; those beyond its width have no defined value.
    pub(crate) fn shuffle(
        &self,
        vector: VectorValue<'c>,
        picks: &[u32],
    ) -> Result<VectorValue<'c>> {
        let size = vector.get_type().get_size();
        let lane = self.context.i32_type();
        let picks: Vec<IntValue<'c>> = picks
            .iter()
            .map(|pick| match *pick < size {
                true => lane.const_int(u64::from(*pick), false),
                false => lane.get_poison(),
            })
            .collect();
        let poison = vector.get_type().get_poison();
        Ok(self.builder.build_shuffle_vector(
            vector,
            poison,
            VectorType::const_vector(&picks),
            "",
        )?)
    }

    pub(crate) fn block(&self, function: FunctionValue<'c>, name: &str) -> BasicBlock<'c> {
        self.context.append_basic_block(function, name)
    }

    /// The block that instructions go into.
    pub(crate) fn here(&self) -> Result<BasicBlock<'c>> {
        self.builder
            .get_insert_block()
            .ok_or(CodegenError::Build(inkwell::builder::BuilderError::UnsetPosition))
    }
}

fn missing(name: &str) -> CodegenError {
    CodegenError::Emit {
        symbol: name.to_string(),
        message: "LLVM lacks this intrinsic for the operands' type".to_string(),
    }
}
