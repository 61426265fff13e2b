//! ONNX models in protobuf's wire format, field by field, so that broken ones can be written too.

/// A value that takes its own length.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    bytes.extend(varint(content.len() as u64));
    bytes.extend(content);
    bytes
}

/// A whole number.
fn number(number: u8, value: u64) -> Vec<u8> {
    let mut bytes = vec![number << 3];
    bytes.extend(varint(value));
    bytes
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn text(number: u8, content: &str) -> Vec<u8> {
    field(number, content.as_bytes())
}

/// An f32 input or output; a dimension that is no number is a symbol.
pub fn port(name: &str, shape: &[&str]) -> Vec<u8> {
    let dimensions = shape.iter().map(|extent| match extent.parse() {
        Ok(extent) => field(1, &number(1, extent)),
        Err(_) => field(1, &text(2, extent)),
    });
    let shape: Vec<u8> = dimensions.flatten().collect();
    let tensor = [number(1, 1), field(2, &shape)].concat();
    [text(1, name), field(2, &field(1, &tensor))].concat()
}

/// A node without attributes.
pub fn node(name: &str, operator: &str, inputs: &[&str], outputs: &[&str]) -> Vec<u8> {
    let inputs = inputs.iter().flat_map(|input| text(1, input));
    let outputs = outputs.iter().flat_map(|output| text(2, output));
    let mut bytes: Vec<u8> = inputs.chain(outputs).collect();
    bytes.extend(text(3, name));
    bytes.extend(text(4, operator));
    bytes
}

/// f32 elements that lie in another file.
pub fn external(name: &str, extent: u64, location: &str) -> Vec<u8> {
    let entry = [text(1, "location"), text(2, location)].concat();
    [number(1, extent), number(2, 1), text(8, name), field(13, &entry), number(14, 1)].concat()
}

/// A stored row of integers.
pub fn integers(name: &str, values: &[i64]) -> Vec<u8> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    [number(1, values.len() as u64), number(2, 7), text(8, name), field(9, &bytes)].concat()
}

/// A model of opset 17.
pub fn model(
    nodes: &[Vec<u8>],
    stored: &[Vec<u8>],
    inputs: &[Vec<u8>],
    outputs: &[Vec<u8>],
) -> Vec<u8> {
    let all = |number, list: &[Vec<u8>]| -> Vec<u8> {
        list.iter().flat_map(|entry| field(number, entry)).collect()
    };
    let graph =
        [all(1, nodes), text(2, "graph"), all(5, stored), all(11, inputs), all(12, outputs)]
            .concat();
    [number(1, 8), field(7, &graph), field(8, &number(2, 17))].concat()
}

/// One operator on `x` of the given shape, giving `y` of the same.
pub fn unary(operator: &str, shape: &[&str]) -> Vec<u8> {
    let node = node("the_node", operator, &["x"], &["y"]);
    model(&[node], &[], &[port("x", shape)], &[port("y", shape)])
}
