//! JPEG 2000.

use hayro_jpeg2000::{ColorSpace, DecodeSettings, DecoderContext, Image};

use crate::error::check_size;
use crate::limits::MAX_COMPONENTS;
use crate::{DecodeError, ImageFormat, PixelFormat, Size};

const OF: ImageFormat = ImageFormat::Jpeg2000;

/// What a codestream begins with: its start, and the marker of its size.
const START: [u8; 4] = [0xff, 0x4f, 0xff, 0x51];

/// Where the number of components stands in a codestream.
const COMPONENTS: usize = 40;

pub(crate) fn decode(
    bytes: &[u8],
    format: PixelFormat,
    size: Size,
    pixels: &mut [u8],
) -> Result<(), DecodeError> {
    let refused = |error| DecodeError::decoder(OF, error);
    let kind = |what: String| Err(DecodeError::Kind { of: OF, what });
    // The decoder reserves a plane for each component before it looks at their colours.
    let Some(Codestream { components, end }) = codestream(bytes) else {
        return Err(DecodeError::decoder(OF, "there is no codestream"));
    };
    if components > MAX_COMPONENTS {
        return kind(format!("{components} components"));
    }
    let settings = DecodeSettings { strict: true, ..DecodeSettings::default() };
    let image = Image::new(&bytes[..end], &settings).map_err(refused)?;
    let found = Size { height: image.height() as usize, width: image.width() as usize };
    check_size(OF, found, size)?;
    let colours = image.color_space().clone();
    let grey = match (&colours, colours.num_channels()) {
        (ColorSpace::CMYK | ColorSpace::Unknown { .. }, _) => {
            return kind("colours that are neither grey nor RGB".to_owned());
        }
        (_, 1) => true,
        (_, 3) => false,
        (_, other) => return kind(format!("a profile of {other} channels")),
    };
    let mut context = DecoderContext::default();
    let decoded = image.decode(&mut context).map_err(refused)?;
    let all = decoded.components().len();
    let fits = decoded.components().iter().all(|own| Some(own.samples().len()) == size.pixels());
    if !fits || all < usize::from(colours.num_channels()) {
        return Err(DecodeError::decoder(OF, "its components differ in size"));
    }
    let samples = decoded.data_u8();
    let of_pixel = samples.chunks_exact(all);
    match grey {
        true => format.store(of_pixel.map(|own| [own[0]; 3]), pixels),
        false => format.store(of_pixel.map(|own| [own[0], own[1], own[2]]), pixels),
    }
    Ok(())
}

/// What is known of a codestream before it is decoded.
#[derive(Debug, PartialEq)]
struct Codestream {
    components: u16,
    /// Where it ends in the file.
    end: usize,
}

/// The codestream of a file; `None` where it is not found. It is the content of the first box `jp2c`, or the file itself
/// (ITU-T T.800, annexes A.5.1 and I.4).
fn codestream(bytes: &[u8]) -> Option<Codestream> {
    let mut begin = 0;
    let (stream, end) = loop {
        let rest = bytes.get(begin..)?;
        if begin == 0 && rest.starts_with(&START) {
            break (rest, bytes.len());
        }
        let length = u32::from_be_bytes(*rest.first_chunk()?);
        let (head, length) = match length {
            // To the end of the file.
            0 => (8, rest.len()),
            1 => (16, usize::try_from(u64::from_be_bytes(*rest.get(8..)?.first_chunk()?)).ok()?),
            other => (8, other as usize),
        };
        if length < head {
            return None;
        }
        let end = begin.checked_add(length).filter(|end| *end <= bytes.len())?;
        if rest.get(4..8)? == b"jp2c" {
            break (rest.get(head..length)?, end);
        }
        begin = end;
    };
    let count = stream.starts_with(&START).then(|| stream.get(COMPONENTS..))??;
    Some(Codestream { components: u16::from_be_bytes(*count.first_chunk()?), end })
}

#[cfg(test)]
mod tests {
    use super::{Codestream, codestream};

    fn stream(count: u16) -> Vec<u8> {
        let mut stream = vec![0xff, 0x4f, 0xff, 0x51];
        stream.resize(40, 0);
        stream.extend(count.to_be_bytes());
        stream
    }

    fn boxed(name: &[u8; 4], content: &[u8]) -> Vec<u8> {
        [&(content.len() as u32 + 8).to_be_bytes()[..], name, content].concat()
    }

    #[track_caller]
    fn check(bytes: &[u8], components: u16, end: usize) {
        assert_eq!(codestream(bytes), Some(Codestream { components, end }));
    }

    #[test]
    fn components_are_those_of_the_codestream_alone() {
        check(&stream(3), 3, 42);
        let decoy = boxed(b"free", &stream(1));
        check(&[&decoy[..], &boxed(b"jp2c", &stream(16_000)), b"behind"].concat(), 16_000, 100);
        check(&[&decoy[..], &[0, 0, 0, 0], b"jp2c", &stream(4)].concat(), 4, 100);
        let long = [&1u32.to_be_bytes()[..], b"jp2c", &58u64.to_be_bytes(), &stream(5)].concat();
        check(&long, 5, 58);
    }

    #[test]
    fn boxes_that_lead_nowhere_have_none() {
        let long = [&1u32.to_be_bytes()[..], b"free", &u64::MAX.to_be_bytes()].concat();
        let files = [
            Vec::new(),
            boxed(b"free", &[]),
            vec![0, 0, 0, 4, b'f', b'r', b'e', b'e', 0, 0],
            vec![0, 0, 0, 0, b'f', b'r', b'e', b'e'],
            boxed(b"jp2c", &stream(3)[..41]),
            boxed(b"jp2c", &stream(3))[..49].to_vec(),
            [boxed(b"free", &[]), stream(3)].concat(),
            long,
        ];
        files.iter().for_each(|file| assert_eq!(codestream(file), None, "{file:?}"));
    }
}
