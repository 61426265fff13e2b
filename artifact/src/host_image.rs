//! Decoding images. This room has no decoders: who runs an artifact brings one.

use serde::{Deserialize, Serialize};

use crate::DataType;
use crate::host::{HostType, HostValue, head};

/// Decodes an encoded image. Operands: the bytes, a list of `u8`, and optionally how many of them there are (`i64`, one
/// element; without it all). Result: `[height, width, channels]` of `u8`. An image of another size ends the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageFunction {
    /// Name of the value that has the bytes, for messages.
    pub input: String,
    /// What a pixel holds.
    pub format: PixelFormat,
    /// Rows.
    pub height: u64,
    /// Columns.
    pub width: u64,
}

/// What a decoded pixel holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PixelFormat {
    /// Red, green, blue.
    Rgb,
    /// Blue, green, red.
    Bgr,
    /// Luma.
    Grayscale,
}

impl PixelFormat {
    /// The name in ONNX.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rgb => "RGB",
            Self::Bgr => "BGR",
            Self::Grayscale => "Grayscale",
        }
    }

    /// Bytes of a pixel.
    pub fn channels(self) -> u64 {
        match self {
            Self::Rgb | Self::Bgr => 3,
            Self::Grayscale => 1,
        }
    }
}

/// What a decoder is asked for.
#[derive(Clone, Copy, Debug)]
pub struct ImageRequest<'a> {
    /// The encoded image, which is not trusted.
    pub bytes: &'a [u8],
    /// What a pixel holds.
    pub format: PixelFormat,
    /// Rows that the image must have.
    pub height: u64,
    /// Columns that the image must have.
    pub width: u64,
}

/// Decodes an image into memory of `[height, width, channels]` bytes, or says why not.
pub type ImageDecoder = dyn Fn(&ImageRequest<'_>, &mut [u8]) -> Result<(), String> + Send + Sync;

impl ImageFunction {
    /// As [`crate::HostFunction::outputs`].
    pub(crate) fn outputs(&self, inputs: &[Option<&HostType>]) -> Result<Vec<HostType>, String> {
        let fits = match inputs {
            [Some(bytes)] => is_list(bytes),
            [Some(bytes), Some(count)] => {
                is_list(bytes) && count.dtype == DataType::I64 && count.bytes() == Some(8)
            }
            _ => false,
        };
        if !fits {
            return Err("an operand has another type than the function takes".to_owned());
        }
        let shape = [self.height, self.width, self.format.channels()];
        Ok(vec![HostType::new(DataType::U8, shape)])
    }

    /// Decodes operands that [`ImageFunction::outputs`] takes into the memory of the result.
    pub(crate) fn compute(
        &self,
        inputs: &[Option<HostValue<'_>>],
        decoder: Option<&ImageDecoder>,
        pixels: &mut [u8],
    ) -> Result<(), String> {
        let operand = |place: usize| inputs.get(place).and_then(Option::as_ref);
        let decoder = decoder.ok_or("nothing here decodes images")?;
        let all = operand(0).ok_or("operand 0 is missing")?.bytes;
        let count = operand(1).map(|own| i64::from_ne_bytes(head(own.bytes)));
        let bytes = match count {
            None => Some(all),
            Some(count) => usize::try_from(count).ok().and_then(|count| all.get(..count)),
        };
        let bytes = bytes.ok_or_else(|| {
            format!("'{}' has room for {} bytes, not for {count:?}", self.input, all.len())
        })?;
        let Self { format, height, width, .. } = *self;
        let request = ImageRequest { bytes, format, height, width };
        decoder(&request, pixels).map_err(|why| format!("'{}' is not decoded: {why}", self.input))
    }
}

fn is_list(bytes: &HostType) -> bool {
    bytes.dtype == DataType::U8 && bytes.shape.len() == 1
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn function() -> ImageFunction {
        ImageFunction { input: "data".into(), format: PixelFormat::Bgr, height: 1, width: 2 }
    }

    fn run(bytes: &[u8], count: Option<i64>) -> Result<Vec<u8>, String> {
        let of = HostType::new(DataType::U8, [bytes.len() as u64]);
        let one = HostType::new(DataType::I64, []);
        let number = count.unwrap_or(0).to_ne_bytes();
        let mut inputs = vec![Some(HostValue { of: &of, bytes })];
        inputs.extend(count.map(|_| Some(HostValue { of: &one, bytes: &number })));
        let decoder = |request: &ImageRequest<'_>, pixels: &mut [u8]| match request.bytes {
            [] => Err("it is empty".to_owned()),
            all => {
                assert_eq!((request.height, request.width), (1, 2));
                pixels.fill(all.len() as u8);
                Ok(())
            }
        };
        let mut pixels = vec![0; 6];
        function().compute(&inputs, Some(&decoder), &mut pixels)?;
        Ok(pixels)
    }

    #[test]
    fn as_many_bytes_are_decoded_as_are_there() {
        assert_eq!(run(&[1; 5], None).unwrap(), [5; 6]);
        assert_eq!(run(&[1; 5], Some(3)).unwrap(), [3; 6]);
        assert_eq!(run(&[1; 5], Some(0)).unwrap_err(), "'data' is not decoded: it is empty");
        assert!(run(&[1; 5], Some(6)).is_err() && run(&[1; 5], Some(-1)).is_err());
        assert!(function().compute(&[], None, &mut []).is_err());
    }

    #[test]
    fn operands_are_a_list_of_bytes_and_a_number() {
        let types =
            |types: &[HostType]| function().outputs(&types.iter().map(Some).collect::<Vec<_>>());
        let (list, one) = (HostType::new(DataType::U8, [9]), HostType::new(DataType::I64, []));
        let pixels = HostType::new(DataType::U8, [1, 2, 3]);
        assert_eq!(types(std::slice::from_ref(&list)).unwrap(), [pixels]);
        assert!(types(&[list.clone(), one.clone()]).is_ok());
        assert!(types(&[]).is_err() && types(std::slice::from_ref(&one)).is_err());
        assert!(types(&[list.clone(), list.clone()]).is_err());
        assert!(types(&[list, one.clone(), one]).is_err());
    }
}
