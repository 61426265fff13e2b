//! Functions of strings that the runtime computes itself. Operands and results hold handles ([`crate::text_handle`]).

use serde::{Deserialize, Serialize};

use crate::DataType;
use crate::host::{HostType, HostValue};
use crate::host_letters::{CaseRule, Letters};
use crate::host_tokens::Tokens;
use crate::text::Texts;

/// The functions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TextFunction {
    /// Strings of two tensors of one shape, one behind the other.
    Concat,
    /// Parts between delimiters: operand `[...]`; results: parts `[..., room]`, filled up with empty strings, how
    /// many each string has (`i64[...]`), and the most of them.
    Split {
        /// What stands between parts; without it white space of any length, none of it in a part.
        delimiter: Option<String>,
        /// Most cuts of a string.
        most: Option<u64>,
        /// Parts of a string for which there is room; a run that needs more ends in an error.
        room: u64,
    },
    /// Strings without some, their letters changed: operand `[n]` or `[1, n]`; results: what is left, an empty
    /// string where nothing is, and how many.
    Normalize {
        /// How letters are changed.
        letters: Letters,
        /// Which letters they become.
        #[serde(default)]
        rule: CaseRule,
        /// Whether letters of either case differ where strings are compared with `stopwords`.
        case_sensitive: bool,
        /// Strings that are left out.
        stopwords: Vec<String>,
    },
    /// Strings of any tensor with their letters changed.
    Case {
        /// How.
        letters: Letters,
        /// Which letters they become.
        rule: CaseRule,
    },
    /// Tokens of strings: operand `[...]`; results: tokens `[..., room]`, of all strings as many, and how many.
    Tokenize {
        /// What tokens are.
        tokens: Tokens,
        /// Tokens of a string for which there is room; a run that needs more ends in an error.
        room: u64,
    },
    /// Whether a whole string is accepted by an automaton over its UTF-8 bytes.
    Match(Automaton),
    /// Numbers (`f32`, `f64`, `i64`, `u64` or `bool`) in decimal: floats with 8 or 17 significant digits, by
    /// powers of ten where that is shorter, `NaN`, `INF`, `-INF`; truth values as `1` and `0`.
    FromNumber,
    /// The numbers that strings say, white space around them left out.
    ToNumber {
        /// `f32`, `f64`, `i64` or `u64`.
        dtype: DataType,
    },
}

/// A deterministic automaton. Matching takes a step for each byte.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Automaton {
    /// The class of each of the 256 bytes.
    pub classes: Vec<u8>,
    /// How many classes there are.
    pub width: u32,
    /// The state after each class in each state, `[states, width]`.
    pub next: Vec<u32>,
    /// The state in which a string begins.
    pub start: u32,
    /// Whether a string is accepted that ends in a state.
    pub accepts: Vec<bool>,
}

impl Automaton {
    fn check(&self) -> Result<(), String> {
        let (width, states) = (self.width as usize, self.accepts.len());
        let fits = self.classes.len() == 256
            && self.classes.iter().all(|class| usize::from(*class) < width)
            && width.checked_mul(states) == Some(self.next.len())
            && self.next.iter().chain([&self.start]).all(|state| (*state as usize) < states);
        if fits { Ok(()) } else { Err("its automaton does not hold together".to_owned()) }
    }

    /// Whether it accepts a text. It holds together.
    fn accepts(&self, text: &str) -> bool {
        let mut state = self.start as usize;
        for byte in text.bytes() {
            let class = usize::from(self.classes[usize::from(byte)]);
            state = self.next[state * self.width as usize + class] as usize;
        }
        self.accepts[state]
    }
}

