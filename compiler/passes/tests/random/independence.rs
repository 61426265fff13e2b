//! Random graphs over an open dimension, of operations that keep positions apart and of such that mix them: what is shown
//! to map over the dimension gives at any size what it gives slice by slice.

use super::{Net, whole_numbers};
use hone_graph::ValueId;
use hone_ops::{
    ArgReduce, Binary, BinaryFunction, Cast, Concat, CumulativeSum, Expand, Gather, Graph, MatMul,
    Pad, PadMode, Reduce, ReduceFunction, Reshape, Slice, Softmax, Tile, Transpose, Unary,
    UnaryFunction, evaluate,
};
use hone_passes::Independence;
use hone_types::{DataType, Random, Tensor, TensorType};

/// An extent: a number, and whether it is multiplied with the size of the dimension.
type Extent = (usize, bool);

/// A value, and its shape at every size.
#[derive(Clone)]
struct Value {
    id: ValueId,
    shape: Vec<Extent>,
}

/// A graph at one size. What is chosen does not depend on the size.
struct Sized {
    net: Net,
    size: usize,
}

impl Sized {
    fn extents(&self, shape: &[Extent]) -> Vec<usize> {
        shape.iter().map(|(each, open)| if *open { each * self.size } else { *each }).collect()
    }

    /// A constant whose elements differ, or are all the same.
    fn constant(&mut self, shape: &[Extent]) -> ValueId {
        let (shape, same) = (self.extents(shape), self.net.chance(50));
        let element = |index: usize| if same { 2.0 } else { (index * 5 % 7) as f64 - 3.0 };
        let values: Vec<f64> = (0..shape.iter().product()).map(element).collect();
        self.net.constant(DataType::F32, &shape, &values)
    }

    fn add(&mut self, left: ValueId, right: ValueId) -> ValueId {
        self.net.node(Binary::new(BinaryFunction::Add), &[left, right])
    }

    fn reshaped(&mut self, x: &Value, shape: Vec<Extent>) -> Value {
        let extents = self.extents(&shape);
        Value { id: self.net.node(Reshape { shape: extents }, &[x.id]), shape }
    }

    fn transposed(&mut self, x: &Value, permutation: Vec<usize>) -> Value {
        let shape = permutation.iter().map(|axis| x.shape[*axis]).collect();
        Value { id: self.net.node(Transpose { permutation }, &[x.id]), shape }
    }

    /// An operation that keeps the shape, along an axis or along none.
    fn changed(&mut self, x: &Value, axis: usize) -> Value {
        let extents = self.extents(&x.shape);
        let id = match self.net.between(0, 6) {
            0 => self.net.node(Unary::new(UnaryFunction::Abs), &[x.id]),
            1 => self.net.node(Softmax { axis, log: false }, &[x.id]),
            2 => {
                let (exclusive, reverse) = (self.net.chance(50), self.net.chance(50));
                let sum =
                    CumulativeSum { axis, exclusive, reverse, product: false, in_rows: false };
                self.net.node(sum, &[x.id])
            }
            3 => {
                let (mut starts, mut steps) = (vec![0; extents.len()], vec![1; extents.len()]);
                if self.net.chance(50) {
                    (starts[axis], steps[axis]) = (extents[axis] - 1, -1);
                }
                self.net.node(Slice { starts, steps, extents }, &[x.id])
            }
            4 => {
                let constant = self.constant(&x.shape[axis..]);
                self.add(x.id, constant)
            }
            5 => {
                let mut shape = x.shape.clone();
                shape[axis] = (1, false);
                let constant = self.constant(&shape);
                let spread = self.net.node(Expand { shape: extents }, &[constant]);
                self.add(spread, x.id)
            }
            _ => {
                let backwards = self.net.chance(40);
                let order = |index: usize| match backwards {
                    true => (extents[axis] - 1 - index) as f64,
                    false => index as f64,
                };
                let order: Vec<f64> = (0..extents[axis]).map(order).collect();
                let order = self.net.constant(DataType::I64, &[order.len()], &order);
                self.net.node(Gather { axis }, &[x.id, order])
            }
        };
        Value { id, shape: x.shape.clone() }
    }

