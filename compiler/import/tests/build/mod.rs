//! Small ONNX models for the tests.

#![allow(dead_code, clippy::unwrap_used)]

use hone_import::onnx::proto::attribute_proto::AttributeType;
use hone_import::onnx::proto::tensor_shape_proto::{Dimension, dimension::Value as Extent};
use hone_import::onnx::proto::type_proto::{Tensor as TensorTypeProto, Value as TypeValue};
use hone_import::onnx::proto::*;
use hone_import::{ImportError, ImportOptions, Imported};
use hone_ops::Evaluation;
use hone_types::Tensor;
use prost::Message;

pub const F32: i32 = 1;
pub const U8: i32 = 2;
pub const I32: i32 = 6;
pub const I64: i32 = 7;
pub const BOOL: i32 = 9;

/// A node called after its first output.
pub fn node(operator: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    NodeProto {
        op_type: Some(operator.into()),
        name: Some(format!("make_{}", outputs[0])),
        input: inputs.iter().map(|name| name.to_string()).collect(),
        output: outputs.iter().map(|name| name.to_string()).collect(),
        ..NodeProto::default()
    }
}

/// Attributes in the order of calls.
pub trait Attributes: Sized {
    fn with(self, attribute: AttributeProto) -> Self;

    fn int(self, name: &str, value: i64) -> Self {
        self.with(AttributeProto { i: Some(value), ..attribute(name, AttributeType::Int) })
    }

    fn ints(self, name: &str, values: &[i64]) -> Self {
        self.with(AttributeProto { ints: values.to_vec(), ..attribute(name, AttributeType::Ints) })
    }

    fn float(self, name: &str, value: f32) -> Self {
        self.with(AttributeProto { f: Some(value), ..attribute(name, AttributeType::Float) })
    }

    fn floats(self, name: &str, values: &[f32]) -> Self {
        let floats = values.to_vec();
        self.with(AttributeProto { floats, ..attribute(name, AttributeType::Floats) })
    }

    fn strings(self, name: &str, values: &[&str]) -> Self {
        let strings = values.iter().map(|value| value.as_bytes().to_vec()).collect();
        self.with(AttributeProto { strings, ..attribute(name, AttributeType::Strings) })
    }

    fn string(self, name: &str, value: &str) -> Self {
        let s = Some(value.as_bytes().to_vec());
        self.with(AttributeProto { s, ..attribute(name, AttributeType::String) })
    }

    fn graph(self, name: &str, graph: GraphProto) -> Self {
        self.with(AttributeProto { g: Some(graph), ..attribute(name, AttributeType::Graph) })
    }

    fn tensor(self, name: &str, tensor: TensorProto) -> Self {
        self.with(AttributeProto { t: Some(tensor), ..attribute(name, AttributeType::Tensor) })
    }
}

impl Attributes for NodeProto {
    fn with(mut self, attribute: AttributeProto) -> Self {
        self.attribute.push(attribute);
        self
    }
}

pub fn attribute(name: &str, kind: AttributeType) -> AttributeProto {
    AttributeProto { name: Some(name.into()), r#type: Some(kind as i32), ..Default::default() }
}

pub fn floats(name: &str, dims: &[i64], values: &[f32]) -> TensorProto {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    TensorProto {
        name: Some(name.into()),
        dims: dims.to_vec(),
        data_type: Some(F32),
        raw_data: Some(bytes.into()),
        ..TensorProto::default()
    }
}

pub fn integers(name: &str, values: &[i64]) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        dims: vec![values.len() as i64],
        data_type: Some(I64),
        int64_data: values.to_vec(),
        ..TensorProto::default()
    }
}

/// Bytes without a sign that differ from one another.
pub fn bytes(name: &str, dims: &[i64]) -> TensorProto {
    let count: i64 = dims.iter().product();
    let values: Vec<u8> = (0..count).map(|place| (place * 37 % 251) as u8).collect();
    TensorProto {
        name: Some(name.into()),
        dims: dims.to_vec(),
        data_type: Some(U8),
        raw_data: Some(values.into()),
        ..TensorProto::default()
    }
}

