//! Copies of elements along strides: what all moves of whole tensors come down to.

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
    let mut bytes = Vec::with_capacity(elements * width);
    if elements == 0 {
        return bytes;
    }
    let (axes, run) = runs(shape, strides);
    let read = Reader { source, start, axes: &axes };
    // Single elements are copied by their width, which the compiler then knows.
    match (run, width) {
        (1, 1) => read.append::<1>(&mut bytes),
        (1, 2) => read.append::<2>(&mut bytes),
        (1, 4) => read.append::<4>(&mut bytes),
        (1, 8) => read.append::<8>(&mut bytes),
        _ => read.each(|place| {
            bytes.extend_from_slice(&source[place * width..][..run * width]);
        }),
    }
    bytes
}

/// Reads places along strides.
struct Reader<'a> {
    source: &'a [u8],
    start: usize,
    axes: &'a [(usize, isize)],
}

impl Reader<'_> {
    /// Appends elements of `WIDTH` bytes.
    fn append<const WIDTH: usize>(&self, bytes: &mut Vec<u8>) {
        let (elements, _) = self.source.as_chunks::<WIDTH>();
        self.each(|place| bytes.extend_from_slice(&elements[place]));
    }

    /// Calls `visit` with each place in row-major order of the axes.
    fn each(&self, mut visit: impl FnMut(usize)) {
        let (inner_extent, inner_stride) = self.axes.last().copied().unwrap_or((1, 0));
        let outer = &self.axes[..self.axes.len().saturating_sub(1)];
        let mut index = vec![0; outer.len()];
        let mut place = self.start as isize;
        loop {
            let mut read = place;
            for _ in 0..inner_extent {
                visit(read as usize);
                read += inner_stride;
            }
            if !advance(outer, &mut index, &mut place) {
                return;
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
}
