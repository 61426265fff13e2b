//! A recurrence whose steps are divided among threads: the units of a step in parts, and all parts of a stage before the
//! next one begins ([`hone_tensor::Waves`]).
//!
//! ```text
//! for step                         (in order)
//!   for part                       (in threads)
//!     map       the state before   ->  vectors
//!   for part                       (in threads; all of them read the whole state)
//!     for columns, rows            products: a tile stays in registers over the whole sum
//!       for depth: row, column, lane
//!     map       the new state      ->  vectors
//! ```
//!
//! The units are the last axis of the states. A product computes several results of each unit, its gates; where
//! `passes::interleave_gates` has brought those of some neighbouring units together, a part of the columns is a part of the units,
//! and what follows from a product is computed by the part that has just computed that. Else a stage ends in between.
//!
//! Blocks of a stage are one loop over parts where each reads of the others what the same part computed
//! (`Schedule::merge`). Parts are equal, since threads are to end together, and of several vectors each; a recurrence whose
//! units have no such parts, and one that is not worth several threads, is left to one thread.

use super::blocks::{Around, Form, reduce};
use super::{unfit, vector_width};
use crate::Machine;
use crate::access::{is_costly, is_reduction, value, vector_axis};
use crate::decisions::Decisions;
use crate::grain::step_nanoseconds;
use hone_machine::WAVE_THREAD_NANOSECONDS;
use hone_schedule::{Schedule, ScheduleError};
use hone_tensor::{BlockId, IteratorKind, LoopKind, Program, Role, Scope, Statement, VarId, Waves};

/// Most parts of a step: some for each of several threads.
const MOST_PARTS: usize = 16;

/// Vectors of units that a part has a multiple of: rather as many as functions such as the exponential are computed of at a
/// time, else as many as `interleave_gates` brings together. With twice as many parts of half as many a GRU of 256 units
/// and 16 rows takes 1.04 of the time on one thread.
const VECTORS_OF_A_PART: [usize; 2] = [4, 2];

/// Largest temporary of a part, in bytes, that is put in memory of a thread.
const MOST_PRIVATE_BYTES: usize = 1 << 20;

