//! `virtual_thread`: the iterations of a loop become virtual threads, which one thread runs in turn, statement by
//! statement.
//!
//! The loop goes from around its body to around each innermost statement of it (a block, or a vectorized or tensorized
//! loop): what one virtual thread waits for is hidden behind what the others compute meanwhile. Memory of one thread
//! that is used below the loop gets a first axis with an element for each of them. The loops that come of it, one for
//! each statement, are serial; unrolled, their statements lie side by side. This is the virtual threading of TVM
//! (Chen et al., "TVM: An Automated End-to-End Optimizing Compiler for Deep Learning", OSDI 2018, section 4.4).
//!
//! Legal: the loop is serial, with a constant extent and no limit; no iteration writes what another one accesses, but in
//! memory of one thread, which is used below the loop only; no extent of a serial, unrolled or bound loop below depends
//! on it.
//! Buys: independent instructions next to each other, where one chain alone would wait. Costs: registers and near memory
//! for all virtual threads at once.

use crate::edit::{loop_at, loop_path, map_loads, must_be_serial, substitute};
use crate::error::{Outcome, loop_name, refuse_loop};
use hone_tensor::{
    BlockId, BufferId, Domain, Expr, Loop, LoopKind, Program, Role, Scope, Statement, VarId, verify,
};

pub(crate) fn apply(program: &mut Program, target: VarId) -> Outcome<Vec<VarId>> {
    let path = loop_path(program, target)?;
    let threads = loop_at(program, target)?;
    must_be_serial(program, &threads)?;
    let Some(count) = threads.extent.as_integer().and_then(|own| usize::try_from(own).ok()) else {
        return refuse_loop(program, target, "its extent is not constant");
    };
    if program.limit_of(target).is_some() {
        return refuse_loop(program, target, "a size limits its iterations");
    }
    if let Err(reason) = program.threads_apart(target) {
        return refuse_loop(program, target, reason);
    }
    let blocks: Vec<BlockId> = threads.body.iter().flat_map(Statement::blocks).collect();
    separate_memory(program, &blocks, target, count);
    let domain = program.domain_at(&path);
    let mut interleaved = Interleaved { program, threads: &threads, loops: Vec::new() };
    let body = interleaved.statements(&threads.body, &domain)?;
    let loops = interleaved.loops;
    if let Some((position, above)) = path.split_last()
        && let Some(around) = program.body_at_mut(above)
    {
        around.splice(*position..=*position, body);
    }
    program.prefetches.retain(|prefetch| prefetch.target != target);
    match verify(program) {
        Ok(()) => Ok(loops),
        Err(error) => refuse_loop(program, target, format!("then {error}")),
    }
}

/// Gives memory of one thread that `blocks` use a first axis, indexed by the loop `target` of `count` iterations.
fn separate_memory(program: &mut Program, blocks: &[BlockId], target: VarId, count: usize) {
    let accessed = |buffer: BufferId| {
        blocks
            .iter()
            .map(|block| &program.blocks[*block])
            .any(|own| own.buffer == buffer || own.reads(buffer))
    };
    let private = program.buffers.iter().filter(|(buffer, entry)| {
        entry.role == Role::Temporary && entry.scope != Scope::Global && accessed(*buffer)
    });
    let private: Vec<BufferId> = private.map(|(buffer, _)| buffer).collect();
    for buffer in private {
        program.buffers[buffer].shape.insert(0, count);
        let of_thread = |mut indices: Vec<Expr>| {
            indices.insert(0, Expr::Var(target));
            indices
        };
        for block in blocks {
            let own = &mut program.blocks[*block];
            own.map_expressions(&mut |expr| {
                map_loads(expr, buffer, &mut |indices| Expr::Load(buffer, of_thread(indices)))
            });
            if own.buffer == buffer {
                own.indices = of_thread(std::mem::take(&mut own.indices));
            }
        }
    }
}

/// What virtual threads run in turn.
struct Interleaved<'a> {
    program: &'a mut Program,
    /// The loop whose iterations they are.
    threads: &'a Loop,
    /// The loops over them, in order of execution.
    loops: Vec<VarId>,
}

impl Interleaved<'_> {
    /// The statements, each of which all threads run before the next; `domain` has the loops around them.
    fn statements(&mut self, body: &[Statement], domain: &Domain) -> Outcome<Vec<Statement>> {
        body.iter().map(|statement| self.statement(statement, domain)).collect()
    }

    fn statement(&mut self, statement: &Statement, domain: &Domain) -> Outcome<Statement> {
        match statement {
            Statement::Loop(inner) if runs_in_order(inner.kind) => {
                if inner.extent.mentions(self.threads.var) {
                    let inner = loop_name(self.program, inner.var);
                    let reason = format!("the extent of {inner} depends on it");
                    return refuse_loop(self.program, self.threads.var, reason);
                }
                let mut below = domain.clone();
                below.push(inner.var, &inner.extent);
                let body = self.statements(&inner.body, &below)?;
                Ok(Statement::Loop(Box::new(Loop { body, ..(**inner).clone() })))
            }
            // All threads of a level wait here once for what all virtual threads have stored.
            Statement::Sync(level) => Ok(Statement::Sync(*level)),
            Statement::Loop(_) | Statement::Realize(_) => Ok(self.repeated(statement, domain)),
        }
    }

    /// A loop over the virtual threads around one statement.
    fn repeated(&mut self, statement: &Statement, domain: &Domain) -> Statement {
        let Loop { var: target, extent, .. } = self.threads;
        let var = self.program.add_var(self.program.vars[*target].name.clone());
        self.loops.push(var);
        let mut inside = domain.clone();
        inside.push(var, extent);
        let mut body = vec![statement.clone()];
        substitute(self.program, &mut body, &inside, &|old| {
            (old == *target).then_some(Expr::Var(var))
        });
        Statement::Loop(Box::new(Loop {
            var,
            extent: extent.clone(),
            kind: LoopKind::Serial,
            body,
        }))
    }
}

/// Whether a loop has its iterations one after another or on different threads, so that other statements may stand in it.
fn runs_in_order(kind: LoopKind) -> bool {
    matches!(kind, LoopKind::Serial | LoopKind::Unrolled | LoopKind::Bound(_) | LoopKind::Parallel)
}
