//! The parallel grain: into how many tasks a kernel is cut, and how many of them are worth a thread.
//!
//! An artifact does not know on how many threads it will run, and the same model for the same target
//! must give the same artifact. So every kernel is cut into as many tasks as its work is worth, up to a
//! number that serves many threads; the runtime then gives each thread a contiguous range of them, and
//! one that is done takes over tasks of another. Neighbouring tasks read the same operands.
//!
//! All figures are nominal: they only have to be right within a small factor.

use crate::access::{is_function, loads};
use crate::decisions::Decisions;
use hone_machine::{
    HANDOVER_NANOSECONDS, NOMINAL_BYTES_PER_NS, NOMINAL_CACHE_BYTES_PER_NS,
    NOMINAL_OPERATIONS_PER_NS, WAVE_THREAD_NANOSECONDS,
};
use hone_schedule::Schedule;
use hone_tensor::{BlockBody, BufferId, Expr, Program, Scope, Statement, VarId, Waves};
use std::collections::HashMap;

/// Tasks that a kernel with enough work is cut into at least: four for each of 64 threads, so that the
/// threads that end last do so within a quarter of their part, however unequal tasks or threads are.
const MANY_TASKS: u64 = 256;

/// Minimum work of a thread in nanoseconds: ten times what handing it over costs.
const THREAD_NANOSECONDS: u64 = 10 * HANDOVER_NANOSECONDS;

/// Tasks in the minimum work of a thread.
const TASKS_PER_THREAD: u64 = 4;

/// Only where there are fewer tasks than these is the loop over rows of tiles cut, over which a panel of
/// weights is used again. Cut into parts of two tiles, a product of 128 x 768 by 768 x 3072 with a GELU, of
/// 48 tasks without that, took 7 to 13 % longer on one thread; products of 24 tasks did not.
pub(crate) const FEW_TASKS: usize = 32;

/// Operations that a function such as the exponential counts as; it is a polynomial.
pub const FUNCTION_OPERATIONS: u64 = 16;

/// Elements in a nanosecond that vectors gather one by one: those whose place in its row is itself read.
const NOMINAL_GATHERS_PER_NS: u64 = 1;

/// Tasks to cut the nest around a loop into: what its work is worth, or fewer or more of them, but always
/// some for each of several threads where there is work for them.
pub(crate) fn tasks(schedule: &Schedule, inside: VarId, decisions: &mut Decisions<'_>) -> usize {
    let worth = tasks_worth(schedule, inside);
    let minimum = worth.min(FEW_TASKS);
    let others = [worth / 4, worth / 2, worth * 2, worth * 4];
    decisions.number(
        "tasks",
        others.into_iter().filter(|count| *count >= minimum && worth > 1),
        worth,
    )
}

/// Tasks that the nest around a loop is worth; 1 where the nest is not worth a second thread.
fn tasks_worth(schedule: &Schedule, inside: VarId) -> usize {
    let program = schedule.program();
    let nest = program.body.iter().find(|statement| contains(statement, inside));
    let work = nest.map_or(0, |statement| work(program, statement).nanoseconds());
    if work < 2 * THREAD_NANOSECONDS {
        return 1;
    }
    (work * TASKS_PER_THREAD / THREAD_NANOSECONDS).min(MANY_TASKS) as usize
}

/// The smallest divisor of `extent` that is at least `parts`: equal parts of a loop need no further code for a
/// shorter last one.
pub(crate) fn even_parts(extent: usize, parts: usize) -> usize {
    (parts.max(1)..=extent).find(|parts| extent.is_multiple_of(*parts)).unwrap_or(extent.max(1))
}

/// Iterations of a loop in each of about `parts` parts: equal ones where there are at most twice as many of these, else
/// the last one is shorter. 131 tiles have no equal parts but single tiles, each of which would be claimed and
/// prefetched for by itself.
pub(crate) fn part(extent: usize, parts: usize) -> usize {
    let even = even_parts(extent, parts);
    match even <= parts.saturating_mul(2) {
        true => extent / even,
        false => extent.div_ceil(parts.max(1)),
    }
    .max(1)
}

fn contains(statement: &Statement, var: VarId) -> bool {
    match statement {
        Statement::Loop(inner) => {
            inner.var == var || inner.body.iter().any(|inside| contains(inside, var))
        }
        Statement::Realize(_) | Statement::Sync(_) => false,
    }
}

/// What a statement of a program does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatementWork {
    /// Arithmetic operations; a function such as the exponential counts as [`FUNCTION_OPERATIONS`].
    pub operations: u64,
    /// Elements that it gathers one by one: those whose place in its row is itself read.
    pub gathered: u64,
    /// Distinct bytes that it reads from shared memory.
    pub bytes_read: u64,
    /// Distinct bytes that it writes there.
    pub bytes_written: u64,
}

