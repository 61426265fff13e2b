//! How much of a model is computed while compiling it. The importer and the pass that folds constants
//! share these bounds, so that neither makes a small model slow to compile or large.

use crate::{NGrams, Op, Text};
use hone_types::TensorType;

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
    use super::*;
    use crate::MatMul;
    use hone_types::DataType;

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
