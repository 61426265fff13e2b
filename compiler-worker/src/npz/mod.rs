//! `.npz` files: arrays by name, as numpy writes and reads them.
//!
//! Types that numpy lacks cross as raw bytes of the same width: bfloat16 is `|V2`.

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
    /// Its elements.
    pub bytes: Vec<u8>,
}

impl Array {
    /// Type and shape, as messages say them: `f32[1, 3]`.
    pub fn description(&self) -> String {
        describe(self.dtype, &self.shape)
    }
}

/// Type and shape, as messages say them: `f32[1, 3]`.
pub fn describe(dtype: DataType, shape: &[u64]) -> String {
    let extents: Vec<String> = shape.iter().map(u64::to_string).collect();
    format!("{dtype}[{}]", extents.join(", "))
}
