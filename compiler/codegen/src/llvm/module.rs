//! Functions of a module: one entry per kernel, and the body it calls.
//!
//! The entry takes the runtime's table of pointers; the body takes each buffer as a separate
//! argument, known not to overlap the others, so that LLVM may keep loaded values.

use super::emitter::Emitter;
use super::environment::Environment;
use super::ir::Ir;
use super::memory::BUFFER_ALIGNMENT;
use crate::error::{CodegenError, Result};
use crate::prepare::prepare;
use crate::{Kernel, Options, Target};
use hone_tensor::{BlockBody, BufferId, Expr, LoopKind, Program, Role, Scope, Statement, Waves};
use inkwell::AddressSpace;
use inkwell::attributes::{Attribute, AttributeLoc};
use inkwell::context::Context;
use inkwell::module::Linkage;
use inkwell::types::BasicMetadataTypeEnum;
use inkwell::values::{BasicMetadataValueEnum, BasicValueEnum, FunctionValue, PointerValue};
use std::collections::{BTreeSet, HashMap};

/// Emits a program: one kernel per top-level statement, in order.
pub(crate) fn emit<'c>(
    context: &'c Context,
    symbol: &str,
    program: &Program,
    target: &Target,
    options: &Options,
) -> Result<(Ir<'c>, Vec<Kernel>)> {
    let ir = Ir::new(context, "kernel", target);
    ir.module.set_source_file_name("kernel");
    let slots = slots(program);
    let (program, bodies) = prepare(program);
    let mut kernels = Vec::new();
    for (index, body) in bodies.iter().enumerate() {
        let name = kernel_symbol(symbol, index, bodies.len());
        let unit = Unit { ir: &ir, program: &program, target, options, slots: &slots };
        kernels.push(unit.kernel(name, body)?);
    }
    ir.module.verify().map_err(|message| CodegenError::Malformed {
        symbol: symbol.to_string(),
        message: message.to_string(),
    })?;
    Ok((ir, kernels))
}

/// The symbol of kernel `index` of `count`: that of the unit where it is the only one.
fn kernel_symbol(symbol: &str, index: usize, count: usize) -> String {
    if count == 1 { symbol.to_string() } else { format!("{symbol}_{index}") }
}

/// The slot of each buffer in the table of pointers: parameters in order, then temporaries in the
/// arena in order of their handles.
fn slots(program: &Program) -> HashMap<BufferId, u64> {
    let arena = program
        .buffers
        .iter()
        .filter(|(_, buffer)| buffer.role == Role::Temporary && buffer.scope == Scope::Global)
        .map(|(id, _)| id);
    program.parameters().into_iter().chain(arena).zip(0..).collect()
}

/// Bytes that the calling conventions of 64-bit targets align the stack to.
const CALL_ALIGNMENT: u64 = 16;

struct Unit<'a, 'c> {
    ir: &'a Ir<'c>,
    program: &'a Program,
    target: &'a Target,
    options: &'a Options,
    slots: &'a HashMap<BufferId, u64>,
}

