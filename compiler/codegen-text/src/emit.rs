//! Walks the launches of a program and writes a kernel for each.

use crate::expression::Writer;
use crate::module::Module;
use crate::{Dialect, EmitError};
use hone_tensor::{
    Argument, BinaryOp, Block, BlockBody, Combiner, Domain, Expr, IteratorKind, Kernel, Launch,
    Level, Limits, Loop, LoopKind, Program, Realize, Scope, Statement, verify, verify_launches,
    verify_registers,
};
use hone_types::DataType;
use std::fmt::Write;

/// Writes a program, whose kernels' names begin with `stem`, for devices with the given limits.
///
/// # Errors
/// What the verifier finds, and what the language has no form for.
pub fn emit(
    program: &Program,
    dialect: &dyn Dialect,
    limits: &Limits,
    stem: &str,
) -> Result<Module, EmitError> {
    verify(program)?;
    verify_registers(program)?;
    verify_launches(program, limits)?;
    if let Some((_, buffer)) =
        program.buffers.iter().find(|(_, buffer)| !dialect.stores(buffer.dtype))
    {
        let (object, dtype) = (buffer.name.clone(), buffer.dtype);
        return Err(EmitError::Element { object, dtype, dialect: dialect.name() });
    }
    let mut text = String::new();
    let steps = program.launch_steps(stem, &mut |launch, kernel| {
        text.push_str(&kernel_text(program, dialect, launch, kernel)?);
        Ok::<(), EmitError>(())
    })?;
    Ok(Module { text, steps })
}

/// The text of one kernel.
fn kernel_text(
    program: &Program,
    dialect: &dyn Dialect,
    launch: &Launch<'_>,
    kernel: &Kernel,
) -> Result<String, EmitError> {
    let parameters: Vec<String> = kernel
        .arguments
        .iter()
        .map(|argument| match argument {
            Argument::Buffer(buffer) => {
                let (dtype, written) =
                    (program.buffers[*buffer].dtype, launch.writes(program, *buffer));
                dialect.parameter(&buffer.to_string(), dtype, written)
            }
            Argument::Counter(var) => dialect.counter(&var.to_string()),
        })
        .collect();
    let items = kernel.items;
    let mut body = Body {
        program,
        dialect,
        items,
        alone: items.map(|extent| extent > 1),
        domain: Domain::default(),
        depth: 1,
        source: String::new(),
    };
    for buffer in launch.buffers(program) {
        let entry = &program.buffers[buffer];
        if entry.scope != Scope::Global {
            let name = buffer.to_string();
            body.line(&dialect.buffer(&name, entry.dtype, entry.scope, entry.elements()));
        }
    }
    launch.repeated.iter().for_each(|loop_| body.domain.push(loop_.var, &loop_.extent));
    for loop_ in &launch.blocks {
        let dimension = loop_.axis().map_or(0, |axis| axis.dimension as usize);
        let number = dialect.number(Level::Block, dimension);
        body.line(&dialect.index(&loop_.var.to_string(), &number));
        body.domain.push(loop_.var, &loop_.extent);
    }
    body.statements(launch.body)?;
    let head = dialect.kernel(&kernel.name, &parameters, items);
    Ok(format!("{head}\n{}}}\n\n", body.source))
}

/// A kernel's body as it grows.
struct Body<'a> {
    program: &'a Program,
    dialect: &'a dyn Dialect,
    /// Lanes of the launch along each dimension.
    items: [usize; 3],
    /// Dimensions along which the first lane has to run what stands here alone.
    alone: [bool; 3],
    domain: Domain,
    depth: usize,
    source: String,
}