/// Schedules a program whose recurrences can be divided, as far as it goes; `None` where none is worth it.
///
/// # Errors
/// What a primitive refuses that the form promised.
pub(super) fn divided(
    schedule: &Schedule,
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Result<Option<(Schedule, Vec<BlockId>)>, ScheduleError> {
    let mut done = schedule.clone();
    let mut blocks = Vec::new();
    for steps in recurrences(schedule.program()) {
        let Some(parts) = Parts::of(schedule.program(), steps, machine) else { continue };
        let mut trial = done.clone();
        match divide(&mut trial, steps, &parts, machine, decisions) {
            Ok(()) if runs_in_waves(trial.program(), steps) => {
                blocks.extend(blocks_below(schedule.program(), steps));
                done = trial;
            }
            // What cannot be shown to be apart stays on one thread.
            Ok(()) | Err(ScheduleError::Refused { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok((!blocks.is_empty()).then_some((done, blocks)))
}

/// The outermost loops over several nests whose iterations depend on each other.
fn recurrences(program: &Program) -> Vec<VarId> {
    let steps = program.body.iter().filter_map(|statement| match statement {
        Statement::Loop(outer) if outer.body.len() > 1 => Some(outer.var),
        _ => None,
    });
    steps.filter(|var| program.threads_apart(*var).is_err()).collect()
}

fn blocks_below(program: &Program, var: VarId) -> Vec<BlockId> {
    let statement = program.find_loop(var).and_then(|path| program.statement(&path));
    statement.map(Statement::blocks).unwrap_or_default()
}

fn runs_in_waves(program: &Program, var: VarId) -> bool {
    let statement = program.find_loop(var).and_then(|path| program.statement(&path));
    statement.is_some_and(|statement| Waves::of(statement).is_some())
}

/// How the units of a step are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Parts {
    /// Number of units.
    units: usize,
    /// Units of a part; they divide the number.
    part: usize,
}

impl Parts {
    /// The parts of a recurrence; `None` where its units cannot be divided, or where that is not worth it.
    fn of(program: &Program, steps: VarId, machine: &Machine) -> Option<Self> {
        let blocks = blocks_below(program, steps);
        let outer = program.loop_of(steps)?;
        if outer.kind != LoopKind::Serial || outer.body.len() != blocks.len() {
            return None;
        }
        let columns: Vec<usize> =
            blocks.iter().map(|block| columns(program, *block)).collect::<Option<_>>()?;
        let units = columns.iter().copied().min()?;
        if columns.iter().any(|columns| !columns.is_multiple_of(units)) {
            return None;
        }
        let worth = step_nanoseconds(program, steps) / WAVE_THREAD_NANOSECONDS;
        let most = usize::try_from(worth).unwrap_or(usize::MAX).min(MOST_PARTS);
        let fits = |part: &usize| {
            let count = units / part;
            units.is_multiple_of(*part)
                && (2..=most).contains(&count)
                && blocks.iter().all(|block| fills_parts(program, *block, count, machine))
        };
        let parts =
            |vectors: usize| (vectors * machine.lanes..units).step_by(vectors * machine.lanes);
        let part = VECTORS_OF_A_PART.into_iter().flat_map(parts).find(fits)?;
        Some(Self { units, part })
    }

    /// Their number.
    fn count(&self) -> usize {
        self.units / self.part
    }
}

/// The results that a block has for each of its rows; `None` where it is of no form that is divided.
fn columns(program: &Program, id: BlockId) -> Option<usize> {
    let block = &program.blocks[id];
    let axes = block.iterators.iter().filter(|axis| axis.kind == IteratorKind::Spatial).count();
    if is_reduction(block) {
        return Some(Form::of(program, id)?.columns());
    }
    let vectors = vector_axis(block).filter(|axis| axis + 1 == axes)?;
    Some(block.iterators[vectors].extent)
}

/// Whether each of so many parts of a block keeps the units of a core busy: panels stay whole, and the sums of a product
/// are as many as a multiply-add takes cycles, of which three quarters suffice where operands come from the second-level
/// cache.
fn fills_parts(program: &Program, id: BlockId, count: usize, machine: &Machine) -> bool {
    if !is_reduction(&program.blocks[id]) {
        return true;
    }
    let Some(form) = Form::of(program, id) else { return false };
    let chains = machine.fma_latency * machine.fma_per_cycle * 3 / 4;
    let sums = form.elements() / count / machine.lanes;
    form.divides_columns(count) && sums >= chains
}

/// Divides all blocks of a recurrence, makes one loop of those that may follow each other in a part, and spreads the parts
/// over threads.
fn divide(
    schedule: &mut Schedule,
    steps: VarId,
    parts: &Parts,
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Result<(), ScheduleError> {
    let mut repeated = Vec::new();
    for block in blocks_below(schedule.program(), steps) {
        if is_worth_repeating(schedule, block) {
            repeated.push(block);
        } else if is_reduction(&schedule.program().blocks[block]) {
            let form = Form::of(schedule.program(), block)
                .ok_or_else(|| unfit("blocks", "it is no product in vectors"))?;
            let around = Around { loops: 1, parts: Some(parts.count()) };
            reduce(schedule, block, form, (around, machine), decisions)?;
        } else {
            map(schedule, block, parts, machine, decisions)?;
        }
    }
    let apart: Vec<VarId> =
        repeated.iter().filter_map(|block| schedule.loops(*block).get(1).copied()).collect();
    let mut stages = merge_stages(schedule, steps, &apart)?;
    for block in repeated {
        if !repeat(schedule, block, &stages, machine)? {
            map(schedule, block, parts, machine, decisions)?;
            stages.extend(schedule.loops(block).get(1));
        }
    }
    for stage in stages {
        keep_in_thread(schedule, stage)?;
        schedule.parallel(stage)?;
    }
    Ok(())
}

/// Most bytes that each part may compute for itself of what all parts read.
const MOST_REPEATED_BYTES: usize = 1 << 16;

/// Whether a map is what a product reads all of, as the state before a step, and as cheap as a copy: then each part computes it
/// for itself, so that the threads do not have to wait until all of it is there.
fn is_worth_repeating(schedule: &Schedule, id: BlockId) -> bool {
    let program = schedule.program();
    let block = &program.blocks[id];
    let buffer = &program.buffers[block.buffer];
    let readers = schedule.consumers(id);
    !is_reduction(block)
        && !is_costly(value(block))
        && buffer.role == Role::Temporary
        && buffer.bytes() <= MOST_REPEATED_BYTES
        && readers.iter().any(|reader| is_reduction(&program.blocks[*reader]))
}

/// Vectors that are copied at a time.
const COPIED_VECTORS: usize = 4;

/// Computes a map anew in each part of the one stage that has all of its readers; gives whether there is such a stage.
fn repeat(
    schedule: &mut Schedule,
    block: BlockId,
    stages: &[VarId],
    machine: &Machine,
) -> Result<bool, ScheduleError> {
    let readers = schedule.consumers(block);
    let has_all = |stage: &&VarId| {
        let below = blocks_below(schedule.program(), **stage);
        readers.iter().all(|reader| below.contains(reader))
    };
    let Some(stage) = stages.iter().find(has_all).copied() else { return Ok(false) };
    match schedule.compute_at(block, stage) {
        Ok(()) => {}
        Err(ScheduleError::Refused { .. }) => return Ok(false),
        Err(error) => return Err(error),
    }
    if let Some(last) = schedule.loops(block).last().copied() {
        let copied = machine.lanes * COPIED_VECTORS;
        let several = schedule.extent(last).is_some_and(|extent| extent > copied);
        let lanes = if several { schedule.split(last, copied)?.1 } else { last };
        schedule.vectorize(lanes)?;
    }
    Ok(true)
}

/// Merges neighbouring loops over parts as far as that is legal; returns what is left of them. Loops that are `apart` are
/// none over parts.
fn merge_stages(
    schedule: &mut Schedule,
    steps: VarId,
    apart: &[VarId],
) -> Result<Vec<VarId>, ScheduleError> {
    let loops = match schedule.program().loop_of(steps) {
        Some(outer) => outer.body.iter(),
        None => [].iter(),
    };
    let loops: Vec<VarId> = loops
        .filter_map(|statement| match statement {
            Statement::Loop(inner) => Some(inner.var).filter(|var| !apart.contains(var)),
            _ => None,
        })
        .collect();
    let mut stages: Vec<VarId> = Vec::new();
    for next in loops {
        let Some(last) = stages.last().copied() else {
            stages.push(next);
            continue;
        };
        let mut merged = schedule.clone();
        match merged.merge(last, next) {
            // What one part reads of another needs all of them to wait in between.
            Ok(()) if merged.program().threads_apart(last).is_ok() => *schedule = merged,
            Ok(()) | Err(ScheduleError::Refused { .. }) => stages.push(next),
            Err(error) => return Err(error),
        }
    }
    Ok(stages)
}

/// Puts what blocks of a stage leave to each other alone in memory of the thread.
fn keep_in_thread(schedule: &mut Schedule, stage: VarId) -> Result<(), ScheduleError> {
    let below = blocks_below(schedule.program(), stage);
    for block in &below {
        let program = schedule.program();
        let id = program.blocks[*block].buffer;
        let buffer = &program.buffers[id];
        let users = [program.writers(id), program.readers(id)].concat();
        let is_left = buffer.role == Role::Temporary
            && buffer.scope == Scope::Global
            && buffer.bytes() <= MOST_PRIVATE_BYTES
            && users.iter().all(|user| below.contains(user));
        if is_left {
            match schedule.set_scope(*block, Scope::Scratch) {
                Ok(()) | Err(ScheduleError::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// The loops of a block below the one over steps.
fn loops_of_block(schedule: &Schedule, block: BlockId) -> Vec<VarId> {
    schedule.loops(block).split_off(1)
}

/// A map in vectors, its parts outermost.
fn map(
    schedule: &mut Schedule,
    block: BlockId,
    parts: &Parts,
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Result<(), ScheduleError> {
    let loops = loops_of_block(schedule, block);
    let Some((last, rows)) = loops.split_last() else { return Ok(()) };
    let (part, units) = schedule.split(*last, parts.part)?;
    let extent = schedule.extent(part).unwrap_or(1);
    // Several results of each unit: those of one part are not neighbours.
    if extent * parts.part != parts.units {
        return Err(unfit("blocks", "a map has several columns for a unit"));
    }
    schedule.reorder(&[&[part], rows, &[units]].concat())?;
    vectorize(schedule, block, units, machine, decisions)
}

/// Makes vectors of the last loop of a map.
fn vectorize(
    schedule: &mut Schedule,
    block: BlockId,
    last: VarId,
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> Result<(), ScheduleError> {
    let width = vector_width(schedule, block, machine, decisions);
    let lanes = match schedule.extent(last).is_some_and(|extent| extent > width) {
        true => schedule.split(last, width)?.1,
        false => last,
    };
    schedule.vectorize(lanes)
}
