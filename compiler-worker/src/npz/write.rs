//! Writes `.npz`, whole or not at all; equal arrays give equal bytes.

use std::io::{Cursor, Write};
use std::path::Path;

use hone_artifact::exit_code::Reason;
use hone_artifact::write_atomically;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::{Array, header};
use crate::failure::{Failure, Result};

/// Writes arrays, not compressed.
///
/// # Errors
/// What the file system refuses; nothing is left behind then.
pub fn write(path: &Path, arrays: &[Array]) -> Result<()> {
    let bytes = bytes(arrays).map_err(|error| {
        let message = format!("outputs '{}' have no .npz form", path.display());
        Failure::because(Reason::InternalError, message, error)
    })?;
    write_atomically(path, std::iter::once(bytes.as_slice()))?;
    Ok(())
}

fn bytes(arrays: &[Array]) -> zip::result::ZipResult<Vec<u8>> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for array in arrays {
        let options = SimpleFileOptions::DEFAULT
            .compression_method(CompressionMethod::Stored)
            .large_file(array.bytes.len() as u64 >= 1 << 31);
        writer.start_file(format!("{}.npy", array.name), options)?;
        match &array.texts {
            Some(texts) => write_texts(&mut writer, texts, &array.shape)?,
            None => {
                writer.write_all(&header::format(array.dtype, &array.shape))?;
                writer.write_all(&array.bytes)?;
            }
        }
    }
    Ok(writer.finish()?.into_inner())
}

/// Strings as numpy writes them, each as long as the longest.
fn write_texts(writer: &mut impl Write, texts: &[String], shape: &[u64]) -> std::io::Result<()> {
    let longest = texts.iter().map(|text| text.chars().count()).max().unwrap_or(0).max(1);
    writer.write_all(&header::format_strings(longest, shape))?;
    for text in texts {
        let points = text.chars().chain(std::iter::repeat('\0')).take(longest);
        writer.write_all(
            &points.flat_map(|point| u32::from(point).to_le_bytes()).collect::<Vec<u8>>(),
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use hone_artifact::DataType;

    fn array(name: &str, dtype: DataType, shape: Vec<u64>, bytes: Vec<u8>) -> Array {
        Array { name: name.into(), dtype, shape, bytes, texts: None }
    }

    fn strings(name: &str, texts: &[&str], shape: Vec<u64>) -> Array {
        let bytes = texts.iter().flat_map(|text| hone_artifact::text_handle(text).to_le_bytes());
        let texts = texts.iter().map(|text| (*text).to_owned()).collect();
        let dtype = DataType::U64;
        Array { name: name.into(), dtype, shape, bytes: bytes.collect(), texts: Some(texts) }
    }

    #[test]
    fn a_file_reads_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npz");
        let arrays = [
            array("x/0", DataType::F32, vec![2], vec![1; 8]),
            array("y", DataType::Bf16, vec![], vec![2, 3]),
            strings("s", &["", "größer", "a b", "\u{1F600}"], vec![2, 2]),
            strings("none", &[], vec![0]),
        ];
        write(&path, &arrays).unwrap();
        assert_eq!(crate::npz::read(&path).unwrap(), arrays);
    }
}