impl Body<'_> {
    fn line(&mut self, line: &str) {
        let _ = writeln!(self.source, "{}{line}", "  ".repeat(self.depth));
    }

    /// What stands between braces behind `head`.
    fn braced(
        &mut self,
        head: &str,
        inside: impl FnOnce(&mut Self) -> Result<(), EmitError>,
    ) -> Result<(), EmitError> {
        self.line(head);
        self.depth += 1;
        inside(self)?;
        self.depth -= 1;
        self.line("}");
        Ok(())
    }

    fn statements(&mut self, statements: &[Statement]) -> Result<(), EmitError> {
        statements.iter().try_for_each(|statement| self.statement(statement))
    }

    fn statement(&mut self, statement: &Statement) -> Result<(), EmitError> {
        if self.alone != [false; 3] && !Launch::has_lanes(statement) {
            let first: Vec<String> = (0..3)
                .filter(|dimension| self.alone[*dimension])
                .map(|dimension| format!("{} == 0", self.dialect.number(Level::Lane, dimension)))
                .collect();
            let alone = std::mem::take(&mut self.alone);
            self.braced(&format!("if ({}) {{", first.join(" && ")), |inner| {
                inner.statement(statement)
            })?;
            self.alone = alone;
            return Ok(());
        }
        match statement {
            Statement::Loop(loop_) => match loop_.axis() {
                Some(axis) => self.lanes(loop_, axis.dimension as usize),
                None => self.serial(loop_),
            },
            Statement::Realize(realize) => self.realize(realize),
            Statement::Sync(_) => {
                self.line(self.dialect.sync());
                Ok(())
            }
        }
    }

    fn lanes(&mut self, loop_: &Loop, dimension: usize) -> Result<(), EmitError> {
        let extent = loop_.extent.as_integer().unwrap_or(0);
        let number = self.dialect.number(Level::Lane, dimension);
        let head = match usize::try_from(extent) == Ok(self.items[dimension]) {
            true => "{".to_string(),
            false => format!("if ({number} < {}) {{", self.dialect.integer(extent)),
        };
        let (domain, alone) = (self.domain.clone(), self.alone);
        self.alone[dimension] = false;
        self.domain.push(loop_.var, &loop_.extent);
        self.braced(&head, |inner| {
            inner.line(&inner.dialect.index(&loop_.var.to_string(), &number));
            inner.statements(&loop_.body)
        })?;
        (self.domain, self.alone) = (domain, alone);
        Ok(())
    }

    fn serial(&mut self, loop_: &Loop) -> Result<(), EmitError> {
        let unrolled = match loop_.kind {
            LoopKind::Serial => false,
            LoopKind::Unrolled => true,
            kind => {
                let target = self.program.vars[loop_.var].name.clone();
                let kind = format!("{kind:?}").to_lowercase();
                return Err(EmitError::Loop { target, kind });
            }
        };
        let domain = self.domain.clone();
        let extent = domain.simplify_extent(&loop_.extent);
        let text = self.writer(&domain, "a loop").expression(&extent)?;
        self.domain.push(loop_.var, &loop_.extent);
        let head = self.dialect.counted(&loop_.var.to_string(), &text, unrolled);
        self.braced(&head, |inner| inner.statements(&loop_.body))?;
        self.domain = domain;
        Ok(())
    }

    fn writer<'b>(&'b self, domain: &'b Domain, block: &'b str) -> Writer<'b> {
        Writer { program: self.program, dialect: self.dialect, domain, block }
    }

    fn realize(&mut self, realize: &Realize) -> Result<(), EmitError> {
        let block = &self.program.blocks[realize.block];
        let Some(predicate) = &realize.predicate else { return self.block(realize, block) };
        let predicate = self.domain.simplify(predicate);
        let text = self.writer(&self.domain, &block.name).expression(&predicate)?;
        self.braced(&format!("if ({text}) {{"), |inner| inner.block(realize, block))
    }

    fn block(&mut self, realize: &Realize, block: &Block) -> Result<(), EmitError> {
        let domain = self.domain.clone();
        let resolve = |expr: &Expr| realize.resolve(block, expr, &domain);
        let indices: Vec<Expr> = block.indices.iter().map(resolve).collect();
        let writer = self.writer(&domain, &block.name);
        let (name, index) = (block.buffer.to_string(), writer.index(block.buffer, &indices)?);
        let element = writer.element(block.buffer, &name, &index);
        let store = |value: &Expr| -> Result<String, EmitError> {
            Ok(self.dialect.store(element, &writer.expression(value)?))
        };
        match &block.body {
            BlockBody::Map(value) => {
                let line = store(&resolve(value))?;
                self.line(&line);
            }
            BlockBody::Reduce { combiner, initial, value } => {
                let dtype = self.program.buffers[block.buffer].dtype;
                let initial = initial.as_ref().map(|expr| store(&resolve(expr))).transpose()?;
                let first = self.first_point(realize, block, &writer)?;
                let old = self.dialect.load(element);
                let value = writer.expression(&resolve(value))?;
                let op = operation(*combiner);
                let combined = self.dialect.binary(op, dtype, (&old, &value), false);
                let combined = combined.ok_or_else(|| self.missing(block, op, dtype))?;
                let update = self.dialect.store(element, &combined);
                if let Some(initial) = initial {
                    match first.is_empty() {
                        true => self.line(&initial),
                        false => self.line(&format!("if ({}) {initial}", first.join(" && "))),
                    }
                }
                self.line(&update);
            }
        }
        Ok(())
    }

    fn missing(&self, block: &Block, op: BinaryOp, dtype: DataType) -> EmitError {
        let (block, operation) = (block.name.clone(), format!("{op:?}"));
        EmitError::Operation { block, operation, dtype, dialect: self.dialect.name() }
    }

    /// The conditions under which all reduction iterators of a block are 0.
    fn first_point(
        &self,
        realize: &Realize,
        block: &Block,
        writer: &Writer<'_>,
    ) -> Result<Vec<String>, EmitError> {
        let iterators = block.iterators.iter().zip(&realize.bindings);
        let reductions = iterators.filter(|(iterator, _)| iterator.kind == IteratorKind::Reduction);
        let bindings = reductions.map(|(_, binding)| writer.domain.simplify(binding));
        let zero = self.dialect.integer(0);
        let open = bindings.filter(|binding| binding.as_integer() != Some(0));
        open.map(|binding| Ok(format!("{} == {zero}", writer.expression(&binding)?))).collect()
    }
}

fn operation(combiner: Combiner) -> BinaryOp {
    match combiner {
        Combiner::Sum => BinaryOp::Add,
        Combiner::Product => BinaryOp::Multiply,
        Combiner::Maximum => BinaryOp::Maximum,
        Combiner::Minimum => BinaryOp::Minimum,
    }
}