    /// An operation that changes the extent of an axis.
    fn resized(&mut self, x: &Value, axis: usize) -> Value {
        let mut shape = x.shape.clone();
        let (each, open) = shape[axis];
        let rank = shape.len();
        let id = match self.net.between(0, 4) {
            0 => {
                shape[axis] = (2 * each, open);
                let mut repeats = vec![1; rank];
                repeats[axis] = 2;
                self.net.node(Tile { repeats }, &[x.id])
            }
            1 => {
                shape[axis] = (2 * each, open);
                let other = if self.net.chance(50) { x.id } else { self.constant(&x.shape) };
                self.net.node(Concat { axis }, &[x.id, other])
            }
            2 if !open => {
                shape[axis] = (each + 1, false);
                let (mut begin, end) = (vec![0; rank], vec![0; rank]);
                begin[axis] = 1;
                let pad = Pad { begin, end, mode: PadMode::Constant, value: 1.0 };
                self.net.node(pad, &[x.id])
            }
            3 => {
                shape[axis] = (1, false);
                let reduce =
                    Reduce { function: ReduceFunction::Sum, axes: vec![axis], keep_axes: true };
                self.net.node(reduce, &[x.id])
            }
            _ => {
                shape[axis] = (1, false);
                let arg = ArgReduce { maximum: true, axis, keep_axis: true, select_last: false };
                let index = self.net.node(arg, &[x.id]);
                self.net.node(Cast { to: DataType::F32 }, &[index])
            }
        };
        Value { id, shape }
    }

    /// An axis cut in two, two axes made one, or all in another order.
    fn rearranged(&mut self, x: &Value, axis: usize) -> Value {
        let mut shape = x.shape.clone();
        let (each, open) = shape[axis];
        match self.net.between(0, 2) {
            0 => {
                let divisors: Vec<usize> =
                    (1..=each).filter(|entry| each.is_multiple_of(*entry)).collect();
                let first = self.net.pick(&divisors);
                let opens_first = self.net.chance(50);
                shape[axis] = (first, open && opens_first);
                shape.insert(axis + 1, (each / first, open && !opens_first));
                self.reshaped(x, shape)
            }
            1 if axis + 1 < shape.len() && !(open && shape[axis + 1].1) => {
                let (other, other_open) = shape.remove(axis + 1);
                shape[axis] = (each * other, open || other_open);
                self.reshaped(x, shape)
            }
            _ => {
                let mut permutation: Vec<usize> = (0..shape.len()).collect();
                let other = self.net.between(0, shape.len() - 1);
                permutation.swap(axis, other);
                self.transposed(x, permutation)
            }
        }
    }

    /// A product with a constant, with an input that has no such dimension, or with itself.
    fn multiplied(&mut self, x: &Value) -> Value {
        let rank = x.shape.len();
        let last = x.shape[rank - 1];
        if rank >= 2 && self.net.chance(50) {
            let mut permutation: Vec<usize> = (0..rank).collect();
            permutation.swap(rank - 2, rank - 1);
            let transposed = self.transposed(x, permutation);
            let mut shape = x.shape.clone();
            shape[rank - 1] = shape[rank - 2];
            return Value { id: self.net.node(MatMul {}, &[x.id, transposed.id]), shape };
        }
        let other = match last.1 || self.net.chance(50) {
            true => self.constant(&[last, (2, false)]),
            false => self.net.input(DataType::F32, &[last.0, 2]),
        };
        let mut shape = x.shape.clone();
        shape[rank - 1] = (2, false);
        Value { id: self.net.node(MatMul {}, &[x.id, other]), shape }
    }

