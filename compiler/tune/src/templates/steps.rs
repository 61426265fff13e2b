//! What blocks of a step leave to each other alone, in registers or in memory of the thread: then steps that depend on no
//! others are spread over threads.
//!
//! ```text
//! for chunk                        (in threads)
//!   map         the first carry    ->  memory of the thread
//!   for row                        (in order: a row reads the carry that the one before stored)
//!     map         the row          ->  registers; lanes read their neighbours there
//!     map         the next carry   ->  memory of the thread
//!     map         what is kept     ->  vectors
//! ```

use super::parallel::spread;
use crate::Machine;
use crate::access::{Access, access, is_reduction, loads, value};
use crate::decisions::Decisions;
use hone_schedule::{Schedule, ScheduleError};
use hone_tensor::{Block, BlockId, Expr, Program, Role, Scope, Statement, VarId};

/// Registers that one row may take.
const MOST_REGISTERS: usize = 4;

/// Puts what blocks of a step leave to each other alone in registers where it is a row, and else in memory of the thread
/// where threads need one each. Returns the loops that several blocks share, of each nest.
pub(super) fn keep_in_threads(
    schedule: &mut Schedule,
    machine: &Machine,
) -> Result<Vec<Vec<VarId>>, ScheduleError> {
    for block in schedule.program().blocks_in_order() {
        if is_row_of_step(schedule, block, machine.lanes * MOST_REGISTERS) {
            schedule.set_scope(block, Scope::Register)?;
        }
    }
    let shared = shared_loops(schedule.program());
    for loops in &shared {
        let root = loops[0];
        let mut private = schedule.clone();
        for block in private.program().blocks_in_order() {
            if private.loops(block).first() == Some(&root) && is_left_to_step(&private, block, root)
            {
                private.set_scope(block, Scope::Scratch)?;
            }
        }
        if private.program().threads_apart(root).is_ok() {
            *schedule = private;
        }
    }
    Ok(shared)
}

/// Spreads the loops that several blocks share, as [`keep_in_threads`] gives them, over threads where they are independent.
pub(super) fn spread_shared(
    schedule: &mut Schedule,
    shared: &[Vec<VarId>],
    decisions: &mut Decisions<'_>,
) -> Result<(), ScheduleError> {
    shared.iter().try_for_each(|loops| {
        let apart = loops.iter().take_while(|var| !indexes_private(schedule.program(), **var));
        let apart: Vec<VarId> = apart.copied().collect();
        spread(schedule, &apart, decisions)
    })
}

/// Whether elements of a thread's memory tell the iterations of a loop: then one thread runs all of them.
fn indexes_private(program: &Program, var: VarId) -> bool {
    program.blocks_in_order().into_iter().any(|block| {
        let definition = &program.blocks[block];
        program.buffers[definition.buffer].scope != Scope::Global
            && definition.indices.iter().any(|index| index.mentions(var))
    })
}

/// Whether a block writes registers or reads them: its last loop has to be the lanes of one vector.
pub(super) fn is_in_registers(program: &Program, block: BlockId) -> bool {
    let definition = &program.blocks[block];
    let in_registers = |buffer| program.buffers[buffer].scope == Scope::Register;
    in_registers(definition.buffer)
        || loads(value(definition)).into_iter().any(|load| match load {
            Expr::Load(buffer, _) => in_registers(*buffer),
            _ => false,
        })
}

/// Of each nest of several blocks, outermost first: the loops that all of them share. Nests that run once are left out.
fn shared_loops(program: &Program) -> Vec<Vec<VarId>> {
    let nests = program.body.iter().filter(|statement| statement.blocks().len() > 1);
    let loops = nests.map(|statement| {
        let (mut loops, mut next) = (Vec::new(), Some(statement));
        while let Some(Statement::Loop(inner)) = next {
            loops.push(inner.var);
            next = match &inner.body[..] {
                [only] => Some(only),
                _ => None,
            };
        }
        loops
    });
    let repeats = |loops: &Vec<VarId>| {
        let first = loops.first().and_then(|var| program.loop_of(*var));
        first.is_some_and(|first| first.extent.as_integer() != Some(1))
    };
    loops.filter(repeats).collect()
}

/// Whether a block stores, in every iteration of the loop over `root`, elements that are the same ones in all.
fn is_left_to_step(schedule: &Schedule, id: BlockId, root: VarId) -> bool {
    let program = schedule.program();
    let block = &program.blocks[id];
    let buffer = &program.buffers[block.buffer];
    let users = [program.writers(block.buffer), program.readers(block.buffer)].concat();
    buffer.role == Role::Temporary
        && buffer.scope == Scope::Global
        && users.into_iter().all(|user| schedule.loops(user).first() == Some(&root))
        && !block.indices.iter().any(|index| index.mentions(root))
}

/// Whether a map of a step computes a row that no others but maps of the same step read: vectors of the whole row, shifted
/// or not, or single elements.
fn is_row_of_step(schedule: &Schedule, id: BlockId, most: usize) -> bool {
    let program = schedule.program();
    let (block, readers) = (&program.blocks[id], schedule.consumers(id));
    let buffer = &program.buffers[block.buffer];
    let [extent] = buffer.shape[..] else { return false };
    let around = loops_of_step(schedule, id);
    let reads_row = |reader: &BlockId| {
        let reading = &program.blocks[*reader];
        let lane = lane_of(reading).filter(|(_, lanes)| *lanes == extent).map(|(lane, _)| lane);
        loops_of_step(schedule, *reader) == around
            && !is_reduction(reading)
            && loads(value(reading)).into_iter().all(|load| match load {
                Expr::Load(read, indices) if *read == block.buffer => {
                    is_known(load, &indices[0], lane)
                }
                _ => true,
            })
    };
    buffer.role == Role::Temporary
        && !around.is_empty()
        && (2..=most).contains(&extent)
        && !is_reduction(block)
        && !block.reads(block.buffer)
        && program.writers(block.buffer).len() == 1
        && lane_of(block).is_some_and(|(lane, _)| block.indices == [Expr::Var(lane)])
        && !readers.is_empty()
        && readers.iter().all(reads_row)
}

/// The loops around a block that are no axes of its own.
fn loops_of_step(schedule: &Schedule, block: BlockId) -> Vec<VarId> {
    let mut loops = schedule.loops(block);
    let axes = schedule.program().blocks[block].iterators.len();
    loops.truncate(loops.len().saturating_sub(axes));
    loops
}

/// The only axis of a block and its extent, where neighbours along it are stored as such.
fn lane_of(block: &Block) -> Option<(VarId, usize)> {
    let [axis] = &block.iterators[..] else { return None };
    let stored = Expr::Load(block.buffer, block.indices.clone());
    (access(&stored, axis.var) == Access::Contiguous).then_some((axis.var, axis.extent))
}

/// Whether an index is known when code is made: a number, or lanes that begin at one.
fn is_known(load: &Expr, index: &Expr, lane: Option<VarId>) -> bool {
    let mut others = false;
    index.visit(&mut |part| match part {
        Expr::Var(var) => others |= Some(*var) != lane,
        Expr::Load(..) => others = true,
        _ => {}
    });
    let in_lanes = |lane| matches!(access(load, lane), Access::Invariant | Access::Contiguous);
    !others && lane.is_none_or(in_lanes)
}
