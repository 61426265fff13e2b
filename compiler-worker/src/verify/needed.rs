//! Elements that nobody needs: behind the size of a padded dimension, where kernels and whole runs leave anything.

use hone_artifact::{PaddedDimension, TensorInfo};
use hone_driver::{Need, Positions};

use super::Sample;

/// Puts the reference's elements where nothing is needed, so that what is needed is compared. Elements have `bytes`.
pub(super) fn settle(got: &mut [u8], want: &[u8], need: &Need, size: usize, bytes: usize) {
    let pairs = got.chunks_exact_mut(bytes.max(1)).zip(want.chunks_exact(bytes.max(1)));
    for (_, (got, want)) in pairs.enumerate().filter(|(element, _)| !need.has(*element, size)) {
        got.copy_from_slice(want);
    }
}

/// The same with zeros in both, so that nothing is said of what nobody needs, such as that it is not finite; the reference's
/// elements with them.
pub(super) fn without(
    got: &mut [u8],
    want: &[u8],
    need: &Need,
    (size, bytes): (usize, usize),
) -> Vec<u8> {
    let mut want = want.to_vec();
    for elements in [got, &mut want] {
        let parts = elements.chunks_exact_mut(bytes.max(1)).enumerate();
        parts.filter(|(element, _)| !need.has(*element, size)).for_each(|(_, own)| own.fill(0));
    }
    want
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

/// A sample with a size of a padded dimension that a variant with these inputs and outputs takes: that which it has, or another
/// one that its numbers choose.
pub(super) fn at_taken_size(
    sample: &Sample,
    padded: Option<&PaddedDimension>,
    (inputs, outputs): &(Vec<TensorInfo>, Vec<TensorInfo>),
) -> Sample {
    let mut sample = sample.clone();
    let (Some(padded), Some(most)) = (padded, padded.and_then(|own| own.extent_in(inputs))) else {
        return sample;
    };
    let added = padded.bound_in(inputs, outputs).unwrap_or(most).saturating_sub(most);
    let taken = |size: u64| padded.taken(inputs, outputs, size);
    let number = |bytes: &[u8]| {
        let all = bytes
            .iter()
            .take(32)
            .fold(7u64, |all, byte| all.wrapping_mul(31).wrapping_add(u64::from(*byte)));
        all >> 8
    };
    let first = sample.inputs.first().map_or(0, |bytes| number(bytes));
    if let Some(size) = sample.inputs.last_mut() {
        let known = self::size(Some(size)) as u64;
        let shown = known.saturating_sub(added);
        if taken(shown) != shown || shown + added != known {
            let least = taken(0);
            let chosen = taken(least + first % (most.saturating_sub(least) + 1)) + added;
            *size = chosen.to_le_bytes().to_vec();
        }
    }
    sample
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use hone_artifact::DataType;

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
        let want = without(&mut got, &want, &need, (1, 1));
        assert_eq!(
            (want, got),
            ([2, 2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0].to_vec(), [2, 2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0])
        );
    }

    #[test]
    fn samples_have_sizes_that_are_taken() {
        let tensor = |shape: Vec<u64>| TensorInfo::new("x", DataType::F32, shape).unwrap();
        let padded = PaddedDimension {
            name: "time".to_owned(),
            inputs: vec![Some(0)],
            outputs: vec![Some(0)],
            lengths: Vec::new(),
            least: Some(20),
            multiple: Some(4),
        };
        let ports = (vec![tensor(vec![40])], vec![tensor(vec![40])]);
        let size_of = |seed: u8, size: i64| {
            let inputs = vec![vec![seed; 160], size.to_le_bytes().to_vec()];
            let sample = Sample { name: "x".to_owned(), inputs, edges: false };
            let taken = at_taken_size(&sample, Some(&padded), &ports);
            super::size(taken.inputs.last().map(Vec::as_slice))
        };
        assert_eq!(size_of(1, 24), 24);
        let chosen: Vec<usize> = (0..20).map(|seed| size_of(seed, 1)).collect();
        assert!(chosen.iter().all(|size| (20..=40).contains(size) && size % 4 == 0), "{chosen:?}");
        assert!(chosen.iter().any(|size| *size != chosen[0]), "{chosen:?}");
    }
}
