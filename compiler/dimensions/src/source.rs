//! A model's file, and what is asked of it.

use hone_artifact::request::Input;
use hone_artifact::{Extent, MOST_SIZES};
use hone_driver::{
    Bytes, Combination, DataType, Graph, ImportOptions, InputBinding, Signature, SizedBinding,
};

use crate::error::{DimensionError, Result};
use crate::padding;

/// A model's file, and how it is imported beside the shapes of its inputs.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The file.
    pub bytes: &'a Bytes,
    /// Everything but the shapes: its bindings are not used.
    pub options: &'a ImportOptions,
}

impl Source<'_> {
    /// Inputs and outputs as the model declares them, without inputs whose value is known.
    pub(crate) fn signature(&self) -> Result<Signature> {
        let mut signature = hone_driver::signature(self.bytes)?;
        let is_constant =
            |name: &str| self.options.constants.iter().any(|constant| constant.0 == name);
        signature.inputs.retain(|port| !is_constant(&port.name));
        Ok(signature)
    }

    /// The graph of the model with its inputs in these shapes.
    pub(crate) fn import_at(&self, bindings: Vec<InputBinding>) -> Result<Graph> {
        let options = ImportOptions { bindings, ..self.options.clone() };
        Ok(hone_driver::import_shared(self.bytes, &options)?.graph)
    }

    /// The graph of the model at the largest combination of given sizes.
    pub(crate) fn import_largest(
        &self,
        signature: &Signature,
        given: &[SizedBinding],
    ) -> Result<Graph> {
        let largest = combined(signature, given)?.into_iter().next();
        self.import_at(largest.unwrap_or_default().bindings)
    }
}

/// The combinations of given sizes, the largest first; one of nothing where none is given.
pub(crate) fn combined(signature: &Signature, given: &[SizedBinding]) -> Result<Vec<Combination>> {
    if given.is_empty() {
        return Ok(vec![Combination::default()]);
    }
    Ok(hone_driver::combinations(signature, given, MOST_SIZES)?)
}

/// Sizes in place of what is no list of them; refused where there are none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Substitutes<'a> {
    /// For any size.
    pub(crate) any: &'a [usize],
    /// For a range of more sizes than are compiled each.
    pub(crate) bounds: &'a [usize],
}

/// What is said of inputs and dimensions, with sizes in place of any size and of ranges of many.
pub(crate) fn bindings(
    inputs: &[Input],
    substitutes: Substitutes<'_>,
) -> Result<Vec<SizedBinding>> {
    inputs.iter().map(|input| sized(input, substitutes)).collect()
}

fn sized(input: &Input, substitutes: Substitutes<'_>) -> Result<SizedBinding> {
    let named = |name: &String| {
        let known = DataType::all().find(|dtype| dtype.name() == name);
        known.ok_or_else(|| DimensionError::ElementType {
            input: input.name.clone(),
            dtype: name.clone(),
        })
    };
    let dtype = input.dtype.as_ref().map(named).transpose()?;
    let sizes = |extent: &Extent| -> Result<Vec<usize>> {
        let Substitutes { any, bounds } = substitutes;
        if extent.is_any().is_ok_and(|is_any| is_any) && !any.is_empty() {
            return Ok(any.to_vec());
        }
        if padding::wide_range(extent).is_some() && !bounds.is_empty() {
            return Ok(bounds.to_vec());
        }
        let sizes = extent.sizes().map_err(|error| DimensionError::unusable(&input.name, error))?;
        Ok(sizes.into_iter().map(|size| usize::try_from(size).unwrap_or(usize::MAX)).collect())
    };
    let shape = input.shape.iter().map(sizes).collect::<Result<_>>()?;
    Ok(SizedBinding { name: input.name.clone(), shape, dtype })
}
