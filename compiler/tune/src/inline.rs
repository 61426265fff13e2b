//! Inlines point-wise stages into their readers, where that repeats no expensive work.

use crate::access::{
    Access, Contraction, access, is_costly, is_guarded, is_reduction, loads, selects_index, value,
    vector_axis,
};
use hone_schedule::{Schedule, ScheduleError};
use hone_tensor::{BinaryOp, Block, BlockId, BufferId, Expr, Program, Role};

/// Inlines every stage that may be.
pub(crate) fn inline_stages(schedule: &mut Schedule) -> Result<(), ScheduleError> {
    for block in schedule.program().blocks_in_order() {
        if may_inline(schedule, block) {
            match schedule.compute_inline(block) {
                // A refused stage stays a separate one.
                Ok(()) | Err(ScheduleError::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Maximum loads of a stage that is computed again for each index at which it is read.
const CHEAP_LOADS: usize = 2;

/// Whether one of the readers reads a buffer at several indices.
fn is_read_at_several_indices(program: &Program, readers: &[BlockId], buffer: BufferId) -> bool {
    readers.iter().any(|reader| {
        let reads = loads(value(&program.blocks[*reader])).into_iter().filter_map(|load| {
            let Expr::Load(read, indices) = load else { return None };
            (*read == buffer).then_some(indices)
        });
        let reads: Vec<_> = reads.collect();
        reads.windows(2).any(|pair| pair[0] != pair[1])
    })
}

/// Whether lanes read what others of the same row have: a stage is computed once for all of them, in registers.
fn is_exchanged(program: &Program, block: &Block, readers: &[BlockId]) -> bool {
    readers
        .iter()
        .any(|reader| read_by_some_lanes(&program.blocks[*reader]).contains(&block.buffer))
}

/// Buffers of which some lanes of a map read elements, and others do not.
fn read_by_some_lanes(block: &Block) -> Vec<BufferId> {
    let mut buffers = Vec::new();
    let Some(lane) = block.iterators.last().map(|iterator| iterator.var) else { return buffers };
    value(block).visit(&mut |part| {
        if let Expr::Select(condition, then, _) = part
            && condition.mentions(lane)
        {
            buffers.extend(loads(then).into_iter().filter_map(|load| match load {
                Expr::Load(buffer, indices) => {
                    (indices.last() != Some(&Expr::Var(lane))).then_some(*buffer)
                }
                _ => None,
            }));
        }
    });
    buffers
}

fn may_inline(schedule: &Schedule, id: BlockId) -> bool {
    let program = schedule.program();
    let block = &program.blocks[id];
    let temporary = program.buffers[block.buffer].role == Role::Temporary;
    let readers = schedule.consumers(id);
    if is_reduction(block) || !temporary || readers.is_empty() {
        return false;
    }
    let value = value(block);
    if program.has_steps() {
        // What later iterations read is stored. What several blocks of a step read is not repeated.
        let order = program.blocks_in_order();
        let mut before = order.iter().take_while(|other| **other != id);
        if before.any(|other| readers.contains(other)) || block.reads(block.buffer) {
            return false;
        }
        let costs = || is_costly(value) || !read_by_some_lanes(block).is_empty();
        if readers.len() > 1 && costs() || is_exchanged(program, block, &readers) {
            return false;
        }
    }
    let (reducing, mapping): (Vec<BlockId>, Vec<BlockId>) =
        readers.iter().partition(|reader| is_reduction(&program.blocks[**reader]));
    if reducing.is_empty() {
        let repeated = follows_reduction(program, value) && is_repeated(program, id, &mapping);
        let several = is_read_at_several_indices(program, &mapping, block.buffer);
        return !repeated && (!several || loads(value).len() <= CHEAP_LOADS);
    }
    if reducing.iter().any(|reader| Contraction::of(program, *reader).is_some()) {
        return is_plain(value) && mapping.is_empty();
    }
    let repeated = readers.len() > 1;
    if repeated && reducing.iter().any(|reader| is_transposed(program, block, *reader)) {
        return false;
    }
    if selects_index(value) {
        return !repeated
            && !is_guarded(value)
            && reducing.iter().all(|reader| gathers_once(program, id, *reader));
    }
    if let ([reader], true) = (&reducing[..], is_guarded(value)) {
        return !repeated && guards_whole_vectors(program, id, *reader);
    }
    !(is_guarded(value) || repeated && is_costly(value))
}

/// Whether a reduction reads each element of a stage once, and vectors of it are vectors of what the stage reads: then
/// the indices of a gather are found once for each vector in either way.
fn gathers_once(program: &Program, id: BlockId, reader: BlockId) -> bool {
    let (stage, reading) = (&program.blocks[id], &program.blocks[reader]);
    let (Some(axis), Some(lane)) = (vector_axis(reading), stage.iterators.last()) else {
        return false;
    };
    let var = reading.iterators[axis].var;
    let in_vectors = loads(value(reading))
        .into_iter()
        .all(|load| access(load, var) != Access::Strided)
        && loads(value(stage)).into_iter().all(|load| access(load, lane.var) != Access::Strided);
    in_vectors && !is_repeated(program, id, &[reader])
}

/// Whether a stage transposes elements that a reduction reads in vectors: done once, every reader has
/// contiguous vectors.
fn is_transposed(program: &Program, stage: &Block, reader: BlockId) -> bool {
    let reading = &program.blocks[reader];
    let (Some(lane), Some(axis)) = (stage.iterators.last(), vector_axis(reading)) else {
        return false;
    };
    let var = reading.iterators[axis].var;
    let read = loads(value(reading)).into_iter().any(|load| match load {
        Expr::Load(buffer, _) => *buffer == stage.buffer && access(load, var) == Access::Contiguous,
        _ => false,
    });
    read && is_plain(value(stage))
        && loads(value(stage)).into_iter().any(|load| access(load, lane.var) == Access::Strided)
}

/// Whether a value is an element, perhaps of another type.
fn is_plain(value: &Expr) -> bool {
    match value {
        Expr::Cast(_, operand) => is_plain(operand),
        _ => matches!(value, Expr::Load(..)),
    }
}

/// Whether a reduction reads a guarded stage in vectors, each of which is read as a whole or not at
/// all.
fn guards_whole_vectors(program: &Program, id: BlockId, reader: BlockId) -> bool {
    let (stage, reading) = (&program.blocks[id], &program.blocks[reader]);
    let (Some(axis), Some(lane)) = (vector_axis(reading), stage.iterators.last()) else {
        return false;
    };
    let var = reading.iterators[axis].var;
    let along = loads(value(reading)).into_iter().all(|load| access(load, var) != Access::Strided);
    let mut whole = stage.indices.last() == Some(&Expr::Var(lane.var));
    value(stage).visit(&mut |part| {
        if let Expr::Select(condition, _, otherwise) = part {
            whole &= !condition.mentions(lane.var) && matches!(**otherwise, Expr::Constant(..));
        }
    });
    along
        && whole
        && loads(value(stage)).into_iter().all(|load| access(load, lane.var) == Access::Contiguous)
}

/// Whether a value is a division or a costly function of what a reduction made.
fn follows_reduction(program: &Program, value: &Expr) -> bool {
    let mut divides = false;
    value.visit(&mut |part| divides |= matches!(part, Expr::Binary(BinaryOp::Divide, ..)));
    let reduced = |buffer: BufferId| {
        program.writers(buffer).iter().any(|writer| is_reduction(&program.blocks[*writer]))
    };
    let reads = loads(value).into_iter().any(|load| match load {
        Expr::Load(buffer, _) => reduced(*buffer),
        _ => false,
    });
    reads && (divides || is_costly(value))
}

/// Whether a reader has more elements than the stage itself.
fn is_repeated(program: &Program, id: BlockId, readers: &[BlockId]) -> bool {
    let points = |id: BlockId| -> usize {
        program.blocks[id].iterators.iter().map(|iterator| iterator.extent).product()
    };
    readers.iter().any(|reader| points(*reader) > points(id))
}
