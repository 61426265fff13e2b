//! Names that say nothing in place of those of a model.

use std::collections::HashMap;

use hone_driver::onnx::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TypeProto, ValueInfoProto,
    tensor_shape_proto::dimension::Value as Extent, type_proto::Value as TypeValue,
};

/// The model with other names of values (`v0`, `v1`, …), nodes (`n0`), dimensions (`d0`), graphs and functions (`f0`).
/// Names of operators and attributes stay, and so do values of settings.
pub fn renamed(model: &ModelProto) -> ModelProto {
    let mut model = model.clone();
    let mut names = Names::default();
    let of_functions = model.functions.iter().map(|entry| key(&entry.domain, &entry.name));
    names.functions =
        of_functions.enumerate().map(|(index, key)| (key, format!("f{index}"))).collect();
    if let Some(graph) = &mut model.graph {
        names.graph(graph);
    }
    for function in &mut model.functions {
        names.function(function);
    }
    model
}

/// A function's domain and name, which nodes call it by.
fn key(domain: &Option<String>, name: &Option<String>) -> (String, String) {
    (domain.clone().unwrap_or_default(), name.clone().unwrap_or_default())
}

/// New names by old ones.
#[derive(Default)]
struct Names {
    values: HashMap<String, String>,
    dimensions: HashMap<String, String>,
    functions: HashMap<(String, String), String>,
    nodes: usize,
}

/// The new name of an old one, the same for the same.
fn renew(names: &mut HashMap<String, String>, letter: char, name: &mut String) {
    if !name.is_empty() {
        let next = format!("{letter}{}", names.len());
        *name = names.entry(name.clone()).or_insert(next).clone();
    }
}

impl Names {
    fn value(&mut self, name: &mut String) {
        renew(&mut self.values, 'v', name);
    }

    fn graph(&mut self, graph: &mut GraphProto) {
        graph.name = Some("graph".to_owned());
        for input in &mut graph.input {
            self.declaration(input);
        }
        for tensor in &mut graph.initializer {
            tensor.name.iter_mut().for_each(|name| self.value(name));
        }
        let sparse = graph.sparse_initializer.iter_mut();
        for tensor in sparse.flat_map(|entry| entry.values.iter_mut().chain(&mut entry.indices)) {
            tensor.name.iter_mut().for_each(|name| self.value(name));
        }
        for node in &mut graph.node {
            self.node(node);
        }
        for value in graph.output.iter_mut().chain(&mut graph.value_info) {
            self.declaration(value);
        }
    }

    fn function(&mut self, function: &mut FunctionProto) {
        if let Some(name) = self.functions.get(&key(&function.domain, &function.name)) {
            function.name = Some(name.clone());
        }
        for name in function.input.iter_mut().chain(&mut function.output) {
            self.value(name);
        }
        for node in &mut function.node {
            self.node(node);
        }
        for value in &mut function.value_info {
            self.declaration(value);
        }
    }

    fn node(&mut self, node: &mut NodeProto) {
        node.name = Some(format!("n{}", self.nodes));
        self.nodes += 1;
        for name in node.input.iter_mut().chain(&mut node.output) {
            self.value(name);
        }
        if let Some(function) = self.functions.get(&key(&node.domain, &node.op_type)) {
            node.op_type = Some(function.clone());
        }
        for attribute in &mut node.attribute {
            self.attribute(attribute);
        }
    }

    fn attribute(&mut self, attribute: &mut AttributeProto) {
        for tensor in attribute.t.iter_mut().chain(&mut attribute.tensors) {
            tensor.name = None;
        }
        for graph in attribute.g.iter_mut().chain(&mut attribute.graphs) {
            self.graph(graph);
        }
    }

    fn declaration(&mut self, value: &mut ValueInfoProto) {
        value.name.iter_mut().for_each(|name| self.value(name));
        if let Some(kind) = &mut value.r#type {
            self.dimensions(kind);
        }
    }

    fn dimensions(&mut self, kind: &mut TypeProto) {
        let inner = match &mut kind.value {
            Some(TypeValue::TensorType(tensor)) => {
                for dim in tensor.shape.iter_mut().flat_map(|shape| &mut shape.dim) {
                    if let Some(Extent::DimParam(symbol)) = &mut dim.value {
                        renew(&mut self.dimensions, 'd', symbol);
                    }
                }
                None
            }
            Some(TypeValue::SequenceType(entry)) => entry.elem_type.as_mut(),
            Some(TypeValue::OptionalType(entry)) => entry.elem_type.as_mut(),
            _ => None,
        };
        if let Some(inner) = inner {
            self.dimensions(inner);
        }
    }
}