impl<'c> Unit<'_, 'c> {
    fn kernel(&self, symbol: String, body: &[Statement]) -> Result<Kernel> {
        let used = used_buffers(self.program, body);
        let shared: Vec<BufferId> =
            used.iter().copied().filter(|id| self.slots.contains_key(id)).collect();
        let function = self.body_function(&symbol, &shared);
        let scratch_bytes = self.fill(&symbol, function, &shared, &used, body)?;
        self.entry(&symbol, function, &shared)?;
        Ok(Kernel { tasks: tasks(body), waves: waves(body), symbol, scratch_bytes })
    }

    /// `void body(shared buffers…, scratch, begin, end)`
    fn body_function(&self, symbol: &str, shared: &[BufferId]) -> FunctionValue<'c> {
        let context = self.ir.context;
        let pointer: BasicMetadataTypeEnum = context.ptr_type(AddressSpace::default()).into();
        let number: BasicMetadataTypeEnum = context.i64_type().into();
        let mut parameters = vec![pointer; shared.len() + 1];
        parameters.extend([number, number]);
        let ty = context.void_type().fn_type(&parameters, false);
        let name = format!("{symbol}.body");
        let function = self.ir.module.add_function(&name, ty, Some(Linkage::Internal));
        self.attributes(function, &["nounwind", "noinline"]);
        self.align_stack(function);
        for argument in 0..=shared.len() {
            let location = AttributeLoc::Param(argument as u32);
            let may_alias =
                shared.get(argument).is_some_and(|id| self.options.may_alias.contains(id));
            if !may_alias {
                function.add_attribute(location, self.attribute("noalias", 0));
            }
            let pointed_to = shared.get(argument).map(|id| &self.program.buffers[*id]);
            // Inputs and outputs may be the caller's, who aligns them to their elements and no more.
            let align = match pointed_to.filter(|buffer| buffer.role != Role::Temporary) {
                Some(buffer) => buffer.dtype.bytes() as u64,
                None => BUFFER_ALIGNMENT,
            };
            function.add_attribute(location, self.attribute("align", align));
        }
        function
    }

    fn attribute(&self, name: &str, value: u64) -> Attribute {
        self.ir.context.create_enum_attribute(Attribute::get_named_enum_kind_id(name), value)
    }

    fn attributes(&self, function: FunctionValue<'c>, names: &[&str]) {
        for name in names {
            function.add_attribute(AttributeLoc::Function, self.attribute(name, 0));
        }
        // No loop may be replaced by a call: there is no library to call.
        let none = self.ir.context.create_string_attribute("no-builtins", "true");
        function.add_attribute(AttributeLoc::Function, none);
    }

    /// Aligns a function's stack to vectors, where a target's are longer than calls align it to. Otherwise registers are saved
    /// where the stack happens to be: LLVM decides whether it aligns the stack before it knows that registers do not
    /// suffice. A vector that lies in two lines of a cache is then read again only when both are written. Measured on Zen 4:
    /// a tile of 9 x 3 vectors of which one sum is on the stack, 55 GFLOP/s or 110 by where the stack was.
    fn align_stack(&self, function: FunctionValue<'c>) {
        let bytes = self.target.vector_bytes as u64;
        if bytes > CALL_ALIGNMENT {
            let align = self.attribute("alignstack", bytes);
            function.add_attribute(AttributeLoc::Function, align);
        }
    }

    /// Emits the body's code; returns the scratch bytes it uses.
    fn fill(
        &self,
        symbol: &str,
        function: FunctionValue<'c>,
        shared: &[BufferId],
        used: &BTreeSet<BufferId>,
        body: &[Statement],
    ) -> Result<u64> {
        let ir = self.ir;
        let parameter = |argument: usize| -> Result<BasicValueEnum<'c>> {
            function.get_nth_param(argument as u32).ok_or_else(|| CodegenError::Malformed {
                symbol: symbol.to_string(),
                message: "a parameter is missing".to_string(),
            })
        };
        let entry = ir.block(function, "entry");
        ir.builder.position_at_end(entry);
        let mut buffers: HashMap<BufferId, PointerValue<'c>> = HashMap::new();
        for (argument, id) in shared.iter().enumerate() {
            buffers.insert(*id, parameter(argument)?.into_pointer_value());
        }
        let scratch = parameter(shared.len())?.into_pointer_value();
        let scratch_bytes = self.private_buffers(used, scratch, &mut buffers)?;
        let begin = parameter(shared.len() + 1)?.into_int_value();
        let end = parameter(shared.len() + 2)?.into_int_value();
        let environment = Environment::new(self.program.vars.len());
        let compiled = (self.program, self.target);
        let mut emitter = Emitter {
            moves_pointers: self.target.moves_pointers(),
            tasks: (begin, end),
            ..Emitter::new(ir, compiled, (symbol, function), environment, buffers)
        };
        match (body, waves(body)) {
            ([Statement::Loop(outer)], _) if outer.kind == LoopKind::Parallel => {
                emitter.parallel(outer)?;
            }
            ([Statement::Loop(outer)], Some(waves)) => emitter.waves(outer, waves)?,
            _ => emitter.statements(body)?,
        }
        emitter.end_tiles()?;
        ir.builder.build_return(None)?;
        Ok(scratch_bytes)
    }

    /// Places buffers in registers and scratch memory.
    fn private_buffers(
        &self,
        used: &BTreeSet<BufferId>,
        scratch: PointerValue<'c>,
        buffers: &mut HashMap<BufferId, PointerValue<'c>>,
    ) -> Result<u64> {
        let ir = self.ir;
        let mut offset = 0u64;
        for id in used {
            let buffer = &self.program.buffers[*id];
            match buffer.scope {
                Scope::Global => {}
                // A program without lanes shares it with nobody.
                Scope::Shared | Scope::Scratch => {
                    buffers.insert(*id, ir.offset(scratch, ir.i64(offset as i64))?);
                    let bytes = buffer.bytes() as u64;
                    offset += bytes.next_multiple_of(BUFFER_ALIGNMENT);
                }
                Scope::Register => {
                    // One array that LLVM splits into registers, as all its indices are constant.
                    let bytes = ir.context.i8_type().array_type(buffer.bytes() as u32);
                    let address = ir.builder.build_alloca(bytes, "")?;
                    if let Some(instruction) = address.as_instruction() {
                        let _ = instruction.set_alignment(BUFFER_ALIGNMENT as u32);
                    }
                    buffers.insert(*id, address);
                }
            }
        }
        Ok(offset)
    }

    /// `void symbol(void *const *buffers, int64_t begin, int64_t end, void *scratch)`
    fn entry(&self, symbol: &str, body: FunctionValue<'c>, shared: &[BufferId]) -> Result<()> {
        let ir = self.ir;
        let pointer = ir.context.ptr_type(AddressSpace::default());
        let number = ir.context.i64_type();
        let parameters = [pointer.into(), number.into(), number.into(), pointer.into()];
        let ty = ir.context.void_type().fn_type(&parameters, false);
        let function = ir.module.add_function(symbol, ty, None);
        self.attributes(function, &["nounwind"]);
        ir.builder.position_at_end(ir.block(function, "entry"));
        let arguments = function.get_params();
        let [table, begin, end, scratch] = arguments[..] else { return Ok(()) };
        let mut args: Vec<BasicMetadataValueEnum<'c>> = Vec::new();
        for id in shared {
            let slot = self.slots.get(id).copied().unwrap_or_default() as i64;
            let entry = ir.offset(table.into_pointer_value(), ir.i64(slot * 8))?;
            args.push(ir.load(pointer.into(), entry, 8)?.into());
        }
        args.extend([scratch, begin, end].map(BasicMetadataValueEnum::from));
        ir.builder.build_call(body, &args, "")?;
        ir.builder.build_return(None)?;
        Ok(())
    }
}

