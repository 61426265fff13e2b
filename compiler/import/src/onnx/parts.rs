//! What operators do with operands of which a run decides how much is there.
//!
//! Such an operand has room for the most that there may be; behind its part lies nothing of use. An operator that
//! computes every place along that axis by itself is imported for all the room, and its result has the part that its
//! operand has. One that looks along the axis (a sum, a largest element, a search) reads, behind the part, elements that
//! change nothing: zeros for a sum, the least number for a largest element. What is not listed here is refused.

use super::builder::{Builder, Operand};
use super::fates::{Fate, Question};
use super::joined_parts::{joined, joined_items};
use super::node::Node;
use super::operators::count_part;
use super::rearranged::{cut_by_count, held_to_sizes, merged, shape_of};
use super::reshaped_parts::reshaped;
use super::scattered::scattered;
use super::shorthands::Step;
use super::sized::{Behind, Part};
use crate::NodeError;
use hone_ops::{BinaryFunction as B, ReduceFunction};
use hone_types::DataType;
use std::collections::BTreeSet;

/// Operators that compute each place of their broadcast operands by itself.
pub(super) const EACH: &[&str] = &[
    "Abs",
    "Acos",
    "Acosh",
    "Add",
    "And",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "BatchNormalization",
    "Bernoulli",
    "BiasGelu",
    "BitShift",
    "BitwiseAnd",
    "BitwiseNot",
    "BitwiseOr",
    "BitwiseXor",
    "Cast",
    "CastLike",
    "Ceil",
    "Celu",
    "Clip",
    "Cos",
    "Cosh",
    "DequantizeLinear",
    "Div",
    "Elu",
    "Equal",
    "Erf",
    "Exp",
    "FastGelu",
    "Floor",
    "Gelu",
    "Greater",
    "GreaterOrEqual",
    "HardSigmoid",
    "HardSwish",
    "IsInf",
    "IsNaN",
    "LeakyRelu",
    "Less",
    "LessOrEqual",
    "Log",
    "Max",
    "Mean",
    "Min",
    "Mish",
    "Mod",
    "Mul",
    "Neg",
    "Not",
    "Or",
    "PRelu",
    "Pow",
    "QuantizeLinear",
    "QuickGelu",
    "RandomNormalLike",
    "RandomUniformLike",
    "Reciprocal",
    "Relu",
    "Round",
    "Selu",
    "Shrink",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Sub",
    "Sum",
    "Swish",
    "Tan",
    "Tanh",
    "ThresholdedRelu",
    "Where",
    "Xor",
];

/// Operators that compute each sample (an element of the first axis of the first operand) by itself. Some of them move
/// a window over what lies behind the channels (`windowed.rs`).
pub(super) const EACH_SAMPLE: &[&str] = &[
    "AveragePool",
    "Conv",
    "ConvTranspose",
    "DepthToSpace",
    "FusedConv",
    "GlobalAveragePool",
    "GlobalLpPool",
    "GlobalMaxPool",
    "GroupNormalization",
    "InstanceNormalization",
    "LRN",
    "LpPool",
    "MaxPool",
    "SpaceToDepth",
];

/// Operators of onnxruntime that are an operator of ONNX and an element-wise one behind it: its optimizer writes them.
const FUSED: &[&str] = &["BiasGelu", "FastGelu", "FusedConv", "FusedGemm", "Gelu", "QuickGelu"];

