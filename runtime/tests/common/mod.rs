//! Makes small artifacts for tests: kernels from C, compiled by the system's compiler.
#![allow(clippy::unwrap_used, clippy::expect_used, dead_code)]

use std::env::consts::{ARCH, OS};
use std::path::PathBuf;
use std::process::Command;

use hone_artifact::{
    Access, Argument, DataType, DimensionSize, Manifest, SCHEMA_VERSION, Shapes, Slot, Step,
    Target, TensorInfo, Variant, Writer, c_header,
};
use tempfile::TempDir;

/// Floats in a row; a task of the test kernels is a row.
pub const ROW: usize = 16;

/// The kernels: `scale` goes through scratch, `add_bias` works on the arena, `where_weights` gives away
/// an address, `burn_*` take some 2 and 100 µs a task, `nothing` does nothing, `float_mode` writes the
/// floating-point mode that each task runs in.
const KERNELS: &str = r#"
#include <stdint.h>
enum { ROW = 16 };
void scale(void *const *b, int64_t begin, int64_t end, void *scratch) {
  const float *x = b[0], *w = b[1]; float *y = b[2]; float *s = scratch;
  for (int64_t t = begin; t < end; t++) {
    for (int i = 0; i < ROW; i++) s[i] = x[t * ROW + i] * w[i];
    for (int i = 0; i < ROW; i++) y[t * ROW + i] = s[i];
  }
}
void add_bias(void *const *b, int64_t begin, int64_t end, void *scratch) {
  const float *x = b[0], *w = b[1]; float *y = b[2];
  for (int64_t t = begin; t < end; t++)
    for (int i = 0; i < ROW; i++) y[t * ROW + i] = x[t * ROW + i] + w[i];
}
void where_weights(void *const *b, int64_t begin, int64_t end, void *scratch) {
  *(uint64_t *)b[1] = (uint64_t)b[0];
}
static void burn(float *y, int64_t begin, int64_t end, int n) {
  for (int64_t t = begin; t < end; t++) {
    float v = 1.0f + t;
    for (int i = 0; i < n; i++) v = v * 0.999f + 0.5f;
    y[t * ROW] = v;
  }
}
void burn_little(void *const *b, int64_t begin, int64_t end, void *scratch) { burn(b[0], begin, end, 1000); }
void burn_much(void *const *b, int64_t begin, int64_t end, void *scratch) { burn(b[0], begin, end, 50000); }
void burn_more_and_more(void *const *b, int64_t begin, int64_t end, void *scratch) {
  for (int64_t t = begin; t < end; t++) burn(b[0], t, t + 1, 100 * t);
}
void nothing(void *const *b, int64_t begin, int64_t end, void *scratch) {}
void halve(void *const *b, int64_t begin, int64_t end, void *scratch) {
  const float *x = b[0]; float *y = b[1];
  for (int64_t t = begin; t < end; t++)
    for (int i = 0; i < ROW; i++) y[t * ROW + i] = x[t * ROW + i] * 0.5f;
}
void float_mode(void *const *b, int64_t begin, int64_t end, void *scratch) {
  uint64_t *y = b[0];
  for (int64_t t = begin; t < end; t++) {
    uint64_t mode = 0;
#if defined(__x86_64__)
    uint32_t word;
    __asm__ volatile("stmxcsr %0" : "=m"(word));
    mode = word;
#elif defined(__aarch64__)
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
#endif
    y[t] = mode;
    // Long enough for the other threads to come for tasks.
    for (int i = 0; i < 20000; i++) __asm__ volatile("" ::: "memory");
  }
}
/* Fifty waves of eight parts, of which each reads all parts of the wave before. */
void in_waves(void *const *b, int64_t begin, int64_t end, void *scratch) {
  enum { WAVES = 50, PARTS = 8 };
  const float *x = b[0]; float *y = b[1];
  if (begin < 1) { begin = 1; end = 1 + WAVES * PARTS; }
  for (int64_t t = begin - 1; t < end - 1; t++) {
    const float *before = t < PARTS ? x : y + (t / PARTS - 1) * PARTS;
    float sum = t % PARTS;
    for (int i = 0; i < PARTS; i++) sum = sum * 0.5f + before[i];
    y[t] = sum;
  }
}
/* The sum of as many elements as the second buffer says. */
void sum_of(void *const *b, int64_t begin, int64_t end, void *scratch) {
  const float *x = b[0]; const int64_t *count = b[1]; float *y = b[2], sum = 0;
  for (int64_t i = 0; i < *count; i++) sum += x[i];
  y[0] = sum;
}
/* Softmax along rows of 128 by the sum of x^n / n!; so that what underflows does so in the product with
   2^n, as in compiled code. */
