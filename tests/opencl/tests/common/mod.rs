//! OpenCL C of bound programs on a device.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use anyhow::Result;
use hone_codegen_text::{EmitError, Module, OpenClC, emit, source};
use hone_device_tests::{Device, Job};
use hone_opencl_tests::run;
use hone_tensor::{Limits, Program, Step};
use hone_types::Tensor;

/// An OpenCL device.
pub struct OpenCl(pub &'static hone_opencl_tests::Device);

/// Modules that are built at once: a device's compiler reads its headers for each text anew.
const TOGETHER: usize = 100;

impl Device for OpenCl {
    type Code = Module;

    fn limits(&self) -> Limits {
        Limits::PORTABLE
    }

    fn emit(&self, program: &Program, stem: &str) -> Result<Module, String> {
        emit(program, &OpenClC, &Limits::PORTABLE, stem).map_err(|reason| match reason {
            EmitError::Operation { operation, dtype, .. } => format!("{operation} of {dtype}"),
            EmitError::Verify(reason) => format!("verifier: {reason}"),
            other => other.to_string(),
        })
    }

    fn steps<'a>(&self, code: &'a Module) -> &'a [Step] {
        &code.steps
    }

    fn text<'a>(&self, code: &'a Module) -> &'a str {
        &code.text
    }

    fn run(&self, jobs: &[Job<Module>]) -> Vec<Vec<Result<Vec<Tensor>>>> {
        let mut results = Vec::new();
        for jobs in jobs.chunks(TOGETHER) {
            let modules: Vec<&Module> = jobs.iter().map(|job| &job.code).collect();
            let kernels = self.0.build(&source(&OpenClC, &modules)).unwrap();
            results.extend(jobs.iter().map(|job| {
                let runs = job.runs.iter();
                let one = |own: &hone_device_tests::Run| {
                    run(self.0, &kernels, &job.bound, &job.code, &own.inputs)
                };
                runs.map(one).collect()
            }));
        }
        results
    }
}
