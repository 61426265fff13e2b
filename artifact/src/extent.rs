//! How large a dimension shall be: one size, a list of sizes, all of a range, or any size.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Most sizes of one dimension, and most combinations of the sizes of all dimensions: each is compiled, verified and
/// measured.
pub const MOST_SIZES: usize = 32;

/// The sizes of one axis, in elements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Extent {
    /// One size.
    One(i64),
    /// Each of some sizes, called buckets.
    Sizes(Vec<i64>),
    /// Each size from one to another.
    Range {
        /// The smallest.
        min: i64,
        /// The largest.
        max: i64,
    },
    /// Any size from one on, where the model maps over the dimension.
    From {
        /// The smallest; 1.
        min: i64,
    },
}

/// Why an extent is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExtentError {
    /// A text of another form.
    #[error(
        "'{text}' is no size: use one size (16), several (16|32|64), a range (1..8), or any size (1..)"
    )]
    Syntax {
        /// The text.
        text: String,
    },
    /// A size below zero.
    #[error("{size} is no size: sizes must not be negative")]
    Negative {
        /// The size.
        size: i64,
    },
    /// A list without sizes.
    #[error("there is no size in the list: name at least one")]
    Empty,
    /// A range that ends before it begins.
    #[error("the range {min}..{max} has no size: write the smaller one first")]
    Reversed {
        /// Where it begins.
        min: i64,
        /// Where it ends.
        max: i64,
    },
    /// An open range that begins elsewhere.
    #[error("{min}.. is no range of sizes: any size is written 1..")]
    Start {
        /// Where it begins.
        min: i64,
    },
    /// Any size, where sizes have to be named.
    #[error("any size (1..) cannot be taken here: name the sizes")]
    Any,
    /// More sizes than are compiled.
    #[error(
        "{count} sizes are more than the {MOST_SIZES} that one artifact serves, since code is made for each: name those that are needed most (16|32|64|128), or give a range (1..512)"
    )]
    Many {
        /// How many.
        count: u64,
    },
}

impl From<i64> for Extent {
    fn from(size: i64) -> Self {
        Self::One(size)
    }
}

impl Extent {
    /// The size, where it is one.
    pub fn single(&self) -> Option<i64> {
        match self {
            Self::One(size) => Some(*size),
            Self::Sizes(_) | Self::Range { .. } | Self::From { .. } => None,
        }
    }

    /// Whether it is any size.
    ///
    /// # Errors
    /// [`ExtentError::Start`] of an open range that does not begin at 1.
    pub fn is_any(&self) -> Result<bool, ExtentError> {
        match self {
            Self::From { min: 1 } => Ok(true),
            Self::From { min } => Err(ExtentError::Start { min: *min }),
            Self::One(_) | Self::Sizes(_) | Self::Range { .. } => Ok(false),
        }
    }

    /// All sizes, ascending, each once.
    ///
    /// # Errors
    /// See [`ExtentError`].
    pub fn sizes(&self) -> Result<Vec<u64>, ExtentError> {
        let mut all = match self {
            Self::One(size) => vec![*size],
            Self::From { min: 1 } => return Err(ExtentError::Any),
            Self::From { min } => return Err(ExtentError::Start { min: *min }),
            Self::Sizes(sizes) if sizes.is_empty() => return Err(ExtentError::Empty),
            Self::Sizes(sizes) => sizes.clone(),
            Self::Range { min, max } if min > max => {
                return Err(ExtentError::Reversed { min: *min, max: *max });
            }
            Self::Range { min, max } => {
                let count = max.abs_diff(*min).saturating_add(1);
                if count > MOST_SIZES as u64 {
                    return Err(ExtentError::Many { count });
                }
                (*min..=*max).collect()
            }
        };
        all.sort_unstable();
        all.dedup();
        if all.len() > MOST_SIZES {
            return Err(ExtentError::Many { count: all.len() as u64 });
        }
        let size =
            |size: &i64| u64::try_from(*size).map_err(|_| ExtentError::Negative { size: *size });
        all.iter().map(size).collect()
    }
}

