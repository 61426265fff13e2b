//! Walks the launches of a program and writes a kernel for each.

use crate::expression::Writer;
use crate::module::Module;
use crate::values::{Plan, Table};
use crate::{Dialect, EmitError};
use hone_tensor::{
    Argument, BinaryOp, Block, BlockBody, BufferId, Combiner, Domain, Expr, IteratorKind, Kernel,
    Launch, Level, Limits, Loop, LoopKind, Program, Realize, Scope, Statement, verify,
    verify_launches, verify_registers,
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
    countable(program, dialect, launch)?;
    let items = kernel.items;
    let mut body = Body {
        program,
        dialect,
        launch,
        kernel: &kernel.name,
        items,
        alone: items.map(|extent| extent > 1),
        domain: Domain::default(),
        depth: 1,
        named: 0,
        source: String::new(),
    };
    let parameters = body.parameters(kernel)?;
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

/// Refuses buffers whose elements the type of indices cannot count. Loops are checked where they are written.
fn countable(
    program: &Program,
    dialect: &dyn Dialect,
    launch: &Launch<'_>,
) -> Result<(), EmitError> {
    let most = if dialect.index_type() == DataType::I64 { i64::MAX } else { i32::MAX.into() };
    let buffers = launch.buffers(program).into_iter().map(|buffer| &program.buffers[buffer]);
    let too_large = |elements: usize| i64::try_from(elements).map_or(true, |count| count > most);
    match buffers.into_iter().find(|buffer| too_large(buffer.elements())) {
        Some(buffer) => Err(EmitError::Index {
            object: buffer.name.clone(),
            dtype: dialect.index_type(),
            dialect: dialect.name(),
        }),
        None => Ok(()),
    }
}

/// A kernel's body as it grows.
struct Body<'a> {
    program: &'a Program,
    dialect: &'a dyn Dialect,
    launch: &'a Launch<'a>,
    /// The kernel's name.
    kernel: &'a str,
    /// Lanes of the launch along each dimension.
    items: [usize; 3],
    /// Dimensions along which the first lane has to run what stands here alone.
    alone: [bool; 3],
    domain: Domain,
    depth: usize,
    /// How many values have a name.
    named: usize,
    source: String,
}

