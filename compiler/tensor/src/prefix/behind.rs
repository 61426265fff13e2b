//! What a whole run of a program stores behind the size.

use super::value::{Site, Value};
use super::{Behind, Contents, Positions, element, ways};
use crate::{
    BinaryOp, Block, BlockBody, BlockId, BufferId, Combiner, Expr, IteratorKind, Program, Role,
    UnaryOp, VarId, simplify,
};
use hone_types::Id;

/// What is known of every buffer of a program in the plain loop order, where `inputs` is known of its inputs, by number;
/// `extent` is the bound. Nothing is known of programs that go in steps.
pub fn contents(program: &Program, extent: usize, inputs: &[Contents]) -> Vec<Contents> {
    let mut all = vec![Contents::default(); program.buffers.len()];
    for (id, buffer) in program.buffers.iter() {
        if let Role::Input(number) = buffer.role {
            all[id.index()] = inputs.get(number).cloned().unwrap_or_default();
        }
    }
    if program.has_steps() {
        return all;
    }
    for id in program.blocks_in_order() {
        let block = &program.blocks[id];
        if program.writers(block.buffer) == [id]
            && let BlockBody::Map(value) = &block.body
        {
            let site = Site { program, block, contents: &all };
            all[block.buffer.index()] = stored(&site, value, extent);
        }
    }
    all
}

/// What a map stores.
fn stored(site: &Site<'_>, value: &Expr, extent: usize) -> Contents {
    let (program, block) = (site.program, site.block);
    let everywhere = site.value(value, None);
    let mut found = Contents { is_size: everywhere == Value::Size, ..Contents::default() };
    let mut read: Vec<Positions> = Vec::new();
    value.visit(&mut |part| {
        if let Expr::Load(buffer, _) = part
            && let Some(own) = site.contents(*buffer)
        {
            read.extend(
                own.behind.iter().map(|(positions, _)| *positions).chain(own.numbers.clone()),
            );
        }
    });
    for positions in ways(program, block.buffer, extent, read) {
        let Some(index) = site.position(block.buffer, &block.indices, positions) else { continue };
        if everywhere == Value::Position(index.clone()) {
            found.numbers.push(positions);
        }
        let behind = match site.value(value, Some(&index)) {
            Value::Number(number) => Some(Behind::Number(number)),
            _ => is_softmax(site, value, &index).then_some(Behind::Weights),
        };
        found.behind.extend(behind.map(|behind| (positions, behind)));
    }
    found
}

/// Whether a value is `exp(score - maximum)`, with the largest of the scores along the position `index`, and scores behind
/// the size are the least number. Then it is zero there; or the maximum is the least number or no number, and the first
/// score gives no number either.
fn is_softmax(site: &Site<'_>, value: &Expr, index: &Expr) -> bool {
    let Expr::Unary(UnaryOp::Exp, difference) = value else { return false };
    let Expr::Binary(BinaryOp::Subtract, score, most) = &**difference else { return false };
    let (Expr::Load(scores, at), Expr::Load(maxima, most_at)) = (&**score, &**most) else {
        return false;
    };
    let Expr::Var(along) = index else { return false };
    site.value(score, Some(index)) == Value::Number(f64::NEG_INFINITY)
        && maximum_over(site, *maxima, most_at)
            .is_some_and(|largest| largest.is_over(site, (*scores, at), *along))
}

/// A reduction that computed an element: the buffer and indices that it reads, and the iterator along which.
struct Maximum {
    buffer: BufferId,
    indices: Vec<Expr>,
    along: VarId,
}

/// The largest elements that `indices` of `buffer` is one of, in terms of the iterators of the site's block and of the
/// reduction's.
fn maximum_over(site: &Site<'_>, buffer: BufferId, indices: &[Expr]) -> Option<Maximum> {
    let [writer]: [BlockId; 1] = site.program.writers(buffer).try_into().ok()?;
    let block: &Block = &site.program.blocks[writer];
    let BlockBody::Reduce { combiner: Combiner::Maximum, value: Expr::Load(read, at), .. } =
        &block.body
    else {
        return None;
    };
    let mut reduced = block.iterators.iter().filter(|own| own.kind == IteratorKind::Reduction);
    let (along, None) = (reduced.next()?.var, reduced.next()) else { return None };
    let spatial: Vec<VarId> = block
        .indices
        .iter()
        .map(|index| if let Expr::Var(var) = index { Some(*var) } else { None })
        .collect::<Option<_>>()?;
    let replaced = |var: VarId| {
        let place = spatial.iter().position(|own| *own == var)?;
        indices.get(place).cloned()
    };
    let whole = at.iter().all(|index| {
        let mut known = true;
        index.visit(&mut |part| {
            known &= !matches!(part, Expr::Var(var) if *var != along && !spatial.contains(var));
        });
        known
    });
    let indices = at.iter().map(|index| index.substitute(&replaced)).collect();
    whole.then_some(Maximum { buffer: *read, indices, along })
}

impl Maximum {
    /// Whether it is the largest of the scores at `indices` with all values of `along`.
    fn is_over(
        &self,
        site: &Site<'_>,
        (buffer, indices): (BufferId, &[Expr]),
        along: VarId,
    ) -> bool {
        let shape = &site.program.buffers[buffer].shape;
        let own = self
            .indices
            .iter()
            .map(|index| index.substitute(&|var| (var == self.along).then_some(Expr::Var(along))));
        let own: Vec<Expr> = own.collect();
        let same = || {
            let difference = element(shape, &own)? - element(shape, indices)?;
            Some(simplify(&difference, &|var| super::range(site.block, var)))
        };
        self.buffer == buffer && same() == Some(Expr::Integer(0))
    }
}
