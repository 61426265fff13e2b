//! Operators of strings. What looks into strings is computed by the runtime; comparing and moving them is compiled, as
//! of numbers.

use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::node::{Node, Outputs};
use crate::onnx::shorthands::{Step, extents};
use hone_ops::{
    CaseRule, Letters, NumberType, Text, TextFunction, broadcast_shapes, text_automaton,
};
use hone_types::DataType;

/// The results of a function of strings.
pub(super) fn applied(b: &mut Builder, function: TextFunction, inputs: &[Operand]) -> Outputs {
    let inputs: Vec<Option<Operand>> = inputs.iter().copied().map(Some).collect();
    b.apply_all(Text { function }, &inputs)
}

/// Input `index`, which must be of strings.
pub(super) fn text(b: &Builder, node: &Node, index: usize) -> Step {
    let operand = node.input(index)?;
    match b.is_text(operand) {
        true => Ok(operand),
        false => Err(NodeError::invalid(format!("input number {index} is not of strings"))),
    }
}

/// `StringConcat`.
pub(super) fn concat(builder: &mut Builder, node: &mut Node) -> Outputs {
    let (a, b) = (text(builder, node, 0)?, text(builder, node, 1)?);
    let (from, to) = (builder.shape(a), builder.shape(b));
    let shape = broadcast_shapes(&from, &to);
    let shape = shape.ok_or_else(|| {
        NodeError::invalid(format!("shapes {from:?} and {to:?} do not broadcast"))
    })?;
    let (a, b) = (builder.expand(a, shape.clone())?, builder.expand(b, shape)?);
    let joined = applied(builder, TextFunction::Concat, &[a, b])?;
    stored(builder, &joined[..1]);
    Ok(vec![builder.as_text(joined[0])])
}

/// `StringSplit`: as many parts as the model declares, or as cuts are allowed.
pub(super) fn split(builder: &mut Builder, node: &mut Node) -> Outputs {
    let x = text(builder, node, 0)?;
    let delimiter = node.string("delimiter")?.filter(|operand| !operand.is_empty());
    let most = match node.int("maxsplit")? {
        Some(most) => Some(extents(&[most], "maxsplit")?[0]),
        None => None,
    };
    let rank = builder.rank(x);
    let known = builder.tensor(x).is_some();
    let declared =
        node.declared(0).filter(|operand| operand.len() == rank + 1).map(|operand| operand[rank]);
    let bound = most.map(|most| most.saturating_add(1));
    let room = match declared.into_iter().chain(bound).min() {
        Some(room) => room,
        None if builder.tensor_type(x).elements() == 0 => 0,
        // Whatever the strings are, these are known.
        None if known => stored_parts(builder, x),
        None => return Err(NodeError::Unbounded { output: 0 }),
    };
    let mut outputs = applied(builder, TextFunction::Split { delimiter, most, room }, &[x])?;
    let count = outputs.pop().ok_or_else(|| NodeError::invalid("it has no result"))?;
    stored(builder, &outputs[..1]);
    let parts = builder.cut(outputs[0], rank, count)?;
    Ok(vec![builder.as_text(parts), outputs[1]])
}

/// Most parts that constant strings may have.
fn stored_parts(b: &Builder, x: Operand) -> usize {
    let handles =
        b.tensor(x).and_then(|operand| operand.elements::<u64>().ok()).unwrap_or_default();
    let texts = handles.into_iter().filter_map(hone_types::text_of);
    texts.map(|operand| operand.len() + 1).max().unwrap_or(0)
}

/// Notes the strings of results that are known when compiling.
pub(super) fn stored(b: &mut Builder, results: &[Operand]) {
    for result in results {
        let handles = b.tensor(*result).and_then(|operand| operand.elements::<u64>().ok());
        b.note_texts(&handles.unwrap_or_default());
    }
}

/// The locales of glibc whose `i` has a capital of its own, by language.
const TURKIC: [&str; 4] = ["tr", "az", "crh", "ku"];

/// What a locale says of letters: that of the C library alone knows none but those of ASCII.
fn case_rule(locale: &str) -> CaseRule {
    let language = locale.split(['_', '-', '.', '@']).next().unwrap_or_default();
    match locale {
        "C" | "POSIX" => CaseRule::Ascii,
        _ if TURKIC.contains(&language) => CaseRule::Turkic,
        _ => CaseRule::Unicode,
    }
}

