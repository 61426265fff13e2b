//! The digest that records know a program by: of its structure alone, not of names, nor of how tables number
//! things.

use hone_tensor::{
    BlockBody, BlockId, BufferId, Expr, IteratorKind, LoopKind, Program, Role, Scope, Statement,
    VarId,
};
use std::collections::HashMap;
use std::fmt::Write;

/// The digest of a plain program, as 32 hexadecimal digits. Programs that differ in names or in the numbers
/// of their tables alone have equal digests: what a table holds is numbered by its first use, in the order
/// of the statements. Types, shapes, constants, indices and loops all count.
pub fn structural_digest(program: &Program) -> String {
    let mut form = Form::of(program);
    for buffer in program.parameters() {
        form.buffer(buffer);
    }
    for statement in &program.body {
        form.statement(statement);
    }
    let mut hex = blake3::hash(form.text.as_bytes()).to_hex().to_string();
    hex.truncate(32);
    hex
}

/// A program's text without names.
struct Form<'a> {
    program: &'a Program,
    text: String,
    vars: HashMap<VarId, usize>,
    buffers: HashMap<BufferId, usize>,
}

impl<'a> Form<'a> {
    fn of(program: &'a Program) -> Self {
        Self {
            program,
            text: String::from("program 1\n"),
            vars: HashMap::new(),
            buffers: HashMap::new(),
        }
    }

    fn statement(&mut self, statement: &Statement) {
        match statement {
            Statement::Loop(inner) => {
                self.word(match inner.kind {
                    LoopKind::Serial => "serial",
                    LoopKind::Parallel => "parallel",
                    LoopKind::Unrolled => "unrolled",
                    LoopKind::Vectorized => "vectorized",
                    LoopKind::Tensorized(_) => "tensorized",
                    LoopKind::Bound(axis) => axis.name(),
                });
                self.var(inner.var);
                self.expr(&inner.extent);
                self.word("{\n");
                inner.body.iter().for_each(|inside| self.statement(inside));
                self.word("}\n");
            }
            Statement::Realize(realize) => {
                self.block(realize.block);
                realize.bindings.iter().for_each(|binding| self.expr(binding));
                if let Some(predicate) = &realize.predicate {
                    self.word("where");
                    self.expr(predicate);
                }
                self.word("\n");
            }
            Statement::Sync(level) => {
                self.word("sync");
                self.word(level.name());
            }
        }
    }

    fn block(&mut self, id: BlockId) {
        let block = &self.program.blocks[id];
        for iterator in &block.iterators {
            self.word(match iterator.kind {
                IteratorKind::Spatial => "spatial",
                IteratorKind::Reduction => "reduction",
            });
            self.var(iterator.var);
            self.number(iterator.extent);
        }
        self.buffer(block.buffer);
        block.indices.iter().for_each(|index| self.expr(index));
        match &block.body {
            BlockBody::Map(value) => self.expr(value),
            BlockBody::Reduce { combiner, initial, value } => {
                self.debug(combiner);
                match initial {
                    Some(initial) => self.expr(initial),
                    None => self.word("no initial"),
                }
                self.expr(value);
            }
        }
    }

    fn buffer(&mut self, id: BufferId) {
        let next = self.buffers.len();
        let known = self.buffers.contains_key(&id);
        let number = *self.buffers.entry(id).or_insert(next);
        self.word("b");
        self.number(number);
        if known {
            return;
        }
        let buffer = &self.program.buffers[id];
        self.word(buffer.dtype.name());
        buffer.shape.iter().for_each(|extent| self.number(*extent));
        match buffer.role {
            Role::Input(argument) => {
                self.word("input");
                self.number(argument);
            }
            Role::Output(argument) => {
                self.word("output");
                self.number(argument);
            }
            Role::Temporary => self.word("temporary"),
        }
        self.word(match buffer.scope {
            Scope::Global => "global",
            Scope::Shared => "shared",
            Scope::Scratch => "scratch",
            Scope::Register => "register",
        });
    }

    fn expr(&mut self, expr: &Expr) {
        self.word("(");
        match expr {
            Expr::Integer(value) => self.debug(value),
            Expr::Constant(value, dtype) => {
                // By its bits: 0 and -0 are two constants, and NaN equals itself.
                self.word("constant");
                self.debug(&value.to_bits());
                self.word(dtype.name());
            }
            Expr::Var(var) => self.var(*var),
            Expr::Load(buffer, _) => self.buffer(*buffer),
            Expr::Unary(op, _) => self.debug(op),
            Expr::Binary(op, ..) => self.debug(op),
            Expr::Select(..) => self.word("select"),
            Expr::Cast(dtype, _) => {
                self.word("cast");
                self.word(dtype.name());
            }
        }
        expr.operands().into_iter().for_each(|operand| self.expr(operand));
        self.word(")");
    }

    fn var(&mut self, var: VarId) {
        let next = self.vars.len();
        let number = *self.vars.entry(var).or_insert(next);
        self.word("v");
        self.number(number);
    }

    fn word(&mut self, word: &str) {
        self.text.push_str(word);
        self.text.push(' ');
    }

    fn number(&mut self, number: usize) {
        self.debug(&number);
    }

    /// Plain names and numbers, whose text form is their own.
    fn debug(&mut self, value: &dyn std::fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = write!(self.text, "{value:?} ");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hone_tensor::{Builder, UnaryOp};
    use hone_types::{DataType, TensorType};

    fn exponential(names: [&str; 2], extent: usize, scale: f64) -> Program {
        let tensor = TensorType::new(DataType::F32, [extent]);
        let mut builder = Builder::new();
        let x = builder.input(names[0], &tensor);
        let y = builder.map(names[1], &tensor, |i| {
            Expr::Load(x, i.to_vec()).unary(UnaryOp::Exp) * Expr::Constant(scale, DataType::F32)
        });
        builder.output(y);
        builder.finish()
    }

    #[test]
    fn names_do_not_count_but_everything_else_does() {
        let digest = structural_digest(&exponential(["x", "y"], 8, 2.0));
        assert_eq!(digest.len(), 32);
        assert_eq!(digest, structural_digest(&exponential(["first", "second"], 8, 2.0)));
        assert_ne!(digest, structural_digest(&exponential(["x", "y"], 9, 2.0)));
        assert_ne!(digest, structural_digest(&exponential(["x", "y"], 8, 2.5)));
    }
}
