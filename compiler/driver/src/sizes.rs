//! A model at several sizes of its open dimensions.

use crate::{CompileError, import_shared};
use bytes::Bytes;
use hone_import::{Combination, ImportOptions};
use hone_ops::Graph;
use hone_types::{Tensor, TensorType};
use std::collections::HashMap;

/// A graph for one combination of sizes.
#[derive(Clone, Debug)]
pub struct SizedGraph {
    /// The dimensions that differ between the graphs of a model, each with the size that it has in this one.
    pub dimensions: Vec<(String, usize)>,
    /// The graph, in which all shapes are fixed.
    pub graph: Graph,
}

/// A graph of fixed sizes alone.
impl From<Graph> for SizedGraph {
    fn from(graph: Graph) -> Self {
        Self { dimensions: Vec::new(), graph }
    }
}

/// Imports a model once for each combination of sizes, in place of the bindings of `options`. Equal constants of the
/// graphs are in memory once.
pub fn import_sizes(
    model: &Bytes,
    options: &ImportOptions,
    combinations: &[Combination],
) -> Result<Vec<SizedGraph>, CompileError> {
    let mut constants = Constants::default();
    let mut graphs = Vec::with_capacity(combinations.len());
    for Combination { dimensions, bindings } in combinations {
        let options = ImportOptions { bindings: bindings.clone(), ..options.clone() };
        let mut graph = import_shared(model, &options)?.graph;
        if combinations.len() > 1 {
            constants.share(&mut graph);
        }
        graphs.push(SizedGraph { dimensions: dimensions.clone(), graph });
    }
    Ok(graphs)
}

/// Constants of several graphs, by type, content, and whether that is of the matrix that they are transposed.
#[derive(Default)]
pub(crate) struct Constants(HashMap<(TensorType, [u8; 32], bool), Tensor>);

/// Constants of fewer bytes stay with their graph.
const SMALL: usize = 4096;

impl Constants {
    /// Replaces constants of a graph by equal ones of graphs that came before.
    pub(crate) fn share(&mut self, graph: &mut Graph) {
        let is_large = |tensor: &&mut Tensor| tensor.tensor_type().bytes() >= SMALL;
        for constant in graph.constants_mut().filter(is_large) {
            let transposed = constant.transposed_matrix();
            let content = *blake3::hash(transposed.unwrap_or(constant).bytes()).as_bytes();
            let key = (constant.tensor_type().clone(), content, transposed.is_some());
            *constant = self.0.entry(key).or_insert_with(|| constant.clone()).clone();
        }
    }
}