/// A scalar byte.
pub fn byte(name: &str, value: u8) -> TensorProto {
    TensorProto { raw_data: Some(vec![value].into()), ..bytes(name, &[]) }
}

/// Weights that differ from one another.
pub fn weights(name: &str, dims: &[i64]) -> TensorProto {
    let count: i64 = dims.iter().product();
    let values: Vec<f32> = (0..count).map(|place| ((place * 37 % 19) - 9) as f32 / 10.0).collect();
    floats(name, dims, &values)
}

/// A declared tensor; dimensions are numbers or symbols.
pub fn port(name: &str, kind: i32, dims: &[&str]) -> ValueInfoProto {
    let dim = dims.iter().map(|dim| Dimension {
        value: Some(match dim.parse() {
            Ok(extent) => Extent::DimValue(extent),
            Err(_) => Extent::DimParam(dim.to_string()),
        }),
        denotation: None,
    });
    let shape = Some(TensorShapeProto { dim: dim.collect() });
    let tensor = TensorTypeProto { elem_type: Some(kind), shape };
    ValueInfoProto {
        name: Some(name.into()),
        r#type: Some(TypeProto { value: Some(TypeValue::TensorType(tensor)), denotation: None }),
        ..ValueInfoProto::default()
    }
}

pub fn graph(
    inputs: Vec<ValueInfoProto>,
    initializer: Vec<TensorProto>,
    node: Vec<NodeProto>,
    outputs: &[&str],
) -> GraphProto {
    let output = outputs
        .iter()
        .map(|name| ValueInfoProto { name: Some(name.to_string()), ..ValueInfoProto::default() });
    GraphProto { input: inputs, initializer, node, output: output.collect(), ..Default::default() }
}

pub fn model(graph: GraphProto, opset: i64) -> ModelProto {
    let default = OperatorSetIdProto { domain: Some(String::new()), version: Some(opset) };
    ModelProto {
        ir_version: Some(8),
        opset_import: vec![default],
        graph: Some(graph),
        ..ModelProto::default()
    }
}

/// The domain of onnxruntime's operators.
const MICROSOFT: &str = "com.microsoft";

/// A node of onnxruntime's operators.
pub fn of_microsoft(node: NodeProto) -> NodeProto {
    NodeProto { domain: Some(MICROSOFT.into()), ..node }
}

/// A model that has onnxruntime's operators, too.
pub fn with_microsoft(mut model: ModelProto) -> ModelProto {
    let domain = Some(MICROSOFT.into());
    model.opset_import.push(OperatorSetIdProto { domain, version: Some(1) });
    model
}

pub fn import(model: &ModelProto) -> Result<Imported, ImportError> {
    import_with(model, &ImportOptions::default())
}

pub fn import_with(model: &ModelProto, options: &ImportOptions) -> Result<Imported, ImportError> {
    hone_import::import(&model.encode_to_vec(), options)
}

/// The whole chain of an error, as a person sees it.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(&format!(": {error}"));
        source = error.source();
    }
    text
}

/// A small convolutional network with everything such networks have.
pub fn convolutional() -> ModelProto {
    let nodes = vec![
        node("Conv", &["x", "w1", "b1"], &["c1"]).ints("pads", &[1, 1, 1, 1]).int("group", 1),
        node("BatchNormalization", &["c1", "s", "b1", "m", "v"], &["n1"]).float("epsilon", 1e-5),
        node("Relu", &["n1"], &["r1"]),
        node("MaxPool", &["r1"], &["p1"]).ints("kernel_shape", &[2, 2]).ints("strides", &[2, 2]),
        node("Conv", &["p1", "w2"], &["c2"]).string("auto_pad", "SAME_UPPER").int("group", 4),
        node("Clip", &["c2", "low", "high"], &["r2"]),
        node("Add", &["r2", "p1"], &["a"]),
        node("ConvTranspose", &["a", "w3"], &["t"]).ints("strides", &[2, 2]),
        node("GlobalAveragePool", &["t"], &["g"]),
        node("Flatten", &["g"], &["f"]),
        node("Gemm", &["f", "w4", "b4"], &["y"]).int("transB", 1),
    ];
    let stored = vec![
        weights("w1", &[4, 3, 3, 3]),
        weights("b1", &[4]),
        weights("s", &[4]),
        weights("m", &[4]),
        floats("v", &[4], &[1.0, 0.5, 2.0, 0.1]),
        weights("w2", &[4, 1, 3, 3]),
        floats("low", &[], &[0.0]),
        floats("high", &[], &[6.0]),
        weights("w3", &[4, 2, 2, 2]),
        weights("w4", &[5, 2]),
        weights("b4", &[5]),
    ];
    let inputs = vec![port("x", F32, &["1", "3", "8", "8"])];
    model(graph(inputs, stored, nodes, &["y"]), 17)
}

