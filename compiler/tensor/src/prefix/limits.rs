//! The loops of a scheduled program that hold iterations which are not needed.

use super::Prefix;
use crate::{
    BlockId, Buffer, BufferId, Domain, Expr, IteratorKind, Limit, LoopKind, Program, Role, Scope,
    Statement, VarId,
};
use hone_types::{DataType, Id};

impl Prefix {
    /// Gives a scheduled program the size as its last input, and limits its loops by it: those in which every instance that
    /// stores for others than the same iteration is one that is not needed.
    ///
    /// An iteration may be left out where each of its blocks is at a position of the size or more, or writes memory
    /// that nothing outside of the loop uses: it is written before it is read in every iteration, since a program without
    /// steps reads nothing of earlier ones. Steps are left out with all that come after them.
    pub fn limit(&self, program: &mut Program) {
        let inputs = program.buffers.iter().filter(|(_, own)| matches!(own.role, Role::Input(_)));
        let number = inputs.count();
        let ids: Vec<BufferId> = program.buffers.ids().collect();
        for id in ids {
            if let Role::Output(place) = &mut program.buffers[id].role {
                *place += 1;
            }
        }
        let size = program.buffers.push(Buffer {
            name: "size".to_owned(),
            dtype: DataType::I64,
            shape: Vec::new(),
            role: Role::Input(number),
            scope: Scope::Global,
        });
        let mut limits = Vec::new();
        for statement in &program.body {
            statement.visit(&mut |inner| {
                if let Statement::Loop(own) = inner
                    && matches!(own.kind, LoopKind::Serial | LoopKind::Parallel)
                    && own.extent.as_integer() != Some(1)
                    && let Some(first) = self.first(program, inner, own.var)
                {
                    limits.push(Limit { target: own.var, first, size });
                }
            });
        }
        program.limits = limits;
    }

    /// Those blocks whose reductions end with the size exactly in a program that this limited: they have no term behind it,
    /// where what they read may hold anything. Others take terms by several at once, or became other blocks.
    pub fn exact(&self, limited: &Program) -> Vec<BlockId> {
        let mut blocks = self.reductions();
        blocks.retain(|id| self.parts[id].reduced.iter().all(|var| ends(limited, *id, *var)));
        blocks
    }

    /// A lower bound of the positions of all blocks in a loop that has to do with the loop's variable; `None` where there is
    /// none.
    fn first(&self, program: &Program, statement: &Statement, var: VarId) -> Option<Expr> {
        let blocks = statement.blocks();
        // What a step stores may be for a later one: the loop over steps ends, and none inside of it.
        let mut steps = blocks.iter().filter_map(|id| self.stepped.get(id));
        if steps.any(|step| *step != Some(var)) {
            return None;
        }
        let is_inside = |id: &BlockId| blocks.contains(id);
        let mut positions: Vec<(Domain, Vec<Expr>)> = Vec::new();
        for id in &blocks {
            let buffer = program.blocks[*id].buffer;
            let is_local = program.buffers[buffer].role == Role::Temporary
                && program.writers(buffer).iter().all(is_inside)
                && program.readers(buffer).iter().all(is_inside);
            if !is_local {
                positions.push(self.positions(program, *id)?);
            }
        }
        let (domain, indices) = positions.first()?;
        let depth = domain.position(var)? + 1;
        let candidates = indices.iter().filter_map(|index| domain.lower(index, depth)).flatten();
        // Code may have other variables for loops that are written out.
        let is_running = |own: VarId| {
            let kind = program.loop_of(own).map(|own| own.kind);
            matches!(kind, Some(LoopKind::Serial | LoopKind::Parallel))
        };
        let mut candidates = candidates.filter(|own| {
            let mut runs = true;
            own.visit(&mut |part| runs &= !matches!(part, Expr::Var(var) if !is_running(*var)));
            runs && own.mentions(var)
        });
        candidates.find(|first| {
            positions.iter().all(|(domain, indices)| {
                indices.iter().any(|index| {
                    let above = domain.simplify(&(index.clone() - first.clone()));
                    domain.bounds(&above).is_some_and(|range| range.min >= 0)
                })
            })
        })
    }

    /// The loops around a block, and indices over them that are less than the size in the instances that are needed; `None`
    /// where all of them are.
    fn positions(&self, program: &Program, id: BlockId) -> Option<(Domain, Vec<Expr>)> {
        let part = self.parts.get(&id)?;
        let block = &program.blocks[id];
        // A block that took over what a reader of its buffer computes is needed wherever that is.
        let is_new = block.buffer.index() >= self.buffers;
        if !is_new && part.buffer != Some(block.buffer) {
            return None;
        }
        let (path, realize) = (program.find_block(id)?, program.realize_of(id)?);
        let domain = program.domain_at(&path);
        let reduced = part.reduced.iter().map(|var| Expr::Var(*var));
        let known = part.stored.iter().cloned().chain(reduced).filter(|index| {
            let mut is_known = true;
            index.visit(&mut |inner| {
                is_known &= !matches!(inner, Expr::Var(var)
                    if !block.iterators.iter().any(|own| own.var == *var)
                        && domain.position(*var).is_none());
            });
            is_known
        });
        let indices: Vec<Expr> =
            known.map(|index| realize.resolve(block, &index, &domain)).collect();
        (!indices.is_empty()).then_some((domain, indices))
    }
}

/// Whether a block runs with its iterator `var` below the size only, by the limit of a loop around it.
fn ends(limited: &Program, id: BlockId, var: VarId) -> bool {
    let block = &limited.blocks[id];
    let (Some(path), Some(realize)) = (limited.find_block(id), limited.realize_of(id)) else {
        return false;
    };
    let own = block.iterators.iter().find(|own| own.var == var);
    if own.is_none_or(|own| own.kind != IteratorKind::Reduction) {
        return false;
    }
    let domain = limited.domain_at(&path);
    let index = realize.resolve(block, &Expr::Var(var), &domain);
    let loops = limited.enclosing(&path);
    loops.into_iter().filter_map(|own| limited.limit_of(own.var)).any(|limit| {
        let above = domain.simplify(&(index.clone() - limit.first.clone()));
        domain.bounds(&above).is_some_and(|range| range.max <= 0)
    })
}
