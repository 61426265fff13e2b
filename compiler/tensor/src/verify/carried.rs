//! Values that one iteration of a loop leaves to later ones, as recurrences and running sums do.
//!
//! Shown from the indices: on some axis, store and load have the same terms in the loops around both, each
//! loop's factor larger than all that the loops inside it add up to, in the order of the loops. Then the
//! index says the iteration, and a constant difference on the right side of zero says that the element
//! was stored in an earlier one. A loop between these that another axis walks has to mean the same
//! iteration of it in both. Each element is stored once, so that every order of the loops in which
//! this holds computes the same.

use crate::sum::Sum;
use crate::{BlockBody, BlockId, BufferId, Domain, Expr, Program, VarId, independence};

/// Whether `reader` loads of `buffer` only what `writer` stored in earlier iterations of the loops around
/// both.
pub(super) fn is_carried(
    program: &Program,
    writer: BlockId,
    reader: BlockId,
    buffer: BufferId,
) -> bool {
    let (Some(from), Some(to)) = (Site::of(program, writer), Site::of(program, reader)) else {
        return false;
    };
    let continues = matches!(program.blocks[reader].body, BlockBody::Reduce { initial: None, .. });
    let updates = matches!(program.blocks[writer].body, BlockBody::Reduce { .. });
    if updates || continues && program.blocks[reader].buffer == buffer {
        return false;
    }
    let shared = from.loops.iter().zip(&to.loops).take_while(|(a, b)| a == b).count();
    let shared = &from.loops[..shared];
    let stores = from.resolved(&program.blocks[writer].indices);
    // That parallel and vectorized loops carry nothing is checked with those.
    program.blocks[reader].loads(buffer).into_iter().all(|load| {
        let loads = to.resolved(load);
        // Of one iteration alone there is no earlier one: its condition never holds.
        let shape = program.buffers[buffer].shape.iter();
        let outside = |(index, extent): (&Expr, &usize)| {
            let index = index.as_integer().map(usize::try_from);
            index.is_some_and(|index| !index.is_ok_and(|index| index < *extent))
        };
        if loads.iter().zip(shape).any(outside) {
            return true;
        }
        (0..stores.len()).any(|axis| {
            let Some(last) = earlier(&stores[axis], &loads[axis], shared, &from.domain) else {
                return false;
            };
            shared[..last].iter().all(|var| {
                let walks = |index: &Expr| index.mentions(*var);
                let timed = walks(&stores[axis]);
                let walked = stores.iter().chain(&loads).any(walks);
                timed
                    || !walked
                    || independence::same_iteration(
                        (&stores, &from.domain),
                        (&loads, &to.domain),
                        *var,
                    )
            })
        })
    })
}

/// Where the store index tells the iteration of loops among `shared`, and the load index an earlier one:
/// how many of `shared` lie outside the innermost of them, with it.
fn earlier(store: &Expr, load: &Expr, shared: &[VarId], domain: &Domain) -> Option<usize> {
    let (store, load) = (Sum::of(store), Sum::of(load));
    let mut terms = Vec::new();
    for (atom, factor) in &store.terms {
        let Expr::Var(var) = atom else { return None };
        terms.push((shared.iter().position(|own| own == var)?, *factor));
        if !load.terms.contains(&(atom.clone(), *factor)) {
            return None;
        }
    }
    if terms.len() != load.terms.len() {
        return None;
    }
    terms.sort_unstable();
    let sign = terms.first()?.1.signum();
    let mut span = 0i64;
    for (place, factor) in terms.iter().rev() {
        let own = factor.checked_mul(sign).filter(|own| *own > span)?;
        let most = domain.range(shared[*place])?.max;
        span = own.checked_mul(most)?.checked_add(span)?;
    }
    let back = load.constant.checked_sub(store.constant)?.checked_mul(sign)?;
    (back < 0).then(|| terms.last().map(|(place, _)| place + 1))?
}

/// A block where it stands.
struct Site<'a> {
    program: &'a Program,
    block: BlockId,
    loops: Vec<VarId>,
    domain: Domain,
}

impl<'a> Site<'a> {
    fn of(program: &'a Program, block: BlockId) -> Option<Self> {
        let path = program.find_block(block)?;
        let loops = program.enclosing(&path).into_iter().map(|own| own.var).collect();
        Some(Self { program, block, loops, domain: program.domain_at(&path) })
    }

    fn resolved(&self, indices: &[Expr]) -> Vec<Expr> {
        let block = &self.program.blocks[self.block];
        let Some(realize) = self.program.realize_of(self.block) else { return indices.to_vec() };
        indices.iter().map(|index| realize.resolve(block, index, &self.domain)).collect()
    }
}
