//! One launch as a kernel.

use crate::Target;
use crate::error::{CodegenError, Result};
use crate::llvm::emitter::Emitter;
use crate::llvm::environment::{Binding, Environment};
use crate::llvm::ir::Ir;
use crate::llvm::lanes::Lanes;
use crate::prepare::prepare_launch;
use hone_tensor::{
    Argument, Buffer, BufferId, Kernel, Launch, LoopKind, Program, Range, Role, Scope, Statement,
};
use inkwell::AddressSpace;
use inkwell::attributes::{Attribute, AttributeLoc};
use inkwell::module::Linkage;
use inkwell::types::BasicMetadataTypeEnum;
use inkwell::values::{BasicMetadataValueEnum, FunctionValue, PointerValue};
use std::collections::HashMap;

/// LLVM's number of the calling convention of kernels.
const PTX_KERNEL: u32 = 71;
/// LLVM's numbers of address spaces.
pub(super) const GLOBAL: u16 = 1;
pub(super) const SHARED: u16 = 3;

/// Alignment of what does not come from the caller.
const ALIGNMENT: u32 = 64;

/// Adds the kernel of a launch to a module.
pub(super) fn emit(
    ir: &Ir<'_>,
    program: &Program,
    target: &Target,
    launch: &Launch<'_>,
    kernel: &Kernel,
) -> Result<()> {
    refuse_processors(program, launch.body, &kernel.name)?;
    let function = declare(ir, program, launch, kernel);
    ir.builder.position_at_end(ir.block(function, "entry"));
    let mut buffers = HashMap::new();
    let mut environment = Environment::new(program.vars.len());
    for (argument, value) in kernel.arguments.iter().zip(function.get_params()) {
        match argument {
            Argument::Buffer(buffer) => {
                buffers.insert(*buffer, value.into_pointer_value());
            }
            Argument::Counter(var) => {
                let loop_ = launch.repeated.iter().find(|loop_| loop_.var == *var);
                let extent = loop_.and_then(|loop_| loop_.extent.as_integer()).unwrap_or(1);
                let range = Range::extent(extent.max(1));
                environment.bind(*var, Binding::Running(value.into_int_value(), range));
            }
        }
    }
    for buffer in launch.buffers(program) {
        let entry = &program.buffers[buffer];
        if entry.scope != Scope::Global {
            let name = format!("{}_{buffer}", kernel.name);
            buffers.insert(buffer, memory_of(ir, entry, &name)?);
        }
    }
    let (prepared, body) = prepare_launch(program, launch.body);
    let named = (kernel.name.as_str(), function);
    let mut emitter = Emitter {
        device: Some(Lanes::outside(kernel.items)),
        ..Emitter::new(ir, (&prepared, target), named, environment, buffers)
    };
    emitter.blocks(&launch.blocks, &body)?;
    ir.builder.build_return(None)?;
    Ok(())
}

/// Refuses loops of processors: threads, vectors and their instructions.
fn refuse_processors(program: &Program, body: &[Statement], symbol: &str) -> Result<()> {
    let mut found = None;
    for statement in body {
        statement.visit(&mut |statement| {
            if let Statement::Loop(loop_) = statement
                && !matches!(loop_.kind, LoopKind::Serial | LoopKind::Unrolled | LoopKind::Bound(_))
            {
                let name = &program.vars[loop_.var].name;
                let kind = format!("{:?}", loop_.kind).to_lowercase();
                found.get_or_insert(format!(
                    "loop '{name}' is {kind}: code for devices has serial, unrolled and bound loops only"
                ));
            }
        });
    }
    let unsupported = |message| CodegenError::Unsupported { symbol: symbol.to_string(), message };
    found.map_or(Ok(()), |message| Err(unsupported(message)))
}

/// The function of a kernel, with what is known of its parameters.
fn declare<'c>(
    ir: &Ir<'c>,
    program: &Program,
    launch: &Launch<'_>,
    kernel: &Kernel,
) -> FunctionValue<'c> {
    let parameters: Vec<BasicMetadataTypeEnum<'c>> = kernel
        .arguments
        .iter()
        .map(|argument| match argument {
            Argument::Buffer(_) => ir.context.ptr_type(AddressSpace::from(GLOBAL)).into(),
            Argument::Counter(_) => ir.context.i64_type().into(),
        })
        .collect();
    let function = declare_kernel(ir, &kernel.name, &parameters, kernel.items);
    let waits = launch.body.iter().any(Launch::waits);
    for (position, argument) in kernel.arguments.iter().enumerate() {
        let Argument::Buffer(buffer) = argument else { continue };
        let (entry, written) = (&program.buffers[*buffer], launch.writes(program, *buffer));
        let location = AttributeLoc::Param(position as u32);
        let align = match entry.role {
            Role::Temporary => u64::from(ALIGNMENT),
            Role::Input(_) | Role::Output(_) => entry.dtype.bytes() as u64,
        };
        function.add_attribute(location, attribute(ir, "align", align));
        if !written {
            function.add_attribute(location, attribute(ir, "readonly", 0));
        }
        // Where lanes wait for each other, others may have written in between.
        if !written || !waits {
            function.add_attribute(location, attribute(ir, "noalias", 0));
        }
    }
    function
}

