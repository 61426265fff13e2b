//! Why a model cannot be compiled for the sizes that are asked for.

use std::error::Error;
use std::fmt;

use hone_driver::{CompileError, Dependence, ImportError, NotPadded, SizesError};
use thiserror::Error;

pub(crate) type Result<T> = std::result::Result<T, DimensionError>;

/// Why a model cannot be compiled for the sizes that are asked for.
#[derive(Debug, Error)]
pub enum DimensionError {
    /// An element type that is none.
    #[error("input '{input}': '{dtype}' is no element type")]
    ElementType {
        /// Name of the input.
        input: String,
        /// What is given.
        dtype: String,
    },
    /// What is said of an input or a dimension is no size, or contradicts itself.
    #[error("the sizes of '{name}' cannot be used")]
    Sizes {
        /// Name of the input or dimension.
        name: String,
        /// Why.
        source: Box<dyn Error + Send + Sync>,
    },
    /// Sizes that do not fit the model, or are too many.
    #[error(transparent)]
    Combinations(#[from] SizesError),
    /// Dimensions are open and cannot stay so.
    #[error(transparent)]
    Open(OpenDimensions),
    /// Any size of a dimension is asked for over which the model does not map.
    #[error("the model cannot be compiled for any size of '{name}'; name its sizes instead")]
    Dependence {
        /// Name of the dimension.
        name: String,
        /// What depends on it.
        source: Box<Dependence>,
    },
    /// Every size up to a bound is asked for of a dimension that cannot be padded.
    #[error("the model cannot be compiled for every size of '{name}'; name its sizes instead")]
    NotPadded {
        /// Name of the dimension.
        name: String,
        /// What stands in the way.
        source: PaddingError,
    },
    /// Too many combinations of other dimensions beside one of any size.
    #[error(
        "the model cannot be compiled for any size of '{name}' beside {others} combinations of others: name fewer sizes of these"
    )]
    Beside {
        /// Name of the dimension.
        name: String,
        /// Combinations of the others.
        others: usize,
    },
    /// What the model declares cannot be read.
    #[error(transparent)]
    Signature(Box<ImportError>),
    /// The model cannot be imported at some sizes.
    #[error(transparent)]
    Import(Box<CompileError>),
    /// A mistake of the compiler itself.
    #[error("{0}; please report this")]
    Internal(&'static str),
}

/// Why a dimension cannot be padded.
#[derive(Debug, Error)]
pub enum PaddingError {
    /// A node stands in the way.
    #[error(transparent)]
    Node(NotPadded),
    /// Something beside the nodes.
    #[error("{0}")]
    Other(&'static str),
}

impl From<CompileError> for DimensionError {
    fn from(error: CompileError) -> Self {
        Self::Import(Box::new(error))
    }
}

impl From<ImportError> for DimensionError {
    fn from(error: ImportError) -> Self {
        Self::Signature(Box::new(error))
    }
}

impl DimensionError {
    pub(crate) fn unusable(
        name: &str,
        why: impl Into<Box<dyn Error + Send + Sync + 'static>>,
    ) -> Self {
        Self::Sizes { name: name.to_owned(), source: why.into() }
    }
}

/// Dimensions of which nothing is said, and which cannot stay so.
#[derive(Debug)]
pub struct OpenDimensions {
    /// The dimension that would stay open.
    pub stays: Option<String>,
    /// One that takes every size up to a bound where the others have the sizes that are proposed.
    pub bounded: Option<BoundedDimension>,
    /// Those whose sizes have to be given.
    pub needed: Vec<NeededDimension>,
}

/// A dimension that may stay open beside others that have sizes.
#[derive(Debug)]
pub struct BoundedDimension {
    /// Its name.
    pub name: String,
    /// The largest size that is served then.
    pub most: usize,
}

/// A dimension whose size has to be given.
#[derive(Debug)]
pub struct NeededDimension {
    /// Its name.
    pub name: String,
    /// An input that has it, in words.
    pub input: String,
    /// A size that the model could be compiled for.
    pub proposed: usize,
    /// Why not any size can be served.
    pub why: String,
}

impl OpenDimensions {
    /// Arguments that say how large the dimensions are, as `--shape` takes them.
    pub fn proposals(&self) -> Vec<String> {
        self.named().map(|needed| format!("{}={}", needed.name, needed.proposed)).collect()
    }

    /// The dimensions whose sizes are proposed.
    pub fn named(&self) -> impl Iterator<Item = &NeededDimension> {
        let is_open = |needed: &&NeededDimension| {
            self.bounded.as_ref().is_some_and(|bounded| bounded.name == needed.name)
        };
        self.needed.iter().filter(move |needed| !is_open(needed))
    }
}

impl Error for OpenDimensions {}

impl fmt::Display for OpenDimensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("dimensions are open: say how large they are")?;
        for NeededDimension { name, input, why, .. } in &self.needed {
            write!(f, "\n  '{name}' of {input}: not every size can be served, since {why}")?;
        }
        if let Some(stays) = &self.stays {
            write!(f, "\n  '{stays}' may stay open: any size of it will be served")?;
        }
        if let Some(BoundedDimension { name, most }) = &self.bounded {
            let named: Vec<String> = self.named().map(|own| format!("'{}'", own.name)).collect();
            write!(
                f,
                "\n  '{name}' may stay open where sizes of {} are named: every size of it up to {most} will be served",
                named.join(" and ")
            )?;
        }
        Ok(())
    }
}
