//! Functions of strings. Their operands and results are of `u64`: handles of strings ([`hone_types::intern_text`]).
//! What only moves strings or compares them is done by operators of numbers. They have no tensor expression: the
//! runtime computes them itself.

use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::shape::bounded;
use crate::text_pattern;
use crate::text_tokens::Tokens;
use hone_graph::InferError;
use hone_types::{DataType, Tensor, TensorType, intern_text, text_of};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A function of strings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TextFunction {
    /// ONNX `StringConcat`, of two tensors of one shape.
    Concat,
    /// ONNX `StringSplit`. Input: any; outputs: parts `[.., room]`, filled up with empty strings, how many each string
    /// has, and the most of them.
    Split {
        /// What stands between parts; without it white space of any length.
        delimiter: Option<String>,
        /// Most cuts of a string.
        most: Option<usize>,
        /// Parts of a string for which there is room.
        room: usize,
    },
    /// ONNX `StringNormalizer`. Input `[n]` or `[1, n]`; outputs: what is left, an empty string where nothing is, and
    /// how many.
    Normalize {
        /// How letters are changed.
        letters: Letters,
        /// Which letters they become.
        rule: CaseRule,
        /// Whether letters of either case differ where strings are compared with `stopwords`.
        case_sensitive: bool,
        /// Strings that are left out.
        stopwords: Vec<String>,
    },
    /// Letters of any tensor changed.
    Case {
        /// How.
        letters: Letters,
        /// Which letters they become.
        rule: CaseRule,
    },
    /// `com.microsoft.Tokenizer`. Input: any; outputs: tokens `[.., room]`, all strings with as many, and how many.
    Tokenize {
        /// What tokens are.
        tokens: Tokens,
        /// Tokens of a string for which there is room.
        room: usize,
    },
    /// ONNX `RegexFullMatch`: whether a pattern in RE2's syntax matches the whole string.
    Match {
        /// The pattern.
        pattern: String,
    },
    /// ONNX `Cast` to strings, of `f32`, `f64`, `i64`, `u64` or `bool`: floats with 8 or 17 significant digits.
    FromNumber,
    /// ONNX `Cast` of strings.
    ToNumber {
        /// `f32`, `f64`, `i64` or `u64`.
        to: NumberType,
    },
}

/// How letters are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Letters {
    /// Not at all.
    Keep,
    /// To lower case.
    Lower,
    /// To upper case.
    Upper,
}

/// Which letter one becomes whose case changes: always one, so that a text keeps its length in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CaseRule {
    /// What Unicode's simple mappings say.
    #[default]
    Unicode,
    /// The same, but of the Turkic languages: `I` and `ı`, `İ` and `i` belong together.
    Turkic,
    /// Only those of ASCII change.
    Ascii,
}

impl CaseRule {
    /// A text with its letters changed.
    pub fn changed(self, text: &str, letters: Letters) -> String {
        let change = |letter: char| match letters {
            Letters::Keep => letter,
            Letters::Lower => self.lower(letter),
            Letters::Upper => self.upper(letter),
        };
        text.chars().map(change).collect()
    }

    fn lower(self, letter: char) -> char {
        match (self, letter) {
            (Self::Ascii, _) => letter.to_ascii_lowercase(),
            (Self::Turkic, 'I') => 'ı',
            (_, 'İ') => 'i',
            _ => single(letter.to_lowercase()).unwrap_or(letter),
        }
    }

    fn upper(self, letter: char) -> char {
        match (self, letter) {
            (Self::Ascii, _) => letter.to_ascii_uppercase(),
            (Self::Turkic, 'i') => 'İ',
            // Greek vowels with an iota below, whose full mapping writes it beside them.
            (_, '\u{1f80}'..='\u{1faf}') => char::from_u32(letter as u32 | 8).unwrap_or(letter),
            (_, 'ᾳ' | 'ῃ' | 'ῳ') => char::from_u32(letter as u32 + 9).unwrap_or(letter),
            _ => single(letter.to_uppercase()).unwrap_or(letter),
        }
    }
}

/// The only one of some characters.
fn single(mut characters: impl Iterator<Item = char>) -> Option<char> {
    let first = characters.next();
    first.filter(|_| characters.next().is_none())
}

/// Numbers that are read from strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NumberType {
    /// `f32`.
    F32,
    /// `f64`.
    F64,
    /// `i64`.
    I64,
    /// `u64`.
    U64,
}

