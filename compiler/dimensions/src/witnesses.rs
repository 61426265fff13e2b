//! The same model at smaller sizes of a dimension, which shows what depends on the size.

use std::collections::BTreeSet;

use hone_driver::{Graph, InputBinding, Port};

use crate::error::Result;
use crate::padding::share_constants;
use crate::source::Source;

/// Most numbers of which it is tried whether sizes are multiples.
const MOST_QUOTIENTS: usize = 8;

/// A model's graph at a bound of a dimension.
pub(crate) struct Witnessed<'a> {
    source: &'a Source<'a>,
    /// The axis of each input that is the dimension.
    pub(crate) axes: &'a [Option<usize>],
    pub(crate) graph: &'a Graph,
    /// The bound.
    pub(crate) bound: usize,
}

impl<'a> Witnessed<'a> {
    pub(crate) fn new(source: &'a Source<'a>, axes: &'a [Option<usize>], graph: &'a Graph) -> Self {
        let ports = graph.inputs().iter().zip(axes);
        let extents = ports
            .filter_map(|(port, axis)| graph.tensor_type(port.value).shape.get((*axis)?).copied());
        let bound = extents.min().unwrap_or(0);
        Self { source, axes, graph, bound }
    }

    /// The model at smaller sizes, multiples of a number: at two, and where something is divided at two more, which have
    /// other remainders. Where it cannot be imported, as below the smallest size at which every window has a position, at
    /// larger ones.
    pub(crate) fn witnesses(&self, multiple: usize) -> Result<Vec<(Graph, usize)>> {
        let bound = self.bound;
        let mut found: Vec<(Graph, usize)> = Vec::new();
        for size in [bound - bound / 4, bound / 2 + 1] {
            self.add(size, multiple, &mut found)?;
        }
        if found.iter().any(|(graph, size)| self.divides(graph, *size)) {
            for size in
                [bound.saturating_sub(multiple), bound - bound / 8 - multiple.min(bound / 8)]
            {
                self.add(size, multiple, &mut found)?;
            }
        }
        Ok(found)
    }

    /// Adds the model at a size, or at the next one nearer to the bound at which it can be imported.
    fn add(&self, size: usize, multiple: usize, found: &mut Vec<(Graph, usize)>) -> Result<()> {
        let (mut away, mut refused) = (self.bound.saturating_sub(size), None);
        while away > 0 {
            let size = (self.bound - away) / multiple * multiple;
            if size > 1 && size < self.bound && found.iter().all(|known| known.1 != size) {
                match self.import(size) {
                    Ok(graph) => {
                        found.push((graph, size));
                        return Ok(());
                    }
                    Err(error) => refused = refused.or(Some(error)),
                }
            } else if refused.is_none() {
                return Ok(());
            }
            away /= 2;
        }
        refused.map_or(Ok(()), Err)
    }

    fn import(&self, size: usize) -> Result<Graph> {
        let binding = |(port, axis): (&Port, &Option<usize>)| {
            let mut shape = self.graph.tensor_type(port.value).shape.clone();
            if let Some(extent) = axis.and_then(|axis| shape.get_mut(axis)) {
                *extent = extent.saturating_sub(self.bound - size);
            }
            InputBinding { name: port.name.clone(), shape, dtype: None }
        };
        let ports = self.graph.inputs().iter().zip(self.axes);
        let mut witness = self.source.import_at(ports.map(binding).collect())?;
        share_constants(self.graph, &mut witness);
        Ok(witness)
    }

    /// Whether an extent falls by less than the size, or by no multiple of that.
    fn divides(&self, graph: &Graph, size: usize) -> bool {
        let shape = |graph: &Graph, value| graph.tensor_type(value).shape.clone();
        let pairs = self.graph.values().ids().zip(graph.values().ids());
        let mut extents = pairs.flat_map(|(own, other)| {
            shape(self.graph, own).into_iter().zip(shape(graph, other)).collect::<Vec<_>>()
        });
        extents.any(|(own, other)| !own.abs_diff(other).is_multiple_of(self.bound - size))
    }

    /// By what the bound is divided in extents of the graph, the smallest number first.
    pub(crate) fn quotients(&self) -> Vec<usize> {
        let values = self.graph.values().ids();
        let extents = values.flat_map(|value| self.graph.tensor_type(value).shape.to_vec());
        let divides = |extent: &usize| *extent > 1 && self.bound.is_multiple_of(*extent);
        let found: BTreeSet<usize> =
            extents.filter(divides).map(|extent| self.bound / extent).collect();
        let found = found.into_iter().filter(|own| *own > 1 && own * 4 <= self.bound);
        found.take(MOST_QUOTIENTS).collect()
    }
}
