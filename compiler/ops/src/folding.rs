//! How much of a model is computed while compiling it. The importer and the pass that folds constants
//! share these bounds, so that neither makes a small model slow to compile or large.

use crate::strided::copy_strided;
use crate::{NGrams, Op, OpError, Text, Transpose};
use hone_types::{Tensor, TensorType};

/// The results of a node all of whose inputs are constants; the memory of inputs that a file keeps is given back. Elements of
/// a large matrix whose axes are swapped are moved when they are first read: what packs it for products reads it as
/// it is stored.
///
/// # Errors
/// As for [`crate::Operator::reference`].
pub fn fold(operation: &Op, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
    if let Some(transposed) = transposed_later(operation, inputs) {
        return Ok(vec![transposed]);
    }
    let results = operation.reference(inputs)?;
    for input in inputs.iter().flatten() {
        input.release(0..input.tensor_type().bytes());
    }
    Ok(results)
}

/// Bytes from which a matrix is transposed when it is read.
const LARGE_MATRIX: usize = 1 << 20;

fn transposed_later(operation: &Op, inputs: &[Option<&Tensor>]) -> Option<Tensor> {
    let transpose = operation.downcast::<Transpose>()?;
    let [Some(matrix)] = inputs[..] else { return None };
    let is_swap = transpose.permutation == [1, 0];
    if !is_swap || matrix.tensor_type().bytes() < LARGE_MATRIX {
        return None;
    }
    match matrix.transposed_matrix() {
        Some(original) => Some(original.clone()),
        None => Tensor::transposed(matrix.clone(), transposed_bytes),
    }
}

/// The bytes of a matrix with its axes swapped.
fn transposed_bytes(matrix: &Tensor) -> Vec<u8> {
    let [rows, columns] = matrix.shape()[..] else { return Vec::new() };
    let (shape, strides) = ([columns, rows], [1, columns as isize]);
    let bytes = copy_strided(matrix.bytes(), matrix.dtype().bytes(), &shape, 0, &strides);
    matrix.release(0..bytes.len());
    bytes
}

/// Bounds on computing constants at compile time.
#[derive(Clone, Debug, PartialEq)]
pub struct FoldingLimits {
    /// Bytes of the results of one node, where its inputs are smaller.
    pub result_bytes: usize,
    /// Elementary operations of one node.
    pub operations: u64,
    /// Elementary operations of all nodes together.
    pub all_operations: u64,
}

impl Default for FoldingLimits {
    fn default() -> Self {
        Self { result_bytes: 64 << 20, operations: 1 << 28, all_operations: 1 << 32 }
    }
}

/// What is left of the bounds while nodes are folded one by one.
#[derive(Clone, Debug)]
pub struct FoldingBudget {
    limits: FoldingLimits,
    operations_left: u64,
}

impl FoldingBudget {
    /// The whole of `limits`.
    pub fn new(limits: FoldingLimits) -> Self {
        Self { operations_left: limits.all_operations, limits }
    }

    /// Whether a node of these input and output types is cheap enough to compute now; if so, its
    /// operations are counted.
    pub fn take(
        &mut self,
        operation: &Op,
        inputs: &[Option<&TensorType>],
        outputs: &[TensorType],
    ) -> bool {
        // What a region costs is known only when it has run.
        if !operation.regions().is_empty() {
            return false;
        }
        // What strings cost depends on their lengths, which types do not say.
        let cuts_texts = operation.downcast::<Text>().is_some_and(Text::cuts_texts);
        if cuts_texts || operation.downcast::<NGrams>().is_some() {
            return false;
        }
        let read: usize = inputs.iter().flatten().map(|input| input.bytes()).sum();
        let made: usize = outputs.iter().map(TensorType::bytes).sum();
        let elements: usize = inputs.iter().flatten().map(|input| input.elements()).sum();
        let operations = operation.flops(inputs, outputs).saturating_add(elements as u64);
        let is_cheap = operations <= self.limits.operations.min(self.operations_left)
            && made <= read.max(self.limits.result_bytes);
        if is_cheap {
            self.operations_left -= operations;
        }
        is_cheap
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::MatMul;
    use hone_types::DataType;

    #[test]
    fn a_large_matrix_is_transposed_when_it_is_read() {
        let elements: Vec<f32> = (0..700 * 500).map(|own| own as f32).collect();
        let matrix = Tensor::from_elements([700, 500], &elements).unwrap();
        let swap: Op = Transpose { permutation: vec![1, 0] }.into();
        let folded = fold(&swap, &[Some(&matrix)]).unwrap();
        assert_eq!(folded[0].transposed_matrix(), Some(&matrix));
        assert_eq!(folded, swap.reference(&[Some(&matrix)]).unwrap());
        assert_eq!(fold(&swap, &[Some(&folded[0])]).unwrap(), [matrix]);
    }

    #[test]
    fn what_is_too_large_or_beyond_the_sum_is_refused() {
        let square = TensorType::new(DataType::F32, [10, 10]);
        let product: Op = MatMul {}.into();
        let limits = |operations, all_operations, result_bytes| {
            FoldingBudget::new(FoldingLimits { operations, all_operations, result_bytes })
        };
        let fits = |budget: &mut FoldingBudget| {
            budget.take(&product, &[Some(&square), Some(&square)], std::slice::from_ref(&square))
        };
        // 2 * 10 * 10 * 10 operations, and 200 elements to read.
        assert!(fits(&mut limits(2_200, 10_000, 0)));
        assert!(!fits(&mut limits(2_199, 10_000, 0)));
        let mut budget = limits(10_000, 5_000, 0);
        assert_eq!([fits(&mut budget), fits(&mut budget), fits(&mut budget)], [true, true, false]);
        let vector = TensorType::new(DataType::F32, [10, 1]);
        let row = TensorType::new(DataType::F32, [1, 10]);
        let outer = |bytes| {
            let square = std::slice::from_ref(&square);
            limits(10_000, 10_000, bytes).take(&product, &[Some(&vector), Some(&row)], square)
        };
        assert!(outer(400) && !outer(399));
    }
}