impl NumberType {
    /// The element type.
    pub fn data_type(self) -> DataType {
        match self {
            Self::F32 => DataType::F32,
            Self::F64 => DataType::F64,
            Self::I64 => DataType::I64,
            Self::U64 => DataType::U64,
        }
    }
}

/// A node of a [`TextFunction`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Text {
    /// What is computed.
    pub function: TextFunction,
}

impl Text {
    /// Name in text forms.
    pub const NAME: &'static str = "text";

    /// Whether it cuts texts into tokens, of which there may be as many as characters.
    pub(crate) fn cuts_texts(&self) -> bool {
        matches!(self.function, TextFunction::Tokenize { .. })
    }
}

impl Operator for Text {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let data = required(Self::NAME, inputs, 0)?;
        let refuse = || Err(InferError::new(format!("{data} is not what it takes")));
        let same = |dtype| Ok(vec![TensorType::new(dtype, data.shape.clone())]);
        let count = TensorType::new(DataType::I64, []);
        let operands = if self.function == TextFunction::Concat { 2 } else { 1 };
        if inputs.len() != operands {
            return refuse();
        }
        if self.function == TextFunction::FromNumber {
            use DataType as D;
            let known = [D::F32, D::F64, D::I64, D::U64, D::Bool];
            return if known.contains(&data.dtype) { same(D::U64) } else { refuse() };
        }
        if data.dtype != DataType::U64 {
            return refuse();
        }
        match &self.function {
            TextFunction::Concat if required(Self::NAME, inputs, 1)? == data => same(DataType::U64),
            TextFunction::Concat | TextFunction::FromNumber => refuse(),
            TextFunction::Split { room, .. } => {
                let parts = bounded(DataType::U64, [&data.shape[..], &[*room]].concat())?;
                Ok(vec![parts, TensorType::new(DataType::I64, data.shape.clone()), count])
            }
            TextFunction::Normalize { .. } => match data.shape[..] {
                [n] => Ok(vec![TensorType::new(DataType::U64, [n.max(1)]), count]),
                [1, n] => Ok(vec![TensorType::new(DataType::U64, [1, n.max(1)]), count]),
                _ => refuse(),
            },
            TextFunction::Case { .. } => same(DataType::U64),
            TextFunction::Tokenize { room, .. } => {
                let tokens = bounded(DataType::U64, [&data.shape[..], &[*room]].concat())?;
                Ok(vec![tokens, count])
            }
            TextFunction::Match { .. } => same(DataType::Bool),
            TextFunction::ToNumber { to } => same(to.data_type()),
        }
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Opaque
    }

    fn is_compiled(&self) -> bool {
        false
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let types: Vec<Option<&TensorType>> =
            inputs.iter().map(|input| input.map(Tensor::tensor_type)).collect();
        let output = self.infer(&types)?.remove(0);
        let data = required(Self::NAME, inputs, 0)?;
        match &self.function {
            TextFunction::Concat => {
                let pairs = texts(data)?.into_iter().zip(texts(required(Self::NAME, inputs, 1)?)?);
                let joined: Vec<String> = pairs.map(|(a, b)| format!("{a}{b}")).collect();
                Ok(vec![handles(&output, &joined)?])
            }
            TextFunction::Split { delimiter, most, room } => {
                split(data, &output, delimiter.as_deref(), *most, *room)
            }
            TextFunction::Normalize { letters, rule, case_sensitive, stopwords } => {
                let compared =
                    if *letters == Letters::Upper { Letters::Upper } else { Letters::Lower };
                let key = |entry: &str| match case_sensitive {
                    true => entry.to_owned(),
                    false => rule.changed(entry, compared),
                };
                let stopped: Vec<String> = stopwords.iter().map(|entry| key(entry)).collect();
                let strings = texts(data)?;
                let left = strings.iter().filter(|entry| !stopped.contains(&key(entry)));
                let mut changed: Vec<String> =
                    left.map(|entry| rule.changed(entry, *letters)).collect();
                if changed.is_empty() {
                    changed.push(String::new());
                }
                let count = Tensor::scalar(changed.len() as i64);
                Ok(vec![handles(&output, &changed)?, count])
            }
            TextFunction::Case { letters, rule } => {
                let strings = texts(data)?;
                let changed = strings.iter().map(|entry| rule.changed(entry, *letters));
                Ok(vec![handles(&output, &changed.collect::<Vec<_>>())?])
            }
            TextFunction::Tokenize { tokens, room } => {
                let rows = tokens.rows(&texts(data)?).map_err(OpError::Value)?;
                let most = rows.first().map_or(0, Vec::len);
                if most > *room {
                    return Err(OpError::Value(format!("a string has {most} tokens, not {room}")));
                }
                Ok(vec![handles(&output, &rows.concat())?, Tensor::scalar(most as i64)])
            }
            TextFunction::Match { pattern } => {
                let matches = text_pattern::matches(pattern, &texts(data)?);
                let matches = matches.map_err(OpError::Value)?;
                Ok(vec![Tensor::from_elements(data.shape(), &matches)?])
            }
            TextFunction::FromNumber => Ok(vec![handles(&output, &written(data)?)?]),
            TextFunction::ToNumber { to } => read(data, *to),
        }
    }
}

