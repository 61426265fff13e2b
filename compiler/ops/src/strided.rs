//! Copies of elements along strides: what all moves of whole tensors come down to.

use crate::sums::for_each_chunk;

/// The elements (of `width` bytes) at `start + sum of index * stride` in `source`, for every index
/// of `shape` in row-major order. Every such place must be inside.
pub(crate) fn copy_strided(
    source: &[u8],
    width: usize,
    shape: &[usize],
    start: usize,
    strides: &[isize],
) -> Vec<u8> {
    let elements: usize = shape.iter().product();
    let mut bytes = vec![0; elements * width];
    if bytes.is_empty() {
        return bytes;
    }
    let read = Reader::new((source, width), shape, start, strides);
    let row = read.row_bytes();
    let rows = PART.div_ceil(row).next_multiple_of(TOGETHER);
    for_each_chunk(&mut bytes, rows * row, |part, bytes| read.all_rows(part * rows, bytes));
    bytes
}

/// As [`copy_strided`] by this thread alone, into `bytes`.
pub(crate) fn copy_strided_into(
    bytes: &mut [u8],
    (source, width): (&[u8], usize),
    shape: &[usize],
    start: usize,
    strides: &[isize],
) {
    if !bytes.is_empty() {
        Reader::new((source, width), shape, start, strides).all_rows(0, bytes);
    }
}

/// Least bytes that a thread copies at a time.
const PART: usize = 1 << 20;

/// Rows of the result that are filled side by side: where its columns are contiguous in the source, as in a transposed
/// matrix, a cache line of it has elements of sixteen rows.
const TOGETHER: usize = 16;

/// Reads rows of the result: its elements along the last axis.
struct Reader<'a> {
    source: &'a [u8],
    /// Bytes of an element.
    width: usize,
    /// Where the first element lies, in elements.
    start: usize,
    /// Extents and strides of the axes before.
    outer: Vec<(usize, isize)>,
    /// Runs in a row, and elements between the first of one and that of the next.
    extent: usize,
    stride: isize,
    /// Elements that lie one behind the other.
    run: usize,
}

impl<'a> Reader<'a> {
    fn new(
        (source, width): (&'a [u8], usize),
        shape: &[usize],
        start: usize,
        strides: &[isize],
    ) -> Self {
        let (mut outer, run) = runs(shape, strides);
        let (extent, stride) = outer.pop().unwrap_or((1, 0));
        Self { source, width, start, outer, extent, stride, run }
    }

    /// Bytes of a row of the result.
    fn row_bytes(&self) -> usize {
        self.extent * self.run * self.width
    }

    /// Fills any number of rows from `first` on.
    fn all_rows(&self, first: usize, bytes: &mut [u8]) {
        for (group, bytes) in bytes.chunks_mut(TOGETHER * self.row_bytes()).enumerate() {
            self.rows(first + group * TOGETHER, bytes);
        }
    }

    /// Fills the rows from `first` on, at most [`TOGETHER`].
    fn rows(&self, first: usize, bytes: &mut [u8]) {
        let mut starts = [0; TOGETHER];
        let count = bytes.len() / self.row_bytes();
        for (row, start) in starts[..count].iter_mut().enumerate() {
            *start = self.start_of(first + row);
        }
        let starts = &starts[..count];
        // Single elements are copied by their width, which the compiler then knows.
        match (self.run, self.width) {
            (1, 1) => self.elements::<1>(starts, bytes),
            (1, 2) => self.elements::<2>(starts, bytes),
            (1, 4) => self.elements::<4>(starts, bytes),
            (1, 8) => self.elements::<8>(starts, bytes),
            _ => self.runs(starts, bytes),
        }
    }

    /// Where a row begins in the source.
    fn start_of(&self, row: usize) -> isize {
        let (mut rest, mut start) = (row, self.start as isize);
        for (extent, stride) in self.outer.iter().rev() {
            start += (rest % extent) as isize * stride;
            rest /= extent;
        }
        start
    }

    /// Fills rows with runs of elements.
    fn runs(&self, starts: &[isize], bytes: &mut [u8]) {
        let run = self.run * self.width;
        for (row, start) in bytes.chunks_exact_mut(self.extent * run).zip(starts) {
            let mut place = *start;
            for to in row.chunks_exact_mut(run) {
                to.copy_from_slice(&self.source[place as usize * self.width..][..run]);
                place += self.stride;
            }
        }
    }

    /// Fills rows with elements of `WIDTH` bytes.
    fn elements<const WIDTH: usize>(&self, starts: &[isize], bytes: &mut [u8]) {
        let (source, to) = (self.source.as_chunks::<WIDTH>().0, bytes.as_chunks_mut::<WIDTH>().0);
        if self.stride.unsigned_abs() < TOGETHER {
            for (row, start) in to.chunks_exact_mut(self.extent).zip(starts) {
                let mut place = *start;
                for to in row {
                    *to = source[place as usize];
                    place += self.stride;
                }
            }
            return;
        }
        for column in 0..self.extent {
            let along = column as isize * self.stride;
            for (row, start) in starts.iter().enumerate() {
                to[row * self.extent + column] = source[(start + along) as usize];
            }
        }
    }
}

/// Extents and strides with the contiguous innermost axes taken out as one run of elements.
fn runs(shape: &[usize], strides: &[isize]) -> (Vec<(usize, isize)>, usize) {
    let pairs = shape.iter().copied().zip(strides.iter().copied());
    let mut axes: Vec<(usize, isize)> = pairs.filter(|(extent, _)| *extent != 1).collect();
    let mut run = 1;
    while let Some((extent, stride)) = axes.last()
        && *stride == run as isize
    {
        run *= extent;
        axes.pop();
    }
    (axes, run)
}

/// Moves to the next index in row-major order; `false` after the last.
fn advance(axes: &[(usize, isize)], index: &mut [usize], place: &mut isize) -> bool {
    for (own, (extent, stride)) in index.iter_mut().zip(axes).rev() {
        *own += 1;
        *place += stride;
        if *own < *extent {
            return true;
        }
        *place -= stride * *own as isize;
        *own = 0;
    }
    false
}

/// Row-major strides of a shape, in elements.
pub(crate) fn row_major(shape: &[usize]) -> Vec<isize> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis] as isize;
    }
    strides
}

