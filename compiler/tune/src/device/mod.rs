//! Templates for devices of many lanes: blocks and lanes in place of threads and vectors.
//!
//! As on processors a template reads a program's form and applies primitives, and the last one takes every
//! program. They ask no source for decisions yet: tiles follow from extents and limits alone.

mod flat;
mod matmul;
mod sums;

use crate::inline::inline_stages;
use crate::templates::unfit;
use hone_schedule::{Schedule, ScheduleError};
use hone_tensor::{Axis, BlockId, Dimension, Level, Limits, Program, VarId};

/// A schedule for a device and the template that made it.
#[derive(Debug)]
pub struct DeviceSchedule {
    /// The schedule; its program is verified for the device.
    pub schedule: Schedule,
    /// Name of the template.
    pub template: &'static str,
}

type Template = fn(&mut Schedule, &Limits) -> Result<(), ScheduleError>;

/// Templates in the order in which they are tried.
const TEMPLATES: [(&str, Template); 3] =
    [("matmul", matmul::apply), ("sums", sums::apply), ("flat", flat::apply)];

/// A plain program whose point-wise stages are inlined into their readers: what templates begin with.
///
/// # Errors
/// None but for faults of the primitives.
pub fn plain_for_device(program: Program) -> Result<Schedule, ScheduleError> {
    let mut plain = Schedule::new(program);
    inline_stages(&mut plain)?;
    Ok(plain)
}

/// Schedules a plain program for a device by the first template that takes it.
///
/// # Errors
/// What the last template refuses; [`ScheduleError::Unsound`] where what it made is not fit for the device.
pub fn schedule_for_device(
    program: Program,
    limits: &Limits,
) -> Result<DeviceSchedule, ScheduleError> {
    let plain = plain_for_device(program)?;
    let mut refusal = unfit("template", "there is none");
    for (template, apply) in TEMPLATES {
        let mut schedule = plain.clone();
        match apply(&mut schedule, limits).and_then(|()| schedule.verify_for(limits)) {
            Ok(()) => return Ok(DeviceSchedule { schedule, template }),
            Err(reason) => {
                if std::env::var_os("HONE_EXPLAIN_SCHEDULES").is_some() {
                    eprintln!("{template} refuses: {reason:?}\n{}", schedule.program());
                }
                refusal = reason;
            }
        }
    }
    Err(refusal)
}

/// The axis over blocks along a dimension.
const fn over_blocks(dimension: Dimension) -> Axis {
    Axis::new(Level::Block, dimension)
}

/// The axis over lanes along a dimension.
const fn over_lanes(dimension: Dimension) -> Axis {
    Axis::new(Level::Lane, dimension)
}

/// Makes one loop of loops that stand one directly in the other.
fn fuse_all(schedule: &mut Schedule, loops: &[VarId]) -> Result<Option<VarId>, ScheduleError> {
    let Some((first, rest)) = loops.split_first() else { return Ok(None) };
    let mut fused = *first;
    for inner in rest {
        fused = schedule.fuse(fused, *inner)?;
    }
    Ok(Some(fused))
}

/// The block that alone reads what a reduction computes, as a map over the same elements.
fn only_reader(schedule: &Schedule, reduction: BlockId) -> Option<BlockId> {
    let program = schedule.program();
    let [reader] = schedule.consumers(reduction)[..] else { return None };
    let (block, other) = (&program.blocks[reduction], &program.blocks[reader]);
    let loads = other.loads(block.buffer);
    let same = |indices: &&[hone_tensor::Expr]| {
        indices.len() == other.iterators.len()
            && indices.iter().zip(&other.iterators).all(|(index, iterator)| {
                *index == hone_tensor::Expr::Var(iterator.var)
                    || (iterator.extent == 1 && index.as_integer() == Some(0))
            })
    };
    let whole = program.buffers[block.buffer].shape.iter().zip(&other.iterators);
    let alike = whole.clone().all(|(extent, iterator)| *extent == iterator.extent);
    let maps = matches!(other.body, hone_tensor::BlockBody::Map(_));
    (maps && alike && loads.iter().all(same)).then_some(reader)
}
