//! WGSL, the language of WebGPU, as its specification has it, without any extension.
//!
//! WGSL has `f32`, `i32`, `u32` and `bool`. The other element types are made of these:
//! - integers and truth values of 8 and 16 bits are computed in `i32`, `u32` and `bool`, and wrap where they are
//!   computed; in buffers that several lanes see they lie packed in words of 32 bits, as they do on a host. A lane
//!   stores one by two atomic operations on the bits of its word, so that its neighbours' are left alone;
//! - floats of 16 bits lie there alike, are computed in `f32` and rounded where they are stored or cast;
//! - integers of 64 bits and doubles are `vec2<u32>`, the low half first, and functions compute with them. Indices that
//!   are known to fit are `i32`.
//!
//! WGSL lets a compiler assume that there is neither infinity nor NaN, and refuses constant expressions that have
//! none or overflow. Therefore such constants are made of bits by a function, as is every constant that is an operand
//! of a constant's neighbour, and what a value is gets asked of its bits.

mod cast;
mod double;
mod float;
mod helpers;
mod integer;
mod value;

use crate::dialect::{Dialect, Element};
use hone_tensor::{BinaryOp, Level, Scope, UnaryOp};
use hone_types::DataType;
use value::Class;

/// WGSL.
#[derive(Clone, Copy, Debug)]
pub struct Wgsl {
    /// Storage buffers that a kernel may have: the limit `maxStorageBuffersPerShaderStage` of the device.
    pub storage_buffers: usize,
}

impl Default for Wgsl {
    /// With the limit that every device of WebGPU has.
    fn default() -> Self {
        Self { storage_buffers: 8 }
    }
}

impl Dialect for Wgsl {
    fn name(&self) -> &'static str {
        "WGSL"
    }

    fn stores(&self, _: DataType) -> bool {
        true
    }

    fn index_type(&self) -> DataType {
        DataType::I32
    }

    fn most_buffers(&self) -> usize {
        self.storage_buffers
    }

    fn variable(&self, kernel: &str, name: &str, scope: Scope) -> String {
        // What stands outside functions is seen by all kernels of a text.
        match scope {
            Scope::Global | Scope::Shared => format!("{kernel}_{name}"),
            _ => name.to_string(),
        }
    }

    fn shares_as_parameters(&self) -> bool {
        true
    }

    fn index(&self, name: &str, value: &str) -> String {
        format!("let {name} = {value};")
    }

    fn value(&self, name: &str, _: DataType, value: &str) -> String {
        format!("let {name} = {value};")
    }

    fn is_constant(&self, text: &str) -> bool {
        value::is_constant(text)
    }

    fn number(&self, level: Level, dimension: usize) -> String {
        let axis = ["x", "y", "z"][dimension.min(2)];
        match level {
            Level::Block => format!("i32(block.{axis})"),
            _ => format!("i32(lane.{axis})"),
        }
    }

    fn parameter(&self, number: usize, name: &str, dtype: DataType, written: bool) -> String {
        // Of the same access whether it is written or not: buffers of a launch may be parts of one, and WebGPU lets no
        // launch use one in two ways.
        let element = value::memory_type(dtype, written);
        format!("@group(0) @binding({number}) var<storage, read_write> {name}: array<{element}>;")
    }

    fn counter(&self, number: usize, name: &str) -> String {
        format!("@group(0) @binding({number}) var<uniform> {name}: i32;")
    }

    fn buffer(&self, name: &str, dtype: DataType, scope: Scope, elements: usize) -> String {
        let elements = elements.max(1);
        if scope == Scope::Shared {
            let element = value::memory_type(dtype, true);
            let words = elements.div_ceil(value::packed(dtype).unwrap_or(1));
            return format!("var<workgroup> {name}: array<{element}, {words}>;");
        }
        format!("var {name}: array<{}, {elements}>;", Class::of(dtype).name())
    }

    fn kernel(&self, name: &str, parameters: &[String], [x, y, z]: [usize; 3]) -> String {
        let parameters: String =
            parameters.iter().map(|parameter| format!("{parameter}\n")).collect();
        format!(
            "{parameters}@compute @workgroup_size({x}, {y}, {z})\nfn {name}(@builtin(workgroup_id) block: vec3<u32>, \
             @builtin(local_invocation_id) lane: vec3<u32>) {{"
        )
    }

    fn counted(&self, name: &str, extent: &str, _: bool) -> String {
        format!("for (var {name} = 0i; {name} < {extent}; {name}++) {{")
    }

    fn sync(&self) -> &'static str {
        "workgroupBarrier(); storageBarrier();"
    }

    fn integer(&self, value: i64, dtype: DataType) -> String {
        match (dtype, i32::try_from(value)) {
            (DataType::I32, Ok(value)) => value::integer(value),
            _ => value::halves(value as u64),
        }
    }

    fn constant(&self, value: f64, dtype: DataType) -> Option<String> {
        Some(value::constant(value, dtype))
    }

    fn load(&self, element: Element<'_>) -> String {
        value::load(element)
    }

    fn store(&self, element: Element<'_>, value: &str) -> String {
        value::store(element, value)
    }

    fn guarded(&self, condition: &str, statement: &str) -> String {
        format!("if ({condition}) {{ {statement} }}")
    }

    fn unary(&self, op: UnaryOp, dtype: DataType, operand: &str) -> Option<String> {
        let operand = value::not_constant(dtype, operand);
        match Class::of(dtype) {
            Class::Float => Some(float::unary(op, &operand)),
            Class::Halves if dtype == DataType::F64 => double::unary(op, &operand),
            _ => integer::unary(op, dtype, &operand),
        }
    }

    fn binary(
        &self,
        op: BinaryOp,
        dtype: DataType,
        (left, right): (&str, &str),
        natural: bool,
    ) -> Option<String> {
        // One operand that is none is enough, and divisors of indices are best left as they are.
        let left = value::not_constant(dtype, left);
        let operands = (&*left, right);
        match Class::of(dtype) {
            Class::Float => float::binary(op, operands),
            Class::Bool => Some(integer::binary_of_bools(op, operands)),
            Class::Halves if dtype == DataType::F64 => double::binary(op, operands),
            Class::Halves => Some(integer::binary_of_halves(op, dtype, operands)),
            Class::Signed | Class::Unsigned => {
                Some(integer::binary_of_words(op, dtype, operands, natural))
            }
        }
    }

    fn cast(&self, from: DataType, to: DataType, operand: &str) -> Option<String> {
        cast::cast(from, to, &value::not_constant(from, operand))
    }

    fn select(&self, condition: &str, then: &str, otherwise: &str) -> String {
        // Both are evaluated, which has no effect: what is read outside of a buffer is any number.
        format!("select({otherwise}, {then}, {condition})")
    }

    fn chooses_lazily(&self) -> bool {
        false
    }

    fn prelude(&self, text: &str) -> String {
        helpers::prelude(text)
    }
}
