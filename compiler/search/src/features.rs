//! What the cost models see of a scheduled program: counts of instructions, of moved bytes and of loop
//! rounds, read off the loop nest, for the whole program and for every block and loop. Logarithms of them, so that programs
//! of all sizes compare.

use crate::nest::{BLOCK, Nest, Node, sixteenths};
use hone_machine::{
    BEYOND_L2_BYTES_PER_CYCLE, ISSUE_CONTENTION, L2_BYTES_PER_CYCLE, LINE_BYTES, Machine,
};
use hone_tensor::{
    BinaryOp, Block, BlockBody, BufferId, Expr, LoopKind, Program, Realize, Scope, Statement, VarId,
};
use hone_tune::FUNCTION_OPERATIONS;

/// Names of the features, in their order.
pub const FEATURES: [&str; 24] = [
    "arithmetic",
    "scalar arithmetic",
    "functions",
    "vector loads",
    "broadcasts",
    "strided loads",
    "stores",
    "bytes from the second cache",
    "bytes from behind it",
    "distinct bytes",
    "accumulators",
    "largest body",
    "loop rounds",
    "innermost rounds",
    "tasks",
    "loops with a tail",
    "rounds with a tail",
    "prefetches",
    "scratch bytes",
    "predicted cycles",
    "arithmetic for each load",
    "traffic over distinct bytes",
    "chains",
    "cycles of the largest block",
];

/// What cost models judge a candidate by.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Features {
    /// Those of the whole program, in the order of [`FEATURES`].
    pub counts: Vec<f32>,
    /// Its loop nest; empty where an earlier version wrote the record.
    pub nest: Nest,
}

/// Features that are the largest of all blocks'; the others are sums over them.
const LARGEST: [usize; 5] = [10, 11, 13, 22, 23];

/// Features of a block that [`crate::nest::BLOCK_VALUES`] begins with, in its order.
const OF_BLOCK: [usize; 15] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 23, 22];

/// The features of a scheduled program.
pub fn features(program: &Program, machine: &Machine) -> Features {
    let mut counts = Counts { program, machine, sum: [0.0; FEATURES.len()], nodes: Vec::new() };
    let mut loops = Vec::new();
    program.body.iter().for_each(|statement| counts.statement(statement, &mut loops));
    let scratch = program.buffers.iter().filter(|(_, buffer)| buffer.scope == Scope::Scratch);
    counts.sum[18] = scratch.map(|(_, buffer)| buffer.bytes() as f64).sum();
    counts.sum[17] = program.prefetches.len() as f64;
    let distinct = program.parameters().into_iter().map(|id| program.buffers[id].bytes() as f64);
    counts.sum[9] = distinct.sum();
    let sum = &mut counts.sum;
    sum[19] += (sum[7] / L2_BYTES_PER_CYCLE) + (sum[8] / BEYOND_L2_BYTES_PER_CYCLE);
    sum[20] = sum[0] / (sum[3] + sum[4] + sum[5]).max(1.0);
    sum[21] = sum[8] / sum[9].max(1.0);
    Features {
        counts: sum.iter().map(|value| (1.0 + value.max(0.0)).log2() as f32).collect(),
        nest: Nest::of(counts.nodes.iter().map(Open::node).collect()),
    }
}

/// A node of the nest while it is counted.
struct Open {
    depth: usize,
    kind: u16,
    values: Vec<f64>,
}

impl Open {
    fn node(&self) -> Node {
        let values = self.values.iter().copied().map(sixteenths).collect();
        Node { depth: self.depth as u16, kind: self.kind, values }
    }
}

/// A loop's kind as a number.
fn kind(of: LoopKind) -> u16 {
    match of {
        LoopKind::Serial => 0,
        LoopKind::Parallel => 1,
        LoopKind::Unrolled => 2,
        LoopKind::Vectorized => 3,
        LoopKind::Tensorized(_) => 4,
        LoopKind::Bound(_) => 5,
    }
}

