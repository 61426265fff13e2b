//! Where the bytes of a tensor lie: in memory or a mapped file, or nowhere yet where they are those of another matrix in
//! another order.

use crate::Tensor;
use bytes::Bytes;
use std::fmt::Debug;
use std::fs::File;
use std::panic::RefUnwindSafe;
use std::sync::{Arc, OnceLock};

/// What keeps the bytes that tensors are parts of, such as mapped files.
pub trait Backing: Debug + Send + Sync + RefUnwindSafe {
    /// Copies `length` bytes of a file from `offset` on to where this keeps bytes; nothing where it cannot, as on a full
    /// disk, or where they are so few that memory serves as well.
    fn keep(&self, file: &File, offset: u64, length: usize) -> Option<Bytes>;

    /// Gives the memory of `bytes` back to the system. They can be read as before, and come from where they are kept
    /// when they are. Bytes that are not a part of what this keeps are ignored.
    fn release(&self, bytes: &[u8]);
}

/// Where the bytes of a tensor lie.
#[derive(Clone, Debug)]
pub(crate) enum Storage {
    /// In memory, or in what keeps them.
    Stored(Bytes, Option<Arc<dyn Backing>>),
    /// In another matrix, whose axes are swapped.
    Transposed(Arc<Transposed>),
}

/// A matrix with its axes swapped; its elements are moved when they are first read.
#[derive(Debug)]
pub(crate) struct Transposed {
    pub(crate) matrix: Tensor,
    pub(crate) transpose: fn(&Tensor) -> Vec<u8>,
    pub(crate) bytes: OnceLock<Bytes>,
}

impl Storage {
    /// The bytes, which are computed now where nobody has read them yet.
    pub(crate) fn bytes(&self) -> &Bytes {
        match self {
            Self::Stored(bytes, _) => bytes,
            Self::Transposed(own) => own.bytes.get_or_init(|| (own.transpose)(&own.matrix).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::Mutex;

    /// Rows of two bytes, each column after the other.
    fn swap(matrix: &Tensor) -> Vec<u8> {
        let rows = matrix.bytes().chunks_exact(2);
        rows.clone().map(|row| row[0]).chain(rows.map(|row| row[1])).collect()
    }

    #[test]
    fn a_transposed_matrix_is_as_if_its_elements_had_been_moved() {
        let matrix = Tensor::from_elements([3, 2], &[1u8, 2, 3, 4, 5, 6]).unwrap();
        let transposed = Tensor::transposed(matrix.clone(), swap).unwrap();
        assert_eq!(transposed.transposed_matrix(), Some(&matrix));
        let moved = Tensor::from_elements([2, 3], &[1u8, 3, 5, 2, 4, 6]).unwrap();
        assert_eq!(transposed, moved);
        assert_eq!(transposed.reshaped([6]).unwrap(), moved.reshaped([6]).unwrap());
        assert!(transposed.reshaped([5]).is_err());
        assert!(Tensor::transposed(Tensor::scalar(1u8), swap).is_none());
    }

    /// Remembers what was given back.
    #[derive(Debug, Default)]
    struct Remembered(Mutex<Vec<Vec<u8>>>);

    impl Backing for Remembered {
        fn keep(&self, _: &File, _: u64, _: usize) -> Option<Bytes> {
            None
        }

        fn release(&self, bytes: &[u8]) {
            self.0.lock().unwrap().push(bytes.to_vec());
        }
    }

    #[test]
    fn memory_is_given_back_to_what_keeps_it() {
        let backing = Arc::new(Remembered::default());
        let tensor = Tensor::from_elements([4], &[1u8, 2, 3, 4]).unwrap();
        tensor.release(0..4);
        let kept = tensor.kept_by(backing.clone());
        kept.reshaped([2, 2]).unwrap().release(1..3);
        kept.release(3..5);
        assert_eq!(*backing.0.lock().unwrap(), [[2, 3]]);
    }
}
