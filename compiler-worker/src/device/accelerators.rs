//! Accelerators of this machine: what their drivers say, and what they were measured to reach.
//!
//! The probe is an artifact like any other, of three kernels in OpenCL C: so it is launched and timed by what launches
//! and times models. There is none for CUDA yet.

use hone_artifact::{
    Accelerator, Access, Argument, Command, DeviceApi, DeviceCode, DeviceKernel, DeviceLimits,
    Language, Launch, LaunchArgument, Manifest, SCHEMA_VERSION, Slot, Step, Target, Variant,
    Writer,
};
use hone_runtime::{DeviceInfo, Model, Options, Profile};
use serde::Serialize;

use super::{Facts, Peaks};
use crate::storage::sha256;

/// Lanes of a block of the probe.
const LANES: u64 = 256;
/// Blocks for each unit of the device.
const BLOCKS: u64 = 32;
/// Floating-point operations of a lane: 512 rounds of eight chains of four fused multiply-adds.
const FLOPS: u64 = 512 * 8 * 4 * 2;
/// Bytes that are read, where the device has as many: more than its caches hold.
const BYTES: u64 = 256 << 20;
/// Runs, of which the fastest counts.
const RUNS: usize = 5;

const KERNELS: &str = "
__kernel void fill(__global float4* data) {
  for (long i = get_global_id(0); i < VECTORS; i += get_global_size(0)) data[i] = (float4)(1.0f);
}
__kernel void add(__global const float4* data, __global float4* sums) {
  float4 sum = (float4)(0.0f);
  for (long i = get_global_id(0); i < VECTORS; i += get_global_size(0)) sum += data[i];
  sums[get_global_id(0)] = sum;
}
__kernel void multiply_add(__global float4* sums) {
  float4 c[8];
  const float4 x = (float4)(0.999f), y = (float4)(0.001f);
  for (int k = 0; k < 8; ++k) c[k] = (float4)((float)(get_local_id(0) + k));
  for (long i = 0; i < 512; ++i)
    for (int k = 0; k < 8; ++k) c[k] = fma(c[k], x, y);
  sums[get_global_id(0)] = c[0] + c[1] + c[2] + c[3] + c[4] + c[5] + c[6] + c[7];
}
";

/// A device as it is shown, and as fingerprints know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceFacts {
    /// What drives it: `OpenCL` or `CUDA`.
    pub api: &'static str,
    /// Its number among the devices of the machine that this drives, by which `HONE_OPENCL_DEVICE`, or
    /// `HONE_CUDA_DEVICE`, names it.
    pub number: usize,
    /// Its name.
    pub name: String,
    /// Who makes it.
    pub vendor: String,
    /// What it is: `GPU`, `processor` or `accelerator`.
    pub kind: &'static str,
    /// The platform of its driver.
    pub platform: String,
    /// Version of the driver.
    pub driver: String,
    /// Version of OpenCL, or compute capability.
    pub version: String,
    /// Units that run blocks side by side.
    pub compute_units: u32,
    /// Bytes of global memory.
    pub memory_bytes: u64,
    /// Bytes of memory that the lanes of a block share.
    pub shared_bytes: u64,
}

impl DeviceFacts {
    /// Of what the driver says.
    pub fn of(info: &DeviceInfo) -> Self {
        Self {
            api: info.api.name(),
            number: info.number,
            name: info.name.clone(),
            vendor: info.vendor.clone(),
            kind: info.kind.name(),
            platform: info.platform.clone(),
            driver: info.driver.clone(),
            version: info.version.clone(),
            compute_units: info.compute_units,
            memory_bytes: info.memory_bytes,
            shared_bytes: info.shared_bytes,
        }
    }

    /// Name and driver, for reports, which keep no more than 96 characters: of a long name the beginning.
    pub fn title(&self) -> String {
        let name: String = self.name.chars().take(56).collect();
        let driver: String = self.driver.chars().take(20).collect();
        format!("{} {name}, driver {driver}", self.api)
    }
}

/// `sha256:` of the facts of a machine and of the device that it measures on, without the device's number, which
/// changes as devices come and go.
pub fn fingerprint_with(facts: &Facts, info: &DeviceInfo) -> String {
    let device = DeviceFacts { number: 0, ..DeviceFacts::of(info) };
    // Plain data always has a JSON form.
    sha256(serde_json::to_string(&(facts, device)).unwrap_or_default().as_bytes())
}

