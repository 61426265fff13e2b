//! Discrete Fourier transforms as products of matrices: of the whole matrix, or of those of two factors of the length
//! (Cooley and Tukey, 1965) where that is less work.
//!
//! With `length = A B`, `n = B a + b` and `k = c + A d`, and `w = exp(-2 pi i / length)`:
//!
//! ```text
//! y[c + A d] = sum over b of exp(-2 pi i b d / B) * w^(b c) * sum over a of exp(-2 pi i a c / A) * x[B a + b]
//! ```
//!
//! The inner sums are a product with `[A, A]` from the left, of numbers as they lie, and the outer ones a transform of
//! length B. Real and imaginary parts are tensors apart until the end, so that vectors hold neighbours. An even number of
//! real elements is transformed as half as many complex ones: those of even places are the real parts.

use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::shorthands::Step;
use hone_ops::{BinaryFunction as B, PadMode, Slice, UnaryFunction as U};
use hone_types::{DataType, Tensor};
use std::collections::HashMap;
use std::f64::consts::TAU;

/// Most entries of a matrix of a transform, and elements of a signal or a window.
pub(super) const LARGEST: usize = 1 << 24;

/// What numbers cost that are multiplied by `w^(b c)` and turned over, in operations of a product for each complex
/// element. Measured for 64 transforms of 256 numbers on Zen 4: 1.7 ns, in which a core does 200; the rest is for more and
/// smaller products, which reach less of the peak.
const TURN: u64 = 320;

/// The same of taking the transform of real numbers out of that of half as many complex ones: 2.1 ns there.
const UNFOLD: u64 = 256;

/// What is transformed, and to what.
#[derive(Clone, Copy)]
struct Transform {
    length: usize,
    /// Parts of an element: one where all are real.
    parts: usize,
    inverse: bool,
    /// Whether one half stands for both, which are conjugate.
    onesided: bool,
}

impl Transform {
    fn real_result(self) -> bool {
        self.inverse && self.onesided
    }

    /// How many elements are read.
    fn used(self) -> usize {
        if self.real_result() { self.length / 2 + 1 } else { self.length }
    }

    /// How many elements come out.
    fn made(self) -> usize {
        if self.onesided && !self.inverse { self.length / 2 + 1 } else { self.length }
    }

    /// The form of the least work. Numbers of 16 bits are rounded by one matrix alone.
    fn form(self, dtype: DataType) -> Form {
        if self.real_result() || !matches!(dtype, DataType::F32 | DataType::F64) {
            return Form::Matrix;
        }
        let (length, made) = (self.length as u64, self.made() as u64);
        let mut costs = Costs::default();
        let mut best = (length.saturating_mul(4 * self.parts as u64 * made), Form::Matrix);
        let mut offer = |length: usize, more: u64, form: Form| {
            let work = (length as u64).saturating_mul(more + costs.of(length));
            if work < best.0 && costs.entries(length) <= LARGEST as u64 {
                best = (work, form);
            }
        };
        offer(self.length, 0, Form::Complex);
        if self.parts == 1 && !self.inverse && self.length.is_multiple_of(2) {
            offer(self.length / 2, UNFOLD, Form::Halved);
        }
        best.1
    }
}

/// How a transform is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    /// By the whole matrix, for each part.
    Matrix,
    /// As one of complex numbers.
    Complex,
    /// As one of half as many complex numbers.
    Halved,
}

/// Operations for each element of complex transforms, by their length.
#[derive(Default)]
struct Costs(HashMap<usize, (u64, Option<usize>)>);

impl Costs {
    fn of(&mut self, length: usize) -> u64 {
        self.best(length).0
    }

    /// Entries of the largest matrix.
    fn entries(&mut self, length: usize) -> u64 {
        let square = |extent: usize| (extent as u64).saturating_mul(extent as u64);
        match self.best(length).1 {
            Some(first) => (2 * square(first)).max(self.entries(length / first)),
            None => square(2 * length),
        }
    }

