//! Runs at sizes that were not compiled: of an open dimension those of compiled sizes, one after the other, over slices
//! of the caller's inputs and outputs; of a padded dimension those at a bound, over copies that have room for it.

use std::ffi::c_void;

use hone_artifact::{OpenDimension, PaddedDimension, TensorInfo};

use crate::padding::Padding;
use crate::plan::{Loaded, Plan};
use crate::{LoadError, RunError};

/// What a model that takes any size of a dimension is set to. Setting it to another size allocates nothing.
pub(crate) struct Composed {
    /// The dimension that runs are composed along, where there is one.
    open: Option<OpenDimension>,
    /// The dimension that is padded, where there is one.
    padding: Option<Padding>,
    /// For each input, then each output: the axis that is the open dimension, and the padded one.
    input_axes: Vec<Axes>,
    output_axes: Vec<Axes>,
    /// Inputs and outputs at the size that is set.
    pub(crate) inputs: Vec<TensorInfo>,
    pub(crate) outputs: Vec<TensorInfo>,
    /// Shapes of `outputs`.
    pub(crate) output_shapes: Vec<Vec<u64>>,
    /// Plans for the other dimensions' sizes that are set, each with its size of the open one, the largest first; the last
    /// is of size 1.
    parts: Vec<(usize, u64)>,
    size: u64,
    /// Buffers of the part that runs, and where its outputs go in the end.
    sources: Vec<*const c_void>,
    targets: Vec<*mut c_void>,
    results: Vec<*mut c_void>,
}

/// Which axes of a tensor may have sizes that were not compiled.
#[derive(Clone, Copy, Debug, Default)]
struct Axes {
    open: Option<u32>,
    padded: Option<u32>,
    /// The padded one, where users see its size there: nothing is joined to it yet.
    shown: Option<u32>,
}

/// A part of a run: the plan, and the first slice that it computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) plan: usize,
    pub(crate) begin: u64,
}

impl Composed {
    /// `None` where every size is one that was compiled.
    pub(crate) fn new(loaded: &Loaded) -> Result<Option<Self>, LoadError> {
        let (open, padding) = (loaded.manifest.open.clone(), Padding::new(loaded)?);
        // A device runs the steps of one size.
        let (Some(first), true, None) =
            (loaded.plans.first(), open.is_some() || padding.is_some(), &loaded.device)
        else {
            return Ok(None);
        };
        let padded = padding.as_ref().map(Padding::dimension);
        let list = |count: usize, output: bool| -> Vec<Axes> {
            let open = open.as_ref().map(|open| if output { &open.outputs } else { &open.inputs });
            let padded = padded.map(|own| if output { &own.outputs } else { &own.inputs });
            let at = |axes: Option<&Vec<Option<u32>>>, index: usize| {
                axes.and_then(|axes| axes.get(index).copied()).flatten()
            };
            let axes =
                |index| Axes { open: at(open, index), padded: at(padded, index), shown: None };
            (0..count).map(axes).collect()
        };
        let mut input_axes = list(loaded.manifest.given_inputs(), false);
        let least = padded.and_then(|padded| padded.extent_in(&first.inputs));
        for (axes, tensor) in input_axes.iter_mut().zip(&first.inputs) {
            let is_least = |axis: &u32| tensor.shape.get(*axis as usize).copied() == least;
            axes.shown = axes.padded.filter(is_least);
        }
        let inputs = first.inputs[..loaded.manifest.given_inputs()].to_vec();
        let outputs = first.outputs.clone();
        Ok(Some(Self {
            input_axes,
            output_axes: list(outputs.len(), true),
            output_shapes: outputs.iter().map(|tensor| tensor.shape.clone()).collect(),
            parts: Vec::with_capacity(loaded.plans.len()),
            size: 0,
            sources: Vec::with_capacity(inputs.len() + 1),
            targets: Vec::with_capacity(outputs.len()),
            results: Vec::with_capacity(outputs.len()),
            open,
            padding,
            inputs,
            outputs,
        }))
    }

    /// The dimension that runs are composed along.
    pub(crate) fn open(&self) -> Option<&OpenDimension> {
        self.open.as_ref()
    }

    /// The dimension that is padded.
    pub(crate) fn padded(&self) -> Option<&PaddedDimension> {
        self.padding.as_ref().map(Padding::dimension)
    }

    /// The size of the padded dimension that is set; 0 where there is none.
    pub(crate) fn padded_size(&self) -> u64 {
        self.padding.as_ref().map_or(0, Padding::size)
    }