/// A loop around a block.
#[derive(Clone, Copy)]
struct EnclosingLoop {
    var: VarId,
    extent: f64,
    kind: LoopKind,
    /// Whether the extent is constant.
    constant: bool,
    /// Its place among the nodes of the nest.
    node: usize,
}

/// An access of a block: how far a round of each loop moves it, in elements.
struct Access {
    steps: Vec<i64>,
    bytes: f64,
    buffer_bytes: f64,
    scope: Scope,
    is_store: bool,
}

struct Counts<'a> {
    program: &'a Program,
    machine: &'a Machine,
    sum: [f64; FEATURES.len()],
    nodes: Vec<Open>,
}

impl Counts<'_> {
    fn statement(&mut self, statement: &Statement, loops: &mut Vec<EnclosingLoop>) {
        match statement {
            Statement::Loop(inner) => {
                let extent = inner.most().unwrap_or(1).max(1) as f64;
                let constant = inner.extent.as_integer().is_some();
                let rounds: f64 = loops.iter().map(|outer| outer.extent).product();
                let fewest = if constant { extent } else { 0.0 };
                let node = self.nodes.len();
                self.nodes.push(Open {
                    depth: loops.len(),
                    kind: kind(inner.kind),
                    values: vec![extent, extent - fewest, rounds, 0.0, 0.0],
                });
                loops.push(EnclosingLoop {
                    var: inner.var,
                    extent,
                    kind: inner.kind,
                    constant,
                    node,
                });
                if inner.kind == LoopKind::Parallel {
                    self.sum[14] = self.sum[14].max(extent);
                }
                self.sum[15] += f64::from(u8::from(!constant));
                inner.body.iter().for_each(|inside| self.statement(inside, loops));
                loops.pop();
            }
            Statement::Realize(realize) => self.block(realize, loops),
            Statement::Sync(_) => {}
        }
    }

    fn block(&mut self, realize: &Realize, loops: &[EnclosingLoop]) {
        let mut counted = [0.0f64; FEATURES.len()];
        let block = &self.program.blocks[realize.block];
        let is_lane = |loop_: &EnclosingLoop| {
            matches!(loop_.kind, LoopKind::Vectorized | LoopKind::Tensorized(_))
        };
        let points: f64 = loops.iter().map(|loop_| loop_.extent).product();
        let lanes: f64 =
            loops.iter().filter(|loop_| is_lane(loop_)).map(|loop_| loop_.extent).product();
        let unrolled: f64 = loops
            .iter()
            .filter(|loop_| loop_.kind == LoopKind::Unrolled)
            .map(|loop_| loop_.extent)
            .product();
        // Registers that a vector takes.
        let registers = (lanes / self.machine.lanes as f64).ceil().max(1.0);
        let rounds = points / (lanes * unrolled);
        let accesses = self.accesses(block, realize, loops);
        let (operations, functions) = operations(block.value());
        let is_sum = matches!(block.body, BlockBody::Reduce { .. });
        // A product and its sum are one instruction.
        let operations = if is_sum { operations.max(1.0) } else { operations };
        let arithmetic =
            points / lanes * registers * (operations + FUNCTION_OPERATIONS as f64 * functions);
        counted[if lanes > 1.0 { 0 } else { 1 }] += arithmetic;
        counted[2] += points / lanes * registers * functions;
        let mut loads = 0.0;
        let mut accumulators: f64 = 0.0;
        for access in &accesses {
            let distinct: f64 = loops
                .iter()
                .zip(&access.steps)
                .filter(|(loop_, step)| loop_.kind == LoopKind::Unrolled && **step != 0)
                .map(|(loop_, _)| loop_.extent)
                .product();
            if access.scope == Scope::Register {
                accumulators = accumulators.max(distinct * registers);
                continue;
            }
            let lane = loops.iter().zip(&access.steps).rfind(|(loop_, _)| is_lane(loop_));
            let (feature, each) = match lane.map_or(0, |(_, step)| *step) {
                _ if lanes <= 1.0 => (5, 1.0),
                0 => (4, 1.0),
                1 => (3, registers),
                _ => (5, lanes),
            };
            let issued = rounds * distinct * each;
            counted[if access.is_store { 6 } else { feature }] += issued;
            loads += issued;
        }
        self.traffic(&accesses, loops, &mut counted);
        let chain = match is_sum {
            true => rounds * self.machine.fma_latency as f64,
            false => 0.0,
        };
        let arithmetic = arithmetic / self.machine.fma_per_cycle as f64;
        let loads = loads / self.machine.loads_per_cycle as f64;
        let cycles = arithmetic.max(loads).max(chain)
            + ISSUE_CONTENTION * arithmetic.min(loads)
            + 0.5 * rounds;
        counted[10] = accumulators;
        counted[11] = unrolled * registers;
        counted[12] = rounds;
        let innermost = loops.iter().rfind(|loop_| loop_.kind == LoopKind::Serial);
        counted[13] = innermost.map_or(0.0, |loop_| loop_.extent);
        if loops.iter().any(|loop_| !loop_.constant) {
            counted[16] = rounds;
        }
        counted[19] = cycles;
        counted[22] = unrolled * registers / self.machine.fma_latency as f64;
        counted[23] = cycles;
        self.merge(&counted, &accesses, loops, is_sum);
    }

    /// Adds what was counted of a block to the program, and to the nest.
    fn merge(
        &mut self,
        counted: &[f64; FEATURES.len()],
        accesses: &[Access],
        loops: &[EnclosingLoop],
        is_sum: bool,
    ) {
        for (index, (sum, counted)) in self.sum.iter_mut().zip(counted).enumerate() {
            *sum = if LARGEST.contains(&index) { sum.max(*counted) } else { *sum + counted };
        }
        let rest = [accesses.len() as f64, f64::from(u8::from(is_sum))];
        let values = OF_BLOCK.iter().map(|index| counted[*index]).chain(rest).collect();
        self.nodes.push(Open { depth: loops.len(), kind: BLOCK, values });
        for (depth, loop_) in loops.iter().enumerate() {
            let touched: f64 =
                accesses.iter().map(|access| access.touched(&loops[depth..], depth)).sum();
            let values = &mut self.nodes[loop_.node].values;
            values[3] += touched;
            values[4] += 1.0;
        }
    }

    fn accesses(&self, block: &Block, realize: &Realize, loops: &[EnclosingLoop]) -> Vec<Access> {
        let resolved = |indices: &[Expr]| -> Vec<Expr> {
            let bound = |var: VarId| {
                let axis = block.iterators.iter().position(|iterator| iterator.var == var)?;
                realize.bindings.get(axis).cloned()
            };
            indices.iter().map(|index| index.substitute(&bound)).collect()
        };
        let mut found = Vec::new();
        block.value().visit(&mut |part| {
            if let Expr::Load(buffer, indices) = part {
                found.push((*buffer, resolved(indices), false));
            }
        });
        found.push((block.buffer, resolved(&block.indices), true));
        let accesses = found
            .into_iter()
            .map(|(buffer, indices, is_store)| self.access(buffer, &indices, is_store, loops));
        accesses.collect()
    }

    fn access(
        &self,
        buffer: BufferId,
        indices: &[Expr],
        is_store: bool,
        loops: &[EnclosingLoop],
    ) -> Access {
        let declaration = &self.program.buffers[buffer];
        let step = |var: VarId| {
            let mut stride = 1i64;
            let mut sum = 0i64;
            for (index, extent) in indices.iter().zip(&declaration.shape).rev() {
                sum = sum.saturating_add(coefficient(index, var).saturating_mul(stride));
                stride = stride.saturating_mul(*extent as i64);
            }
            sum
        };
        Access {
            steps: loops.iter().map(|loop_| step(loop_.var)).collect(),
            bytes: declaration.dtype.bytes() as f64,
            buffer_bytes: declaration.bytes() as f64,
            scope: declaration.scope,
            is_store,
        }
    }

    /// Bytes from the second cache and from behind it: what the loops inside the outermost one whose data
    /// fit a cache read is loaded in each round of the loops outside.
    fn traffic(
        &self,
        accesses: &[Access],
        loops: &[EnclosingLoop],
        counted: &mut [f64; FEATURES.len()],
    ) {
        for (feature, cache) in [(7, self.machine.l1_bytes), (8, self.machine.l2_bytes)] {
            let cache = cache as f64;
            let touched = |depth: usize| -> f64 {
                accesses.iter().map(|access| access.touched(&loops[depth..], depth)).sum()
            };
            let depth = (0..=loops.len()).find(|depth| touched(*depth) <= cache);
            let depth = depth.unwrap_or(loops.len());
            for access in accesses.iter().filter(|access| access.scope != Scope::Register) {
                let bytes = access.touched(&loops[depth..], depth);
                let mut outside = depth;
                // What the next loop leaves alone stays, where it is small.
                while outside > 0 && access.steps[outside - 1] == 0 && bytes < cache / 4.0 {
                    outside -= 1;
                }
                let rounds: f64 = loops[..outside].iter().map(|loop_| loop_.extent).product();
                counted[feature] += rounds * bytes;
            }
        }
    }
}

