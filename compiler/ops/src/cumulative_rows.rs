//! Running sums in rows of neighbours, for machines whose vectors hold a row.
//!
//! A row is summed in registers, in as many steps as its length has binary digits: in each one an element adds what
//! lies twice as far before it (Hillis and Steele, *Data Parallel Algorithms*, 1986). What all rows before a row come
//! to is carried from one to the next. A long line is cut into chunks: what each of them comes to is summed first, and
//! tells where it begins, so that chunks are independent (reduce, then scan; Chatterjee, Blelloch and Zagha, 1990).
//! Elements are read twice and written once, or read once where a line is one chunk.

use crate::cumulative_sum::{CumulativeSum, PART};
use crate::express::{converted, load_wide, wide};
use hone_tensor::{BufferId, Builder, Combiner, Expr};
use hone_types::{DataType, TensorType};

/// Most rows of a chunk: lines that are no longer are walked once.
const MOST_ROWS: usize = 512;

/// Fewest rows of a chunk, where the rows of a line can be cut evenly.
const FEWEST_ROWS: usize = 64;

/// The sums of `x` along the operator's axis, which is the last one.
pub(crate) fn sum_in_rows(
    sum: &CumulativeSum,
    builder: &mut Builder,
    x: BufferId,
    output: &TensorType,
) -> BufferId {
    let line = Line::of(sum, x, output);
    let before = (line.chunks > 1).then(|| line.before_chunks(builder));
    let shape = [line.lead(), &[line.room()]].concat();
    let sums = builder.reserve("sums", &TensorType::new(output.dtype, shape));
    let carry = TensorType::new(line.dtype, [line.rows]);
    let carry = builder.reserve("carry", &carry);
    let mut opened = 0;
    let mut open = |builder: &mut Builder, name: &str, extent: usize| match extent {
        1 => Expr::Integer(0),
        extent => {
            opened += 1;
            builder.begin_loop(name, extent)
        }
    };
    let lead: Vec<Expr> = line.lead().iter().map(|extent| open(builder, "line", *extent)).collect();
    let chunk = open(builder, "chunk", line.chunks);
    let row = open(builder, "row", line.rows);
    let first = line.first_of_row(chunk.clone() * line.rows + row.clone());
    let own = line.sums_of_row(builder, &lead, &first);
    // What all rows before come to.
    let begin = match before {
        Some(before) => Expr::Load(before, [&lead[..], &[chunk]].concat()),
        None => Expr::Constant(0.0, line.dtype),
    };
    let carried = Expr::Load(carry, vec![row.clone() - 1]);
    let before = match line.rows {
        1 => begin,
        _ => Expr::Integer(0).less(row.clone()).select(carried, begin),
    };
    builder.store("carry", carry, row, &[], |_| {
        let whole = if sum.reverse { 0 } else { PART as i64 - 1 };
        before.clone() + Expr::Load(own, vec![Expr::Integer(whole)])
    });
    builder.store_elements("sums", sums, &[PART], |point| {
        let upto = match sum.exclusive {
            false => Expr::Load(own, point.to_vec()),
            true => line.earlier(own, &point[0], 1),
        };
        let value = before + upto;
        // Where rows go beyond the line, they do so at its last sums.
        let place = first + line.beyond() + point[0].clone();
        ([&lead[..], &[place]].concat(), converted(value, line.dtype, output.dtype))
    });
    for _ in 0..opened {
        builder.end_loop();
    }
    if line.room() == line.extent { sums } else { line.without_room(builder, sums) }
}

/// How lines are cut.
struct Line<'a> {
    sum: &'a CumulativeSum,
    x: BufferId,
    output: &'a TensorType,
    /// The type in which sums are computed.
    dtype: DataType,
    /// Elements of a line.
    extent: usize,
    /// Chunks of a line.
    chunks: usize,
    /// Rows of a chunk.
    rows: usize,
}

impl<'a> Line<'a> {
    fn of(sum: &'a CumulativeSum, x: BufferId, output: &'a TensorType) -> Self {
        let extent = output.shape[sum.axis];
        let (chunks, rows) = cut(extent.div_ceil(PART));
        Self { sum, x, output, dtype: wide(output.dtype), extent, chunks, rows }
    }

    fn lead(&self) -> &[usize] {
        &self.output.shape[..self.sum.axis]
    }

    /// Elements of all rows of a line.
    fn room(&self) -> usize {
        self.chunks * self.rows * PART
    }

