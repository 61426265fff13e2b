//! Runs at any size of an open dimension: those of compiled sizes, one after the other, over slices of the caller's
//! inputs and outputs.

use std::ffi::c_void;

use hone_artifact::{OpenDimension, TensorInfo};

use crate::RunError;
use crate::plan::{Loaded, Plan};

/// What a model that takes any size of a dimension is set to. Setting it to another size allocates nothing.
pub(crate) struct Composed {
    open: OpenDimension,
    /// Inputs and outputs at the size that is set.
    pub(crate) inputs: Vec<TensorInfo>,
    pub(crate) outputs: Vec<TensorInfo>,
    /// Shapes of `outputs`.
    pub(crate) output_shapes: Vec<Vec<u64>>,
    /// Plans for the other dimensions' sizes that are set, each with its size of this one, the largest first; the last
    /// is of size 1.
    parts: Vec<(usize, u64)>,
    size: u64,
    /// Buffers of the part that runs.
    sources: Vec<*const c_void>,
    targets: Vec<*mut c_void>,
}

/// A part of a run: the plan, and the first slice that it computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) plan: usize,
    pub(crate) begin: u64,
}

impl Composed {
    /// `None` where every size is one that was compiled.
    pub(crate) fn new(loaded: &Loaded) -> Option<Self> {
        let open = loaded.manifest.open.clone()?;
        let first = loaded.plans.first()?;
        // A device runs the steps of one size.
        if loaded.device.is_some() {
            return None;
        }
        Some(Self {
            open,
            inputs: first.inputs.clone(),
            outputs: first.outputs.clone(),
            output_shapes: first.outputs.iter().map(|own| own.shape.clone()).collect(),
            parts: Vec::with_capacity(loaded.plans.len()),
            size: 0,
            sources: Vec::with_capacity(first.inputs.len()),
            targets: Vec::with_capacity(first.outputs.len()),
        })
    }

    /// The dimension.
    pub(crate) fn dimension(&self) -> &OpenDimension {
        &self.open
    }

    /// Takes over shapes of inputs, as many as there are inputs; the plan of the largest part. On an error nothing of it
    /// may be used until the next call.
    pub(crate) fn set(&mut self, plans: &[Plan], shapes: &[&[u64]]) -> Result<usize, RunError> {
        self.size = self.size_of(plans, shapes)?;
        self.parts.clear();
        for (place, plan) in plans.iter().enumerate() {
            let own = plan.inputs.iter().map(|own| &own.shape[..]);
            let is_fitting = own.zip(shapes).zip(&self.open.inputs);
            let mut is_fitting = is_fitting.map(|((own, found), axis)| fits(own, found, *axis));
            if is_fitting.all(|own| own) {
                let of = self.open.size_in(plan.inputs.iter().map(|own| &own.shape[..]));
                self.parts.push((place, of.unwrap_or(1).max(1)));
            }
        }
        self.parts.sort_unstable_by_key(|(_, size)| std::cmp::Reverse(*size));
        let whole = self.parts.iter().find(|part| part.1 <= self.size).or(self.parts.last());
        let Some((first, _)) = whole.copied() else { return Err(self.unknown(plans, shapes)) };
        let Self { open, inputs, outputs, output_shapes, size, .. } = self;
        let mut fit = true;
        for ((tensor, own), axis) in inputs.iter_mut().zip(&plans[first].inputs).zip(&open.inputs) {
            fit &= resize(tensor, own, *axis, *size);
        }
        for ((tensor, own), axis) in
            outputs.iter_mut().zip(&plans[first].outputs).zip(&open.outputs)
        {
            fit &= resize(tensor, own, *axis, *size);
            // Without a part nobody writes what does not have the dimension.
            fit &= *size > 0 || axis.is_some();
        }
        for (shape, tensor) in output_shapes.iter_mut().zip(&self.outputs) {
            shape.clone_from(&tensor.shape);
        }
        if fit { Ok(first) } else { Err(self.unknown(plans, shapes)) }
    }

