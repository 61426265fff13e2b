//! Grouped convolutions whose groups do not fill blocks of channels. Neighbouring groups are merged until
//! they do: their weights become the diagonal blocks of larger ones, padded with zeros. That multiplies by
//! zeros, and is still far faster than groups smaller than a vector.

use hone_ops::OpError;
use hone_types::{Tensor, TensorType};

/// Maximum groups that are merged into one where they fill no blocks in any other way.
const MAX_DENSE: usize = 32;

/// How groups are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupMerge {
    /// Groups that become one.
    factor: usize,
    /// Groups afterwards; the last one may be filled up with zeros.
    pub(crate) groups: usize,
}

impl GroupMerge {
    /// How `groups` groups of so many channels each are merged to fill blocks of `block` channels; `None`
    /// where that would cost too much.
    pub(crate) fn of(groups: usize, channels: [usize; 2], block: usize) -> Option<Self> {
        let whole = |factor: usize| {
            channels.iter().all(|per_group| (factor * per_group).is_multiple_of(block))
        };
        let factor = (1..groups).find(|factor| whole(*factor)).unwrap_or(groups);
        let merged = Self { factor, groups: groups.div_ceil(factor) };
        let same_blocks = channels.iter().all(|per_group| {
            let all = merged.groups * factor * per_group;
            merged.groups == 1 || all / block == (groups * per_group).div_ceil(block)
        });
        if same_blocks && (merged.groups > 1 || groups <= MAX_DENSE) {
            return Some(merged);
        }
        (groups <= MAX_DENSE).then_some(Self { factor: groups, groups: 1 })
    }

    /// Pairs of a block of inputs and a block of results that are multiplied.
    pub(crate) fn products(self, channels: [usize; 2], block: usize) -> usize {
        let blocks = channels.map(|each| (self.factor * each).div_ceil(block));
        self.groups * blocks[0] * blocks[1]
    }

    /// Weights `[O, C / g, ..]` for the merged groups.
    ///
    /// # Errors
    /// Where the shape is not that of such weights.
    pub(crate) fn weights(self, weights: &Tensor, groups: usize) -> Result<Tensor, OpError> {
        let [outputs, inputs, window @ ..] = weights.shape() else {
            return Err(OpError::Value("weights have two axes at least".to_string()));
        };
        let each = outputs / groups.max(1);
        let size = window.iter().product::<usize>() * weights.dtype().bytes();
        let merged_inputs = self.factor * inputs;
        let shape = [&[self.groups * self.factor * each, merged_inputs], window].concat();
        let merged_type = TensorType::new(weights.dtype(), shape);
        let mut bytes = vec![0; merged_type.bytes()];
        for (output, row) in weights.bytes().chunks_exact((inputs * size).max(1)).enumerate() {
            let first = output / each.max(1) % self.factor * inputs;
            bytes[(output * merged_inputs + first) * size..][..row.len()].copy_from_slice(row);
        }
        Ok(Tensor::from_bytes(merged_type, bytes)?)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn groups_are_merged_until_they_fill_blocks() {
        let merged = |groups, channels| GroupMerge::of(groups, channels, 16);
        assert_eq!(merged(32, [4, 4]), Some(GroupMerge { factor: 4, groups: 8 }));
        assert_eq!(merged(13, [8, 8]), Some(GroupMerge { factor: 2, groups: 7 }));
        assert_eq!(merged(64, [1, 2]), Some(GroupMerge { factor: 16, groups: 4 }));
        assert_eq!(merged(3, [5, 7]), Some(GroupMerge { factor: 3, groups: 1 }));
        assert_eq!(merged(100, [5, 7]), None);
    }

    #[test]
    fn weights_become_diagonal_blocks() {
        let weights = Tensor::from_elements([4, 1, 1], &[1.0f32, 2.0, 3.0, 4.0]).unwrap();
        let merged = GroupMerge { factor: 2, groups: 1 };
        let merged = merged.weights(&weights, 2).unwrap();
        assert_eq!(merged.shape(), [4, 2, 1]);
        let expected = [1.0f32, 0.0, 2.0, 0.0, 0.0, 3.0, 0.0, 4.0];
        assert_eq!(merged.elements::<f32>().unwrap(), expected);
    }
}
