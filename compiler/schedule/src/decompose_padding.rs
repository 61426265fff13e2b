//! `decompose_padding`: filling a border with a constant, and copying what lies inside, apart.
//!
//! For a map whose value is a constant wherever a condition on its iterators fails. A new block,
//! named as the old one with `_fill` added, stores the constant everywhere, in front of the loop under
//! copies of the loops from there inwards; the old block then stores only where the condition holds,
//! without testing it.
//!
//! Legal: the condition is a conjunction of comparisons of one iterator each with constants; the loops
//! from the given one inwards hold only this block, and each feeds one iterator by itself. What the
//! condition asks of iterators that only outer loops feed becomes the condition under which the old
//! block runs.
//! Buys: inner loops without tests, as plain copies. Costs: the inside is stored twice.

use crate::edit::{
    below, block_path, copy_nest, insert, loop_path, loops_from, realize_at, replace, unique_name,
};
use crate::error::{Outcome, loop_name, refuse_block};
use hone_tensor::{
    BinaryOp, Block, BlockBody, BlockId, Domain, Expr, Iterator, Loop, Program, Realize, Statement,
    VarId,
};

pub(crate) fn apply(program: &mut Program, block: BlockId, target: VarId) -> Outcome<BlockId> {
    let path = block_path(program, block)?;
    let target_path = loop_path(program, target)?;
    let realize = realize_at(program, block)?;
    let own = program.blocks[block].clone();
    if !below(&target_path, &path) {
        return refuse_block(
            program,
            block,
            format!("{} is not around it", loop_name(program, target)),
        );
    }
    if program.statement(&target_path).is_none_or(|nest| nest.blocks().len() > 1) {
        return refuse_block(program, block, "other blocks share the loops");
    }
    let BlockBody::Map(Expr::Select(condition, inside, constant)) = own.body.clone() else {
        return refuse_block(program, block, "its value is not a choice between two");
    };
    let mut variable = false;
    constant.visit(&mut |part| variable |= matches!(part, Expr::Var(_) | Expr::Load(..)));
    if variable || realize.predicate.is_some() {
        return refuse_block(program, block, "its value outside is not a constant");
    }
    let Some(bounds) = box_of(&condition, &own) else {
        let reason = "its condition is not a conjunction of bounds of single iterators";
        return refuse_block(program, block, reason);
    };
    let fill = fill_block(program, &own, *constant);
    let depth = target_path.len() - 1;
    let loops = loops_from(program, &path, depth);
    let bindings = realize.bindings.clone();
    let statement = copy_nest(program, &loops, "_fill", |program, change| {
        program.blocks[fill].map_expressions(&mut |expr| expr.substitute(change));
        let bindings = bindings.iter().map(|binding| binding.substitute(change)).collect();
        Statement::Realize(Realize { block: fill, bindings, predicate: None })
    });
    let domain = program.domain_at(&target_path);
    let nest = match narrowed(loops, realize, &own, &bounds, domain) {
        Ok(nest) => nest,
        Err(reason) => return refuse_block(program, block, reason),
    };
    program.blocks[block].body = BlockBody::Map(*inside);
    replace(program, &target_path, nest);
    if let Some((place, above)) = target_path.split_last() {
        insert(program, above, *place, statement);
    }
    Ok(fill)
}

/// For each iterator the range, from the first to behind the last value, where the condition holds.
fn box_of(condition: &Expr, own: &Block) -> Option<Vec<(i64, i64)>> {
    let mut bounds: Vec<(i64, i64)> =
        own.iterators.iter().map(|iterator| (0, iterator.extent as i64)).collect();
    let mut left = vec![condition.clone()];
    while let Some(condition) = left.pop() {
        match condition {
            Expr::Binary(BinaryOp::And, first, second) => left.extend([*first, *second]),
            Expr::Binary(op @ (BinaryOp::Less | BinaryOp::LessEqual), first, second) => {
                // `first + strict <= second`, as `constant + factor * iterator <= 0`.
                let strict = i64::from(op == BinaryOp::Less);
                let domain = Domain::default();
                let (constant, terms) =
                    domain.terms(&domain.simplify(&(*first - *second + strict)));
                let [(Expr::Var(var), factor)] = terms.as_slice() else { return None };
                let place = own.iterators.iter().position(|iterator| iterator.var == *var)?;
                let (first, behind) = &mut bounds[place];
                match factor {
                    1 => *behind = (*behind).min(1 - constant),
                    -1 => *first = (*first).max(constant),
                    _ => return None,
                }
            }
            _ => return None,
        }
    }
    Some(bounds)
}

fn fill_block(program: &mut Program, own: &Block, constant: Expr) -> BlockId {
    let pairs: Vec<(VarId, VarId)> = own
        .iterators
        .iter()
        .map(|old| (old.var, program.add_var(program.vars[old.var].name.clone())))
        .collect();
    let change =
        |var: VarId| pairs.iter().find(|(old, _)| *old == var).map(|(_, new)| Expr::Var(*new));
    let iterators = own.iterators.iter().zip(&pairs);
    let name = unique_name(program, &format!("{}_fill", own.name));
    program.blocks.push(Block {
        name,
        iterators: iterators.map(|(old, (_, var))| Iterator { var: *var, ..old.clone() }).collect(),
        buffer: own.buffer,
        indices: own.indices.iter().map(|index| index.substitute(&change)).collect(),
        body: BlockBody::Map(constant),
    })
}

/// The nest with each loop cut to the values for which its iterator lies in `bounds`.
fn narrowed(
    mut loops: Vec<Loop>,
    mut realize: Realize,
    own: &Block,
    bounds: &[(i64, i64)],
    mut domain: Domain,
) -> Result<Statement, String> {
    for (place, (binding, (first, behind))) in realize.bindings.iter_mut().zip(bounds).enumerate() {
        if (*first, *behind) == (0, own.iterators[place].extent as i64) {
            continue;
        }
        let feeding: Vec<usize> =
            (0..loops.len()).filter(|depth| binding.mentions(loops[*depth].var)).collect();
        if feeding.is_empty() {
            let extent = own.iterators[place].extent as i64;
            for (matters, test) in [
                (*first > 0, Expr::Integer(*first).less_equal(binding.clone())),
                (*behind < extent, binding.clone().less(Expr::Integer(*behind))),
            ] {
                if matters {
                    realize.predicate = Some(match realize.predicate.take() {
                        None => test,
                        Some(others) => others.and(test),
                    });
                }
            }
            continue;
        }
        let [depth] = feeding[..] else {
            return Err(format!(
                "several loops, or none, feed its iterator {}",
                own.iterators[place].var
            ));
        };
        let var = loops[depth].var;
        let start = Domain::default().simplify(&(binding.clone() - Expr::Var(var)));
        if start.mentions(var) || loops.iter().any(|other| other.extent.mentions(var)) {
            return Err(format!(
                "its iterator {} is not a loop by itself",
                own.iterators[place].var
            ));
        }
        let from = start.clone().maximum(Expr::Integer(*first));
        let to = (start + loops[depth].extent.clone()).minimum(Expr::Integer(*behind));
        loops[depth].extent = to - from.clone();
        *binding = from + Expr::Var(var);
    }
    for own in &mut loops {
        own.extent = domain.simplify_extent(&own.extent);
        domain.push(own.var, &own.extent);
    }
    realize.bindings.iter_mut().for_each(|binding| *binding = domain.simplify(binding));
    let inside = Statement::Realize(realize);
    Ok(loops
        .into_iter()
        .rev()
        .fold(inside, |body, own| Statement::Loop(Box::new(Loop { body: vec![body], ..own }))))
}