/// The extent of the outermost loop where it is parallel, else 1.
fn tasks(body: &[Statement]) -> u64 {
    match body {
        [Statement::Loop(outer)] if outer.kind == LoopKind::Parallel => {
            outer.extent.as_integer().map_or(1, |extent| extent.max(0).cast_unsigned())
        }
        _ => 1,
    }
}

/// The waves of a kernel that runs in them.
fn waves(body: &[Statement]) -> Option<Waves> {
    match body {
        [statement] => Waves::of(statement),
        _ => None,
    }
}

/// Every buffer that the statements read or write.
fn used_buffers(program: &Program, statements: &[Statement]) -> BTreeSet<BufferId> {
    let mut used = BTreeSet::new();
    collect(program, statements, &mut used);
    used
}

fn collect(program: &Program, statements: &[Statement], used: &mut BTreeSet<BufferId>) {
    let visit = |expr: &Expr, used: &mut BTreeSet<BufferId>| {
        expr.visit(&mut |expr| {
            if let Expr::Load(buffer, _) = expr {
                used.insert(*buffer);
            }
        });
    };
    for statement in statements {
        match statement {
            Statement::Loop(inner) => {
                visit(&inner.extent, used);
                used.extend(program.limit_of(inner.var).map(|limit| limit.size));
                collect(program, &inner.body, used);
            }
            Statement::Realize(realize) => {
                let block = &program.blocks[realize.block];
                used.insert(block.buffer);
                let (BlockBody::Map(value) | BlockBody::Reduce { value, .. }) = &block.body;
                let exprs = realize.bindings.iter().chain(&realize.predicate).chain(&block.indices);
                exprs.chain([value]).for_each(|expr| visit(expr, used));
            }
            Statement::Sync(_) => {}
        }
    }
}
