//! Instructions of some machines that stand for small loop nests. The nest stays in the program: it
//! is the instruction's software model, and the code on machines without the instruction.

use crate::{
    BinaryOp, BlockBody, Combiner, Domain, Expr, Loop, Program, Realize, Statement, VarId,
};
use hone_types::DataType;

/// An instruction whose every lane adds a short sum of products of narrow elements to a wide one:
/// `sum[lane] += a[k] * b[lane, k]` over `k` below [`Intrinsic::depth`], or with `a[lane, k]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Intrinsic {
    /// Pairs of bfloat16, summed in `f32` (AVX512-BF16 `vdpbf16ps`). The order of the two additions
    /// is the instruction's, and subnormal numbers count as zero.
    DotBf16,
    /// Fours of an unsigned and a signed byte, summed in `i32` (AVX-VNNI, AVX512-VNNI `vpdpbusd`).
    DotU8I8,
}

impl Intrinsic {
    /// Every intrinsic with its name in text forms.
    pub const ALL: [(Intrinsic, &'static str); 2] =
        [(Intrinsic::DotBf16, "dot_bf16"), (Intrinsic::DotU8I8, "dot_u8_i8")];

    /// The name in text forms.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(own, _)| *own == self).map_or("?", |(_, name)| name)
    }

    /// Products that each lane sums.
    pub const fn depth(self) -> i64 {
        match self {
            Intrinsic::DotBf16 => 2,
            Intrinsic::DotU8I8 => 4,
        }
    }

    /// Element types of the two factors, in the instruction's order.
    pub const fn factors(self) -> [DataType; 2] {
        match self {
            Intrinsic::DotBf16 => [DataType::BF16, DataType::BF16],
            Intrinsic::DotU8I8 => [DataType::U8, DataType::I8],
        }
    }

    /// Element type of the sums.
    pub const fn sum(self) -> DataType {
        match self {
            Intrinsic::DotBf16 => DataType::F32,
            Intrinsic::DotU8I8 => DataType::I32,
        }
    }
}

/// One step of a nest that an intrinsic computes: the loads of the two factors, the one that every
/// lane reads first.
#[derive(Clone, Copy, Debug)]
pub struct Dot<'a> {
    /// The loop over what each lane sums.
    pub depth: &'a Loop,
    /// The block.
    pub realize: &'a Realize,
    /// Read by all lanes alike.
    pub broadcast: &'a Expr,
    /// Read by each lane at its own place.
    pub streamed: &'a Expr,
}

impl Program {
    /// The parts of the nest below `lanes` that `intrinsic` is to compute.
    ///
    /// # Errors
    /// In words, why the nest is not the one that the intrinsic stands for.
    pub fn dot<'a>(&'a self, lanes: &'a Loop, intrinsic: Intrinsic) -> Result<Dot<'a>, String> {
        let [Statement::Loop(depth)] = &lanes.body[..] else {
            return Err("there is not one loop inside it".into());
        };
        let [Statement::Realize(realize)] = &depth.body[..] else {
            return Err("there is not one block inside the loop below it".into());
        };
        if depth.extent.as_integer() != Some(intrinsic.depth()) {
            let (name, needed) = (intrinsic.name(), intrinsic.depth());
            return Err(format!("the loop below it is not the {needed} that {name} sums"));
        }
        if lanes.extent.as_integer().is_none() {
            return Err("its extent is no constant".into());
        }
        if realize.predicate.is_some() {
            return Err("the block runs under a condition".into());
        }
        let block = &self.blocks[realize.block];
        let BlockBody::Reduce { combiner: Combiner::Sum, initial: None, value } = &block.body
        else {
            return Err("the block does not continue a sum".into());
        };
        if self.buffers[block.buffer].dtype != intrinsic.sum() {
            return Err(format!("the sums are not of type {}", intrinsic.sum()));
        }
        let (left, right) = self.factors(value, intrinsic)?;
        let steps = |expr| self.steps(realize, expr, lanes, depth);
        let sums = Expr::Load(block.buffer, block.indices.clone());
        if steps(&sums) != Some([1, 0]) {
            return Err("the sums of the lanes are not neighbours".into());
        }
        let (broadcast, streamed) = ([0, 1], [intrinsic.depth(), 1]);
        match (steps(left), steps(right)) {
            (Some(a), Some(b)) if a == broadcast && b == streamed => {
                Ok(Dot { depth, realize, broadcast: left, streamed: right })
            }
            (Some(a), Some(b)) if b == broadcast && a == streamed => {
                Ok(Dot { depth, realize, broadcast: right, streamed: left })
            }
            _ => Err("its factors do not lie as the instruction reads them".into()),
        }
    }

    /// The loads that a product multiplies, each widened to the type of the sums.
    fn factors<'a>(
        &self,
        value: &'a Expr,
        intrinsic: Intrinsic,
    ) -> Result<(&'a Expr, &'a Expr), String> {
        let wrong = || {
            let [a, b] = intrinsic.factors();
            format!("the block does not sum products of {a} and {b} in {}", intrinsic.sum())
        };
        let Expr::Binary(BinaryOp::Multiply, left, right) = value else { return Err(wrong()) };
        let load = |factor: &'a Expr| match factor {
            Expr::Cast(to, load) if *to == intrinsic.sum() => {
                matches!(**load, Expr::Load(..)).then_some(&**load)
            }
            _ => None,
        };
        let (left, right) = load(left).zip(load(right)).ok_or_else(wrong)?;
        let types = [left.dtype(self), right.dtype(self)];
        let [a, b] = intrinsic.factors();
        if types != [a, b] && types != [b, a] {
            return Err(wrong());
        }
        Ok((left, right))
    }

    /// By how many elements a load moves when each of two loops goes one on, where that is always
    /// the same.
    fn steps(
        &self,
        realize: &Realize,
        load: &Expr,
        lanes: &Loop,
        depth: &Loop,
    ) -> Option<[i64; 2]> {
        let Expr::Load(buffer, indices) = load else { return None };
        let block = &self.blocks[realize.block];
        let mut domain = Domain::default();
        domain.push(lanes.var, &lanes.extent);
        domain.push(depth.var, &depth.extent);
        let place = indices
            .iter()
            .zip(&self.buffers[*buffer].shape)
            .fold(Expr::Integer(0), |flat, (index, extent)| flat * *extent + index.clone());
        let place = realize.resolve(block, &place, &domain);
        Some([step(&place, lanes, &domain)?, step(&place, depth, &domain)?])
    }
}

/// The constant by which an index grows with each iteration of a loop.
fn step(index: &Expr, own: &Loop, domain: &Domain) -> Option<i64> {
    let next = |var: VarId| (var == own.var).then(|| Expr::Var(var) + 1);
    let (constant, terms) = domain.terms(&(index.substitute(&next) - index.clone()));
    terms.is_empty().then_some(constant)
}
