//! Room for a dimension of any size up to a bound: a run's inputs are laid into it, and its outputs taken from it.
//!
//! What lies in the room behind the size has no influence on results. It is zero at first, and later what other runs left
//! there, which are elements of the same tensor.

use std::ffi::c_void;

use hone_artifact::{PaddedDimension, TensorInfo};

use crate::memory::Region;
use crate::plan::{Loaded, Plan};
use crate::{LoadError, RunError};

/// The dimension, the size that is set, and the room of one model.
pub(crate) struct Padding {
    dimension: PaddedDimension,
    /// Lent to runs as their last input; boxed, so that its address stays.
    size: Box<i64>,
    /// Room for each of the model's inputs that has the dimension, at the largest bound.
    inputs: Vec<Option<Region>>,
    /// The same for outputs.
    outputs: Vec<Option<Region>>,
}

/// How a tensor lies in its room: rows of `bytes`, each at the begin of one of `room`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rows {
    count: usize,
    bytes: usize,
    room: usize,
}

impl Rows {
    /// Of a tensor with an extent along an axis that has room for more. The manifest was validated, so that bytes fit 63
    /// bits.
    fn of(tensor: &TensorInfo, axis: u32, extent: u64) -> Self {
        let axis = axis as usize;
        let count: u64 = tensor.shape[..axis].iter().product();
        let room = tensor.bytes / count.max(1);
        let bytes = room / tensor.shape[axis].max(1) * extent;
        Self { count: count as usize, bytes: bytes as usize, room: room as usize }
    }

    /// Copies all rows.
    ///
    /// # Safety
    /// `from` and `to` lead to rows that are `steps` bytes apart, and do not overlap.
    unsafe fn copy(self, from: *const u8, to: *mut u8, steps: (usize, usize)) {
        for row in 0..self.count {
            let (from, to) = (from.wrapping_add(row * steps.0), to.wrapping_add(row * steps.1));
            // SAFETY: the caller's promise.
            unsafe { std::ptr::copy_nonoverlapping(from, to, self.bytes) };
        }
    }
}

impl Padding {
    /// `None` where no dimension is padded.
    pub(crate) fn new(loaded: &Loaded) -> Result<Option<Self>, LoadError> {
        let Some(dimension) = loaded.manifest.padded.clone() else { return Ok(None) };
        let room = |tensors: fn(&Plan) -> &[TensorInfo], index: usize, axis: &Option<u32>| {
            axis.map(|_| {
                let sizes = loaded.plans.iter().filter_map(|plan| tensors(plan).get(index));
                let bytes = sizes.map(|tensor| tensor.bytes).max().unwrap_or(0);
                Region::new(bytes as usize, false).map_err(|source| LoadError::Memory {
                    bytes,
                    what: "tensors of any size",
                    source,
                })
            })
            .transpose()
        };
        let rooms = |axes: &[Option<u32>], tensors: fn(&Plan) -> &[TensorInfo]| {
            let each = axes.iter().enumerate();
            each.map(|(index, axis)| room(tensors, index, axis)).collect::<Result<Vec<_>, _>>()
        };
        let inputs = rooms(&dimension.inputs, |plan| &plan.inputs)?;
        let outputs = rooms(&dimension.outputs, |plan| &plan.outputs)?;
        Ok(Some(Self { dimension, size: Box::new(0), inputs, outputs }))
    }

    /// The dimension.
    pub(crate) fn dimension(&self) -> &PaddedDimension {
        &self.dimension
    }

    /// Refuses a size of which no plan has room.
    pub(crate) fn check(&self, plans: &[Plan], size: u64) -> Result<(), RunError> {
        let least = plans.iter().map(|plan| u64::from(self.added(plan) == 0)).min().unwrap_or(1);
        let least = self.dimension.least.unwrap_or(least);
        let bound = plans.iter().filter_map(|plan| self.most(plan)).max().unwrap_or(0);
        let (dimension, multiple) = (self.dimension.name.clone(), self.dimension.multiple());
        if !(least..=bound).contains(&size) {
            return Err(RunError::Bound { dimension, size, least, bound });
        }
        let added = plans.iter().map(|plan| self.added(plan)).min().unwrap_or(0);
        match size.saturating_add(added).is_multiple_of(multiple) {
            true => Ok(()),
            false => Err(RunError::Multiple { dimension, size, multiple }),
        }
    }

    /// The extent that an output has at the size that is set, of one that has `compiled` in a plan.
    pub(crate) fn output_extent(&self, plan: &Plan, place: usize, compiled: u64) -> u64 {
        self.dimension.output_extent(place, compiled, (self.bound(plan), self.size()))
    }

    /// The same of an input.
    pub(crate) fn input_extent(&self, plan: &Plan, compiled: u64) -> u64 {
        self.size().saturating_sub(self.bound(plan).saturating_sub(compiled))
    }

