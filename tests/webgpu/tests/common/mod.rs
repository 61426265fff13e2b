//! WGSL of bound programs, validated, and run where there is a device.

#![allow(clippy::unwrap_used, clippy::expect_used)]
// Each test takes what it needs.
#![allow(dead_code)]

pub mod browser;

use anyhow::Result;
use hone_codegen_text::{EmitError, Module, Wgsl, emit, source};
use hone_device_tests::{Device, Job, Outcome, count};
use hone_tensor::{Limits, Program, Step};
use hone_tune::schedule_for_device;
use hone_types::Tensor;
use hone_webgpu_tests::{run, validate};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// What takes longer, from its text to its last result, counts as wrong. On a busy machine of two cores the longest of the
/// official cases takes a fraction of it.
const LONGEST: Duration = Duration::from_secs(120);

/// A module's whole text.
pub fn whole(module: &Module) -> String {
    source(&Wgsl::default(), &[module])
}

/// The text of a plain program, scheduled for a device.
pub fn scheduled(program: &Program) -> String {
    let schedule = schedule_for_device(program.clone(), &Limits::PORTABLE).unwrap().schedule;
    whole(&emit(schedule.program(), &Wgsl::default(), &Limits::PORTABLE, "k").unwrap())
}

/// WGSL with the limits that every device of WebGPU has.
pub struct WebGpu {
    /// What runs it.
    pub device: Option<&'static hone_webgpu_tests::Device>,
    /// What is wrong with texts.
    pub invalid: Mutex<Vec<String>>,
    /// How many kernels were validated.
    pub valid: Mutex<usize>,
    /// How many bytes their texts have.
    pub bytes: Mutex<usize>,
    /// How long each program took from its text to its last result, and the first node that it stands for.
    pub times: Mutex<Vec<(Duration, String)>>,
    /// How many programs need more storage buffers than every device has.
    pub raised: Mutex<usize>,
}

impl WebGpu {
    /// On a device, or for validation alone.
    pub fn new(device: Option<&'static hone_webgpu_tests::Device>) -> Self {
        let (invalid, valid) = (Mutex::default(), Mutex::default());
        let (bytes, times, raised) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { device, invalid, valid, bytes, times, raised }
    }

    /// The text of a program with the limits that every device has, or with the device's storage buffers.
    fn module(&self, program: &Program, stem: &str) -> Result<Module, EmitError> {
        let portable = emit(program, &Wgsl::default(), &Limits::PORTABLE, stem);
        let most = self.device.map_or(usize::MAX, |device| device.storage_buffers());
        if !matches!(portable, Err(EmitError::Buffers { .. })) {
            return portable;
        }
        *self.raised.lock().unwrap() += 1;
        emit(program, &Wgsl { storage_buffers: most }, &Limits::PORTABLE, stem)
    }

    /// Counts what came out, and panics where a text was not valid or a result not right.
    pub fn judge(&self, what: &str, outcome: &Outcome) {
        let on = self.device.map_or("no device", |device| device.name());
        let valid = std::mem::take(&mut *self.valid.lock().unwrap());
        let raised = std::mem::take(&mut *self.raised.lock().unwrap());
        let bytes = std::mem::take(&mut *self.bytes.lock().unwrap());
        let mut times = std::mem::take(&mut *self.times.lock().unwrap());
        times.sort();
        let invalid = std::mem::take(&mut *self.invalid.lock().unwrap());
        let wrong = outcome.wrong.len();
        println!("{what}: {outcome}");
        count(valid, "kernels of WGSL valid");
        count(bytes, "bytes of WGSL in kernels");
        count(invalid.len(), "kernels of WGSL not valid");
        count(outcome.right, "kernel runs of WGSL right");
        count(wrong, "kernel runs of WGSL wrong");
        count(raised, "programs with more than 8 storage buffers");
        count(outcome.refused(), "programs without WGSL");
        println!(
            "{what}, on {on}: {} right, {wrong} wrong, {} refused {:?}, {} not valid",
            outcome.right,
            outcome.refused(),
            outcome.reasons(),
            invalid.len()
        );
        for (time, program) in times.iter().rev().take(3) {
            println!("{what}: {:.1} s for {program}", time.as_secs_f64());
        }
        let slow: Vec<_> = times.iter().filter(|(time, _)| *time > LONGEST).collect();
        assert!(slow.is_empty(), "{what}: longer than {LONGEST:?}: {slow:?}");
        assert!(
            invalid.is_empty(),
            "{what}: {} invalid, the first:\n{}",
            invalid.len(),
            invalid[0]
        );
        assert!(wrong == 0, "{what}: {wrong} wrong, the first:\n{}", outcome.wrong[0]);
    }
}

impl Device for WebGpu {
    type Code = Module;

    fn limits(&self) -> Limits {
        Limits::PORTABLE
    }

    fn emit(&self, program: &Program, stem: &str) -> Result<Module, String> {
        let module = self.module(program, stem).map_err(|reason| match reason {
            EmitError::Operation { operation, dtype, .. } => format!("{operation} of {dtype}"),
            EmitError::Verify(reason) => format!("verifier: {reason}"),
            EmitError::Buffers { most, .. } => format!("more than {most} buffers"),
            other => other.to_string(),
        })?;
        *self.bytes.lock().unwrap() += module.text.len();
        let text = whole(&module);
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
        if self.device.is_none() {
            return vec![];
        }
        // One of its own for each thread that calls: a queue of llvmpipe's compiles its kernels one after another.
        let device = &hone_webgpu_tests::Device::open().unwrap().expect("a device that was there");
        let results = jobs.iter().map(|job| {
            let start = Instant::now();
            let text = whole(&job.code);
            let built = device.build(&text, &job.code.kernels());
            let runs = job.runs.iter().map(|one| match &built {
                Ok(kernels) => run(device, kernels, &job.bound, &job.code, &one.inputs),
                Err(error) => Err(anyhow::anyhow!("{error:#}")),
            });
            let results = runs.collect();
            let first = job.runs.first().map_or("no run", |one| &one.name);
            let name = format!("{first}, {} bytes of text", text.len());
            self.times.lock().unwrap().push((start.elapsed(), name));
            results
        });
        results.collect()
    }
}
