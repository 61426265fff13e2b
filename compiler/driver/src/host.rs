//! Operators that the runtime computes itself.

use hone_artifact::{Automaton, DataType, HostFunction, Letters, TextFunction};
use hone_ops::{Compress, NonMaxSuppression, NonZero, NumberType, Op, Require, Text, TopK, Unique};

/// The runtime's function that computes an operator, where one does.
pub(crate) fn host_function(operation: &Op) -> Option<HostFunction> {
    let axis = |axis: Option<usize>| axis.map(|axis| axis as u32);
    if operation.downcast::<NonZero>().is_some() {
        return Some(HostFunction::NonZero);
    }
    if let Some(compress) = operation.downcast::<Compress>() {
        return Some(HostFunction::Compress { axis: axis(compress.axis) });
    }
    if let Some(unique) = operation.downcast::<Unique>() {
        return Some(HostFunction::Unique { axis: axis(unique.axis), sorted: unique.sorted });
    }
    if let Some(top_k) = operation.downcast::<TopK>().filter(|top_k| top_k.by_runtime) {
        let (k, axis) = (top_k.k as u64, top_k.axis as u32);
        return Some(HostFunction::TopK { k, axis, largest: top_k.largest });
    }
    if let Some(require) = operation.downcast::<Require>() {
        return Some(HostFunction::Require { message: require.message.clone() });
    }
    if let Some(text) = operation.downcast::<Text>() {
        return text_function(&text.function).map(HostFunction::Text);
    }
    let suppression = operation.downcast::<NonMaxSuppression>()?;
    Some(HostFunction::NonMaxSuppression {
        centers: suppression.centers,
        most: suppression.most as u64,
    })
}

/// The runtime's function of strings; `None` of a pattern that the importer would refuse.
fn text_function(function: &hone_ops::TextFunction) -> Option<TextFunction> {
    use hone_ops::TextFunction as Own;
    Some(match function {
        Own::Concat => TextFunction::Concat,
        Own::Split { delimiter, most, room } => TextFunction::Split {
            delimiter: delimiter.clone(),
            most: most.map(|most| most as u64),
            room: *room as u64,
        },
        Own::Normalize { letters, case_sensitive, stopwords } => TextFunction::Normalize {
            letters: match letters {
                hone_ops::Letters::Keep => Letters::Keep,
                hone_ops::Letters::Lower => Letters::Lower,
                hone_ops::Letters::Upper => Letters::Upper,
            },
            case_sensitive: *case_sensitive,
            stopwords: stopwords.clone(),
        },
        Own::Match { pattern } => {
            let automaton = hone_ops::text_automaton(pattern).ok()?;
            TextFunction::Match(Automaton {
                classes: automaton.classes,
                width: automaton.width as u32,
                next: automaton.next,
                start: automaton.start,
                accepts: automaton.accepts,
            })
        }
        Own::FromNumber => TextFunction::FromNumber,
        Own::ToNumber { to } => TextFunction::ToNumber {
            dtype: match to {
                NumberType::F32 => DataType::F32,
                NumberType::F64 => DataType::F64,
                NumberType::I64 => DataType::I64,
                NumberType::U64 => DataType::U64,
            },
        },
    })
}
