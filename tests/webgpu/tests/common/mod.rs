//! WGSL of bound programs, validated, and run where there is a device.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use anyhow::Result;
use hone_codegen_text::{EmitError, Module, Wgsl, emit, source};
use hone_device_tests::{Device, Job, Outcome, count};
use hone_tensor::{Limits, Program, Step};
use hone_types::Tensor;
use hone_webgpu_tests::{run, validate};
use std::sync::Mutex;

/// WGSL with the limits that every device of WebGPU has.
pub struct WebGpu {
    /// What runs it.
    pub device: Option<&'static hone_webgpu_tests::Device>,
    /// What is wrong with texts.
    pub invalid: Mutex<Vec<String>>,
    /// How many kernels were validated.
    pub valid: Mutex<usize>,
}

impl WebGpu {
    /// On a device, or for validation alone.
    pub fn new(device: Option<&'static hone_webgpu_tests::Device>) -> Self {
        Self { device, invalid: Mutex::default(), valid: Mutex::default() }
    }

    /// Counts what came out, and panics where a text was not valid or a result not right.
    pub fn judge(&self, what: &str, outcome: &Outcome) {
        let (valid, invalid) = (self.valid.lock().unwrap(), self.invalid.lock().unwrap());
        let on = self.device.map_or("no device", |device| device.name());
        println!("{what}, on {on}: {} kernels valid, {} not; {outcome}", *valid, invalid.len());
        count(*valid, "kernels of WGSL valid");
        count(outcome.right, "kernel runs of WGSL right");
        count(outcome.refused(), "programs without WGSL");
        assert!(invalid.is_empty(), "{what}: {} invalid, the first:\n{}", invalid.len(), invalid[0]);
        let wrong = outcome.wrong.len();
        assert!(wrong == 0, "{what}: {wrong} wrong, the first:\n{}", outcome.wrong[0]);
    }
}

impl Device for WebGpu {
    type Code = Module;

    fn limits(&self) -> Limits {
        Limits::PORTABLE
    }

    fn emit(&self, program: &Program, stem: &str) -> Result<Module, String> {
        let module =
            emit(program, &Wgsl::default(), &Limits::PORTABLE, stem).map_err(|reason| match reason {
                EmitError::Operation { operation, dtype, .. } => format!("{operation} of {dtype}"),
                EmitError::Verify(reason) => format!("verifier: {reason}"),
                EmitError::Buffers { most, .. } => format!("more than {most} buffers"),
                other => other.to_string(),
            })?;
        let text = source(&Wgsl::default(), &[&module]);
        match validate(&text) {
            Ok(_) => *self.valid.lock().unwrap() += module.kernels().len(),
            Err(error) => self.invalid.lock().unwrap().push(format!("{error}\n{text}")),
        }
        Ok(module)
    }

    fn steps<'a>(&self, code: &'a Module) -> &'a [Step] {
        &code.steps
    }

    fn text<'a>(&self, code: &'a Module) -> &'a str {
        &code.text
    }

    fn run(&self, jobs: &[Job<Module>]) -> Vec<Vec<Result<Vec<Tensor>>>> {
        let Some(device) = self.device else { return vec![] };
        let results = jobs.iter().map(|job| {
            let text = source(&Wgsl::default(), &[&job.code]);
            let built = device.build(&text, &job.code.kernels());
            job.runs
                .iter()
                .map(|one| match &built {
                    Ok(kernels) => run(device, kernels, &job.bound, &job.code, &one.inputs),
                    Err(error) => Err(anyhow::anyhow!("{error:#}")),
                })
                .collect()
        });
        results.collect()
    }
}
