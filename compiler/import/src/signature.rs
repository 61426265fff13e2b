//! Inputs and outputs as a model file declares them, before anything is bound.

use crate::NarrowType;
use hone_types::DataType;
use std::fmt;

/// Inputs and outputs of a model file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Signature {
    /// Inputs that a caller gives, in the model's order.
    pub inputs: Vec<PortSignature>,
    /// Outputs, in the model's order.
    pub outputs: Vec<PortSignature>,
}

/// An input or output as declared.
#[derive(Clone, Debug, PartialEq)]
pub struct PortSignature {
    /// Its name.
    pub name: String,
    /// Its element type, where declared and known to us.
    pub dtype: Option<DataType>,
    /// Its dimensions, where declared.
    pub shape: Option<Vec<Dimension>>,
    /// The declared type, where it is one that `dtype` only carries.
    pub narrow: Option<NarrowType>,
    /// Whether it is a sequence of tensors that are declared so.
    pub sequence: bool,
    /// Whether it may be left out.
    pub optional: bool,
}

/// What an input is that is no tensor, or may be none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputForm {
    /// A sequence of so many tensors. They are inputs of the graph, called `name[0]`, `name[1]` and so on.
    Sequence(usize),
    /// An optional one that is not there.
    Absent,
}

/// The extent of one axis as declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dimension {
    /// A number.
    Fixed(usize),
    /// A name; the same name means the same extent.
    Symbol(String),
    /// Left open.
    Unknown,
}

impl fmt::Display for Dimension {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dimension::Fixed(extent) => write!(formatter, "{extent}"),
            Dimension::Symbol(name) => formatter.write_str(name),
            Dimension::Unknown => formatter.write_str("?"),
        }
    }
}

impl fmt::Display for PortSignature {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.optional {
            formatter.write_str("optional ")?;
        }
        if self.sequence {
            formatter.write_str("sequence of ")?;
        }
        match (self.narrow, self.dtype) {
            (Some(narrow), _) => formatter.write_str(narrow.name())?,
            (None, Some(dtype)) => write!(formatter, "{dtype}")?,
            (None, None) => formatter.write_str("?")?,
        }
        match &self.shape {
            Some(shape) => {
                let shape: Vec<String> = shape.iter().map(Dimension::to_string).collect();
                write!(formatter, "[{}]", shape.join(", "))
            }
            None => formatter.write_str("[...]"),
        }
    }
}
