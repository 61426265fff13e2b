//! Graph to text.

use super::constant;
use crate::{Definition, Graph, Node, Operation, Value, ValueId};
use hone_types::TensorType;
use serde_json::Value as Json;
use std::fmt::{self, Display, Write};

/// How constants are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Constants {
    /// Every bit, so that the text parses back.
    Exact,
    /// Long ones as a digest: for eyes and comparisons. Such a text does not parse back.
    Digest,
}

impl<O: Operation> Display for Graph<O> {
    /// The text form with all constants.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.to_text(Constants::Exact))
    }
}

impl<O: Operation> Graph<O> {
    /// The text form; see the head of its module.
    pub fn to_text(&self, constants: Constants) -> String {
        let mut printer = Printer { text: String::new(), indent: 0, constants };
        printer.graph(self);
        printer.text
    }
}

struct Printer {
    text: String,
    indent: usize,
    constants: Constants,
}

impl Printer {
    fn graph<O: Operation>(&mut self, graph: &Graph<O>) {
        // Nodes come where their first outputs do; those without any in their place between these.
        let mut silent =
            graph.nodes().iter().filter(|(_, node)| node.outputs.is_empty()).peekable();
        for (id, value) in graph.values().iter() {
            match &value.definition {
                Definition::Input(index) => {
                    let name = graph.inputs().get(*index).map_or("", |port| port.name.as_str());
                    let defined = defined(id, value, name);
                    self.line(&format!("{defined} = input {} {}", quoted(name), value.tensor_type));
                }
                Definition::Constant(tensor) => {
                    let elements = match self.constants {
                        Constants::Exact => constant::print(tensor),
                        Constants::Digest => constant::print_short(tensor),
                    };
                    let (name, tensor_type) = (quoted(&value.name), &value.tensor_type);
                    self.line(&format!("{id} = constant {name} {tensor_type} {elements}"));
                }
                Definition::Output(node, 0) => {
                    while let Some((_, own)) = silent.next_if(|(id, _)| id < node) {
                        self.node(graph, own);
                    }
                    self.node(graph, &graph.nodes()[*node]);
                }
                Definition::Output(..) => {}
            }
        }
        silent.for_each(|(_, own)| self.node(graph, own));
        for port in graph.outputs() {
            self.line(&format!("output {} {}", quoted(&port.name), port.value));
        }
        for extent in graph.extents() {
            let (output, axis, value) = (extent.output, extent.axis, extent.value);
            self.line(&format!("extent of output {output} axis {axis} is {value}"));
        }
        if !graph.interface().is_plain() {
            let interface = serde_json::to_string(graph.interface()).unwrap_or_default();
            self.line(&format!("interface {interface}"));
        }
    }

    fn node<O: Operation>(&mut self, graph: &Graph<O>, node: &Node<O>) {
        let outputs = node.outputs.iter().map(|id| defined(*id, &graph.values()[*id], &node.name));
        let types = node.outputs.iter().map(|id| graph.tensor_type(*id).to_string());
        let inputs =
            node.inputs.iter().map(|input| input.map_or("none".into(), |id| id.to_string()));
        let outputs = outputs.collect::<Vec<_>>().join(", ");
        let mut line = format!(
            "{}{} {} ({})",
            if outputs.is_empty() { String::new() } else { format!("{outputs} = ") },
            node.operation.name(),
            quoted(&node.name),
            inputs.collect::<Vec<_>>().join(", "),
        );
        match node.operation.attributes() {
            Json::Null => {}
            attributes => write!(line, " {attributes}").unwrap_or_default(),
        }
        if !node.outputs.is_empty() {
            write!(line, " -> {}", types.collect::<Vec<_>>().join(", ")).unwrap_or_default();
        }
        for region in node.operation.regions() {
            line.push_str(" {");
            self.line(&line);
            self.indent += 1;
            self.graph(region);
            self.indent -= 1;
            line = "}".to_owned();
        }
        self.line(&line);
    }

    fn line(&mut self, line: &str) {
        self.text.extend(std::iter::repeat_n("  ", self.indent));
        self.text.push_str(line);
        self.text.push('\n');
    }
}

/// A value where it is defined: its number, and its name where that is not `expected`.
fn defined(id: ValueId, value: &Value, expected: &str) -> String {
    match value.name == expected {
        true => id.to_string(),
        false => format!("{id} {}", quoted(&value.name)),
    }
}

fn quoted(name: &str) -> String {
    Json::from(name).to_string()
}

/// A list of types, for messages.
pub(super) fn types(types: &[TensorType]) -> String {
    types.iter().map(TensorType::to_string).collect::<Vec<_>>().join(", ")
}
