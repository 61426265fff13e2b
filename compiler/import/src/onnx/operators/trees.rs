//! Ensembles of decision trees: every sample walks all trees at once, a level at a time, by tables of nodes.
//!
//! The two children of a node lie side by side, and all that a step needs but the node's value is one word ([`word`]):
//! a step reads a word, a feature and a value, and adds 0 or 1 to where the children begin.

mod word;

use self::word::{FEATURE, MISSING, MODE, NEXT, STEP};
use super::ml::{labels, largest, samples, transformed};
use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::node::{Node, Outputs};
use crate::onnx::shorthands::Step;
use hone_ops::{
    BinaryFunction as B, Gather, GatherElements, ReduceFunction as R, UnaryFunction as U,
};
use hone_types::{DataType, Tensor};
use std::collections::{HashMap, HashSet};

/// Most levels of a tree.
const DEEPEST: usize = 256;
/// Most nodes that are added to a model's because several parents have them in common: each gets its copy.
const MOST_COPIES: usize = 1 << 20;

/// How a node decides.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Test(B),
    /// Whether the feature is another number than the node's.
    Differs,
    /// Whether the feature is among its members.
    Member,
}

/// The modes by the numbers of `TreeEnsemble`.
const MODES: [(&str, Mode); 7] = [
    ("BRANCH_LEQ", Mode::Test(B::LessEqual)),
    ("BRANCH_LT", Mode::Test(B::Less)),
    ("BRANCH_GTE", Mode::Test(B::GreaterEqual)),
    ("BRANCH_GT", Mode::Test(B::Greater)),
    ("BRANCH_EQ", Mode::Test(B::Equal)),
    ("BRANCH_NEQ", Mode::Differs),
    ("BRANCH_MEMBER", Mode::Member),
];

/// A node of any tree. A leaf has no children.
#[derive(Clone, Debug)]
struct Split {
    feature: i64,
    value: f32,
    mode: Mode,
    children: Option<[usize; 2]>,
    missing_is_true: bool,
    members: Vec<f32>,
}

impl Mode {
    /// Its place in [`MODES`].
    fn number(self) -> usize {
        MODES.iter().position(|(_, mode)| *mode == self).unwrap_or(0)
    }
}

impl Split {
    /// The word of the node at `place` whose first child lies at `first`.
    fn word(&self, place: usize, first: Option<usize>) -> u64 {
        NEXT.put(first.unwrap_or(place))
            | STEP.put(usize::from(first.is_some()))
            | MISSING.put(usize::from(self.missing_is_true))
            | MODE.put(self.mode.number())
            | FEATURE.put(self.feature as usize)
    }
}

/// A node where it lies in the tables.
struct Placed {
    /// Its place among the splits of the model.
    split: usize,
    /// Where the first of its children lies.
    first: Option<usize>,
}

/// All trees.
struct Forest {
    splits: Vec<Split>,
    roots: Vec<usize>,
    /// What each node adds to each target: `[nodes, targets]`.
    weights: Vec<f32>,
    targets: usize,
}

/// A leaf.
fn leaf() -> Split {
    let mode = Mode::Test(B::LessEqual);
    Split {
        feature: 0,
        value: 0.0,
        mode,
        children: None,
        missing_is_true: false,
        members: Vec::new(),
    }
}

