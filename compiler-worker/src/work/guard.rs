//! Which nodes stay in `f32` where narrower arithmetic spoils the answers: parts of the model are narrowed
//! one at a time, and those whose errors together stay within the bound are kept narrow.

use hone_artifact::request::{Compile, Input};
use hone_driver::{Graph, Target};

use super::Worker;
use super::verify::inputs;
use crate::compare::{Comparison, Tolerance};
use crate::compiler::{self, Model, Recipe};
use crate::failure::Result;

/// Parts that a model's products are cut into, in the order in which they run.
const PARTS: usize = 8;

/// Share of the bound that the errors of all narrow parts may come to as they are expected to add up.
const EXPECTED: f64 = 0.8;

/// What may be narrow.
#[derive(Debug)]
pub(super) struct Guarded {
    /// The recipe, which names the nodes that stay wide.
    pub recipe: Recipe,
    /// Nodes that would be narrow without them.
    pub nodes: usize,
}

/// What the model answers by a recipe: for inputs of these sizes, whose reference is this graph.
pub(super) type Answers<'a> =
    &'a dyn Fn(&Recipe, (&[Input], &Graph), &[Vec<u8>]) -> Result<Vec<Vec<u8>>>;

impl Worker<'_> {
    /// The recipe with the nodes that must stay wide for errors, as shares of the largest output, to be
    /// within `bound`, by the `answers` of recipes; `None` where none may be narrow.
    pub(super) fn guarded(
        &self,
        request: &Compile,
        model: &Model,
        (target, recipe): (&Target, &Recipe),
        bound: f64,
        answers: Answers<'_>,
    ) -> Result<Option<Guarded>> {
        self.progress.stage("find what rounding spoils");
        // By the largest sizes; the build is verified at all of them.
        let sizes = compiler::requests_of_sizes(model, &request.inputs)?;
        let inputs_of_model = &sizes[0];
        let graph = compiler::reference(model, inputs_of_model)?;
        let names = compiler::narrow_nodes(&graph, target, recipe)?;
        let inputs = inputs(self, request, &graph)?;
        let want = compiler::evaluate(&graph, &inputs)?;
        let parts: Vec<&[String]> = names.chunks(names.len().div_ceil(PARTS).max(1)).collect();
        let mut errors = Vec::with_capacity(parts.len());
        for part in &parts {
            let wide = names.iter().filter(|name| !part.contains(name)).cloned().collect();
            let recipe = Recipe { wide, ..recipe.clone() };
            let none = Tolerance { rtol: 0.0, atol: Some(0.0), fraction: 0.0 };
            let mut comparison = Comparison::default();
            let got = answers(&recipe, (inputs_of_model, &graph), &inputs)?;
            for ((port, got), want) in compiler::ports(&graph, true)?.iter().zip(&got).zip(&want) {
                comparison.add(port, got, want, none);
            }
            errors.push(comparison.max_fraction);
        }
        let narrow = within(&errors, EXPECTED * bound);
        let wide = parts.iter().enumerate().filter(|(place, _)| !narrow.contains(place));
        let wide = wide.flat_map(|(_, part)| part.iter().cloned()).collect();
        let recipe = Recipe { wide, ..recipe.clone() };
        Ok((!narrow.is_empty()).then_some(Guarded { recipe, nodes: names.len() }))
    }
}

/// The most parts whose errors, independent of one another, come to no more than `bound`.
fn within(errors: &[f64], bound: f64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..errors.len()).collect();
    order.sort_by(|a, b| errors[*a].total_cmp(&errors[*b]));
    let mut squares = 0.0;
    let fits = |place: &usize| {
        squares += errors[*place] * errors[*place];
        squares.sqrt() <= bound
    };
    order.into_iter().take_while(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_errors_are_taken_until_the_bound() {
        assert_eq!(within(&[3.0, 1.0, 4.0, 2.0], 3.8), [1, 3, 0]);
        assert_eq!(within(&[3.0, 1.0], 0.5), [0usize; 0]);
        assert_eq!(within(&[f64::NAN, 1.0], 10.0), [1]);
    }
}