    /// By how many elements rows begin before the line, where they are taken from its end.
    fn beyond(&self) -> i64 {
        if self.sum.reverse { (self.room() - self.extent) as i64 } else { 0 }
    }

    /// The element at a place of a line; nothing beyond its ends.
    fn element(&self, lead: &[Expr], place: Expr) -> Expr {
        let read =
            load_wide(self.x, [lead, std::slice::from_ref(&place)].concat(), self.output.dtype);
        if self.room() == self.extent {
            return read;
        }
        let inside = match self.sum.reverse {
            false => place.less(self.extent.into()),
            true => Expr::Integer(-1).less(place),
        };
        inside.select(read, Expr::Constant(0.0, self.dtype))
    }

    /// A copy of sums that leaves out those beyond the line.
    fn without_room(&self, builder: &mut Builder, sums: BufferId) -> BufferId {
        builder.map("cumulative_sum", self.output, |point| {
            let mut read = point.to_vec();
            read[self.sum.axis] = point[self.sum.axis].clone() + self.beyond();
            Expr::Load(sums, read)
        })
    }

    /// Where a row begins; rows are counted in the direction of the sum.
    fn first_of_row(&self, row: Expr) -> Expr {
        match self.sum.reverse {
            false => row * PART,
            true => Expr::from(self.extent) - PART as i64 - row * PART,
        }
    }

    /// In a row, the element so far before one; nothing before the first.
    fn earlier(&self, row: BufferId, place: &Expr, far: usize) -> Expr {
        let far = far as i64;
        let (is_there, at) = match self.sum.reverse {
            false => (Expr::Integer(far - 1).less(place.clone()), place.clone() - far),
            true => (place.clone().less(Expr::from(PART) - far), place.clone() + far),
        };
        is_there.select(Expr::Load(row, vec![at]), Expr::Constant(0.0, self.dtype))
    }

    /// What all chunks before each come to.
    fn before_chunks(&self, builder: &mut Builder) -> BufferId {
        let (axis, length) = (self.sum.axis, self.rows * PART);
        let shape = TensorType::new(self.dtype, [self.lead(), &[self.chunks]].concat());
        let totals = builder.reduce("chunk", &shape, &[length], Combiner::Sum, |point, by| {
            let first = point[axis].clone() * length;
            let place = match self.sum.reverse {
                false => first + by[0].clone(),
                true => Expr::from(self.extent) - length as i64 - first + by[0].clone(),
            };
            self.element(&point[..axis], place)
        });
        builder.scan("before", &shape, |point, own| {
            let mut last = point.to_vec();
            last[axis] = point[axis].clone() - 1;
            let sum = Expr::Load(own, last.clone()) + Expr::Load(totals, last);
            let is_later = Expr::Integer(0).less(point[axis].clone());
            is_later.select(sum, Expr::Constant(0.0, self.dtype))
        })
    }

    /// The sums within the row that begins at `first`.
    fn sums_of_row(&self, builder: &mut Builder, lead: &[Expr], first: &Expr) -> BufferId {
        let row = TensorType::new(self.dtype, [PART]);
        let mut sums =
            builder.map("row", &row, |point| self.element(lead, first.clone() + point[0].clone()));
        let mut far = 1;
        while far < PART {
            sums = builder.map("row", &row, |point| {
                Expr::Load(sums, point.to_vec()) + self.earlier(sums, &point[0], far)
            });
            far *= 2;
        }
        sums
    }
}

/// The chunks of a line of so many rows, and the rows of each: all of them alike, and no row too many where that can be.
fn cut(rows: usize) -> (usize, usize) {
    if rows <= MOST_ROWS {
        return (1, rows);
    }
    let even = (FEWEST_ROWS..=MOST_ROWS).rev().find(|own| rows.is_multiple_of(*own));
    let own = even.unwrap_or_else(|| rows.div_ceil(rows.div_ceil(MOST_ROWS)));
    (rows.div_ceil(own), own)
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn rows_are_cut_evenly_where_they_can_be() {
        assert_eq!(cut(1), (1, 1));
        assert_eq!(cut(512), (1, 512));
        assert_eq!(cut(62_500), (125, 500));
        // A prime: some rows too many.
        let (chunks, rows) = cut(1_009);
        assert!(chunks * rows >= 1_009 && chunks * rows < 1_009 + chunks);
    }
}