impl Forest {
    /// The trees of `TreeEnsembleClassifier` and `TreeEnsembleRegressor`; `kind` is `class` or `target`.
    fn read(node: &mut Node, kind: &str, targets: usize) -> Result<Self, NodeError> {
        let mut ints = |name: &str| -> Result<Vec<i64>, NodeError> {
            Ok(node.ints(name)?.unwrap_or_default())
        };
        let (trees, nodes) = (ints("nodes_treeids")?, ints("nodes_nodeids")?);
        let (yes, no) = (ints("nodes_truenodeids")?, ints("nodes_falsenodeids")?);
        let (features, missing) =
            (ints("nodes_featureids")?, ints("nodes_missing_value_tracks_true")?);
        let owners = (ints(&format!("{kind}_treeids"))?, ints(&format!("{kind}_nodeids"))?);
        let ids = ints(&format!("{kind}_ids"))?;
        let values = node.floats("nodes_values")?.unwrap_or_default();
        let weights = node.floats(&format!("{kind}_weights"))?.unwrap_or_default();
        let modes = node.strings("nodes_modes")?.unwrap_or_default();
        node.ignore(&["nodes_hitrates"]);
        let count = nodes.len();
        let fits = [trees.len(), yes.len(), no.len(), features.len(), values.len(), modes.len()];
        if fits.iter().any(|other| *other != count)
            || owners.0.len() != ids.len()
            || weights.len() != ids.len()
        {
            return Err(NodeError::invalid("lists of nodes or weights differ in length"));
        }
        let mut places = HashMap::new();
        let mut roots = Vec::new();
        for place in 0..count {
            if place == 0 || trees[place] != trees[place - 1] {
                roots.push(place);
            }
            places.insert((trees[place], nodes[place]), place);
        }
        let find = |tree: i64, node: i64| {
            let found = places.get(&(tree, node)).copied();
            found.ok_or_else(|| NodeError::invalid(format!("tree {tree} has no node {node}")))
        };
        let mut splits = Vec::with_capacity(count);
        for place in 0..count {
            if modes[place] == "LEAF" {
                splits.push(leaf());
                continue;
            }
            let mode = MODES.iter().find(|(name, _)| *name == modes[place]);
            let (_, mode) =
                mode.ok_or_else(|| NodeError::unsupported(format!("mode {}", modes[place])))?;
            let children = Some([find(trees[place], yes[place])?, find(trees[place], no[place])?]);
            let missing_is_true = missing.get(place).is_some_and(|own| *own != 0);
            let (feature, value) = (features[place], values[place]);
            splits.push(Split {
                feature,
                value,
                mode: *mode,
                children,
                missing_is_true,
                members: Vec::new(),
            });
        }
        let mut table = vec![0.0; size(count, targets)?];
        let mut known = HashSet::new();
        for (place, id) in ids.iter().enumerate() {
            let owner = find(owners.0[place], *owners.1.get(place).unwrap_or(&-1))?;
            let id = usize::try_from(*id).ok().filter(|id| *id < targets);
            let id = id.ok_or_else(|| {
                NodeError::invalid("a weight is for a target that does not exist")
            })?;
            // Exporters of trees write the weights of each class at a leaf of one target, all of them equal: onnxruntime, which
            // such models are made for, takes the first where there is one target, and the sum where there are several.
            if targets > 1 || known.insert(owner) {
                table[owner * targets + id] += weights[place];
            }
        }
        Ok(Self { splits, roots, weights: table, targets })
    }

    /// The nodes level by level from the roots on, the children of a node side by side: of each its place in `splits`
    /// and that of its first child in the result; and the levels below the roots. An error where the nodes form a cycle.
    fn levels(&self) -> Result<(Vec<Placed>, usize), NodeError> {
        let placed = |split: usize| Placed { split, first: None };
        let mut nodes: Vec<Placed> = self.roots.iter().map(|root| placed(*root)).collect();
        let mut level = 0..nodes.len();
        for depth in 0..=DEEPEST {
            for place in level.clone() {
                if let Some(children) = self.splits[nodes[place].split].children {
                    nodes[place].first = Some(nodes.len());
                    nodes.extend(children.map(placed));
                }
                if nodes.len() > self.splits.len() + MOST_COPIES {
                    return Err(NodeError::unsupported(
                        "trees with nodes that many others lead to, or with a cycle,",
                    ));
                }
            }
            level = level.end..nodes.len();
            if level.is_empty() {
                return Ok((nodes, depth));
            }
        }
        Err(NodeError::unsupported(format!(
            "a tree of more than {DEEPEST} levels, or one with a cycle,"
        )))
    }

