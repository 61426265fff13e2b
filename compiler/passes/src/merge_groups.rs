//! Grouped convolutions whose groups do not fill blocks of channels. Neighbouring groups are merged until
//! they do: their weights stand on the diagonal of wider ones, with zeros beside them. That multiplies by
//! zeros, and is still far faster than groups narrower than a vector.

use hone_ops::OpError;
use hone_types::{Tensor, TensorType};

/// Most groups that are merged into one where they fill no blocks in any other way.
const DENSE: usize = 32;

/// How groups are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Merged {
    /// Groups that become one.
    together: usize,
    /// Groups afterwards; the last one may be filled up with zeros.
    pub(crate) groups: usize,
}

impl Merged {
    /// How `groups` groups of so many channels each are merged to fill blocks of `block` channels; `None`
    /// where that would cost too much.
    pub(crate) fn of(groups: usize, channels: [usize; 2], block: usize) -> Option<Self> {
        let whole =
            |together: usize| channels.iter().all(|own| (together * own).is_multiple_of(block));
        let together = (1..groups).find(|together| whole(*together)).unwrap_or(groups);
        let merged = Self { together, groups: groups.div_ceil(together) };
        let same_blocks = channels.iter().all(|own| {
            let all = merged.groups * together * own;
            merged.groups == 1 || all / block == (groups * own).div_ceil(block)
        });
        if same_blocks && (merged.groups > 1 || groups <= DENSE) {
            return Some(merged);
        }
        (groups <= DENSE).then_some(Self { together: groups, groups: 1 })
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
        let wide = self.together * inputs;
        let shape = [&[self.groups * self.together * each, wide], window].concat();
        let own = TensorType::new(weights.dtype(), shape);
        let mut bytes = vec![0; own.bytes()];
        for (output, row) in weights.bytes().chunks_exact((inputs * size).max(1)).enumerate() {
            let first = output / each.max(1) % self.together * inputs;
            bytes[(output * wide + first) * size..][..row.len()].copy_from_slice(row);
        }
        Ok(Tensor::from_bytes(own, bytes)?)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn groups_are_merged_until_they_fill_blocks() {
        let merged = |groups, channels| Merged::of(groups, channels, 16);
        assert_eq!(merged(32, [4, 4]), Some(Merged { together: 4, groups: 8 }));
        assert_eq!(merged(13, [8, 8]), Some(Merged { together: 2, groups: 7 }));
        assert_eq!(merged(64, [1, 2]), Some(Merged { together: 16, groups: 4 }));
        assert_eq!(merged(3, [5, 7]), Some(Merged { together: 3, groups: 1 }));
        assert_eq!(merged(100, [5, 7]), None);
    }

    #[test]
    fn weights_stand_on_the_diagonal() {
        let weights = Tensor::from_elements([4, 1, 1], &[1.0f32, 2.0, 3.0, 4.0]).unwrap();
        let merged = Merged { together: 2, groups: 1 };
        let wide = merged.weights(&weights, 2).unwrap();
        assert_eq!(wide.shape(), [4, 2, 1]);
        let expected = [1.0f32, 0.0, 2.0, 0.0, 0.0, 3.0, 0.0, 4.0];
        assert_eq!(wide.elements::<f32>().unwrap(), expected);
    }
}
