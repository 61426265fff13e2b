//! Measures what this machine can do, with code made here.

use crate::error::{CodegenError, Result};
use crate::llvm::ir::{Ir, T, V};
use crate::{ObjectCode, Target, compile, link};
use hone_machine::{Cache, Measured};
use inkwell::AddressSpace;
use inkwell::IntPredicate;
use inkwell::context::Context;
use inkwell::values::{BasicValue, IntValue, PhiValue, PointerValue};
use std::ffi::c_void;
use std::time::{Duration, Instant};

/// Independent chains for vectors of `vector_bytes`: at least ten hide the latency of an instruction on
/// every known core (five cycles, two a cycle), and all of them stay in registers, of which x86 has 16
/// where its vectors are no longer than 32 bytes.
fn chains_for(vector_bytes: usize) -> usize {
    if vector_bytes < 64 { 12 } else { 24 }
}

/// Rounds of one measured call: some tens of microseconds.
const ROUNDS: i64 = 10_000;

/// Measures this machine with the widest vectors it has; takes about half a second.
pub fn probe() -> Result<Measured> {
    probe_as(&Target::host()?)
}

/// Measures what code for `target` reaches on this machine, which must be able to execute it: code with
/// shorter vectors than the machine's has a lower peak.
pub fn probe_as(target: &Target) -> Result<Measured> {
    let chains_kept = chains_for(target.vector_bytes);
    let lanes = (target.vector_bytes / 4) as u32;
    let has_512_bits = target.vector_bytes == 64;
    let rate = |peak: Peak, operations: f64| -> Result<f64> {
        let kernel = Loaded::new(target, |ir| chains(ir, peak, lanes, chains_kept))?;
        let seconds = kernel.best_seconds(&mut [0u64; 8], ROUNDS);
        Ok(operations * chains_kept as f64 * ROUNDS as f64 / seconds / 1e9)
    };
    let f32_gflops = rate(Peak::MultiplyAdd, 2.0 * f64::from(lanes))?;
    let dot = |feature: &str, peak: Peak, per_lane: f64| -> Result<Option<f64>> {
        match has_512_bits && target.has_feature(feature) {
            true => rate(peak, per_lane * f64::from(lanes)).map(Some),
            false => Ok(None),
        }
    };
    let int8_gops = dot("avx512vnni", Peak::Int8Dot, 8.0)?;
    let bf16_gflops = dot("avx512bf16", Peak::BfloatDot, 4.0)?;
    let caches = caches();
    let memory_gbytes = memory_rate(target, lanes, &caches)?;
    Ok(Measured { f32_gflops, int8_gops, bf16_gflops, caches, memory_gbytes })
}

/// Which instruction a peak is measured of.
#[derive(Clone, Copy)]
enum Peak {
    MultiplyAdd,
    Int8Dot,
    BfloatDot,
}

fn memory_rate(target: &Target, lanes: u32, caches: &[Cache]) -> Result<f64> {
    let last_level = caches.iter().map(|cache| cache.bytes).max().unwrap_or(32 << 20);
    let bytes = bytes_to_read(last_level, memory_left()) as usize;
    // Written first: pages that nobody wrote are all the same page of zeros, which stays in the first cache.
    let mut memory: Vec<u64> = (0..bytes as u64 / 8 + 8).collect();
    let kernel = Loaded::new(target, |ir| reader(ir, lanes))?;
    let step = STREAM * lanes as usize * 4;
    let rounds = (bytes / step) as i64;
    let seconds = kernel.best_seconds(&mut memory, rounds);
    Ok(rounds as f64 * step as f64 / seconds / 1e9)
}

/// Bytes that are read to measure the rate of memory: several times the last-level cache, but no more than a quarter of
/// what the process may still take, so that a container with little memory is not killed for it. Where that is less than
/// the cache, what is measured is the cache.
fn bytes_to_read(last_level: u64, left: Option<u64>) -> u64 {
    let most = left.map_or(512 << 20, |left| (left / 4).clamp(16 << 20, 512 << 20));
    last_level.saturating_mul(4).max(64 << 20).min(most)
}

