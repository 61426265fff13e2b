//! Attentions for tensor cores: joined where the emitter writes the kernel of the node with all that becomes one kernel with
//! it. It is asked about the program that it would get; what it refuses stays two products and a softmax, which are faster
//! than a lane for each element of everything.

use crate::device;
use crate::error::CompileError;
use crate::kernels::{Lowering, Pending};
use crate::options::Options;
use hone_ops::{Attention, Graph};
use hone_passes::fuse;
use std::collections::BTreeSet;

/// Names of nodes.
pub(crate) type Names = BTreeSet<String>;

/// The attentions of a prepared graph, and of graphs inside of its nodes, that the emitter writes no kernel for. None where a
/// target joins none for tensor cores.
///
/// # Errors
/// Groups of nodes that have no program; what a schedule finds.
pub(crate) fn refused(graph: &Graph, options: &Options) -> Result<Names, CompileError> {
    let mut names = Names::new();
    if device::on_tensor_cores(options) {
        add_refused(graph, options, &mut Lowering::default(), &mut names)?;
    }
    Ok(names)
}

fn add_refused(
    graph: &Graph,
    options: &Options,
    lowering: &mut Lowering,
    names: &mut Names,
) -> Result<(), CompileError> {
    for (_, node) in graph.nodes().iter() {
        for region in node.operation.regions() {
            add_refused(region, options, lowering, names)?;
        }
    }
    for (number, group) in fuse(graph).iter().enumerate() {
        let nodes = group.nodes.iter().map(|id| &graph.nodes()[*id]);
        let attentions = nodes.filter(|node| node.operation.downcast::<Attention>().is_some());
        let attentions: Vec<String> = attentions.map(|node| node.name.clone()).collect();
        if attentions.is_empty() {
            continue;
        }
        let Pending::Call { program, .. } = lowering.group(graph, number, group)? else { continue };
        let is_written = device::is_attention(options, &program).map_err(|source| {
            CompileError::Schedule { nodes: attentions.join(", "), source: Box::new(source) }
        })?;
        if !is_written {
            names.extend(attentions);
        }
    }
    Ok(())
}