    /// Takes over shapes of inputs, as many as there are inputs; the plan of the largest part. On an error nothing of it
    /// may be used until the next call.
    pub(crate) fn set(&mut self, plans: &[Plan], shapes: &[&[u64]]) -> Result<usize, RunError> {
        self.size = match &self.open {
            Some(open) => self.size_of(&open.name, shapes, |axes| axes.open)?,
            None => 1,
        };
        let shown = match &self.padding {
            Some(padding) => {
                let name = &padding.dimension().name;
                let size = self.size_of(name, shapes, |axes| axes.shown)?;
                padding.check(plans, size)?;
                size
            }
            None => 0,
        };
        let most = |plan: &Plan| self.padding.as_ref().and_then(|padding| padding.most(plan));
        let fitting = plans.iter().filter(|plan| self.is_fitting(plan, shapes, shown));
        let bound = fitting.filter_map(most).min();
        self.parts.clear();
        for (number, plan) in plans.iter().enumerate() {
            let is_bound = self.padding.as_ref().and_then(|padding| padding.most(plan)) == bound;
            if is_bound && self.is_fitting(plan, shapes, shown) {
                let of = self.open.as_ref().and_then(|open| {
                    open.size_in(plan.inputs.iter().map(|tensor| &tensor.shape[..]))
                });
                self.parts.push((number, of.unwrap_or(1).max(1)));
            }
        }
        self.parts.sort_unstable_by_key(|(_, size)| std::cmp::Reverse(*size));
        let whole = self.parts.iter().find(|part| part.1 <= self.size).or(self.parts.last());
        let Some((first, _)) = whole.copied() else {
            return Err(self.unknown(plans, shapes, shown));
        };
        if let Some(padding) = &mut self.padding {
            padding.set(&plans[first], shown);
        }
        match self.resize(&plans[first]) {
            true => Ok(first),
            false => Err(self.unknown(plans, shapes, shown)),
        }
    }

    /// Gives inputs and outputs the sizes that are set; `false` where one is too large, or would not be computed.
    fn resize(&mut self, plan: &Plan) -> bool {
        let Self { size, input_axes, output_axes, inputs, outputs, output_shapes, .. } = self;
        let padding = self.padding.as_ref();
        let mut fit = true;
        for ((tensor, compiled), axes) in inputs.iter_mut().zip(&plan.inputs).zip(input_axes) {
            let padded = |extent| padding.map_or(extent, |own| own.input_extent(plan, extent));
            fit &= resize(tensor, compiled, *axes, (*size, &padded));
        }
        let output = outputs.iter_mut().zip(&plan.outputs).zip(output_axes).enumerate();
        for (place, ((tensor, compiled), axes)) in output {
            let padded =
                |extent| padding.map_or(extent, |own| own.output_extent(plan, place, extent));
            fit &= resize(tensor, compiled, *axes, (*size, &padded));
            // Without a part nobody writes what does not have the dimension.
            fit &= *size > 0 || axes.open.is_some();
        }
        for (shape, tensor) in output_shapes.iter_mut().zip(outputs) {
            shape.clone_from(&tensor.shape);
        }
        fit
    }

    /// Whether a plan takes inputs of these shapes, but for the size of the open dimension, where the padded one has the size
    /// that is shown.
    fn is_fitting(&self, plan: &Plan, shapes: &[&[u64]], shown: u64) -> bool {
        let inputs = shapes.iter().enumerate();
        let mut fits = inputs.map(|(index, found)| self.fits(plan, index, found, shown));
        fits.all(|fits| fits)
    }

    /// The same of one input.
    fn fits(&self, plan: &Plan, index: usize, found: &[u64], shown: u64) -> bool {
        let (compiled, axes) = (&plan.inputs[index].shape, self.input_axes[index]);
        let same = |(at, (compiled, found)): (usize, (&u64, &u64))| {
            let is = |axis: Option<u32>| axis.is_some_and(|axis| axis as usize == at);
            match &self.padding {
                Some(padding) if is(axes.padded) => padding.takes(plan, shown, (*compiled, *found)),
                _ => compiled == found || is(axes.open),
            }
        };
        compiled.len() == found.len() && compiled.iter().zip(found).enumerate().all(same)
    }

    /// The size of a dimension that all inputs agree on.
    fn size_of(
        &self,
        dimension: &str,
        shapes: &[&[u64]],
        axis: fn(&Axes) -> Option<u32>,
    ) -> Result<u64, RunError> {
        let mut known: Option<(usize, u64)> = None;
        for (number, (shape, axes)) in shapes.iter().zip(&self.input_axes).enumerate() {
            let Some(found) = axis(axes).and_then(|axis| shape.get(axis as usize)) else {
                continue;
            };
            match known {
                None => known = Some((number, *found)),
                Some((_, size)) if size == *found => {}
                Some((first, size)) => {
                    let name = |number: usize| self.inputs[number].name.clone();
                    return Err(RunError::Differs {
                        dimension: dimension.to_owned(),
                        first: name(first),
                        size,
                        second: name(number),
                        found: *found,
                    });
                }
            }
        }
        Ok(known.map_or(0, |known| known.1))
    }