/// Bytes that the control group of this process, where it is a container's, may still take; nothing where it is not
/// bounded. Pages of files count as taken, though the system can take them back.
fn memory_left() -> Option<u64> {
    let number = |name: &str| -> Option<u64> {
        std::fs::read_to_string(format!("/sys/fs/cgroup/{name}")).ok()?.trim().parse().ok()
    };
    let left = |limit, taken| Some(number(limit)?.saturating_sub(number(taken)?));
    left("memory.max", "memory.current").or_else(|| {
        // The first version of control groups.
        left("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")
    })
}

/// Vectors that one round of the reader loads.
const STREAM: usize = 8;

/// `void probe(memory, rounds)`: `count` chains of one instruction, `rounds` long.
fn chains<'c>(ir: &Ir<'c>, peak: Peak, lanes: u32, count: usize) -> Result<()> {
    let context = ir.context;
    let (accumulator, factor): (T<'c>, T<'c>) = match peak {
        Peak::MultiplyAdd => {
            let ty = context.f32_type().vec_type(lanes).into();
            (ty, ty)
        }
        Peak::Int8Dot => {
            let ty = context.i32_type().vec_type(lanes).into();
            (ty, ty)
        }
        Peak::BfloatDot => (
            context.f32_type().vec_type(lanes).into(),
            context.bf16_type().vec_type(2 * lanes).into(),
        ),
    };
    counted(ir, accumulator, count, |ir, memory, _, before| {
        let a = ir.load(factor, memory, 8)?;
        before
            .iter()
            .map(|sum| match peak {
                Peak::MultiplyAdd => ir.multiply_add(a, a, *sum),
                Peak::Int8Dot => ir.intrinsic("llvm.x86.avx512.vpdpbusd.512", &[], &[*sum, a, a]),
                Peak::BfloatDot => {
                    ir.intrinsic("llvm.x86.avx512bf16.dpbf16ps.512", &[], &[*sum, a, a])
                }
            })
            .collect()
    })
}

/// `void probe(memory, rounds)`: adds up all of `memory`.
fn reader<'c>(ir: &Ir<'c>, lanes: u32) -> Result<()> {
    let ty: T<'c> = ir.context.i32_type().vec_type(lanes).into();
    let bytes = i64::from(lanes) * 4;
    counted(ir, ty, STREAM, |ir, memory, round, before| {
        let step = ir.builder.build_int_mul(round, ir.i64(bytes * STREAM as i64), "")?;
        let start = ir.offset(memory, step)?;
        before
            .iter()
            .zip(0..)
            .map(|(sum, index)| {
                let value = ir.load(ty, ir.offset(start, ir.i64(index * bytes))?, 8)?;
                ir.binary(inkwell::values::InstructionOpcode::Add, *sum, value)
            })
            .collect()
    })
}

