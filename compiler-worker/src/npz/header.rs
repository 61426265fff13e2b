//! The header of one `.npy` array: a Python dictionary as text.

use hone_artifact::DataType;

/// What a header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Element type; of strings that of their handles.
    pub dtype: DataType,
    /// How strings are written, of an array of strings.
    pub strings: Option<Strings>,
    /// Whether elements have their most significant byte first.
    pub big_endian: bool,
    /// Whether the first axis is the fastest, as in Fortran.
    pub fortran_order: bool,
    /// Extent of each axis.
    pub shape: Vec<u64>,
}

/// How numpy writes strings: as many of these as the longest has, with zeros behind shorter ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strings {
    /// So many code points of four bytes.
    Points(usize),
    /// So many bytes of UTF-8.
    Bytes(usize),
}

impl Strings {
    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            Self::Points(count) => count.saturating_mul(4),
            Self::Bytes(count) => count,
        }
    }
}

/// The first bytes of every `.npy`.
pub const MAGIC: &[u8] = b"\x93NUMPY";

/// numpy's names of our types, for little-endian machines.
const TYPES: [(&str, DataType); 13] = [
    ("f4", DataType::F32),
    ("f2", DataType::F16),
    ("V2", DataType::Bf16),
    ("f8", DataType::F64),
    ("i1", DataType::I8),
    ("u1", DataType::U8),
    ("i2", DataType::I16),
    ("u2", DataType::U16),
    ("i4", DataType::I32),
    ("u4", DataType::U32),
    ("i8", DataType::I64),
    ("u8", DataType::U64),
    ("b1", DataType::Bool),
];

/// Splits a `.npy` into its header and the bytes after it.
pub fn parse(bytes: &[u8]) -> Result<(Header, &[u8]), String> {
    let rest = bytes.strip_prefix(MAGIC).ok_or("it is not a .npy array")?;
    let (&[major, _minor], rest) = rest.split_first_chunk().ok_or("it is cut short")?;
    let (length, rest) = match major {
        1 => rest.split_first_chunk().map(|(l, r)| (usize::from(u16::from_le_bytes(*l)), r)),
        2 | 3 => rest.split_first_chunk().map(|(l, r)| (u32::from_le_bytes(*l) as usize, r)),
        other => return Err(format!("its .npy version {other} is not known")),
    }
    .ok_or("it is cut short")?;
    if rest.len() < length {
        return Err("it is cut short".into());
    }
    let (text, data) = rest.split_at(length);
    let text = std::str::from_utf8(text).map_err(|_| "its header is not text")?;
    Ok((dictionary(text)?, data))
}

fn dictionary(text: &str) -> Result<Header, String> {
    let descr = value(text, "descr")?;
    let name = descr
        .strip_prefix(['\'', '"'])
        .and_then(|rest| rest.split(['\'', '"']).next())
        .ok_or("its elements are records, and only plain types are read")?;
    let (order, kind) = name.split_at_checked(1).ok_or("its element type is empty")?;
    if kind == "O" {
        return Err("its elements are Python objects: convert strings with .astype(str)".into());
    }
    let strings = match kind.split_at_checked(1) {
        Some(("U", count)) => count.parse().ok().map(Strings::Points),
        Some(("S", count)) => count.parse().ok().map(Strings::Bytes),
        _ => None,
    };
    let known = TYPES.iter().find(|(known, _)| *known == kind).map(|(_, dtype)| *dtype);
    let dtype = known.or(strings.map(|_| DataType::U64));
    let dtype = dtype.ok_or_else(|| format!("its element type '{name}' is not known"))?;
    let fortran_order = value(text, "fortran_order")?.starts_with("True");
    let shape = value(text, "shape")?;
    let shape = shape
        .strip_prefix('(')
        .and_then(|rest| rest.split(')').next())
        .ok_or("its header has no shape")?;
    let extents = shape.split(',').map(str::trim).filter(|extent| !extent.is_empty());
    let extents: Result<Vec<u64>, _> = extents.map(str::parse).collect();
    let shape = extents.map_err(|_| format!("its shape '{shape}' is not one"))?;
    Ok(Header { dtype, strings, big_endian: order == ">", fortran_order, shape })
}

/// The text after `'key':`.
fn value<'a>(text: &'a str, key: &str) -> Result<&'a str, String> {
    let quoted = [format!("'{key}':"), format!("\"{key}\":")];
    let found = quoted.iter().find_map(|quoted| text.split_once(quoted.as_str()));
    found.map(|(_, rest)| rest.trim_start()).ok_or_else(|| format!("its header has no '{key}'"))
}

/// The bytes before the elements: magic, version and a header padded to 64 bytes.
pub fn format(dtype: DataType, shape: &[u64]) -> Vec<u8> {
    let name = TYPES.iter().find(|(_, known)| *known == dtype).map_or("V1", |(name, _)| name);
    let order = if dtype.bits() <= 8 || name.starts_with('V') { '|' } else { '<' };
    header(&format!("{order}{name}"), shape)
}

/// The same of strings of at most `points` code points.
pub fn format_strings(points: usize, shape: &[u64]) -> Vec<u8> {
    header(&format!("<U{points}"), shape)
}

fn header(descr: &str, shape: &[u64]) -> Vec<u8> {
    let mut extents: String = shape.iter().map(|extent| format!("{extent}, ")).collect();
    // A tuple of one keeps its comma.
    extents.truncate(extents.len().saturating_sub(if shape.len() == 1 { 1 } else { 2 }));
    let mut text =
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({extents}), }}");
    let before = MAGIC.len() + 4;
    let padded = (before + text.len() + 1).next_multiple_of(64) - before;
    text.push_str(&" ".repeat(padded - text.len() - 1));
    text.push('\n');
    let mut bytes = MAGIC.to_vec();
    bytes.extend([1, 0]);
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        for (_, dtype) in TYPES {
            for shape in [vec![], vec![3], vec![2, 3, 4], vec![0, 5]] {
                let bytes = format(dtype, &shape);
                assert_eq!(bytes.len() % 64, 0);
                let (header, data) = parse(&bytes).unwrap();
                assert_eq!((header.dtype, &header.shape), (dtype, &shape));
                assert!(data.is_empty() && !header.fortran_order && !header.big_endian);
            }
        }
    }

    #[test]
    fn damage_is_named() {
        let whole = format(DataType::F32, &[2]);
        for end in 0..whole.len() {
            assert!(parse(&whole[..end]).is_err());
        }
        let records = b"\x93NUMPY\x01\x00\x40\x00{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }   ";
        assert!(parse(records).unwrap_err().contains("records"));
    }
}
