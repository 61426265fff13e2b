//! The templates, and the choice between them.

mod attention;
mod block_scaled;
mod blocks;
mod columns;
mod contraction;
mod deep_contraction;
mod key_parts;
mod lanes;
mod matrix_unit;
mod padding;
mod parallel;
mod pointwise;
mod register_sums;
mod rows;
mod steps;
mod tiles;
mod waves;

use crate::Machine;
use crate::access::{is_costly, value};
use crate::decisions::{Choice, Decision, Decisions, Preferred, Source};
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
    /// What was decided, in order.
    pub decisions: Vec<Decision>,
    /// Whether a tuning record decided, and not the analytic model.
    pub recorded: bool,
}

impl Scheduled {
    /// The decisions as records keep them.
    pub fn choices(&self) -> Vec<Choice> {
        self.decisions.iter().map(Decision::choice).collect()
    }
}

/// A template reads the program's form and applies primitives; where there are alternatives it asks.
type Template = fn(&mut Schedule, &Machine, &mut Decisions<'_>) -> Result<(), ScheduleError>;

/// Templates in the order in which they are tried: each refuses programs of another form.
const TEMPLATES: [(&str, Template); 13] = [
    (ATTENTION, attention::apply),
    ("matrix_unit", matrix_unit::apply),
    ("deep_contraction", deep_contraction::apply),
    ("contraction", contraction::apply),
    ("block_scaled", block_scaled::apply),
    ("lanes", lanes::apply),
    ("columns", columns::apply),
    ("rows", rows::apply),
    ("tiles", tiles::apply),
    ("padding", padding::apply),
    ("pointwise", pointwise::apply),
    (BLOCKS, blocks::apply),
    ("plain", |schedule, _, decisions| parallel::apply(schedule, decisions)),
];

/// The template that gets point-wise stages not inlined: inlined, scores would be computed for each reader.
const ATTENTION: &str = "attention";

/// The template that takes programs that run in steps.
const BLOCKS: &str = "blocks";

/// The templates that may take a program: all but one need a separate loop nest for each block.
fn templates(program: &Program) -> impl Iterator<Item = (&'static str, Template)> {
    let in_steps = program.has_steps();
    TEMPLATES.into_iter().filter(move |(name, _)| !in_steps || *name == BLOCKS)
}

/// Schedules a plain program by the first template that takes it, with the analytic model's decisions.
pub fn schedule(program: Program, machine: &Machine) -> Result<Scheduled, ScheduleError> {
    schedule_with(program, machine, &mut Preferred)
}

/// Schedules a plain program by the first template that takes it, with the decisions of `source`.
///
/// # Errors
/// What the last template refuses.
pub fn schedule_with(
    program: Program,
    machine: &Machine,
    source: &mut dyn Source,
) -> Result<Scheduled, ScheduleError> {
    let plain = Plain::of(program)?;
    let mut refusal = unfit("template", "there is none");
    for (template, apply) in templates(plain.whole.program()) {
        match applied(&plain, machine, (template, apply), source) {
            Ok(scheduled) => return Ok(scheduled),
            Err(reason) => {
                if std::env::var_os("HONE_EXPLAIN_SCHEDULES").is_some() {
                    eprintln!("{template} refuses: {reason}");
                }
                refusal = reason;
            }
        }
    }
    Err(refusal)
}

/// Schedules a plain program by one template, with the decisions of `source`.
///
/// # Errors
/// A name that no template has; what the template refuses.
pub fn schedule_as(
    program: Program,
    machine: &Machine,
    template: &str,
    source: &mut dyn Source,
) -> Result<Scheduled, ScheduleError> {
    Plain::of(program)?.schedule_as(machine, template, source)
}

/// A plain program as templates get it, of which any number of schedules can be made.
#[derive(Clone, Debug)]
pub struct Plain {
    /// Unchanged.
    whole: Schedule,
    /// With point-wise stages inlined into their readers.
    inlined: Schedule,
}

impl Plain {
    fn of(program: Program) -> Result<Self, ScheduleError> {
        Self::from(Schedule::new(program))
    }

    /// A program of which a search makes thousands of schedules: their steps are not verified one by one.
    ///
    /// # Errors
    /// What inlining finds wrong with the program.
    pub fn for_search(program: Program) -> Result<Self, ScheduleError> {
        Self::from(Schedule::new(program).without_verifying_steps())
    }

    /// The program.
    pub fn program(&self) -> &Program {
        self.whole.program()
    }

    /// Names of the templates that take the program, in the order in which they are tried.
    pub fn alternatives(&self, machine: &Machine) -> Vec<&'static str> {
        let takes = |template: &(&'static str, Template)| {
            applied(self, machine, *template, &mut Preferred)
                .is_ok_and(|result| result.schedule.verify().is_ok())
        };
        templates(self.program()).filter(takes).map(|(name, _)| name).collect()
    }

    /// A schedule by one template, with the decisions of `source`.
    ///
    /// # Errors
    /// As for [`schedule_as`].
    pub fn schedule_as(
        &self,
        machine: &Machine,
        template: &str,
        source: &mut dyn Source,
    ) -> Result<Scheduled, ScheduleError> {
        let known = templates(self.program()).find(|(name, _)| *name == template);
        let known = known.ok_or_else(|| {
            unfit("template", format!("none that takes this program is named '{template}'"))
        })?;
        applied(self, machine, known, source)
    }

    fn from(whole: Schedule) -> Result<Self, ScheduleError> {
        let mut inlined = whole.clone();
        inline_stages(&mut inlined)?;
        Ok(Self { whole, inlined })
    }
}

fn applied(
    plain: &Plain,
    machine: &Machine,
    (template, apply): (&'static str, Template),
    source: &mut dyn Source,
) -> Result<Scheduled, ScheduleError> {
    let plain = if template == ATTENTION { &plain.whole } else { &plain.inlined };
    let (mut schedule, mut decisions) = (plain.clone(), Decisions::new(source));
    apply(&mut schedule, machine, &mut decisions)?;
    Ok(Scheduled { schedule, template, decisions: decisions.taken(), recorded: false })
}

/// The plain loop order, spread over threads: the baseline that speed-ups are counted from.
pub fn schedule_naively(program: Program) -> Result<Scheduled, ScheduleError> {
    let mut schedule = Schedule::new(program);
    parallel::apply(&mut schedule, &mut Decisions::new(&mut Preferred))?;
    Ok(Scheduled { schedule, template: "naive", decisions: Vec::new(), recorded: false })
}

/// Elements of a map to compute at a time: several registers where a function is a long chain of
/// instructions, so that neighbours fill its gaps.
fn vector_width(
    schedule: &Schedule,
    block: BlockId,
    machine: &Machine,
    decisions: &mut Decisions<'_>,
) -> usize {
    let costly = is_costly(value(&schedule.program().blocks[block]));
    let vectors = if costly { machine.registers.div_ceil(8) } else { 1 };
    machine.lanes * decisions.number("map vectors", [1, 2, 4, 8], vectors)
}

/// A template's refusal of a program of another form.
pub(crate) fn unfit(template: &'static str, reason: impl Into<String>) -> ScheduleError {
    ScheduleError::Refused {
        primitive: template,
        object: "the program".to_string(),
        reason: reason.into(),
    }
}
