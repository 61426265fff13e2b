//! The C header that travels inside an artifact: the model's tensors as constants.

use std::fmt::Write;

use crate::{DataType, Manifest, TensorInfo};

/// A C header for one model, to be used beside `hone.h`. `name` is the model's; the prefix of every
/// constant is made from it.
pub fn c_header(manifest: &Manifest, name: &str) -> String {
    let prefix = identifier(name);
    let mut text = String::new();
    // Writing into a String cannot fail.
    let _ = writeln!(
        text,
        "/* Tensors of the model with digest {}. */",
        comment(&manifest.model_digest)
    );
    let _ = writeln!(text, "#ifndef HONE_MODEL_{prefix}_H\n#define HONE_MODEL_{prefix}_H\n");
    let mut sizes: Vec<String> = Vec::new();
    for shapes in manifest.variants.iter().filter_map(|variant| variant.shapes.as_ref()) {
        let line = comment(&shapes.to_string());
        if !sizes.contains(&line) {
            sizes.push(line);
        }
    }
    if let Some(first) = sizes.first() {
        let _ = writeln!(text, "/* For {}. What follows is for {first}. */", sizes.join("; "));
    }
    let inputs = &manifest.inputs[..manifest.given_inputs()];
    let _ = writeln!(text, "#define {prefix}_INPUTS {}", inputs.len());
    let _ = writeln!(text, "#define {prefix}_OUTPUTS {}", manifest.outputs.len());
    for (role, list) in [("INPUT", inputs), ("OUTPUT", &manifest.outputs)] {
        for (index, tensor) in list.iter().enumerate() {
            describe(&mut text, &format!("{prefix}_{role}_{index}"), tensor);
        }
    }
    text.push_str("\n#endif\n");
    text
}

fn describe(text: &mut String, prefix: &str, tensor: &TensorInfo) {
    let shape: Vec<String> = tensor.shape.iter().map(u64::to_string).collect();
    let (name, dtype) = (comment(&tensor.name), tensor.dtype);
    let _ = writeln!(text, "\n/* '{name}': {dtype} [{}] */", shape.join(", "));
    let _ = writeln!(text, "#define {prefix}_TYPE {}", c_type(dtype));
    let _ = writeln!(text, "#define {prefix}_BYTES {}ull", tensor.bytes);
    let _ = writeln!(text, "#define {prefix}_ELEMENTS {}ull", tensor.shape.iter().product::<u64>());
}

/// The type of `<stdint.h>` that holds one element; those that C lacks cross as their bits.
fn c_type(dtype: DataType) -> &'static str {
    match dtype {
        DataType::F32 => "float",
        DataType::F64 => "double",
        DataType::F16 | DataType::Bf16 | DataType::U16 => "uint16_t",
        DataType::I8 => "int8_t",
        DataType::U8 | DataType::Bool => "uint8_t",
        DataType::I16 => "int16_t",
        DataType::I32 => "int32_t",
        DataType::U32 => "uint32_t",
        DataType::I64 => "int64_t",
        DataType::U64 => "uint64_t",
    }
}

/// Text that cannot end a comment or its line.
fn comment(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() || matches!(c, '*' | '\\' | '?') { '_' } else { c })
        .collect()
}

fn identifier(name: &str) -> String {
    let mut id: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
        .collect();
    if id.is_empty() || id.starts_with(|c: char| c.is_ascii_digit()) {
        id.insert_str(0, "MODEL_");
    }
    id
}
