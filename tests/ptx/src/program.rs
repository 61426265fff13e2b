//! A parsed text.

use crate::tensor_core::Factors;
use crate::types::{Binary, Compare, Rounding, Type, Unary};
use crate::warpgroup::Product;
use std::collections::BTreeMap;

/// The number of a register of a kernel.
pub type Register = u32;

/// The kernels of a text.
#[derive(Clone, Debug, Default)]
pub struct Text {
    /// The version of PTX, such as 7.1.
    pub version: (u32, u32),
    /// The architecture that the text is for, such as `sm_80`.
    pub target: String,
    /// By name.
    pub kernels: BTreeMap<String, Entry>,
}

/// One kernel.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Names of its parameters and their bytes, in order.
    pub parameters: Vec<(String, usize)>,
    /// Lanes of a block, where the text requires a number.
    pub lanes: Option<[usize; 3]>,
    /// Number of registers.
    pub registers: usize,
    /// Bytes of shared memory that it declares.
    pub shared: usize,
    /// Where shared memory begins whose size a launch says, where the kernel has such.
    pub requested: Option<usize>,
    /// Bytes of local memory of each lane.
    pub local: usize,
    /// What lanes run.
    pub code: Vec<Instruction>,
}

/// One instruction.
#[derive(Clone, Debug)]
pub struct Instruction {
    /// Runs only where this predicate is (not, for `false`) set.
    pub guard: Option<(Register, bool)>,
    /// What it does.
    pub operation: Operation,
    /// Whether a label stands in front of it.
    pub labelled: bool,
    /// Registers of warpgroups' sums that it reads or writes and that are not its operands as such.
    pub sums: Vec<Register>,
    /// As it stands in the text.
    pub text: String,
}

/// A source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Source {
    /// A register.
    Register(Register),
    /// A constant's bits.
    Constant(u64),
    /// `%tid` along a dimension.
    Lane(usize),
    /// `%ntid` along a dimension.
    Lanes(usize),
    /// `%ctaid` along a dimension.
    Block(usize),
    /// `%nctaid` along a dimension.
    Blocks(usize),
}

/// A kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// Seen by all.
    Global,
    /// Of global memory that nobody writes during the launch.
    Constant,
    /// Of a block.
    Shared,
    /// Of a lane.
    Local,
    /// Any of these, by the address.
    Generic,
}

/// Where an access goes: a base and what is added.
#[derive(Clone, Copy, Debug)]
pub struct Address {
    /// The base.
    pub base: Source,
    /// What is added, in bytes.
    pub offset: i64,
}

/// What an instruction does.
#[derive(Clone, Debug)]
pub enum Operation {
    /// `to = from`
    Move { to: Register, from: Source },
    /// A parameter of the kernel.
    Parameter { to: Register, number: usize },
    /// Several parts of so many bits as one value, the lowest first.
    Pack { to: Register, parts: Vec<Source>, bits: u32 },
    /// One value in several parts of so many bits; `None` is not kept.
    Unpack { to: Vec<Option<Register>>, from: Source, bits: u32 },
    /// An address in one space as a generic one, or back.
    Generic { to: Register, from: Source, space: Space, back: bool },
    /// An operation on one value.
    Unary { op: Unary, ty: Type, to: Register, a: Source },
    /// An operation on two.
    Binary { op: Binary, ty: Type, to: Register, a: Source, b: Source },
    /// `a * b + c` of integers; `wide` where the product has twice the bits.
    MultiplyAdd { ty: Type, wide: bool, to: Register, a: Source, b: Source, c: Source },
    /// `a * b + c` of floats, rounded once.
    Fused { ty: Type, to: Register, a: Source, b: Source, c: Source },
    /// A comparison.
    Compare { op: Compare, unordered: bool, ty: Type, to: Register, a: Source, b: Source },
    /// One of two values.
    Select { to: Register, then: Source, otherwise: Source, by: Source },
    /// A conversion.
    Convert {
        to_type: Type,
        from_type: Type,
        rounding: Rounding,
        saturate: bool,
        to: Register,
        a: Source,
    },
    /// Two `f32` rounded to a type of 16 bits, as one register.
    ConvertPair { to_type: Type, to: Register, upper: Source, lower: Source },
    /// What the lane of the warp has whose number differs in these bits.
    Exchange { to: Register, a: Source, bits: usize },
    /// A field of `a`, from bit `b` on, of `c` bits.
    Field { ty: Type, to: Register, a: Source, b: Source, c: Source },
    /// The upper (`left`) or lower half of two words that are shifted together.
    Funnel { left: bool, wrap: bool, to: Register, low: Source, high: Source, by: Source },
    /// Bytes of `a` and `b` chosen by the nibbles of `c`.
    Permute { to: Register, a: Source, b: Source, c: Source },
    /// Reads neighbouring elements.
    Load { space: Space, ty: Type, to: Vec<Register>, address: Address },
    /// Writes neighbouring elements.
    Store { space: Space, ty: Type, from: Vec<Source>, address: Address },
    /// Goes on elsewhere.
    Branch { to: usize },
    /// Waits for all lanes of the block.
    Barrier,
    /// Ends the lane.
    Return,
    /// Starts copying so many bytes from global to shared memory; of them only the first `read` where that is given, and
    /// zeros for the others.
    CopyAsync { to: Address, from: Address, bytes: usize, read: Option<Source> },
    /// Makes a group of the copies that were started.
    CommitCopies,
    /// Waits until at most so many groups of copies are under way.
    WaitCopies { groups: usize },
    /// Reads 8x8 matrices of 16 bits from shared memory into a warp's registers.
    LoadMatrix { transposed: bool, to: Vec<Register>, address: Address },
    /// A product of a warp's matrices, of 16 rows and 8 columns, plus `c`.
    Multiply { factors: Factors, d: [Register; 4], a: [Source; 4], b: [Source; 2], c: [Source; 4] },
    /// Makes what a lane wrote to shared memory visible to asynchronous reads.
    FenceWrites,
    /// Orders what a warpgroup did with registers before the products that follow.
    FenceWarpgroup,
    /// Starts a product of a warpgroup.
    MultiplyWarpgroup(Box<Product>),
    /// Makes a group of the products that were started.
    CommitProducts,
    /// Waits until at most so many groups of products are under way.
    WaitProducts { groups: usize },
}
