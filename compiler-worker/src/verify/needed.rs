//! Elements that nobody needs: behind the size of a padded dimension, where kernels and whole runs leave anything.

use hone_artifact::PaddedDimension;
use hone_driver::{Need, Positions};

/// Puts the reference's elements where nothing is needed, so that what is needed is compared. Elements have `bytes`.
pub(super) fn settle(got: &mut [u8], want: &[u8], need: &Need, size: usize, bytes: usize) {
    let pairs = got.chunks_exact_mut(bytes.max(1)).zip(want.chunks_exact(bytes.max(1)));
    for (_, (got, want)) in pairs.enumerate().filter(|(element, _)| !need.has(*element, size)) {
        got.copy_from_slice(want);
    }
}

/// What is needed of an output of this shape.
pub(super) fn of_output(padded: Option<&PaddedDimension>, output: usize, shape: &[usize]) -> Need {
    let axis = padded.and_then(|padded| padded.outputs.get(output).copied().flatten());
    let along = axis.and_then(|axis| Positions::along(shape, axis as usize));
    Need::before(along.into_iter().collect())
}

/// The size that the last input of a sample says, or a count that a run computes; below one it counts as one, as for code.
pub(super) fn size(input: Option<&[u8]>) -> usize {
    let size = input.and_then(|bytes| bytes.try_into().ok()).map(i64::from_le_bytes);
    size.and_then(|size| usize::try_from(size).ok()).unwrap_or(0).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_behind_the_size_are_the_references() {
        let need = Need::before(vec![Positions { stride: 2, extent: 3, halo: 0 }]);
        let (mut got, want) = ([1u8; 12], [2u8; 12]);
        settle(&mut got, &want, &need, 2, 1);
        assert_eq!(got, [1, 1, 1, 1, 2, 2, 1, 1, 1, 1, 2, 2]);
        let mut got = [1u8; 12];
        settle(&mut got, &want, &Need::Everything, 0, 2);
        assert_eq!(got, [1; 12]);
        settle(&mut got, &want, &Need::Nothing, 3, 2);
        assert_eq!(got, want);
    }
}