    /// The least operations, and the first factor where the length is taken apart. A tie takes the fewest factors.
    fn best(&mut self, length: usize) -> (u64, Option<usize>) {
        if let Some(known) = self.0.get(&length) {
            return *known;
        }
        let mut best = (8 * length as u64, None);
        let small = (2..).take_while(|factor| factor * factor <= length);
        for factor in small.filter(|factor| length.is_multiple_of(*factor)) {
            for first in [factor, length / factor] {
                let cost = 8 * first as u64 + TURN + self.of(length / first);
                if cost < best.0 {
                    best = (cost, Some(first));
                }
            }
        }
        self.0.insert(length, best);
        best
    }
}

/// The transform of the axis before the last, of `length`.
pub(super) fn transform(
    b: &mut Builder,
    x: Operand,
    length: usize,
    inverse: bool,
    onesided: bool,
) -> Step {
    let shape = b.shape(x);
    let (rank, parts) = (shape.len(), shape[shape.len() - 1]);
    let own = Transform { length, parts, inverse, onesided };
    let refused = || NodeError::unsupported(format!("a transform of length {length}"));
    if length == 0 || length > LARGEST {
        return Err(refused());
    }
    let form = own.form(b.dtype(x));
    // The other forms have matrices small enough.
    let whole = own.used().checked_mul(own.made());
    if form == Form::Matrix && whole.is_none_or(|entries| entries > LARGEST) {
        return Err(refused());
    }
    if ![1, 2].contains(&parts) {
        return Err(NodeError::invalid(format!("{parts} parts of a number")));
    }
    let fitted = fitted(b, x, own.used())?;
    let lead = &shape[..rank - 2];
    let results = match form {
        Form::Matrix => by_matrix(b, fitted, own)?,
        Form::Complex => as_complex(b, fitted, own)?,
        Form::Halved => as_half(b, fitted, own)?,
    };
    let column = [lead, &[own.made(), 1]].concat();
    let columns: Result<Vec<Operand>, NodeError> =
        results.into_iter().map(|own| b.reshape(own, column.clone())).collect();
    b.concat(&columns?, rank - 1)
}

/// The first `used` elements of the axis before the last; zeros where there are fewer.
fn fitted(b: &mut Builder, x: Operand, used: usize) -> Step {
    let shape = b.shape(x);
    let rank = shape.len();
    match shape[rank - 2] {
        extent if extent >= used => b.narrow(x, rank - 2, 0, used),
        extent => {
            let mut end = vec![0; rank];
            end[rank - 2] = (used - extent) as i64;
            b.pad(x, vec![0; rank], end, PadMode::Constant, 0.0)
        }
    }
}

/// The real parts `[.., n]` of `[.., n, parts]`, and the imaginary ones where there are any.
fn parts_of(b: &mut Builder, x: Operand) -> Result<(Operand, Option<Operand>), NodeError> {
    let shape = b.shape(x);
    let last = shape.len() - 1;
    let mut part = |place: usize| -> Step {
        let own = b.narrow(x, last, place, 1)?;
        b.reshape(own, shape[..last].to_vec())
    };
    let real = part(0)?;
    let imaginary = if shape[last] == 2 { Some(part(1)?) } else { None };
    Ok((real, imaginary))
}

/// A constant matrix of a function of row and column.
fn matrix(
    b: &mut Builder,
    dtype: DataType,
    [rows, columns]: [usize; 2],
    entry: impl Fn(usize, usize) -> f64,
) -> Step {
    let values: Vec<f64> =
        (0..rows * columns).map(|flat| entry(flat / columns, flat % columns)).collect();
    Ok(b.constant(Tensor::from_f64(dtype, [rows, columns], &values)?))
}

/// Cosine and sine of `place` steps of a circle of `length`.
fn on_circle(place: usize, length: usize) -> [f64; 2] {
    let (sine, cosine) = (TAU * (place % length) as f64 / length as f64).sin_cos();
    [cosine, sine]
}

