//! Scaled dot-product attention (Vaswani et al., 2017, section 3.2.1) as one operator.

use crate::attention_tensors::{only, part_of, repeated, without_empty_rows};
use crate::binary::{BinaryFunction, broadcast_indices};
use crate::express::{constant, converted, input, load_wide, only_output, reduce_in, wide};
use crate::matmul::MatMul;
use crate::operator::{FusionClass, OpError, Operator, named, required};
use crate::shape::{bounded, check_float};
use crate::{Binary, Cast, Select, Softmax, Transpose, Unary, UnaryFunction};
use hone_graph::InferError;
use hone_tensor::{BufferId, Builder, Combiner, Expr, UnaryOp};
use hone_types::{DataType, Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// `softmax(steps(scale * Q K^T)) V`: for each query the mean of the values, weighted by the softmax over
/// the keys of what the query's scores are after `steps`.
///
/// Inputs: query `[batch.., queries, size]`, key `[batch.., keys, size]`, value `[batch.., keys,
/// width]`, then one operand for each step that takes one, `[batch.., keys, queries]`, where an axis of
/// one element repeats. All have one rank. A batch extent of key and value divides the query's: so many
/// neighbouring queries' heads share a key's head. The result is `[batch.., queries, width]`.
///
/// The axes of query, key, value and result may lie in another order: axis `i` of the shapes above is
/// axis `query[i]` of the operand, and so on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attention {
    /// Place in the query of each axis of `[batch.., queries, size]`.
    pub query: Vec<usize>,
    /// Place in the key of each axis of `[batch.., keys, size]`.
    pub key: Vec<usize>,
    /// Place in the value of each axis of `[batch.., keys, width]`.
    pub value: Vec<usize>,
    /// Place in the result of each axis of `[batch.., queries, width]`.
    pub output: Vec<usize>,
    /// What every score is multiplied with.
    pub scale: f64,
    /// What happens to the scores before the softmax, in order.
    pub steps: Vec<ScoreStep>,
    /// What a query gives that sees no key: one whose scores are all negative infinity.
    pub empty_rows: EmptyRows,
    /// The type of fewer bits that weights are rounded to before they are multiplied with values: that of the
    /// instruction which multiplies them; none without it.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "crate::serde_forms::some_data_type_name"
    )]
    pub rounded: Option<DataType>,
    /// The queries that are asked, and the keys that are looked at; all without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<AttentionPart>,
}

/// Neighbouring queries, and the keys that they may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttentionPart {
    /// The first query.
    pub query: usize,
    /// Number of queries.
    pub queries: usize,
    /// The first key.
    pub key: usize,
    /// Number of keys.
    pub keys: usize,
}

/// An element-wise change of scores.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScoreStep {
    /// Multiplies with a number.
    Multiply(f64),
    /// Hyperbolic tangent.
    Tanh,
    /// Adds the next operand, of the query's element type.
    Add,
    /// Keeps a score where the next operand, of truth values, holds, and puts `otherwise` elsewhere.
    KeepWhere {
        /// What stands where the operand does not hold.
        #[serde(with = "crate::serde_forms::any_number")]
        otherwise: f64,
    },
    /// The other way round: puts `instead` where the next operand, of truth values, holds.
    ReplaceWhere {
        /// What stands where the operand holds.
        #[serde(with = "crate::serde_forms::any_number")]
        instead: f64,
    },
}

impl ScoreStep {
    /// Whether it takes an operand.
    pub fn has_operand(&self) -> bool {
        matches!(self, Self::Add | Self::KeepWhere { .. } | Self::ReplaceWhere { .. })
    }
}

/// What queries give whose softmax is not a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EmptyRows {
    /// NaN, as the softmax gives.
    NotNumbers,
    /// Zeros, where all scores are negative infinity.
    Zero,
    /// Zeros, wherever the softmax is not a number.
    ZeroWhereNan,
}