impl StatementWork {
    /// Nominal time on one core: the larger of what its instructions take and of memory traffic.
    fn nanoseconds(&self) -> u64 {
        let bytes = self.bytes_read.saturating_add(self.bytes_written);
        self.computing_nanoseconds().max(bytes / NOMINAL_BYTES_PER_NS)
    }

    /// Nominal time on one core of arithmetic and gathers.
    fn computing_nanoseconds(&self) -> u64 {
        let gathers = self.gathered / NOMINAL_GATHERS_PER_NS;
        (self.operations / NOMINAL_OPERATIONS_PER_NS).saturating_add(gathers)
    }

    /// Nominal time on one core of what reads from the caches.
    fn cached_nanoseconds(&self) -> u64 {
        let bytes = self.bytes_read.saturating_add(self.bytes_written);
        self.computing_nanoseconds().max(bytes / NOMINAL_CACHE_BYTES_PER_NS)
    }

    /// Minimum number of tasks that are worth a further thread, where the statement is cut into `tasks` equal ones; at
    /// least 1, at most all of them.
    pub fn min_tasks_per_thread(&self, tasks: u64) -> u64 {
        let task = self.nanoseconds() / tasks.max(1);
        (THREAD_NANOSECONDS / task.max(1)).clamp(1, tasks.max(1))
    }

    /// Whether all of it takes as long as a thread's part has to, by nominal rates.
    pub fn is_worth_a_thread(&self) -> bool {
        self.nanoseconds() >= THREAD_NANOSECONDS
    }
}

/// What a statement does, of open sizes at their largest.
pub fn work(program: &Program, statement: &Statement) -> StatementWork {
    let (reads, writes) = (HashMap::new(), HashMap::new());
    let mut work = Work { program, operations: 0, gathered: 0, reads, writes };
    work.add(statement, 1);
    let bytes = |accesses: &HashMap<BufferId, u64>| {
        let each = accesses.iter().map(|(buffer, count)| work.bytes(*buffer, *count));
        each.fold(0, u64::saturating_add)
    };
    StatementWork {
        operations: work.operations,
        gathered: work.gathered,
        bytes_read: bytes(&work.reads),
        bytes_written: bytes(&work.writes),
    }
}

/// Nominal time of one iteration of a top-level loop on one core, where what it reads stays in the caches: what all
/// iterations read anew, such as the weights of a recurrence.
pub(crate) fn step_nanoseconds(program: &Program, outer: VarId) -> u64 {
    let body = program.loop_of(outer).map_or(&[][..], |outer| &outer.body);
    let each = body.iter().map(|statement| work(program, statement).cached_nanoseconds());
    each.fold(0, u64::saturating_add)
}

/// Fewest parts of a wave that are worth a thread of their own, at least 1: a thread should have as much to do
/// between two barriers as makes up for one.
pub fn min_parts_per_thread(program: &Program, statement: &Statement, waves: Waves) -> u64 {
    let Statement::Loop(outer) = statement else { return 1 };
    let part = step_nanoseconds(program, outer.var) / waves.stages.max(1) / waves.parts.max(1);
    (WAVE_THREAD_NANOSECONDS / waves.stages.max(1))
        .div_ceil(part.max(1))
        .clamp(1, waves.parts.max(1))
}