/// Real and imaginary parts, the latter left out where all are zero, by the whole matrix.
fn by_matrix(b: &mut Builder, x: Operand, own: Transform) -> Result<Vec<Operand>, NodeError> {
    let (dtype, length, inverse) = (b.dtype(x), own.length, own.inverse);
    let factor = |k: usize| match own.real_result() {
        // What is left out is conjugate to what is there.
        true if k > 0 && 2 * k != length => 2.0 / length as f64,
        _ if inverse => 1.0 / length as f64,
        _ => 1.0,
    };
    let mut table = |part: usize| {
        matrix(b, dtype, [own.used(), own.made()], |from, to| {
            factor(from) * on_circle(from * to, length)[part]
        })
    };
    let (cosine, sine) = (table(0)?, table(1)?);
    let (real, imaginary) = parts_of(b, x)?;
    let mut results = Vec::new();
    // The sine counts against the imaginary part in a forward transform, for it in an inverse one.
    let (plus, minus) = if inverse { (B::Subtract, B::Add) } else { (B::Add, B::Subtract) };
    let direct = b.matmul(real, cosine)?;
    results.push(match imaginary {
        Some(imaginary) => {
            let other = b.matmul(imaginary, sine)?;
            b.binary(plus, direct, other)?
        }
        None => direct,
    });
    if !own.real_result() {
        let turned = b.matmul(real, sine)?;
        results.push(match imaginary {
            Some(imaginary) => {
                let other = b.matmul(imaginary, cosine)?;
                b.binary(minus, other, turned)?
            }
            None if inverse => turned,
            None => b.scalar_with(B::Subtract, 0.0, turned)?,
        });
    }
    Ok(results)
}

/// Both parts, by factors. An inverse transform is a forward one with the parts exchanged before and after; of real numbers
/// it is conjugate to the forward one.
fn as_complex(b: &mut Builder, x: Operand, own: Transform) -> Result<Vec<Operand>, NodeError> {
    let (real, imaginary) = parts_of(b, x)?;
    let axis = b.rank(real) - 1;
    let mut costs = Costs::default();
    let (parts, signs) = match imaginary.filter(|_| own.inverse) {
        Some(imaginary) => {
            let [imaginary, real] = factored(b, (imaginary, Some(real)), &mut costs)?;
            ([real, imaginary], [1.0, 1.0])
        }
        None => (factored(b, (real, imaginary), &mut costs)?, [1.0, -1.0]),
    };
    let mut results = Vec::with_capacity(2);
    for (part, sign) in parts.into_iter().zip(signs) {
        let part = match own.inverse {
            true => b.with_scalar(B::Multiply, part, sign / own.length as f64)?,
            false => part,
        };
        results.push(b.narrow(part, axis, 0, own.made())?);
    }
    Ok(results)
}

/// The forward transform of the last axis of complex numbers, as both parts.
fn factored(
    b: &mut Builder,
    (real, imaginary): (Operand, Option<Operand>),
    costs: &mut Costs,
) -> Result<[Operand; 2], NodeError> {
    let shape = b.shape(real);
    let axis = shape.len() - 1;
    let (lead, length) = (&shape[..axis], shape[axis]);
    let Some(first) = costs.best(length).1 else {
        return whole(b, (real, imaginary));
    };
    let rest = length / first;
    let split = [lead, &[first, rest]].concat();
    let turned = inner_sums(b, (real, imaginary), &split)?;
    let [real, imaginary] = factored(b, (turned[0], Some(turned[1])), costs)?;
    let mut order: Vec<usize> = (0..axis + 2).collect();
    order.swap(axis, axis + 1);
    let mut natural = |part: Operand| -> Step {
        let part = b.transpose(part, order.clone())?;
        b.reshape(part, shape.clone())
    };
    Ok([natural(real)?, natural(imaginary)?])
}

