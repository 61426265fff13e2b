//! Loop programs; the crate's head says what always holds.

use crate::{Axis, Expr, Intrinsic, Level};
use hone_types::{DataType, Table};

hone_types::define_id!(
    /// A loop variable or block iterator.
    VarId,
    "v"
);
hone_types::define_id!(
    /// A buffer.
    BufferId,
    "b"
);
hone_types::define_id!(
    /// A block.
    BlockId,
    "block"
);

/// A variable; always an `i64`.
#[derive(Clone, Debug, PartialEq)]
pub struct Var {
    /// Name for the text form and for schedules; made unique there by the handle.
    pub name: String,
}

/// What a buffer is to the caller of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Read only; the place among the program's parameters.
    Input(usize),
    /// Written, and read back at most by the program itself; the place among its parameters.
    Output(usize),
    /// Lives inside one execution of the program.
    Temporary,
}

/// Where a buffer lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Shared memory of the caller: a parameter, or (for temporaries) the arena.
    Global,
    /// Memory that the lanes of one block share.
    Shared,
    /// Memory of one thread.
    Scratch,
    /// Registers of one thread.
    Register,
}

/// A dense row-major buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    /// Name for the text form.
    pub name: String,
    /// Element type.
    pub dtype: DataType,
    /// Extent of each axis, outermost first.
    pub shape: Vec<usize>,
    /// What it is to the caller.
    pub role: Role,
    /// Where it lies.
    pub scope: Scope,
}

impl Buffer {
    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.elements() * self.dtype.bytes()
    }
}

/// How points along an iterator relate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IteratorKind {
    /// Each value computes other elements.
    Spatial,
    /// All values combine into the same elements.
    Reduction,
}

/// One axis of a block's domain, `0..extent`.
#[derive(Clone, Debug, PartialEq)]
pub struct Iterator {
    /// The variable in the block's expressions.
    pub var: VarId,
    /// Extent.
    pub extent: usize,
    /// Spatial or reduction.
    pub kind: IteratorKind,
}

/// How a reduction combines; associative and commutative up to rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Combiner {
    /// `a + b`, from 0.
    Sum,
    /// `a * b`, from 1.
    Product,
    /// The larger, from the least value.
    Maximum,
    /// The smaller, from the largest value.
    Minimum,
}

/// What a block stores into its buffer at its indices.
#[derive(Clone, Debug, PartialEq)]
pub enum BlockBody {
    /// `buffer[indices] = value`
    Map(Expr),
    /// `buffer[indices] = initial`, then `combine` with `value` over the reduction iterators.
    /// `initial` is `None` once another block was made to set it (decomposed).
    Reduce {
        /// The combining operation.
        combiner: Combiner,
        /// Value before the first update, in terms of the spatial iterators.
        initial: Option<Expr>,
        /// What each point contributes.
        value: Expr,
    },
}

/// A computation of one buffer over a box of points.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Name for the text form and for schedules; unique in a program.
    pub name: String,
    /// Axes of the domain: spatial ones first.
    pub iterators: Vec<Iterator>,
    /// The buffer it writes.
    pub buffer: BufferId,
    /// Where it writes, in terms of the spatial iterators.
    pub indices: Vec<Expr>,
    /// What it writes.
    pub body: BlockBody,
}

/// A block's one place in the loop tree.
#[derive(Clone, Debug, PartialEq)]
pub struct Realize {
    /// The block.
    pub block: BlockId,
    /// Value of each of the block's iterators, in terms of the enclosing loops' variables.
    pub bindings: Vec<Expr>,
    /// Runs only where this holds; `None` is always.
    pub predicate: Option<Expr>,
}

/// How a loop is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LoopKind {
    /// In order.
    Serial,
    /// Spread over threads.
    Parallel,
    /// Written out.
    Unrolled,
    /// As lanes of a vector; the extent is the number of lanes.
    Vectorized,
    /// As the lanes of an instruction that also computes the loop inside.
    Tensorized(Intrinsic),
    /// As an axis of a device of many threads.
    Bound(Axis),
}

/// A loop over `0..extent`.
#[derive(Clone, Debug, PartialEq)]
pub struct Loop {
    /// Its variable.
    pub var: VarId,
    /// Extent: an integer, or an expression over enclosing variables.
    pub extent: Expr,
    /// How it is executed.
    pub kind: LoopKind,
    /// What it repeats, in order.
    pub body: Vec<Statement>,
}

