//! Dimensions of any size up to a bound: models that mix what lies along a dimension, such as tokens of a sequence, are
//! compiled at a few bounds of it, with the size as a further input that hides what lies behind it.

use hone_artifact::{Extent, MOST_SIZES, Manifest, PaddedDimension};
use hone_driver::{
    Graph, PaddedGraph, PaddedSizes, SizedGraph, Tensor, bounds_of, pad_dimension, padded_dimension,
};

use crate::error::{DimensionError, PaddingError, Result};
use crate::source::Source;
use crate::witnesses::Witnessed;

/// The largest size of a dimension of which nothing is said, where the model takes as much.
pub(crate) const DEFAULT_BOUND: usize = 512;

/// How many of the smallest size of a dimension there are in its largest bound, of which nothing is said: samples of audio
/// that give some frames.
pub(crate) const MOST_LEAST: usize = 32;

/// Powers of two that are looked for as what sizes are multiples of, where a model cannot be imported at others.
const MOST_POWERS: u32 = 10;

/// Most bounds of a dimension: each is compiled, verified and measured.
const MOST_BOUNDS: usize = 5;

/// A dimension that is padded, and the sizes that are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Padding {
    /// Its name, or `input[axis]`.
    pub(crate) name: String,
    /// The inputs that have it, and along which axis.
    pub(crate) axes: Vec<(String, usize)>,
    /// The least size that is asked for.
    pub(crate) least: usize,
    /// What it is compiled at, the largest first.
    pub(crate) bounds: Vec<usize>,
    /// What sizes are multiples of, where that is known.
    pub(crate) multiple: Option<usize>,
}

/// A graph with the size as an input.
struct Padded {
    found: PaddedGraph,
    /// What sizes are multiples of.
    multiple: usize,
    /// Positions that are joined to those that users see.
    added: usize,
}

/// The least and largest size of an extent that is a range of more sizes than are compiled each.
pub(crate) fn wide_range(extent: &Extent) -> Option<(usize, usize)> {
    let Extent::Range { min, max } = extent else { return None };
    let (least, most) = (usize::try_from(*min).ok()?, usize::try_from(*max).ok()?);
    // No code is made for a size of 0 alone.
    let is_wide = most >= least && (most - least >= MOST_SIZES || (least == 0 && most >= 2));
    is_wide.then_some((least, most))
}

/// Whether an extent is no list of sizes to compile at: any size, or a range of many.
pub fn is_dynamic(extent: &Extent) -> bool {
    extent.is_any().is_ok_and(|is_any| is_any) || wide_range(extent).is_some()
}

/// The bounds that sizes from `least` to `most` are served by.
pub(crate) fn bounds(least: usize, most: usize) -> Vec<usize> {
    bounds_of(least, most, MOST_BOUNDS)
}

/// The largest bound up to [`DEFAULT_BOUND`] at which a model can be imported, and its graph there: tables along the
/// dimension, such as those of positions, end somewhere.
///
/// # Errors
/// Why it cannot be imported at 2 either.
pub(crate) fn largest_bound(import: &dyn Fn(usize) -> Result<Graph>) -> Result<(usize, Graph)> {
    if let Ok(graph) = import(DEFAULT_BOUND) {
        return Ok((DEFAULT_BOUND, graph));
    }
    let (mut found, mut above) = ((2, import(2)?), DEFAULT_BOUND);
    while above - found.0 > 1 {
        let between = found.0.midpoint(above);
        match import(between) {
            Ok(graph) => found = (between, graph),
            Err(_) => above = between,
        }
    }
    Ok(found)
}

impl Padding {
    /// The axis of each input of a graph that is the dimension.
    fn axes_of(&self, graph: &Graph) -> Vec<Option<usize>> {
        let axis = |name: &str| self.axes.iter().find(|entry| entry.0 == name).map(|entry| entry.1);
        graph.inputs().iter().map(|port| axis(&port.name)).collect()
    }