static float power_of_e(float x) {
  float n = __builtin_floorf(x * 1.44269504f + 0.5f), r = x - n * 0.693147181f;
  float p = 1 + r * (1 + r * (1 / 2.f + r * (1 / 6.f + r * (1 / 24.f + r * (1 / 120.f)))));
  int k = (int)n, half = k / 2;
  union { uint32_t u; float f; } a = {(uint32_t)(half + 127) << 23}, c = {(uint32_t)(k - half + 127) << 23};
  return p * a.f * c.f;
}
void softmax(void *const *b, int64_t begin, int64_t end, void *scratch) {
  enum { LONG = 128 };
  const float *x = b[0]; float *y = b[1];
  for (int64_t t = begin; t < end; t++) {
    const float *in = x + t * LONG; float *out = y + t * LONG, most = in[0], sum = 0;
    for (int i = 1; i < LONG; i++) most = in[i] > most ? in[i] : most;
    for (int i = 0; i < LONG; i++) sum += out[i] = power_of_e(in[i] - most < -104 ? -104 : in[i] - most);
    for (int i = 0; i < LONG; i++) out[i] *= 1 / sum;
  }
}
"#;

/// Compiles C into a shared object.
pub fn compile(source: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let (c, so) = (folder.path().join("k.c"), folder.path().join("k.so"));
    std::fs::write(&c, source).unwrap();
    let status = Command::new("cc")
        .args(["-O2", "-shared", "-fPIC", "-nostdlib", "-o"])
        .args([&so, &c])
        .status()
        .unwrap();
    assert!(status.success());
    std::fs::read(so).unwrap()
}

/// The test kernels as a shared object.
pub fn kernels() -> Vec<u8> {
    compile(KERNELS)
}

/// This machine, without any feature beyond its baseline.
pub fn here() -> Target {
    let (triple, cpu) = (format!("{ARCH}-unknown-{OS}-gnu"), "generic".into());
    Target { triple, cpu, features: vec![], accelerator: None }
}

pub fn argument(slot: Slot, bytes: usize, access: Access) -> Argument {
    Argument { slot, bytes: bytes as u64, access }
}

pub fn step(kernel: &str, tasks: usize, arguments: Vec<Argument>) -> Step {
    Step {
        nodes: vec![format!("node of {kernel}")],
        kernel: kernel.into(),
        tasks: tasks as u64,
        min_tasks_per_thread: 1,
        beside: None,
        waves: None,
        arguments,
        flops: 0,
        bytes_read: 0,
        bytes_written: 0,
    }
}