impl Access {
    /// Bytes of cache that all rounds of some inner loops, which begin at a depth, touch.
    fn touched(&self, inner: &[EnclosingLoop], depth: usize) -> f64 {
        if self.scope == Scope::Register {
            return 0.0;
        }
        let moving = inner.iter().zip(&self.steps[depth..]).filter(|(_, step)| **step != 0);
        let elements: f64 = moving.clone().map(|(loop_, _)| loop_.extent).product();
        let smallest_step = moving.map(|(_, step)| step.unsigned_abs()).min().unwrap_or(1);
        let each = (smallest_step as f64 * self.bytes).min(LINE_BYTES as f64).max(self.bytes);
        (elements * each).min(self.buffer_bytes)
    }
}

/// How much an index grows with a variable; 1 where that is not the same everywhere.
fn coefficient(index: &Expr, var: VarId) -> i64 {
    match index {
        Expr::Var(other) => i64::from(*other == var),
        Expr::Binary(BinaryOp::Add, left, right) => {
            coefficient(left, var).saturating_add(coefficient(right, var))
        }
        Expr::Binary(BinaryOp::Subtract, left, right) => {
            coefficient(left, var).saturating_sub(coefficient(right, var))
        }
        Expr::Binary(BinaryOp::Multiply, left, right) => {
            match (left.as_integer(), right.as_integer()) {
                (_, Some(factor)) => coefficient(left, var).saturating_mul(factor),
                (Some(factor), _) => coefficient(right, var).saturating_mul(factor),
                _ => i64::from(index.mentions(var)),
            }
        }
        other => i64::from(other.mentions(var)),
    }
}

/// Arithmetic operations and functions of a value, those of indices aside.
fn operations(value: &Expr) -> (f64, f64) {
    let counts = match value {
        Expr::Load(..) => return (0.0, 0.0),
        Expr::Unary(op, _) => {
            use hone_tensor::UnaryOp::{Abs, Ceil, Floor, Negate, Not, Round, Truncate};
            match op {
                Negate | Abs | Not | Floor | Ceil | Round | Truncate => (1.0, 0.0),
                _ => (0.0, 1.0),
            }
        }
        Expr::Binary(BinaryOp::Power, ..) => (0.0, 1.0),
        Expr::Binary(..) | Expr::Select(..) | Expr::Cast(..) => (1.0, 0.0),
        _ => (0.0, 0.0),
    };
    value
        .operands()
        .into_iter()
        .map(operations)
        .fold(counts, |sum, part| (sum.0 + part.0, sum.1 + part.1))
}