/// `void probe(memory, rounds)`: a loop that carries `count` vectors, stored at the end so that none
/// is left out.
fn counted<'c>(
    ir: &Ir<'c>,
    ty: T<'c>,
    count: usize,
    body: impl FnOnce(&Ir<'c>, PointerValue<'c>, IntValue<'c>, &[V<'c>]) -> Result<Vec<V<'c>>>,
) -> Result<()> {
    let context = ir.context;
    let (pointer, number) = (context.ptr_type(AddressSpace::default()), context.i64_type());
    let signature = context.void_type().fn_type(&[pointer.into(), number.into()], false);
    let function = ir.module.add_function("probe", signature, None);
    let [memory, rounds] = function.get_params()[..] else { return Ok(()) };
    let (memory, rounds) = (memory.into_pointer_value(), rounds.into_int_value());
    let (entry, head, after) =
        (ir.block(function, "entry"), ir.block(function, "loop"), ir.block(function, "done"));
    ir.builder.position_at_end(entry);
    ir.builder.build_unconditional_branch(head)?;
    ir.builder.position_at_end(head);
    let zero = match super::llvm::ir::scalar_of(ty) {
        T::FloatType(_) => ir.float(ty, 0.0),
        _ => ir.int(ty, 0),
    };
    let round = ir.builder.build_phi(number, "")?;
    round.add_incoming(&[(&ir.i64(0), entry)]);
    let carried: Vec<PhiValue<'c>> =
        (0..count).map(|_| ir.builder.build_phi(ty, "")).collect::<std::result::Result<_, _>>()?;
    let before: Vec<V<'c>> = carried.iter().map(|phi| phi.as_basic_value()).collect();
    let iteration = round.as_basic_value().into_int_value();
    let results = body(ir, memory, iteration, &before)?;
    for (phi, result) in carried.iter().zip(&results) {
        phi.add_incoming(&[(&zero as &dyn BasicValue<'c>, entry), (result, head)]);
    }
    let next = ir.builder.build_int_add(iteration, ir.i64(1), "")?;
    round.add_incoming(&[(&next, head)]);
    let continues = ir.builder.build_int_compare(IntPredicate::SLT, next, rounds, "")?;
    ir.builder.build_conditional_branch(continues, head, after)?;
    ir.builder.position_at_end(after);
    for result in results {
        let store = ir.builder.build_store(memory, result)?;
        let _ = store.set_volatile(true);
        let _ = store.set_alignment(8);
    }
    ir.builder.build_return(None)?;
    Ok(())
}

/// A probe's code in this process.
struct Loaded {
    entry: unsafe extern "C" fn(*mut c_void, i64),
    _library: libloading::Library,
}

impl Loaded {
    fn new(target: &Target, build: impl FnOnce(&Ir<'_>) -> Result<()>) -> Result<Self> {
        let context = Context::create();
        let ir = Ir::new(&context, "probe", target);
        build(&ir)?;
        let bytes = compile::object(&ir.module, target, "probe")?;
        let object = ObjectCode { bytes, kernels: vec![] };
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), link(&[object], target)?)?;
        let failed = |error: libloading::Error| CodegenError::Link { message: error.to_string() };
        // SAFETY: the object was made above; it has no initializers, and `probe` has this interface.
        unsafe {
            let library = libloading::Library::new(file.path()).map_err(failed)?;
            let entry = *library.get(b"probe").map_err(failed)?;
            Ok(Self { entry, _library: library })
        }
    }

    /// The minimum of many runs: the machine's speed without other work on it.
    fn best_seconds(&self, memory: &mut [u64], rounds: i64) -> f64 {
        let until = Instant::now() + Duration::from_millis(80);
        let mut best = f64::INFINITY;
        for run in 0.. {
            let start = Instant::now();
            // SAFETY: the code reads as much memory as the rounds say, or one vector, and writes one.
            unsafe { (self.entry)(memory.as_mut_ptr().cast(), rounds) };
            best = best.min(start.elapsed().as_secs_f64());
            if run >= 3 && Instant::now() > until {
                break;
            }
        }
        best
    }
}

/// The data caches of the first core as the operating system reports them; none where it does not.
fn caches() -> Vec<Cache> {
    let mut caches = Vec::new();
    for index in 0..8 {
        let read = |name: &str| {
            let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{name}");
            std::fs::read_to_string(path).map(|text| text.trim().to_string()).ok()
        };
        let (Some(kind), Some(level), Some(size)) = (read("type"), read("level"), read("size"))
        else {
            continue;
        };
        let kilobytes = size.strip_suffix('K').and_then(|number| number.parse::<u64>().ok());
        if let (Ok(level), Some(kilobytes)) = (level.parse(), kilobytes)
            && kind != "Instruction"
        {
            caches.push(Cache { level, bytes: kilobytes << 10 });
        }
    }
    caches.sort_by_key(|cache| cache.level);
    caches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_with_little_memory_reads_little() {
        let mebibytes = |last_level: u64, left: Option<u64>| {
            bytes_to_read(last_level << 20, left.map(|left| left << 20)) >> 20
        };
        assert_eq!(mebibytes(32, None), 128);
        assert_eq!(mebibytes(4, None), 64);
        assert_eq!(mebibytes(480, None), 512);
        assert_eq!(mebibytes(480, Some(4096)), 512);
        assert_eq!(mebibytes(480, Some(160)), 40);
        assert_eq!(mebibytes(480, Some(10)), 16);
        assert_eq!(mebibytes(u64::MAX >> 20, None), 512);
    }
}
