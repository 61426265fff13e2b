//! Structure, scope of variables, ranks and element types.

use super::VerifyError;
use crate::{
    BinaryOp, Block, BlockBody, Buffer, Expr, IteratorKind, Program, Realize, Statement, UnaryOp,
    VarId,
};
use hone_types::{DataType, Id};

pub(super) fn check(program: &Program) -> Result<(), VerifyError> {
    program.buffers.iter().try_for_each(|(_, buffer)| size_fits(buffer))?;
    let mut form = Form {
        program,
        bound: vec![false; program.vars.len()],
        placed: vec![false; program.blocks.len()],
        scope: Vec::new(),
    };
    program.body.iter().try_for_each(|statement| form.statement(statement))
}

/// Element numbers and byte offsets are `i64`.
fn size_fits(buffer: &Buffer) -> Result<(), VerifyError> {
    let mut extents = buffer.shape.iter();
    let elements = extents.try_fold(1usize, |count, extent| count.checked_mul(*extent));
    let bytes = elements.and_then(|count| count.checked_mul(buffer.dtype.bytes()));
    match bytes.is_some_and(|bytes| i64::try_from(bytes).is_ok()) {
        true => Ok(()),
        false => Err(VerifyError::TooLarge { buffer: buffer.name.clone() }),
    }
}

struct Form<'a> {
    program: &'a Program,
    bound: Vec<bool>,
    placed: Vec<bool>,
    scope: Vec<VarId>,
}

impl Form<'_> {
    fn bind(&mut self, var: VarId) -> Result<(), VerifyError> {
        match self.bound.get_mut(var.index()) {
            Some(bound) if !*bound => {
                *bound = true;
                Ok(())
            }
            _ => Err(VerifyError::VarTwice { var }),
        }
    }

    fn statement(&mut self, statement: &Statement) -> Result<(), VerifyError> {
        match statement {
            Statement::Loop(own) => {
                self.in_scope(&own.extent, &[], &format!("loop {}", own.var))?;
                self.bind(own.var)?;
                self.scope.push(own.var);
                own.body.iter().try_for_each(|statement| self.statement(statement))?;
                self.scope.pop();
                Ok(())
            }
            Statement::Realize(realize) => self.realize(realize),
            Statement::Sync(_) => Ok(()),
        }
    }

    fn realize(&mut self, realize: &Realize) -> Result<(), VerifyError> {
        let block = &self.program.blocks[realize.block];
        if std::mem::replace(&mut self.placed[realize.block.index()], true) {
            return Err(VerifyError::BlockTwice { block: block.name.clone() });
        }
        let object = format!("block '{}'", block.name);
        for expr in realize.bindings.iter().chain(&realize.predicate) {
            self.in_scope(expr, &[], &object)?;
        }
        let own: Vec<VarId> = block.iterators.iter().map(|iterator| iterator.var).collect();
        own.iter().try_for_each(|var| self.bind(*var))?;
        block.expressions().into_iter().try_for_each(|expr| self.in_scope(expr, &own, &object))?;
        self.parts_fit(block, realize)
            .map_err(|reason| VerifyError::Form { block: block.name.clone(), reason })
    }

    fn in_scope(&self, expr: &Expr, own: &[VarId], object: &str) -> Result<(), VerifyError> {
        let mut unbound = None;
        expr.visit(&mut |part| {
            if let Expr::Var(var) = part
                && !self.scope.contains(var)
                && !own.contains(var)
            {
                unbound.get_or_insert(*var);
            }
        });
        match unbound {
            Some(var) => Err(VerifyError::Unbound { object: object.to_string(), var }),
            None => Ok(()),
        }
    }

    fn parts_fit(&self, block: &Block, realize: &Realize) -> Result<(), String> {
        if block.iterators.len() != realize.bindings.len() {
            let (iterators, bindings) = (block.iterators.len(), realize.bindings.len());
            return Err(format!("it has {iterators} iterators and {bindings} bindings"));
        }
        let kinds: Vec<IteratorKind> = block.iterators.iter().map(|own| own.kind).collect();
        if !kinds.is_sorted_by_key(|kind| *kind == IteratorKind::Reduction) {
            return Err("a spatial iterator comes after a reduction iterator".into());
        }
        let buffer = &self.program.buffers[block.buffer];
        self.rank_fits(&buffer.name, buffer.shape.len(), block.indices.len())?;
        for index in &block.indices {
            self.spatial(block, index)?;
            self.has_type(index, DataType::I64)?;
        }
        if let Some(predicate) = &realize.predicate {
            self.has_type(predicate, DataType::Bool)?;
        }
        match &block.body {
            BlockBody::Map(_) if kinds.contains(&IteratorKind::Reduction) => {
                return Err("a map has a reduction iterator".into());
            }
            BlockBody::Map(value) => self.has_type(value, buffer.dtype)?,
            BlockBody::Reduce { initial, value, .. } => {
                if let Some(initial) = initial {
                    self.spatial(block, initial)?;
                    self.has_type(initial, buffer.dtype)?;
                }
                self.has_type(value, buffer.dtype)?;
            }
        }
        Ok(())
    }

    fn rank_fits(&self, name: &str, rank: usize, given: usize) -> Result<(), String> {
        match rank == given {
            true => Ok(()),
            false => Err(format!("'{name}' has {rank} axes and is accessed with {given} indices")),
        }
    }

    fn spatial(&self, block: &Block, expr: &Expr) -> Result<(), String> {
        let mut reductions =
            block.iterators.iter().filter(|own| own.kind == IteratorKind::Reduction);
        match reductions.find(|own| expr.mentions(own.var)) {
            Some(own) => {
                Err(format!("its place or initial value depends on reduction {}", own.var))
            }
            None => Ok(()),
        }
    }

    fn has_type(&self, expr: &Expr, expected: DataType) -> Result<(), String> {
        self.types_fit(expr)?;
        let actual = expr.dtype(self.program);
        match actual == expected {
            true => Ok(()),
            false => Err(format!("a value of {actual} stands where {expected} is expected")),
        }
    }

    fn types_fit(&self, expr: &Expr) -> Result<(), String> {
        expr.operands().into_iter().try_for_each(|operand| self.types_fit(operand))?;
        let dtype = |expr: &Expr| expr.dtype(self.program);
        let same = |left: &Expr, right: &Expr| match (dtype(left), dtype(right)) {
            (left, right) if left == right => Ok(()),
            (left, right) => Err(format!("operands of {left} and {right} meet in one operation")),
        };
        match expr {
            Expr::Load(buffer, indices) => {
                let own = &self.program.buffers[*buffer];
                self.rank_fits(&own.name, own.shape.len(), indices.len())?;
                match indices.iter().find(|index| dtype(index) != DataType::I64) {
                    Some(index) => Err(format!("'{}' is indexed by {}", own.name, dtype(index))),
                    None => Ok(()),
                }
            }
            Expr::Binary(BinaryOp::ShiftLeft | BinaryOp::ShiftRight, left, _)
                if dtype(left).is_float() =>
            {
                Err("a floating-point value is shifted".into())
            }
            Expr::Binary(_, left, right) => same(left, right),
            Expr::Select(condition, ..) if dtype(condition) != DataType::Bool => {
                Err("a condition is not a truth value".into())
            }
            Expr::Select(_, then, otherwise) => same(then, otherwise),
            Expr::Unary(UnaryOp::Not, operand) if dtype(operand).is_float() => {
                Err("the complement of a floating-point value is taken".into())
            }
            _ => Ok(()),
        }
    }
}
