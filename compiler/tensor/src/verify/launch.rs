//! Loops that are bound to a device's axes, `sync`s, shared memory and the device's limits.
//!
//! Checked by [`super::verify`]:
//! - a bound loop has a constant extent, and no loop around it is bound to the same axis;
//! - around a loop bound to the grid stand only such; around one bound to blocks only those two, and in the
//!   body of a loop over blocks it stands alone; one bound to lanes stands below a loop over blocks, with
//!   serial and unrolled loops between at most;
//! - iterations of loops over blocks and over lanes do not access what others write; memory of a block or
//!   lane is used below the loop only. What lanes share is left to [`super::verify_launches`];
//! - a `sync` of a block stands below a loop over blocks, and all lanes of the launch reach it alike: extents
//!   of serial loops around it mention neither lanes nor memory, those of loops over lanes are the launch's. A
//!   `sync` of the grid stands between launches; a lane has nobody to wait for.
//!
//! Checked by [`super::verify_launches`], once a schedule is complete:
//! - shared buffers are temporaries of one launch, and fit into a block's shared memory;
//! - a launch has no more blocks and lanes than the device allows;
//! - in shared and global memory, no lane accesses what another one writes with no `sync` between.

use super::VerifyError;
use crate::{Launch, Level, Limits, Loop, LoopKind, Program, Role, Scope, Statement, VarId};

/// Checks the bound loops and `sync`s of a program.
pub(super) fn check(program: &Program) -> Result<(), VerifyError> {
    if !program.is_bound() {
        return Ok(());
    }
    let mut around = Vec::new();
    program.body.iter().try_for_each(|own| check_nest(program, own, &mut around, 1))?;
    for launch in program.launches() {
        let lanes = Lanes { extents: launch.lanes(), vars: vec![], partial: None, program };
        check_syncs(launch.body, !launch.blocks.is_empty(), &lanes)?;
    }
    Ok(())
}

fn check_nest<'a>(
    program: &Program,
    statement: &'a Statement,
    around: &mut Vec<&'a Loop>,
    siblings: usize,
) -> Result<(), VerifyError> {
    let Statement::Loop(own) = statement else { return Ok(()) };
    check_loop(program, own, around, siblings).map_err(|reason| {
        let (var, kind) = (own.var, own.kind);
        VerifyError::Loop { var, kind, reason }
    })?;
    around.push(own);
    own.body.iter().try_for_each(|inner| check_nest(program, inner, around, own.body.len()))?;
    around.pop();
    Ok(())
}

fn check_loop(
    program: &Program,
    own: &Loop,
    around: &[&Loop],
    siblings: usize,
) -> Result<(), String> {
    let Some(axis) = own.axis() else { return Ok(()) };
    if let Some(other) = around.iter().find(|other| other.axis() == Some(axis)) {
        return Err(format!("loop {} around it is bound to that axis too", other.var));
    }
    if own.extent.as_integer().is_none() {
        return Err("its extent is no constant".into());
    }
    let all = |levels: &[Level]| {
        around.iter().find(|other| !levels.iter().any(|level| other.is_bound_to(*level)))
    };
    match axis.level {
        Level::Grid => match all(&[Level::Grid]) {
            Some(other) => Err(format!("loop {} around it is not bound to the grid", other.var)),
            None => Ok(()),
        },
        Level::Block => {
            if let Some(other) = all(&[Level::Grid, Level::Block]) {
                return Err(format!("loop {} around it is not over blocks", other.var));
            }
            let inside = around.last().is_some_and(|outer| outer.is_bound_to(Level::Block));
            if inside && siblings > 1 {
                return Err("it does not stand alone in the loop over blocks around it".into());
            }
            program.threads_apart(own.var)
        }
        Level::Lane => {
            if !around.iter().any(|outer| outer.is_bound_to(Level::Block)) {
                return Err("no loop over blocks stands around it".into());
            }
            let kept =
                |kind| matches!(kind, LoopKind::Serial | LoopKind::Unrolled | LoopKind::Bound(_));
            if let Some(other) = around.iter().find(|outer| !kept(outer.kind)) {
                return Err(format!(
                    "loop {} around it is {}",
                    other.var,
                    super::kind_name(other.kind)
                ));
            }
            program.lanes_apart(own.var)
        }
    }
}

/// What is known at a statement about the lanes that reach it.
#[derive(Clone)]
struct Lanes<'a> {
    program: &'a Program,
    /// Of the launch.
    extents: [usize; 3],
    /// Variables of the loops over lanes around it.
    vars: Vec<VarId>,
    /// Why not all lanes reach it alike.
    partial: Option<String>,
}