/// Extents of the operands.
struct Extents {
    batch: Vec<usize>,
    /// The queries and keys that are computed with.
    part: AttentionPart,
    /// All queries and all keys.
    queries: usize,
    keys: usize,
    size: usize,
    width: usize,
}

impl Attention {
    /// Name in text forms.
    pub const NAME: &'static str = "attention";

    fn extents(&self, inputs: &[Option<&TensorType>]) -> Result<Extents, InferError> {
        let query = required(Self::NAME, inputs, 0)?;
        let (key, value) = (required(Self::NAME, inputs, 1)?, required(Self::NAME, inputs, 2)?);
        let refuse =
            || InferError::new(format!("operands {query}, {key} and {value} do not match"));
        let operands = [(query, &self.query), (key, &self.key), (value, &self.value)];
        let mut shapes = Vec::new();
        for (operand, places) in operands {
            check_float(operand)?;
            let same = operand.dtype == query.dtype && operand.rank() == query.rank();
            if !same || !is_permutation(places, operand.rank()) {
                return Err(refuse());
            }
            shapes.push(places.iter().map(|place| operand.shape[*place]).collect::<Vec<_>>());
        }
        let [q, k, v] = &shapes[..] else { return Err(refuse()) };
        let ([batch @ .., queries, size], [key_batch @ .., keys, key_size]) = (&q[..], &k[..])
        else {
            return Err(refuse());
        };
        let [value_batch @ .., value_keys, width] = &v[..] else { return Err(refuse()) };
        let shares = |own: &[usize]| {
            own.iter().zip(batch).all(|(own, all)| *own > 0 && all.is_multiple_of(*own))
        };
        let fits = size == key_size
            && keys == value_keys
            && shares(key_batch)
            && shares(value_batch)
            && is_permutation(&self.output, q.len());
        if !fits {
            return Err(refuse());
        }
        let (batch, queries, keys) = (batch.to_vec(), *queries, *keys);
        let part = self.part.unwrap_or(AttentionPart { query: 0, queries, key: 0, keys });
        let inside = |first: usize, count: usize, all: usize| {
            first.checked_add(count).is_some_and(|end| end <= all)
        };
        if !inside(part.query, part.queries, queries) || !inside(part.key, part.keys, keys) {
            return Err(InferError::new(format!(
                "{queries} queries and {keys} keys lack {part:?}"
            )));
        }
        Ok(Extents { batch, part, queries, keys, size: *size, width: *width })
    }

    fn check_steps(
        &self,
        inputs: &[Option<&TensorType>],
        extents: &Extents,
    ) -> Result<(), InferError> {
        let scores = extents.all_scores();
        let mut place = 3;
        for step in self.steps.iter().filter(|step| step.has_operand()) {
            let operand = required(Self::NAME, inputs, place)?;
            place += 1;
            let dtype = match step {
                ScoreStep::Add => required(Self::NAME, inputs, 0)?.dtype,
                _ => DataType::Bool,
            };
            let mut pairs = operand.shape.iter().zip(&scores);
            let fits = operand.dtype == dtype
                && operand.rank() == scores.len()
                && pairs.all(|(own, all)| *own == 1 || own == all);
            if !fits {
                return Err(InferError::new(format!("operand {operand} is none for {scores:?}")));
            }
        }
        match inputs.get(place) {
            None => Ok(()),
            Some(_) => Err(InferError::new("there are more operands than steps take")),
        }
    }

    /// Weights as they are multiplied with values.
    fn rounded_weights(&self, weights: Tensor) -> Result<Tensor, OpError> {
        let Some(narrow) = self.rounded else { return Ok(weights) };
        let to = weights.dtype();
        let rounded = only(Cast { to: narrow }.reference(&[Some(&weights)]))?;
        only(Cast { to }.reference(&[Some(&rounded)]))
    }