/// What is left to do when the operator has been imported.
#[derive(Debug)]
pub(super) struct Pending {
    parts: Vec<(usize, Part, Vec<usize>)>,
    asked: Node,
}
/// Prepares a node some of whose operands are there in part: `None` where none is. Outputs in place of the operator's
/// are returned where they come from elsewhere.
///
/// # Errors
/// An operator that is not listed.
pub(super) fn begin(
    builder: &mut Builder,
    node: &mut Node,
    domain: &str,
) -> Result<(Option<Pending>, Option<Vec<Operand>>), NodeError> {
    for operand in node.inputs.clone().into_iter().flatten() {
        builder.settle(operand)?;
    }
    let own_domain = domain.is_empty();
    match node.operator.as_str() {
        "Split" if own_domain => held_to_sizes(builder, node)?,
        "ConcatFromSequence" if own_domain => {
            let made = joined_items(builder, node)?;
            return Ok((None, made.map(|own| vec![own])));
        }
        _ => {}
    }
    let parts: Vec<(usize, Part)> = node
        .inputs
        .iter()
        .enumerate()
        .filter_map(|(place, operand)| Some((place, (*operand)?)))
        .flat_map(|(place, operand)| {
            builder.parts(operand).into_iter().map(move |part| (place, part))
        })
        .collect();
    if parts.is_empty() {
        return Ok((None, None));
    }
    let refused = || NodeError::UndecidedSize { what: "one of its inputs".into() };
    let is_fused = domain == "com.microsoft" && FUSED.contains(&node.operator.as_str());
    if !own_domain && !is_fused {
        return Err(refused());
    }
    check_second_parts(builder, node)?;
    let mut asked = node.again();
    if let Some(made) = made_otherwise(builder, &mut asked, &parts)? {
        return Ok((None, Some(vec![made])));
    }
    let mut pending = Vec::new();
    let operands = node.inputs.clone();
    for (place, part) in parts {
        let Some(operand) = operands[place] else { continue };
        let shape = builder.shape(operand);
        if node.inputs[place] == Some(operand) {
            let behind = fill(&mut asked, place).ok_or_else(refused)?;
            node.inputs[place] = Some(builder.filled_all(operand, behind)?);
        }
        pending.push((place, part, shape));
    }
    if EACH.contains(&node.operator.as_str()) || node.operator == "Concat" {
        cut_to_least(builder, node, &mut pending)?;
    }
    asked.inputs.clone_from(&node.inputs);
    if node.operator == "NonMaxSuppression" && node.optional(4).is_none() {
        // Without a threshold what is not there would be chosen last.
        let least = builder.scalar(DataType::F32, f64::from(f32::MIN))?;
        node.inputs.resize(5, None);
        node.inputs[4] = Some(least);
    }
    Ok((Some(Pending { parts: pending, asked }), None))
}

/// Operators that take operands of which a part is there along two axes, as attention makes them between what a run decides
/// the number of, and give such a result; functions of elements and reductions do, too.
const WITH_TWO_PARTS: &[&str] = &[
    "ArgMax",
    "ArgMin",
    "Concat",
    "CumSum",
    "Expand",
    "Flatten",
    "Gather",
    "GatherElements",
    "GatherND",
    "Gemm",
    "LayerNormalization",
    "LogSoftmax",
    "MatMul",
    "NonZero",
    "OneHot",
    "Pad",
    "Reshape",
    "Shape",
    "Size",
    "Slice",
    "Softmax",
    "Squeeze",
    "Tile",
    "TopK",
    "Transpose",
    "Unsqueeze",
];

fn takes_two_parts(operator: &str) -> bool {
    EACH.contains(&operator) || operator.starts_with("Reduce") || WITH_TWO_PARTS.contains(&operator)
}

/// Refuses operands of which a part is there along two axes, where the operator takes none.
fn check_second_parts(builder: &Builder, node: &Node) -> Result<(), NodeError> {
    if takes_two_parts(&node.operator) {
        return Ok(());
    }
    let mut operands = node.inputs.iter().flatten();
    operands.try_for_each(|own| builder.check_single_part(*own, "one of its inputs"))
}

