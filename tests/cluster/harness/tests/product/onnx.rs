//! Small ONNX files, written field by field as `onnx.proto` numbers them: the tests of a cluster link nothing of the compiler.

/// A number as protocol buffers write it.
fn number(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// A field that is a number.
fn count(field: u64, value: u64) -> Vec<u8> {
    [number(field << 3), number(value)].concat()
}

/// A field that is text, bytes or a message.
fn message(field: u64, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    [&number(field << 3 | 2), &number(content.len() as u64), content].concat()
}

/// A file of 32-bit floats in the making, of operator set 17.
#[derive(Default)]
pub struct Graph(Vec<u8>);

impl Graph {
    /// A value that users give (11) or get (12).
    fn port(&mut self, field: u64, name: &str, shape: &[u64]) {
        let sizes: Vec<u8> = shape.iter().flat_map(|&size| message(1, count(1, size))).collect();
        let tensor = [count(1, 1), message(2, sizes)].concat();
        let port = [message(1, name), message(2, message(1, tensor))].concat();
        self.0.extend(message(field, port));
    }

    /// A value that users give.
    pub fn input(&mut self, name: &str, shape: &[u64]) {
        self.port(11, name, shape);
    }

    /// A value that users get.
    pub fn output(&mut self, name: &str, shape: &[u64]) {
        self.port(12, name, shape);
    }

    /// A constant, row major.
    pub fn constant(&mut self, name: &str, shape: &[u64], values: impl Iterator<Item = f32>) {
        let sizes: Vec<u8> = shape.iter().flat_map(|&size| count(1, size)).collect();
        let raw: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
        let tensor = [sizes, count(2, 1), message(8, name), message(9, raw)].concat();
        self.0.extend(message(5, tensor));
    }

    /// A node `name` of one output, which has the same name.
    pub fn node(
        &mut self,
        name: &str,
        operator: &str,
        inputs: &[&str],
        attributes: &[Attribute<'_>],
    ) {
        let inputs: Vec<u8> = inputs.iter().flat_map(|input| message(1, input)).collect();
        let attributes: Vec<u8> =
            attributes.iter().flat_map(|own| message(5, own.bytes())).collect();
        let named = [message(2, name), message(3, name), message(4, operator)].concat();
        self.0.extend(message(1, [inputs, named, attributes].concat()));
    }

    /// The file.
    pub fn file(self) -> Vec<u8> {
        let graph = [self.0, message(2, "g")].concat();
        [count(1, 8), message(7, graph), message(8, count(2, 17))].concat()
    }
}

/// A node's attribute: its name, and one integer or several.
pub enum Attribute<'a> {
    /// One.
    Integer(&'a str, u64),
    /// Several.
    Integers(&'a str, &'a [u64]),
}

impl Attribute<'_> {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Integer(name, value) => {
                [message(1, name), count(3, *value), count(20, 2)].concat()
            }
            Self::Integers(name, values) => {
                let values: Vec<u8> = values.iter().flat_map(|&value| count(8, value)).collect();
                [message(1, name), values, count(20, 7)].concat()
            }
        }
    }
}
