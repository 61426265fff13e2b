//! Dimensions that are sums of others: exporters write `past_length + sequence_length` as the name of one.

use crate::{Dimension, Signature};
use std::fmt;

/// A number of positions and, of other dimensions, so many times their sizes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SizeSum {
    /// Names of dimensions, each once, with how often their sizes count; never 0.
    pub terms: Vec<(String, i64)>,
    /// What is added to them.
    pub constant: i64,
}

impl SizeSum {
    /// Reads a name as a sum: `past + 1`, `2*n - 1`, `a + b`, with or without spaces. `None` of a single name, of what is no
    /// sum of names and numbers, and of numbers alone.
    pub fn parse(text: &str) -> Option<Self> {
        let mut sum = Self::default();
        for (is_negative, term) in signed_terms(text) {
            let sign = if is_negative { -1 } else { 1 };
            let (factor, name) = term_of(term)?;
            match name {
                Some(name) => sum.add(name, factor.checked_mul(sign)?)?,
                None => sum.constant = sum.constant.checked_add(factor.checked_mul(sign)?)?,
            }
        }
        sum.terms.retain(|term| term.1 != 0);
        let is_name =
            sum.constant == 0 && matches!(&sum.terms[..], [(name, 1)] if name == text.trim());
        (!is_name && !sum.terms.is_empty()).then_some(sum)
    }

    fn add(&mut self, name: &str, factor: i64) -> Option<()> {
        match self.terms.iter_mut().find(|term| term.0 == name) {
            Some(known) => known.1 = known.1.checked_add(factor)?,
            None => self.terms.push((name.to_owned(), factor)),
        }
        Some(())
    }

    /// Its value where dimensions have sizes; `None` where one has none, or the sum is no size.
    pub fn value(&self, size: &dyn Fn(&str) -> Option<usize>) -> Option<usize> {
        let mut sum = self.constant;
        for (name, factor) in &self.terms {
            let size = i64::try_from(size(name)?).ok()?;
            sum = sum.checked_add(size.checked_mul(*factor)?)?;
        }
        usize::try_from(sum).ok()
    }
}

impl fmt::Display for SizeSum {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sign = "";
        for (name, factor) in &self.terms {
            match factor {
                1 => write!(formatter, "{sign}{name}")?,
                _ => write!(formatter, "{sign}{factor}*{name}")?,
            }
            sign = " + ";
        }
        match self.constant {
            0 => Ok(()),
            constant if constant < 0 => write!(formatter, " - {}", constant.unsigned_abs()),
            constant => write!(formatter, " + {constant}"),
        }
    }
}

/// The terms of a sum, each with whether it is subtracted.
fn signed_terms(text: &str) -> Vec<(bool, &str)> {
    let mut found = Vec::new();
    let (mut begin, mut is_negative) = (0, false);
    for (at, letter) in text.char_indices().filter(|(_, letter)| matches!(letter, '+' | '-')) {
        let term = &text[begin..at];
        if !(found.is_empty() && term.trim().is_empty()) {
            found.push((is_negative, term));
        }
        (begin, is_negative) = (at + 1, letter == '-');
    }
    found.push((is_negative, &text[begin..]));
    found
}

/// The factor of a term, and the name that it has beside it.
fn term_of(term: &str) -> Option<(i64, Option<&str>)> {
    let mut name = None;
    let mut factor: i64 = 1;
    for part in term.split('*').map(str::trim) {
        if let Ok(number) = part.parse::<u32>() {
            factor = factor.checked_mul(i64::from(number))?;
        } else if is_name(part) && name.is_none() {
            name = Some(part);
        } else {
            return None;
        }
    }
    Some((factor, name))
}

fn is_name(text: &str) -> bool {
    let is_letter = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '.');
    let begins = text.chars().next().is_some_and(|first| !first.is_ascii_digit());
    begins && text.chars().all(is_letter)
}

/// A dimension that is a sum of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SummedDimension {
    /// Its name.
    pub name: String,
    /// What it is.
    pub sum: SizeSum,
}

impl Signature {
    /// The dimensions of inputs whose names are sums of names of other dimensions of inputs that are no sums. A name
    /// with parts that no input has stays a name.
    pub(crate) fn named_sums(&self) -> Vec<SummedDimension> {
        let dimensions = self.inputs.iter().flat_map(|port| port.shape.iter().flatten());
        let names = dimensions.filter_map(|dimension| match dimension {
            Dimension::Symbol(name) => Some(name.as_str()),
            _ => None,
        });
        let (mut plain, mut sums): (Vec<&str>, Vec<SummedDimension>) = (Vec::new(), Vec::new());
        for name in names {
            match SizeSum::parse(name) {
                Some(_) if sums.iter().any(|known| known.name == name) => {}
                Some(sum) => sums.push(SummedDimension { name: name.to_owned(), sum }),
                None => plain.push(name),
            }
        }
        sums.retain(|own| own.sum.terms.iter().all(|term| plain.contains(&term.0.as_str())));
        sums
    }

    /// What a dimension is, where it is a sum of others.
    pub fn sum_of(&self, name: &str) -> Option<&SizeSum> {
        self.sums.iter().find(|own| own.name == name).map(|own| &own.sum)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_are_read_as_sums() {
        let sizes = |name: &str| match name {
            "past" => Some(7),
            "s0" => Some(3),
            _ => None,
        };
        for (text, value, shown) in [
            ("past + s0", Some(10), "past + s0"),
            ("past+1", Some(8), "past + 1"),
            ("2*s0 - 1", Some(5), "2*s0 - 1"),
            ("s0 * 2 + past", Some(13), "2*s0 + past"),
            ("1 + past", Some(8), "past + 1"),
            ("s0 - past", None, "s0 + -1*past"),
            ("past + other", None, "past + other"),
        ] {
            let sum = SizeSum::parse(text).unwrap();
            assert_eq!((sum.value(&sizes), sum.to_string().as_str()), (value, shown), "{text}");
        }
    }

    #[test]
    fn other_names_are_no_sums() {
        for text in [
            "past",
            "past_length",
            "",
            "+",
            "a +",
            "1",
            "3 + 4",
            "a*b",
            "floor(n/2)",
            "a b + 1",
            "a//2",
            "a - a",
            "unk__12",
        ] {
            assert_eq!(SizeSum::parse(text), None, "{text}");
        }
    }
}