    /// Shows that a graph that was imported at a bound can be padded, and takes over which sizes are: bounds are multiples,
    /// and none is below the smallest size. Gives that.
    pub(crate) fn prove(
        &mut self,
        source: &Source<'_>,
        graph: &Graph,
        bound: usize,
    ) -> Result<usize> {
        let axes = self.axes_of(graph);
        let padded = pad(source, (&self.name, self.least, self.multiple), &axes, graph)?;
        let (least, multiple) = (padded.found.least.saturating_sub(padded.added), padded.multiple);
        let bounds = bounds(self.least.max(least), bound);
        let mut bounds: Vec<usize> = bounds.iter().map(|own| own / multiple * multiple).collect();
        let largest = bounds.first().copied().unwrap_or(0);
        // Near the smallest size what is left of a long signal is one frame everywhere, which says nothing of how many there
        // are.
        bounds.retain(|own| *own == largest || *own >= (2 * least).max(2));
        bounds.dedup();
        (self.bounds, self.multiple) = (bounds, Some(multiple));
        Ok(least)
    }

    /// The same at the largest bound that a model takes: that which is asked for, or the next multiple below it of a power of
    /// two. Where it cannot be shown, nothing changes, and who compiles the model says why.
    pub(crate) fn settle(&mut self, source: &Source<'_>, import: &dyn Fn(usize) -> Result<Graph>) {
        let Some(most) = self.bounds.first().copied() else { return };
        let mut powers: Vec<usize> = (0..MOST_POWERS).map(|power| most >> power << power).collect();
        powers.dedup();
        let powers = powers.into_iter().filter(|bound| *bound > 1);
        let mut imported = powers.filter_map(|bound| Some((bound, import(bound).ok()?)));
        let Some((bound, graph)) = imported.next() else { return };
        let mut settled = self.clone();
        if settled.prove(source, &graph, bound).is_ok() {
            *self = settled;
        }
    }

    /// Gives graphs that were imported at bounds the size as an input, and says what an artifact of them says.
    ///
    /// # Errors
    /// What stands in the way.
    pub(crate) fn apply(
        &self,
        source: &Source<'_>,
        graphs: Vec<SizedGraph>,
    ) -> Result<(Vec<SizedGraph>, PaddedDimension)> {
        let (mut padded, mut dimension) = (Vec::with_capacity(graphs.len()), None);
        for SizedGraph { dimensions, graph } in graphs {
            let axes = self.axes_of(&graph);
            let Padded { found, multiple, added } =
                pad(source, (&self.name, self.least, self.multiple), &axes, &graph)?;
            let mut own = padded_dimension(&self.name, &axes, &found, multiple);
            // From one position on, or from none where something is joined to them, is what is not said.
            let least = found.least.saturating_sub(added);
            own.least = (least > usize::from(added == 0)).then_some(least as u64);
            let known = dimension.get_or_insert_with(|| own.clone());
            if (&known.lengths, known.multiple) != (&own.lengths, own.multiple) {
                let why = "its outputs have other lengths at another bound";
                let source = PaddingError::Other(why);
                return Err(DimensionError::NotPadded { name: self.name.clone(), source });
            }
            known.least = known.least.max(own.least);
            padded.push(SizedGraph { dimensions, graph: found.graph });
        }
        let dimension = dimension.ok_or(DimensionError::Internal("there is no graph to pad"))?;
        Ok((padded, dimension))
    }
}

/// The graphs of an artifact's variants: of plain ones what was imported, of padded ones with the size as an input.
///
/// # Errors
/// What stands in the way of padding.
pub fn as_compiled(
    source: &Source<'_>,
    manifest: &Manifest,
    graphs: Vec<Graph>,
) -> Result<Vec<Graph>> {
    let Some(padded) = &manifest.padded else { return Ok(graphs) };
    let axes: Vec<Option<usize>> =
        padded.inputs.iter().map(|axis| axis.map(|axis| axis as usize)).collect();
    let multiple = usize::try_from(padded.multiple()).ok();
    let pad =
        |graph: Graph| Ok(pad(source, (&padded.name, 1, multiple), &axes, &graph)?.found.graph);
    graphs.into_iter().map(pad).collect()
}

