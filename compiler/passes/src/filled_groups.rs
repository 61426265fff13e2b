//! How the groups of a convolution come to fill blocks of channels.

use crate::group_parts::GroupParts;
use crate::merge_groups::GroupMerge;

/// What is done with groups so that they fill blocks.
pub(crate) enum FilledGroups {
    /// They fill blocks, or there is one group.
    Whole,
    /// Neighbours become one group.
    Merged(GroupMerge),
    /// Several convolutions take their place.
    Parts(GroupParts),
}

impl FilledGroups {
    /// For `groups` groups of so many inputs and results each, in blocks of `block` channels; `None` where it would cost too
    /// much. They are divided into parts where they may be (`may_divide`).
    pub(crate) fn of(
        groups: usize,
        channels: [usize; 2],
        block: usize,
        may_divide: bool,
    ) -> Option<Self> {
        if groups == 1 || channels.iter().all(|each| each.is_multiple_of(block)) {
            return Some(Self::Whole);
        }
        let merge = GroupMerge::of(groups, channels, block);
        let divides = may_divide && groups * channels[0] > block;
        let parts = || GroupParts::of(groups, channels, block, merge);
        match divides.then(parts).flatten() {
            Some(parts) => Some(Self::Parts(parts)),
            None => merge.map(Self::Merged),
        }
    }
}
