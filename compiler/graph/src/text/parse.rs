//! Text to graph.

use super::{constant, print};
use crate::{Graph, Operation, OutputExtent, ValueId};
use hone_types::{DataType, TensorType};
use serde_json::Value as Json;
use std::collections::HashMap;
use std::str::FromStr;
use thiserror::Error;

/// Graphs inside of graphs that a text may hold, so that no text exhausts the stack.
const DEEPEST: usize = 32;

/// Why a text is not a graph.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("line {line}: {reason}")]
pub struct ParseError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
}

/// The graph of a text. It is not verified, but for what adding nodes checks: every input is defined before it is
/// used, and the types that a node is said to give are those that its operation infers.
///
/// # Errors
/// [`ParseError`] with the first line that is wrong.
pub fn parse<O: Operation>(text: &str) -> Result<Graph<O>, ParseError> {
    let mut lines = Lines { lines: text.lines().enumerate(), number: 0 };
    let (graph, end) = graph(&mut lines, 0)?;
    match end {
        End::Text => Ok(graph),
        End::Brace | End::NextRegion => Err(lines.error("a '}' that closes nothing")),
    }
}

struct Lines<'a> {
    lines: std::iter::Enumerate<std::str::Lines<'a>>,
    number: usize,
}

impl<'a> Lines<'a> {
    /// The next statement, without comment and indentation.
    fn next(&mut self) -> Option<&'a str> {
        loop {
            let (index, line) = self.lines.next()?;
            self.number = index + 1;
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                return Some(line);
            }
        }
    }

    fn error(&self, reason: impl Into<String>) -> ParseError {
        ParseError { line: self.number, reason: reason.into() }
    }
}

/// What ends the statements of a graph.
enum End {
    Text,
    /// `}`
    Brace,
    /// `} {`
    NextRegion,
}

fn graph<O: Operation>(lines: &mut Lines, depth: usize) -> Result<(Graph<O>, End), ParseError> {
    let mut reader = Reader { graph: Graph::new(), values: HashMap::new() };
    while let Some(line) = lines.next() {
        match line {
            "}" => return Ok((reader.graph, End::Brace)),
            "} {" => return Ok((reader.graph, End::NextRegion)),
            _ => {}
        }
        let mut cursor = Cursor { rest: line, line: lines.number };
        match line.split(' ').next() {
            Some("output") => reader.output(&mut cursor)?,
            Some("extent") => reader.extent(&mut cursor)?,
            Some("interface") => reader.interface(&mut cursor)?,
            _ => reader.definition(&mut cursor, lines, depth)?,
        }
    }
    Ok((reader.graph, End::Text))
}

/// A value that a statement defines: its number in the text, and its name where the text gives one.
type Defined = (String, Option<String>);

struct Reader<O> {
    graph: Graph<O>,
    /// Values by their number in the text.
    values: HashMap<String, ValueId>,
}

impl<O: Operation> Reader<O> {
    fn output(&mut self, cursor: &mut Cursor) -> Result<(), ParseError> {
        cursor.expect("output")?;
        let name = cursor.string()?;
        let value = self.value(cursor)?;
        self.graph.add_output(name, value);
        cursor.end()
    }

    fn extent(&mut self, cursor: &mut Cursor) -> Result<(), ParseError> {
        cursor.expect("extent")?;
        cursor.expect("of")?;
        cursor.expect("output")?;
        let output = cursor.number()?;
        cursor.expect("axis")?;
        let axis = cursor.number()?;
        cursor.expect("is")?;
        let value = self.value(cursor)?;
        self.graph.add_extent(OutputExtent { output, axis, value });
        cursor.end()
    }

    fn interface(&mut self, cursor: &mut Cursor) -> Result<(), ParseError> {
        cursor.expect("interface")?;
        let interface = serde_json::from_value(cursor.json()?);
        let interface =
            interface.map_err(|error| cursor.error(format!("no interface: {error}")))?;
        self.graph.set_interface(interface);
        cursor.end()
    }

