//! Inputs and outputs as a model file declares them, before anything is bound.

use crate::{NarrowType, SummedDimension};
use hone_types::DataType;
use std::fmt;

/// Inputs and outputs of a model file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Signature {
    /// Inputs that a caller gives, in the model's order.
    pub inputs: Vec<PortSignature>,
    /// Outputs, in the model's order.
    pub outputs: Vec<PortSignature>,
    /// Dimensions of inputs that are sums of others, by their names or by what the graph asks of them.
    pub sums: Vec<SummedDimension>,
}

/// An input or output as declared.
#[derive(Clone, Debug, Default, PartialEq)]
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
    /// The type of its keys where it is a map; the other fields then say what its values are.
    pub map: Option<KeyType>,
}

/// What the keys of a map are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyType {
    /// Strings.
    Text,
    /// Numbers, `i64`.
    I64,
}

/// Keys of a map that is an input for which there is room.
pub const MOST_KEYS: usize = 1 << 16;

impl PortSignature {
    /// What a map is made of: `name.keys` and `name.values`, both with room for [`MOST_KEYS`], and `name.count`, how many
    /// are there. `None` of what is no map.
    pub fn map_parts(&self) -> Option<[Self; 3]> {
        let (dtype, narrow) = match self.map? {
            KeyType::Text => (DataType::U64, Some(NarrowType::Text)),
            KeyType::I64 => (DataType::I64, None),
        };
        let named =
            |part: &str| Self { name: format!("{}.{part}", self.name), map: None, ..self.clone() };
        let room = Some(vec![Dimension::Fixed(MOST_KEYS)]);
        let keys = Self { dtype: Some(dtype), narrow, shape: room.clone(), ..named("keys") };
        let values = Self { shape: room, ..named("values") };
        let (dtype, shape) = (Some(DataType::I64), Some(Vec::new()));
        Some([keys, values, Self { dtype, narrow: None, shape, ..named("count") }])
    }
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
        match self.map {
            Some(KeyType::Text) => formatter.write_str("map from string to ")?,
            Some(KeyType::I64) => formatter.write_str("map from i64 to ")?,
            None => {}
        }
        match (self.narrow, self.dtype) {
            (Some(narrow), _) => formatter.write_str(narrow.name())?,
            (None, Some(dtype)) => write!(formatter, "{dtype}")?,
            (None, None) => formatter.write_str("?")?,
        }
        if self.map.is_some() {
            return Ok(());
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