/// What a statement does; sums saturate, as extents come from the model.
struct Work<'a> {
    program: &'a Program,
    operations: u64,
    gathered: u64,
    /// Elements that are read, counted each time.
    reads: HashMap<BufferId, u64>,
    /// Elements that are written, counted each time.
    writes: HashMap<BufferId, u64>,
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
                count(&mut self.writes, self.program, block.buffer, times);
                let operations = combining + self.value(value, times);
                self.operations = self.operations.saturating_add(operations.saturating_mul(times));
            }
            Statement::Sync(_) => {}
        }
    }

    /// Operations of one evaluation, arithmetic of indices aside where these are not read themselves; notes what it reads.
    fn value(&mut self, value: &Expr, times: u64) -> u64 {
        let outermost = match value {
            Expr::Load(buffer, indices) => {
                count(&mut self.reads, self.program, *buffer, times);
                return self.indices(indices, times);
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

    /// Operations of what indices read; notes what is gathered.
    fn indices(&mut self, indices: &[Expr], times: u64) -> u64 {
        let mut operations = 0;
        for (axis, index) in indices.iter().enumerate() {
            if loads(index).is_empty() {
                continue;
            }
            operations += self.value(index, times);
            // Rows that are chosen so are read in vectors all the same.
            if axis + 1 == indices.len() {
                self.gathered = self.gathered.saturating_add(times);
            }
        }
        operations
    }

    /// Bytes of memory behind so many accesses: no more than the buffer has.
    fn bytes(&self, buffer: BufferId, count: u64) -> u64 {
        let buffer = &self.program.buffers[buffer];
        count.saturating_mul(buffer.dtype.bytes() as u64).min(buffer.bytes() as u64)
    }
}

/// Notes accesses of a buffer, where it lies in shared memory.
fn count(accesses: &mut HashMap<BufferId, u64>, program: &Program, buffer: BufferId, times: u64) {
    if program.buffers[buffer].scope == Scope::Global {
        let count = accesses.entry(buffer).or_default();
        *count = count.saturating_add(times);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use crate::{Machine, schedule};
    use hone_tensor::{BinaryOp, Builder, Combiner, LoopKind};
    use hone_types::DataType::{F32, I64};
    use hone_types::TensorType;

    fn tensor(shape: &[usize]) -> TensorType {
        TensorType::new(F32, shape)
    }

    /// `y[i..] = x[i..] + x[i..]`
    fn sum(shape: &[usize]) -> Program {
        let mut builder = Builder::new();
        let x = builder.input("x", &tensor(shape));
        let y = builder
            .map("y", &tensor(shape), |i| Expr::Load(x, i.to_vec()) + Expr::Load(x, i.to_vec()));
        builder.output(y);
        builder.finish()
    }

    /// `y[b, m, n] = sum over k of x[b, m, k] * w[k, n]`
    fn product(batch: usize, m: usize, k: usize, n: usize) -> Program {
        let mut builder = Builder::new();
        let x = builder.input("x", &tensor(&[batch, m, k]));
        let w = builder.input("w", &tensor(&[k, n]));
        let s = builder.reduce("s", &tensor(&[batch, m, n]), &[k], Combiner::Sum, |i, r| {
            let x = Expr::Load(x, vec![i[0].clone(), i[1].clone(), r[0].clone()]);
            let w = Expr::Load(w, vec![r[0].clone(), i[2].clone()]);
            x.binary(BinaryOp::Multiply, w)
        });
        let y = builder.map("y", &tensor(&[batch, m, n]), |i| {
            Expr::Load(s, i.to_vec()).binary(BinaryOp::Maximum, Expr::Constant(0.0, F32))
        });
        builder.output(y);
        builder.finish()
    }

    /// Rows minus their maximum: softmax without the exponential.
    fn rows(count: usize, length: usize) -> Program {
        let mut builder = Builder::new();
        let x = builder.input("x", &tensor(&[12, count / 12, length]));
        let row_type = tensor(&[12, count / 12]);
        let maximum = builder.reduce("maximum", &row_type, &[length], Combiner::Maximum, |i, r| {
            Expr::Load(x, vec![i[0].clone(), i[1].clone(), r[0].clone()])
        });
        let y = builder.map("y", &tensor(&[12, count / 12, length]), |i| {
            Expr::Load(x, i.to_vec()) - Expr::Load(maximum, i[..2].to_vec())
        });
        builder.output(y);
        builder.finish()
    }

    /// Tasks of the scheduled program's only statement.
    fn tasks(program: Program) -> usize {
        let scheduled = schedule(program, &Machine::with_vectors(64, 32)).unwrap();
        let program = scheduled.schedule.program();
        let [Statement::Loop(outer)] = &program.body[..] else { panic!("{program}") };
        if outer.kind != LoopKind::Parallel {
            return 1;
        }
        usize::try_from(outer.extent.as_integer().unwrap()).unwrap()
    }

    #[test]
    fn work_counts_arithmetic_or_traffic_whichever_takes_longer() {
        let time = |program: &Program| work(program, &program.body[0]).nanoseconds();
        // 2 x 1 MiB at 8 bytes a nanosecond; a buffer that is read twice counts once.
        assert_eq!(time(&sum(&[512, 512])), 2 * 4 * 512 * 512 / 8);
        let product = product(1, 128, 768, 768);
        // A multiply and an add for each term.
        assert_eq!(work(&product, &product.body[0]).nanoseconds(), 2 * 128 * 768 * 768 / 32);
    }

    /// A reduction that lies in memory is written, and its terms are read.
    #[test]
    fn reads_and_writes_are_counted_apart() {
        let product = product(1, 128, 768, 512);
        let found = work(&product, &product.body[0]);
        assert_eq!(found.bytes_read, 4 * (128 * 768 + 768 * 512));
        assert_eq!(found.bytes_written, 4 * 128 * 512);
        assert_eq!(found.operations, 2 * 128 * 768 * 512);
    }

    /// A table of which little is read is not traffic.
    #[test]
    fn a_buffer_counts_as_far_as_it_is_read() {
        let mut builder = Builder::new();
        let x = builder.input("x", &tensor(&[30_000, 768]));
        let y = builder.map("y", &tensor(&[4, 768]), |i| {
            Expr::Load(x, vec![i[0].clone() * Expr::from(7), i[1].clone()])
        });
        builder.output(y);
        let program = builder.finish();
        assert_eq!(work(&program, &program.body[0]).nanoseconds(), 2 * 4 * 4 * 768 / 8);
    }

    /// Rows of a table that are chosen by an index are traffic alone, elements of them are gathered.
    #[test]
    fn gathered_elements_count_by_themselves() {
        let gathered = |by_row: bool| {
            let mut builder = Builder::new();
            let x = builder.input("x", &tensor(&[100, 100]));
            let index = builder.input("index", &TensorType::new(I64, [100, 100]));
            let y = builder.map("y", &tensor(&[100, 100]), |i| {
                let found = match by_row {
                    true => Expr::Load(index, vec![i[0].clone(), 0.into()]),
                    false => Expr::Load(index, i.to_vec()),
                };
                let indices = match by_row {
                    true => vec![found, i[1].clone()],
                    false => vec![i[0].clone(), found],
                };
                Expr::Load(x, indices)
            });
            builder.output(y);
            let program = builder.finish();
            work(&program, &program.body[0])
        };
        let (rows, elements) = (gathered(true), gathered(false));
        assert_eq!((rows.gathered, rows.bytes_read), (0, 100 * 100 * (4 + 8)));
        assert_eq!((elements.operations, elements.gathered), (0, 100 * 100));
        assert_eq!(
            elements.nanoseconds(),
            (100 * 100 / NOMINAL_GATHERS_PER_NS).max(100 * 100 * (4 + 8 + 4) / 8)
        );
    }

    #[test]
    fn large_kernels_have_tasks_for_many_threads() {
        let many = MANY_TASKS as usize;
        for batch in [1, 2, 8, 32] {
            let minimum = if batch < 8 { FEW_TASKS } else { many };
            assert!(tasks(product(batch, 128, 768, 3072)) >= minimum, "product, batch {batch}");
        }
        assert!(tasks(product(1, 128, 768, 768)) >= many);
        assert!(tasks(sum(&[8, 64, 112, 112])) >= many);
        assert!(tasks(rows(12 * 1024, 1024)) >= many);
    }

    /// Batch and rows are one after another in memory: either alone is too few tasks.
    #[test]
    fn tasks_come_from_as_many_axes_as_it_takes() {
        for batch in [1, 2, 4, 8, 16, 32] {
            let found = tasks(sum(&[batch, 2048, 1024 / batch]));
            assert!((MANY_TASKS as usize..=65536).contains(&found), "batch {batch}: {found}");
        }
    }

    #[test]
    fn small_kernels_are_not_cut() {
        assert!(tasks(sum(&[4, 256])) <= 4);
        assert!(tasks(product(1, 8, 16, 64)) <= 4);
    }

    #[test]
    fn parts_are_even() {
        for extent in 1..200 {
            for wanted in 1..300 {
                let parts = even_parts(extent, wanted);
                assert!(extent.is_multiple_of(parts) && parts >= wanted.min(extent));
            }
        }
        assert_eq!(even_parts(0, 5), 1);
        assert_eq!(even_parts(0, 0), 1);
    }

    #[test]
    fn parts_that_cannot_be_even_are_few_all_the_same() {
        assert_eq!(part(131, 16), 9);
        assert_eq!(part(28, 16), 1);
        assert_eq!(part(196, 16), 7);
        for extent in 1usize..300 {
            for wanted in 1..300 {
                let parts = extent.div_ceil(part(extent, wanted));
                assert!(parts <= 2 * wanted, "{extent} in {wanted}: {parts}");
            }
        }
        assert_eq!([part(0, 5), part(5, 0)], [1, 5]);
    }

    #[test]
    fn a_thread_gets_five_microseconds_or_all_there_is() {
        let program = sum(&[512, 512]);
        let time = 2 * 4 * 512 * 512 / 8;
        assert_eq!(work(&program, &program.body[0]).min_tasks_per_thread(512), 5000 / (time / 512));
        assert_eq!(work(&program, &program.body[0]).min_tasks_per_thread(1), 1);
        assert_eq!(work(&program, &program.body[0]).min_tasks_per_thread(0), 1);
        let small = sum(&[4, 4]);
        assert_eq!(work(&small, &small.body[0]).min_tasks_per_thread(4), 4);
    }
}
