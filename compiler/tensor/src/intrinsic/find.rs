//! Whether a loop nest is the one that an intrinsic stands for: loops, expression and accesses are unified with
//! its description.

use super::{ANY, Description, Extent, Intrinsic, Term};
use crate::{
    BinaryOp, BlockBody, Combiner, Domain, Expr, Loop, Program, Realize, Statement, VarId,
};

/// A loop nest that an intrinsic computes.
#[derive(Clone, Debug)]
pub struct Match<'a> {
    /// Its loops, outermost first.
    pub loops: Vec<&'a Loop>,
    /// The block inside them.
    pub realize: &'a Realize,
    /// The load of each of the intrinsic's operands.
    pub operands: Vec<&'a Expr>,
    /// For each operand, by how many elements its access moves with each loop.
    pub steps: Vec<Vec<i64>>,
    /// By how many elements the access to the sums moves with each loop.
    pub sum_steps: Vec<i64>,
}

impl Intrinsic {
    /// The parts of the nest from `outermost` on, which may be a copy of a loop of `program`.
    ///
    /// # Errors
    /// In words, why the nest is not the one that the intrinsic stands for.
    pub fn find<'a>(self, program: &'a Program, outermost: &'a Loop) -> Result<Match<'a>, String> {
        let description = self.0;
        let (loops, realize) = nest(description, outermost)?;
        if realize.predicate.is_some() {
            return Err("the block runs under a condition".into());
        }
        let block = &program.blocks[realize.block];
        let BlockBody::Reduce { combiner: Combiner::Sum, initial: None, value } = &block.body
        else {
            return Err("the block does not continue a sum".into());
        };
        if program.buffers[block.buffer].dtype != description.result {
            return Err(format!("the sums are not of type {}", description.result));
        }
        let mut operands = vec![None; description.operands.len()];
        if !unify(program, description, &description.term, value, &mut operands) {
            return Err(format!(
                "the block does not sum what {} does: {} in {}",
                self.name(),
                print(description, &description.term),
                description.result
            ));
        }
        let operands: Vec<&Expr> = operands.into_iter().flatten().collect();
        let steps = |load: &Expr| steps(program, realize, load, &loops);
        let sums = Expr::Load(block.buffer, block.indices.clone());
        let sum_steps = steps(&sums).filter(|found| agree(description.result_steps, found));
        let Some(sum_steps) = sum_steps else {
            return Err("the sums of the lanes are not neighbours".into());
        };
        let found: Option<Vec<Vec<i64>>> = operands.iter().map(|load| steps(load)).collect();
        let found = found.filter(|found| {
            let lies = |layout: &&[&[i64]]| {
                layout.iter().zip(found).all(|(wanted, found)| agree(wanted, found))
            };
            description.layouts.iter().any(lies)
        });
        let Some(steps) = found else {
            return Err("its factors do not lie as the instruction reads them".into());
        };
        Ok(Match { loops, realize, operands, steps, sum_steps })
    }
}

/// Whether steps are those of a description.
fn agree(wanted: &[i64], found: &[i64]) -> bool {
    let same = |(wanted, found): (&i64, &i64)| {
        if *wanted == ANY { *found != 0 } else { wanted == found }
    };
    wanted.len() == found.len() && wanted.iter().zip(found).all(same)
}

/// The loops of a nest and the block inside them, where they are as many and run as often as described.
fn nest<'a>(
    description: &Description,
    outermost: &'a Loop,
) -> Result<(Vec<&'a Loop>, &'a Realize), String> {
    let mut loops = vec![outermost];
    for _ in &description.loops[1..] {
        let [Statement::Loop(inner)] = &loops[loops.len() - 1].body[..] else {
            return Err("there is not one loop inside it".into());
        };
        loops.push(inner);
    }
    let [Statement::Realize(realize)] = &loops[loops.len() - 1].body[..] else {
        return Err("there is not one block inside the loop below it".into());
    };
    for (inner, extent) in loops.iter().zip(description.loops) {
        if let Extent::Exactly(times) = extent
            && inner.extent.as_integer() != Some(*times)
        {
            let name = description.name;
            return Err(format!("the loop below it is not the {times} that {name} sums"));
        }
        match extent {
            Extent::AtMost(times) if inner.most().is_none_or(|most| most > *times) => {
                let name = description.name;
                return Err(format!("a loop of it runs more often than the {times} of {name}"));
            }
            Extent::Lanes if inner.extent.as_integer().is_none() => {
                return Err("its extent is no constant".into());
            }
            _ => {}
        }
    }
    Ok((loops, realize))
}

/// Whether `expr` is `term` with a load in place of each operand; the loads are put into `operands`.
fn unify<'a>(
    program: &Program,
    description: &Description,
    term: &Term,
    expr: &'a Expr,
    operands: &mut [Option<&'a Expr>],
) -> bool {
    let unify = |term: &Term, expr: &'a Expr, operands: &mut [Option<&'a Expr>]| {
        unify(program, description, term, expr, operands)
    };
    match (term, expr) {
        (Term::Operand(number), Expr::Load(..)) => {
            let fits = expr.dtype(program) == description.operands[*number];
            let free = operands[*number].is_none_or(|before| before == expr);
            if fits && free {
                operands[*number] = Some(expr);
            }
            fits && free
        }
        (Term::Constant(number, of), Expr::Constant(value, dtype)) => {
            number == value && of == dtype
        }
        (Term::Cast(to, term), Expr::Cast(into, expr)) => to == into && unify(term, expr, operands),
        (Term::Binary(op, left, right), Expr::Binary(found, first, second)) => {
            let before = operands.to_vec();
            if op != found {
                return false;
            }
            if unify(left, first, operands) && unify(right, second, operands) {
                return true;
            }
            operands.copy_from_slice(&before);
            let commutes = matches!(op, BinaryOp::Add | BinaryOp::Multiply);
            commutes && unify(left, second, operands) && unify(right, first, operands)
        }
        _ => false,
    }
}

/// A term in words, for refusals.
fn print(description: &Description, term: &Term) -> String {
    match term {
        Term::Operand(number) => description.operands[*number].to_string(),
        Term::Constant(number, _) => number.to_string(),
        Term::Cast(_, term) => print(description, term),
        Term::Binary(op, left, right) => {
            let word = match op {
                BinaryOp::Multiply => "times",
                BinaryOp::Add => "plus",
                BinaryOp::And => "masked by",
                _ => "shifted by",
            };
            format!("{} {word} {}", print(description, left), print(description, right))
        }
    }
}

/// By how many elements a load moves when each of some loops goes one on, where that is always the same.
fn steps(program: &Program, realize: &Realize, load: &Expr, loops: &[&Loop]) -> Option<Vec<i64>> {
    let Expr::Load(buffer, indices) = load else { return None };
    let block = &program.blocks[realize.block];
    let mut domain = Domain::default();
    for inner in loops {
        domain.push(inner.var, &inner.extent);
    }
    let element = indices
        .iter()
        .zip(&program.buffers[*buffer].shape)
        .fold(Expr::Integer(0), |flat, (index, extent)| flat * *extent + index.clone());
    let element = realize.resolve(block, &element, &domain);
    loops.iter().map(|inner| step(&element, inner.var, &domain)).collect()
}

/// The constant by which an index grows with each iteration of the loop over `var`.
fn step(index: &Expr, var: VarId, domain: &Domain) -> Option<i64> {
    let next = |other: VarId| (other == var).then(|| Expr::Var(var) + 1);
    let (constant, terms) = domain.terms(&(index.substitute(&next) - index.clone()));
    terms.is_empty().then_some(constant)
}