fn check_syncs(body: &[Statement], in_block: bool, lanes: &Lanes<'_>) -> Result<(), VerifyError> {
    for statement in body {
        match statement {
            Statement::Realize(_) => {}
            Statement::Sync(level) => {
                let reason = match level {
                    Level::Lane => Some("a lane has nobody to wait for".to_string()),
                    Level::Grid => {
                        Some("a launch cannot wait for all its blocks: end it here".into())
                    }
                    Level::Block if !in_block => {
                        Some("no loop over blocks stands around it".into())
                    }
                    Level::Block => lanes.partial.clone(),
                };
                if let Some(reason) = reason {
                    return Err(VerifyError::Sync { level: *level, reason });
                }
            }
            Statement::Loop(own) => check_syncs(&own.body, in_block, &lanes.below(own))?,
        }
    }
    Ok(())
}

impl Lanes<'_> {
    fn below(&self, own: &Loop) -> Self {
        let mut below = self.clone();
        let name = &self.program.vars[own.var].name;
        let partial = match own.axis() {
            Some(axis) => {
                below.vars.push(own.var);
                let all = self.extents[axis.dimension as usize];
                let extent = own.extent.as_integer().unwrap_or(0);
                (usize::try_from(extent) != Ok(all))
                    .then(|| format!("loop {} '{name}' has {extent} of the {all} lanes", own.var))
            }
            None => (!Launch::is_uniform(&own.extent, &self.vars)).then(|| {
                format!("the extent of loop {} '{name}' may differ between lanes", own.var)
            }),
        };
        below.partial = below.partial.or(partial);
        below
    }
}

/// Checks launches for a device with the given limits; [`self`] says what.
///
/// # Errors
/// The first claim that does not hold.
pub fn verify_launches(program: &Program, limits: &Limits) -> Result<(), VerifyError> {
    if !program.is_bound() {
        return Ok(());
    }
    check_shared(program)?;
    for launch in program.launches() {
        check_limits(program, &launch, limits)?;
        if let Some(conflict) = program.conflict(&launch) {
            return Err(VerifyError::Race { text: conflict.text(program) });
        }
    }
    Ok(())
}

fn check_shared(program: &Program) -> Result<(), VerifyError> {
    let launches = program.launches();
    for (buffer, entry) in program.buffers.iter().filter(|(_, own)| own.scope == Scope::Shared) {
        let refuse = |reason: &str| {
            Err(VerifyError::Shared { buffer: entry.name.clone(), reason: reason.to_string() })
        };
        if entry.role != Role::Temporary {
            return refuse("it is a parameter of the program");
        }
        let users = [program.writers(buffer), program.readers(buffer)].concat();
        let of_launch = |launch: &&Launch<'_>| {
            launch.body.iter().any(|own| own.blocks().iter().any(|block| users.contains(block)))
        };
        if launches.iter().filter(of_launch).count() > 1 {
            return refuse("several launches use it");
        }
        if launches.iter().filter(of_launch).any(|launch| launch.blocks.is_empty()) {
            return refuse("it is used outside of a loop over blocks");
        }
    }
    Ok(())
}

fn check_limits(
    program: &Program,
    launch: &Launch<'_>,
    limits: &Limits,
) -> Result<(), VerifyError> {
    let (grid, lanes) = (launch.grid(), launch.lanes());
    let blocks: Vec<_> = launch.body.iter().flat_map(Statement::blocks).collect();
    let used = program.buffers.iter().filter(|(id, own)| {
        let uses = |block: &crate::BlockId| {
            let block = &program.blocks[*block];
            block.buffer == *id || block.reads(*id)
        };
        own.scope == Scope::Shared && blocks.iter().any(uses)
    });
    let shared = used.map(|(_, own)| own.bytes()).fold(0, usize::saturating_add);
    let mut counts = vec![
        ("lanes in a block", lanes.iter().product(), limits.lanes),
        ("bytes of shared memory", shared, limits.shared_bytes),
    ];
    for (place, what) in ["blocks along x", "blocks along y", "blocks along z"].iter().enumerate() {
        counts.push((what, grid[place], limits.blocks));
    }
    for (place, what) in ["lanes along x", "lanes along y", "lanes along z"].iter().enumerate() {
        counts.push((what, lanes[place], limits.lanes_along[place]));
    }
    match counts.into_iter().find(|(_, actual, most)| actual > most) {
        Some((what, actual, most)) => Err(VerifyError::Limit { what, actual, most }),
        None => Ok(()),
    }
}
