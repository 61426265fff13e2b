//! Reads `.npz`.

use std::fs::File;
use std::io::{Cursor, Read, Seek};
use std::path::Path;

use hone_artifact::exit_code::Reason;
use hone_artifact::text_handle;
use zip::ZipArchive;

use super::Array;
use super::header::{self, Header, Strings};
use crate::failure::{Failure, Result};

/// Most bytes that one array may unpack to.
const LARGEST_ARRAY: u64 = 16 << 30;

/// The arrays of a file in its order, plain or compressed.
///
/// # Errors
/// `InvalidInput` for what is no `.npz`; the file system's word for what cannot be read.
pub fn read(path: &Path) -> Result<Vec<Array>> {
    let named = || format!("inputs '{}' cannot be read", path.display());
    let file = File::open(path).map_err(|error| Failure::io(named(), error))?;
    from(file).map_err(|why| invalid(named(), why))
}

/// The same from memory; `name` is for messages.
///
/// # Errors
/// As for [`read`].
pub fn read_bytes(bytes: &[u8], name: &str) -> Result<Vec<Array>> {
    from(Cursor::new(bytes)).map_err(|why| invalid(format!("samples '{name}' cannot be read"), why))
}

fn invalid(message: String, why: String) -> Failure {
    let why = format!("{why}; write it with numpy.savez");
    Failure::because(Reason::InvalidInput, message, why)
}

fn from(file: impl Read + Seek) -> std::result::Result<Vec<Array>, String> {
    let mut archive =
        ZipArchive::new(file).map_err(|error| format!("it is not an .npz file ({error})"))?;
    let mut arrays = Vec::new();
    for index in 0..archive.len() {
        let entry = archive.by_index(index).map_err(|error| error.to_string())?;
        let name = entry.name().map_err(|error| error.to_string())?.into_owned();
        let Some(name) = name.strip_suffix(".npy") else { continue };
        let mut bytes = Vec::new();
        let read = entry.take(LARGEST_ARRAY).read_to_end(&mut bytes);
        let array = match read {
            Ok(_) => array(name, &bytes),
            Err(error) => Err(error.to_string()),
        };
        arrays.push(array.map_err(|why| format!("array '{name}': {why}"))?);
    }
    Ok(arrays)
}

fn array(name: &str, bytes: &[u8]) -> std::result::Result<Array, String> {
    let (header, data) = header::parse(bytes)?;
    let Header { dtype, strings, big_endian, fortran_order, shape } = header;
    let handles = dtype.bytes_of(&shape).ok_or("its shape is too large")?;
    let size = strings.map_or((dtype.bits() / 8) as usize, Strings::size);
    // Of those a file of a few bytes could hold any number.
    if size == 0 && handles > 0 {
        return Err("its strings have no room for a character".to_owned());
    }
    let expected = match strings {
        Some(_) => (handles / 8).checked_mul(size as u64).ok_or("its shape is too large")?,
        None => handles,
    };
    if data.len() as u64 != expected {
        return Err(format!("it holds {} bytes where its shape needs {expected}", data.len()));
    }
    let mut bytes = match fortran_order {
        true => row_major(data, &shape, size),
        false => data.to_vec(),
    };
    if let Some(strings) = strings {
        let texts = texts(&bytes, (handles / 8) as usize, strings, big_endian)?;
        let bytes = texts.iter().flat_map(|text| text_handle(text).to_le_bytes()).collect();
        return Ok(Array { name: name.to_owned(), dtype, shape, bytes, texts: Some(texts) });
    }
    if big_endian {
        bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
    Ok(Array { name: name.to_owned(), dtype, shape, bytes, texts: None })
}

/// `count` strings, without the zeros behind them.
fn texts(
    bytes: &[u8],
    count: usize,
    strings: Strings,
    big_endian: bool,
) -> std::result::Result<Vec<String>, String> {
    let size = strings.size();
    let text = |place: usize| {
        let own = &bytes[place * size..(place + 1) * size];
        let text = match strings {
            Strings::Bytes(_) => String::from_utf8(own.to_vec()).map_err(|error| error.to_string()),
            Strings::Points(_) => {
                own.as_chunks::<4>().0.iter().map(|point| point_of(*point, big_endian)).collect()
            }
        };
        text.map(|text| text.trim_end_matches('\0').to_owned())
    };
    (0..count).map(text).collect()
}

fn point_of(bytes: [u8; 4], big_endian: bool) -> std::result::Result<char, String> {
    let number = if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) };
    char::from_u32(number).ok_or_else(|| format!("{number:#x} is no character"))
}

/// Elements of `size` bytes from first-axis-fastest to last-axis-fastest.
fn row_major(data: &[u8], shape: &[u64], size: usize) -> Vec<u8> {
    let mut strides = Vec::with_capacity(shape.len());
    let mut stride = 1;
    for extent in shape {
        strides.push(stride);
        stride *= *extent as usize;
    }
    let mut place = vec![0; shape.len()];
    let mut bytes = Vec::with_capacity(data.len());
    for _ in 0..data.len().checked_div(size).unwrap_or(0) {
        let from: usize = place.iter().zip(&strides).map(|(at, stride)| at * stride).sum();
        bytes.extend_from_slice(&data[from * size..(from + 1) * size]);
        for axis in (0..shape.len()).rev() {
            place[axis] += 1;
            if place[axis] < shape[axis] as usize {
                break;
            }
            place[axis] = 0;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fortran_order_becomes_row_major() {
        // Columns of [[1, 2, 3], [4, 5, 6]].
        assert_eq!(row_major(&[1, 4, 2, 5, 3, 6], &[2, 3], 1), [1, 2, 3, 4, 5, 6]);
    }

    /// Strings of no characters: a few bytes say that there are more of them than memory holds.
    #[test]
    fn strings_without_width_are_refused() {
        for (order, width) in [("False", "<U0"), ("True", "<U0"), ("False", "|S0"), ("True", "|S0")]
        {
            for extent in [3u64, 1 << 50] {
                let mut text = format!(
                    "{{'descr': '{width}', 'fortran_order': {order}, 'shape': ({extent},), }}\n"
                );
                let mut bytes = header::MAGIC.to_vec();
                bytes.extend([1, 0]);
                bytes.extend((text.len() as u16).to_le_bytes());
                bytes.extend(std::mem::take(&mut text).into_bytes());
                let found = array("s", &bytes).map(|array| array.shape);
                assert_eq!(found, Err("its strings have no room for a character".to_owned()));
            }
        }
    }
}
