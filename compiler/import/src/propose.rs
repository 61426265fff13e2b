//! Extents to propose for open dimensions, so that the message about them ends in something that works.

use crate::{Dimension, PortSignature, SizeSum};
use hone_types::DataType;
use std::collections::HashMap;

/// Extents proposed where neither a name nor the rank suggests others.
const BATCH: usize = 1;
const SEQUENCE: usize = 128;
const IMAGE: usize = 224;
const COLOURS: usize = 3;
/// One second of sound at the rate that most speech models take.
const SAMPLES: usize = 16_000;

/// Words in the names of dimensions, and what is proposed for them; the first that occurs decides.
const WORDS: [(&str, usize); 14] = [
    ("batch", BATCH),
    ("sample", SAMPLES),
    ("seq", SEQUENCE),
    ("len", SEQUENCE),
    ("token", SEQUENCE),
    ("time", SEQUENCE),
    ("frame", SEQUENCE),
    ("height", IMAGE),
    ("width", IMAGE),
    ("size", IMAGE),
    ("channel", COLOURS),
    ("beam", 1),
    ("count", 1),
    ("num", 1),
];

/// A shape to propose for an input. `symbols` holds what is known of named dimensions and learns what is proposed
/// for others, so that equal names get equal extents.
pub fn propose(port: &PortSignature, symbols: &mut HashMap<String, usize>) -> Vec<usize> {
    let Some(shape) = &port.shape else { return vec![BATCH] };
    let extents = shape.iter().enumerate().map(|(axis, dimension)| match dimension {
        Dimension::Fixed(extent) => *extent,
        Dimension::Unknown => by_position(port, shape, axis),
        Dimension::Symbol(name) => {
            let known = symbols.get(name).copied();
            let known = known.or_else(|| sum(name, symbols));
            let extent =
                known.or_else(|| by_name(name)).unwrap_or_else(|| by_position(port, shape, axis));
            symbols.insert(name.clone(), extent);
            extent
        }
    });
    extents.collect()
}

/// The extent of a dimension that is called after others, such as `past_length + 1`; proposes those first where their names
/// say anything.
fn sum(name: &str, symbols: &mut HashMap<String, usize>) -> Option<usize> {
    let sum = SizeSum::parse(name)?;
    for (part, _) in &sum.terms {
        let known = symbols.get(part).copied().or_else(|| by_name(part));
        symbols.insert(part.clone(), known?);
    }
    sum.value(&|part| symbols.get(part).copied())
}

fn by_name(name: &str) -> Option<usize> {
    let name = name.to_lowercase();
    match name.as_str() {
        "n" | "b" | "bs" => Some(BATCH),
        "h" | "w" => Some(IMAGE),
        "c" => Some(COLOURS),
        "t" | "l" | "s" => Some(SEQUENCE),
        _ => WORDS.iter().find(|(word, _)| name.contains(word)).map(|(_, extent)| *extent),
    }
}

/// By what the axes of inputs of this rank usually are: `[batch, …]`, images `[batch, channels, height,
/// width]` or with the channels last, and sequences.
fn by_position(port: &PortSignature, shape: &[Dimension], axis: usize) -> usize {
    let is_colours = |axis: usize| matches!(shape.get(axis), Some(Dimension::Fixed(1 | 3 | 4)));
    let is_real = port.dtype.is_none_or(|dtype| dtype.is_float() || dtype == DataType::U8);
    match (shape.len(), axis) {
        (1, 0) if shape[0] == Dimension::Unknown && is_real => SEQUENCE,
        (_, 0) => BATCH,
        (4, 1) if is_colours(3) => IMAGE,
        (4, 3) if is_colours(1) || !is_colours(3) => IMAGE,
        (4, 1) => COLOURS,
        (4, 2) => IMAGE,
        _ => SEQUENCE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(dtype: DataType, dimensions: &[&str]) -> PortSignature {
        let shape = dimensions.iter().map(|text| match (text.parse(), *text) {
            (Ok(extent), _) => Dimension::Fixed(extent),
            (_, "?") => Dimension::Unknown,
            _ => Dimension::Symbol((*text).to_owned()),
        });
        PortSignature {
            name: "x".into(),
            dtype: Some(dtype),
            shape: Some(shape.collect()),
            ..PortSignature::default()
        }
    }

    #[test]
    fn proposals_follow_names_and_ranks() {
        let cases: [(DataType, &[&str], &[usize]); 9] = [
            (DataType::F32, &["batch", "3", "height", "width"], &[1, 3, 224, 224]),
            (DataType::F32, &["?", "?", "?", "?"], &[1, 3, 224, 224]),
            (DataType::F32, &["?", "?", "?", "3"], &[1, 224, 224, 3]),
            (DataType::U8, &["N", "H", "W", "C"], &[1, 224, 224, 3]),
            (DataType::I64, &["batch_size", "sequence_length"], &[1, 128]),
            (DataType::I64, &["?", "?"], &[1, 128]),
            (DataType::F32, &["dim0", "80", "dim2"], &[1, 80, 128]),
            (DataType::F32, &["batch", "num_samples"], &[1, 16_000]),
            (DataType::F32, &["n", "past_length", "past_length + 2"], &[1, 128, 130]),
        ];
        for (dtype, dimensions, expected) in cases {
            let proposed = propose(&port(dtype, dimensions), &mut HashMap::new());
            assert_eq!(proposed, expected, "{dimensions:?}");
        }
    }

    #[test]
    fn equal_names_get_equal_extents() {
        let mut symbols = HashMap::from([("n".to_owned(), 5)]);
        let first = propose(&port(DataType::I64, &["n", "anything"]), &mut symbols);
        let second = propose(&port(DataType::F32, &["n", "3", "anything", "?"]), &mut symbols);
        assert_eq!((first, second), (vec![5, 128], vec![5, 3, 128, 224]));
    }
}
