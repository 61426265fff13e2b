//! The templates, and the choice between them.

mod columns;
mod contraction;
mod lanes;
mod outer;
mod padding;
mod pointwise;
mod rows;
mod tiles;

use crate::Machine;
use crate::access::{is_costly, value};
use crate::inline::inline_stages;
use hone_schedule::{Schedule, ScheduleError};
use hone_tensor::{BlockId, Program};

/// A schedule and the template that made it.
#[derive(Debug)]
pub struct Scheduled {
    /// The schedule.
    pub schedule: Schedule,
    /// Name of the template.
    pub template: &'static str,
}

type Template = fn(&mut Schedule, &Machine) -> Result<(), ScheduleError>;

/// Templates in the order in which they are tried: each refuses what has not its form.
const TEMPLATES: [(&str, Template); 7] = [
    ("contraction", contraction::apply),
    ("lanes", lanes::apply),
    ("columns", columns::apply),
    ("rows", rows::apply),
    ("tiles", tiles::apply),
    ("padding", padding::apply),
    ("pointwise", pointwise::apply),
];

/// Schedules a plain program by the first template that takes it.
pub fn schedule(program: Program, machine: &Machine) -> Result<Scheduled, ScheduleError> {
    let mut plain = Schedule::new(program);
    inline_stages(&mut plain)?;
    for (template, apply) in TEMPLATES {
        let mut schedule = plain.clone();
        match apply(&mut schedule, machine) {
            Ok(()) => return Ok(Scheduled { schedule, template }),
            Err(refusal) => {
                if std::env::var_os("HONE_EXPLAIN_SCHEDULES").is_some() {
                    eprintln!("{template} refuses: {refusal}");
                }
            }
        }
    }
    outer::apply(&mut plain)?;
    Ok(Scheduled { schedule: plain, template: "plain" })
}

/// The plain loop order, spread over threads: the baseline that speed-ups are counted from.
pub fn schedule_naively(program: Program) -> Result<Scheduled, ScheduleError> {
    let mut schedule = Schedule::new(program);
    outer::apply(&mut schedule)?;
    Ok(Scheduled { schedule, template: "naive" })
}

/// Elements of a map to compute at a time: several registers where a function is a long chain of
/// instructions, so that neighbours fill its gaps.
fn vector_width(schedule: &Schedule, block: BlockId, machine: &Machine) -> usize {
    let costly = is_costly(value(&schedule.program().blocks[block]));
    if costly { machine.lanes * machine.registers.div_ceil(8) } else { machine.lanes }
}

/// A template's word that a program has not its form.
fn unfit(template: &'static str, reason: impl Into<String>) -> ScheduleError {
    ScheduleError::Refused {
        primitive: template,
        object: "the program".to_string(),
        reason: reason.into(),
    }
}