impl Body<'_> {
    /// A kernel's parameters. Buffers that it has itself are declared in its body, or with the parameters where
    /// the language has them there.
    fn parameters(&mut self, kernel: &Kernel) -> Result<Vec<String>, EmitError> {
        let (program, dialect) = (self.program, self.dialect);
        let mut parameters = Vec::new();
        let mut needed = 0;
        for (number, argument) in kernel.arguments.iter().enumerate() {
            parameters.push(match argument {
                Argument::Buffer(buffer) => {
                    needed += 1;
                    let dtype = program.buffers[*buffer].dtype;
                    let written = self.launch.writes(program, *buffer);
                    dialect.parameter(number, &self.variable(*buffer), dtype, written)
                }
                Argument::Counter(var) => {
                    let name = var.to_string();
                    let variable = dialect.variable(self.kernel, &name, Scope::Global);
                    if variable != name {
                        self.line(&dialect.index(&name, &variable));
                    }
                    dialect.counter(number, &variable)
                }
            });
        }
        let most = dialect.most_buffers();
        if needed > most {
            let kernel = kernel.name.clone();
            return Err(EmitError::Buffers { kernel, needed, most, dialect: dialect.name() });
        }
        for buffer in self.launch.buffers(program) {
            let entry = &program.buffers[buffer];
            let name = self.variable(buffer);
            let declared = dialect.buffer(&name, entry.dtype, entry.scope, entry.elements());
            match entry.scope {
                Scope::Global => {}
                Scope::Shared if dialect.shares_as_parameters() => parameters.push(declared),
                _ => self.line(&declared),
            }
        }
        Ok(parameters)
    }

    fn variable(&self, buffer: BufferId) -> String {
        let scope = self.program.buffers[buffer].scope;
        self.dialect.variable(self.kernel, &buffer.to_string(), scope)
    }

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
            false => format!(
                "if ({number} < {}) {{",
                self.dialect.integer(extent, self.dialect.index_type())
            ),
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
        let values = Table::default();
        let text = self.writer(&domain, "a loop", &values).index_value(&extent)?;
        let text = self.completed(&mut values.plan(&[(&text, true)]), &text);
        self.counts(loop_, &extent)?;
        self.domain.push(loop_.var, &loop_.extent);
        let head = self.dialect.counted(&loop_.var.to_string(), &text, unrolled);
        self.braced(&head, |inner| inner.statements(&loop_.body))?;
        self.domain = domain;
        Ok(())
    }

    /// Refuses a loop whose extent is not known to fit the type of indices.
    fn counts(&self, loop_: &Loop, extent: &Expr) -> Result<(), EmitError> {
        let (dtype, dialect) = (self.dialect.index_type(), self.dialect.name());
        let largest = self.domain.bounds(extent).map(|range| i32::try_from(range.max).is_ok());
        if dtype == DataType::I64 || largest == Some(true) {
            return Ok(());
        }
        let object = self.program.vars[loop_.var].name.clone();
        Err(EmitError::Index { object, dtype, dialect })
    }

    fn writer<'b>(&'b self, domain: &'b Domain, block: &'b str, values: &'b Table) -> Writer<'b> {
        let (program, dialect) = (self.program, self.dialect);
        Writer { program, dialect, launch: self.launch, kernel: self.kernel, domain, values, block }
    }

    /// A text without references, behind the declarations of the values that it takes by their names.
    fn completed(&mut self, plan: &mut Plan, text: &str) -> String {
        plan.complete(text, &mut |dtype, value| {
            let name = format!("t{}", self.named);
            self.named += 1;
            self.line(&self.dialect.value(&name, dtype, value));
            name
        })
    }

    fn realize(&mut self, realize: &Realize) -> Result<(), EmitError> {
        let block = &self.program.blocks[realize.block];
        let Some(predicate) = &realize.predicate else { return self.block(realize, block) };
        let predicate = self.domain.simplify(predicate);
        let values = Table::default();
        let text = self.writer(&self.domain, &block.name, &values).expression(&predicate)?;
        let text = self.completed(&mut values.plan(&[(&text, true)]), &text);
        self.braced(&format!("if ({text}) {{"), |inner| inner.block(realize, block))
    }

    fn block(&mut self, realize: &Realize, block: &Block) -> Result<(), EmitError> {
        let values = Table::default();
        let Stored { first, initial, value } = self.stored(realize, block, &values)?;
        // What is only stored at the first point may be read there alone.
        let always = first.is_empty();
        let condition = first.join(" && ");
        let mut texts = vec![(&*condition, true), (&*value, true)];
        texts.extend(initial.as_deref().map(|initial| (initial, always)));
        let mut plan = values.plan(&texts);
        if let Some(initial) = &initial {
            let condition = self.completed(&mut plan, &condition);
            let initial = self.completed(&mut plan, initial);
            match always {
                true => self.line(&initial),
                false => self.line(&self.dialect.guarded(&condition, &initial)),
            }
        }
        let value = self.completed(&mut plan, &value);
        self.line(&value);
        Ok(())
    }

    /// The statements of a block.
    fn stored(
        &self,
        realize: &Realize,
        block: &Block,
        values: &Table,
    ) -> Result<Stored, EmitError> {
        let resolve = |expr: &Expr| realize.resolve(block, expr, &self.domain);
        let indices: Vec<Expr> = block.indices.iter().map(resolve).collect();
        let writer = self.writer(&self.domain, &block.name, values);
        let (name, index) = (self.variable(block.buffer), writer.index(block.buffer, &indices)?);
        let element = writer.element(block.buffer, &name, &index);
        let store = |value: &Expr| -> Result<String, EmitError> {
            Ok(self.dialect.store(element, &writer.expression(value)?))
        };
        match &block.body {
            BlockBody::Map(value) => {
                let value = store(&resolve(value))?;
                Ok(Stored { first: Vec::new(), initial: None, value })
            }
            BlockBody::Reduce { combiner, initial, value } => {
                let dtype = self.program.buffers[block.buffer].dtype;
                let initial = initial.as_ref().map(|expr| store(&resolve(expr))).transpose()?;
                let first = match initial {
                    Some(_) => self.first_point(realize, block, &writer)?,
                    None => Vec::new(),
                };
                // It is no value of the statement: what is stored at the first point changes it.
                let old = self.dialect.load(element);
                let value = writer.expression(&resolve(value))?;
                let op = operation(*combiner);
                let combined = self.dialect.binary(op, dtype, (&old, &value), false);
                let combined = combined.ok_or_else(|| self.missing(block, op, dtype))?;
                let value = self.dialect.store(element, &combined);
                Ok(Stored { first, initial, value })
            }
        }
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
        let zero = self.dialect.integer(0, self.dialect.index_type());
        let open = bindings.filter(|binding| binding.as_integer() != Some(0));
        open.map(|binding| Ok(format!("{} == {zero}", writer.index_value(&binding)?))).collect()
    }
}

/// What a block stores.
struct Stored {
    /// Conditions under which a sum is at its first point; none where there is but one.
    first: Vec<String>,
    /// The statement that runs there, before the other one.
    initial: Option<String>,
    /// The statement that runs at every point.
    value: String,
}

fn operation(combiner: Combiner) -> BinaryOp {
    match combiner {
        Combiner::Sum => BinaryOp::Add,
        Combiner::Product => BinaryOp::Multiply,
        Combiner::Maximum => BinaryOp::Maximum,
        Combiner::Minimum => BinaryOp::Minimum,
    }
}