    /// An input, a constant or a node.
    fn definition(
        &mut self,
        cursor: &mut Cursor,
        lines: &mut Lines,
        depth: usize,
    ) -> Result<(), ParseError> {
        let mut defined = Vec::new();
        // A node without outputs begins with its operation.
        if cursor.rest.starts_with('%') || cursor.rest.split(' ').nth(1) == Some("=") {
            defined.push(cursor.defined()?);
            while cursor.take(",") {
                defined.push(cursor.defined()?);
            }
            cursor.expect("=")?;
        }
        let (kind, name) = (cursor.word()?, cursor.string()?);
        if ["input", "constant"].contains(&kind) {
            return self.leaf(cursor, &defined, kind, name);
        }
        let call = self.call(cursor)?;
        let regions = regions(cursor, lines, depth)?;
        let inputs = call.inputs.clone();
        let operation = O::from_text(kind, call.attributes, regions);
        let operation = operation.map_err(|error| cursor.error(error.to_string()))?;
        let outputs = self.graph.add_node(name, operation, &inputs);
        let outputs = outputs.map_err(|error| cursor.error(error.to_string()))?;
        let inferred: Vec<TensorType> =
            outputs.iter().map(|value| self.graph.tensor_type(*value).clone()).collect();
        if inferred != call.types {
            let (inferred, given) = (print::types(&inferred), print::types(&call.types));
            return Err(cursor.error(format!("the operation gives {inferred}, not {given}")));
        }
        self.define(cursor, &outputs, &defined)
    }

    fn leaf(
        &mut self,
        cursor: &mut Cursor,
        defined: &[Defined],
        kind: &str,
        name: String,
    ) -> Result<(), ParseError> {
        let tensor_type = cursor.tensor_type()?;
        let value = match kind {
            "input" => self.graph.add_input(name, tensor_type),
            _ => {
                let tensor = constant::parse(&tensor_type, cursor.remaining());
                let tensor = tensor.map_err(|reason| cursor.error(reason))?;
                self.graph.add_constant(name, tensor)
            }
        };
        cursor.end()?;
        self.define(cursor, &[value], defined)
    }

    /// Inputs, attributes and output types of a node.
    fn call(&self, cursor: &mut Cursor) -> Result<Call, ParseError> {
        cursor.expect("(")?;
        let mut inputs = Vec::new();
        while !cursor.take(")") {
            if !inputs.is_empty() {
                cursor.expect(",")?;
            }
            inputs.push(match cursor.take("none") {
                true => None,
                false => Some(self.value(cursor)?),
            });
        }
        let attributes = match cursor.rest.starts_with('{') {
            true => cursor.json()?,
            false => Json::Null,
        };
        let mut types = Vec::new();
        if cursor.take("->") {
            types.push(cursor.tensor_type()?);
        }
        while !types.is_empty() && cursor.take(",") {
            types.push(cursor.tensor_type()?);
        }
        Ok(Call { inputs, attributes, types })
    }

    fn define(
        &mut self,
        cursor: &Cursor,
        values: &[ValueId],
        defined: &[Defined],
    ) -> Result<(), ParseError> {
        if values.len() != defined.len() {
            let (given, named) = (values.len(), defined.len());
            return Err(
                cursor.error(format!("the operation has {given} outputs, {named} are named"))
            );
        }
        for (value, (number, name)) in values.iter().zip(defined) {
            if self.values.insert(number.clone(), *value).is_some() {
                return Err(cursor.error(format!("{number} is defined twice")));
            }
            if let Some(name) = name {
                self.graph.name_value(*value, name);
            }
        }
        Ok(())
    }

    fn value(&self, cursor: &mut Cursor) -> Result<ValueId, ParseError> {
        let number = cursor.word()?;
        let value = self.values.get(number).copied();
        value.ok_or_else(|| cursor.error(format!("{number} is not defined above")))
    }
}

