//! Schedules all programs on all cores.

use crate::{CompileError, Options, SchedulePolicy};
use hone_machine::Machine;
use hone_schedule::ScheduleError;
use hone_tensor::{Prefix, Program};
use hone_tune::{Prescription, Replay, Scheduled, WholeSoftmax, structural_digest};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// A program and the names of the nodes that it computes.
pub(crate) struct Unscheduled {
    pub(crate) program: Program,
    /// What is needed of it, where that is not all.
    pub(crate) prefix: Option<Prefix>,
    pub(crate) nodes: String,
}

/// Schedules programs; the results are in their order. Every thread takes the next program when it is
/// done with one, since a few of them take most of the time. A panic of a thread is resumed.
pub(crate) fn schedule_all(
    programs: &[Unscheduled],
    options: &Options,
) -> Result<Vec<Scheduled>, CompileError> {
    in_order(programs, |unscheduled| {
        let ends = unscheduled.prefix.as_ref().is_some_and(|own| !own.reductions().is_empty());
        schedule_one(unscheduled.program.clone(), ends, options).map_err(|source| {
            CompileError::Schedule { nodes: unscheduled.nodes.clone(), source: Box::new(source) }
        })
    })
    .into_iter()
    .collect()
}

/// Schedules a program; `ends` says that its reductions are to end with a size.
pub(crate) fn schedule_one(
    program: Program,
    ends: bool,
    options: &Options,
) -> Result<Scheduled, ScheduleError> {
    let scheduled = match options.schedules {
        SchedulePolicy::Naive => hone_tune::schedule_naively(program),
        SchedulePolicy::Analytic => {
            let machine = options.target.machine();
            match recorded(&program, &machine, options) {
                Some(recorded) => return Ok(recorded),
                None if ends => hone_tune::schedule_with(program, &machine, &mut WholeSoftmax),
                None => hone_tune::schedule(program, &machine),
            }
        }
    }?;
    scheduled.schedule.verify()?;
    Ok(scheduled)
}

/// The schedule that a record has for a program. A record whose decisions do not fit, because it is of
/// another version of the template, counts as none.
fn recorded(program: &Program, machine: &Machine, options: &Options) -> Option<Scheduled> {
    if options.records.is_empty() {
        return None;
    }
    let prescription = options.records.get(&structural_digest(program))?;
    let scheduled = prescribed(program.clone(), machine, prescription).ok()?;
    scheduled.schedule.verify().ok()?;
    Some(Scheduled { recorded: true, ..scheduled })
}

/// The schedule that a prescription asks for.
pub(crate) fn prescribed(
    program: Program,
    machine: &Machine,
    prescription: &Prescription,
) -> Result<Scheduled, ScheduleError> {
    let mut replay = Replay::new(&prescription.choices);
    let scheduled = hone_tune::schedule_as(program, machine, &prescription.template, &mut replay)?;
    match replay.misfit() {
        None => Ok(scheduled),
        Some(name) => Err(ScheduleError::Refused {
            primitive: "replay",
            object: format!("decision '{name}'"),
            reason: "the template asks for others: the record is of another version".to_owned(),
        }),
    }
}

/// `work` of each item, computed on as many threads as the machine has, in the order of the items.
pub(crate) fn in_order<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(items.len());
    let next = AtomicUsize::new(0);
    let take_all = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else { return done };
            done.push((index, work(item)));
        }
    };
    let mut results: Vec<(usize, R)> = thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(take_all)).collect();
        let join = |handle: thread::ScopedJoinHandle<'_, Vec<(usize, R)>>| {
            handle.join().unwrap_or_else(|panic| resume_unwind(panic))
        };
        handles.into_iter().flat_map(join).collect()
    });
    results.sort_unstable_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let items: Vec<usize> = (0..1000).collect();
        let expected: Vec<usize> = items.iter().map(|item| item * 2).collect();
        assert_eq!(in_order(&items, |item| item * 2), expected);
        assert!(in_order(&[], |item: &usize| *item).is_empty());
    }

    #[test]
    #[should_panic(expected = "the third item")]
    fn a_panic_of_a_thread_is_resumed() {
        in_order(&[1, 2, 3, 4], |item| assert!(*item != 3, "the third item"));
    }
}