/// `StringNormalizer`.
pub(super) fn normalize(builder: &mut Builder, node: &mut Node) -> Outputs {
    let x = text(builder, node, 0)?;
    let rule = case_rule(&node.string_or("locale", "en_US")?);
    let letters = match node.string_or("case_change_action", "NONE")?.as_str() {
        "NONE" => Letters::Keep,
        "LOWER" => Letters::Lower,
        "UPPER" => Letters::Upper,
        other => {
            return Err(NodeError::invalid(format!("case_change_action '{other}' is unknown")));
        }
    };
    let case_sensitive = node.flag("is_case_sensitive", false)?;
    let stopwords = node.strings("stopwords")?.unwrap_or_default();
    if stopwords.is_empty() && builder.tensor_type(x).elements() > 0 {
        // Nothing is left out, so each string is changed by itself. The shape is checked as where some are.
        let shape = builder.shape(x);
        if shape.is_empty() || shape.len() > 2 || (shape.len() == 2 && shape[0] != 1) {
            return Err(NodeError::invalid(format!("shape {shape:?} is neither [n] nor [1, n]")));
        }
        let outputs = applied(builder, TextFunction::Case { letters, rule }, &[x])?;
        stored(builder, &outputs);
        return Ok(vec![builder.as_text(outputs[0])]);
    }
    let function = TextFunction::Normalize { letters, rule, case_sensitive, stopwords };
    let axis = builder.rank(x).saturating_sub(1);
    let outputs = applied(builder, function, &[x])?;
    stored(builder, &outputs[..1]);
    let left = match builder.tensor_type(x).elements() {
        // Of one string, one is left: an empty one at least.
        1 => outputs[0],
        _ => builder.cut(outputs[0], axis, outputs[1])?,
    };
    Ok(vec![builder.as_text(left)])
}

/// `RegexFullMatch`.
pub(super) fn full_match(builder: &mut Builder, node: &mut Node) -> Outputs {
    let x = text(builder, node, 0)?;
    let pattern = node.string("pattern")?;
    let pattern = pattern.ok_or_else(|| NodeError::invalid("attribute 'pattern' is missing"))?;
    text_automaton(&pattern).map_err(NodeError::Invalid)?;
    applied(builder, TextFunction::Match { pattern }, &[x])
}

/// `CategoryMapper`: strings to numbers, or numbers to strings, by two lists.
pub(super) fn map_categories(builder: &mut Builder, node: &mut Node) -> Outputs {
    let x = node.input(0)?;
    let texts = node.strings("cats_strings")?.unwrap_or_default();
    let numbers = node.ints("cats_int64s")?.unwrap_or_default();
    if texts.len() != numbers.len() || texts.is_empty() {
        let (texts, numbers) = (texts.len(), numbers.len());
        return Err(NodeError::invalid(format!("{texts} strings for {numbers} numbers")));
    }
    let (texts, numbers) = (builder.texts(&texts)?, builder.integers(&numbers)?);
    let number = node.int_or("default_int64", -1)?;
    let text = node.string_or("default_string", "_Unused")?;
    if builder.is_text(x) {
        let default = builder.integers(&[number])?;
        return Ok(vec![super::ml::looked_up(builder, x, texts, numbers, default)?]);
    }
    let default = builder.texts(&[text])?;
    let found = super::ml::looked_up(builder, x, numbers, texts, default)?;
    Ok(vec![builder.as_text(found)])
}

/// `Cast` to strings.
pub(in crate::onnx) fn written(b: &mut Builder, x: Operand) -> Step {
    let wide = match b.dtype(x) {
        dtype @ (DataType::F32 | DataType::F64 | DataType::U64 | DataType::Bool) => dtype,
        DataType::F16 | DataType::BF16 => DataType::F32,
        _ => DataType::I64,
    };
    let x = b.cast(x, wide)?;
    let result = applied(b, TextFunction::FromNumber, &[x])?;
    stored(b, &result);
    Ok(b.as_text(result[0]))
}

/// `Cast` of strings.
pub(in crate::onnx) fn read(b: &mut Builder, x: Operand, to: DataType) -> Step {
    let wide = match to {
        DataType::F32 | DataType::F16 | DataType::BF16 => NumberType::F32,
        DataType::F64 => NumberType::F64,
        DataType::U64 => NumberType::U64,
        DataType::Bool => return Err(NodeError::unsupported("a cast of strings to truth values")),
        _ => NumberType::I64,
    };
    let number = applied(b, TextFunction::ToNumber { to: wide }, &[x])?[0];
    b.cast(number, to)
}
