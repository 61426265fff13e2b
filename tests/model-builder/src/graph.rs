//! Writing an ONNX graph node by node.

use bytes::Bytes;
use hone_import::onnx::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    TensorShapeProto, TypeProto, ValueInfoProto, attribute_proto::AttributeType, tensor_proto,
    tensor_shape_proto, type_proto,
};
use std::collections::BTreeSet;

use crate::Random;

/// The opset that models are written in.
const OPSET: i64 = 17;
/// The version of the file format that belongs to that opset.
const FORMAT: i64 = 8;

/// The name of a value in the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value(String);

/// A graph being written. Nodes are added in the order they run.
#[derive(Debug)]
pub struct Builder {
    graph: GraphProto,
    random: Random,
    names: usize,
}

impl Builder {
    /// An empty graph whose weights will be drawn from `seed`.
    pub fn new(name: &str, seed: u64) -> Self {
        let graph = GraphProto { name: Some(name.to_owned()), ..GraphProto::default() };
        Self { graph, random: Random::new(seed), names: 0 }
    }

    /// A new input of the graph, of 32-bit floats.
    pub fn input(&mut self, name: &str, shape: &[usize]) -> Value {
        self.typed_input(name, tensor_proto::DataType::Float, shape)
    }

    /// A new input of the graph, of 64-bit integers.
    pub fn integer_input(&mut self, name: &str, shape: &[usize]) -> Value {
        self.typed_input(name, tensor_proto::DataType::Int64, shape)
    }

    /// Makes `value` an output of the graph under `name`; `shape` is of 32-bit floats.
    pub fn output(&mut self, name: &str, value: &Value, shape: &[usize]) {
        let mut node = node("Identity", &[value], Vec::new());
        node.output = vec![name.to_owned()];
        // The last node gets the output's name itself where nothing else reads it.
        match self.graph.node.last_mut() {
            Some(last) if last.output == [value.0.clone()] => last.output[0] = name.to_owned(),
            _ => self.graph.node.push(node),
        }
        self.graph.output.push(info(name, tensor_proto::DataType::Float, shape));
    }

    /// A weight of random numbers; `shape` in the axis order that its reader asks for.
    pub fn weight(&mut self, name: &str, shape: &[usize], mean: f32, deviation: f32) -> Value {
        let data = self.random.normals(shape.iter().product(), mean, deviation);
        let raw: Vec<u8> = data.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.initializer(name, tensor_proto::DataType::Float, shape, raw)
    }

    /// A vector of positive numbers near one, as variances are.
    pub fn positive(&mut self, name: &str, count: usize) -> Value {
        let data = self.random.normals(count, 0.0, 0.25);
        let raw = data.iter().flat_map(|number| (1.0 + number.abs()).to_le_bytes()).collect();
        self.initializer(name, tensor_proto::DataType::Float, &[count], raw)
    }

    /// A constant vector of 32-bit floats.
    pub fn floats(&mut self, name: &str, numbers: &[f32]) -> Value {
        let raw = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.initializer(name, tensor_proto::DataType::Float, &[numbers.len()], raw)
    }