/// A kernel without a body, for blocks of so many lanes.
pub(super) fn declare_kernel<'c>(
    ir: &Ir<'c>,
    name: &str,
    parameters: &[BasicMetadataTypeEnum<'c>],
    items: [usize; 3],
) -> FunctionValue<'c> {
    let context = ir.context;
    let function =
        ir.module.add_function(name, context.void_type().fn_type(parameters, false), None);
    function.set_call_conventions(PTX_KERNEL);
    function.add_attribute(AttributeLoc::Function, attribute(ir, "nounwind", 0));
    let none = context.create_string_attribute("no-builtins", "true");
    function.add_attribute(AttributeLoc::Function, none);
    for (word, extent) in ["reqntidx", "reqntidy", "reqntidz"].into_iter().zip(items) {
        annotate(ir, function, word, extent);
    }
    function
}

/// A kernel whose arguments are buffers alone, which begin at whole chunks of `align` bytes and of which it writes `stored`; and the
/// pointers to them.
pub(super) fn declare_with_buffers<'c>(
    ir: &Ir<'c>,
    program: &Program,
    kernel: &Kernel,
    stored: BufferId,
    align: usize,
) -> (FunctionValue<'c>, HashMap<BufferId, PointerValue<'c>>) {
    let pointer = ir.context.ptr_type(AddressSpace::from(GLOBAL)).into();
    let parameters = vec![pointer; kernel.arguments.len()];
    let function = declare_kernel(ir, &kernel.name, &parameters, kernel.items);
    let mut buffers = HashMap::new();
    let arguments = kernel.arguments.iter().enumerate().zip(function.get_params());
    for ((position, argument), value) in arguments {
        let Argument::Buffer(buffer) = argument else { continue };
        buffers.insert(*buffer, value.into_pointer_value());
        let location = AttributeLoc::Param(position as u32);
        function.add_attribute(location, attribute(ir, "align", align as u64));
        function.add_attribute(location, attribute(ir, "noalias", 0));
        let is_output = matches!(program.buffers[*buffer].role, Role::Output(_));
        if *buffer != stored && !is_output {
            function.add_attribute(location, attribute(ir, "readonly", 0));
        }
    }
    (function, buffers)
}

/// Adds what a number means for a kernel, by LLVM's word for it.
pub(super) fn annotate<'c>(ir: &Ir<'c>, function: FunctionValue<'c>, word: &str, number: usize) {
    let values: [BasicMetadataValueEnum<'c>; 3] = [
        function.as_global_value().as_pointer_value().into(),
        ir.context.metadata_string(word).into(),
        ir.i32(number as i32).into(),
    ];
    // Fails for nothing but values that are no metadata.
    let _ = ir.module.add_global_metadata("nvvm.annotations", &ir.context.metadata_node(&values));
}

pub(super) fn attribute(ir: &Ir<'_>, name: &str, value: u64) -> Attribute {
    ir.context.create_enum_attribute(Attribute::get_named_enum_kind_id(name), value)
}

/// Memory of a block or of a lane.
fn memory_of<'c>(ir: &Ir<'c>, buffer: &Buffer, name: &str) -> Result<PointerValue<'c>> {
    let bytes = u32::try_from(buffer.bytes().max(1)).map_err(|_| CodegenError::Unsupported {
        symbol: name.to_string(),
        message: format!("buffer '{}' is too large", buffer.name),
    })?;
    if buffer.scope == Scope::Shared {
        return Ok(shared_memory(ir, name, bytes));
    }
    let address = ir.builder.build_alloca(ir.context.i8_type().array_type(bytes), "")?;
    if let Some(instruction) = address.as_instruction() {
        let _ = instruction.set_alignment(ALIGNMENT);
    }
    Ok(address)
}

/// Shared memory of a kernel.
pub(super) fn shared_memory<'c>(ir: &Ir<'c>, name: &str, bytes: u32) -> PointerValue<'c> {
    let ty = ir.context.i8_type().array_type(bytes);
    let global = ir.module.add_global(ty, Some(AddressSpace::from(SHARED)), name);
    global.set_linkage(Linkage::Internal);
    global.set_initializer(&ty.get_undef());
    global.set_alignment(ALIGNMENT);
    global.as_pointer_value()
}

/// Shared memory of a kernel whose size the launch says: more than the 48 KiB that a text may declare.
pub(super) fn requested_memory<'c>(ir: &Ir<'c>, name: &str, align: u32) -> PointerValue<'c> {
    let ty = ir.context.i8_type().array_type(0);
    let global = ir.module.add_global(ty, Some(AddressSpace::from(SHARED)), name);
    global.set_linkage(Linkage::External);
    global.set_alignment(align);
    global.as_pointer_value()
}
