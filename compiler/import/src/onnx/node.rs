//! A node while it is imported: its inputs resolved, its attributes read one by one.

use super::builder::Operand;
use super::proto::{AttributeProto, GraphProto, TensorProto, attribute_proto::AttributeType};
use crate::NodeError;
use std::collections::BTreeMap;

/// What an operator's import function returns.
pub(super) type Outputs = Result<Vec<Operand>, NodeError>;

/// A node to import. Reading an attribute removes it, so that what is left at the end is what the
/// operator does not know.
#[derive(Debug)]
pub(super) struct Node {
    /// Its name, or one made from its operator and first output.
    pub name: String,
    /// The operator.
    pub operator: String,
    /// Version of the operator set.
    pub opset: i64,
    /// Names of the inputs; empty where one is left out.
    pub input_names: Vec<String>,
    /// Names of the outputs; empty where one is left out.
    pub output_names: Vec<String>,
    /// For each output the shape that the model declares, where it declares all of it.
    pub declared: Vec<Option<Vec<usize>>>,
    /// Inputs in order; `None` is an optional input left out.
    pub inputs: Vec<Option<Operand>>,
    /// For each output whether anything reads it.
    pub wanted: Vec<bool>,
    pub(super) attributes: BTreeMap<String, AttributeProto>,
}

impl Node {
    /// The input at `place`, which must be there.
    pub fn input(&self, place: usize) -> Result<Operand, NodeError> {
        self.optional(place).ok_or_else(|| {
            NodeError::invalid(format!("input number {place} is required and left out"))
        })
    }

    /// The input at `place`, where it is there.
    pub fn optional(&self, place: usize) -> Option<Operand> {
        self.inputs.get(place).copied().flatten()
    }

    /// All inputs, of an operator that takes any number of them but none left out.
    pub fn variadic(&self) -> Result<Vec<Operand>, NodeError> {
        if self.inputs.is_empty() {
            return Err(NodeError::invalid("it has no inputs"));
        }
        (0..self.inputs.len()).map(|place| self.input(place)).collect()
    }

    /// The shape that the model declares for the output at `place`, where it declares all of it.
    pub fn declared(&self, place: usize) -> Option<Vec<usize>> {
        self.declared.get(place).cloned().flatten()
    }

    /// The same as values of an input that decides it.
    pub fn implied(&self, place: usize) -> Option<Vec<Option<i64>>> {
        let shape = self.declared(place)?;
        Some(shape.iter().map(|extent| i64::try_from(*extent).ok()).collect())
    }

    /// One extent of the declared shape.
    pub fn declared_extent(&self, place: usize, axis: usize) -> Option<usize> {
        self.declared(place)?.get(axis).copied()
    }

    /// Whether anything reads the output at `place`.
    pub fn wants(&self, place: usize) -> bool {
        self.wanted.get(place).copied().unwrap_or(false)
    }

    /// An integer attribute.
    pub fn int(&mut self, name: &str) -> Result<Option<i64>, NodeError> {
        let attribute = self.take(name, AttributeType::Int)?;
        Ok(attribute.map(|attribute| attribute.i.unwrap_or(0)))
    }

    /// An integer attribute, or a default.
    pub fn int_or(&mut self, name: &str, default: i64) -> Result<i64, NodeError> {
        Ok(self.int(name)?.unwrap_or(default))
    }

    /// An integer attribute that is 0 or 1.
    pub fn flag(&mut self, name: &str, default: bool) -> Result<bool, NodeError> {
        Ok(self.int_or(name, i64::from(default))? != 0)
    }

    /// A float attribute.
    pub fn float(&mut self, name: &str) -> Result<Option<f64>, NodeError> {
        let attribute = self.take(name, AttributeType::Float)?;
        Ok(attribute.map(|attribute| f64::from(attribute.f.unwrap_or(0.0))))
    }

    /// A float attribute, or a default.
    pub fn float_or(&mut self, name: &str, default: f64) -> Result<f64, NodeError> {
        Ok(self.float(name)?.unwrap_or(default))
    }

    /// A list of integers.
    pub fn ints(&mut self, name: &str) -> Result<Option<Vec<i64>>, NodeError> {
        Ok(self.take(name, AttributeType::Ints)?.map(|attribute| attribute.ints))
    }

    /// A list of integers that is read again later.
    pub fn peek_ints(&self, name: &str) -> Vec<i64> {
        self.attributes.get(name).map(|attribute| attribute.ints.clone()).unwrap_or_default()
    }

    /// How many strings a list has that is read later.
    pub fn peek_strings(&self, name: &str) -> usize {
        self.attributes.get(name).map_or(0, |attribute| attribute.strings.len())
    }

