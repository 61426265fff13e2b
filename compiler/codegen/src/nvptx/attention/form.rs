//! Whether a program is an attention that tensor cores compute, and where its operands lie.

use crate::nvptx::product::{CHUNK, Factor};
use hone_tensor::{
    BinaryOp, Block, BlockBody, BlockId, BufferId, Combiner, Expr, IteratorKind, Program, UnaryOp,
    VarId,
};
use hone_types::DataType;

/// Lengths of a row of queries and keys, and of values, that there are tiles for, in elements.
pub const ATTENTION_LENGTHS: [usize; 3] = [32, 64, 128];

/// `result[batch.., query, width] = f(sum over keys of exp(s - largest s) * value[key, width], the sum of those powers, the
/// largest)`, where `s = masked(scale * sum of query[query, size] * key[key, size])`, and powers are rounded to the type of the
/// values before they are multiplied.
pub(super) struct Form {
    /// Type of the operands.
    pub(super) dtype: DataType,
    /// What every sum is multiplied with.
    pub(super) scale: f64,
    /// What becomes of a score, in the variables of [`Form::axes`].
    pub(super) masked: Expr,
    /// The buffers of scores, largest scores, sums of powers and sums of products.
    pub(super) scores: BufferId,
    pub(super) largest: BufferId,
    pub(super) sums: BufferId,
    pub(super) products: BufferId,
    /// The axes of the scores: the batch's, outermost first, and of keys and queries.
    pub(super) batch: Vec<Axis>,
    pub(super) key: Axis,
    pub(super) query: Axis,
    /// Length of a row of queries and keys, and of values.
    pub(super) size: usize,
    pub(super) width: usize,
    /// Queries, keys and values.
    pub(super) operands: [Operand; 3],
    /// The block that maps products to results, and which of its iterators are queries and width.
    pub(super) store: BlockId,
    pub(super) stored_query: usize,
    pub(super) stored_width: usize,
}

/// An axis of the scores.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    pub(super) var: VarId,
    pub(super) extent: usize,
    /// The iterator of the results that it is; none of keys.
    pub(super) iterator: Option<usize>,
}

/// Where an operand's rows lie, in elements: each row's elements are neighbours.
pub(super) struct Operand {
    pub(super) buffer: BufferId,
    pub(super) start: i64,
    /// Distance of neighbouring rows.
    pub(super) row: i64,
    /// The number of an axis of the batch, what it is divided by, and the distance of neighbours along that.
    pub(super) batch: Vec<(usize, i64, i64)>,
}

/// A buffer, the element that is read where all variables are 0, and for each variable what it is divided by and the distance
/// of neighbours along that.
type Lines = (BufferId, i64, Vec<(VarId, i64, i64)>);

/// The width of values: its variable in the products, its extent, and its iterator among those of the results.
type Width = (VarId, usize, usize);

/// The five blocks of an attention whose maps are inlined.
struct Blocks<'a> {
    program: &'a Program,
    scores: &'a Block,
    largest: &'a Block,
    sums: &'a Block,
    products: &'a Block,
    store: &'a Block,
}

impl Form {
    /// The form of a program whose maps were inlined into their readers; `None` where it is no such attention.
    pub(super) fn of(program: &Program) -> Option<Self> {
        let [scores, largest, sums, products, store] = program.blocks_in_order()[..] else {
            return None;
        };
        let of = |id: BlockId| &program.blocks[id];
        let blocks = Blocks {
            program,
            scores: of(scores),
            largest: of(largest),
            sums: of(sums),
            products: of(products),
            store: of(store),
        };
        blocks.form(store)
    }
}