    /// What the leaves that samples `x` reach hold: `[samples, trees, targets]`.
    fn leaves(&self, b: &mut Builder, x: Operand) -> Step {
        let (rows, features) = (b.shape(x)[0], b.shape(x)[1]);
        let known = features.min(1 << FEATURE.bits);
        if self.splits.iter().any(|own| !usize::try_from(own.feature).is_ok_and(|f| f < known)) {
            return Err(NodeError::invalid(format!("a node asks for a feature beyond {known}")));
        }
        let (nodes, depth) = self.levels()?;
        let values: Vec<f64> =
            nodes.iter().map(|own| f64::from(self.splits[own.split].value)).collect();
        let values = b.constant(Tensor::from_f64(b.dtype(x), [nodes.len()], &values)?);
        let words: Vec<u64> = nodes
            .iter()
            .enumerate()
            .map(|(place, own)| self.splits[own.split].word(place, own.first))
            .collect();
        let words = b.constant(Tensor::from_elements([nodes.len()], &words)?);
        let trees = self.roots.len();
        let roots: Vec<i64> = (0..trees as i64).collect();
        let roots = b.constant(Tensor::from_elements([1, trees], &roots)?);
        let mut place = b.expand(roots, vec![rows, trees])?;
        for _ in 0..depth {
            let word = b.apply(Gather { axis: 0 }, &[words, place])?;
            let feature = FEATURE.of(b, word)?;
            let x = b.apply(GatherElements { axis: 1 }, &[x, feature])?;
            let value = b.apply(Gather { axis: 0 }, &[values, place])?;
            let holds = self.decisions(b, x, value, word, (&nodes, place))?;
            let (next, step) = (NEXT.of(b, word)?, STEP.of(b, word)?);
            let none = b.integers(&[0])?;
            let step = b.select(holds, none, step)?;
            place = b.add(next, step)?;
        }
        let mut weights = Vec::with_capacity(size(nodes.len(), self.targets)?);
        for own in &nodes {
            weights.extend_from_slice(&self.weights[own.split * self.targets..][..self.targets]);
        }
        let weights = b.constant(Tensor::from_elements([nodes.len(), self.targets], &weights)?);
        b.apply(Gather { axis: 0 }, &[weights, place])
    }

    /// Whether the tests of nodes hold, whose words are `word`; they lie at the second of `nodes` in the first.
    fn decisions(
        &self,
        b: &mut Builder,
        x: Operand,
        value: Operand,
        word: Operand,
        nodes: (&[Placed], Operand),
    ) -> Step {
        let inner = |own: &&Split| own.children.is_some();
        let mut modes: Vec<Mode> = Vec::new();
        for own in self.splits.iter().filter(inner) {
            if !modes.contains(&own.mode) {
                modes.push(own.mode);
            }
        }
        let mut holds: Option<Operand> = None;
        for mode in &modes {
            let own = match mode {
                Mode::Test(function) => b.binary(*function, x, value)?,
                Mode::Differs => {
                    let same = b.binary(B::Equal, x, value)?;
                    b.unary(U::Not, same)?
                }
                Mode::Member => self.membership(b, x, nodes)?,
            };
            holds = Some(match holds {
                None => own,
                Some(others) => {
                    let found = MODE.of(b, word)?;
                    let is_mode = b.with_scalar(B::Equal, found, mode.number() as f64)?;
                    b.select(is_mode, own, others)?
                }
            });
        }
        let holds = match holds {
            Some(holds) => holds,
            None => b.binary(B::LessEqual, x, value)?,
        };
        if self.splits.iter().all(|own| !own.missing_is_true) {
            return Ok(holds);
        }
        let missing = MISSING.of(b, word)?;
        let missing = b.cast(missing, DataType::Bool)?;
        let none = b.unary(U::IsNan, x)?;
        let both = b.binary(B::And, none, missing)?;
        b.binary(B::Or, holds, both)
    }

    /// Whether features are among the members of the nodes at the second of `nodes` in the first.
    fn membership(
        &self,
        b: &mut Builder,
        x: Operand,
        (nodes, place): (&[Placed], Operand),
    ) -> Step {
        let most = self.splits.iter().map(|own| own.members.len()).max().unwrap_or(0).max(1);
        let mut table = vec![f64::NAN; size(nodes.len(), most)?];
        for (row, own) in table.chunks_exact_mut(most).zip(nodes) {
            for (cell, member) in row.iter_mut().zip(&self.splits[own.split].members) {
                *cell = f64::from(*member);
            }
        }
        let table = b.constant(Tensor::from_f64(b.dtype(x), [nodes.len(), most], &table)?);
        let members = b.apply(Gather { axis: 0 }, &[table, place])?;
        let column = [&b.shape(x)[..], &[1]].concat();
        let column = b.reshape(x, column)?;
        let same = b.binary(B::Equal, column, members)?;
        let same = b.cast(same, DataType::I32)?;
        let any = b.reduce(R::Maximum, same, vec![2], false)?;
        b.cast(any, DataType::Bool)
    }
}

/// A product that is a size of a table.
fn size(rows: usize, columns: usize) -> Result<usize, NodeError> {
    let size = rows.checked_mul(columns).filter(|size| *size <= 1 << 28);
    size.ok_or_else(|| NodeError::invalid(format!("a table of {rows} by {columns} is too large")))
}

