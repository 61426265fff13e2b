//! Host tensors: weights, folded constants, inputs and reference results.

use crate::storage::{Backing, Storage, Transposed};
use crate::{DataType, TensorType};
use bytes::Bytes;
use std::sync::{Arc, OnceLock};
use thiserror::Error;

/// What is wrong with a host tensor.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum TensorError {
    /// The bytes do not fill the type.
    #[error("a tensor of type {expected} needs {} bytes, got {actual}", expected.bytes())]
    WrongSize {
        /// The declared type.
        expected: TensorType,
        /// Bytes given.
        actual: usize,
    },
    /// Elements were read as another type.
    #[error("a tensor of {actual} was read as {requested}")]
    WrongType {
        /// The tensor's element type.
        actual: DataType,
        /// The requested one.
        requested: DataType,
    },
}

/// A Rust type that stores one element as it lies in memory.
pub trait Element: Copy + Default + Send + Sync + 'static {
    /// The element type it stores.
    const TYPE: DataType;
    /// The value as little-endian bytes, appended to `bytes`.
    fn put(self, bytes: &mut Vec<u8>);
    /// The value of `DataType::bytes` little-endian bytes.
    fn take(bytes: &[u8]) -> Self;
}

macro_rules! elements {
    ($($rust:ty => $name:ident),* $(,)?) => {$(
        impl Element for $rust {
            const TYPE: DataType = DataType::$name;
            fn put(self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_le_bytes());
            }
            fn take(bytes: &[u8]) -> Self {
                let mut own = [0; size_of::<$rust>()];
                own.copy_from_slice(bytes);
                <$rust>::from_le_bytes(own)
            }
        }
    )*};
}

elements!(
    f32 => F32, f64 => F64, half::f16 => F16, half::bf16 => BF16,
    i8 => I8, i16 => I16, i32 => I32, i64 => I64,
    u8 => U8, u16 => U16, u32 => U32, u64 => U64,
);

impl Element for bool {
    const TYPE: DataType = DataType::Bool;
    fn put(self, bytes: &mut Vec<u8>) {
        bytes.push(u8::from(self));
    }
    fn take(bytes: &[u8]) -> Self {
        bytes.first().is_some_and(|byte| *byte != 0)
    }
}

/// A tensor on the host, immutable and cheap to clone.
#[derive(Clone, Debug)]
pub struct Tensor {
    tensor_type: TensorType,
    storage: Storage,
}

/// Of equal type and bytes.
impl PartialEq for Tensor {
    fn eq(&self, other: &Self) -> bool {
        self.tensor_type == other.tensor_type && self.bytes() == other.bytes()
    }
}

impl Tensor {
    /// A tensor of the given little-endian bytes, row-major.
    pub fn from_bytes(tensor_type: TensorType, bytes: Vec<u8>) -> Result<Self, TensorError> {
        Self::from_shared(tensor_type, bytes.into())
    }

    /// The same of bytes that others hold, too, such as a part of a file: they are not copied, and need not be aligned.
    pub fn from_shared(tensor_type: TensorType, bytes: Bytes) -> Result<Self, TensorError> {
        if tensor_type.checked_bytes() != Some(bytes.len()) {
            return Err(TensorError::WrongSize { expected: tensor_type, actual: bytes.len() });
        }
        Ok(Self { tensor_type, storage: Storage::Stored(bytes, None) })
    }

    /// The matrix of shape `[columns, rows]` that a matrix of shape `[rows, columns]` is with its axes swapped, or
    /// nothing of what is no matrix. Its elements are moved by `transpose`, which gives its bytes, when they are first
    /// read: what reads the other matrix in their stead ([`Tensor::transposed_matrix`]) needs no copy of it.
    pub fn transposed(matrix: Self, transpose: fn(&Self) -> Vec<u8>) -> Option<Self> {
        let [rows, columns] = matrix.shape()[..] else { return None };
        let tensor_type = TensorType::new(matrix.dtype(), [columns, rows]);
        let transposed = Transposed { matrix, transpose, bytes: OnceLock::new() };
        Some(Self { tensor_type, storage: Storage::Transposed(Arc::new(transposed)) })
    }

    /// The matrix that this one is with its axes swapped, where it was made by [`Tensor::transposed`].
    pub fn transposed_matrix(&self) -> Option<&Self> {
        match &self.storage {
            Storage::Stored(..) => None,
            Storage::Transposed(transposed) => Some(&transposed.matrix),
        }
    }

    /// The same, whose bytes are a part of what `backing` keeps.
    pub fn kept_by(mut self, backing: Arc<dyn Backing>) -> Self {
        if let Storage::Stored(_, keeper) = &mut self.storage {
            *keeper = Some(backing);
        }
        self
    }

    /// Gives the memory of the bytes in `range` back where something keeps them: they will not be read soon. Of a
    /// transposed matrix nothing is given back.
    pub fn release(&self, range: std::ops::Range<usize>) {
        if let Storage::Stored(bytes, Some(backing)) = &self.storage
            && let Some(bytes) = bytes.get(range)
        {
            backing.release(bytes);
        }
    }

