//! Pads what pools of plain values read, where their windows move by several elements along the last axis.
//!
//! A vector of their results reads elements at distances. Where all of them are there, those are whole vectors that are shuffled;
//! behind a condition, as at a border, each lane is loaded by itself. So the border is written first, with what changes no result.

use crate::{PassError, Rewriter};
use hone_graph::Node;
use hone_ops::{Graph, Op, Pad, PadMode, Pool, PoolKind, Window};
use hone_types::DataType;

/// Gives pools with distances between their windows padded inputs.
pub fn pad_pools(graph: &Graph) -> Result<Graph, PassError> {
    let mut rewriter = Rewriter::new(graph);
    for (id, node) in graph.nodes().iter() {
        if !rewriter.is_needed(id) {
            continue;
        }
        let Some(((pad, pool), input)) = padded(graph, node).zip(node.inputs[0]) else {
            rewriter.copy(node)?;
            continue;
        };
        let input = rewriter.value(input);
        let input = rewriter.add_simple(&node.name, pad, &[input])?;
        let result = rewriter.add_simple(&node.name, pool, &[input])?;
        rewriter.replace(node.outputs[0], result);
    }
    Ok(rewriter.finish())
}

/// What pads the input of a node, and the pool of what is padded.
fn padded(graph: &Graph, node: &Node<Op>) -> Option<(Pad, Pool)> {
    let pool = node.operation.downcast::<Pool>()?;
    let dtype = graph.tensor_type(node.inputs[0]?).dtype;
    let Window { strides, pads_begin, pads_end, .. } = &pool.window;
    let apart = strides.last().is_some_and(|stride| *stride > 1);
    if !apart || !pool.window.is_padded() || !matches!(dtype, DataType::F32 | DataType::F64) {
        return None;
    }
    let value = match pool.kind {
        PoolKind::Maximum => f64::NEG_INFINITY,
        PoolKind::Average if pool.count_padding => 0.0,
        PoolKind::Average | PoolKind::Lp(_) => return None,
    };
    let around = |pads: &[usize]| {
        [0, 0].into_iter().chain(pads.iter().map(|pad| *pad as i64)).collect::<Vec<i64>>()
    };
    let pad =
        Pad { begin: around(pads_begin), end: around(pads_end), mode: PadMode::Constant, value };
    let none = vec![0; strides.len()];
    let window = Window { pads_begin: none.clone(), pads_end: none, ..pool.window.clone() };
    Some((pad, Pool { window, ..pool.clone() }))
}