struct Call {
    inputs: Vec<Option<ValueId>>,
    attributes: Json,
    types: Vec<TensorType>,
}

/// The graphs inside of a node, whose first line is read up to its types.
fn regions<O: Operation>(
    cursor: &mut Cursor,
    lines: &mut Lines,
    depth: usize,
) -> Result<Vec<Graph<O>>, ParseError> {
    let mut regions = Vec::new();
    let mut another = cursor.take("{");
    cursor.end()?;
    while another {
        if depth == DEEPEST {
            return Err(lines.error(format!("more than {DEEPEST} graphs inside of each other")));
        }
        let (region, end) = graph(lines, depth + 1)?;
        regions.push(region);
        another = match end {
            End::NextRegion => true,
            End::Brace => false,
            End::Text => return Err(lines.error("the text ends within a graph: a '}' is missing")),
        };
    }
    Ok(regions)
}

/// What is left of a line.
struct Cursor<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Cursor<'a> {
    fn error(&self, reason: impl Into<String>) -> ParseError {
        ParseError { line: self.line, reason: reason.into() }
    }

    fn advance(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest.trim_start();
        taken
    }

    fn take(&mut self, token: &str) -> bool {
        let is_next = self.rest.starts_with(token);
        if is_next {
            self.advance(token.len());
        }
        is_next
    }

    fn expect(&mut self, token: &str) -> Result<(), ParseError> {
        match self.take(token) {
            true => Ok(()),
            false => Err(self.error(format!("expected '{token}' before '{}'", self.rest))),
        }
    }

    fn end(&mut self) -> Result<(), ParseError> {
        match self.rest {
            "" => Ok(()),
            rest => Err(self.error(format!("'{rest}' is too much"))),
        }
    }

    /// A name or a value's number.
    fn word(&mut self) -> Result<&'a str, ParseError> {
        let is_part =
            |character: char| character.is_ascii_alphanumeric() || "_%".contains(character);
        let length = self.rest.find(|character| !is_part(character)).unwrap_or(self.rest.len());
        match length {
            0 => Err(self.error(format!("expected a name before '{}'", self.rest))),
            _ => Ok(self.advance(length)),
        }
    }

    fn number(&mut self) -> Result<usize, ParseError> {
        let word = self.word()?;
        word.parse().map_err(|_| self.error(format!("'{word}' is not a number")))
    }

    /// A value that is defined, `%2` or `%2 "name"`.
    fn defined(&mut self) -> Result<Defined, ParseError> {
        let number = self.word()?;
        if !number.starts_with('%') {
            return Err(self.error(format!("expected a value such as %0, not '{number}'")));
        }
        let name = self.rest.starts_with('"').then(|| self.string()).transpose()?;
        Ok((number.to_owned(), name))
    }

    fn string(&mut self) -> Result<String, ParseError> {
        match self.json()? {
            Json::String(text) => Ok(text),
            other => Err(self.error(format!("expected a name in quotes, not {other}"))),
        }
    }

    fn json(&mut self) -> Result<Json, ParseError> {
        let mut stream = serde_json::Deserializer::from_str(self.rest).into_iter::<Json>();
        let value = stream.next().ok_or_else(|| self.error("the line ends too early"))?;
        let value = value.map_err(|error| self.error(format!("no JSON: {error}")))?;
        self.advance(stream.byte_offset());
        Ok(value)
    }

    fn tensor_type(&mut self) -> Result<TensorType, ParseError> {
        let dtype = DataType::from_str(self.word()?).map_err(|reason| self.error(reason))?;
        let shape: Vec<usize> = serde_json::from_value(self.json()?)
            .map_err(|_| self.error("expected the extents of the axes, such as [1, 4]"))?;
        Ok(TensorType { dtype, shape })
    }

    /// All that is left.
    fn remaining(&mut self) -> &'a str {
        self.advance(self.rest.len())
    }
}