    /// Takes over a size that a plan has room for.
    pub(crate) fn set(&mut self, plan: &Plan, size: u64) {
        // Extents of a plan fit 63 bits.
        *self.size = size.saturating_add(self.added(plan)) as i64;
    }

    /// The most that the size may be in a plan, as users see it.
    pub(crate) fn most(&self, plan: &Plan) -> Option<u64> {
        self.dimension.extent_in(&plan.inputs)
    }

    /// How many positions a plan joins to those that users see.
    fn added(&self, plan: &Plan) -> u64 {
        self.bound(plan).saturating_sub(self.most(plan).unwrap_or(0))
    }

    /// The most that the size may be in a plan, where it counts what is joined to it.
    pub(crate) fn bound(&self, plan: &Plan) -> u64 {
        self.dimension.bound_in(&plan.inputs, &plan.outputs).unwrap_or(0)
    }

    /// Whether a plan has room for a size, and takes an extent there in place of a compiled one.
    pub(crate) fn takes(&self, plan: &Plan, size: u64, (compiled, found): (u64, u64)) -> bool {
        let Some(most) = self.most(plan) else { return false };
        size <= most
            && compiled.checked_sub(most).and_then(|more| more.checked_add(size)) == Some(found)
    }

    /// The size that is set, with what is joined to it.
    pub(crate) fn size(&self) -> u64 {
        *self.size as u64
    }

    /// Copies inputs of the size into their room, leads `sources` there, and adds the size to them.
    ///
    /// # Safety
    /// `sources` are the plan's inputs but for the last, each of its tensor's bytes at the size that is set.
    pub(crate) unsafe fn lay_in(&mut self, plan: &Plan, sources: &mut Vec<*const c_void>) {
        let tensors = plan.inputs.iter().zip(&self.dimension.inputs);
        for ((source, (tensor, axis)), room) in sources.iter_mut().zip(tensors).zip(&self.inputs) {
            let (Some(axis), Some(room)) = (axis, room) else { continue };
            let extent = self.input_extent(plan, tensor.shape[*axis as usize]);
            let rows = Rows::of(tensor, *axis, extent);
            if rows.bytes < rows.room {
                // SAFETY: the caller's promise; the room has the bytes of the largest bound.
                unsafe { rows.copy(source.cast(), room.base(), (rows.bytes, rows.room)) };
                *source = room.base().cast_const().cast();
            }
        }
        sources.push((&raw const *self.size).cast());
    }

    /// Where a run writes: `targets`, or the room of outputs that have more than the size.
    pub(crate) fn lead_out(&self, plan: &Plan, targets: &mut [*mut c_void]) {
        let tensors = plan.outputs.iter().zip(&self.dimension.outputs).enumerate();
        for ((target, (place, (tensor, axis))), room) in
            targets.iter_mut().zip(tensors).zip(&self.outputs)
        {
            let (Some(axis), Some(room)) = (axis, room) else { continue };
            let extent = self.output_extent(plan, place, tensor.shape[*axis as usize]);
            let rows = Rows::of(tensor, *axis, extent);
            if rows.bytes < rows.room {
                *target = room.base().cast();
            }
        }
    }

    /// Copies what a run left in the room to `targets`.
    ///
    /// # Safety
    /// As for [`Padding::lay_in`], of outputs; a run of the plan has written where [`Padding::lead_out`] said.
    pub(crate) unsafe fn take_out(&self, plan: &Plan, targets: &[*mut c_void]) {
        let tensors = plan.outputs.iter().zip(&self.dimension.outputs).enumerate();
        for ((target, (place, (tensor, axis))), room) in
            targets.iter().zip(tensors).zip(&self.outputs)
        {
            let (Some(axis), Some(room)) = (axis, room) else { continue };
            let extent = self.output_extent(plan, place, tensor.shape[*axis as usize]);
            let rows = Rows::of(tensor, *axis, extent);
            if rows.bytes < rows.room {
                // SAFETY: the caller's promise; the room has the bytes of the largest bound.
                unsafe { rows.copy(room.base(), target.cast(), (rows.room, rows.bytes)) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use hone_artifact::DataType;

    #[test]
    fn rows_lie_at_the_begin_of_their_room() {
        let tensor = TensorInfo::new("x", DataType::F32, vec![2, 3, 5, 7]).unwrap();
        assert_eq!(Rows::of(&tensor, 2, 4), Rows { count: 6, bytes: 4 * 7 * 4, room: 5 * 7 * 4 });
        let tensor = TensorInfo::new("x", DataType::U8, vec![3]).unwrap();
        let rows = Rows::of(&tensor, 0, 2);
        let mut room = [9; 3];
        // SAFETY: both have as many bytes as the rows.
        unsafe { rows.copy([1, 2].as_ptr(), room.as_mut_ptr(), (rows.bytes, rows.room)) };
        assert_eq!(room, [1, 2, 9]);
    }
}