impl Blocks<'_> {
    fn form(&self, store: BlockId) -> Option<Form> {
        let (masked, key) = self.masked()?;
        let power = self.power(reduced(self.sums, Combiner::Sum)?, self.sums, &masked)?;
        let (weight, value) = self.weighted(&masked)?;
        if power != weight.0 {
            return None;
        }
        let (scale, query_factor, key_factor) = self.scaled_factors(key)?;
        let spatial = spatial(self.scores);
        let asks = |axis: &usize| {
            let var = spatial[*axis];
            query_factor.along(var, 1) != 0 && key_factor.terms().all(|(entry, ..)| entry != var)
        };
        let query = (0..spatial.len()).rev().find(asks)?;
        let [size] = reductions(self.scores)[..] else { return None };
        let value_factor = Factor::of(self.program, value, DataType::F32)?;
        let (width, numbers) = self.stored(query)?;
        let [summed] = reductions(self.products)[..] else { return None };
        let rows = self.renamed_factor(&value_factor, summed.0, key)?;
        let factors = [&query_factor, &key_factor, &value_factor];
        let in_rows = self.in_rows(factors, [size.0, size.0, width.0], weight.1);
        let counted = self.scores.iterators.len() == spatial.len() + 1;
        let is_length = |extent| ATTENTION_LENGTHS.contains(&extent);
        if !(in_rows && counted && is_length(size.1) && is_length(width.1)) {
            return None;
        }
        let axis = |axis: usize, iterator: Option<usize>| Axis {
            var: spatial[axis],
            extent: self.scores.iterators[axis].extent,
            iterator,
        };
        let others: Vec<usize> =
            (0..spatial.len()).filter(|entry| *entry != key && *entry != query).collect();
        let number_of = |var: VarId| others.iter().position(|entry| spatial[*entry] == var);
        let operands = [
            operand(&query_factor, spatial[query], size.0, &number_of)?,
            operand(&key_factor, spatial[key], size.0, &number_of)?,
            operand_of(rows, spatial[key], &number_of)?,
        ];
        Some(Form {
            dtype: weight.1,
            scale,
            masked,
            scores: self.scores.buffer,
            largest: self.largest.buffer,
            sums: self.sums.buffer,
            products: self.products.buffer,
            batch: others.iter().map(|entry| axis(*entry, numbers[*entry])).collect(),
            key: axis(key, None),
            query: axis(query, None),
            size: size.1,
            width: width.1,
            operands,
            store,
            stored_query: numbers[query]?,
            stored_width: width.2,
        })
    }

    /// What scores are multiplied with, and the factors of their sums: queries, and keys, which alone depend on the axis `key`.
    fn scaled_factors(&self, key: usize) -> Option<(f64, Factor, Factor)> {
        let mut factors = Vec::new();
        let scale = multiplied(reduced(self.scores, Combiner::Sum)?, &mut factors)?;
        let [first, second] = factors[..] else { return None };
        let first = Factor::of(self.program, first, DataType::F32)?;
        let second = Factor::of(self.program, second, DataType::F32)?;
        let key = self.scores.iterators[key].var;
        match (first.along(key, 1), second.along(key, 1)) {
            (0, 1..) => Some((scale, first, second)),
            (1.., 0) => Some((scale, second, first)),
            _ => None,
        }
    }

    /// Whether rows of all operands lie along `columns`, are of the type `dtype` that tensor cores multiply, and are nowhere
    /// replaced by zeros.
    fn in_rows(&self, factors: [&Factor; 3], columns: [VarId; 3], dtype: DataType) -> bool {
        let fits = |(factor, column): (&Factor, VarId)| {
            factor.along(column, 1) == 1
                && factor.bounds.is_empty()
                && self.program.buffers[factor.buffer].dtype == dtype
        };
        matches!(dtype, DataType::F16 | DataType::BF16)
            && factors.into_iter().zip(columns).all(fits)
    }

    /// What the largest score is looked for in, in the variables of the scores, and which of their axes the keys are.
    fn masked(&self) -> Option<(Expr, usize)> {
        let value = reduced(self.largest, Combiner::Maximum)?;
        let [keys] = reductions(self.largest)[..] else { return None };
        let names = self.names(self.largest)?;
        let key = names.iter().position(|entry| *entry == Some(keys.0))?;
        Some((self.renamed(value, &names), key))
    }

    /// The variables of a block, by the axes of the scores that it reads with them.
    fn names(&self, block: &Block) -> Option<Vec<Option<VarId>>> {
        let loads = block.loads(self.scores.buffer);
        let first = loads.first()?;
        let alike = loads.iter().all(|entry| entry == first) && identity(self.scores);
        let name = |index: &Expr| match index {
            Expr::Var(var) => Some(Some(*var)),
            Expr::Integer(0) => Some(None),
            _ => None,
        };
        let names: Option<Vec<Option<VarId>>> = first.iter().map(name).collect();
        names.filter(|_| alike)
    }

    /// An expression of a block in the variables of the scores.
    fn renamed(&self, expr: &Expr, names: &[Option<VarId>]) -> Expr {
        let axes = spatial(self.scores);
        expr.substitute(&|var| {
            names.iter().position(|name| *name == Some(var)).map(|axis| Expr::Var(axes[axis]))
        })
    }

    /// `exp(masked - largest)`, in the variables of the scores; `None` where an expression of `block` is another one.
    fn power(&self, expr: &Expr, block: &Block, masked: &Expr) -> Option<Expr> {
        let names = self.names(block)?;
        let expr = self.renamed(expr, &names);
        let Expr::Unary(UnaryOp::Exp, difference) = &expr else { return None };
        let Expr::Binary(BinaryOp::Subtract, score, largest) = &**difference else { return None };
        let reads = matches!(&**largest, Expr::Load(buffer, _) if *buffer == self.largest.buffer);
        (**score == *masked && reads && identity(self.largest)).then_some(expr)
    }

    /// The power that a value is multiplied with, the type that it is rounded to, and the value.
    fn weighted(&self, masked: &Expr) -> Option<((Expr, DataType), &Expr)> {
        let value = reduced(self.products, Combiner::Sum)?;
        let Expr::Binary(BinaryOp::Multiply, left, right) = value else { return None };
        let rounded = |expr: &Expr| {
            let Expr::Cast(DataType::F32, inner) = expr else { return None };
            let Expr::Cast(dtype, power) = &**inner else { return None };
            Some((self.power(power, self.products, masked)?, *dtype))
        };
        match (rounded(left), rounded(right)) {
            (Some(power), _) => Some((power, right)),
            (_, Some(power)) => Some((power, left)),
            _ => None,
        }
    }

    /// The width of values, and for each
    /// axis of the scores the iterator of the results that it is; `None` where results are not read so.
    fn stored(&self, query: usize) -> Option<(Width, Vec<Option<usize>>)> {
        let names = self.names(self.products)?;
        let loads = self.store.loads(self.products.buffer);
        let first = *loads.first()?;
        let is_map = matches!(self.store.body, BlockBody::Map(_));
        let whole = is_map
            && identity(self.products)
            && identity(self.sums)
            && loads.iter().all(|entry| *entry == first);
        let number = |index: &Expr| match index {
            Expr::Var(var) => self.store.iterators.iter().position(|entry| entry.var == *var),
            _ => None,
        };
        let mut width = None;
        let mut numbers = vec![None; names.len()];
        for (axis, iterator) in spatial(self.products).into_iter().enumerate() {
            let stored = number(first.get(axis)?);
            match names.iter().position(|name| *name == Some(iterator)) {
                Some(of_scores) => numbers[of_scores] = stored,
                None => {
                    let extent = self.products.iterators[axis].extent;
                    let known = width.replace((iterator, extent, stored?));
                    known.is_none().then_some(())?;
                }
            }
        }
        let width = width?;
        // Rows of the results are read like the products, but for the width.
        let rows: Vec<&Expr> =
            first.iter().filter(|index| number(index) != Some(width.2)).collect();
        let of_rows = [self.largest.buffer, self.sums.buffer].into_iter().all(|buffer| {
            self.store.loads(buffer).iter().all(|entry| entry.iter().eq(rows.iter().copied()))
        });
        let covered = numbers.iter().flatten().count() + 1 == self.store.iterators.len();
        let has_queries = numbers.get(query).copied().flatten().is_some();
        (whole && of_rows && covered && has_queries).then_some((width, numbers))
    }

    /// The terms of the values' factor but for the width, in the variables of the scores.
    fn renamed_factor(&self, factor: &Factor, summed: VarId, key: usize) -> Option<Lines> {
        let (names, axes) = (self.names(self.products)?, spatial(self.scores));
        (names.get(key) == Some(&Some(summed))).then_some(())?;
        let renamed = |(var, divisor, step): (VarId, i64, i64)| {
            let axis = names.iter().position(|name| *name == Some(var))?;
            Some((axes[axis], divisor, step))
        };
        let of_width = |var: VarId| names.iter().all(|name| *name != Some(var));
        let terms = factor.terms().filter(|(var, ..)| !of_width(*var)).map(renamed);
        Some((factor.buffer, factor.start, terms.collect::<Option<_>>()?))
    }
}

