//! `reverse_compute_inline`: a map becomes part of the map it reads from.
//!
//! The producer then computes the consumer's value and stores it where the consumer did; the
//! consumer and the buffer between them go.
//!
//! Legal: the block reads, always at the same indices, a temporary that one map computes and nothing
//! else reads; the indices name each element of it exactly once (permutations, merged and divided
//! axes); whatever else it reads is computed before the producer.
//! Buys: no buffer and no pass over it, with the producer's loops.

use crate::compute_inline::axes_of_iterators;
use crate::edit::{block_domain, block_path, detach, map_loads, must_hold, realize_at};
use crate::error::{Outcome, refuse_block};
use hone_tensor::{
    BinaryOp, Block, BlockBody, BlockId, BufferId, Domain, Expr, Program, Role, VarId,
};

pub(crate) fn apply(program: &mut Program, block: BlockId) -> Outcome<()> {
    let path = block_path(program, block)?;
    let own = program.blocks[block].clone();
    let BlockBody::Map(value) = &own.body else {
        return refuse_block(program, block, "it is a reduction");
    };
    if realize_at(program, block)?.predicate.is_some() {
        return refuse_block(program, block, "it runs under a condition");
    }
    let mut reason = "it reads no temporary that one map computes for it alone".to_string();
    for (buffer, producer) in candidates(program, block) {
        let domain = block_domain(&own, &program.domain_at(&path));
        match inverse(program, &own, buffer, producer, &domain) {
            Ok(inverse) => {
                fold(program, &own, value, buffer, producer, &inverse);
                detach(program, block);
                return must_hold(program, producer);
            }
            Err(why) => reason = why,
        }
    }
    refuse_block(program, block, reason)
}

/// Temporaries that only `block` reads, with the one map that computes each.
fn candidates(program: &Program, block: BlockId) -> Vec<(BufferId, BlockId)> {
    let found = program.buffers.iter().filter_map(|(buffer, entry)| {
        let [producer] = program.writers(buffer)[..] else { return None };
        let map = matches!(program.blocks[producer].body, BlockBody::Map(_));
        let always = program.realize_of(producer).is_some_and(|own| own.predicate.is_none());
        let alone = program.readers(buffer) == [block];
        (map && always && alone && entry.role == Role::Temporary).then_some((buffer, producer))
    });
    found.collect()
}

/// For each of the consumer's iterators its value in terms of the producer's.
fn inverse(
    program: &Program,
    own: &Block,
    buffer: BufferId,
    producer: BlockId,
    domain: &Domain,
) -> Result<Vec<(VarId, Expr)>, String> {
    let name = &program.buffers[buffer].name;
    let mut loads = own.loads(buffer).into_iter();
    let indices = loads.next().unwrap_or_default().to_vec();
    if loads.any(|other| other != indices) {
        return Err(format!("it reads '{name}' at several places"));
    }
    let source = &program.blocks[producer];
    axes_of_iterators(source).map_err(|why| format!("of '{}': {why}", source.name))?;
    let points = |block: &Block| block.iterators.iter().map(|own| own.extent).product::<usize>();
    if points(own) != points(source) {
        return Err(format!("it does not read every element of '{name}' exactly once"));
    }
    let mut known: Vec<(Expr, Expr)> = Vec::new();
    for ((index, stored), extent) in
        indices.iter().zip(&source.indices).zip(&program.buffers[buffer].shape)
    {
        let inside = domain.bounds(index);
        if inside.is_none_or(|range| range.min < 0 || range.max >= *extent as i64) {
            return Err(format!("it may read beyond '{name}'"));
        }
        learn(domain.simplify(index), stored.clone(), domain, &mut known);
    }
    join_quotients(domain, &mut known);
    let solved = own.iterators.iter().map(|iterator| {
        let var = Expr::Var(iterator.var);
        let found = known.iter().find(|(pattern, _)| *pattern == var);
        match found {
            Some((_, value)) => Ok((iterator.var, value.clone())),
            None if iterator.extent == 1 => Ok((iterator.var, Expr::Integer(0))),
            None => Err(format!("its indices of '{name}' do not determine {}", iterator.var)),
        }
    });
    solved.collect()
}

/// Takes `index`, known to equal `value`, apart into what it determines: the digits of a sum whose
/// factors each exceed the span of the rest.
fn learn(index: Expr, value: Expr, domain: &Domain, known: &mut Vec<(Expr, Expr)>) {
    let (constant, mut terms) = domain.terms(&index);
    terms.sort_by_key(|(_, factor)| std::cmp::Reverse(*factor));
    let mut rest = value - constant;
    while !terms.is_empty() {
        let (atom, factor) = terms.remove(0);
        let tail =
            terms.iter().fold(Expr::Integer(0), |sum, (atom, own)| sum + atom.clone() * *own);
        let tail = domain.bounds(&domain.simplify(&tail));
        if factor <= 0 || tail.is_none_or(|range| range.min < 0 || range.max >= factor) {
            return;
        }
        if factor == 1 {
            known.push((atom, rest));
            return;
        }
        known.push((atom, rest.clone().floor_divide(Expr::Integer(factor))));
        rest = rest.modulo(Expr::Integer(factor));
    }
}

/// Learns `x` wherever its quotient and remainder by the same number are known.
fn join_quotients(domain: &Domain, known: &mut Vec<(Expr, Expr)>) {
    let mut place = 0;
    while place < known.len() {
        let (pattern, quotient) = known[place].clone();
        place += 1;
        let Expr::Binary(BinaryOp::FloorDivide, whole, divisor) = &pattern else { continue };
        let rest = (**whole).clone().modulo((**divisor).clone());
        let found = known.iter().find(|(own, _)| *own == rest).map(|(_, value)| value.clone());
        let (Some(rest), Some(divisor)) = (found, divisor.as_integer()) else { continue };
        if known.iter().any(|(own, _)| *own == **whole) {
            continue;
        }
        known.push(((**whole).clone(), quotient.clone() * divisor + rest.clone()));
        learn((**whole).clone(), quotient * divisor + rest, domain, known);
        place = 0;
    }
}

fn fold(
    program: &mut Program,
    own: &Block,
    value: &Expr,
    buffer: BufferId,
    producer: BlockId,
    inverse: &[(VarId, Expr)],
) {
    let path = program.find_block(producer).unwrap_or_default();
    let source = &program.blocks[producer];
    let domain = block_domain(source, &program.domain_at(&path));
    let inner = source.value().clone();
    let change =
        |var: VarId| inverse.iter().find(|(own, _)| *own == var).map(|(_, value)| value.clone());
    // First the consumer's iterators, so that the producer's value is left as it is.
    let renamed = value.substitute(&change);
    let folded = map_loads(&renamed, buffer, &mut |_| inner.clone());
    let indices = own.indices.iter().map(|index| domain.simplify(&index.substitute(&change)));
    let indices = indices.collect();
    let source = &mut program.blocks[producer];
    source.body = BlockBody::Map(domain.simplify(&folded));
    source.indices = indices;
    source.buffer = own.buffer;
}
