//! PTX of bound programs in the interpreter.

#![allow(clippy::unwrap_used, clippy::expect_used, dead_code)]

use anyhow::{Context, Result};
use hone_codegen::CodegenError;
use hone_codegen::nvptx::{Architecture, Module, emit};
use hone_device_tests::{Device, Job};
use hone_ptx_tests::{parse, run};
use hone_tensor::{Limits, Program, Step};
use hone_types::Tensor;

/// The interpreter of PTX as a device.
pub struct Interpreter(pub Architecture);

impl Device for Interpreter {
    type Code = Module;

    fn limits(&self) -> Limits {
        self.0.limits()
    }

    fn emit(&self, program: &Program, stem: &str) -> Result<Module, String> {
        emit(program, self.0, &self.0.limits(), stem).map_err(|reason| match reason {
            CodegenError::Unsupported { message, .. } => message,
            other => format!("{other}: {program}"),
        })
    }

    fn steps<'a>(&self, code: &'a Module) -> &'a [Step] {
        &code.steps
    }

    fn text<'a>(&self, code: &'a Module) -> &'a str {
        &code.text
    }

    fn run(&self, jobs: &[Job<Module>]) -> Vec<Vec<Result<Vec<Tensor>>>> {
        let one = |job: &Job<Module>| {
            let text = parse(&job.code.text);
            let run = |own: &hone_device_tests::Run| match &text {
                Ok(text) => run(text, &job.bound, &job.code.steps, &own.inputs),
                Err(reason) => Err(anyhow::anyhow!("{reason:#}")),
            };
            job.runs.iter().map(run).collect()
        };
        jobs.iter().map(one).collect()
    }
}

/// Runs a bound program in the interpreter.
pub fn run_bound(
    program: &Program,
    architecture: Architecture,
    inputs: &[Tensor],
) -> Result<(Module, Vec<Tensor>)> {
    let module = emit(program, architecture, &architecture.limits(), "k")?;
    let text = parse(&module.text).with_context(|| module.text.clone())?;
    let results = run(&text, program, &module.steps, inputs).with_context(|| module.text.clone())?;
    Ok((module, results))
}