/// The sums over a, each times `w^(b c)`: `[.., c, b]` from elements that are `[.., a, b]` in the shape `split`.
fn inner_sums(
    b: &mut Builder,
    (real, imaginary): (Operand, Option<Operand>),
    split: &[usize],
) -> Result<[Operand; 2], NodeError> {
    let (dtype, axis) = (b.dtype(real), split.len() - 2);
    let (first, rest) = (split[axis], split[axis + 1]);
    // Cosines above sines: both products at once.
    let table = matrix(b, dtype, [2 * first, first], |row, column| {
        on_circle(row % first * column, first)[row / first]
    })?;
    let mut products = |part: Operand| -> Result<[Operand; 2], NodeError> {
        let part = b.reshape(part, split.to_vec())?;
        let both = b.matmul(table, part)?;
        Ok([b.narrow(both, axis, 0, first)?, b.narrow(both, axis, first, first)?])
    };
    let [cosines, sines] = products(real)?;
    let (real, imaginary) = match imaginary {
        Some(imaginary) => {
            let [others, turned] = products(imaginary)?;
            (b.add(cosines, turned)?, b.subtract(others, sines)?)
        }
        None => (cosines, b.unary(U::Negate, sines)?),
    };
    let mut circle = |part: usize| {
        matrix(b, dtype, [first, rest], |c, at| on_circle(c * at, first * rest)[part])
    };
    let circle = [circle(0)?, circle(1)?];
    turn(b, [real, imaginary], circle)
}

/// Complex numbers times `cosine - i sine`.
fn turn(
    b: &mut Builder,
    [real, imaginary]: [Operand; 2],
    [cosine, sine]: [Operand; 2],
) -> Result<[Operand; 2], NodeError> {
    let (direct, crossed) = (b.multiply(real, cosine)?, b.multiply(imaginary, sine)?);
    let turned = b.add(direct, crossed)?;
    let (direct, crossed) = (b.multiply(imaginary, cosine)?, b.multiply(real, sine)?);
    Ok([turned, b.subtract(direct, crossed)?])
}

/// The transform of the last axis by one product: real parts beside imaginary ones.
fn whole(
    b: &mut Builder,
    (real, imaginary): (Operand, Option<Operand>),
) -> Result<[Operand; 2], NodeError> {
    let (dtype, axis) = (b.dtype(real), b.rank(real) - 1);
    let length = b.shape(real)[axis];
    let (rows, joined) = match imaginary {
        Some(imaginary) => (2 * length, b.concat(&[real, imaginary], axis)?),
        None => (length, real),
    };
    let table = matrix(b, dtype, [rows, 2 * length], |row, column| {
        let [cosine, sine] = on_circle(row % length * (column % length), length);
        match (row < length, column < length) {
            (true, true) | (false, false) => cosine,
            (true, false) => -sine,
            (false, true) => sine,
        }
    })?;
    let both = b.matmul(joined, table)?;
    Ok([b.narrow(both, axis, 0, length)?, b.narrow(both, axis, length, length)?])
}

/// Both parts of the transform of real numbers, from that of half as many complex ones. With `z` the transform of
/// `x[2 n] + i x[2 n + 1]` and `M` its length: `2 y[k] = z[k] + conj z[M - k] - i w^k (z[k] - conj z[M - k])`.
fn as_half(b: &mut Builder, x: Operand, own: Transform) -> Result<Vec<Operand>, NodeError> {
    let shape = b.shape(x);
    let (axis, half) = (shape.len() - 2, own.length / 2);
    let pairs = b.reshape(x, [&shape[..axis], &[half, 2]].concat())?;
    let parts = parts_of(b, pairs)?;
    let halves = factored(b, parts, &mut Costs::default())?;
    let (mut forward, mut backward) = (halves, halves);
    for (forward, backward) in forward.iter_mut().zip(&mut backward) {
        let first = b.narrow(*forward, axis, 0, 1)?;
        *forward = b.concat(&[*forward, first], axis)?;
        *backward = reversed(b, *forward, half, half + 1)?;
    }
    let even = [b.add(forward[0], backward[0])?, b.subtract(forward[1], backward[1])?];
    // What is turned: -i times the difference.
    let odd = [b.add(forward[1], backward[1])?, b.subtract(backward[0], forward[0])?];
    let mut results = Vec::with_capacity(2);
    let dtype = b.dtype(x);
    let mut circle = |part: usize| {
        matrix(b, dtype, [1, half + 1], |_, k| on_circle(k, own.length)[part] / 2.0)
            .and_then(|row| b.reshape(row, vec![half + 1]))
    };
    let circle = [circle(0)?, circle(1)?];
    for (even, odd) in even.into_iter().zip(turn(b, odd, circle)?) {
        let even = b.with_scalar(B::Multiply, even, 0.5)?;
        results.push(b.add(even, odd)?);
    }
    if !own.onesided {
        // The other half is conjugate.
        let real = reversed(b, results[0], half - 1, half - 1)?;
        let imaginary = reversed(b, results[1], half - 1, half - 1)?;
        let imaginary = b.unary(U::Negate, imaginary)?;
        for (part, other) in results.iter_mut().zip([real, imaginary]) {
            *part = b.concat(&[*part, other], axis)?;
        }
    }
    Ok(results)
}