/// An attention block whose shapes are computed, as exporters write it.
pub fn attention() -> ModelProto {
    let nodes = vec![
        node("Gather", &["table", "tokens"], &["e"]),
        node("LayerNormalization", &["e", "scale", "shift"], &["n"]).int("axis", -1),
        node("MatMul", &["n", "w"], &["qkv"]),
        node("Split", &["qkv", "thirds"], &["q", "k", "v"]).int("axis", 2),
        node("Shape", &["tokens"], &["shape"]),
        node("Gather", &["shape", "zero"], &["batch"]).int("axis", 0),
        node("Unsqueeze", &["batch", "axis0"], &["batch1"]),
        node("Concat", &["batch1", "rest"], &["heads"]).int("axis", 0),
        node("Reshape", &["q", "heads"], &["q4"]),
        node("Reshape", &["k", "heads"], &["k4"]),
        node("Reshape", &["v", "heads"], &["v4"]),
        node("Transpose", &["q4"], &["qt"]).ints("perm", &[0, 2, 1, 3]),
        node("Transpose", &["k4"], &["kt"]).ints("perm", &[0, 2, 3, 1]),
        node("Transpose", &["v4"], &["vt"]).ints("perm", &[0, 2, 1, 3]),
        node("MatMul", &["qt", "kt"], &["scores"]),
        node("Div", &["scores", "root"], &["scaled"]),
        node("Softmax", &["scaled"], &["p"]).int("axis", -1),
        node("MatMul", &["p", "vt"], &["o"]),
        node("Erf", &["o"], &["g"]),
        node("ReduceMean", &["g"], &["y"]).ints("axes", &[1, -1]).int("keepdims", 0),
        node("Einsum", &["qt", "kt"], &["z"]).string("equation", "bhid,bhdj->bij"),
        node("Slice", &["z", "axis0", "two", "one"], &["s"]),
        node("Where", &["mask", "s", "root"], &["u"]),
    ];
    let stored = vec![
        weights("table", &[11, 8]),
        weights("scale", &[8]),
        weights("shift", &[8]),
        weights("w", &[8, 24]),
        integers("thirds", &[8, 8, 8]),
        TensorProto { dims: vec![], ..integers("zero", &[0]) },
        integers("axis0", &[0]),
        integers("two", &[2]),
        integers("one", &[1]),
        integers("rest", &[-1, 2, 4]),
        floats("root", &[], &[2.0]),
    ];
    let inputs = vec![port("tokens", I64, &["batch", "length"]), port("mask", BOOL, &["length"])];
    model(graph(inputs, stored, nodes, &["y", "u"]), 17)
}

