//! PTX of bound programs in the interpreter.

#![allow(clippy::unwrap_used, clippy::expect_used, dead_code)]

pub mod products;

use anyhow::{Context, Result};
use hone_codegen::CodegenError;
use hone_codegen::nvptx::{Architecture, Module, emit, source};
use hone_device_tests::{Device, Job, count};
use hone_ptx_tests::{Ptxas, Resources, parse, run, run_counted};
use hone_tensor::{Limits, Program, Step};
use hone_types::{DataType, Tensor};
use std::collections::BTreeMap;
use std::fmt;

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
            let run = |one: &hone_device_tests::Run| match &text {
                Ok(text) => run(text, &job.bound, &job.code.steps, &one.inputs),
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
    let results =
        run(&text, program, &module.steps, inputs).with_context(|| module.text.clone())?;
    Ok((module, results))
}

/// Architectures that are tested: all with `HONE_PTX=all`, else the middle one.
pub fn all_architectures() -> Vec<Architecture> {
    match std::env::var_os("HONE_PTX").is_some_and(|value| value == "all") {
        true => Architecture::ALL.to_vec(),
        false => vec![Architecture::Sm80],
    }
}

/// Texts that are assembled at once: starting the assembler costs more than a kernel does.
const TOGETHER: usize = 100;

/// What the assembler made of texts; without an assembler nothing is counted.
#[derive(Default)]
pub struct Assembly {
    /// Kernels, by architecture.
    kernels: BTreeMap<Architecture, usize>,
    /// The most registers of a lane.
    registers: u32,
    /// Names of kernels whose lanes spill registers, with the bytes.
    pub spills: Vec<(String, u32)>,
}

impl Assembly {
    /// Assembles complete texts, whose kernels have different names.
    pub fn add(&mut self, texts: &[&str], architecture: Architecture) {
        let Some(ptxas) = Ptxas::of_tests().unwrap() else { return };
        let chunks: Vec<&[&str]> = texts.chunks(TOGETHER).collect();
        let (first, second) = chunks.split_at(chunks.len() / 2);
        let assemble = |chunks: &[&[&str]]| -> Vec<Resources> {
            let resources = |texts: &&[&str]| {
                ptxas.assemble(&source(texts), architecture.name()).unwrap().resources
            };
            chunks.iter().flat_map(resources).collect()
        };
        let all = std::thread::scope(|scope| {
            let other = scope.spawn(|| assemble(first));
            let mut all = assemble(second);
            all.extend(other.join().unwrap());
            all
        });
        *self.kernels.entry(architecture).or_default() += all.len();
        for kernel in all {
            self.registers = self.registers.max(kernel.registers);
            if kernel.spill_stores > 0 {
                self.spills.push((kernel.kernel, kernel.spill_stores));
            }
        }
    }
}

impl Assembly {
    /// Says how many kernels were assembled.
    pub fn count(&self) {
        count(self.kernels.values().sum(), "kernels assembled by ptxas");
        count(self.spills.len(), "of them spill");
    }
}

/// Modules of products on tensor cores that compute what the interpreter of loop programs does.
#[derive(Default)]
pub struct Products {
    right: usize,
    assembly: Assembly,
}

impl Products {
    /// Runs the module of a program in the interpreter of PTX, which has to give the expected results without conflicts in
    /// the banks of shared memory, and assembles it. `subject` says what it is where it does not.
    pub fn check(
        &mut self,
        module: &Module,
        architecture: Architecture,
        (program, inputs, expected): (&Program, &[Tensor], &[Tensor]),
        subject: &dyn fmt::Debug,
    ) {
        let code = &module.text;
        let multiplies = ["mma.sync.aligned.m16n8k", "wgmma.mma_async.sync.aligned.m64n"];
        assert!(multiplies.iter().any(|name| code.contains(name)), "{subject:?}: {code}");
        let text = parse(code).unwrap();
        let results = run_counted(&text, program, &module.steps, inputs);
        let (results, took) =
            results.unwrap_or_else(|error| panic!("{subject:?}: {error:#}\n{code}"));
        assert_eq!(took.conflicts, 0, "{subject:?}: banks of shared memory");
        assert!(results == expected, "{subject:?}: other results\n{code}");
        self.right += 1;
        self.assembly.add(&[code], architecture);
    }