/// So many elements of the last axis from a place on, backwards.
fn reversed(b: &mut Builder, x: Operand, from: usize, extent: usize) -> Step {
    let mut extents = b.shape(x);
    let last = extents.len() - 1;
    let (mut starts, mut steps) = (vec![0; extents.len()], vec![1; extents.len()]);
    (starts[last], steps[last], extents[last]) = (from, -1, extent);
    b.apply(Slice { starts, steps, extents }, &[x])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::ImportOptions;
    use hone_ops::evaluate;
    use hone_types::TensorType;

    /// By its definition.
    fn expected(x: &[f64], own: Transform) -> Vec<f64> {
        let (length, parts) = (own.length, own.parts);
        let element = |n: usize| [x[parts * n], if parts == 2 { x[2 * n + 1] } else { 0.0 }];
        let sign = if own.inverse { 1.0 } else { -1.0 };
        let scale = if own.inverse { 1.0 / length as f64 } else { 1.0 };
        let made = |k: usize| {
            let terms = (0..length).map(|n| {
                let ([real, imaginary], [cosine, sine]) = (element(n), on_circle(n * k, length));
                let sine = sign * sine;
                [real * cosine - imaginary * sine, real * sine + imaginary * cosine]
            });
            let sum = terms.fold([0.0, 0.0], |sum, term| [sum[0] + term[0], sum[1] + term[1]]);
            sum.map(|part| scale * part)
        };
        (0..own.made()).flat_map(made).collect()
    }

    fn check(own: Transform) {
        let Transform { length, parts, inverse, onesided } = own;
        let mut builder = Builder::new(&ImportOptions::default());
        let shape = [2, length, parts];
        let x = builder.add_input("x", TensorType::new(DataType::F64, shape));
        let y = transform(&mut builder, x, length, inverse, onesided).unwrap();
        builder.add_output("y", y);
        let (graph, _) = builder.finish();
        let row = length * parts;
        let values: Vec<f64> = (0..2 * row).map(|n| ((n * n + 3 * n) % 37) as f64 - 18.0).collect();
        let input = Tensor::from_elements(shape, &values).unwrap();
        let found = evaluate(&graph, &[input]).unwrap()[0].to_f64();
        let rows = values.chunks_exact(row).flat_map(|row| expected(row, own));
        let differs = found.iter().zip(rows).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(found.len() == 4 * own.made() && differs < 1e-9, "{length}: {differs}");
    }

    #[test]
    fn transforms_are_what_their_definition_says() {
        // By the matrix, by two factors, by three, of lengths with a large prime factor and of odd ones.
        for length in [6, 240, 254, 1155, 2048] {
            for (parts, inverse, onesided) in [
                (1, false, true),
                (1, false, false),
                (2, false, false),
                (2, true, false),
                (1, true, false),
            ] {
                check(Transform { length, parts, inverse, onesided });
            }
        }
    }

    #[test]
    fn forms_follow_the_work() {
        let form = |length, parts| {
            let own = Transform { length, parts, inverse: false, onesided: parts == 1 };
            own.form(DataType::F32)
        };
        // The last one has a factor whose matrix would be too large.
        assert_eq!([form(64, 1), form(32, 2), form(8191, 2), form(2 * 8191, 2)], [Form::Matrix; 4]);
        assert_eq!([form(512, 1), form(400, 1)], [Form::Halved; 2]);
        assert_eq!([form(1024, 2), form(2025, 1)], [Form::Complex; 2]);
    }
}