/// Strides at which a tensor of `shape` is read for a broadcast output of `rank` axes; 0 where it
/// repeats.
pub(crate) fn broadcast_strides(shape: &[usize], rank: usize) -> Vec<isize> {
    let own = row_major(shape);
    let mut strides = vec![0; rank.saturating_sub(shape.len())];
    let pairs = own.iter().zip(shape);
    strides.extend(pairs.map(|(stride, extent)| if *extent == 1 { 0 } else { *stride }));
    strides
}

/// Walks all indices of a shape in row-major order.
pub(crate) struct Points {
    axes: Vec<(usize, isize)>,
    index: Vec<usize>,
}

impl Points {
    /// At the first index.
    pub fn new(shape: &[usize]) -> Self {
        Self {
            axes: shape.iter().map(|extent| (*extent, 0)).collect(),
            index: vec![0; shape.len()],
        }
    }

    /// The index.
    pub fn index(&self) -> &[usize] {
        &self.index
    }

    /// Moves to the next index.
    pub fn advance(&mut self) {
        advance(&self.axes, &mut self.index, &mut 0);
    }

    /// Flat place of the index along `strides`.
    pub fn place(&self, strides: &[isize]) -> usize {
        self.index.iter().zip(strides).map(|(index, stride)| index * *stride as usize).sum()
    }

    /// Flat place of the index along `strides`, with another index along `axis`.
    pub fn flat(&self, strides: &[isize], axis: usize, place: usize) -> usize {
        let own = self.index.iter().zip(strides).enumerate();
        let terms = own.map(|(other, (index, stride))| {
            (if other == axis { place } else { *index }) * *stride as usize
        });
        terms.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backwards_transposed_and_repeated() {
        let source: Vec<u8> = (0..6).collect();
        assert_eq!(copy_strided(&source, 1, &[3, 2], 0, &[1, 3]), [0, 3, 1, 4, 2, 5]);
        assert_eq!(copy_strided(&source, 1, &[2, 3], 5, &[-3, -1]), [5, 4, 3, 2, 1, 0]);
        assert_eq!(copy_strided(&source, 1, &[2, 1, 3], 1, &[0, 7, 1]), [1, 2, 3, 1, 2, 3]);
        assert_eq!(copy_strided(&source, 2, &[2], 0, &[2]), [0, 1, 4, 5]);
        assert_eq!(copy_strided(&source, 1, &[], 4, &[]), [4]);
        assert!(copy_strided(&[], 1, &[0, 3], 0, &[3, 1]).is_empty());
    }

    #[test]
    fn parts_and_tails_of_large_transposes() {
        let (outer, rows, columns) = (3, 37, 1 << 14);
        let source: Vec<u16> = (0..outer * rows * columns).map(|own| own as u16).collect();
        let bytes: Vec<u8> = source.iter().flat_map(|own| own.to_le_bytes()).collect();
        let strides = [(rows * columns) as isize, 1, columns as isize];
        let found = copy_strided(&bytes, 2, &[outer, columns, rows], 0, &strides);
        assert!(found.len() > 2 * PART);
        for (index, own) in found.chunks_exact(2).enumerate() {
            let (row, column) = (index % rows, index / rows % columns);
            let expected =
                source[index / (rows * columns) * rows * columns + row * columns + column];
            assert_eq!(own, expected.to_le_bytes());
        }
    }
}
