//! The parallel grain: into how many tasks a kernel is cut, and how many of them are worth a thread.
//!
//! An artifact does not know on how many threads it will run, and the same model for the same target
//! must give the same artifact. So every kernel is cut into as many tasks as its work is worth, up to a
//! number that serves many threads; the runtime then gives each thread a contiguous range of them, and
//! one that is done takes over tasks of another. Neighbouring tasks read the same operands.
//!
//! All figures are nominal: they only have to be right within a small factor.

use crate::access::is_function;
use hone_schedule::Schedule;
use hone_tensor::{BlockBody, BufferId, Expr, Program, Scope, Statement, VarId};
use std::collections::HashMap;

/// Tasks that a kernel with enough work is cut into at least: four for each of 64 threads, so that the
/// threads that end last do so within a quarter of their part, however unequal tasks or threads are.
const MOST_TASKS: u64 = 256;

/// Least work of a thread in nanoseconds: handing a step to a worker and awaiting it costs up to half a
/// microsecond for each worker (`cargo bench -p hone-runtime`).
const THREAD_NANOSECONDS: u64 = 5_000;

/// Tasks in the least work of a thread.
const TASKS_PER_THREAD: u64 = 4;

/// Arithmetic operations in a nanosecond on one core: a sixth of what AVX-512 and a third of what AVX2
/// cores reach in products of matrices, and about what vectors of four reach.
const OPERATIONS_PER_NANOSECOND: u64 = 32;

/// Bytes in a nanosecond that one core streams from or to memory.
const BYTES_PER_NANOSECOND: u64 = 8;

/// Operations that a function such as the exponential counts as; it is a polynomial.
const FUNCTION_OPERATIONS: u64 = 16;

/// Fewest tasks worth a thread of their own, where a statement of a program is cut into `tasks` equal
/// ones; at least 1, at most all of them.
pub fn min_tasks_per_thread(program: &Program, statement: &Statement, tasks: u64) -> u64 {
    let task = nanoseconds(program, statement) / tasks.max(1);
    (THREAD_NANOSECONDS / task.max(1)).clamp(1, tasks.max(1))
}

/// Tasks to cut the nest around a loop into; 1 where the nest is not worth a second thread.
pub(crate) fn tasks_worth(schedule: &Schedule, inside: VarId) -> usize {
    let program = schedule.program();
    let nest = program.body.iter().find(|statement| contains(statement, inside));
    let work = nest.map_or(0, |statement| nanoseconds(program, statement));
    if work < 2 * THREAD_NANOSECONDS {
        return 1;
    }
    (work * TASKS_PER_THREAD / THREAD_NANOSECONDS).min(MOST_TASKS) as usize
}

/// The least divisor of `extent` that is at least `parts`: parts of a loop that are all alike need no
/// code of their own for a shorter last one.
pub(crate) fn even_parts(extent: usize, parts: usize) -> usize {
    (parts.max(1)..=extent).find(|parts| extent.is_multiple_of(*parts)).unwrap_or(extent.max(1))
}

fn contains(statement: &Statement, var: VarId) -> bool {
    match statement {
        Statement::Loop(inner) => {
            inner.var == var || inner.body.iter().any(|inside| contains(inside, var))
        }
        Statement::Realize(_) => false,
    }
}

/// Nominal time of a statement on one core: the larger of arithmetic and memory traffic.
fn nanoseconds(program: &Program, statement: &Statement) -> u64 {
    let mut work = Work { program, operations: 0, accesses: HashMap::new() };
    work.add(statement, 1);
    let bytes: u64 = work.accesses.iter().map(|(buffer, count)| work.bytes(*buffer, *count)).sum();
    (work.operations / OPERATIONS_PER_NANOSECOND).max(bytes / BYTES_PER_NANOSECOND)
}

/// What a statement does; sums saturate, as extents come from the model.
struct Work<'a> {
    program: &'a Program,
    operations: u64,
    /// Elements that are read or written, counted each time.
    accesses: HashMap<BufferId, u64>,
}

impl Work<'_> {
    fn add(&mut self, statement: &Statement, times: u64) {
        match statement {
            Statement::Loop(inner) => {
                let extent = inner.most().map_or(1, |extent| u64::try_from(extent).unwrap_or(0));
                for inside in &inner.body {
                    self.add(inside, times.saturating_mul(extent));
                }
            }
            Statement::Realize(realize) => {
                let block = &self.program.blocks[realize.block];
                let (value, combining) = match &block.body {
                    BlockBody::Map(value) => (value, 0),
                    BlockBody::Reduce { value, .. } => (value, 1),
                };
                self.access(block.buffer, times);
                let operations = combining + self.value(value, times);
                self.operations = self.operations.saturating_add(operations.saturating_mul(times));
            }
        }
    }

    /// Operations of one evaluation, index arithmetic aside; notes what it reads.
    fn value(&mut self, value: &Expr, times: u64) -> u64 {
        let outermost = match value {
            Expr::Load(buffer, _) => {
                self.access(*buffer, times);
                return 0;
            }
            _ if is_function(value) => FUNCTION_OPERATIONS,
            Expr::Unary(..) | Expr::Binary(..) | Expr::Select(..) => 1,
            _ => 0,
        };
        value
            .operands()
            .into_iter()
            .fold(outermost, |sum, operand| sum + self.value(operand, times))
    }

    fn access(&mut self, buffer: BufferId, times: u64) {
        if self.program.buffers[buffer].scope == Scope::Global {
            let count = self.accesses.entry(buffer).or_default();
            *count = count.saturating_add(times);
        }
    }

    /// Bytes of memory behind so many accesses: no more than the buffer has.
    fn bytes(&self, buffer: BufferId, count: u64) -> u64 {
        let buffer = &self.program.buffers[buffer];
        count.saturating_mul(buffer.dtype.bytes() as u64).min(buffer.bytes() as u64)
    }
}
