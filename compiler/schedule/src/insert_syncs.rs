//! `insert_syncs`: lanes of a block wait for each other where one accesses what another one writes.
//!
//! Takes the first two blocks that may meet (see [`Program::conflict`]) until there are none: where the
//! second stands behind the first, a `sync` goes in front of the statement that holds it; where it comes in
//! the next iteration of a loop around both, to the end of that loop's body.
//!
//! Legal: where the places are reached by all lanes alike. A primitive of its own, and not part of `bind`,
//! because a schedule binds, divides and moves in an order of its own, and where waiting is needed is known
//! only at the end.
//! Buys: results that do not depend on which lane is first. Costs: lanes wait for the slowest.

use crate::error::{Outcome, refuse_block};
use hone_tensor::{Conflict, Level, Program, Statement, verify};

pub(crate) fn apply(program: &mut Program) -> Outcome<()> {
    while let Some(conflict) = first_conflict(program) {
        let Some((body, place)) = place_of_sync(program, &conflict) else {
            return refuse_block(program, conflict.first, conflict.text(program));
        };
        if let Some(body) = program.body_at_mut(&body) {
            body.insert(place.min(body.len()), Statement::Sync(Level::Block));
        }
        if let Err(error) = verify(program) {
            let reason = format!("{}; with one, {error}", conflict.text(program));
            return refuse_block(program, conflict.first, reason);
        }
        if first_conflict(program) == Some(conflict) {
            return refuse_block(program, conflict.first, conflict.text(program));
        }
    }
    Ok(())
}

fn first_conflict(program: &Program) -> Option<Conflict> {
    program.launches().iter().find_map(|launch| program.conflict(launch))
}

/// The body that a `sync` belongs into, and the position in it; `None` where no `sync` helps.
fn place_of_sync(program: &Program, conflict: &Conflict) -> Option<(Vec<usize>, usize)> {
    let (first, second) =
        (program.find_block(conflict.first)?, program.find_block(conflict.second)?);
    if first == second {
        return None;
    }
    let shared = first.iter().zip(&second).take_while(|(a, b)| a == b).count();
    if first < second {
        return Some((second[..shared].to_vec(), second[shared]));
    }
    // The innermost loop around both that has several iterations on one lane.
    let loops = program.enclosing(&first);
    let carrying = (0..shared).rev().find(|depth| loops[*depth].axis().is_none())?;
    Some((first[..=carrying].to_vec(), usize::MAX))
}