/// Attributes `base_values`, added to the sums.
fn based(b: &mut Builder, node: &mut Node, sums: Operand) -> Step {
    match node.floats("base_values")? {
        Some(values) if !values.is_empty() => {
            let values = b.constant(Tensor::from_elements([values.len()], &values)?);
            b.add(sums, values)
        }
        _ => Ok(sums),
    }
}

fn aggregate(name: &str) -> Result<R, NodeError> {
    Ok(match name {
        "SUM" => R::Sum,
        "AVERAGE" => R::Mean,
        "MIN" => R::Minimum,
        "MAX" => R::Maximum,
        other => {
            return Err(NodeError::invalid(format!("aggregate_function '{other}' is unknown")));
        }
    })
}

/// `TreeEnsembleRegressor`.
pub(super) fn regressor(builder: &mut Builder, node: &mut Node) -> Outputs {
    let targets = usize::try_from(node.int_or("n_targets", 1)?).unwrap_or(0);
    let function = aggregate(&node.string_or("aggregate_function", "SUM")?)?;
    let transform = node.string_or("post_transform", "NONE")?;
    let forest = Forest::read(node, "target", targets)?;
    let x = samples(builder, node.input(0)?)?;
    let leaves = forest.leaves(builder, x)?;
    let sums = builder.reduce(function, leaves, vec![1], false)?;
    let sums = based(builder, node, sums)?;
    Ok(vec![transformed(builder, &transform, sums)?])
}

/// `TreeEnsembleClassifier`: labels and scores. Of two classes the leaves may hold weights for one alone.
pub(super) fn classifier(builder: &mut Builder, node: &mut Node) -> Outputs {
    let numbers = node.peek_ints("classlabels_int64s");
    let strings = node.peek_strings("classlabels_strings");
    let classes = numbers.len().max(strings);
    let transform = node.string_or("post_transform", "NONE")?;
    let ids = node.peek_ints("class_ids");
    let one_sided = classes == 2 && ids.windows(2).all(|pair| pair[0] == pair[1]);
    let all_positive = node.peek_floats("class_weights").iter().all(|weight| *weight >= 0.0);
    let forest = Forest::read(node, "class", classes)?;
    let x = samples(builder, node.input(0)?)?;
    let leaves = forest.leaves(builder, x)?;
    let sums = builder.reduce(R::Sum, leaves, vec![1], false)?;
    let (place, scores) = match one_sided {
        true => two_classes(builder, node, sums, &ids, &transform, all_positive)?,
        false => {
            let sums = based(builder, node, sums)?;
            (largest(builder, sums)?, transformed(builder, &transform, sums)?)
        }
    };
    Ok(vec![labels(builder, node, place, "classlabels_int64s")?, scores])
}

/// Places and scores where all weights are for one of two classes.
fn two_classes(
    b: &mut Builder,
    node: &mut Node,
    sums: Operand,
    ids: &[i64],
    transform: &str,
    all_positive: bool,
) -> Result<(Operand, Operand), NodeError> {
    let column = usize::try_from(ids.first().copied().unwrap_or(0)).unwrap_or(0).min(1);
    let own = b.narrow(sums, 1, column, 1)?;
    let base = node.floats("base_values")?.unwrap_or_default();
    let base = base.get(column.min(base.len().saturating_sub(1))).copied().unwrap_or(0.0);
    let own = b.with_scalar(B::Add, own, f64::from(base))?;
    let rows = b.shape(own)[0];
    let limit = if all_positive { 0.5 } else { 0.0 };
    let above = b.with_scalar(B::Greater, own, limit)?;
    let place = b.cast(above, DataType::I64)?;
    let place = b.reshape(place, vec![rows])?;
    let scores = match (transform, all_positive) {
        ("NONE", true) => {
            let other = b.scalar_with(B::Subtract, 1.0, own)?;
            b.concat(&[other, own], 1)?
        }
        ("NONE", false) => {
            let other = b.unary(U::Negate, own)?;
            b.concat(&[other, own], 1)?
        }
        ("LOGISTIC", _) => {
            let other = b.unary(U::Negate, own)?;
            let both = b.concat(&[other, own], 1)?;
            b.unary(U::Sigmoid, both)?
        }
        (other, _) => {
            return Err(NodeError::unsupported(format!("post_transform {other} of two classes")));
        }
    };
    Ok((place, scores))
}