impl TextFunction {
    /// As [`crate::HostFunction::outputs`].
    pub(crate) fn outputs(&self, inputs: &[Option<&HostType>]) -> Result<Vec<HostType>, String> {
        let wrong = || Err("an operand has another type than the function takes".to_owned());
        let types: Option<Vec<&HostType>> = inputs.iter().copied().collect();
        let types = types.ok_or("an operand is missing")?;
        let is_text = |entry: &&HostType| entry.dtype == DataType::U64;
        let (count, data) = (HostType::new(DataType::I64, []), types.first().copied());
        let data = data.ok_or("an operand is missing")?;
        let same = |dtype| Ok(vec![HostType::new(dtype, data.shape.clone())]);
        match (self, &types[..]) {
            (Self::FromNumber, [_]) => match data.dtype {
                DataType::F32 | DataType::F64 | DataType::I64 | DataType::U64 | DataType::Bool => {
                    same(DataType::U64)
                }
                _ => wrong(),
            },
            _ if !types.iter().all(is_text) => wrong(),
            (Self::Concat, [a, b]) if a == b => same(DataType::U64),
            (Self::Split { room, .. }, [_]) => {
                let parts = [&data.shape[..], &[*room]].concat();
                let lengths = HostType::new(DataType::I64, data.shape.clone());
                Ok(vec![HostType::new(DataType::U64, parts), lengths, count])
            }
            (Self::Normalize { .. }, [_]) => {
                let mut shape = data.shape.clone();
                if shape.is_empty() || shape.len() > 2 || (shape.len() == 2 && shape[0] != 1) {
                    return wrong();
                }
                shape.iter_mut().for_each(|extent| *extent = (*extent).max(1));
                Ok(vec![HostType::new(DataType::U64, shape), count])
            }
            (Self::Case { .. }, [_]) => same(DataType::U64),
            (Self::Tokenize { tokens, room }, [_]) => {
                tokens.check()?;
                let shape = [&data.shape[..], &[*room]].concat();
                Ok(vec![HostType::new(DataType::U64, shape), count])
            }
            (Self::Match(automaton), [_]) => {
                automaton.check()?;
                same(DataType::Bool)
            }
            (Self::ToNumber { dtype }, [_]) => match dtype {
                DataType::F32 | DataType::F64 | DataType::I64 | DataType::U64 => same(*dtype),
                _ => wrong(),
            },
            _ => wrong(),
        }
    }

    /// As [`crate::HostFunction::compute`], of operands that [`TextFunction::outputs`] takes; results may be shorter
    /// than their types say.
    pub(crate) fn compute(
        &self,
        inputs: &[&HostValue<'_>],
        texts: &mut Texts,
    ) -> Result<Vec<Vec<u8>>, String> {
        let data = inputs.first().ok_or("an operand is missing")?;
        match self {
            Self::Concat => {
                let other = inputs.get(1).ok_or("an operand is missing")?;
                let pairs = handles(data).zip(handles(other));
                let joined = pairs.map(|(a, b)| {
                    let joined = [texts.text(a)?, texts.text(b)?].concat();
                    texts.intern(&joined)
                });
                Ok(vec![bytes(joined.collect::<Result<_, _>>()?)])
            }
            Self::Split { delimiter, most, room } => split(
                data,
                delimiter.as_deref().filter(|entry| !entry.is_empty()),
                *most,
                *room,
                texts,
            ),
            Self::Normalize { letters, rule, case_sensitive, stopwords } => {
                let key = |text: &str| match (case_sensitive, letters) {
                    (true, _) => text.to_owned(),
                    (false, Letters::Upper) => rule.apply(Letters::Upper, text),
                    (false, _) => rule.apply(Letters::Lower, text),
                };
                normalize(data, key, |text| rule.apply(*letters, text), stopwords, texts)
            }
            Self::Case { letters, rule } => {
                let changed = handles(data).map(|entry| {
                    let changed = rule.apply(*letters, texts.text(entry)?);
                    texts.intern(&changed)
                });
                Ok(vec![bytes(changed.collect::<Result<_, _>>()?)])
            }
            Self::Tokenize { tokens, room } => tokenize(data, tokens, *room, texts),
            Self::Match(automaton) => {
                let found = handles(data)
                    .map(|entry| texts.text(entry).map(|text| u8::from(automaton.accepts(text))));
                Ok(vec![found.collect::<Result<_, _>>()?])
            }
            Self::FromNumber => {
                let said = numbers(data).into_iter().map(|entry| texts.intern(&entry));
                Ok(vec![bytes(said.collect::<Result<_, _>>()?)])
            }
            Self::ToNumber { dtype } => {
                let mut result = Vec::new();
                for entry in handles(data) {
                    let text = texts.text(entry)?;
                    let number = parse(text.trim(), *dtype);
                    result.extend(number.ok_or_else(|| {
                        let shown: String = text.chars().take(40).collect();
                        format!("{shown:?} is no {dtype}")
                    })?);
                }
                Ok(vec![result])
            }
        }
    }
}

fn handles<'a>(value: &HostValue<'a>) -> impl Iterator<Item = u64> + use<'a> {
    value.bytes.chunks_exact(8).map(|entry| u64::from_ne_bytes(crate::host::head(entry)))
}

fn bytes(handles: Vec<u64>) -> Vec<u8> {
    handles.into_iter().flat_map(u64::to_ne_bytes).collect()
}

