//! Compiles programs for this machine, runs them, and compares.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

use hone_codegen::{Kernel, ObjectCode, Options, Target, Unit, compile, link};
use hone_tensor::{Program, Role, Scope};
use std::ffi::c_void;

/// The kernels' C interface.
pub type Entry = unsafe extern "C" fn(*const *mut c_void, i64, i64, *mut c_void);

/// Memory at a multiple of 64 bytes, with a guard after its end.
pub struct Memory {
    lines: Vec<Line>,
    bytes: usize,
}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u8; 64]);

const GUARD: u8 = 0xa5;

impl Memory {
    pub fn new(bytes: usize) -> Self {
        Self { lines: vec![Line([GUARD; 64]); bytes / 64 + 3], bytes }
    }

    pub fn of(content: &[u8]) -> Self {
        let mut memory = Self::new(content.len());
        memory.raw()[64..64 + content.len()].copy_from_slice(content);
        memory
    }

    fn raw(&mut self) -> &mut [u8] {
        let length = self.lines.len() * 64;
        // SAFETY: lines are plain bytes without padding.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), length) }
    }

    pub fn pointer(&mut self) -> *mut c_void {
        self.raw()[64..].as_mut_ptr().cast()
    }

    pub fn content(&mut self) -> Vec<u8> {
        let bytes = self.bytes;
        let raw = self.raw();
        assert!(raw[..64].iter().all(|byte| *byte == GUARD), "written before the buffer");
        assert!(raw[64 + bytes..].iter().all(|byte| *byte == GUARD), "written after the buffer");
        raw[64..64 + bytes].to_vec()
    }
}

/// A program's machine code, loaded.
pub struct Loaded {
    pub kernels: Vec<Kernel>,
    library: libloading::Library,
    _directory: tempfile::TempDir,
}

pub fn build(program: &Program, target: &Target) -> ObjectCode {
    let unit = Unit { symbol: "kernel", program };
    compile(&[unit], target, &Options::default()).unwrap().remove(0)
}

pub fn load(program: &Program) -> Loaded {
    load_for(program, &Target::host().unwrap())
}

pub fn load_for(program: &Program, target: &Target) -> Loaded {
    let object = build(program, target);
    let kernels = object.kernels.clone();
    let bytes = link(&[object], target).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kernels.so");
    std::fs::write(&path, bytes).unwrap();
    // SAFETY: the object has no initializers.
    let library = unsafe { libloading::Library::new(&path).unwrap() };
    Loaded { kernels, library, _directory: directory }
}

impl Loaded {
    pub fn entry(&self, kernel: usize) -> Entry {
        // SAFETY: the symbol has this interface.
        unsafe { *self.library.get::<Entry>(self.kernels[kernel].symbol.as_bytes()).unwrap() }
    }

    /// Runs every kernel over the given table of buffers; parallel ones in two parts.
    pub fn run(&self, table: &[*mut c_void]) {
        for (index, kernel) in self.kernels.iter().enumerate() {
            let mut scratch = Memory::new(kernel.scratch_bytes as usize);
            let tasks = kernel.tasks as i64;
            let middle = tasks / 3;
            for (begin, end) in [(middle, tasks), (0, middle)] {
                if begin == end || (kernel.tasks == 1 && begin > 0) {
                    continue;
                }
                // SAFETY: the table holds every buffer of the program, as large as it says.
                unsafe { self.entry(index)(table.as_ptr(), begin, end, scratch.pointer()) };
            }
            scratch.content();
        }
    }
}

/// Runs `program` on inputs given as bytes; gives every output's bytes.
pub fn run(program: &Program, inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
    run_on(program, inputs, &Target::host().unwrap())
}

/// [`run`] with code for `target`, which this machine can execute.
pub fn run_on(program: &Program, inputs: &[Vec<u8>], target: &Target) -> Vec<Vec<u8>> {
    let loaded = load_for(program, target);
    let mut inputs = inputs.iter();
    let mut memories: Vec<(bool, Memory)> = Vec::new();
    for id in program.parameters() {
        let buffer = &program.buffers[id];
        match buffer.role {
            Role::Input(_) => {
                let content = inputs.next().unwrap();
                assert_eq!(content.len(), buffer.bytes(), "input '{}'", buffer.name);
                memories.push((false, Memory::of(content)));
            }
            _ => memories.push((true, Memory::new(buffer.bytes()))),
        }
    }
    for (_, buffer) in program.buffers.iter() {
        if buffer.role == Role::Temporary && buffer.scope == Scope::Global {
            memories.push((false, Memory::new(buffer.bytes())));
        }
    }
    let table: Vec<*mut c_void> = memories.iter_mut().map(|(_, memory)| memory.pointer()).collect();
    loaded.run(&table);
    memories
        .iter_mut()
        .map(|(output, memory)| (*output, memory.content()))
        .filter_map(|(output, content)| output.then_some(content))
        .collect()
}

/// Runs `work` as the runtime runs kernels: subnormal `f32` and `f64` numbers count as zero. Elsewhere than
/// on x86-64 the mode stays as it is.
pub fn with_subnormals_flushed<T>(work: impl FnOnce() -> T) -> T {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::asm;
        let (mut before, mode) = (0u32, 0x9fc0u32);
        // SAFETY: stores four bytes to a local variable, and loads a mode that every x86-64 processor has.
        unsafe {
            asm!("stmxcsr [{}]", in(reg) &raw mut before);
            asm!("ldmxcsr [{}]", in(reg) &raw const mode);
        }
        let result = work();
        // SAFETY: the mode that was read.
        unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const before) };
        result
    }
    #[cfg(not(target_arch = "x86_64"))]
    work()
}

pub fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

pub fn to_f32s(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|chunk| f32::from_le_bytes(chunk.try_into().unwrap())).collect()
}

/// Values in -1..1, the same for the same seed.
pub fn random(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..count)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
        .collect()
}

/// The maximum difference, relative to the larger of 1 and the expected magnitude.
pub fn worst(actual: &[f32], expected: &[f64]) -> f64 {
    assert_eq!(actual.len(), expected.len());
    let difference = |(a, e): (&f32, &f64)| (f64::from(*a) - e).abs() / e.abs().max(1.0);
    actual.iter().zip(expected).map(difference).fold(0.0, |worst: f64, error| {
        if error.is_nan() { f64::INFINITY } else { worst.max(error) }
    })
}