/// The result of an operator that is made of other nodes where a part of its operands is there; `None` of others.
fn made_otherwise(
    builder: &mut Builder,
    asked: &mut Node,
    parts: &[(usize, Part)],
) -> Result<Option<Operand>, NodeError> {
    Ok(match asked.operator.as_str() {
        "ScatterElements" | "Scatter" | "ScatterND" => {
            scattered(builder, &mut asked.again(), parts)?
        }
        "Size" => {
            let extents = shape_of(builder, asked, parts)?;
            Some(builder.reduce(ReduceFunction::Product, extents, vec![0], false)?)
        }
        "Shape" => Some(shape_of(builder, asked, parts)?),
        "Slice" => cut_by_count(builder, &mut asked.again(), parts)?,
        "Concat" => joined(builder, &mut asked.again(), parts)?,
        "Flatten" | "Reshape" => match reshaped(builder, &mut asked.again(), parts)? {
            Some(made) => Some(made),
            None => merged(builder, &mut asked.again(), parts)?,
        },
        "TfIdfVectorizer" => Some(count_part(builder, &mut asked.again(), parts)?),
        _ => None,
    })
}

/// Cuts operands that are laid beside one another, each there in part, to the least room of them: there are as many of
/// each, or the run ends.
fn cut_to_least(
    b: &mut Builder,
    node: &mut Node,
    pending: &mut [(usize, Part, Vec<usize>)],
) -> Result<(), NodeError> {
    let from_end = |part: &Part, shape: &[usize]| shape.len() - part.axis;
    let ends: BTreeSet<usize> =
        pending.iter().map(|(_, part, shape)| from_end(part, shape)).collect();
    for end in ends {
        let own = |(_, part, shape): &&(usize, Part, Vec<usize>)| from_end(part, shape) == end;
        let least = pending.iter().filter(own).map(|(_, part, shape)| shape[part.axis]).min();
        let least = least.unwrap_or(0);
        for place in 0..pending.len() {
            let (input, part, shape) = &pending[place];
            let (input, axis) = (*input, part.axis);
            if from_end(part, shape) != end || shape[axis] <= least {
                continue;
            }
            let Some(operand) = node.inputs[input] else { continue };
            let parts = b.filled.get(&operand).cloned().unwrap_or_default();
            let cut = b.narrow(operand, axis, 0, least)?;
            parts.into_iter().for_each(|part| b.note_filled(cut, part));
            node.inputs[input] = Some(cut);
            // Both parts of an operand know its shape.
            for (_, _, shape) in pending.iter_mut().filter(|(own, ..)| *own == input) {
                shape[axis] = least;
            }
        }
    }
    Ok(())
}

impl Pending {
    /// Says of the outputs which part of them is there.
    ///
    /// # Errors
    /// A setting of the operator that is not for operands in part, or operands that do not fit one another.
    pub(super) fn finish(
        self,
        builder: &mut Builder,
        mut outputs: Vec<Operand>,
    ) -> Result<Vec<Operand>, NodeError> {
        let mut found = Vec::new();
        for (place, part, shape) in &self.parts {
            // Each anew, since attributes are gone once they are read.
            let mut asked = self.asked.again();
            let Part { axis, count } = *part;
            let question = Question { node: &mut asked, place: *place, axis, count, shape };
            let room = shape[part.axis];
            let fate = question.answer(builder, &outputs)?;
            let fate = fate.ok_or_else(|| NodeError::UndecidedSize {
                what: format!("its input number {place}"),
            })?;
            if matches!(fate, Fate::Averaged) {
                outputs = outputs
                    .into_iter()
                    .map(|own| mean_of_part(builder, own, room, part.count))
                    .collect::<Result<_, _>>()?;
            }
            if let Some(own) = fate.part(builder, part.count)? {
                found.push((*place, own));
            }
        }
        let kept = self.joined_parts(builder, &found)?;
        let moved = ["Flatten", "Reshape", "Squeeze", "Unsqueeze"];
        if let (Some(Some(from)), [to]) = (self.asked.inputs.first(), &outputs[..])
            && moved.contains(&self.asked.operator.as_str())
        {
            builder.inherit_tokens(*from, *to);
        }
        let Some(part) = kept.first().copied() else { return Ok(outputs) };
        match kept.get(1) {
            None => self.check_others(builder, part, &outputs)?,
            Some(_) => self.check_beside_two(builder, &kept, &found, &outputs)?,
        }
        for output in &mut outputs {
            // Numbers that are drawn are constants, of which all would be there.
            if builder.tensor(*output).is_some() {
                *output = builder.as_computed(*output);
            }
            // What the operator itself says of its result is kept along another axis.
            let of_operator = builder.parts(*output).into_iter();
            let other = of_operator.filter(|own| kept.iter().all(|kept| kept.axis != own.axis));
            let all: Vec<Part> = kept.iter().copied().chain(other).collect();
            if all.len() > 2 {
                let what = "its result, along three axes,".into();
                return Err(NodeError::UndecidedSize { what });
            }
            builder.set_parts(*output, &all);
        }
        self.inherit_repeated(builder, &kept, &outputs)?;
        Ok(outputs)
    }