fn split(
    data: &HostValue<'_>,
    delimiter: Option<&str>,
    most: Option<u64>,
    room: u64,
    texts: &mut Texts,
) -> Result<Vec<Vec<u8>>, String> {
    let most = most.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
    let mut rows: Vec<Vec<u64>> = Vec::new();
    for entry in handles(data) {
        let text = texts.text(entry)?.to_owned();
        let mut row = Vec::new();
        let mut add = |part: &str| -> Result<(), String> {
            if row.len() as u64 >= room {
                return Err(format!(
                    "a string has more than the {room} parts for which there is room"
                ));
            }
            row.push(texts.intern(part)?);
            Ok(())
        };
        match delimiter {
            Some(delimiter) => {
                text.splitn(most.saturating_add(1), delimiter).try_for_each(&mut add)?;
            }
            None => {
                let mut rest = text.trim();
                for _ in 0..most {
                    let Some(end) = rest.find(char::is_whitespace) else { break };
                    add(&rest[..end])?;
                    rest = rest[end..].trim_start();
                }
                if !rest.is_empty() {
                    add(rest)?;
                }
            }
        }
        rows.push(row);
    }
    let wide = rows.iter().map(Vec::len).max().unwrap_or(0);
    let lengths = rows.iter().flat_map(|row| (row.len() as i64).to_ne_bytes()).collect();
    let empty = texts.intern("")?;
    rows.iter_mut().for_each(|row| row.resize(wide, empty));
    Ok(vec![bytes(rows.concat()), lengths, (wide as i64).to_ne_bytes().to_vec()])
}

/// What is left of strings whose `key` is none of those of `stopwords`, changed.
fn normalize(
    data: &HostValue<'_>,
    key: impl Fn(&str) -> String,
    change: impl Fn(&str) -> String,
    stopwords: &[String],
    texts: &mut Texts,
) -> Result<Vec<Vec<u8>>, String> {
    let stopped: std::collections::HashSet<String> =
        stopwords.iter().map(|text| key(text)).collect();
    let mut left = Vec::new();
    for entry in handles(data) {
        let text = texts.text(entry)?;
        if stopped.contains(&key(text)) {
            continue;
        }
        let changed = change(text);
        left.push(texts.intern(&changed)?);
    }
    if left.is_empty() {
        left.push(texts.intern("")?);
    }
    let count = (left.len() as i64).to_ne_bytes().to_vec();
    Ok(vec![bytes(left), count])
}

fn tokenize(
    data: &HostValue<'_>,
    tokens: &Tokens,
    room: u64,
    texts: &mut Texts,
) -> Result<Vec<Vec<u8>>, String> {
    let mut rows: Vec<Vec<u64>> = Vec::new();
    for entry in handles(data) {
        let text = texts.text(entry)?.to_owned();
        let mut row = Vec::new();
        tokens.each(&text, |token| {
            row.push(texts.intern(token)?);
            Ok(())
        })?;
        if row.len() as u64 > room {
            return Err(too_many(row.len(), room));
        }
        rows.push(row);
    }
    tokens.squared(&mut rows, |token| texts.intern(token))?;
    let most = rows.first().map_or(0, Vec::len);
    if most as u64 > room {
        return Err(too_many(most, room));
    }
    Ok(vec![bytes(rows.concat()), (most as i64).to_ne_bytes().to_vec()])
}

fn too_many(most: usize, room: u64) -> String {
    format!(
        "a string has {most} tokens, and there is room for {room}: declare the shape of the tokens in the model, or \
         give shorter strings"
    )
}

/// The elements as text.
fn numbers(data: &HostValue<'_>) -> Vec<String> {
    use crate::host::head;
    let eights = || data.bytes.chunks_exact(8);
    match data.of.dtype {
        DataType::F32 => {
            let elements = data.bytes.chunks_exact(4);
            elements.map(|entry| decimal(f64::from(f32::from_ne_bytes(head(entry))), 8)).collect()
        }
        DataType::F64 => {
            eights().map(|entry| decimal(f64::from_ne_bytes(head(entry)), 17)).collect()
        }
        DataType::I64 => {
            eights().map(|entry| i64::from_ne_bytes(head(entry)).to_string()).collect()
        }
        DataType::U64 => {
            eights().map(|entry| u64::from_ne_bytes(head(entry)).to_string()).collect()
        }
        _ => data.bytes.iter().map(|entry| entry.to_string()).collect(),
    }
}