/// `TreeEnsemble`: inner nodes and leaves apart, in the element type of the input.
pub(super) fn ensemble(builder: &mut Builder, node: &mut Node) -> Outputs {
    let b = builder;
    let targets = usize::try_from(node.int_or("n_targets", 0)?).unwrap_or(0);
    let functions = ["AVERAGE", "SUM", "MIN", "MAX"];
    let transforms = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"];
    let name = |names: &[&'static str], number: i64| {
        usize::try_from(number).ok().and_then(|at| names.get(at).copied())
    };
    let function = name(&functions, node.int_or("aggregate_function", 1)?).unwrap_or("?");
    let transform = name(&transforms, node.int_or("post_transform", 0)?).unwrap_or("?");
    let forest = apart(b, node, targets)?;
    let x = node.input(0)?;
    let leaves = forest.leaves(b, x)?;
    let leaves = b.cast(leaves, b.dtype(x))?;
    let sums = b.reduce(aggregate(function)?, leaves, vec![1], false)?;
    Ok(vec![transformed(b, transform, sums)?])
}

/// The trees of `TreeEnsemble`.
fn apart(b: &mut Builder, node: &mut Node, targets: usize) -> Result<Forest, NodeError> {
    let floats = |b: &mut Builder, node: &mut Node, name: &str| -> Result<Vec<f64>, NodeError> {
        let Some(tensor) = node.tensor(name)? else { return Ok(Vec::new()) };
        let own = b.load(tensor)?;
        Ok(b.tensor(own).map(Tensor::to_f64).unwrap_or_default())
    };
    let modes = floats(b, node, "nodes_modes")?;
    let values = floats(b, node, "nodes_splits")?;
    let weights = floats(b, node, "leaf_weights")?;
    let members = floats(b, node, "membership_values")?;
    node.ignore(&["nodes_hitrates"]);
    let mut ints =
        |name: &str| -> Result<Vec<i64>, NodeError> { Ok(node.ints(name)?.unwrap_or_default()) };
    let (features, missing) = (ints("nodes_featureids")?, ints("nodes_missing_value_tracks_true")?);
    let sides = [
        (ints("nodes_truenodeids")?, ints("nodes_trueleafs")?),
        (ints("nodes_falsenodeids")?, ints("nodes_falseleafs")?),
    ];
    let (ids, roots) = (ints("leaf_targetids")?, ints("tree_roots")?);
    let count = features.len();
    let mut splits = Vec::new();
    let mut sets = members.split(|member| member.is_nan());
    for (place, feature) in features.iter().enumerate() {
        let mode = modes.get(place).and_then(|mode| MODES.get(*mode as usize));
        let (_, mode) =
            *mode.ok_or_else(|| NodeError::invalid("a node's mode is missing or unknown"))?;
        let mut children = [0; 2];
        for (child, (own, is_leaf)) in children.iter_mut().zip(&sides) {
            let (Some(own), Some(is_leaf)) = (own.get(place), is_leaf.get(place)) else {
                return Err(NodeError::invalid("lists of nodes differ in length"));
            };
            let bound = if *is_leaf != 0 { ids.len() } else { count };
            let own = usize::try_from(*own).ok().filter(|own| *own < bound);
            let own = own.ok_or_else(|| NodeError::invalid("a node leads to none"))?;
            *child = if *is_leaf != 0 { count + own } else { own };
        }
        let members = match mode {
            Mode::Member => sets.next().unwrap_or_default().iter().map(|own| *own as f32).collect(),
            Mode::Test(_) | Mode::Differs => Vec::new(),
        };
        let value = values.get(place).copied().unwrap_or(0.0) as f32;
        let missing_is_true = missing.get(place).is_some_and(|own| *own != 0);
        let children = Some(children);
        splits.push(Split { feature: *feature, value, mode, children, missing_is_true, members });
    }
    let mut table = vec![0.0; size(count + ids.len(), targets)?];
    for (at, id) in ids.iter().enumerate() {
        splits.push(leaf());
        let id = usize::try_from(*id).ok().filter(|id| *id < targets);
        let id =
            id.ok_or_else(|| NodeError::invalid("a leaf is for a target that does not exist"))?;
        table[(count + at) * targets + id] = weights.get(at).copied().unwrap_or(0.0) as f32;
    }
    let roots: Result<Vec<usize>, NodeError> = roots
        .iter()
        .map(|root| {
            let root = usize::try_from(*root).ok().filter(|root| *root < count);
            root.ok_or_else(|| NodeError::invalid("a root is no node"))
        })
        .collect();
    Ok(Forest { splits, roots: roots?, weights: table, targets })
}