    /// Says how many were right; no lane may spill.
    pub fn finish(&self, what: &str) {
        println!("PTX of {what}: {}", self.assembly);
        count(self.right, "products on tensor cores right");
        self.assembly.count();
        assert!(self.assembly.spills.is_empty(), "{:?}", self.assembly.spills);
    }
}

impl fmt::Display for Assembly {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (architecture, kernels) in &self.kernels {
            write!(formatter, "{kernels} kernels assembled for {architecture}, ")?;
        }
        write!(formatter, "{} spill, at most {} registers", self.spills.len(), self.registers)
    }
}

/// Another line in place of one, or none where the line stays.
pub type Change<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The text with one line changed, for every line that `change` gives another for.
pub fn changed(text: &str, change: Change<'_>) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let each = lines.iter().enumerate().filter_map(|(index, line)| {
        let other = change(line)?;
        let mut lines: Vec<&str> = lines.clone();
        lines[index] = &other;
        Some(lines.join("\n"))
    });
    each.collect()
}

/// Whether something is wrong with a text, by the interpreter or by the results of a program on `inputs`.
pub fn noticed(
    text: &str,
    (program, steps): (&Program, &[Step]),
    inputs: &[Tensor],
    are_right: impl Fn(&[Tensor]) -> bool,
) -> bool {
    let results = parse(text).and_then(|text| run(&text, program, steps, inputs));
    !results.is_ok_and(|results| are_right(&results))
}

/// A line that orders chunks, with an order that lets some of them meet.
pub fn unordered(line: &str) -> Option<String> {
    line.contains("xor.b64").then(|| line.replace("xor.b64", "or.b64"))
}

/// A line with a wait of this name that waits for one group fewer, where it leaves `least` groups or more.
pub fn late(line: &str, name: &str, least: usize) -> Option<String> {
    let (before, groups) = line.split_once(name)?;
    let groups: usize = groups.trim().trim_end_matches(';').parse().ok()?;
    (groups >= least).then(|| format!("{before}{name} {};", groups + 1))
}

/// A line that has one of the words, with the address in brackets moved by so many bytes: `[%rd1+8]`.
pub fn moved(line: &str, words: &[&str], by: i64) -> Option<String> {
    let line = words.iter().any(|word| line.contains(word)).then_some(line)?;
    let (before, rest) = line.split_once('[')?;
    let (inside, after) = rest.split_once(']')?;
    let (base, offset) = match inside.split_once('+') {
        Some((base, offset)) => (base, offset.parse::<i64>().ok()?),
        None => (inside, 0),
    };
    Some(format!("{before}[{base}+{}]{after}", offset + by))
}

/// Instructions of the main loop of a kernel, by the disassembler: all, and those whose names begin with a word.
pub fn main_loop(sass: &str, words: &[&str]) -> (usize, Vec<usize>) {
    let lines: Vec<&str> = sass.lines().map(str::trim).collect();
    let instruction = |line: &&&str| line.starts_with("/*") && line.contains(';');
    let mut best = (0, vec![0; words.len()]);
    for (index, line) in lines.iter().enumerate() {
        // `.L_x_1:` and later a branch to it.
        let Some(label) = line.strip_suffix(':').filter(|label| label.starts_with(".L")) else {
            continue;
        };
        let back = lines[index..]
            .iter()
            .position(|line| line.contains("BRA") && line.contains(&format!("({label})")));
        let Some(length) = back else { continue };
        let body: Vec<&&str> = lines[index..=index + length].iter().filter(instruction).collect();
        let count =
            |word: &&str| body.iter().filter(|line| line.contains(&format!("{word}."))).count();
        let counts: Vec<usize> = words.iter().map(count).collect();
        if counts[0] > best.1[0] {
            best = (body.len(), counts);
        }
    }
    best
}

/// Small whole numbers, so that every order of a sum gives the same.
pub fn numbers(dtype: DataType, shape: &[usize], seed: usize) -> Tensor {
    let values: Vec<f64> = (0..shape.iter().product())
        .map(|index: usize| ((index * 7 + index / 3 + seed) % 5) as f64 - 2.0)
        .collect();
    Tensor::from_f64(dtype, shape, &values).unwrap()
}
