//! The largest or smallest elements of lines.

use crate::express::input;
use crate::number::{Number, with_number};
use crate::operator::{FusionClass, Graph, OpError, Operator, named, required, required_value};
use crate::recurrent_nodes::Nodes;
use crate::shape::{around, bounded, check_axis, output_types};
use crate::top_k_nodes::{SHORT, divide, is_divided};
use hone_graph::{InferError, ValueId};
use hone_tensor::{BinaryOp, BufferId, Builder, Combiner, Expr, UnaryOp};
use hone_types::{DataType, Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// The `k` largest or smallest elements along an axis, the most extreme first, and their indices
/// (`i64`). Of equal elements the one with the lower index comes first; what is not a number counts as larger
/// than every number.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TopK {
    /// Number of elements.
    pub k: usize,
    /// The axis.
    pub axis: usize,
    /// Whether the largest are wanted, else the smallest.
    pub largest: bool,
    /// Whether the runtime computes it itself, and not a kernel.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_runtime: bool,
}

impl TopK {
    /// Name in text forms.
    pub const NAME: &'static str = "top_k";

    /// The first `k` elements along `axis`.
    pub fn new(k: usize, axis: usize, largest: bool) -> Self {
        Self { k, axis, largest, by_runtime: false }
    }

    /// The same, computed by the runtime where that is faster than a kernel on a processor for lines of `extent`
    /// elements: where it takes other ways for other data, and more of a longer line are wanted than are
    /// found one after another or by comparing all with all.
    pub fn on_processors(&self, extent: usize) -> Self {
        let by_runtime = self.k > ROUNDS && extent > SHORT && extent <= LONGEST;
        Self { by_runtime, ..self.clone() }
    }

    /// The places of the elements wanted of a line.
    fn places<N: Number>(&self, line: &[N]) -> Vec<usize> {
        let mut places: Vec<usize> = (0..line.len()).collect();
        let order = |a: &usize, b: &usize| {
            let nan = |own: &N| own.partial_cmp(own).is_none();
            let order = line[*a].partial_cmp(&line[*b]);
            let order = order.unwrap_or_else(|| nan(&line[*a]).cmp(&nan(&line[*b])));
            if self.largest { order.reverse() } else { order }
        };
        places.sort_by(order);
        places.truncate(self.k);
        places
    }
}

/// Most elements that are found one after another; more are found by counting ranks.
const ROUNDS: usize = 8;

/// Longest lines that the runtime takes.
const LONGEST: usize = i32::MAX as usize;