/// A graph at a bound with the size as an input. The same model at smaller sizes shows what depends on the size.
///
/// Where something is joined to the dimension, the size counts what is there after that: then positions have the dimension in
/// most of the graph, and the size is at least one where nothing is there before.
///
/// Where a model takes multiples of a number alone, because it joins what it sampled down and up again or divides the dimension
/// into blocks, the number is looked for among those that the bound is divided by somewhere, unless it is known.
fn pad(
    source: &Source<'_>,
    (name, least, multiple): (&str, usize, Option<usize>),
    axes: &[Option<usize>],
    graph: &Graph,
) -> Result<Padded> {
    let other = |why| {
        let source = PaddingError::Other(why);
        DimensionError::NotPadded { name: name.to_owned(), source }
    };
    if !graph.interface().inputs.is_empty() || !graph.interface().outputs.is_empty() {
        return Err(other("it takes or gives strings, sequences or optional values"));
    }
    let model = Witnessed::new(source, axes, graph);
    if let Some(multiple) = multiple {
        return pad_at((name, least), &model, multiple);
    }
    let error = match pad_at((name, least), &model, 1) {
        Ok(padded) => return Ok(padded),
        Err(error) => error,
    };
    let found =
        model.quotients().into_iter().find_map(|own| pad_at((name, least), &model, own).ok());
    found.ok_or(error)
}

/// The same for sizes that are multiples of a number.
fn pad_at((name, least): (&str, usize), model: &Witnessed<'_>, multiple: usize) -> Result<Padded> {
    let refused = |source| DimensionError::NotPadded { name: name.to_owned(), source };
    let other = |why| refused(PaddingError::Other(why));
    let Witnessed { axes, graph, bound, .. } = model;
    let witnesses = model.witnesses(multiple)?;
    let Some((witness, size)) = witnesses.first() else {
        return Err(other("it has too few sizes"));
    };
    let added = added((graph, axes, *bound), (witness, *size));
    if least == 0 && added == 0 {
        return Err(other("nothing is joined to it, so that none of it may be there"));
    }
    let witnesses: Vec<(&Graph, usize)> =
        witnesses.iter().map(|(graph, size)| (graph, *size + added)).collect();
    let size_input = PaddedDimension::size_input(name);
    let sizes = PaddedSizes { least: added.max(1), bound: bound + added, multiple };
    let found = pad_dimension(graph, axes, sizes, &size_input, &witnesses)
        .map_err(|error| refused(PaddingError::Node(error)))?;
    Ok(Padded { found, multiple, added })
}

/// How many positions the longest axes of inputs and outputs have more than the dimension.
fn added(
    (graph, axes, bound): (&Graph, &[Option<usize>], usize),
    (witness, size): (&Graph, usize),
) -> usize {
    let shape = |port: &hone_driver::Port| &graph.tensor_type(port.value).shape;
    let inputs = graph.inputs().iter().zip(axes);
    let inputs = inputs.filter_map(|(port, axis)| shape(port).get((*axis)?).copied());
    let pairs = graph.outputs().iter().zip(witness.outputs());
    let outputs = pairs.flat_map(|(port, other)| {
        let extents = shape(port).iter().zip(&witness.tensor_type(other.value).shape);
        let follows = extents.filter(|(extent, other)| **extent == **other + (bound - size));
        follows.map(|(extent, _)| *extent)
    });
    inputs.chain(outputs).max().unwrap_or(bound).saturating_sub(bound)
}

/// Lets a graph use the constants of another one where they are equal, so that large ones are in memory once.
pub(crate) fn share_constants(of: &Graph, graph: &mut Graph) {
    let known: Vec<&Tensor> = of.values().ids().filter_map(|value| of.constant(value)).collect();
    for (constant, known) in graph.constants_mut().zip(known) {
        if constant.tensor_type() == known.tensor_type() && constant.bytes() == known.bytes() {
            *constant = known.clone();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_few_sizes_are_compiled_each() {
        let range = |min, max| wide_range(&Extent::Range { min, max });
        assert_eq!(range(1, 32), None);
        assert_eq!(range(1, 33), Some((1, 33)));
        assert_eq!(range(100, 512), Some((100, 512)));
        assert_eq!((range(0, 512), range(0, 2), range(0, 1)), (Some((0, 512)), Some((0, 2)), None));
        assert_eq!(wide_range(&Extent::One(512)), None);
    }
}
