//! Whether a model maps over a dimension, so that any size of it is composed of others: shown by an analysis of its graph.

use std::collections::HashMap;

use hone_artifact::OpenDimension;
use hone_driver::{
    ANALYSED_SIZE, Combination, Dependence, Dimension, Graph, Independence, InputBinding,
    PortSignature, Signature, SizedBinding, SizedGraph, SummedDimension, open_dimension,
    propose_shape,
};

use crate::axes::Open;
use crate::error::{DimensionError, Result};
use crate::padding::Padding;
use crate::source::{Source, combined};

/// A dimension of any size, and why that is right.
#[derive(Debug)]
pub(crate) struct Opened {
    /// What the artifact says of it.
    pub(crate) dimension: OpenDimension,
    /// The analysis at each combination of the other dimensions' sizes; there is one.
    pub(crate) proofs: Vec<Proof>,
}

/// The analysis at one combination of the other dimensions' sizes.
#[derive(Debug)]
pub(crate) struct Proof {
    others: Vec<(String, usize)>,
    pub(crate) graph: Graph,
    independence: Independence,
}

impl Proof {
    /// Shows that the model maps over a dimension with its inputs in these shapes.
    fn of(
        source: &Source<'_>,
        open: &Open,
        bindings: Vec<InputBinding>,
        others: Vec<(String, usize)>,
    ) -> Result<Self> {
        let graph = source.import_at(bindings)?;
        let independence = analyse(&graph, open).map_err(|error| depends(&open.name, error))?;
        Ok(Self { others, graph, independence })
    }
}

impl Opened {
    fn new(open: &Open, proofs: Vec<Proof>) -> Result<Self> {
        let none = DimensionError::Internal("there is no combination of sizes");
        let Proof { graph, independence, .. } = proofs.first().ok_or(none)?;
        Ok(Self { dimension: open_dimension(graph, &open.name, independence), proofs })
    }

    /// Checks that graphs at other sizes compute the same of each slice.
    ///
    /// # Errors
    /// The first difference.
    pub(crate) fn check(&self, graphs: &[SizedGraph], padding: Option<&Padding>) -> Result<()> {
        let name = &self.dimension.name;
        let is_shown = |sized: &&SizedGraph| {
            padding.is_none_or(|padding| {
                let bound = sized.dimensions.iter().find(|entry| entry.0 == padding.name);
                bound.is_none_or(|bound| padding.bounds.first() == Some(&bound.1))
            })
        };
        for SizedGraph { dimensions, graph } in graphs.iter().filter(is_shown) {
            let size = dimensions.iter().find(|own| own.0 == *name).map_or(1, |own| own.1);
            let padded = padding.map(|padding| padding.name.as_str());
            let is_other = |entry: &&(String, usize)| entry.0 != *name && Some(&*entry.0) != padded;
            let others = || dimensions.iter().filter(is_other);
            let proof = self.proofs.iter().find(|own| own.others.iter().eq(others()));
            let proof = proof.ok_or(DimensionError::Internal("sizes were not analysed"))?;
            let holds = proof.independence.proves_at(&proof.graph, graph, size);
            holds.map_err(|error| depends(name, error))?;
        }
        Ok(())
    }
}

/// Shows that the model maps over a dimension, with what is given of all others.
pub(crate) fn prove(
    source: &Source<'_>,
    signature: &Signature,
    open: &Open,
    given: &[SizedBinding],
) -> Result<Opened> {
    let proof = |combination: Combination| {
        let others = combination.dimensions.into_iter().filter(|own| own.0 != open.name).collect();
        Proof::of(source, open, combination.bindings, others)
    };
    let proofs = combined(signature, given)?.into_iter().map(proof).collect::<Result<_>>()?;
    Opened::new(open, proofs)
}

/// The same, with proposed sizes of other dimensions, of which nothing is said.
pub(crate) fn prove_beside_others(
    source: &Source<'_>,
    signature: &Signature,
    open: &Open,
    given: &[SizedBinding],
) -> Result<Opened> {
    let combinations = combined(signature, given)?;
    let mut bindings = combinations.into_iter().next().unwrap_or_default().bindings;
    let mut known = HashMap::from([(open.name.clone(), ANALYSED_SIZE)]);
    for port in &signature.inputs {
        let own = bindings.iter().find(|own| own.name == port.name);
        let sizes = own.iter().flat_map(|own| &own.shape);
        for (dimension, size) in port.shape.iter().flatten().zip(sizes) {
            if let Dimension::Symbol(name) = dimension {
                known.insert(name.clone(), *size);
            }
        }
    }
    // What sums are made of comes before them.
    let is_sum = |dimension: &Dimension| match dimension {
        Dimension::Symbol(name) => signature.sum_of(name).is_some(),
        _ => false,
    };
    let has_sum = |port: &PortSignature| port.shape.iter().flatten().any(is_sum);
    let is_open = |port: &&PortSignature| bindings.iter().all(|own| own.name != port.name);
    let (sums, plain): (Vec<&PortSignature>, Vec<&PortSignature>) =
        signature.inputs.iter().filter(is_open).partition(|port| has_sum(port));
    for port in plain.into_iter().chain(sums) {
        for SummedDimension { name, sum } in &signature.sums {
            if let Some(value) = sum.value(&|part| known.get(part).copied()) {
                known.insert(name.clone(), value);
            }
        }
        let shape = propose_shape(port, &mut known);
        bindings.push(InputBinding { name: port.name.clone(), shape, dtype: None });
    }
    Opened::new(open, vec![Proof::of(source, open, bindings, Vec::new())?])
}

fn analyse(graph: &Graph, open: &Open) -> std::result::Result<Independence, Dependence> {
    for (place, (name, _)) in open.axes.iter().enumerate() {
        if open.axes[..place].iter().any(|other| other.0 == *name) {
            let why = format!("has '{}' along several axes", open.name);
            return Err(Dependence::Port { role: "input", name: name.clone(), why });
        }
    }
    let axis = |name: &str| open.axes.iter().find(|own| own.0 == *name).map(|own| own.1);
    let axes: Vec<Option<usize>> = graph.inputs().iter().map(|port| axis(&port.name)).collect();
    Independence::prove(graph, &axes, ANALYSED_SIZE)
}

fn depends(name: &str, error: Dependence) -> DimensionError {
    DimensionError::Dependence { name: name.to_owned(), source: Box::new(error) }
}