    /// Random bytes, all equally likely.
    pub fn random_bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| (self.random.bits() >> 56) as u8).collect()
    }

    /// A constant of 64-bit integers.
    pub fn integers(&mut self, name: &str, numbers: &[i64]) -> Value {
        let raw = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.initializer(name, tensor_proto::DataType::Int64, &[numbers.len()], raw)
    }

    /// A constant scalar of 32-bit floats.
    pub fn scalar(&mut self, name: &str, number: f32) -> Value {
        let raw = number.to_le_bytes().to_vec();
        self.initializer(name, tensor_proto::DataType::Float, &[], raw)
    }

    /// A node with one output.
    pub fn node(
        &mut self,
        operator: &str,
        inputs: &[&Value],
        attributes: Vec<AttributeProto>,
    ) -> Value {
        self.node_of("", operator, inputs, attributes)
    }

    /// A node with one output, of an operator of version 1 of another domain than ONNX's.
    pub fn node_of(
        &mut self,
        domain: &str,
        operator: &str,
        inputs: &[&Value],
        attributes: Vec<AttributeProto>,
    ) -> Value {
        let mut node = node(operator, inputs, attributes);
        node.domain = Some(domain.to_owned()).filter(|domain| !domain.is_empty());
        self.names += 1;
        let name = format!("{}_{}", operator.to_lowercase(), self.names);
        node.name = Some(name.clone());
        node.output = vec![name.clone()];
        self.graph.node.push(node);
        Value(name)
    }

    /// The finished model.
    pub fn finish(self) -> ModelProto {
        let opset = OperatorSetIdProto { domain: Some(String::new()), version: Some(OPSET) };
        let others: BTreeSet<&String> =
            self.graph.node.iter().filter_map(|node| node.domain.as_ref()).collect();
        let others = others
            .into_iter()
            .map(|domain| OperatorSetIdProto { domain: Some(domain.clone()), version: Some(1) });
        let opset_import = std::iter::once(opset).chain(others).collect();
        ModelProto {
            ir_version: Some(FORMAT),
            producer_name: Some("hone-model-builder".to_owned()),
            opset_import,
            graph: Some(self.graph),
            ..ModelProto::default()
        }
    }

    fn typed_input(
        &mut self,
        name: &str,
        element: tensor_proto::DataType,
        shape: &[usize],
    ) -> Value {
        self.graph.input.push(info(name, element, shape));
        Value(name.to_owned())
    }

    /// A constant of elements of type `element`, `raw` being their bytes, row major and little endian.
    pub fn initializer(
        &mut self,
        name: &str,
        element: tensor_proto::DataType,
        shape: &[usize],
        raw: Vec<u8>,
    ) -> Value {
        self.graph.initializer.push(TensorProto {
            name: Some(name.to_owned()),
            data_type: Some(element as i32),
            dims: shape.iter().map(|&size| size as i64).collect(),
            raw_data: Some(Bytes::from(raw)),
            ..TensorProto::default()
        });
        Value(name.to_owned())
    }
}

/// An attribute that is a list of integers.
pub fn integers(name: &str, ints: &[i64]) -> AttributeProto {
    AttributeProto { ints: ints.to_vec(), ..attribute(name, AttributeType::Ints) }
}

/// An attribute that is one integer.
pub fn integer(name: &str, number: i64) -> AttributeProto {
    AttributeProto { i: Some(number), ..attribute(name, AttributeType::Int) }
}

/// An attribute that is one number.
pub fn number(name: &str, number: f32) -> AttributeProto {
    AttributeProto { f: Some(number), ..attribute(name, AttributeType::Float) }
}

/// An attribute that is a word.
pub fn text(name: &str, word: &str) -> AttributeProto {
    AttributeProto { s: Some(word.as_bytes().to_vec()), ..attribute(name, AttributeType::String) }
}

/// Leaves an axis of every input and output open, under a name.
pub fn open_axis(model: &mut ModelProto, axis: usize, name: &str) {
    let Some(graph) = &mut model.graph else { return };
    for port in graph.input.iter_mut().chain(&mut graph.output) {
        open(port, axis, name);
    }
}

/// Leaves an axis of an input or output open, under a name.
pub fn open(port: &mut ValueInfoProto, axis: usize, name: &str) {
    let tensor = port.r#type.as_mut().and_then(|own| own.value.as_mut());
    let Some(type_proto::Value::TensorType(tensor)) = tensor else { return };
    if let Some(dim) = tensor.shape.as_mut().and_then(|shape| shape.dim.get_mut(axis)) {
        let value = tensor_shape_proto::dimension::Value::DimParam(name.to_owned());
        dim.value = Some(value);
    }
}

fn attribute(name: &str, kind: AttributeType) -> AttributeProto {
    AttributeProto {
        name: Some(name.to_owned()),
        r#type: Some(kind as i32),
        ..AttributeProto::default()
    }
}

fn node(operator: &str, inputs: &[&Value], attribute: Vec<AttributeProto>) -> NodeProto {
    NodeProto {
        op_type: Some(operator.to_owned()),
        input: inputs.iter().map(|value| value.0.clone()).collect(),
        attribute,
        ..NodeProto::default()
    }
}

fn info(name: &str, element: tensor_proto::DataType, shape: &[usize]) -> ValueInfoProto {
    let dim = |&size: &usize| tensor_shape_proto::Dimension {
        value: Some(tensor_shape_proto::dimension::Value::DimValue(size as i64)),
        ..tensor_shape_proto::Dimension::default()
    };
    let tensor = type_proto::Tensor {
        elem_type: Some(element as i32),
        shape: Some(TensorShapeProto { dim: shape.iter().map(dim).collect() }),
    };
    ValueInfoProto {
        name: Some(name.to_owned()),
        r#type: Some(TypeProto {
            value: Some(type_proto::Value::TensorType(tensor)),
            ..TypeProto::default()
        }),
        ..ValueInfoProto::default()
    }
}
