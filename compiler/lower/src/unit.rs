//! Reads along an axis of extent 1 are written as reads at 0, so that equal reads look equal.

use hone_tensor::{BlockBody, Expr, Program, VarId};

/// Replaces iterators of extent 1 by 0 in the values of blocks.
pub(crate) fn fix_unit_axes(mut program: Program) -> Program {
    for (_, block) in program.blocks.iter_mut() {
        let units: Vec<VarId> = block
            .iterators
            .iter()
            .filter(|iterator| iterator.extent == 1)
            .map(|iterator| iterator.var)
            .collect();
        let fixed = |value: &Expr| {
            value.substitute(&|var| units.contains(&var).then_some(Expr::Integer(0)))
        };
        match &mut block.body {
            BlockBody::Map(value) | BlockBody::Reduce { value, .. } => *value = fixed(value),
        }
    }
    program
}
