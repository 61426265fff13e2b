//! What the runtime itself costs: handing a step to the pool, and loading a large artifact.
//!
//! `cargo bench -p hone-runtime`. Prints figures; asserts nothing about time.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use common::*;
use hone_artifact::{Access, Slot, Writer};
use hone_runtime::{Affinity, HugePages, Model, Options};

const STEPS: usize = 1000;
const ROUNDS: usize = 200;

fn main() {
    // Cargo runs benchmarks in tests too, with this argument missing.
    if std::env::args().all(|argument| argument != "--bench") {
        return;
    }
    for threads in [1, 2] {
        for affinity in [Affinity::None, Affinity::Pinned] {
            step_cost(threads, affinity);
        }
    }
    wake_cost();
    mixed_cost();
    uneven_cost();
    for (name, spread) in [("small differences", 1.0), ("results that are subnormal", 100.0)] {
        softmax_cost(name, spread);
    }
    for huge_pages in [HugePages::Arena, HugePages::ArenaAndWeights] {
        for verify in [true, false] {
            load_cost(huge_pages, verify);
        }
    }
}

fn quantiles(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |q: usize| times[(times.len() - 1) * q / 100];
    format!("p50 {:?}, p10 {:?}, p90 {:?}", at(50), at(10), at(90))
}

/// A run of nothing but empty steps of two tasks each.
fn empty_steps(threads: usize, affinity: Affinity) -> Model {
    let mut manifest = affine(1);
    let touched = vec![argument(Slot::Arena { offset: 0 }, 64, Access::ReadWrite)];
    manifest.variants[0].steps = vec![step("nothing", threads, touched); STEPS];
    let options = Options { threads, affinity, ..Options::default() };
    Model::load_memory(pack(&manifest), &options).unwrap()
}

fn step_cost(threads: usize, affinity: Affinity) {
    let mut model = empty_steps(threads, affinity);
    let (x, mut y) = (ramp(1), ramp(1));
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        model.run(&[as_bytes(&x)], &mut [as_bytes_mut(&mut y)]).unwrap();
        times.push(start.elapsed() / STEPS as u32);
    }
    println!("step on {threads} thread(s), {affinity:?}: {}", quantiles(times));
}

/// The first step of a run whose worker has slept since the last one.
fn wake_cost() {
    let (_folder, path) = file(&affine(2));
    let mut model = Model::load(&path, &Options::default()).unwrap();
    let (x, mut y) = (ramp(2), ramp(2));
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        std::thread::sleep(Duration::from_millis(2));
        let start = Instant::now();
        model.run(&[as_bytes(&x)], &mut [as_bytes_mut(&mut y)]).unwrap();
        times.push(start.elapsed());
    }
    println!("run of two steps with sleeping workers: {}", quantiles(times));
}

/// Steps as a model has them: some large, some small, some worth one thread only.
fn mixed_cost() {
    let mut manifest = affine(1);
    let touched = vec![argument(Slot::Arena { offset: 0 }, 512, Access::Write)];
    manifest.variants[0].arena_bytes = 512;
    let large = step("burn_much", 8, touched.clone());
    let small = step("burn_little", 8, touched.clone());
    let lone = step("burn_little", 1, touched);
    manifest.variants[0].steps = vec![[large, small.clone(), lone, small]; 10].concat();
    let artifact = pack(&manifest);
    let (x, mut y) = (ramp(1), ramp(1));
    for (threads, affinity) in [(1, Affinity::None), (2, Affinity::None), (2, Affinity::Pinned)] {
        let options = Options { threads, affinity, ..Options::default() };
        let mut model = Model::load_memory(artifact.clone(), &options).unwrap();
        let mut times = Vec::new();
        for _ in 0..ROUNDS / 4 {
            let start = Instant::now();
            model.run(&[as_bytes(&x)], &mut [as_bytes_mut(&mut y)]).unwrap();
            times.push(start.elapsed());
        }
        println!(
            "40 steps of mixed cost on {threads} thread(s), {affinity:?}: {}",
            quantiles(times)
        );
    }
}