/// As it is read.
impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(size) => write!(f, "{size}"),
            Self::Range { min, max } => write!(f, "{min}..{max}"),
            Self::From { min } => write!(f, "{min}.."),
            Self::Sizes(sizes) => {
                let sizes: Vec<String> = sizes.iter().map(i64::to_string).collect();
                f.write_str(&sizes.join("|"))
            }
        }
    }
}

/// Of `16`, `16|32|64`, `1..8`, whose end is one of the sizes, and `1..`.
impl FromStr for Extent {
    type Err = ExtentError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ExtentError::Syntax { text: text.to_owned() };
        let size = |text: &str| text.trim().parse::<i64>().map_err(|_| wrong());
        if let Some((min, max)) = text.split_once("..") {
            if max.trim().is_empty() {
                return Ok(Self::From { min: size(min)? });
            }
            let (min, max) = (size(min)?, size(max)?);
            return Ok(Self::Range { min, max });
        }
        match text.contains('|') {
            true => Ok(Self::Sizes(text.split('|').map(size).collect::<Result<_, _>>()?)),
            false => size(text).map(Self::One),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn texts_and_json_are_read_back() {
        for (text, json, sizes) in [
            ("16", "16", vec![16]),
            ("64|16|16", "[64,16,16]", vec![16, 64]),
            ("1..4", r#"{"min":1,"max":4}"#, vec![1, 2, 3, 4]),
        ] {
            let extent: Extent = text.parse().unwrap();
            assert_eq!(extent.to_string(), text);
            assert_eq!(serde_json::to_string(&extent).unwrap(), json);
            assert_eq!(serde_json::from_str::<Extent>(json).unwrap(), extent);
            assert_eq!(extent.sizes().unwrap(), sizes);
        }
        assert_eq!(" 1 .. 2 ".parse::<Extent>().unwrap().sizes().unwrap(), [1, 2]);
    }

    #[test]
    fn any_size_is_an_open_range() {
        let any: Extent = " 1 .. ".parse().unwrap();
        assert_eq!((any.to_string().as_str(), any.is_any()), ("1..", Ok(true)));
        assert_eq!(serde_json::to_string(&any).unwrap(), r#"{"min":1}"#);
        assert_eq!(serde_json::from_str::<Extent>(r#"{"min":1}"#).unwrap(), any);
        assert!(serde_json::from_str::<Extent>(r#"{"min":1,"max":"a"}"#).is_err());
        assert_eq!(Extent::From { min: 2 }.is_any(), Err(ExtentError::Start { min: 2 }));
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "a", "1.5", "..", "a..", "..4", "1...4", "1|", "|", "1|b", "1..2|3", "9e3"]
        {
            let found = text.parse::<Extent>();
            assert_eq!(found, Err(ExtentError::Syntax { text: text.to_owned() }));
        }
        let refused = |text: &str| text.parse::<Extent>().unwrap().sizes().unwrap_err();
        assert_eq!(refused("4..1"), ExtentError::Reversed { min: 4, max: 1 });
        assert_eq!(refused("-2|3"), ExtentError::Negative { size: -2 });
        assert_eq!(refused("1..33"), ExtentError::Many { count: 33 });
        assert_eq!(refused("1.."), ExtentError::Any);
        assert_eq!(refused("4.."), ExtentError::Start { min: 4 });
        let most = format!("{}..{}", i64::MIN, i64::MAX);
        assert_eq!(refused(&most), ExtentError::Many { count: u64::MAX });
        assert_eq!(Extent::Sizes(Vec::new()).sizes(), Err(ExtentError::Empty));
        assert_eq!(Extent::Range { min: 1, max: 32 }.sizes().unwrap().len(), MOST_SIZES);
    }
}
