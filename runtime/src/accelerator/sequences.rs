//! Steps that were recorded once, to be started by one call from then on.
//!
//! Steps that run together are launched one by one the first time, which has the driver load their kernels; when they
//! are done their launches are recorded. A record holds the addresses of operands, so there is one for each set of
//! them: carried values of loops change their buffers from one iteration to the next. Where the driver records nothing,
//! or refuses to once, everything is launched one by one.

use std::collections::HashMap;
use std::ops::Range;

use super::driver::Handle;
use super::memory::Entry;
use super::queue::Sequence;

/// Launches that are recorded together: one alone is started by one call as it is, and each takes memory of the
/// device.
const LAUNCHES: Range<u64> = 2..8193;
/// Sets of addresses for which the same steps are recorded: those of three nested loops.
const MOST_SETS: usize = 8;

/// What a session has recorded.
#[derive(Default)]
pub(super) struct Sequences {
    known: HashMap<Range<usize>, Vec<Recorded>>,
    refused: bool,
}

struct Recorded {
    /// What the steps' arguments were, in order.
    operands: Vec<Handle>,
    sequence: Sequence,
}

impl Sequences {
    /// The record of some steps with these operands.
    pub(super) fn of(&self, steps: &Range<usize>, operands: &[Entry]) -> Option<&Sequence> {
        let same = |recorded: &&Recorded| {
            recorded.operands.iter().copied().eq(operands.iter().map(|entry| entry.handle))
        };
        self.known.get(steps)?.iter().find(same).map(|recorded| &recorded.sequence)
    }

    /// Whether so many launches of some steps shall be recorded.
    pub(super) fn wants(&self, steps: &Range<usize>, launches: u64) -> bool {
        let sets = self.known.get(steps).map_or(0, Vec::len);
        !self.refused && LAUNCHES.contains(&launches) && sets < MOST_SETS
    }

    /// Keeps what was recorded of some steps with these operands; nothing is recorded any more where the driver refused.
    pub(super) fn keep(
        &mut self,
        steps: &Range<usize>,
        operands: &[Entry],
        recorded: Option<Sequence>,
    ) {
        let Some(sequence) = recorded else {
            self.refused = true;
            return;
        };
        let operands = operands.iter().map(|entry| entry.handle).collect();
        self.known.entry(steps.clone()).or_default().push(Recorded { operands, sequence });
    }
}
