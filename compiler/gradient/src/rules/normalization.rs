//! Normalizations.

use super::{Pulled, Rule, Site};
use crate::RuleError;
use crate::nodes::{Nodes, Step};
use hone_graph::ValueId;
use hone_ops::{
    BatchNormalization, BinaryFunction as B, GroupNormalization, InstanceNormalization,
    LayerNormalization, ReduceFunction as R, UnaryFunction as U,
};

impl Rule for BatchNormalization {
    /// Mean and variance are operands like the others.
    fn pull_back(&self, nodes: &mut Nodes<'_>, site: &Site<'_>) -> Pulled {
        let Some((_, dy)) = site.output() else { return Ok(vec![None; 5]) };
        let x = site.input(0)?;
        let shape = nodes.shape(x);
        let channels = of_channels(shape.len(), shape[1]);
        let [scale, mean, variance] = [1, 3, 4].map(|place| site.input(place));
        let scale = nodes.reshape(scale?, &channels)?;
        let mean = nodes.reshape(mean?, &channels)?;
        let variance = nodes.reshape(variance?, &channels)?;
        let factor = deviation(nodes, variance, self.epsilon)?;
        let slope = nodes.multiply(scale, factor)?;
        let dx = nodes.multiply(dy, slope)?;
        let parameters = [1, 2, 3, 4].map(|place| site.wants(place));
        if parameters == [false; 4] {
            return Ok(vec![Some(dx)]);
        }
        let distance = nodes.subtract(x, mean)?;
        let product = nodes.multiply(dy, distance)?;
        let of_distance = nodes.sum_to(product, &channels)?;
        let dscale = nodes.multiply(of_distance, factor)?;
        let dbias = nodes.sum_to(dy, &channels)?;
        let dmean = nodes.multiply(dbias, slope)?;
        let dmean = nodes.negate(dmean)?;
        let square = nodes.multiply(factor, factor)?;
        let dvariance = nodes.multiply(of_distance, slope)?;
        let dvariance = nodes.multiply(dvariance, square)?;
        let dvariance = nodes.scale(dvariance, -0.5)?;
        let mut contributions = vec![Some(dx)];
        for (wanted, whole) in parameters.into_iter().zip([dscale, dbias, dmean, dvariance]) {
            contributions.push(match wanted {
                true => Some(nodes.reshape(whole, &[shape[1]])?),
                false => None,
            });
        }
        Ok(contributions)
    }
}

/// The shape of one number for each channel, that broadcasts to `[batch, channels, spatial...]`.
fn of_channels(rank: usize, channels: usize) -> Vec<usize> {
    let mut shape = vec![1; rank];
    shape[1] = channels;
    shape
}

/// `1 / sqrt(variance + epsilon)`
fn deviation(n: &mut Nodes<'_>, variance: ValueId, epsilon: f64) -> Step {
    let sum = n.with(B::Add, variance, epsilon)?;
    let root = n.unary(U::Sqrt, sum)?;
    n.unary(U::Reciprocal, root)
}

/// Values moved and scaled to mean 0 and variance 1 over axes.
struct Standardized {
    values: ValueId,
    factor: ValueId,
    axes: Vec<usize>,
}

impl Standardized {
    fn of(
        n: &mut Nodes<'_>,
        x: ValueId,
        axes: Vec<usize>,
        epsilon: f64,
    ) -> Result<Self, RuleError> {
        let mean = n.reduce(R::Mean, x, &axes, true)?;
        let distance = n.subtract(x, mean)?;
        let square = n.multiply(distance, distance)?;
        let variance = n.reduce(R::Mean, square, &axes, true)?;
        let factor = deviation(n, variance, epsilon)?;
        Ok(Self { values: n.multiply(distance, factor)?, factor, axes })
    }

    /// `factor * (d - mean(d) - values * mean(d * values))`, of the adjoint `d` of the values.
    fn pulled(&self, n: &mut Nodes<'_>, adjoint: ValueId) -> Step {
        let mean = n.reduce(R::Mean, adjoint, &self.axes, true)?;
        let product = n.multiply(adjoint, self.values)?;
        let along = n.reduce(R::Mean, product, &self.axes, true)?;
        let rest = n.subtract(adjoint, mean)?;
        let drawn = n.multiply(self.values, along)?;
        let rest = n.subtract(rest, drawn)?;
        n.multiply(rest, self.factor)
    }
}

impl Rule for LayerNormalization {
    fn pull_back(&self, nodes: &mut Nodes<'_>, site: &Site<'_>) -> Pulled {
        let Some((_, dy)) = site.output() else { return Ok(vec![None; 3]) };
        let (x, scale) = (site.input(0)?, site.input(1)?);
        let rank = nodes.tensor_type(x).rank();
        let own = Standardized::of(nodes, x, (self.axis..rank).collect(), self.epsilon)?;
        let adjoint = nodes.multiply(dy, scale)?;
        let dx = own.pulled(nodes, adjoint)?;
        let shape = nodes.shape(scale);
        let product = nodes.multiply(dy, own.values)?;
        let dscale = nodes.sum_to(product, &shape)?;
        let mut contributions = vec![Some(dx), Some(dscale)];
        if site.wants(2) {
            let shape = nodes.shape(site.input(2)?);
            contributions.push(Some(nodes.sum_to(dy, &shape)?));
        }
        Ok(contributions)
    }
}

impl Rule for GroupNormalization {
    fn pull_back(&self, nodes: &mut Nodes<'_>, site: &Site<'_>) -> Pulled {
        grouped(nodes, site, self.groups, self.epsilon)
    }
}

impl Rule for InstanceNormalization {
    fn pull_back(&self, nodes: &mut Nodes<'_>, site: &Site<'_>) -> Pulled {
        let channels = nodes.shape(site.input(0)?)[1];
        grouped(nodes, site, channels, self.epsilon)
    }
}

/// Normalization over `groups` groups of channels of each sample.
fn grouped(n: &mut Nodes<'_>, site: &Site<'_>, groups: usize, epsilon: f64) -> Pulled {
    let Some((_, dy)) = site.output() else { return Ok(vec![None; 3]) };
    let (x, scale) = (site.input(0)?, site.input(1)?);
    let shape = n.shape(x);
    if shape.contains(&0) {
        return Ok(vec![None; 3]);
    }
    let length = shape[1..].iter().product::<usize>() / groups;
    let lines = [shape[0], groups, length];
    let channels = of_channels(shape.len(), shape[1]);
    let grouped = n.reshape(x, &lines)?;
    let own = Standardized::of(n, grouped, vec![2], epsilon)?;
    let scale = n.reshape(scale, &channels)?;
    let adjoint = n.multiply(dy, scale)?;
    let adjoint = n.reshape(adjoint, &lines)?;
    let dx = own.pulled(n, adjoint)?;
    let dx = n.reshape(dx, &shape)?;
    let values = n.reshape(own.values, &shape)?;
    let product = n.multiply(dy, values)?;
    let mut contributions = vec![Some(dx)];
    for whole in [product, dy] {
        let sum = n.sum_to(whole, &channels)?;
        contributions.push(Some(n.reshape(sum, &[shape[1]])?));
    }
    Ok(contributions)
}