/// Operators of other kinds: recurrent, resize, pads, windows, indices.
pub fn assorted() -> ModelProto {
    let nodes = vec![
        node("LSTM", &["x", "w", "r"], &["seq", "last", ""]).int("hidden_size", 3),
        node("Squeeze", &["last", "zero1"], &["h"]),
        node("Resize", &["image", "", "scales"], &["big"])
            .string("mode", "linear")
            .string("coordinate_transformation_mode", "asymmetric"),
        node("Pad", &["big", "pads"], &["padded"]).string("mode", "reflect"),
        node("AveragePool", &["padded"], &["pooled"])
            .ints("kernel_shape", &[3, 3])
            .ints("strides", &[2, 2])
            .int("ceil_mode", 1)
            .int("count_include_pad", 1)
            .ints("pads", &[1, 1, 1, 1]),
        node("ArgMax", &["pooled"], &["places"]).int("axis", 1).int("keepdims", 0),
        node("OneHot", &["places", "depth", "values"], &["hot"]).int("axis", -1),
        node("CumSum", &["hot", "zero1"], &["sums"]),
        node("TopUp", &["sums"], &["up"]),
        node("Range", &["start", "limit", "delta"], &["range"]),
        node("Tile", &["range", "two"], &["tiled"]),
        node("DepthToSpace", &["image4"], &["space"]).int("blocksize", 2),
        node("Expand", &["image", "wide"], &["image4"]),
        node("GatherElements", &["space", "spots"], &["spot"]).int("axis", 3),
        node("If", &["yes"], &["branch"])
            .graph("then_branch", graph(vec![], vec![], vec![node("Neg", &["up"], &["t"])], &["t"]))
            .graph(
                "else_branch",
                graph(vec![], vec![], vec![node("Foo", &["up"], &["e"])], &["e"]),
            ),
    ];
    let mut nodes = nodes;
    // Order matters: what is read comes first.
    nodes.swap(11, 12);
    let stored = vec![
        weights("w", &[1, 12, 2]),
        weights("r", &[1, 12, 3]),
        integers("zero1", &[0]),
        floats("scales", &[4], &[1.0, 1.0, 2.0, 2.0]),
        integers("pads", &[0, 0, 1, 1, 0, 0, 1, 1]),
        TensorProto { dims: vec![], ..integers("depth", &[4]) },
        floats("values", &[2], &[0.0, 1.0]),
        TensorProto { dims: vec![], ..integers("start", &[0]) },
        TensorProto { dims: vec![], ..integers("limit", &[6]) },
        TensorProto { dims: vec![], ..integers("delta", &[2]) },
        integers("two", &[2]),
        integers("wide", &[1, 4, 4, 4]),
        TensorProto { dims: vec![1, 1, 1, 1], ..integers("spots", &[3]) },
        TensorProto {
            data_type: Some(BOOL),
            dims: vec![],
            raw_data: Some(vec![1].into()),
            int64_data: vec![],
            ..integers("yes", &[1])
        },
    ];
    let inputs = vec![port("x", F32, &["5", "1", "2"]), port("image", F32, &["1", "1", "4", "4"])];
    let mut built = model(graph(inputs, stored, nodes, &["h", "tiled", "spot", "branch"]), 18);
    // TopUp adds to its input what its attribute says.
    let add = node("Constant", &[], &["by"]).with(AttributeProto {
        ref_attr_name: Some("by".into()),
        ..attribute("value_float", AttributeType::Float)
    });
    built.functions.push(FunctionProto {
        name: Some("TopUp".into()),
        input: vec!["a".into()],
        output: vec!["b".into()],
        attribute_proto: vec![AttributeProto {
            f: Some(0.5),
            ..attribute("by", AttributeType::Float)
        }],
        node: vec![add, node("Add", &["a", "by"], &["b"])],
        opset_import: built.opset_import.clone(),
        domain: Some(String::new()),
        ..FunctionProto::default()
    });
    built
}

/// A truth value that the model stores.
pub fn truth(name: &str, value: bool) -> TensorProto {
    TensorProto {
        data_type: Some(BOOL),
        dims: vec![],
        int64_data: vec![],
        raw_data: Some(vec![u8::from(value)].into()),
        ..integers(name, &[1])
    }
}

/// A number that the model stores.
pub fn integer(name: &str, value: i64) -> TensorProto {
    TensorProto { dims: vec![], ..integers(name, &[value]) }
}