fn split(
    data: &Tensor,
    output: &TensorType,
    delimiter: Option<&str>,
    most: Option<usize>,
    room: usize,
) -> Result<Vec<Tensor>, OpError> {
    let delimiter = delimiter.filter(|entry| !entry.is_empty());
    let strings = texts(data)?;
    let parts: Vec<Vec<&str>> = strings.iter().map(|entry| parts(entry, delimiter, most)).collect();
    let wide = parts.iter().map(Vec::len).max().unwrap_or(0);
    if wide > room {
        return Err(OpError::Value(format!("a string has {wide} parts, not {room}")));
    }
    let rows = parts
        .iter()
        .flat_map(|row| (0..wide).map(|at| row.get(at).copied().unwrap_or_default().to_owned()));
    let lengths: Vec<i64> = parts.iter().map(|row| row.len() as i64).collect();
    Ok(vec![
        handles(output, &rows.collect::<Vec<_>>())?,
        Tensor::from_elements(data.shape(), &lengths)?,
        Tensor::scalar(wide as i64),
    ])
}

/// The handle of a string.
pub(crate) fn interned(text: &str) -> Result<u64, OpError> {
    intern_text(text).map_err(|error| OpError::Value(error.to_string()))
}

/// The strings of a tensor.
pub(crate) fn texts(data: &Tensor) -> Result<Vec<Arc<str>>, OpError> {
    let text = |handle: u64| {
        text_of(handle).ok_or_else(|| OpError::Value(format!("{handle:#x} stands for no string")))
    };
    data.elements::<u64>()?.into_iter().map(text).collect()
}

/// Strings as the first elements of a tensor, zeros behind them.
fn handles(of: &TensorType, texts: &[String]) -> Result<Tensor, OpError> {
    let mut handles = Vec::with_capacity(of.elements());
    for text in texts {
        handles.push(interned(text)?);
    }
    handles.resize(of.elements(), 0);
    Ok(Tensor::from_elements(of.shape.clone(), &handles)?)
}

/// The parts of a string, as Python's `str.split` makes them.
fn parts<'a>(text: &'a str, delimiter: Option<&str>, most: Option<usize>) -> Vec<&'a str> {
    let most = most.unwrap_or(usize::MAX);
    if let Some(delimiter) = delimiter {
        return text.splitn(most.saturating_add(1), delimiter).collect();
    }
    let mut words: Vec<&str> = text.split_whitespace().collect();
    if words.len() > most {
        // What is not cut begins with the word behind the last cut.
        let start = words[most].as_ptr().addr() - text.as_ptr().addr();
        words.truncate(most);
        words.push(text[start..].trim_end());
    }
    words
}

/// Numbers in decimal.
fn written(data: &Tensor) -> Result<Vec<String>, OpError> {
    Ok(match data.dtype() {
        DataType::U64 => data.elements::<u64>()?.iter().map(u64::to_string).collect(),
        DataType::F32 => data.to_f64().into_iter().map(|entry| decimal(entry, 8)).collect(),
        DataType::F64 => data.to_f64().into_iter().map(|entry| decimal(entry, 17)).collect(),
        _ => data.to_i64().iter().map(i64::to_string).collect(),
    })
}

/// A float with so many significant digits: the shorter of a plain number and one with a power of ten.
fn decimal(value: f64, digits: i32) -> String {
    match value {
        _ if value.is_nan() => return "NaN".into(),
        f64::INFINITY => return "INF".into(),
        f64::NEG_INFINITY => return "-INF".into(),
        _ => {}
    }
    let rounded = format!("{value:.*e}", digits as usize - 1);
    let power: i32 =
        rounded.split('e').next_back().and_then(|entry| entry.parse().ok()).unwrap_or(0);
    let plain = (-4..digits).contains(&power);
    let places = if plain { digits - 1 - power } else { digits - 1 };
    let number = match plain {
        true => format!("{value:.*}", places as usize),
        false => rounded.split('e').next().unwrap_or_default().to_owned(),
    };
    let short = match places {
        0 => number,
        _ => number.trim_end_matches('0').trim_end_matches('.').to_owned(),
    };
    match plain {
        true => short,
        false if power < 0 => format!("{short}e-{:02}", -power),
        false => format!("{short}e+{power:02}"),
    }
}