    /// What a step makes of a score; `operand` reads the next operand.
    fn step(step: &ScoreStep, score: Expr, dtype: DataType, operand: Option<Expr>) -> Option<Expr> {
        Some(match step {
            ScoreStep::Multiply(factor) => score * constant(*factor, dtype),
            ScoreStep::Tanh => score.unary(UnaryOp::Tanh),
            ScoreStep::Add => score + operand?,
            ScoreStep::KeepWhere { otherwise } => {
                operand?.select(score, constant(*otherwise, dtype))
            }
            ScoreStep::ReplaceWhere { instead } => {
                operand?.select(constant(*instead, dtype), score)
            }
        })
    }
}

impl Extents {
    /// Shape of the scores as they are computed: queries are neighbours.
    fn scores(&self) -> Vec<usize> {
        [&self.batch[..], &[self.part.keys, self.part.queries]].concat()
    }

    /// The same of all queries and keys.
    fn all_scores(&self) -> Vec<usize> {
        [&self.batch[..], &[self.keys, self.queries]].concat()
    }

    fn of_batch(&self, last: &[usize]) -> Vec<usize> {
        [&self.batch[..], last].concat()
    }
}

/// An index counted from behind so many others.
fn behind(first: usize, index: &Expr) -> Expr {
    if first == 0 { index.clone() } else { index.clone() + first }
}

fn is_permutation(places: &[usize], rank: usize) -> bool {
    places.len() == rank && (0..rank).all(|axis| places.contains(&axis))
}

/// Indices of an operand whose axis `places[i]` is indexed by `logical[i]`.
fn placed(places: &[usize], logical: Vec<Expr>) -> Vec<Expr> {
    let mut physical = vec![Expr::Integer(0); logical.len()];
    places.iter().zip(logical).for_each(|(place, index)| physical[*place] = index);
    physical
}

/// A shape in the order of its logical axes.
fn logical(places: &[usize], shape: &[usize]) -> Vec<usize> {
    places.iter().map(|place| shape[*place]).collect()
}

/// The batch indices of an operand of shape `own` that so many of `all`'s share.
fn shared(point: &[Expr], own: &[usize], all: &[usize]) -> Vec<Expr> {
    let extents = own.iter().zip(all);
    let indices = point.iter().zip(extents).map(|(index, (own, all))| match all / own {
        1 => index.clone(),
        _ if *own == 1 => Expr::Integer(0),
        times => index.clone().floor_divide(times.into()),
    });
    indices.collect()
}

impl Operator for Attention {
    named!();

    fn infer(&self, inputs: &[Option<&TensorType>]) -> Result<Vec<TensorType>, InferError> {
        let extents = self.extents(inputs)?;
        let query = required(Self::NAME, inputs, 0)?;
        self.check_steps(inputs, &extents)?;
        bounded(query.dtype, extents.scores())?;
        let plain = extents.of_batch(&[extents.part.queries, extents.width]);
        let mut shape = vec![0; plain.len()];
        self.output.iter().zip(plain).for_each(|(place, extent)| shape[*place] = extent);
        Ok(vec![bounded(query.dtype, shape)?])
    }

    fn fusion_class(&self) -> FusionClass {
        FusionClass::ComplexOutFusable
    }