/// `y = x * w + b` on `rows` rows, in two parallel steps with the product in the arena. Weights are `w`
/// then `b`, as `weights` gives them.
pub fn affine(rows: usize) -> Manifest {
    let (row, all) = (ROW * 4, rows * ROW * 4);
    let product = Slot::Arena { offset: 64 };
    Manifest {
        schema_version: SCHEMA_VERSION,
        model_digest: "sha256:test".into(),
        compiler_version: "test".into(),
        records_digest: None,
        inputs: vec![TensorInfo::new("x", DataType::F32, vec![rows as u64, ROW as u64]).unwrap()],
        outputs: vec![TensorInfo::new("y", DataType::F32, vec![rows as u64, ROW as u64]).unwrap()],
        interface: Default::default(),
        open: None,
        padded: None,
        variants: vec![Variant {
            target: here(),
            code: 0,
            weights: 0,
            weights_bytes: 2 * row as u64,
            arena_bytes: 64 + all as u64,
            scratch_bytes_per_thread: row as u64,
            device: None,
            recipe: None,
            program: Vec::new(),
            extents: Vec::new(),
            shapes: None,
            steps: vec![
                step(
                    "scale",
                    rows,
                    vec![
                        argument(Slot::Input { index: 0, offset: 0 }, all, Access::Read),
                        argument(Slot::Weight { offset: 0 }, row, Access::Read),
                        argument(product, all, Access::Write),
                    ],
                ),
                step(
                    "add_bias",
                    rows,
                    vec![
                        argument(product, all, Access::Read),
                        argument(Slot::Weight { offset: row as u64 }, row, Access::Read),
                        argument(Slot::Output { index: 0, offset: 0 }, all, Access::Write),
                    ],
                ),
            ],
        }],
    }
}

/// `affine` for several numbers of rows, the largest first: a variant each over one code and one copy of the weights.
pub fn affine_sizes(sizes: &[usize]) -> Manifest {
    let mut all = affine(sizes[0]);
    let variants = sizes.iter().map(|rows| {
        let shape = vec![vec![*rows as u64, ROW as u64]];
        let dimensions = vec![DimensionSize { name: "rows".into(), size: *rows as u64 }];
        let shapes = Shapes { dimensions, inputs: shape.clone(), outputs: shape };
        Variant { shapes: Some(shapes), ..affine(*rows).variants.remove(0) }
    });
    all.variants = variants.collect();
    all
}

/// The weights of `affine`.
pub fn weights() -> Vec<u8> {
    let w = (0..ROW).map(|i| i as f32 - 3.0);
    let b = (0..ROW).map(|i| 100.0 + i as f32);
    w.chain(b).flat_map(f32::to_ne_bytes).collect()
}

/// What `affine` must give.
pub fn expected(x: &[f32]) -> Vec<f32> {
    let at = |(i, x): (usize, &f32)| x * ((i % ROW) as f32 - 3.0) + 100.0 + (i % ROW) as f32;
    x.iter().enumerate().map(at).collect()
}

/// An input for `affine`.
pub fn ramp(rows: usize) -> Vec<f32> {
    (0..rows * ROW).map(|i| (i % 1009) as f32 - 500.0).collect()
}

/// The artifact of a manifest over the test kernels and weights.
pub fn pack(manifest: &Manifest) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.code(kernels());
    writer.weights(weights());
    writer.header(c_header(manifest, "affine"));
    writer.to_bytes(manifest).unwrap()
}

/// The artifact as a file; it goes with the folder.
pub fn file(manifest: &Manifest) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.hone");
    std::fs::write(&path, pack(manifest)).unwrap();
    (folder, path)
}

pub fn as_bytes(values: &[f32]) -> &[u8] {
    // SAFETY: any four bytes of a float are four bytes.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

pub fn as_bytes_mut(values: &mut [f32]) -> &mut [u8] {
    // SAFETY: as above, and any four bytes are a float.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}

/// State letters of this process's pool threads, from the system's own account.
pub fn workers() -> Vec<char> {
    let mut states = Vec::new();
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        // A thread may end while we look.
        let Ok(stat) = std::fs::read_to_string(task.path().join("stat")) else {
            continue;
        };
        let (name, rest) = stat.split_once('(').unwrap().1.rsplit_once(')').unwrap();
        if name.strip_prefix("hone-").is_some_and(|n| n.parse::<u32>().is_ok()) {
            states.push(rest.trim_start().chars().next().unwrap());
        }
    }
    states
}
