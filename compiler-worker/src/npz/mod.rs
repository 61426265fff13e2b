//! `.npz` files: arrays by name, as numpy writes and reads them.
//!
//! Types that numpy lacks cross as raw bytes of the same width: bfloat16 is `|V2`. Strings are numpy's own (`<U5`) and,
//! when reading, UTF-8 of fixed width (`|S5`).

mod header;
mod read;
mod write;

pub use read::{read, read_bytes};
pub use write::write;

use hone_artifact::DataType;

/// One array, dense, row major, little-endian.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    /// Its name, without `.npy`.
    pub name: String,
    /// Its element type.
    pub dtype: DataType,
    /// Extent of each axis.
    pub shape: Vec<u64>,
    /// Its elements; of strings their handles ([`hone_artifact::text_handle`]), of the type `u64`.
    pub bytes: Vec<u8>,
    /// The strings that the elements stand for, of an array of strings.
    pub texts: Option<Vec<String>>,
}

impl Array {
    /// Type and shape, as messages say them: `f32[1, 3]`.
    pub fn description(&self) -> String {
        match self.texts {
            Some(_) => format!("string{}", extents(&self.shape)),
            None => describe(self.dtype, &self.shape),
        }
    }
}

/// Type and shape, as messages say them: `f32[1, 3]`.
pub fn describe(dtype: DataType, shape: &[u64]) -> String {
    format!("{dtype}{}", extents(shape))
}

fn extents(shape: &[u64]) -> String {
    let extents: Vec<String> = shape.iter().map(u64::to_string).collect();
    format!("[{}]", extents.join(", "))
}