/// One step whose tasks grow by their number: parts of equal numbers of tasks are not equal work.
fn uneven_cost() {
    let mut manifest = affine(1);
    manifest.variants[0].arena_bytes = 64 << 10;
    let touched = vec![argument(Slot::Arena { offset: 0 }, 64 << 10, Access::Write)];
    manifest.variants[0].steps = vec![step("burn_more_and_more", 256, touched)];
    let artifact = pack(&manifest);
    for threads in [1, 2] {
        let options = Options { threads, ..Options::default() };
        let mut model = Model::load_memory(artifact.clone(), &options).unwrap();
        let (x, mut y) = (ramp(1), ramp(1));
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let start = Instant::now();
            model.run(&[as_bytes(&x)], &mut [as_bytes_mut(&mut y)]).unwrap();
            times.push(start.elapsed());
        }
        println!("256 tasks of growing cost on {threads} thread(s): {}", quantiles(times));
    }
}

/// Softmax of 1,536 rows of 128 numbers between 0 and minus `spread`. Both take the same time where
/// subnormal numbers cost nothing.
fn softmax_cost(name: &str, spread: f32) {
    const SHAPE: [usize; 2] = [1536, 128];
    let elements = SHAPE[0] * SHAPE[1];
    let mut manifest = affine(elements / ROW);
    manifest.variants[0].steps = vec![step(
        "softmax",
        SHAPE[0],
        vec![
            argument(Slot::Input { index: 0, offset: 0 }, elements * 4, Access::Read),
            argument(Slot::Output { index: 0, offset: 0 }, elements * 4, Access::Write),
        ],
    )];
    let options = Options { threads: 1, ..Options::default() };
    let mut model = Model::load_memory(pack(&manifest), &options).unwrap();
    // The first of each row is 0, the others fill the last eighth before minus `spread`.
    let x = |i: usize| match i % SHAPE[1] {
        0 => 0.0,
        place => -spread * (1.0 - place as f32 / (8 * SHAPE[1]) as f32),
    };
    let x: Vec<f32> = (0..elements).map(x).collect();
    let mut y = vec![0f32; elements];
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        model.run(&[as_bytes(&x)], &mut [as_bytes_mut(&mut y)]).unwrap();
        times.push(start.elapsed());
    }
    println!("softmax of {SHAPE:?}, {name}: {}", quantiles(times));
}

/// As many weights as ResNet-50 has, and kernels that read little of them: the cost of loading alone.
fn load_cost(huge_pages: HugePages, verify: bool) {
    let bytes = 102 << 20;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.hone");
    write_large(&path, bytes);
    let options = Options { huge_pages, verify, ..Options::default() };
    let (x, mut y) = (ramp(2), ramp(2));
    let mut times = Vec::new();
    let before = forget_peak();
    for _ in 0..20 {
        let start = Instant::now();
        let mut model = Model::load(&path, &options).unwrap();
        model.run(&[as_bytes(&x)], &mut [as_bytes_mut(&mut y)]).unwrap();
        times.push(start.elapsed());
    }
    let peak = status("VmHWM:") - before;
    let checked = if verify { "checked" } else { "unchecked" };
    println!(
        "load and run {bytes} bytes of weights, {checked}, {huge_pages:?}: {}, peak {peak} KiB",
        quantiles(times)
    );
}

fn write_large(path: &Path, bytes: usize) {
    let mut manifest = affine(2);
    manifest.variants[0].weights_bytes = bytes as u64;
    let mut writer = Writer::new();
    writer.code(kernels());
    let mut packed = weights();
    packed.extend((packed.len()..bytes).map(|i| ((i * 31) >> 7) as u8));
    writer.weights(packed);
    writer.write_file(&manifest, path).unwrap();
}

/// Makes the peak start anew and gives the memory held now, in KiB.
fn forget_peak() -> u64 {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    status("VmRSS:")
}

fn status(line: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let found = status.lines().find_map(|text| text.strip_prefix(line)).unwrap();
    found.trim().trim_end_matches(" kB").parse().unwrap()
}