/// A number with so many significant digits and no zeros at its end, as C prints it by `%g`.
fn decimal(value: f64, digits: usize) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "INF" } else { "-INF" }.to_owned();
    }
    let scientific = format!("{value:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let cut = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", cut(mantissa), exponent.unsigned_abs());
    }
    cut(&format!("{value:.*}", (digits as i32 - 1 - exponent).max(0) as usize))
}

fn parse(text: &str, dtype: DataType) -> Option<Vec<u8>> {
    Some(match dtype {
        DataType::F32 => text.parse::<f32>().ok()?.to_ne_bytes().to_vec(),
        DataType::F64 => text.parse::<f64>().ok()?.to_ne_bytes().to_vec(),
        DataType::I64 => text.parse::<i64>().ok()?.to_ne_bytes().to_vec(),
        _ => text.parse::<u64>().ok()?.to_ne_bytes().to_vec(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn run(function: &TextFunction, input: &[&str]) -> Result<Vec<Vec<u8>>, String> {
        let mut texts = Texts::default();
        let made: Vec<u64> = input.iter().map(|entry| texts.intern(entry).unwrap()).collect();
        let of = HostType::new(DataType::U64, [input.len() as u64]);
        let content = bytes(made);
        function.outputs(&[Some(&of)])?;
        function.compute(&[&HostValue { of: &of, bytes: &content }], &mut texts)
    }

    fn split(text: &str, delimiter: Option<&str>, most: Option<u64>) -> usize {
        let delimiter = delimiter.map(str::to_owned);
        let result = run(&TextFunction::Split { delimiter, most, room: 10 }, &[text]).unwrap();
        assert_eq!(result[0].len(), result[2][0] as usize * 8);
        result[0].len() / 8
    }

    #[test]
    fn strings_are_split_as_python_does() {
        assert_eq!([split("a.b.", Some("."), None), split("", Some("."), None)], [3, 1]);
        assert_eq!([split("  a  b ", None, None), split("", None, None)], [2, 0]);
        assert_eq!([split(" a b c", None, Some(1)), split("a-b-c", Some("-"), Some(0))], [2, 1]);
        let narrow = TextFunction::Split { delimiter: None, most: None, room: 1 };
        assert!(run(&narrow, &["a b"]).unwrap_err().contains("room"));
    }

    #[test]
    fn numbers_are_written_as_c_writes_them() {
        let cases = [
            (0.0, "0"),
            (-1.5, "-1.5"),
            (100_000.0, "100000"),
            (0.000_012_5, "1.25e-05"),
            (1e20, "1e+20"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-INF"),
            (0.1, "0.1"),
            (123_456_789.0, "1.2345679e+08"),
            (99_999_999.9, "1e+08"),
        ];
        for (value, text) in cases {
            assert_eq!(decimal(value, 8), text);
        }
        assert_eq!(decimal(0.1, 17), "0.10000000000000001");
    }

    #[test]
    fn what_is_no_number_ends_the_run() {
        let to = |dtype| TextFunction::ToNumber { dtype };
        assert_eq!(run(&to(DataType::I64), &[" -7 "]).unwrap()[0], (-7i64).to_ne_bytes());
        assert_eq!(run(&to(DataType::F32), &["1e2"]).unwrap()[0], 100f32.to_ne_bytes());
        let error = run(&to(DataType::U64), &["-1\n\u{7}"]).unwrap_err();
        assert_eq!(error, "\"-1\\n\\u{7}\" is no u64");
    }

    #[test]
    fn an_automaton_from_elsewhere_is_checked() {
        let sound = Automaton {
            classes: vec![0; 256],
            width: 1,
            next: vec![1, 1],
            start: 0,
            accepts: vec![true, false],
        };
        let matched = |entry: &Automaton| run(&TextFunction::Match(entry.clone()), &["", "a"]);
        assert_eq!(matched(&sound).unwrap()[0], [1, 0]);
        let mut wild = sound.clone();
        wild.next[0] = 2;
        assert!(matched(&wild).is_err());
        wild = sound.clone();
        wild.classes[7] = 1;
        assert!(matched(&wild).is_err());
        wild = Automaton { start: 9, ..sound };
        assert!(matched(&wild).is_err());
    }

    #[test]
    fn a_handle_without_a_string_is_refused() {
        let of = HostType::new(DataType::U64, [1]);
        let content = 5u64.to_ne_bytes();
        let value = HostValue { of: &of, bytes: &content };
        let concat = TextFunction::Concat.compute(&[&value, &value], &mut Texts::default());
        assert!(concat.unwrap_err().contains("handle 0x5"));
    }
}
