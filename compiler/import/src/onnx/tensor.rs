//! Stored tensors to host tensors.

use super::external::ExternalFiles;
use super::narrow::NarrowType;
use super::proto::{TensorProto, tensor_proto::DataLocation, tensor_proto::DataType as OnnxType};
use crate::{ImportError, Limits};
use bytes::Bytes;
use half::{bf16, f16};
use hone_types::{DataType, Element, Tensor, TensorType, intern_text};

/// Our element type for the number that ONNX uses, or what is wrong with it.
pub(super) fn element_type(number: i32) -> Result<DataType, String> {
    Ok(match OnnxType::try_from(number) {
        Ok(OnnxType::Float) => DataType::F32,
        Ok(OnnxType::Double) => DataType::F64,
        Ok(OnnxType::Float16) => DataType::F16,
        Ok(OnnxType::Bfloat16) => DataType::BF16,
        Ok(OnnxType::Int8) => DataType::I8,
        Ok(OnnxType::Int16) => DataType::I16,
        Ok(OnnxType::Int32) => DataType::I32,
        Ok(OnnxType::Int64) => DataType::I64,
        Ok(OnnxType::Uint8) => DataType::U8,
        Ok(OnnxType::Uint16) => DataType::U16,
        Ok(OnnxType::Uint32) => DataType::U32,
        Ok(OnnxType::Uint64) => DataType::U64,
        Ok(OnnxType::Bool) => DataType::Bool,
        Ok(OnnxType::Undefined) => return Err("the element type is left out".into()),
        Ok(other) if NarrowType::of_number(number).is_some() => {
            return Err(format!("element type {} is not taken here", other.as_str_name()));
        }
        Ok(other) => {
            return Err(format!("element type {} is not supported", other.as_str_name()));
        }
        Err(_) => return Err(format!("element type number {number} is unknown")),
    })
}

/// The number that ONNX uses for our element type.
pub(super) fn number_of(dtype: DataType) -> i32 {
    let is_it = |number: &i32| element_type(*number) == Ok(dtype);
    (0..=OnnxType::Bfloat16 as i32).find(is_it).unwrap_or(0)
}

/// The number of the type called `name`, in capitals.
pub(super) fn type_number(name: &str) -> Option<i32> {
    OnnxType::from_str_name(name).map(|known| known as i32)
}

/// The same, of narrow types the one that carries them.
pub(super) fn carrier_type(number: i32) -> Result<(DataType, Option<NarrowType>), String> {
    match NarrowType::of_number(number) {
        Some(narrow) => Ok((narrow.carrier(), Some(narrow))),
        None => Ok((element_type(number)?, None)),
    }
}

/// The type of a stored tensor.
fn tensor_type(proto: &TensorProto, limits: &Limits) -> Result<TensorType, String> {
    let (dtype, _) = carrier_type(proto.data_type.unwrap_or(0))?;
    if proto.dims.len() > limits.rank {
        return Err(format!("it has {} axes, the limit is {}", proto.dims.len(), limits.rank));
    }
    let shape: Result<Vec<usize>, _> = proto.dims.iter().map(|dim| usize::try_from(*dim)).collect();
    let shape = shape.map_err(|_| format!("its shape {:?} has a negative extent", proto.dims))?;
    let tensor_type = TensorType::new(dtype, shape);
    match checked_bytes(&tensor_type) {
        Some(bytes) if bytes <= limits.tensor_bytes => Ok(tensor_type),
        _ => Err(format!(
            "its shape {:?} takes more than the {} bytes that are allowed",
            proto.dims, limits.tensor_bytes
        )),
    }
}

/// Size of a type whose non-zero extents multiply without overflow. A zero extent must not hide the
/// others: shapes are multiplied in parts elsewhere.
pub(super) fn checked_bytes(tensor_type: &TensorType) -> Option<usize> {
    let mut spread = tensor_type.shape.iter().filter(|extent| **extent > 0);
    let largest =
        spread.try_fold(tensor_type.dtype.bytes(), |bytes, extent| bytes.checked_mul(*extent));
    largest.filter(|bytes| *bytes <= isize::MAX as usize)?;
    tensor_type.checked_bytes()
}

/// The tensor that a file stores. Raw data is a part of the file, and is not copied.
pub(super) fn load(
    mut proto: TensorProto,
    files: &mut ExternalFiles,
    limits: &Limits,
) -> Result<Tensor, ImportError> {
    let name = proto.name.take().unwrap_or_default();
    let malformed = |reason: String| ImportError::Tensor { name: name.clone(), reason };
    let tensor_type = tensor_type(&proto, limits).map_err(malformed)?;
    if proto.segment.is_some() {
        return Err(malformed("it is stored in segments, which is not supported".into()));
    }
    let narrow = NarrowType::of_number(proto.data_type.unwrap_or(0));
    let bytes = if narrow == Some(NarrowType::Text) {
        handles(&proto, &tensor_type).map_err(malformed)?.into()
    } else if let Some(narrow) = narrow {
        let needed = tensor_type.elements().div_ceil(8 / narrow.bits());
        let packed = match proto.data_location == Some(DataLocation::External as i32) {
            true => files.read(&name, &proto.external_data, needed)?,
            false => packed_bytes(&mut proto, needed).map_err(malformed)?,
        };
        narrow.unpack(&packed, tensor_type.elements()).into()
    } else if proto.data_location == Some(DataLocation::External as i32) {
        files.read(&name, &proto.external_data, tensor_type.bytes())?
    } else {
        stored_bytes(&mut proto, &tensor_type).map_err(malformed)?
    };
    let bytes = if tensor_type.dtype == DataType::Bool { truth(&bytes) } else { bytes };
    Tensor::from_shared(tensor_type, bytes).map_err(|error| malformed(error.to_string()))
}

