//! The kinds of reduction. Each tries smaller models, from the smallest so far on; what it finds is that from then on.

use std::collections::{HashMap, HashSet};

use hone_driver::onnx::edit::names_read;
use hone_driver::onnx::proto::{GraphProto, NodeProto};

use super::minimize::{least, minimize};
use super::subgraph::{ValueTypes, subgraph};
use super::trials::Trials;
use crate::failure::Result;

/// Leaves out outputs of the graph.
///
/// # Errors
/// As for [`Trials::is_alike`], here and below.
pub fn outputs(trials: &mut Trials<'_>) -> Result<()> {
    let base = trials.graph();
    let all = base.output.clone();
    minimize(all, &mut |kept| match kept.is_empty() {
        true => Ok(false),
        false => trials.is_graph_alike(Some(GraphProto { output: kept.to_vec(), ..base.clone() })),
    })?;
    Ok(())
}

/// Cuts the graph behind some node: inner values become its outputs.
pub fn cut_behind(trials: &mut Trials<'_>, types: &ValueTypes) -> Result<()> {
    cut(trials, types, |index, length, _| index < length)
}

/// Cuts the graph before some node: inner values become its inputs.
pub fn cut_before(trials: &mut Trials<'_>, types: &ValueTypes) -> Result<()> {
    cut(trials, types, |index, length, all| index >= all - length)
}

/// Keeps as few nodes at one end of the list as possible; `keeps` says which, of their place, how many, and the number of
/// all.
fn cut(
    trials: &mut Trials<'_>,
    types: &ValueTypes,
    keeps: impl Fn(usize, usize, usize) -> bool,
) -> Result<()> {
    let base = trials.graph();
    let all = base.node.len();
    least(all, &mut |length| {
        let kept: Vec<bool> = (0..all).map(|index| keeps(index, length, all)).collect();
        trials.is_graph_alike(subgraph(&base, &kept, types))
    })?;
    Ok(())
}

/// Leaves out nodes, in halves, quarters and so on to single ones; what others read of them becomes inputs.
pub fn nodes(trials: &mut Trials<'_>, types: &ValueTypes) -> Result<()> {
    let base = trials.graph();
    let all: Vec<usize> = (0..base.node.len()).collect();
    minimize(all, &mut |indices| {
        let mut kept = vec![false; base.node.len()];
        indices.iter().for_each(|index| kept[*index] = true);
        trials.is_graph_alike(subgraph(&base, &kept, types))
    })?;
    Ok(())
}

/// Leaves out nodes whose result has the type of an operand, which takes its place.
pub fn pass_through(trials: &mut Trials<'_>, types: &ValueTypes) -> Result<()> {
    let base = trials.graph();
    let passed = replaceable(&base, types);
    let all: Vec<usize> = (0..passed.len()).collect();
    minimize(all, &mut |kept| {
        let kept: HashSet<usize> = kept.iter().copied().collect();
        let left_out = passed.iter().enumerate().filter(|(index, _)| !kept.contains(index));
        trials.is_graph_alike(Some(without(&base, left_out.map(|(_, entry)| *entry).collect())))
    })?;
    Ok(())
}

/// A node that can be left out: its place, its result, and the operand that takes the result's place.
type Passed<'a> = (usize, &'a str, &'a str);

/// The nodes with one result that is read, of the type of an operand, by nodes of the graph itself.
fn replaceable<'a>(graph: &'a GraphProto, types: &ValueTypes) -> Vec<Passed<'a>> {
    let mut fixed: HashSet<&str> =
        graph.output.iter().filter_map(|output| output.name.as_deref()).collect();
    for node in &graph.node {
        let inputs: HashSet<&str> = node.input.iter().map(String::as_str).collect();
        fixed.extend(names_read(node).into_iter().filter(|name| !inputs.contains(name)));
    }
    let read: HashSet<&str> = graph.node.iter().flat_map(names_read).collect();
    let type_of = |name: &str| types.get(name).and_then(|entry| entry.r#type.as_ref());
    let passed = |(index, node): (usize, &'a NodeProto)| {
        let (result, others) = node.output.split_first()?;
        let is_free = !fixed.contains(result.as_str());
        let is_only = others
            .iter()
            .all(|entry| !read.contains(entry.as_str()) && !fixed.contains(entry.as_str()));
        let wanted = type_of(result).filter(|_| is_free && is_only)?;
        let operand = node.input.iter().find(|input| type_of(input) == Some(wanted))?;
        Some((index, result.as_str(), operand.as_str()))
    };
    graph.node.iter().enumerate().filter_map(passed).collect()
}

/// The graph without some nodes, whose readers read an operand of theirs.
fn without(base: &GraphProto, passed: Vec<Passed<'_>>) -> GraphProto {
    let indices: HashSet<usize> = passed.iter().map(|(index, ..)| *index).collect();
    let operands: HashMap<&str, &str> = passed.iter().map(|(_, from, to)| (*from, *to)).collect();
    let resolved = |name: &str| {
        let mut name = name;
        // Nodes are in order, so that a chain of them ends.
        for _ in 0..=operands.len() {
            match operands.get(name) {
                Some(operand) => name = operand,
                None => break,
            }
        }
        name.to_owned()
    };
    let kept = base.node.iter().enumerate().filter(|(index, _)| !indices.contains(index));
    let node = kept.map(|(_, node)| {
        let input = node.input.iter().map(|name| resolved(name)).collect();
        NodeProto { input, ..node.clone() }
    });
    GraphProto { node: node.collect(), ..base.clone() }
}

/// Leaves out declarations of inner values.
pub fn declarations(trials: &mut Trials<'_>) -> Result<()> {
    let base = trials.graph();
    minimize(base.value_info.clone(), &mut |kept| {
        let value_info = kept.to_vec();
        trials.is_graph_alike(Some(GraphProto { value_info, ..base.clone() }))
    })?;
    Ok(())
}
