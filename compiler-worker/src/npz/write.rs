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
        writer.write_all(&header::format(array.dtype, &array.shape))?;
        writer.write_all(&array.bytes)?;
    }
    Ok(writer.finish()?.into_inner())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use hone_artifact::DataType;

    #[test]
    fn a_file_reads_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npz");
        let arrays = [
            Array { name: "x/0".into(), dtype: DataType::F32, shape: vec![2], bytes: vec![1; 8] },
            Array { name: "y".into(), dtype: DataType::Bf16, shape: vec![], bytes: vec![2, 3] },
        ];
        write(&path, &arrays).unwrap();
        assert_eq!(crate::npz::read(&path).unwrap(), arrays);
    }
}