impl Loop {
    /// The largest extent the loop can have, where its form shows one: arithmetic that grows with
    /// integers, and minima with them.
    pub fn most(&self) -> Option<i64> {
        most(&self.extent)
    }
}

fn most(extent: &Expr) -> Option<i64> {
    use crate::BinaryOp::{Add, FloorDivide, Minimum, Multiply, Subtract};
    let Expr::Binary(op, left, right) = extent else { return extent.as_integer() };
    let (bound, constant) = (most(left), right.as_integer());
    match op {
        Minimum => match (bound, most(right)) {
            (Some(left), Some(right)) => Some(left.min(right)),
            (left, right) => left.or(right),
        },
        Add => bound?.checked_add(most(right)?),
        Subtract => bound?.checked_sub(constant?),
        Multiply => bound?.checked_mul(constant.filter(|factor| *factor >= 0)?),
        FloorDivide => {
            constant.filter(|divisor| *divisor > 0).and_then(|own| Some(bound?.div_euclid(own)))
        }
        _ => None,
    }
}

/// A node of the loop tree.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// A loop.
    Loop(Box<Loop>),
    /// A block.
    Realize(Realize),
    /// Every thread below one iteration of this level waits here for the others, and sees what they
    /// have stored.
    Sync(Level),
}

/// A loop program. Each top-level statement runs after the one before it is complete, and becomes
/// one kernel.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Program {
    /// Variables of loops and iterators.
    pub vars: Table<VarId, Var>,
    /// Buffers; parameters are numbered by their [`Role`].
    pub buffers: Table<BufferId, Buffer>,
    /// Blocks.
    pub blocks: Table<BlockId, Block>,
    /// The loop tree.
    pub body: Vec<Statement>,
    /// What is worth bringing near ahead of its use; it changes no result.
    pub prefetches: Vec<Prefetch>,
    /// Iterations that nobody needs where a size is small; put in when a schedule is complete.
    pub limits: Vec<Limit>,
}

/// Iterations of a loop that are left out: those in which `first` is not less than a size that the caller gives. What they
/// would compute is not needed there ([`crate::Prefix`] shows it), and holds anything. A size below one counts as one.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// The loop; serial or parallel.
    pub target: VarId,
    /// An index over the loop's variable and those of the loops around it.
    pub first: Expr,
    /// The size: an input of one `i64`, without axes.
    pub size: BufferId,
}

impl Limit {
    /// The size, at least one.
    pub fn size(&self) -> Expr {
        Expr::Load(self.size, Vec::new()).maximum(Expr::Integer(1))
    }

    /// What holds in the iterations that run.
    pub fn condition(&self) -> Expr {
        self.first.clone().less(self.size())
    }
}

/// While one iteration of a loop runs, what a block reads of a buffer in the next one is brought
/// near. Without effect where the loop or the block no longer stands in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefetch {
    /// The block that reads.
    pub block: BlockId,
    /// What it reads.
    pub buffer: BufferId,
    /// The loop, around the block.
    pub target: VarId,
}

impl Program {
    /// Parameters (inputs and outputs) in the order of their numbers.
    pub fn parameters(&self) -> Vec<BufferId> {
        let mut parameters: Vec<(usize, BufferId)> = self
            .buffers
            .iter()
            .filter_map(|(id, buffer)| match buffer.role {
                Role::Input(place) | Role::Output(place) => Some((place, id)),
                Role::Temporary => None,
            })
            .collect();
        parameters.sort_unstable_by_key(|(place, _)| *place);
        parameters.into_iter().map(|(_, id)| id).collect()
    }

    /// Whether blocks share loops, or one reads what it stored itself: a program that goes in steps.
    pub fn has_steps(&self) -> bool {
        let shares = |statement: &Statement| statement.blocks().len() > 1;
        let blocks = self.blocks_in_order();
        let reads_itself = |id: BlockId| self.blocks[id].reads(self.blocks[id].buffer);
        self.body.iter().any(shares) || blocks.into_iter().any(reads_itself)
    }

    /// The limit of the loop over `target`.
    pub fn limit_of(&self, target: VarId) -> Option<&Limit> {
        self.limits.iter().find(|own| own.target == target)
    }

    /// Adds a variable.
    pub fn add_var(&mut self, name: impl Into<String>) -> VarId {
        self.vars.push(Var { name: name.into() })
    }

    /// The block called `name`.
    pub fn block_named(&self, name: &str) -> Option<BlockId> {
        self.blocks.iter().find(|(_, block)| block.name == name).map(|(id, _)| id)
    }
}
