//! `.npz` files as numpy writes them, arrays of zeros, ones, twos and so on.

use std::io::{Cursor, Write};

use zip::write::SimpleFileOptions;

/// A file of f32 arrays, by name and shape.
pub fn f32s(arrays: &[(&str, &[usize])]) -> Vec<u8> {
    let arrays = arrays.iter().map(|(name, shape)| {
        let count = shape.iter().product::<usize>();
        let bytes = (0..count).flat_map(|value| (value as f32).to_le_bytes()).collect();
        (*name, "<f4", *shape, bytes)
    });
    file(arrays)
}

/// A file of one array of zeros of any of numpy's types.
pub fn zeros(name: &str, dtype: &str, shape: &[usize], bytes: usize) -> Vec<u8> {
    file(std::iter::once((name, dtype, shape, vec![0; bytes])))
}

fn file<'a>(arrays: impl Iterator<Item = (&'a str, &'a str, &'a [usize], Vec<u8>)>) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, dtype, shape, bytes) in arrays {
        writer.start_file(format!("{name}.npy"), SimpleFileOptions::DEFAULT).unwrap();
        let extents: String = shape.iter().map(|extent| format!("{extent},")).collect();
        let header =
            format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': ({extents}), }}\n");
        writer.write_all(b"\x93NUMPY\x01\x00").unwrap();
        writer.write_all(&(header.len() as u16).to_le_bytes()).unwrap();
        writer.write_all(header.as_bytes()).unwrap();
        writer.write_all(&bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// A file of i64 arrays of zeros and ones, by name and shape.
pub fn i64s(arrays: &[(&str, &[usize])]) -> Vec<u8> {
    let arrays = arrays.iter().map(|(name, shape)| {
        let count = shape.iter().product::<usize>();
        let bytes = (0..count).flat_map(|value| i64::from(value % 3 != 1).to_le_bytes()).collect();
        (*name, "<i8", *shape, bytes)
    });
    file(arrays)
}

/// The f32 arrays of a file: name, header and elements.
pub fn read_f32s(path: &std::path::Path) -> Vec<(String, String, Vec<f32>)> {
    let mut archive = zip::ZipArchive::new(std::fs::File::open(path).unwrap()).unwrap();
    let count = archive.len();
    let mut array = |index: usize| -> (String, String, Vec<f32>) {
        let mut entry = archive.by_index(index).unwrap();
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut bytes).unwrap();
        let end = 10 + u16::from_le_bytes([bytes[8], bytes[9]]) as usize;
        let header = String::from_utf8_lossy(&bytes[10..end]).into_owned();
        assert!(header.contains("<f4"), "{header}");
        let values = bytes[end..].chunks_exact(4);
        let values = values.map(|value| f32::from_le_bytes(value.try_into().unwrap())).collect();
        (entry.name().unwrap().into_owned(), header, values)
    };
    (0..count).map(&mut array).collect()
}
