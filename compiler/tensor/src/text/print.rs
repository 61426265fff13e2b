//! Programs to text.

use super::names::{CALLS, COMBINERS, INFIX, SCOPES, UNARY, kind_word, word};
use crate::{
    Block, BlockBody, BlockId, Buffer, BufferId, Expr, IteratorKind, Limit, Program, Realize, Role,
    Statement, VarId,
};
use hone_types::DataType;
use std::fmt::{self, Display, Formatter};

impl Display for Program {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        for (id, buffer) in self.buffers.iter() {
            write_buffer(formatter, id, buffer)?;
        }
        writeln!(formatter)?;
        let mut printer = Printer { program: self, formatter, bound: Vec::new() };
        printer.body(&self.body, 0)?;
        printer.rest()
    }
}

fn write_buffer(formatter: &mut Formatter<'_>, id: BufferId, buffer: &Buffer) -> fmt::Result {
    match buffer.role {
        Role::Input(place) => write!(formatter, "input {place}")?,
        Role::Output(place) => write!(formatter, "output {place}")?,
        Role::Temporary => write!(formatter, "temporary")?,
    }
    let extents: Vec<String> = buffer.shape.iter().map(usize::to_string).collect();
    let (name, dtype, extents) = (quoted(&buffer.name), buffer.dtype, extents.join(", "));
    write!(formatter, " {id} {name}: {dtype}[{extents}]")?;
    match word(&SCOPES, &buffer.scope) {
        "" => writeln!(formatter),
        scope => writeln!(formatter, " {scope}"),
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
}

struct Printer<'a, 'b, 'c> {
    program: &'a Program,
    formatter: &'b mut Formatter<'c>,
    bound: Vec<VarId>,
}

impl Printer<'_, '_, '_> {
    fn body(&mut self, body: &[Statement], depth: usize) -> fmt::Result {
        body.iter().try_for_each(|statement| self.statement(statement, depth))
    }

    fn statement(&mut self, statement: &Statement, depth: usize) -> fmt::Result {
        let indent = "  ".repeat(depth);
        match statement {
            Statement::Loop(own) => {
                self.bound.push(own.var);
                let (name, extent) = (self.name(own.var), Operand(&own.extent, 0));
                write!(self.formatter, "{indent}for {} {name} in 0..{extent}", own.var)?;
                match kind_word(own.kind) {
                    "" => writeln!(self.formatter, " {{")?,
                    kind => writeln!(self.formatter, " {kind} {{")?,
                }
                self.body(&own.body, depth + 1)?;
                writeln!(self.formatter, "{indent}}}")
            }
            Statement::Realize(realize) => self.block(realize.block, Some(realize), &indent),
            Statement::Sync(level) => writeln!(self.formatter, "{indent}sync {}", level.name()),
        }
    }

    fn block(&mut self, id: BlockId, realize: Option<&Realize>, indent: &str) -> fmt::Result {
        let block = &self.program.blocks[id];
        let mut iterators = Vec::new();
        for (place, iterator) in block.iterators.iter().enumerate() {
            self.bound.push(iterator.var);
            let kind = if iterator.kind == IteratorKind::Reduction { "reduce " } else { "" };
            let (var, name, extent) = (iterator.var, self.name(iterator.var), iterator.extent);
            let binding = realize.and_then(|realize| realize.bindings.get(place));
            let binding = binding.map(|own| format!(" = {}", Operand(own, 0))).unwrap_or_default();
            iterators.push(format!("{kind}{var} {name} < {extent}{binding}"));
        }
        let (name, iterators) = (quoted(&block.name), iterators.join(", "));
        write!(self.formatter, "{indent}{id} {name} ({iterators})")?;
        if let Some(predicate) = realize.and_then(|realize| realize.predicate.as_ref()) {
            write!(self.formatter, " if {}", Operand(predicate, 0))?;
        }
        writeln!(self.formatter, " {{")?;
        self.store(block, indent)?;
        writeln!(self.formatter, "{indent}}}")
    }

    fn store(&mut self, block: &Block, indent: &str) -> fmt::Result {
        write!(self.formatter, "{indent}  {}[{}]", block.buffer, List(&block.indices))?;
        match &block.body {
            BlockBody::Map(value) => writeln!(self.formatter, " = {}", Operand(value, 0)),
            BlockBody::Reduce { combiner, initial, value } => {
                let combiner = word(&COMBINERS, combiner);
                write!(self.formatter, " {combiner}= {}", Operand(value, 0))?;
                match initial {
                    Some(initial) => writeln!(self.formatter, " from {}", Operand(initial, 0)),
                    None => writeln!(self.formatter),
                }
            }
        }
    }

    /// What does not stand in the tree.
    fn rest(&mut self) -> fmt::Result {
        let placed = self.program.blocks_in_order();
        for (id, _) in self.program.blocks.iter().filter(|(id, _)| !placed.contains(id)) {
            write!(self.formatter, "removed ")?;
            self.block(id, None, "")?;
        }
        for own in &self.program.prefetches {
            writeln!(
                self.formatter,
                "prefetch {} of {} ahead of {}",
                own.buffer, own.block, own.target
            )?;
        }
        for Limit { target, first, size } in &self.program.limits {
            writeln!(self.formatter, "limit {target} to {} below {size}", Operand(first, 0))?;
        }
        let unused = self.program.vars.ids().filter(|var| !self.bound.contains(var));
        let texts: Vec<String> = unused.map(|var| format!("{var} {}", self.name(var))).collect();
        if texts.is_empty() {
            return Ok(());
        }
        writeln!(self.formatter, "unused {}", texts.join(", "))
    }

    fn name(&self, var: VarId) -> String {
        quoted(&self.program.vars[var].name)
    }
}

impl Display for Expr {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        Operand(self, 0).fmt(formatter)
    }
}

/// Expressions separated by commas.
struct List<'a>(&'a [Expr]);

impl Display for List<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        for (place, expr) in self.0.iter().enumerate() {
            let comma = if place > 0 { ", " } else { "" };
            write!(formatter, "{comma}{expr}")?;
        }
        Ok(())
    }
}

/// An expression where only operations that bind at least this strongly may stand bare.
struct Operand<'a>(&'a Expr, u8);

impl Display for Operand<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Expr::Integer(value) => write!(formatter, "{value}"),
            Expr::Constant(value, DataType::Bool) => write!(formatter, "{}", *value != 0.0),
            Expr::Constant(value, dtype) => write!(formatter, "{value:?}:{dtype}"),
            Expr::Var(var) => write!(formatter, "{var}"),
            Expr::Load(buffer, indices) => write!(formatter, "{buffer}[{}]", List(indices)),
            Expr::Unary(op, operand) => write!(formatter, "{}({operand})", word(&UNARY, op)),
            Expr::Cast(dtype, operand) => write!(formatter, "{dtype}({operand})"),
            Expr::Select(condition, then, otherwise) => {
                write!(formatter, "select({condition}, {then}, {otherwise})")
            }
            Expr::Binary(op, left, right) => {
                match INFIX.iter().find(|(own, _, _)| own == op) {
                    None => write!(formatter, "{}({left}, {right})", word(&CALLS, op)),
                    Some((_, sign, level)) => {
                        // Operations of one level group to the left; comparisons do not chain.
                        let own = if *level == 3 { level + 1 } else { *level };
                        let (left, right) = (Operand(left, own), Operand(right, level + 1));
                        match self.1 > *level {
                            true => write!(formatter, "({left} {sign} {right})"),
                            false => write!(formatter, "{left} {sign} {right}"),
                        }
                    }
                }
            }
        }
    }
}
