//! Computations that AutoTVM's templates for x86 are of, as far as both compilers have them, and the programs here that
//! compute the same.

use hone_tensor::{BlockBody, Combiner, Expr, IteratorKind, Program};
use std::fmt;
use std::str::FromStr;

/// Largest number of channels or columns that a layout keeps together.
const LARGEST_BLOCK: usize = 64;

/// A computation, in extents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Workload {
    /// A convolution over planes.
    Convolution {
        /// Batch, input channels of a group, groups, output channels.
        channels: [usize; 4],
        /// Rows and columns of the result.
        plane: [usize; 2],
        /// Rows and columns of the window.
        window: [usize; 2],
        /// Strides of rows and of columns.
        strides: [usize; 2],
    },
    /// A product of a matrix of `rows` × `depth` and one of `depth` × `columns`.
    Dense {
        /// Rows of the result.
        rows: usize,
        /// Its columns.
        columns: usize,
        /// Summed products.
        depth: usize,
    },
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Convolution { channels: [n, ci, groups, co], plane, window, strides } => write!(
                f,
                "autotvm conv2d batch {n} channels {ci} groups {groups} to {co} plane {}x{} window {}x{} strides {}x{}",
                plane[0], plane[1], window[0], window[1], strides[0], strides[1]
            ),
            Self::Dense { rows, columns, depth } => {
                write!(f, "autotvm dense rows {rows} columns {columns} depth {depth}")
            }
        }
    }
}

impl FromStr for Workload {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let rest = text.strip_prefix("autotvm ").ok_or(())?;
        let numbers: Vec<usize> = rest
            .split(|c: char| !c.is_ascii_digit())
            .filter(|part| !part.is_empty())
            // The 2 of conv2d.
            .skip(usize::from(rest.starts_with("conv2d ")))
            .map(|part| part.parse().map_err(|_| ()))
            .collect::<Result<_, ()>>()?;
        let found = match numbers[..] {
            [n, ci, groups, co, h, w, kh, kw, sh, sw] => Self::Convolution {
                channels: [n, ci, groups, co],
                plane: [h, w],
                window: [kh, kw],
                strides: [sh, sw],
            },
            [rows, columns, depth] => Self::Dense { rows, columns, depth },
            _ => return Err(()),
        };
        // What is written in other words is nothing that was written here.
        if found.to_string() == text { Ok(found) } else { Err(()) }
    }
}

/// The sum of products that a program is about: extents of its results and of its sums, one for each axis.
struct Sum {
    results: Vec<usize>,
    sums: Vec<usize>,
}

impl Sum {
    /// Of a program with one sum of products of two loads.
    fn of(program: &Program) -> Option<Self> {
        let mut sums = program.blocks.iter().map(|(_, block)| block).filter(|block| {
            matches!(
                &block.body,
                BlockBody::Reduce { combiner: Combiner::Sum, value: Expr::Binary(_, left, right), .. }
                    if matches!((&**left, &**right), (Expr::Load(..), Expr::Load(..)))
            )
        });
        let block = sums.next()?;
        if sums.next().is_some() {
            return None;
        }
        let extents = |kind: IteratorKind| {
            let of_kind = block.iterators.iter().filter(move |iterator| iterator.kind == kind);
            of_kind.map(|iterator| iterator.extent).collect::<Vec<_>>()
        };
        Some(Self {
            results: extents(IteratorKind::Spatial),
            sums: extents(IteratorKind::Reduction),
        })
    }
}

impl Workload {
    /// Whether a plain program computes as many results of as many products, over axes of the same extents. Axes of blocks and
    /// padding to whole blocks are the layout's, and strides cannot be seen where axes were joined: a candidate for a
    /// computation that is only nearly the same is measured like any other.
    pub fn matches(&self, program: &Program) -> bool {
        let Some(sum) = Sum::of(program) else { return false };
        let product = |extents: &[usize]| extents.iter().product::<usize>();
        let (results, sums) = (product(&sum.results), product(&sum.sums));
        match self {
            Self::Convolution { channels: [n, ci, _, co], plane: [h, w], window, .. } => {
                let positions = n * h * w;
                let has = |extent: &usize| *extent == 1 || sum.sums.contains(extent);
                is_padded(*co, positions, results)
                    && sums == ci * window[0] * window[1]
                    && window.iter().all(has)
            }
            Self::Dense { rows, columns, depth } => {
                is_padded(*columns, *rows, results) && sums == *depth
            }
        }
    }

    /// Whether it is a convolution of each channel by itself.
    pub(super) fn is_depthwise(&self) -> bool {
        matches!(self, Self::Convolution { channels: [_, _, groups, _], .. } if *groups > 1)
    }

    /// The place among the axes that a program sums of the window's columns, where they can be told from the others.
    pub(super) fn window_axis(&self, program: &Program) -> Option<usize> {
        let Self::Convolution { window: [_, columns], .. } = self else { return None };
        let sum = Sum::of(program)?;
        // Channels of a block may be as many as columns, and come after them: rows, columns, channels.
        let mut positions =
            sum.sums.iter().enumerate().skip(1).filter(|(_, extent)| *extent == columns);
        let first = positions.next()?.0;
        Some(if sum.sums.get(first + 1) == Some(columns) { first + 1 } else { first })
    }
}

/// Whether there are `all` results of `columns` in each of so many places, where columns may be padded to a whole block.
fn is_padded(columns: usize, positions: usize, all: usize) -> bool {
    all.is_multiple_of(positions)
        && (columns..=columns.next_multiple_of(LARGEST_BLOCK)).contains(&(all / positions))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn words_say_which_computation_it_is() {
        let all = [
            Workload::Convolution {
                channels: [1, 64, 2, 128],
                plane: [56, 28],
                window: [3, 5],
                strides: [1, 2],
            },
            Workload::Dense { rows: 1, columns: 1000, depth: 512 },
        ];
        for one in all {
            assert_eq!(one.to_string().parse::<Workload>().unwrap(), one);
        }
        for other in [
            "",
            "autotvm",
            "autotvm dense rows 1 columns 2",
            "autotvm dense rows 1 rows 2 depth 3",
            "autotvm dense rows 1 columns 2 depth 99999999999999999999999",
            "conv 1",
        ] {
            assert!(other.parse::<Workload>().is_err(), "{other}");
        }
    }
}