/// Branches and loops that are decided at run time: a loop whose body holds a condition and reads what is around it,
/// a loop whose length is an input, and a scan that goes backwards.
pub fn controlled() -> ModelProto {
    let branch =
        |operator: &str| graph(vec![], vec![], vec![node(operator, &["c", "w"], &["b"])], &["b"]);
    let body = graph(
        vec![port("i", I64, &[]), port("goes", BOOL, &[]), port("c", F32, &["2", "3"])],
        vec![integer("one", 1)],
        vec![
            node("Equal", &["i", "one"], &["second"]),
            node("If", &["second"], &["d"])
                .graph("then_branch", branch("Add"))
                .graph("else_branch", branch("Mul")),
            node("Unsqueeze", &["i", "zero"], &["from"]),
            node("Add", &["i", "one"], &["next"]),
            node("Unsqueeze", &["next", "zero"], &["to"]),
            node("Slice", &["x", "from", "to"], &["row"]),
            node("Add", &["d", "row"], &["e"]),
            node("Identity", &["goes"], &["on"]),
            node("Identity", &["e"], &["copy"]),
        ],
        &["on", "e", "copy"],
    );
    let counted = graph(
        vec![port("k", I64, &[]), port("go", BOOL, &[]), port("s", F32, &["3"])],
        vec![],
        vec![
            node("Add", &["s", "s"], &["t"]),
            node("ReduceMax", &["t"], &["largest"]).int("keepdims", 0),
            node("Less", &["largest", "limit"], &["again"]),
        ],
        &["again", "t", "t"],
    );
    let scanned = graph(
        vec![port("h", F32, &["3"]), port("slice", F32, &["3"])],
        vec![],
        vec![node("Add", &["h", "slice"], &["h2"]), node("Neg", &["h2"], &["out"])],
        &["h2", "out"],
    );
    let nodes = vec![
        node("Loop", &["two", "yes", "x"], &["last", "all"]).graph("body", body),
        node("Loop", &["trips", "yes", "start"], &["doubled", "each"]).graph("body", counted),
        node("Scan", &["start", "x"], &["sum", "sums"])
            .graph("body", scanned)
            .int("num_scan_inputs", 1)
            .ints("scan_input_directions", &[1])
            .ints("scan_output_directions", &[1])
            .ints("scan_output_axes", &[1]),
    ];
    let stored = vec![
        integer("two", 2),
        truth("yes", true),
        integers("zero", &[0]),
        weights("w", &[2, 3]),
        floats("start", &[3], &[1.0, 2.0, 3.0]),
        floats("limit", &[], &[20.0]),
    ];
    let inputs = vec![port("x", F32, &["2", "3"]), port("trips", I64, &[])];
    let mut graph = graph(inputs, stored, nodes, &["last", "all", "doubled", "sum", "sums"]);
    graph.output.push(port("each", F32, &["5", "3"]));
    model(graph, 17)
}

/// Results whose size the data decides, inside and outside of a branch.
pub fn counted() -> ModelProto {
    let then = graph(
        vec![],
        vec![],
        vec![node("NonZero", &["x"], &["p"]), node("Shape", &["x"], &["t"])],
        &["t"],
    );
    let otherwise = graph(
        vec![],
        vec![integers("two", &[2, 2])],
        vec![node("Identity", &["two"], &["e"])],
        &["e"],
    );
    let nodes = vec![
        node("If", &["b"], &["shape"]).graph("then_branch", then).graph("else_branch", otherwise),
        node("NonZero", &["x"], &["places"]),
        node("Unique", &["x"], &["values", "first", "inverse", "counts"])
            .int("axis", 1)
            .int("sorted", 0),
        node("Compress", &["x", "mask"], &["taken"]).int("axis", 0),
        node("NonMaxSuppression", &["boxes", "scores", "most", "overlap", "least"], &["chosen"])
            .int("center_point_box", 1),
    ];
    let stored = vec![
        integer("most", 2),
        floats("overlap", &[1], &[0.5]),
        floats("least", &[1], &[0.1]),
        weights("boxes", &[1, 4, 4]),
    ];
    let inputs = vec![
        port("x", F32, &["2", "3"]),
        port("b", BOOL, &[]),
        port("mask", BOOL, &["2"]),
        port("scores", F32, &["1", "2", "4"]),
    ];
    let outputs = ["shape", "places", "values", "first", "inverse", "counts", "taken", "chosen"];
    model(graph(inputs, stored, nodes, &outputs), 17)
}