/// Measures what a device reaches; `None` where it cannot run the probe, which there is for OpenCL alone.
pub fn device_peaks(info: &DeviceInfo) -> Option<Peaks> {
    if info.api != DeviceApi::OpenCl {
        return None;
    }
    let options = Options { device: Some(info.number), ..Options::default() };
    let probe = Probe::new(info);
    let mut model = Model::load_memory(probe.artifact()?, &options).ok()?;
    let mut profile = Profile::new(&model);
    let mut best = [f64::INFINITY; 3];
    for _ in 0..RUNS {
        model.run_profiled(&[], &mut [], &mut profile).ok()?;
        for (best, step) in best.iter_mut().zip(&profile.steps) {
            *best = best.min(step.time.as_secs_f64());
        }
    }
    let [_, read, arithmetic] = best.map(|seconds| (seconds > 0.0).then_some(seconds));
    Some(Peaks {
        threads: info.compute_units as usize,
        flops: (probe.lanes * FLOPS) as f64 / arithmetic?,
        bandwidth: probe.bytes as f64 / read?,
        int8: None,
        bf16: None,
    })
}

/// Sizes of the probe for a device.
struct Probe {
    blocks: u64,
    lanes: u64,
    bytes: u64,
}

impl Probe {
    fn new(info: &DeviceInfo) -> Self {
        let blocks = u64::from(info.compute_units.max(1)) * BLOCKS;
        let bytes = BYTES.min(info.buffer_bytes / 2).min(info.memory_bytes / 4) / 4096 * 4096;
        Self { blocks, lanes: blocks * LANES, bytes }
    }

    fn artifact(&self) -> Option<Vec<u8>> {
        let mut writer = Writer::new();
        let text = format!("#define VECTORS {}L\n{KERNELS}", self.bytes / 16);
        let (code, weights) = (writer.code(text.into_bytes()), writer.weights(Vec::new()));
        let data = Argument {
            slot: Slot::Arena { offset: 0 },
            bytes: self.bytes,
            access: Access::ReadWrite,
        };
        let sums = Argument {
            slot: Slot::Arena { offset: self.bytes },
            bytes: 16 * self.lanes,
            access: Access::Write,
        };
        let kernels = [
            ("fill", vec![data.clone()]),
            ("add", vec![data, sums.clone()]),
            ("multiply_add", vec![sums]),
        ];
        let steps = kernels.iter().map(|(name, arguments)| Step {
            nodes: vec![(*name).to_owned()],
            kernel: (*name).to_owned(),
            tasks: 1,
            min_tasks_per_thread: 1,
            beside: None,
            waves: None,
            arguments: arguments.clone(),
            flops: 0,
            bytes_read: 0,
            bytes_written: 0,
        });
        let launches = kernels.iter().map(|(name, arguments)| self.kernel(name, arguments.len()));
        let limits = DeviceLimits {
            lanes: LANES,
            lanes_along: [LANES, 1, 1],
            shared_bytes: 0,
            alignment: 4096,
            storage_buffers: None,
        };
        let device =
            DeviceCode { language: Language::OpenClC, limits, kernels: launches.collect() };
        let variant = Variant {
            target: Target {
                triple: format!("{}-unknown-linux-gnu", std::env::consts::ARCH),
                cpu: String::new(),
                features: Vec::new(),
                accelerator: Some(Accelerator::OpenCl),
            },
            code,
            weights,
            weights_bytes: 0,
            arena_bytes: self.bytes + 16 * self.lanes,
            scratch_bytes_per_thread: 0,
            steps: steps.collect(),
            program: Vec::new(),
            extents: Vec::new(),
            shapes: None,
            device: Some(device),
            recipe: None,
        };
        let version = env!("CARGO_PKG_VERSION");
        let manifest = Manifest::without_model(SCHEMA_VERSION, version, variant);
        writer.to_bytes(&manifest).ok()
    }

    /// A kernel that gets so many buffers.
    fn kernel(&self, name: &str, buffers: usize) -> DeviceKernel {
        let buffers = (0..buffers as u32).map(LaunchArgument::Buffer);
        let launch = Launch {
            kernel: name.to_owned(),
            grid: [self.blocks, 1, 1],
            block: [LANES, 1, 1],
            shared_bytes: 0,
            arguments: buffers.collect(),
        };
        DeviceKernel { symbol: name.to_owned(), commands: vec![Command::Launch(launch)] }
    }
}