    /// A tensor of the given elements, row-major.
    pub fn from_elements<T: Element>(
        shape: impl Into<Vec<usize>>,
        elements: &[T],
    ) -> Result<Self, TensorError> {
        let mut bytes = Vec::with_capacity(elements.len() * T::TYPE.bytes());
        elements.iter().for_each(|element| element.put(&mut bytes));
        Self::from_bytes(TensorType::new(T::TYPE, shape), bytes)
    }

    /// A scalar.
    pub fn scalar<T: Element>(element: T) -> Self {
        let mut bytes = Vec::new();
        element.put(&mut bytes);
        let storage = Storage::Stored(bytes.into(), None);
        Self { tensor_type: TensorType::new(T::TYPE, []), storage }
    }

    /// Zeros (false, for truth values).
    pub fn zeros(tensor_type: TensorType) -> Self {
        let bytes = vec![0; tensor_type.bytes()];
        Self { tensor_type, storage: Storage::Stored(bytes.into(), None) }
    }

    /// Element type and shape.
    pub fn tensor_type(&self) -> &TensorType {
        &self.tensor_type
    }

    /// Element type.
    pub fn dtype(&self) -> DataType {
        self.tensor_type.dtype
    }

    /// Extent of each axis.
    pub fn shape(&self) -> &[usize] {
        &self.tensor_type.shape
    }

    /// The elements as little-endian bytes, row-major.
    pub fn bytes(&self) -> &[u8] {
        self.storage.bytes()
    }

    /// The elements, where the tensor stores `T`.
    pub fn elements<T: Element>(&self) -> Result<Vec<T>, TensorError> {
        if self.dtype() != T::TYPE {
            return Err(TensorError::WrongType { actual: self.dtype(), requested: T::TYPE });
        }
        Ok(self.bytes().chunks_exact(T::TYPE.bytes()).map(T::take).collect())
    }

    /// Every element as `f64` (64-bit integers may round).
    pub fn to_f64(&self) -> Vec<f64> {
        macro_rules! read {
            ($($name:ident: $rust:ty as $convert:expr),* $(,)?) => {
                match self.dtype() {$(
                    DataType::$name => self
                        .bytes()
                        .chunks_exact(DataType::$name.bytes())
                        .map(|bytes| $convert(<$rust>::take(bytes)))
                        .collect(),
                )*}
            };
        }
        read!(
            F32: f32 as f64::from, F64: f64 as f64::from,
            F16: half::f16 as f64::from, BF16: half::bf16 as f64::from,
            I8: i8 as f64::from, I16: i16 as f64::from, I32: i32 as f64::from,
            I64: i64 as |value| value as f64,
            U8: u8 as f64::from, U16: u16 as f64::from, U32: u32 as f64::from,
            U64: u64 as |value| value as f64,
            Bool: bool as |value| f64::from(u8::from(value)),
        )
    }

    /// Every element as `i64`; floats are cut towards zero.
    pub fn to_i64(&self) -> Vec<i64> {
        match self.dtype() {
            DataType::I64 => self.bytes().chunks_exact(8).map(<i64 as Element>::take).collect(),
            DataType::U64 => self
                .bytes()
                .chunks_exact(8)
                .map(|bytes| <u64 as Element>::take(bytes) as i64)
                .collect(),
            _ => self.to_f64().into_iter().map(|value| value as i64).collect(),
        }
    }

    /// A tensor of type `dtype` whose elements are `values` rounded (floats to nearest even,
    /// integers cut and saturated, truth values by `!= 0`).
    pub fn from_f64(
        dtype: DataType,
        shape: impl Into<Vec<usize>>,
        values: &[f64],
    ) -> Result<Self, TensorError> {
        let mut bytes = Vec::with_capacity(values.len() * dtype.bytes());
        macro_rules! write {
            ($($name:ident: $convert:expr),* $(,)?) => {
                match dtype {$(
                    DataType::$name => values.iter().for_each(|value| $convert(*value).put(&mut bytes)),
                )*}
            };
        }
        write!(
            F32: |value| value as f32, F64: |value: f64| value,
            F16: half::f16::from_f64, BF16: half::bf16::from_f64,
            I8: |value| value as i8, I16: |value| value as i16, I32: |value| value as i32,
            I64: |value| value as i64, U8: |value| value as u8, U16: |value| value as u16,
            U32: |value| value as u32, U64: |value| value as u64,
            Bool: |value: f64| value != 0.0,
        );
        Self::from_bytes(TensorType::new(dtype, shape), bytes)
    }

    /// The same elements under another shape of the same size.
    pub fn reshaped(&self, shape: impl Into<Vec<usize>>) -> Result<Self, TensorError> {
        let tensor_type = TensorType::new(self.dtype(), shape);
        let actual = self.tensor_type.bytes();
        if tensor_type.checked_bytes() != Some(actual) {
            return Err(TensorError::WrongSize { expected: tensor_type, actual });
        }
        let storage = match &self.storage {
            stored @ Storage::Stored(..) => stored.clone(),
            transposed @ Storage::Transposed(_) => {
                Storage::Stored(transposed.bytes().clone(), None)
            }
        };
        Ok(Self { tensor_type, storage })
    }
}