fn read(data: &Tensor, to: NumberType) -> Result<Vec<Tensor>, OpError> {
    fn all<T: std::str::FromStr + hone_types::Element>(data: &Tensor) -> Result<Tensor, OpError> {
        let number = |entry: &Arc<str>| {
            let refused = || OpError::Value(format!("{entry:?} is no {}", T::TYPE));
            entry.trim().parse::<T>().map_err(|_| refused())
        };
        let numbers: Vec<T> = texts(data)?.iter().map(number).collect::<Result<_, _>>()?;
        Ok(Tensor::from_elements(data.shape(), &numbers)?)
    }
    Ok(vec![match to {
        NumberType::F32 => all::<f32>(data)?,
        NumberType::F64 => all::<f64>(data)?,
        NumberType::I64 => all::<i64>(data)?,
        NumberType::U64 => all::<u64>(data)?,
    }])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn tensor(texts: &[&str]) -> Tensor {
        let handles: Vec<u64> = texts.iter().map(|entry| intern_text(entry).unwrap()).collect();
        Tensor::from_elements([texts.len()], &handles).unwrap()
    }

    fn run(function: TextFunction, inputs: &[&Tensor]) -> Vec<Tensor> {
        let inputs: Vec<Option<&Tensor>> = inputs.iter().map(|entry| Some(*entry)).collect();
        Text { function }.reference(&inputs).unwrap()
    }

    fn strings(tensor: &Tensor) -> Vec<String> {
        texts(tensor).unwrap().iter().map(|entry| entry.to_string()).collect()
    }

    #[test]
    fn strings_are_joined_split_and_normalized() {
        let joined = run(TextFunction::Concat, &[&tensor(&["a", ""]), &tensor(&["b", "ü"])]);
        assert_eq!(strings(&joined[0]), ["ab", "ü"]);
        let split = TextFunction::Split { delimiter: None, most: Some(1), room: 3 };
        let split = run(split, &[&tensor(&[" a  b c ", "d"])]);
        assert_eq!(strings(&split[0])[..4], ["a", "b c", "d", ""]);
        assert_eq!((split[1].to_i64(), split[2].to_i64()), (vec![2, 1], vec![2]));
        let (letters, stopwords) = (Letters::Upper, vec!["MONDAY".to_owned()]);
        let rule = CaseRule::Unicode;
        let entry = TextFunction::Normalize { letters, rule, case_sensitive: false, stopwords };
        let left = run(entry.clone(), &[&tensor(&["monday", "tuesday"])]);
        assert_eq!(
            (strings(&left[0]), left[1].to_i64()),
            (vec!["TUESDAY".into(), "".into()], vec![1])
        );
        assert_eq!(strings(&run(entry, &[&tensor(&["Monday"])])[0]), [""]);
    }

    #[test]
    fn letters_stay_single() {
        let check = |rule: CaseRule, text: &str, lower: &str, upper: &str| {
            assert_eq!(rule.changed(text, Letters::Lower), lower);
            assert_eq!(rule.changed(text, Letters::Upper), upper);
        };
        check(CaseRule::Unicode, "ÀIİıßΣςǅŉᾀᾈᾳﬁẞა", "àiiıßσςǆŉᾀᾀᾳﬁßა", "ÀIİIßΣΣǄŉᾈᾈᾼﬁẞᲐ");
        check(CaseRule::Turkic, "IiİıÀ", "ıiiıà", "IİİIÀ");
        check(CaseRule::Ascii, "ÀaZ", "Àaz", "ÀAZ");
        assert_eq!(CaseRule::Turkic.changed("Iß", Letters::Keep), "Iß");
    }

    #[test]
    fn numbers_are_written_and_read() {
        let floats = Tensor::from_elements([3], &[0.1f32, 1e20, -2.0]).unwrap();
        let written = run(TextFunction::FromNumber, &[&floats]);
        assert_eq!(strings(&written[0]), ["0.1", "1e+20", "-2"]);
        let read = run(TextFunction::ToNumber { to: NumberType::F32 }, &[&written[0]]);
        assert_eq!(read[0], floats);
        let text = Text { function: TextFunction::ToNumber { to: NumberType::I64 } };
        assert!(text.reference(&[Some(&tensor(&["1.5"]))]).is_err());
    }
}
