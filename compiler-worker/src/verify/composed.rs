//! Whether a run at a size that is composed of compiled ones gives the answers of the model at this size.

use hone_artifact::{Manifest, OpenDimension, TensorInfo, Variant};
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
    /// The dimension and the size that was run, such as `batch=31`.
    pub size: String,
    /// The outputs against the reference's, which is the model imported at this size.
    pub comparison: Comparison,
    /// Whether an error beyond the tolerance counts: not for a model that rounds to integers.
    counts: bool,
}

impl ComposedCheck {
    /// Runs an artifact that takes any size at one that it was not compiled for, twice the largest less one, on seeded
    /// inputs. `None` where its sizes are those that were compiled, or where nothing here can run others.
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
        let Some(open) = &manifest.open else { return Ok(None) };
        let Some(variant) = manifest.variants.first() else { return Ok(None) };
        let size = 2 * manifest.open_size(variant).unwrap_or(1) - 1;
        let ports = inputs_at(manifest, variant, open, size)?;
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
        Ok(Some(Self { size: format!("{}={size}", open.name), comparison, counts }))
    }

    /// What it found, in a sentence.
    pub fn sentence(&self) -> String {
        let Comparison { max_rel, elements, .. } = &self.comparison;
        format!(
            "{}, which is composed of compiled sizes, gives the model's answers: {elements} elements, largest relative error {max_rel:.1e}",
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
                "model '{name}' does not give its answers at {}, which is composed of compiled sizes: {outside} of {elements} elements, worst at {worst}; please report this",
                self.size
            ),
        ))
    }
}

fn inputs_at(
    manifest: &Manifest,
    variant: &Variant,
    open: &OpenDimension,
    size: u64,
) -> Result<Vec<TensorInfo>> {
    let inputs = manifest.inputs_of(variant);
    let at =
        inputs.iter().zip(&open.inputs).map(|(own, axis)| OpenDimension::at_size(own, *axis, size));
    let all: Option<Vec<TensorInfo>> = at.collect();
    all.ok_or_else(|| Failure::internal("an input is too large"))
}