    /// Says of a result that is its operand with other axes that it repeats what the operand does.
    fn inherit_repeated(
        &self,
        builder: &mut Builder,
        kept: &[Part],
        outputs: &[Operand],
    ) -> Result<(), NodeError> {
        let moves = ["Flatten", "Reshape", "Squeeze", "Unsqueeze"];
        let moves = moves.contains(&self.asked.operator.as_str());
        let ([(0, part, _)], [own], [output]) = (&self.parts[..], kept, outputs) else {
            return Ok(());
        };
        let operand = self.asked.inputs.first().copied().flatten().filter(|_| moves);
        let row = operand.and_then(|operand| builder.repeated_along(operand, part.axis));
        match row.filter(|_| own.count == part.count) {
            Some(row) => builder.note_repeated(*output, own.axis, row),
            None => Ok(()),
        }
    }

    /// The parts of the result, by those that operands leave: one for each axis, and a run is held to equal counts along it.
    fn joined_parts(
        &self,
        builder: &mut Builder,
        found: &[(usize, Part)],
    ) -> Result<Vec<Part>, NodeError> {
        let mut kept: Vec<Part> = Vec::new();
        for (_, own) in found {
            match kept.iter().find(|other| other.axis == own.axis) {
                None => kept.push(*own),
                Some(other) if other.count == own.count => {}
                Some(other) => {
                    let same = builder.binary(B::Equal, other.count, own.count)?;
                    builder.require(same, "two operands have different sizes")?;
                }
            }
        }
        if kept.len() > 1 && (kept.len() > 2 || !takes_two_parts(&self.asked.operator)) {
            let what = "two of its inputs, along different axes,".into();
            return Err(NodeError::UndecidedSize { what });
        }
        Ok(kept)
    }

    /// Refuses operands of which all is there where they would be laid beside a part, of a result that has two; those that
    /// are joined with it are held to the same size.
    fn check_beside_two(
        &self,
        builder: &mut Builder,
        kept: &[Part],
        found: &[(usize, Part)],
        outputs: &[Operand],
    ) -> Result<(), NodeError> {
        let operator = self.asked.operator.as_str();
        let Some(output) = outputs.first() else { return Ok(()) };
        let rank = builder.rank(*output);
        for part in kept {
            let is_joined = operator == "Concat";
            let is_beside = is_joined
                || EACH.contains(&operator)
                || operator == "MatMul" && part.axis + 2 < rank;
            for (place, operand) in self.asked.inputs.iter().enumerate().filter(|_| is_beside) {
                let Some(operand) = *operand else { continue };
                let shape = builder.shape(operand);
                let own = (part.axis + shape.len()).checked_sub(rank).map_or(1, |at| shape[at]);
                let has_part = found.iter().any(|(at, own)| *at == place && own.axis == part.axis);
                if has_part || own <= 1 && !is_joined {
                    continue;
                }
                if !is_joined {
                    let what = "what another of its inputs is laid beside".into();
                    return Err(NodeError::UndecidedSize { what });
                }
                let same = builder.with_scalar(B::Equal, part.count, own as f64)?;
                builder.require(same, "what is joined differs in size")?;
            }
        }
        Ok(())
    }

