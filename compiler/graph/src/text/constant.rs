//! Elements of constants as text.

use hone_types::{DataType, Tensor, TensorType};

/// Elements up to which a constant is printed as a list.
const LONGEST_LIST: usize = 16;

/// The elements as text, exactly.
pub(super) fn print(tensor: &Tensor) -> String {
    let forms = [splat(tensor), list(tensor), pattern(tensor)];
    // A form that does not give the very bits (a NaN's payload, an integer past 2^53) is not used.
    let exact = |text: &String| parse(tensor.tensor_type(), text).as_ref() == Ok(tensor);
    forms.into_iter().flatten().find(exact).unwrap_or_else(|| bytes(tensor))
}

/// The elements as text where that is short, else a digest that tells two constants apart.
pub(super) fn print_short(tensor: &Tensor) -> String {
    let exact = print(tensor);
    match exact.strip_prefix("bytes ") {
        Some(_) => format!("digest {:016x}", xxhash_rust::xxh3::xxh3_64(tensor.bytes())),
        None => exact,
    }
}

/// The tensor of a printed constant, or what is wrong with it.
pub(super) fn parse(tensor_type: &TensorType, text: &str) -> Result<Tensor, String> {
    let size = tensor_type.checked_bytes().filter(|bytes| *bytes <= LARGEST);
    size.ok_or_else(|| format!("a constant of {tensor_type} is too large for a text"))?;
    let count = tensor_type.elements();
    let values = |values: &[f64]| {
        Tensor::from_f64(tensor_type.dtype, tensor_type.shape.clone(), values)
            .map_err(|_| format!("{} elements given for {tensor_type}", values.len()))
    };
    if let Some(digits) = text.strip_prefix("bytes ") {
        let bytes = hexadecimal(digits).ok_or("the bytes are not pairs of hexadecimal digits")?;
        return Tensor::from_bytes(tensor_type.clone(), bytes).map_err(|error| error.to_string());
    }
    if let Some(element) = text.strip_prefix("splat ") {
        return values(&vec![number(element)?; count]);
    }
    if text == "pattern" {
        return values(&(0..count).map(pattern_element).collect::<Vec<_>>());
    }
    let inside = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let inside = inside.ok_or("expected a list of elements, splat, pattern or bytes")?;
    let elements = inside.split(',').map(str::trim).filter(|element| !element.is_empty());
    values(&elements.map(number).collect::<Result<Vec<_>, _>>()?)
}

/// Bytes of a constant that a text is taken to mean.
const LARGEST: usize = 1 << 28;

fn pattern_element(index: usize) -> f64 {
    ((31 * index + index / 5) % 7) as f64 - 3.0
}

fn number(text: &str) -> Result<f64, String> {
    match text {
        "true" => Ok(1.0),
        "false" => Ok(0.0),
        other => other.parse().map_err(|_| format!("'{other}' is not a number")),
    }
}

fn element(dtype: DataType, value: f64) -> String {
    match dtype {
        DataType::Bool => (value != 0.0).to_string(),
        DataType::F64 => format!("{value:?}"),
        _ if dtype.is_float() => format!("{:?}", value as f32),
        _ => format!("{value}"),
    }
}

fn splat(tensor: &Tensor) -> Option<String> {
    let size = tensor.dtype().bytes();
    let first = tensor.bytes().get(..size)?;
    let alike = tensor.bytes().chunks_exact(size).all(|element| element == first);
    let value = Tensor::from_bytes(TensorType::new(tensor.dtype(), []), first.to_vec()).ok()?;
    let several = tensor.tensor_type().elements() > 1;
    (alike && several).then(|| format!("splat {}", element(tensor.dtype(), value.to_f64()[0])))
}

fn list(tensor: &Tensor) -> Option<String> {
    let short = tensor.tensor_type().elements() <= LONGEST_LIST;
    let elements = || tensor.to_f64().into_iter().map(|value| element(tensor.dtype(), value));
    short.then(|| format!("[{}]", elements().collect::<Vec<_>>().join(", ")))
}

fn pattern(tensor: &Tensor) -> Option<String> {
    let mut elements = tensor.to_f64().into_iter().enumerate();
    elements.all(|(index, value)| value == pattern_element(index)).then(|| "pattern".to_owned())
}

fn bytes(tensor: &Tensor) -> String {
    let digits = tensor.bytes().iter().map(|byte| format!("{byte:02x}"));
    format!("bytes {}", digits.collect::<String>())
}

fn hexadecimal(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| {
            let text = std::str::from_utf8(pair).ok().filter(|text| text.len() == 2)?;
            u8::from_str_radix(text, 16).ok()
        })
        .collect()
}