    fn step(&mut self, x: &Value) -> Value {
        let axis = self.net.between(0, x.shape.len() - 1);
        match self.net.between(0, 9) {
            0..=3 => self.changed(x, axis),
            4 => self.resized(x, axis),
            5..=7 => self.rearranged(x, axis),
            8 => self.multiplied(x),
            _ => {
                let mut permutation: Vec<usize> = (0..x.shape.len()).collect();
                permutation.reverse();
                let transposed = self.transposed(x, permutation);
                match transposed.shape == x.shape {
                    true => Value { id: self.add(x.id, transposed.id), shape: transposed.shape },
                    false => transposed,
                }
            }
        }
    }
}

/// The graph of a seed at a size; its first input alone has the dimension, along its first axis.
fn graph(seed: u64, size: usize) -> Graph {
    let mut sized = Sized { net: Net::new(5000 + seed), size };
    let shape = vec![(1, true), (sized.net.between(1, 3), false), (sized.net.between(1, 4), false)];
    let extents = sized.extents(&shape);
    let mut x = Value { id: sized.net.input(DataType::F32, &extents), shape };
    for _ in 0..sized.net.between(1, 6) {
        let next = sized.step(&x);
        // The same at every size.
        let elements: usize =
            next.shape.iter().map(|(each, open)| if *open { 7 * each } else { *each }).product();
        if elements <= 3000 {
            x = next;
        }
    }
    // The dimension is to be the outermost axis.
    if let Some(axis) = x.shape.iter().position(|(_, open)| *open) {
        let mut permutation: Vec<usize> =
            (0..x.shape.len()).filter(|entry| *entry != axis).collect();
        permutation.insert(0, axis);
        x = sized.transposed(&x, permutation);
    }
    sized.net.graph.add_output("y", x.id);
    sized.net.graph.verify().unwrap();
    sized.net.graph
}

/// Sizes beside the one that the analysis is made at.
const SIZES: [usize; 3] = [5, 2, 1];

#[test]
fn what_is_shown_to_map_over_a_dimension_does() {
    let mut shown = 0;
    for seed in 0..4000 {
        let whole = graph(seed, 7);
        let axes: Vec<Option<usize>> =
            (0..whole.inputs().len()).map(|index| (index == 0).then_some(0)).collect();
        let Ok(proof) = Independence::prove(&whole, &axes, 7) else { continue };
        let others = SIZES.map(|size| graph(seed, size));
        let all = others.iter().zip(SIZES);
        if all.into_iter().any(|(other, size)| proof.proves_at(&whole, other, size).is_err()) {
            continue;
        }
        shown += 1;
        let [many, _, single] = &others;
        let mut random = Random::new(seed);
        let types: Vec<TensorType> =
            many.inputs().iter().map(|port| many.tensor_type(port.value).clone()).collect();
        let inputs: Vec<Tensor> =
            types.iter().map(|entry| whole_numbers(&mut random, entry)).collect();
        let expected = evaluate(many, &inputs).unwrap().remove(0).to_f64();
        let (values, length) = (inputs[0].to_f64(), expected.len() / SIZES[0]);
        for position in 0..SIZES[0] {
            let each = values.len() / SIZES[0];
            let shape = single.tensor_type(single.inputs()[0].value).shape.clone();
            let slice = &values[position * each..][..each];
            let mut given = inputs.clone();
            given[0] = Tensor::from_f64(DataType::F32, shape, slice).unwrap();
            let found = evaluate(single, &given).unwrap().remove(0).to_f64();
            let expected = &expected[position * length..][..length];
            let near = |(old, new): (&f64, &f64)| (old - new).abs() <= 1e-4 * old.abs().max(1.0);
            assert!(
                found.len() == length && expected.iter().zip(&found).all(near),
                "seed {seed}, slice {position}: {expected:?} became {found:?}"
            );
        }
    }
    assert!(shown > 300, "{shown} are shown");
}