    /// The size that all inputs agree on.
    fn size_of(&self, plans: &[Plan], shapes: &[&[u64]]) -> Result<u64, RunError> {
        let mut known: Option<(usize, u64)> = None;
        for (place, (shape, axis)) in shapes.iter().zip(&self.open.inputs).enumerate() {
            let Some(found) = axis.and_then(|axis| shape.get(axis as usize)) else { continue };
            match known {
                None => known = Some((place, *found)),
                Some((_, size)) if size == *found => {}
                Some((first, size)) => {
                    let name = |place: usize| plans[0].inputs[place].name.clone();
                    return Err(RunError::Differs {
                        dimension: self.open.name.clone(),
                        first: name(first),
                        size,
                        second: name(place),
                        found: *found,
                    });
                }
            }
        }
        Ok(known.map_or(0, |own| own.1))
    }

    /// Why shapes fit no plan.
    fn unknown(&self, plans: &[Plan], shapes: &[&[u64]]) -> RunError {
        let mut fitting: Vec<&Plan> = plans.iter().collect();
        for (index, (shape, axis)) in shapes.iter().zip(&self.open.inputs).enumerate() {
            let mut taken: Vec<String> = Vec::new();
            for plan in &fitting {
                let text = self.pattern(&plan.inputs[index].shape, *axis);
                if !taken.contains(&text) {
                    taken.push(text);
                }
            }
            fitting.retain(|plan| fits(&plan.inputs[index].shape, shape, *axis));
            let is_too_large = fitting.first().is_some_and(|plan| {
                OpenDimension::at_size(&plan.inputs[index], *axis, self.size).is_none()
            });
            if fitting.is_empty() || is_too_large {
                let name = plans[0].inputs[index].name.clone();
                let dimension = self.open.name.clone();
                return RunError::OpenShape { name, found: shape.to_vec(), taken, dimension };
            }
        }
        RunError::NoSlices { dimension: self.open.name.clone(), size: self.size }
    }

    /// A shape with the dimension's name for its size.
    fn pattern(&self, shape: &[u64], axis: Option<u32>) -> String {
        let extent = |(at, extent): (usize, &u64)| match axis {
            Some(axis) if axis as usize == at => self.open.name.clone(),
            _ => extent.to_string(),
        };
        let extents: Vec<String> = shape.iter().enumerate().map(extent).collect();
        format!("[{}]", extents.join(", "))
    }

    /// The parts of a run in order, one after another from the part at `index` on; `None` behind the last. `begin` is the
    /// first slice that is left.
    pub(crate) fn part(&self, begin: u64) -> Option<(Part, u64)> {
        let left = self.size - begin;
        let (plan, size) = self.parts.iter().find(|part| part.1 <= left && left > 0)?;
        Some((Part { plan: *plan, begin }, begin + size))
    }

    /// The buffers of a part, of those of the whole run.
    pub(crate) fn buffers(
        &mut self,
        part: Part,
        inputs: &[*const c_void],
        outputs: &[*mut c_void],
    ) -> (&[*const c_void], &[*mut c_void]) {
        let Self { open, sources, targets, size, .. } = self;
        // The size is not 0 where there is a part; sizes of tensors fit 63 bits.
        let offset = |tensor: &TensorInfo, axis: &Option<u32>| match axis {
            Some(_) => (tensor.bytes / *size * part.begin) as usize,
            None => 0,
        };
        sources.clear();
        let bases = inputs.iter().zip(self.inputs.iter().zip(&open.inputs));
        sources.extend(bases.map(|(base, (own, axis))| base.wrapping_byte_add(offset(own, axis))));
        targets.clear();
        let bases = outputs.iter().zip(self.outputs.iter().zip(&open.outputs));
        targets.extend(bases.map(|(base, (own, axis))| base.wrapping_byte_add(offset(own, axis))));
        (sources, targets)
    }
}

/// Whether a shape is another one, but for the open dimension.
fn fits(own: &[u64], found: &[u64], axis: Option<u32>) -> bool {
    let same = |(at, (own, found)): (usize, (&u64, &u64))| {
        own == found || axis.is_some_and(|axis| axis as usize == at)
    };
    own.len() == found.len() && own.iter().zip(found).enumerate().all(same)
}

/// Gives a tensor the shape of another one at a size; `false` where its bytes do not fit 63 bits.
fn resize(tensor: &mut TensorInfo, own: &TensorInfo, axis: Option<u32>, size: u64) -> bool {
    tensor.shape.clone_from(&own.shape);
    if let Some(extent) = axis.and_then(|axis| tensor.shape.get_mut(axis as usize)) {
        *extent = size;
    }
    let bytes = tensor.dtype.bytes_of(&tensor.shape);
    tensor.bytes = bytes.unwrap_or(0);
    bytes.is_some()
}