    /// Refuses whole operands that an element-wise operator or a product of matrices would lay beside the part, and holds
    /// those that are joined with it to the same size.
    fn check_others(
        &self,
        builder: &mut Builder,
        part: Part,
        outputs: &[Operand],
    ) -> Result<(), NodeError> {
        let operator = self.asked.operator.as_str();
        let Some(output) = outputs.first() else { return Ok(()) };
        let rank = builder.rank(*output);
        let (is_each, is_product) = (EACH.contains(&operator), operator == "MatMul");
        if !is_each && operator != "Concat" && !(is_product && part.axis + 2 < rank) {
            return Ok(());
        }
        for operand in self.asked.inputs.iter().flatten() {
            let shape = builder.shape(*operand);
            let own = (part.axis + shape.len()).checked_sub(rank).map(|place| shape[place]);
            let Some(own) = own.filter(|_| !builder.is_filled(*operand)) else { continue };
            if operator == "Concat" {
                let same = builder.with_scalar(B::Equal, part.count, own as f64)?;
                builder.require(same, "what is joined differs in size")?;
            } else if own > 1 {
                return Err(NodeError::UndecidedSize {
                    what: "what another of its inputs is laid beside".into(),
                });
            }
        }
        Ok(())
    }
}

/// The mean of what is there, of the mean over all the room.
fn mean_of_part(b: &mut Builder, mean: Operand, room: usize, count: Operand) -> Step {
    let dtype = b.dtype(mean);
    if !dtype.is_float() {
        let what = "what it takes the mean of, which is not of floats,".into();
        return Err(NodeError::UndecidedSize { what });
    }
    let count = b.single(count)?;
    let count = b.cast(count, DataType::F32)?;
    // Of nothing the mean is no number: zero times infinity.
    let times = b.scalar_with(B::Divide, room as f64, count)?;
    let times = b.cast(times, dtype)?;
    b.multiply(mean, times)
}

/// What is read behind the part; `None` of an operator that is not listed.
fn fill(node: &mut Node, place: usize) -> Option<Behind> {
    let operator = node.operator.as_str();
    Some(match operator {
        // Padding is never the largest of a window.
        "GlobalMaxPool" | "MaxPool" => Behind::Least,
        // What is added to its result would be laid beside the part.
        "FusedConv" if node.optional(3).is_some() => return None,
        _ if EACH.contains(&operator) || EACH_SAMPLE.contains(&operator) => Behind::Zeros,
        "GridSample" if place == 0 => return None,
        "Compress" | "Concat" | "CumSum" | "Expand" | "Flatten" | "FusedGemm" | "Gather"
        | "GatherElements" | "GatherND" | "Gemm" | "GridSample" | "LayerNormalization"
        | "MatMul" | "NonZero" | "OneHot" | "Pad" | "ReduceL1" | "ReduceL2" | "ReduceSum"
        | "ReduceSumSquare" | "ReduceMean" | "Reshape" | "Resize" | "RoiAlign"
        | "ScatterElements" | "ScatterND" | "Slice" | "Split" | "Squeeze" | "Tile"
        | "Transpose" | "Trilu" | "Unsqueeze" | "Upsample" => Behind::Zeros,
        "ReduceProd" => Behind::Ones,
        "ArgMax" | "ReduceMax" | "ReduceLogSumExp" | "Softmax" | "LogSoftmax" => Behind::Least,
        "ArgMin" | "ReduceMin" => Behind::Greatest,
        "TopK" if node.attributes.get("largest").is_some_and(|own| own.i == Some(0)) => {
            Behind::Greatest
        }
        "TopK" => Behind::Least,
        "NonMaxSuppression" if place == 1 => Behind::Least,
        "NonMaxSuppression" => Behind::Zeros,
        _ => return None,
    })
}