/// Where the rows of an operand lie; `size` is the variable along a row.
fn operand(
    factor: &Factor,
    row: VarId,
    size: VarId,
    number_of: &dyn Fn(VarId) -> Option<usize>,
) -> Option<Operand> {
    let terms = factor.terms().filter(|(var, ..)| *var != size).collect();
    operand_of((factor.buffer, factor.start, terms), row, number_of)
}

fn operand_of(
    (buffer, start, terms): Lines,
    row: VarId,
    number_of: &dyn Fn(VarId) -> Option<usize>,
) -> Option<Operand> {
    let mut operand = Operand { buffer, start, row: 0, batch: Vec::new() };
    let in_chunk = CHUNK as i64 / 2;
    let mut aligned = start % in_chunk == 0;
    for (var, divisor, step) in terms {
        aligned &= step % in_chunk == 0;
        match (var == row, divisor) {
            (true, 1) => operand.row = step,
            (true, _) => return None,
            _ => operand.batch.push((number_of(var)?, divisor, step)),
        }
    }
    aligned.then_some(operand)
}

/// What a reduction combines, where it begins with what changes nothing.
fn reduced(block: &Block, wanted: Combiner) -> Option<&Expr> {
    let BlockBody::Reduce { combiner, initial: Some(initial), value } = &block.body else {
        return None;
    };
    let least = match wanted {
        Combiner::Maximum => f64::NEG_INFINITY,
        _ => 0.0,
    };
    let begins = matches!(initial, Expr::Constant(value, _) if *value == least);
    (*combiner == wanted && begins).then_some(value)
}