impl TopK {
    /// The first element of each line, the first of those after it, and so on.
    fn rounds(&self, builder: &mut Builder, x: BufferId, own: &TensorType) -> Vec<BufferId> {
        let (axis, extent) = (self.axis, own.shape[self.axis]);
        let mut lines = own.shape.clone();
        lines.remove(axis);
        let with = |line: &[Expr], place: &Expr| {
            let mut read = line.to_vec();
            read.insert(axis, place.clone());
            Expr::Load(x, read)
        };
        let combiner = if self.largest { Combiner::Maximum } else { Combiner::Minimum };
        let none = combiner.identity(own.dtype);
        let last = Expr::Integer(extent as i64 - 1);
        // The minimum of what holds no number is none, though all numbers come before it.
        let skips_nan = own.dtype.is_float() && !self.largest;
        let mut found: Vec<(BufferId, BufferId)> = Vec::new();
        for _ in 0..self.k {
            let before = found.last().copied();
            // Whether an element comes after the last one found.
            let after = |line: &[Expr], place: &Expr| {
                let (value, at) = before?;
                let (value, at) = (Expr::Load(value, line.to_vec()), Expr::Load(at, line.to_vec()));
                let x = with(line, place);
                let follows = match self.largest {
                    true => less(&x, &value, own.dtype),
                    false => less(&value, &x, own.dtype),
                };
                let later = same(&x, &value, own.dtype).and(at.less(place.clone()));
                Some(follows.binary(BinaryOp::Or, later))
            };
            let values = TensorType::new(own.dtype, lines.clone());
            let value = builder.reduce("value", &values, &[extent], combiner, |line, by| {
                let x = with(line, &by[0]);
                let chosen = [after(line, &by[0]), skips_nan.then(|| is_number(&x))];
                match chosen.into_iter().flatten().reduce(Expr::and) {
                    Some(chosen) => chosen.select(x, none.clone()),
                    None => x,
                }
            });
            let places = TensorType::new(DataType::I64, lines.clone());
            let place = Combiner::Minimum;
            let place = builder.reduce("place", &places, &[extent], place, |line, by| {
                let (x, value) = (with(line, &by[0]), Expr::Load(value, line.to_vec()));
                let at = |is_it: Expr, place: Expr, other: Expr| {
                    let after = after(line, &by[0]);
                    after.into_iter().fold(is_it, Expr::and).select(place, other)
                };
                match skips_nan {
                    false => at(same(&x, &value, own.dtype), by[0].clone(), last.clone()),
                    // What is no number comes behind the whole line of numbers.
                    true => {
                        let nan = x.clone().unary(UnaryOp::IsNan);
                        let behind = at(nan, by[0].clone() + extent, last.clone() + extent);
                        at(x.equal(value), by[0].clone(), behind)
                    }
                }
            });
            if !skips_nan {
                found.push((value, place));
                continue;
            }
            let place = builder.map("within", &places, |line| {
                let place = Expr::Load(place, line.to_vec());
                let is_number = place.clone().less(Expr::Integer(extent as i64));
                is_number.select(place.clone(), place + Expr::Integer(-(extent as i64)))
            });
            let value = builder.map("element", &values, |line| {
                let place = Expr::Load(place, line.to_vec());
                // Inside already; bounded, so that no result of comparisons leads outside.
                with(line, &place.maximum(0.into()).minimum(last.clone()))
            });
            found.push((value, place));
        }
        let mut shape = own.shape.clone();
        shape[axis] = self.k;
        let mut gather = |name: &str, dtype: DataType, of: &dyn Fn(usize) -> BufferId| {
            builder.map(name, &TensorType::new(dtype, shape.clone()), |point| {
                let mut line = point.to_vec();
                let rank = line.remove(axis);
                let one = |round: usize| Expr::Load(of(round), line.clone());
                (0..self.k - 1).rev().fold(one(self.k - 1), |rest, round| {
                    rank.clone().equal(round.into()).select(one(round), rest)
                })
            })
        };
        let top = gather("top", own.dtype, &|round| found[round].0);
        vec![top, gather("places", DataType::I64, &|round| found[round].1)]
    }
}

/// Whether `a` is below `b`, where what is not a number is above every number.
fn less(a: &Expr, b: &Expr, dtype: DataType) -> Expr {
    let is_less = a.clone().less(b.clone());
    match dtype.is_float() {
        false => is_less,
        true => is_less.binary(BinaryOp::Or, b.clone().unary(UnaryOp::IsNan).and(is_number(a))),
    }
}

/// Whether neither of `a` and `b` is below the other.
fn same(a: &Expr, b: &Expr, dtype: DataType) -> Expr {
    let is_equal = a.clone().equal(b.clone());
    let nan = |own: &Expr| own.clone().unary(UnaryOp::IsNan);
    match dtype.is_float() {
        false => is_equal,
        true => is_equal.binary(BinaryOp::Or, nan(a).and(nan(b))),
    }
}

fn is_number(own: &Expr) -> Expr {
    own.clone().unary(UnaryOp::IsNan).unary(UnaryOp::Not)
}

