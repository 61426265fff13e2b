//! Sums of products in `f64` for the reference results: the terms of every sum are added in their order,
//! whatever the blocking and the number of threads, so that results are the same on every machine.
//!
//! The sums of a block of rows by a block of columns are held in registers while the terms pass by (Goto
//! and van de Geijn, Anatomy of High-Performance Matrix Multiplication, TOMS 2008, section 6).

use std::sync::Mutex;
use std::thread;

/// Columns of a block: what a line of the cache holds.
pub(crate) const COLUMNS: usize = 8;
/// Rows of a block: two by eight sums, their factors and terms fit sixteen registers of two numbers.
const ROWS: usize = 2;

/// What is summed: `sums[row, column] += sum over k of factors[row, k] * terms[offsets[k] + column]`.
pub(crate) struct Products<'a> {
    /// The factors, `[rows, offsets.len()]`.
    pub factors: &'a [f64],
    /// The terms. Each offset plus the width of the sums, rounded up to [`COLUMNS`], lies inside.
    pub terms: &'a [f64],
    /// Where the terms of each `k` begin.
    pub offsets: &'a [usize],
}

impl Products<'_> {
    /// Adds to `sums`, `[rows, width]`; terms are read up to the next multiple of [`COLUMNS`].
    pub fn add_to(&self, sums: &mut [f64], width: usize) {
        let depth = self.offsets.len();
        if width == 0 || depth == 0 {
            return;
        }
        let rows = self.factors.chunks(ROWS * depth);
        for (factors, sums) in rows.zip(sums.chunks_mut(ROWS * width)) {
            for first in (0..width).step_by(COLUMNS) {
                match factors.split_at_checked(depth) {
                    Some((upper, lower)) if !lower.is_empty() => {
                        self.block([upper, lower], sums, width, first);
                    }
                    _ => self.block([factors], sums, width, first),
                }
            }
        }
    }

    /// One block of sums from column `first` on.
    fn block<const N: usize>(
        &self,
        factors: [&[f64]; N],
        sums: &mut [f64],
        width: usize,
        first: usize,
    ) {
        let here = COLUMNS.min(width - first);
        let mut block = [[0.0; COLUMNS]; N];
        for (block, sums) in block.iter_mut().zip(sums.chunks(width)) {
            block[..here].copy_from_slice(&sums[first..first + here]);
        }
        for (k, offset) in self.offsets.iter().enumerate() {
            let Some(terms) = self.terms[offset + first..].first_chunk::<COLUMNS>() else { return };
            for (block, factors) in block.iter_mut().zip(factors) {
                let factor = factors[k];
                for (sum, term) in block.iter_mut().zip(terms) {
                    *sum += factor * term;
                }
            }
        }
        for (block, sums) in block.iter().zip(sums.chunks_mut(width)) {
            sums[first..first + here].copy_from_slice(&block[..here]);
        }
    }
}

/// Calls `compute` with the number and the content of every chunk of `values`, on all cores. Chunks are
/// handed out one by one, so that which thread computes one changes no result.
pub(crate) fn for_each_chunk<T: Send>(
    values: &mut [T],
    chunk: usize,
    compute: impl Fn(usize, &mut [T]) + Sync,
) {
    let chunks = values.len().div_ceil(chunk.max(1));
    let threads = thread::available_parallelism().map_or(1, |count| count.get()).min(chunks);
    let chunks = values.chunks_mut(chunk.max(1)).enumerate();
    if threads < 2 {
        return chunks.for_each(|(index, chunk)| compute(index, chunk));
    }
    let next = Mutex::new(chunks);
    let work = || {
        // A poisoned lock means that another thread panicked: the scope passes that on.
        while let Some((index, chunk)) = next.lock().ok().and_then(|mut next| next.next()) {
            compute(index, chunk);
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_and_tails_are_the_plain_sums() {
        for (rows, width, depth) in [(1, 1, 1), (2, 8, 3), (3, 9, 5), (5, 17, 2), (4, 7, 0)] {
            let factors: Vec<f64> = (0..rows * depth).map(|n| n as f64 - 2.5).collect();
            let terms: Vec<f64> = (0..depth * 40 + 40).map(|n| 0.5 * n as f64).collect();
            let offsets: Vec<usize> = (0..depth).map(|k| 37 * k % 31).collect();
            let mut sums = vec![1.0; rows * width];
            Products { factors: &factors, terms: &terms, offsets: &offsets }
                .add_to(&mut sums, width);
            for row in 0..rows {
                for column in 0..width {
                    let products =
                        (0..depth).map(|k| factors[row * depth + k] * terms[offsets[k] + column]);
                    assert_eq!(sums[row * width + column], 1.0 + products.sum::<f64>());
                }
            }
        }
    }

    #[test]
    fn every_chunk_is_computed_once() {
        let mut values = vec![0; 1003];
        for_each_chunk(&mut values, 10, |index, chunk| {
            chunk.iter_mut().for_each(|value| *value += index + 1);
        });
        assert!(values.iter().enumerate().all(|(place, value)| *value == place / 10 + 1));
    }
}
