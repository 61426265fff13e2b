//! The program that an intrinsic stands for.

use super::{ANY, Extent, Intrinsic, Term};
use crate::{BufferId, Builder, Combiner, Expr, Program};
use hone_types::TensorType;

impl Intrinsic {
    /// How many arrangements of its operands it takes.
    pub fn layouts(self) -> usize {
        self.0.layouts.len()
    }

    /// The program that adds up what the intrinsic does, from zero: its software model. Every operand is a flat
    /// input that holds what the arrangement of number `layout` reads; the output has an axis for each loop that
    /// its result moves with. Loops over lanes run `lanes` times.
    pub fn model(self, layout: usize, lanes: usize) -> Program {
        let description = self.0;
        let extents: Vec<usize> = self.loops().iter().map(|extent| extent.times(lanes)).collect();
        let steps: Vec<Vec<i64>> =
            description.layouts[layout].iter().map(|steps| apart(steps, &extents)).collect();
        let mut builder = Builder::new();
        let inputs: Vec<BufferId> = description
            .operands
            .iter()
            .zip(&steps)
            .enumerate()
            .map(|(number, (dtype, steps))| {
                let reach = steps.iter().zip(&extents).map(|(step, extent)| {
                    usize::try_from(*step).unwrap_or(0) * extent.saturating_sub(1)
                });
                let shape = [reach.sum::<usize>() + 1];
                builder.input(&format!("operand{number}"), &TensorType::new(*dtype, shape))
            })
            .collect();
        let spatial: Vec<bool> = description.result_steps.iter().map(|step| *step != 0).collect();
        let axes = |wanted: bool| -> Vec<usize> {
            let axes = extents.iter().zip(&spatial).filter(|(_, is)| **is == wanted);
            axes.map(|(extent, _)| *extent).collect()
        };
        let result = TensorType::new(description.result, axes(true));
        let sums = builder.reduce("sums", &result, &axes(false), Combiner::Sum, |point, summed| {
            let (mut point, mut summed) = (point.iter(), summed.iter());
            let loops: Vec<Expr> = spatial
                .iter()
                .filter_map(|is| if *is { point.next() } else { summed.next() })
                .cloned()
                .collect();
            let loads: Vec<Expr> = inputs
                .iter()
                .zip(&steps)
                .map(|(buffer, steps)| Expr::Load(*buffer, vec![element(steps, &loops)]))
                .collect();
            value(&description.term, &loads)
        });
        builder.output(sums);
        builder.finish()
    }
}

impl Extent {
    fn times(self, lanes: usize) -> usize {
        match self {
            Extent::Lanes => lanes,
            Extent::Exactly(times) => usize::try_from(times).unwrap_or(0),
            Extent::AtMost(times) => usize::try_from(times).unwrap_or(0).min(lanes),
        }
    }
}

/// Steps with one in place of [`ANY`] that is just so long that nothing is read twice.
fn apart(steps: &[i64], extents: &[usize]) -> Vec<i64> {
    let reach = |(step, extent): (&i64, &usize)| match *step {
        ANY => 0,
        step => step * (*extent as i64 - 1),
    };
    let others: i64 = steps.iter().zip(extents).map(reach).sum();
    steps.iter().map(|step| if *step == ANY { others + 1 } else { *step }).collect()
}

/// The element that an access reads in an iteration.
fn element(steps: &[i64], loops: &[Expr]) -> Expr {
    let mut terms = steps.iter().zip(loops).filter(|(step, _)| **step != 0);
    let first = terms.next().map_or(Expr::Integer(0), |(step, var)| scaled(var, *step));
    terms.fold(first, |sum, (step, var)| sum + scaled(var, *step))
}

fn scaled(var: &Expr, step: i64) -> Expr {
    if step == 1 { var.clone() } else { var.clone() * step }
}

fn value(term: &Term, loads: &[Expr]) -> Expr {
    match term {
        Term::Operand(number) => loads[*number].clone(),
        Term::Constant(number, dtype) => Expr::Constant(*number, *dtype),
        Term::Cast(to, term) => value(term, loads).cast(*to),
        Term::Binary(op, left, right) => value(left, loads).binary(*op, value(right, loads)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::verify;

    #[test]
    fn every_intrinsic_is_well_formed_and_has_a_name_of_its_own() {
        for intrinsic in Intrinsic::ALL {
            assert_eq!(Intrinsic::named(intrinsic.name()), Some(intrinsic));
            let loops = intrinsic.loops().len();
            assert_eq!(intrinsic.0.result_steps.len(), loops);
            for layout in intrinsic.0.layouts {
                assert_eq!(layout.len(), intrinsic.operands().len(), "{intrinsic:?}");
                assert!(layout.iter().all(|steps| steps.len() == loops), "{intrinsic:?}");
            }
        }
    }

    #[test]
    fn the_software_models_are_programs() {
        for intrinsic in Intrinsic::ALL {
            for layout in 0..intrinsic.layouts() {
                verify(&intrinsic.model(layout, 6)).unwrap();
            }
        }
    }
}
