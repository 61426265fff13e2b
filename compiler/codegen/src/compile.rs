//! Units to object files, on all cores.

use crate::error::{CodegenError, Result};
use crate::llvm::module::emit;
use crate::targets::moves_pointers;
use crate::{Kernel, ObjectCode, Options, Target, Unit};
use hone_tensor::Program;
use inkwell::context::Context;
use inkwell::module::Module;
use inkwell::passes::PassBuilderOptions;
use inkwell::targets::{FileType, TargetMachine, TargetTriple};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What is left to LLVM's optimizer: registers, common subexpressions, hoisting. Tiling, unrolling
/// and vectors are made before.
const PASSES: &str =
    "function(sroa,early-cse,instcombine<no-verify-fixpoint>,loop-mssa(licm),simplifycfg)";

/// Further passes for targets whose pointers the emitter does not move (`llvm/pointers.rs`).
const STRENGTH_REDUCTION: &str = ",function(loop(loop-reduce))";

/// Compiles every unit; the result is in the units' order and does not depend on the number of
/// threads.
pub fn compile(units: &[Unit<'_>], target: &Target, options: &Options) -> Result<Vec<ObjectCode>> {
    let threads = match options.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    }
    .min(units.len().max(1));
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<Result<ObjectCode>>>> =
        Mutex::new(units.iter().map(|_| None).collect());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut machine = None;
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(unit) = units.get(index) else { break };
                    let result = compile_one(unit, target, options, &mut machine);
                    let mut results =
                        results.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    results[index] = Some(result);
                }
            });
        }
    });
    let results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    results.into_iter().flatten().collect()
}

fn compile_one(
    unit: &Unit<'_>,
    target: &Target,
    options: &Options,
    machine: &mut Option<TargetMachine>,
) -> Result<ObjectCode> {
    let machine = match machine {
        Some(machine) => machine,
        none => none.insert(target.machine()?),
    };
    let context = Context::create();
    let (ir, kernels) = emit(&context, unit.symbol, unit.program, target, options)?;
    optimize(&ir.module, machine, unit.symbol)?;
    let bytes = write(&ir.module, machine, FileType::Object, unit.symbol)?;
    Ok(ObjectCode { bytes, kernels })
}

/// The object file of a module that was made by hand.
pub(crate) fn object(module: &Module, target: &Target, symbol: &str) -> Result<Vec<u8>> {
    let machine = target.machine()?;
    optimize(module, &machine, symbol)?;
    write(module, &machine, FileType::Object, symbol)
}

pub(crate) fn optimize(module: &Module, machine: &TargetMachine, symbol: &str) -> Result<()> {
    module.set_triple(&machine.get_triple());
    module.set_data_layout(&machine.get_target_data().get_data_layout());
    let passes = match moves_pointers(&machine.get_triple().as_str().to_string_lossy()) {
        true => PASSES.to_string(),
        false => [PASSES, STRENGTH_REDUCTION].concat(),
    };
    module
        .run_passes(&passes, machine, PassBuilderOptions::create())
        .map_err(|message| failed(symbol, &message.to_string()))
}

pub(crate) fn write(
    module: &Module,
    machine: &TargetMachine,
    kind: FileType,
    symbol: &str,
) -> Result<Vec<u8>> {
    let buffer = machine
        .write_to_memory_buffer(module, kind)
        .map_err(|message| failed(symbol, &message.to_string()))?;
    let mut bytes = buffer.as_slice().to_vec();
    if kind == FileType::Assembly && bytes.last() == Some(&0) {
        bytes.pop();
    }
    Ok(bytes)
}

fn failed(symbol: &str, message: &str) -> CodegenError {
    CodegenError::Emit { symbol: symbol.to_string(), message: message.to_string() }
}

/// The assembly of a program's kernels.
pub fn assembly(program: &Program, target: &Target) -> Result<String> {
    let machine = target.machine()?;
    machine.set_asm_verbosity(false);
    let context = Context::create();
    let (ir, _) = emit(&context, "kernel", program, target, &Options::default())?;
    optimize(&ir.module, &machine, "kernel")?;
    let text = write(&ir.module, &machine, FileType::Assembly, "kernel")?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// LLVM's text form of a program's kernels after optimization.
pub fn llvm_ir(program: &Program, target: &Target) -> Result<String> {
    let machine = target.machine()?;
    let context = Context::create();
    let (ir, _) = emit(&context, "kernel", program, target, &Options::default())?;
    ir.module.set_triple(&TargetTriple::create(&target.triple));
    optimize(&ir.module, &machine, "kernel")?;
    Ok(ir.module.print_to_string().to_string())
}

/// The kernels that a program becomes, without making code for them.
pub fn kernels(unit: &Unit<'_>, target: &Target) -> Result<Vec<Kernel>> {
    let context = Context::create();
    emit(&context, unit.symbol, unit.program, target, &Options::default())
        .map(|(_, kernels)| kernels)
}
