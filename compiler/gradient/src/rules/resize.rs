//! Resampling, which is a product with a matrix along each axis.

use super::{Pulled, Rule, Site};
use crate::RuleError;
use crate::nodes::Nodes;
use hone_ops::{Operator, Resize};
use hone_types::Tensor;

/// Most elements of the matrix of an axis.
const LARGEST_MATRIX: usize = 1 << 24;

impl Rule for Resize {
    /// A product with the same matrices transposed.
    fn pull_back(&self, nodes: &mut Nodes<'_>, site: &Site<'_>) -> Pulled {
        let Some((_, dy)) = site.output() else { return Ok(vec![None]) };
        let input = nodes.shape(site.input(0)?);
        if nodes.shape(dy).contains(&0) {
            return Ok(vec![None]);
        }
        let mut value = dy;
        for (axis, extent) in input.iter().enumerate() {
            let matrix = matrix(self, axis, *extent)?;
            if is_identity(&matrix) {
                continue;
            }
            let matrix = nodes.constant(matrix);
            let matrix = nodes.cast(matrix, nodes.dtype(dy))?;
            let turned = nodes.swap_last(matrix)?;
            let last = input.len() - 1;
            let lines = nodes.move_axis(value, axis, last)?;
            let product = nodes.matmul(lines, turned)?;
            value = nodes.move_axis(product, last, axis)?;
        }
        Ok(vec![Some(value)])
    }
}

/// What becomes of each element of one axis alone: `[input extent, output extent]`.
fn matrix(resize: &Resize, axis: usize, extent: usize) -> Result<Tensor, RuleError> {
    let size = resize.sizes[axis];
    if extent.checked_mul(extent.max(size)).is_none_or(|elements| elements > LARGEST_MATRIX) {
        return Err(RuleError::Missing(format!("resampling {extent} elements to {size}")));
    }
    let identity: Vec<f64> = (0..extent * extent)
        .map(|place| f64::from(u8::from(place / extent == place % extent)))
        .collect();
    let identity = Tensor::from_f64(hone_types::DataType::F64, [extent, extent], &identity)?;
    let region = match resize.region.split_at(resize.region.len() / 2) {
        ([], _) => Vec::new(),
        (starts, ends) => vec![0.0, starts[axis], 1.0, ends[axis]],
    };
    let alone = Resize {
        scales: vec![1.0, resize.scales[axis]],
        sizes: vec![extent, size],
        extrapolation: 0.0,
        region,
        ..resize.clone()
    };
    Ok(alone.reference(&[Some(&identity)])?.remove(0))
}

fn is_identity(matrix: &Tensor) -> bool {
    let (extent, values) = (matrix.shape()[1], matrix.to_f64());
    let is_one = |place: usize| place / extent == place % extent;
    matrix.shape()[0] == extent
        && values.iter().enumerate().all(|(place, own)| *own == f64::from(u8::from(is_one(place))))
}