/// Brings the bytes of a tensor that is stored outside of the model's file into it, as they are.
///
/// # Errors
/// As for [`load`].
pub(super) fn bring_inside(
    proto: &mut TensorProto,
    files: &mut ExternalFiles,
    limits: &Limits,
) -> Result<(), ImportError> {
    if proto.data_location != Some(DataLocation::External as i32) {
        return Ok(());
    }
    let name = proto.name.clone().unwrap_or_default();
    let tensor_type = tensor_type(proto, limits)
        .map_err(|reason| ImportError::Tensor { name: name.clone(), reason })?;
    let bytes = match NarrowType::of_number(proto.data_type.unwrap_or(0)) {
        Some(narrow) => tensor_type.elements().div_ceil(8 / narrow.bits().min(8)),
        None => tensor_type.bytes(),
    };
    proto.raw_data = Some(files.read(&name, &proto.external_data, bytes)?);
    proto.external_data.clear();
    proto.data_location = None;
    Ok(())
}

/// The handles of stored strings.
fn handles(proto: &TensorProto, tensor_type: &TensorType) -> Result<Vec<u8>, String> {
    let (needed, stored) = (tensor_type.elements(), proto.string_data.len());
    if needed != stored {
        return Err(format!("it needs {needed} strings, {stored} are stored"));
    }
    let mut bytes = Vec::with_capacity(tensor_type.bytes());
    for text in &proto.string_data {
        let text = std::str::from_utf8(text).map_err(|_| "a string of it is not UTF-8 text")?;
        intern_text(text).map_err(|error| error.to_string())?.put(&mut bytes);
    }
    Ok(bytes)
}

/// The `needed` bytes of a tensor whose elements are packed.
fn packed_bytes(proto: &mut TensorProto, needed: usize) -> Result<Bytes, String> {
    let packed = match proto.raw_data.take() {
        Some(raw) => raw,
        // A byte in each number.
        None => proto.int32_data.iter().map(|byte| *byte as u8).collect(),
    };
    match packed.len() == needed {
        true => Ok(packed),
        false => Err(format!("it needs {needed} bytes, {} are stored", packed.len())),
    }
}

fn truth(bytes: &[u8]) -> Bytes {
    bytes.iter().map(|byte| u8::from(*byte != 0)).collect()
}

fn stored_bytes(proto: &mut TensorProto, tensor_type: &TensorType) -> Result<Bytes, String> {
    if let Some(raw) = proto.raw_data.take() {
        return match raw.len() == tensor_type.bytes() {
            true => Ok(raw),
            false => Err(format!(
                "{tensor_type} needs {} bytes, {} are stored",
                tensor_type.bytes(),
                raw.len()
            )),
        };
    }
    match tensor_type.dtype {
        DataType::F32 => from_field(tensor_type, &proto.float_data, |value| Some(*value)),
        DataType::F64 => from_field(tensor_type, &proto.double_data, |value| Some(*value)),
        DataType::I64 => from_field(tensor_type, &proto.int64_data, |value| Some(*value)),
        DataType::U64 => from_field(tensor_type, &proto.uint64_data, |value| Some(*value)),
        DataType::U32 => {
            from_field(tensor_type, &proto.uint64_data, |value| u32::try_from(*value).ok())
        }
        DataType::I32 => from_field(tensor_type, &proto.int32_data, |value| Some(*value)),
        DataType::I16 => {
            from_field(tensor_type, &proto.int32_data, |value| i16::try_from(*value).ok())
        }
        DataType::I8 => {
            from_field(tensor_type, &proto.int32_data, |value| i8::try_from(*value).ok())
        }
        DataType::U16 => {
            from_field(tensor_type, &proto.int32_data, |value| u16::try_from(*value).ok())
        }
        DataType::U8 => {
            from_field(tensor_type, &proto.int32_data, |value| u8::try_from(*value).ok())
        }
        DataType::Bool => from_field(tensor_type, &proto.int32_data, |value| Some(*value != 0)),
        DataType::F16 => from_field(tensor_type, &proto.int32_data, |value| {
            u16::try_from(*value).ok().map(f16::from_bits)
        }),
        DataType::BF16 => from_field(tensor_type, &proto.int32_data, |value| {
            u16::try_from(*value).ok().map(bf16::from_bits)
        }),
    }
}

fn from_field<S, T: Element>(
    tensor_type: &TensorType,
    stored: &[S],
    convert: impl Fn(&S) -> Option<T>,
) -> Result<Bytes, String> {
    let needed = tensor_type.elements();
    if stored.len() != needed {
        return Err(format!("{tensor_type} needs {needed} elements, {} are stored", stored.len()));
    }
    let mut bytes = Vec::with_capacity(tensor_type.bytes());
    for value in stored {
        let element = convert(value);
        element
            .ok_or_else(|| format!("a value is out of range for {tensor_type}"))?
            .put(&mut bytes);
    }
    Ok(bytes.into())
}
