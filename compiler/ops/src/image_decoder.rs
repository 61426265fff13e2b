//! Decoding of images.

use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::shape::bounded;
use hone_graph::InferError;
use hone_images::{PixelFormat, Size, decode};
use hone_types::{DataType, Tensor, TensorType};
use serde::{Deserialize, Serialize};
use std::error::Error;

/// ONNX `ImageDecoder` of an image whose size is known: an encoded image as pixels `[height, width, channels]` of `u8`.
///
/// Inputs: the bytes, `u8[n]`, and optionally how many of them there are (`i64`, one element; without it all). An image of
/// another size, or one that cannot be decoded, ends the run. The runtime computes it itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ImageDecoder {
    /// Name of the value that has the bytes, for messages.
    pub input: String,
    /// What a pixel holds.
    pub format: PixelFormat,
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
}

impl ImageDecoder {
    /// Name in text forms.
    pub const NAME: &'static str = "image_decoder";
}

/// Operations that a pixel counts as.
const PIXEL_COST: u64 = 100;

impl Operator for ImageDecoder {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let bytes = required(Self::NAME, inputs, 0)?;
        if bytes.dtype != DataType::U8 || bytes.rank() != 1 {
            return Err(InferError::new(format!("{bytes} is no list of bytes")));
        }
        let count = inputs.get(1).copied().flatten();
        if let Some(other) = count.filter(|own| own.dtype != DataType::I64 || own.elements() != 1) {
            return Err(InferError::new(format!("{other} is no number of bytes")));
        }
        let shape = vec![self.height, self.width, self.format.channels()];
        Ok(vec![bounded(DataType::U8, shape)?])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Opaque
    }

    fn is_compiled(&self) -> bool {
        false
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let types: Vec<_> = inputs.iter().map(|input| input.map(Tensor::tensor_type)).collect();
        let output = self.infer(&types)?.remove(0);
        let refuse =
            |why: String| OpError::Value(format!("'{}' is not decoded: {why}", self.input));
        let all = required(Self::NAME, inputs, 0)?.bytes();
        let count = inputs.get(1).copied().flatten().map(|own| own.to_i64()[0]);
        let bytes = match count {
            None => Some(all),
            Some(count) => usize::try_from(count).ok().and_then(|count| all.get(..count)),
        };
        let bytes =
            bytes.ok_or_else(|| refuse(format!("there is room for {} bytes", all.len())))?;
        let size = Size { height: self.height, width: self.width };
        let mut pixels = vec![0; output.bytes()];
        decode(bytes, self.format, size, &mut pixels).map_err(|error| {
            let source = error.source().map(|source| format!(": {source}"));
            refuse(format!("{error}{}", source.unwrap_or_default()))
        })?;
        Ok(vec![Tensor::from_bytes(output, pixels)?])
    }

    fn flops(&self, _inputs: &[Option<&TensorType>], outputs: &[TensorType]) -> u64 {
        let elements = outputs.iter().map(|output| output.elements() as u64).sum::<u64>();
        elements.saturating_mul(PIXEL_COST)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// One row of two pixels, red and blue, as a binary PPM.
    const IMAGE: &[u8] = b"P6\n2 1\n255\n\xff\0\0\0\0\xff";

    fn run(format: PixelFormat, bytes: &[u8], count: Option<i64>) -> Result<Vec<u8>, String> {
        let own = ImageDecoder { input: "data".into(), format, height: 1, width: 2 };
        let data = Tensor::from_elements([bytes.len()], bytes).unwrap();
        let count = count.map(Tensor::scalar);
        let results = own.reference(&[Some(&data), count.as_ref()]);
        Ok(results.map_err(|error| error.to_string())?[0].bytes().to_vec())
    }

    #[test]
    fn pixels_are_in_the_order_that_is_asked_for() {
        assert_eq!(run(PixelFormat::Rgb, IMAGE, None).unwrap(), [255, 0, 0, 0, 0, 255]);
        assert_eq!(run(PixelFormat::Bgr, IMAGE, None).unwrap(), [0, 0, 255, 255, 0, 0]);
        assert_eq!(run(PixelFormat::Grayscale, IMAGE, None).unwrap(), [76, 29]);
    }

    #[test]
    fn bytes_behind_those_that_are_there_are_not_read() {
        let room = [IMAGE, b"anything"].concat();
        let count = IMAGE.len() as i64;
        assert!(run(PixelFormat::Rgb, &room, Some(count)).is_ok());
        assert!(run(PixelFormat::Rgb, &room, Some(count - 1)).is_err());
        for count in [-1, room.len() as i64 + 1] {
            let error = run(PixelFormat::Rgb, &room, Some(count)).unwrap_err();
            let room = room.len();
            assert_eq!(error, format!("'data' is not decoded: there is room for {room} bytes"));
        }
    }

    #[test]
    fn errors_name_the_value_and_the_cause() {
        let error = run(PixelFormat::Rgb, b"nothing", None).unwrap_err();
        assert!(error.starts_with("'data' is not decoded: it begins like no BMP"), "{error}");
        let error = run(PixelFormat::Rgb, b"P6\n1 2\n255\n\xff\0\0\0\0\xff", None).unwrap_err();
        assert!(error.contains("2 high and 1 wide, 1 high and 2 wide is declared"), "{error}");
    }

    #[test]
    fn inputs_are_bytes_and_a_number() {
        let own = ImageDecoder { input: "x".into(), format: PixelFormat::Rgb, height: 4, width: 5 };
        let list = TensorType::new(DataType::U8, [9]);
        assert_eq!(own.infer(&[Some(&list)]).unwrap()[0].shape, [4, 5, 3]);
        for dtype in [DataType::I8, DataType::F32] {
            assert!(own.infer(&[Some(&TensorType::new(dtype, [9]))]).is_err());
        }
        assert!(own.infer(&[Some(&TensorType::new(DataType::U8, [3, 3]))]).is_err());
        assert!(own.infer(&[Some(&list), Some(&list)]).is_err());
        let large = ImageDecoder { height: 1 << 40, ..own };
        assert!(large.infer(&[Some(&list)]).is_err());
    }
}