/// Adds the factors of a product that are no constants, and gives the product of those that are.
fn multiplied<'a>(expr: &'a Expr, factors: &mut Vec<&'a Expr>) -> Option<f64> {
    match expr {
        Expr::Constant(value, DataType::F32) => Some(f64::from(*value as f32)),
        Expr::Binary(BinaryOp::Multiply, left, right) => {
            Some(multiplied(left, factors)? * multiplied(right, factors)?)
        }
        _ => {
            factors.push(expr);
            Some(1.0)
        }
    }
}

/// The spatial variables of a block, which come first.
fn spatial(block: &Block) -> Vec<VarId> {
    let spatial = block.iterators.iter().filter(|entry| entry.kind == IteratorKind::Spatial);
    spatial.map(|entry| entry.var).collect()
}

/// The variables along which a block reduces, and their extents.
fn reductions(block: &Block) -> Vec<(VarId, usize)> {
    let reduced = block.iterators.iter().filter(|entry| entry.kind == IteratorKind::Reduction);
    reduced.map(|entry| (entry.var, entry.extent)).collect()
}

/// Whether a block writes each element at its own iterators.
fn identity(block: &Block) -> bool {
    let vars = spatial(block);
    block.indices.len() == vars.len()
        && block.indices.iter().zip(vars).all(|(index, var)| *index == Expr::Var(var))
}