    fn reference(&self, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, OpError> {
        let types: Vec<_> = inputs.iter().map(|own| own.map(Tensor::tensor_type)).collect();
        let extents = self.extents(&types)?;
        let turned = |tensor: &Tensor, permutation: &[usize]| {
            only(Transpose { permutation: permutation.to_vec() }.reference(&[Some(tensor)]))
        };
        let operand = |place: usize, places: &[usize]| -> Result<Tensor, OpError> {
            let plain = turned(required(Self::NAME, inputs, place)?, places)?;
            repeated(&plain, &extents.batch)
        };
        let rank = extents.batch.len() + 2;
        let part = extents.part;
        let (queries, keys) = ((part.query, part.queries), (part.key, part.keys));
        let mut swapped: Vec<usize> = (0..rank).collect();
        swapped.swap(rank - 2, rank - 1);
        let key = part_of(&operand(1, &self.key)?, rank - 2, keys)?;
        let key = turned(&key, &swapped)?;
        let query = part_of(&operand(0, &self.query)?, rank - 2, queries)?;
        let dtype = query.dtype();
        let mut scores = only(MatMul {}.reference(&[Some(&query), Some(&key)]))?;
        let number = |value: f64| Ok::<_, OpError>(Tensor::from_f64(dtype, [], &[value])?);
        let binary = |function, left: &Tensor, right: &Tensor| {
            only(Binary { function }.reference(&[Some(left), Some(right)]))
        };
        scores = binary(BinaryFunction::Multiply, &scores, &number(self.scale)?)?;
        let mut place = 3;
        for step in &self.steps {
            let mut next = || {
                place += 1;
                let own = part_of(required(Self::NAME, inputs, place - 1)?, rank - 2, keys)?;
                turned(&part_of(&own, rank - 1, queries)?, &swapped)
            };
            scores = match step {
                ScoreStep::Multiply(by) => {
                    binary(BinaryFunction::Multiply, &scores, &number(*by)?)?
                }
                ScoreStep::Tanh => {
                    only(Unary::new(UnaryFunction::Tanh).reference(&[Some(&scores)]))?
                }
                ScoreStep::Add => binary(BinaryFunction::Add, &scores, &next()?)?,
                ScoreStep::KeepWhere { otherwise } => {
                    let operands = [&next()?, &scores, &number(*otherwise)?];
                    only(Select {}.reference(&operands.map(Some)))?
                }
                ScoreStep::ReplaceWhere { instead } => {
                    let operands = [&next()?, &number(*instead)?, &scores];
                    only(Select {}.reference(&operands.map(Some)))?
                }
            };
        }
        let softmax = Softmax { axis: rank - 1, log: false };
        let weights = only(softmax.reference(&[Some(&scores)]))?;
        let weights = without_empty_rows(self.empty_rows, &weights, &scores)?;
        let weights = self.rounded_weights(weights)?;
        let value = part_of(&operand(2, &self.value)?, rank - 2, keys)?;
        let result = only(MatMul {}.reference(&[Some(&weights), Some(&value)]))?;
        let mut back = vec![0; rank];
        self.output.iter().enumerate().for_each(|(axis, place)| back[*place] = axis);
        Ok(vec![turned(&result, &back)?])
    }

    fn expression(
        &self,
        builder: &mut Builder,
        inputs: &[Option<BufferId>],
    ) -> Option<Vec<BufferId>> {
        let (query, key, value) = (input(inputs, 0)?, input(inputs, 1)?, input(inputs, 2)?);
        let output = only_output(self, builder, inputs)?;
        let types = [query, key, value].map(|own| builder.tensor_type(own));
        let extents = self.extents(&types.each_ref().map(Some)).ok()?;
        let (narrow, dtype, batch) = (output.dtype, wide(output.dtype), extents.batch.len());
        let typed = |shape: &[usize]| TensorType::new(dtype, shape);
        let (scores_type, rows) =
            (typed(&extents.scores()), extents.of_batch(&[extents.part.queries]));
        let part = extents.part;
        // Scores have queries as neighbours: then every operand but the queries is read as it lies.
        let turned = typed(&extents.of_batch(&[extents.size, extents.part.queries]));
        let queries = builder.map("queries", &turned, |point| {
            let (outer, last) = point.split_at(batch);
            let read = [outer, &[behind(part.query, &last[1]), last[0].clone()]].concat();
            let element = load_wide(query, placed(&self.query, read), narrow);
            element * constant(self.scale, dtype)
        });
        let key_shape = logical(&self.key, &types[1].shape);
        let shape = extents.scores();
        let scores = reduce_in(
            builder,
            "scores",
            dtype,
            &shape,
            &[extents.size],
            Combiner::Sum,
            |at, by| {
                let left = [&at[..batch], by, &at[batch + 1..]].concat();
                let mut right = shared(&at[..batch], &key_shape[..batch], &extents.batch);
                right.extend([behind(part.key, &at[batch]), by[0].clone()]);
                let key = load_wide(key, placed(&self.key, right), narrow);
                Expr::Load(queries, left) * key
            },
        );
        let operands: Option<Vec<BufferId>> =
            (3..inputs.len()).map(|own| input(inputs, own)).collect();
        let mut operands = operands?.into_iter();
        let mut steps = Vec::new();
        for step in &self.steps {
            let operand = match step.has_operand() {
                true => operands.next().map(|own| (own, builder.tensor_type(own))),
                false => None,
            };
            steps.push((step, operand));
        }
        let mut complete = true;
        let masked = builder.map("masked", &scores_type, |point| {
            let mut score = Expr::Load(scores, point.to_vec());
            let mut place = point[..batch].to_vec();
            place.extend([behind(part.key, &point[batch]), behind(part.query, &point[batch + 1])]);
            for (step, operand) in &steps {
                let read = operand.as_ref().map(|(own, own_type)| {
                    load_wide(*own, broadcast_indices(&place, &own_type.shape), own_type.dtype)
                });
                match Self::step(step, score.clone(), dtype, read) {
                    Some(changed) => score = changed,
                    None => complete = false,
                }
            }
            score
        });
        if !complete {
            return None;
        }
        let row = |point: &[Expr]| [&point[..batch], &point[batch + 1..]].concat();
        let along = |at: &[Expr], by: &[Expr]| [&at[..batch], by, &at[batch..]].concat();
        let keys = [extents.part.keys];
        let largest =
            reduce_in(builder, "maximum", dtype, &rows, &keys, Combiner::Maximum, |at, by| {
                Expr::Load(masked, along(at, by))
            });
        let powers = builder.map("exp", &scores_type, |point| {
            let shifted = Expr::Load(masked, point.to_vec()) - Expr::Load(largest, row(point));
            shifted.unary(UnaryOp::Exp)
        });
        let sums = reduce_in(builder, "sum", dtype, &rows, &keys, Combiner::Sum, |at, by| {
            Expr::Load(powers, along(at, by))
        });
        let finish = builder.map("finish", &typed(&rows), |at| {
            Expr::Constant(1.0, dtype) / Expr::Load(sums, at.to_vec())
        });
        let value_shape = logical(&self.value, &types[2].shape);
        let products = extents.of_batch(&[extents.part.queries, extents.width]);
        let products =
            reduce_in(builder, "values", dtype, &products, &keys, Combiner::Sum, |at, by| {
                let mut read = shared(&at[..batch], &value_shape[..batch], &extents.batch);
                read.extend([behind(part.key, &by[0]), at[batch + 1].clone()]);
                let weight = Expr::Load(powers, along(&at[..=batch], by));
                let weight = match self.rounded {
                    Some(narrow) => weight.cast(narrow).cast(dtype),
                    None => weight,
                };
                weight * load_wide(value, placed(&self.value, read), narrow)
            });
        Some(vec![builder.map("attention", &output, |point| {
            let point: Vec<Expr> = self.output.iter().map(|place| point[*place].clone()).collect();
            let at = |buffer: BufferId| Expr::Load(buffer, point[..=batch].to_vec());
            let mean = Expr::Load(products, point.clone()) * at(finish);
            let zero = Expr::Constant(0.0, dtype);
            let mean = match self.empty_rows {
                EmptyRows::NotNumbers => mean,
                EmptyRows::Zero => {
                    let least = Expr::Constant(f64::NEG_INFINITY, dtype);
                    at(largest).equal(least).select(zero, mean)
                }
                EmptyRows::ZeroWhereNan => at(finish).unary(UnaryOp::IsNan).select(zero, mean),
            };
            converted(mean, dtype, narrow)
        })])
    }

    fn flops(&self, inputs: &[Option<&TensorType>], _outputs: &[TensorType]) -> u64 {
        let Ok(extents) = self.extents(inputs) else { return 0 };
        let scores = extents.scores().iter().fold(1u64, |all, own| all.saturating_mul(*own as u64));
        let each = 2 * (extents.size + extents.width) as u64 + 5;
        scores.saturating_mul(each)
    }
}