    /// A list of floats that is read again later.
    pub fn peek_floats(&self, name: &str) -> Vec<f32> {
        self.attributes.get(name).map(|attribute| attribute.floats.clone()).unwrap_or_default()
    }

    /// A list of floats.
    pub fn floats(&mut self, name: &str) -> Result<Option<Vec<f32>>, NodeError> {
        Ok(self.take(name, AttributeType::Floats)?.map(|attribute| attribute.floats))
    }

    /// A string.
    pub fn string(&mut self, name: &str) -> Result<Option<String>, NodeError> {
        let Some(attribute) = self.take(name, AttributeType::String)? else { return Ok(None) };
        text(name, attribute.s.unwrap_or_default()).map(Some)
    }

    /// A string, or a default.
    pub fn string_or(&mut self, name: &str, default: &str) -> Result<String, NodeError> {
        Ok(self.string(name)?.unwrap_or_else(|| default.to_string()))
    }

    /// A list of strings.
    pub fn strings(&mut self, name: &str) -> Result<Option<Vec<String>>, NodeError> {
        let Some(attribute) = self.take(name, AttributeType::Strings)? else { return Ok(None) };
        let strings: Result<_, _> =
            attribute.strings.into_iter().map(|bytes| text(name, bytes)).collect();
        strings.map(Some)
    }

    /// A tensor.
    pub fn tensor(&mut self, name: &str) -> Result<Option<TensorProto>, NodeError> {
        let attribute = self.take(name, AttributeType::Tensor)?;
        Ok(attribute.map(|attribute| attribute.t.unwrap_or_default()))
    }

    /// A node of `operator` and no attributes, under this one's name.
    pub fn alike(&self, operator: &str, inputs: Vec<Option<Operand>>) -> Self {
        Self {
            name: self.name.clone(),
            operator: operator.to_string(),
            opset: super::NEWEST_OPSET,
            input_names: Vec::new(),
            inputs,
            output_names: Vec::new(),
            declared: Vec::new(),
            wanted: vec![true],
            attributes: BTreeMap::new(),
        }
    }

    /// The same operator with the same inputs and attributes, whose attributes are still to be read.
    pub fn again(&self) -> Self {
        let mut again = self.alike(&self.operator, self.inputs.clone());
        again.attributes.clone_from(&self.attributes);
        again.opset = self.opset;
        again
    }

    /// Gives it an integer attribute.
    pub fn set_int(&mut self, name: &str, value: i64) {
        let kind = Some(AttributeType::Int as i32);
        let attribute =
            AttributeProto { r#type: kind, i: Some(value), ..AttributeProto::default() };
        self.attributes.insert(name.to_string(), attribute);
    }

    /// A graph.
    pub fn graph(&mut self, name: &str) -> Result<Option<GraphProto>, NodeError> {
        let attribute = self.take(name, AttributeType::Graph)?;
        Ok(attribute.map(|attribute| attribute.g.unwrap_or_default()))
    }

    /// Drops attributes that change nothing here.
    pub fn ignore(&mut self, names: &[&str]) {
        names.iter().for_each(|name| drop(self.attributes.remove(*name)));
    }

    fn take(
        &mut self,
        name: &str,
        expected: AttributeType,
    ) -> Result<Option<AttributeProto>, NodeError> {
        let Some(attribute) = self.attributes.remove(name) else { return Ok(None) };
        let actual = kind(&attribute);
        if actual != Some(expected) {
            let actual = actual.map_or("UNKNOWN", |actual| actual.as_str_name());
            return Err(NodeError::invalid(format!(
                "attribute '{name}' is of kind {actual}, not {}",
                expected.as_str_name()
            )));
        }
        Ok(Some(attribute))
    }
}

fn text(name: &str, bytes: Vec<u8>) -> Result<String, NodeError> {
    String::from_utf8(bytes)
        .map_err(|_| NodeError::invalid(format!("attribute '{name}' is not UTF-8 text")))
}

/// The kind of an attribute; files of the first versions leave it out, and it shows by the field.
fn kind(attribute: &AttributeProto) -> Option<AttributeType> {
    let stated = attribute.r#type.unwrap_or(0);
    if stated != 0 {
        return AttributeType::try_from(stated).ok();
    }
    let found = [
        (attribute.f.is_some(), AttributeType::Float),
        (attribute.i.is_some(), AttributeType::Int),
        (attribute.s.is_some(), AttributeType::String),
        (attribute.t.is_some(), AttributeType::Tensor),
        (attribute.g.is_some(), AttributeType::Graph),
        (!attribute.floats.is_empty(), AttributeType::Floats),
        (!attribute.ints.is_empty(), AttributeType::Ints),
        (!attribute.strings.is_empty(), AttributeType::Strings),
    ];
    found.iter().find(|(there, _)| *there).map(|(_, kind)| *kind)
}