impl Operator for TopK {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let input = required(Self::NAME, inputs, 0)?;
        check_axis(input, self.axis)?;
        if self.k > input.shape[self.axis] {
            let (k, axis) = (self.k, self.axis);
            return Err(InferError::new(format!(
                "{input} has fewer than {k} places on axis {axis}"
            )));
        }
        let mut shape = input.shape.clone();
        shape[self.axis] = self.k;
        Ok(vec![bounded(input.dtype, shape.clone())?, bounded(DataType::I64, shape)?])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::Opaque
    }

    fn is_compiled(&self) -> bool {
        !self.by_runtime
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let input = required(Self::NAME, inputs, 0)?;
        let outputs = output_types(self, inputs)?;
        let (outer, extent, inner) = around(input.shape(), self.axis);
        let mut indices = vec![0_i64; outputs[1].elements()];
        let top = with_number!(input.dtype(), Own => {
            let values = Own::read(input);
            let mut top = vec![Own::ZERO; indices.len()];
            for line in 0..outer * inner {
                let (slice, rest) = (line / inner, line % inner);
                let own: Vec<Own> = (0..extent)
                    .map(|step| values[(slice * extent + step) * inner + rest])
                    .collect();
                for (rank, step) in self.places(&own).into_iter().enumerate() {
                    let place = (slice * self.k + rank) * inner + rest;
                    (top[place], indices[place]) = (own[step], step as i64);
                }
            }
            Own::write(&outputs[0], &top)?
        });
        Ok(vec![top, i64::write(&outputs[1], &indices)?])
    }

    /// Long lines are divided into blocks.
    fn decompose(
        &self,
        graph: &mut Graph,
        inputs: &[Option<ValueId>],
    ) -> Result<Option<Vec<ValueId>>, InferError> {
        let x = required_value(Self::NAME, inputs, 0)?;
        let own = graph.tensor_type(x).clone();
        if self.by_runtime || !is_divided(own.shape[self.axis], self.k) {
            return Ok(None);
        }
        let mut nodes = Nodes { graph, name: Self::NAME, dtype: own.dtype };
        Ok(Some(divide(&mut nodes, x, self)?.to_vec()))
    }

    /// Few elements are found one after another. For more, every element's rank is counted, and the element
    /// of each rank is then found.
    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let x = input(inputs, 0)?;
        let own = builder.tensor_type(x);
        let (axis, extent) = (self.axis, own.shape[self.axis]);
        let mut shape = own.shape.clone();
        shape[axis] = self.k;
        if extent == 0 || self.k == 0 {
            let value = builder.map("top", &TensorType::new(own.dtype, shape.clone()), |_| {
                Expr::Constant(0.0, own.dtype)
            });
            let places = TensorType::new(DataType::I64, shape);
            return Some(vec![value, builder.map("places", &places, |_| Expr::Integer(0))]);
        }
        if self.k <= ROUNDS && self.k < extent {
            return Some(self.rounds(builder, x, &own));
        }
        let at = |point: &[Expr], place: Expr| {
            let mut read = point.to_vec();
            read[axis] = place;
            read
        };
        // Extents of compared lines fit 32 bits by far: their squares are counted.
        let ranks = TensorType::new(DataType::I32, own.shape.clone());
        let ranks = builder.reduce("rank", &ranks, &[extent], Combiner::Sum, |point, by| {
            let value = Expr::Load(x, point.to_vec());
            let other = Expr::Load(x, at(point, by[0].clone()));
            let exceeds = match self.largest {
                true => less(&value, &other, own.dtype),
                false => less(&other, &value, own.dtype),
            };
            let earlier = same(&other, &value, own.dtype);
            let earlier = earlier.and(by[0].clone().less(point[axis].clone()));
            let precedes = exceeds.binary(BinaryOp::Or, earlier);
            let number = |value: f64| Expr::Constant(value, DataType::I32);
            precedes.select(number(1.0), number(0.0))
        });
        let found = TensorType::new(DataType::I32, shape.clone());
        let found = builder.reduce("found", &found, &[extent], Combiner::Sum, |point, by| {
            let rank = Expr::Load(ranks, at(point, by[0].clone()));
            let is_it = rank.equal(point[axis].clone().cast(DataType::I32));
            is_it.select(by[0].clone().cast(DataType::I32), Expr::Constant(0.0, DataType::I32))
        });
        let places = TensorType::new(DataType::I64, shape.clone());
        let places = builder
            .map("places", &places, |point| Expr::Load(found, point.to_vec()).cast(DataType::I64));
        let top = builder.map("top", &TensorType::new(own.dtype, shape), |point| {
            // Inside already; bounded, so that no result of comparisons leads outside.
            let last = Expr::Integer(extent as i64 - 1);
            let place = Expr::Load(places, point.to_vec()).maximum(0.into()).minimum(last);
            Expr::Load(x, at(point, place))
        });
        Some(vec![top, places])
    }
}
