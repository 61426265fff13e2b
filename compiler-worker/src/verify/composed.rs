//! Whether a run at sizes between or beyond the compiled ones gives the answers of the model at these sizes.

use hone_artifact::{Manifest, OpenDimension, TensorInfo};
use hone_driver::{DataType, Options, rounds_to_integers};

use super::Settings;
use crate::compare::{Comparison, Tolerance};
use crate::compiler::{self, Model};
use crate::failure::{Failure, Result};
use crate::inputs::{SEEDS, seeded};
use crate::work::executor::Executor;

/// What comparing a composed run found.
#[derive(Clone, Debug)]
pub struct ComposedCheck {
    /// The dimensions and the sizes that were run, such as `batch=31`.
    pub size: String,
    /// The outputs against the reference's, which is the model imported at this size.
    pub comparison: Comparison,
    /// Whether an error beyond the tolerance counts: not for a model that rounds to integers.
    counts: bool,
}

impl ComposedCheck {
    /// Runs an artifact that takes any size at one that it was not compiled for, on seeded inputs. `None` where its sizes are those that were compiled, or where nothing here can run others.
    ///
    /// # Errors
    /// What cannot be computed or run at all.
    pub fn run(
        model: &Model,
        manifest: &Manifest,
        options: Option<&Options>,
        settings: Settings,
        executor: &mut dyn Executor,
    ) -> Result<Option<Self>> {
        let Some((ports, size)) = between_sizes(manifest)? else { return Ok(None) };
        let shapes: Vec<Vec<u64>> = ports.iter().map(|own| own.shape.clone()).collect();
        if !executor.set_shapes(&shapes)? {
            return Ok(None);
        }
        let graph = compiler::reference_of(model, &ports)?;
        let inputs = seeded(&graph, &ports, SEEDS[0]).inputs;
        let want = compiler::evaluate(&graph, &inputs)?;
        let got = executor.run(&inputs)?;
        executor.select(0)?;
        let rounds = rounds_to_integers(&graph);
        let reduced = options.is_some_and(|own| own.precision != DataType::F32);
        let Settings { rtol, atol, max_relative_error } = settings;
        let fraction = max_relative_error.filter(|_| reduced || rounds).unwrap_or(0.0);
        let mut comparison = Comparison::default();
        for ((port, got), want) in compiler::ports(&graph, true)?.iter().zip(&got).zip(&want) {
            comparison.add(port, got, want, Tolerance { rtol, atol, fraction });
        }
        let counts = !rounds || max_relative_error.is_some();
        Ok(Some(Self { size, comparison, counts }))
    }

    /// What it found, in a sentence.
    pub fn sentence(&self) -> String {
        let Comparison { max_rel, elements, .. } = &self.comparison;
        format!(
            "{}, for which no code was made, gives the model's answers: {elements} elements, largest relative error {max_rel:.1e}",
            self.size
        )
    }

    /// Turns answers that are wrong into a failure.
    ///
    /// # Errors
    /// `WrongCode`: each size by itself is verified before.
    pub fn judge(&self, name: &str) -> Result<()> {
        let Comparison { outside, elements, worst, .. } = &self.comparison;
        if !self.counts || *outside == 0 {
            return Ok(());
        }
        let worst = worst.as_deref().unwrap_or("no element named");
        Err(Failure::new(
            hone_artifact::exit_code::Reason::WrongCode,
            format!(
                "model '{name}' does not give its answers at {}, for which no code was made: {outside} of {elements} elements, worst at {worst}; please report this",
                self.size
            ),
        ))
    }
}

/// The model's inputs at sizes that were not compiled, and these in words; `None` where there are no such: twice the
/// largest less one of what is composed, and two thirds of the largest bound of what is padded.
fn between_sizes(manifest: &Manifest) -> Result<Option<(Vec<TensorInfo>, String)>> {
    let Some(variant) = manifest.variants.first() else { return Ok(None) };
    let mut inputs = manifest.inputs_of(variant);
    inputs.truncate(manifest.given_inputs());
    let open = manifest.open.as_ref().map(|open| {
        // Slices of what is padded as well are computed one by one.
        let most = manifest.open_size(variant).unwrap_or(1).max(1);
        let size = if manifest.padded.is_some() { 2 } else { 2 * most - 1 };
        (&open.name, &open.inputs, size)
    });
    let padded = manifest.padded.as_ref().map(|padded| {
        let size = (manifest.bound_of(variant).unwrap_or(1) * 2 / 3).max(1);
        (padded, padded.taken(&inputs, &manifest.outputs_of(variant), size))
    });
    let too_large = || Failure::internal("an input is too large");
    let mut words = Vec::new();
    if let Some((name, axes, size)) = open {
        let at = inputs.iter().zip(axes);
        let at = at.map(|(tensor, axis)| OpenDimension::at_size(tensor, *axis, size));
        inputs = at.collect::<Option<Vec<TensorInfo>>>().ok_or_else(too_large)?;
        words.push(format!("{name}={size}"));
    }
    if let Some((padded, size)) = padded {
        let at = (0..inputs.len()).map(|place| padded.at_size(&inputs, place, size));
        inputs = at.collect::<Option<Vec<TensorInfo>>>().ok_or_else(too_large)?;
        words.push(format!("{}={size}", padded.name));
    }
    Ok((!words.is_empty()).then(|| (inputs, words.join(", "))))
}