/// Shapes that values of inputs decide, held to what is declared of the results.
pub fn decided() -> ModelProto {
    let nodes = vec![
        node("Reshape", &["x", "shape"], &["r"]).int("allowzero", 0),
        node("Slice", &["r", "starts", "ends", "axes", "steps"], &["s"]),
        node("Pad", &["s", "pads", "", "axes"], &["p"]).string("mode", "edge"),
        node("ReduceSum", &["p", "axes"], &["sum"]).int("keepdims", 1),
        node("Expand", &["sum", "shape"], &["e"]),
        node("Resize", &["e", "", "scales"], &["big"]).string("mode", "linear"),
        node("Trilu", &["big", "k"], &["t"]).int("upper", 1),
        node("CumSum", &["t", "k"], &["c"]).int("reverse", 1),
        node("TopK", &["c", "k1"], &["top", "places"]).int("axis", 1),
        node("Range", &["k", "k", "k"], &["none"]),
    ];
    let list = |name: &str, count: &str| port(name, I64, &[count]);
    let inputs = vec![
        port("x", F32, &["2", "6"]),
        list("shape", "2"),
        list("starts", "1"),
        list("ends", "1"),
        list("axes", "1"),
        list("steps", "1"),
        list("pads", "2"),
        port("scales", F32, &["2"]),
        port("k", I64, &[]),
        list("k1", "1"),
    ];
    let mut graph = graph(inputs, vec![], nodes, &["top", "none"]);
    let declared = |name: &str, dims: &[&str]| port(name, F32, dims);
    graph.value_info = vec![
        declared("r", &["3", "4"]),
        declared("s", &["3", "2"]),
        declared("p", &["3", "4"]),
        declared("sum", &["3", "1"]),
        declared("e", &["3", "4"]),
        declared("big", &["5", "6"]),
    ];
    graph.output = vec![declared("top", &["5", "2"]), port("none", I64, &["0"])];
    model(graph, 18)
}

/// Elements and shape of the first output, as a run gives it.
pub fn first(model: &ModelProto, inputs: &[Tensor]) -> (Vec<f64>, Vec<usize>) {
    first_with(model, &ImportOptions::default(), inputs)
}

/// The same of a model that is imported with `options`.
pub fn first_with(
    model: &ModelProto,
    options: &ImportOptions,
    inputs: &[Tensor],
) -> (Vec<f64>, Vec<usize>) {
    let imported = import_with(model, options).unwrap_or_else(|error| panic!("{}", chain(&error)));
    let graph = imported.graph;
    let mut evaluation = Evaluation::new(&graph, inputs).unwrap();
    graph.nodes().ids().try_for_each(|node| evaluation.compute(node)).unwrap();
    let mut shape = graph.tensor_type(graph.outputs()[0].value).shape.clone();
    for (extent, actual) in graph.extents().iter().zip(evaluation.extents()) {
        if extent.output == 0 {
            shape[extent.axis] = actual as usize;
        }
    }
    let mut elements = evaluation.outputs()[0].to_f64();
    elements.truncate(shape.iter().product());
    (elements, shape)
}

pub fn matrix() -> Tensor {
    Tensor::from_elements([4, 2], &[1.0f32, 2.0, -3.0, 4.0, 5.0, 6.0, -7.0, 8.0]).unwrap()
}

/// The rows of `x`, `f32[4, 2]`, whose first element is above zero, as `rows`; then `nodes` to `y`.
pub fn chosen(nodes: Vec<NodeProto>) -> ModelProto {
    let mut all = vec![
        node("Gather", &["x", "zero"], &["column"]).int("axis", 1),
        node("Greater", &["column", "nothing"], &["mask"]),
        node("NonZero", &["mask"], &["found"]),
        node("Transpose", &["found"], &["places"]),
        node("GatherND", &["x", "places"], &["rows"]),
    ];
    all.extend(nodes);
    let stored = vec![
        integer("zero", 0),
        integers("ones", &[1]),
        integers("least", &[0]),
        integers("most", &[1]),
        integers("last", &[-1]),
        integers("end", &[i64::MAX]),
        floats("nothing", &[], &[0.0]),
        integers("three", &[3]),
        integers("minus_two", &[-2]),
        integers("whole_row", &[2]),
        integer("one", 1),
        integer("minus_one", -1),
    ];
    model(graph(vec![port("x", F32, &["4", "2"])], stored, all, &["y"]), 13)
}