    /// Why shapes fit no plan.
    fn unknown(&self, plans: &[Plan], shapes: &[&[u64]], shown: u64) -> RunError {
        let mut fitting: Vec<&Plan> = plans.iter().collect();
        let names: Vec<&str> =
            [self.open_name(), self.padded_name()].into_iter().flatten().collect();
        let dimension = names.join(" and ");
        for (index, (shape, axes)) in shapes.iter().zip(&self.input_axes).enumerate() {
            let mut taken: Vec<String> = Vec::new();
            for plan in &fitting {
                let text = self.pattern(plan, &plan.inputs[index].shape, *axes);
                if !taken.contains(&text) {
                    taken.push(text);
                }
            }
            fitting.retain(|plan| self.fits(plan, index, shape, shown));
            let is_too_large = fitting.first().is_some_and(|plan| {
                OpenDimension::at_size(&plan.inputs[index], axes.open, self.size).is_none()
            });
            if fitting.is_empty() || is_too_large {
                let name = self.inputs[index].name.clone();
                return RunError::OpenShape { name, found: shape.to_vec(), taken, dimension };
            }
        }
        RunError::NoSlices { dimension, size: self.size }
    }

    fn open_name(&self) -> Option<&str> {
        self.open.as_ref().map(|open| open.name.as_str())
    }

    fn padded_name(&self) -> Option<&str> {
        self.padded().map(|padded| padded.name.as_str())
    }

    /// A shape with a dimension's name for its size, and what is joined to it.
    fn pattern(&self, plan: &Plan, shape: &[u64], axes: Axes) -> String {
        let most = self.padding.as_ref().and_then(|padding| padding.most(plan)).unwrap_or(0);
        let extent = |(at, extent): (usize, &u64)| {
            let is = |axis: Option<u32>| axis == Some(at as u32);
            let open = self.open_name().filter(|_| is(axes.open));
            match (open, self.padded_name().filter(|_| is(axes.padded))) {
                (Some(open), _) => open.to_owned(),
                (None, Some(padded)) if *extent > most => format!("{padded} + {}", extent - most),
                (None, Some(padded)) => padded.to_owned(),
                (None, None) => extent.to_string(),
            }
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
    ///
    /// # Safety
    /// `inputs` are the whole run's, each of its tensor's size.
    pub(crate) unsafe fn buffers(
        &mut self,
        (part, plan): (Part, &Plan),
        inputs: &[*const c_void],
        outputs: &[*mut c_void],
    ) -> (&[*const c_void], &[*mut c_void]) {
        let Self { input_axes, output_axes, sources, targets, results, size, .. } = self;
        // The size is not 0 where there is a part; sizes of tensors fit 63 bits.
        let offset = |tensor: &TensorInfo, axes: &Axes| match axes.open {
            Some(_) => (tensor.bytes / *size * part.begin) as usize,
            None => 0,
        };
        sources.clear();
        let bases = inputs.iter().zip(self.inputs.iter().zip(input_axes));
        sources.extend(bases.map(|(base, (own, axes))| base.wrapping_byte_add(offset(own, axes))));
        targets.clear();
        let bases = outputs.iter().zip(self.outputs.iter().zip(output_axes));
        targets.extend(bases.map(|(base, (own, axes))| base.wrapping_byte_add(offset(own, axes))));
        if let Some(padding) = &mut self.padding {
            results.clone_from(targets);
            // SAFETY: the caller's promise: the part's slices are of the size that is set.
            unsafe { padding.lay_in(plan, sources) };
            padding.lead_out(plan, targets);
        }
        (&self.sources, &self.targets)
    }

    /// Brings what a part has left to the buffers of the whole run.
    ///
    /// # Safety
    /// The part has run on the last buffers that [`Composed::buffers`] gave, and the whole run's are still there.
    pub(crate) unsafe fn finish(&self, plan: &Plan) {
        if let Some(padding) = &self.padding {
            // SAFETY: the caller's promise.
            unsafe { padding.take_out(plan, &self.results) };
        }
    }
}

/// Gives a tensor the shape of another one at a size of the open dimension, and with the extent along the padded one that
/// `padded` makes of the compiled one; `false` where its bytes do not fit 63 bits.
fn resize(
    tensor: &mut TensorInfo,
    compiled: &TensorInfo,
    axes: Axes,
    (open, padded): (u64, &dyn Fn(u64) -> u64),
) -> bool {
    tensor.shape.clone_from(&compiled.shape);
    if let Some(extent) = axes.open.and_then(|axis| tensor.shape.get_mut(axis as usize)) {
        *extent = open;
    }
    if let Some(extent) = axes.padded.and_then(|axis| tensor.shape.get_mut(axis as usize)) {
        *extent = padded(*extent);
    }
    let bytes = tensor.dtype.bytes_of(&tensor.shape);
    tensor.bytes = bytes.unwrap_or(0);
    bytes.is_some()
}
