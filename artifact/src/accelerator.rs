//! Code for an accelerator: a device of many lanes beside the processor, on which kernels are launched.
//!
//! Such a variant keeps the step table, the memory plan and the program of any other; arena, weights, inputs and
//! outputs lie in the device's memory. A step's kernel is a list of [`Command`]s here, and the code section holds
//! what the device's driver makes the launched kernels of, in the [`Language`] that is named. The words are CUDA's
//! and OpenCL's: a *grid* of *blocks* (work-groups) of *lanes* (threads, work-items).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What runs the steps of a variant in place of the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Accelerator {
    /// A device of OpenCL 1.2 or newer.
    #[serde(rename = "opencl")]
    OpenCl,
    /// A device of WebGPU, in a browser or elsewhere.
    #[serde(rename = "webgpu")]
    WebGpu,
    /// NVIDIA's devices of compute capability 7.5 and later: Turing.
    #[serde(rename = "sm_75")]
    Sm75,
    /// Of 8.0 and later: Ampere, A100.
    #[serde(rename = "sm_80")]
    Sm80,
    /// Of 8.6 and later: Ampere, A10.
    #[serde(rename = "sm_86")]
    Sm86,
    /// Of 8.9 and later: Ada.
    #[serde(rename = "sm_89")]
    Sm89,
    /// Of 9.0 alone: Hopper.
    #[serde(rename = "sm_90a")]
    Sm90a,
}

/// By which interface a device is driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceApi {
    /// OpenCL's loader.
    OpenCl,
    /// The library of NVIDIA's driver.
    Cuda,
    /// WebGPU, which browsers have. The runtime does not drive it.
    WebGpu,
}

impl DeviceApi {
    /// Those that the runtime drives.
    pub const ALL: [DeviceApi; 2] = [DeviceApi::OpenCl, DeviceApi::Cuda];

    /// Its name, for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OpenCl => "OpenCL",
            Self::Cuda => "CUDA",
            Self::WebGpu => "WebGPU",
        }
    }
}

impl fmt::Display for DeviceApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Accelerator {
    /// Every accelerator; NVIDIA's architectures oldest first.
    pub const ALL: [Accelerator; 7] =
        [Self::OpenCl, Self::WebGpu, Self::Sm75, Self::Sm80, Self::Sm86, Self::Sm89, Self::Sm90a];

    /// The word that requests, specs and manifests use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OpenCl => "opencl",
            Self::WebGpu => "webgpu",
            Self::Sm75 => "sm_75",
            Self::Sm80 => "sm_80",
            Self::Sm86 => "sm_86",
            Self::Sm89 => "sm_89",
            Self::Sm90a => "sm_90a",
        }
    }

    /// What drives its devices.
    pub const fn api(self) -> DeviceApi {
        match self {
            Self::OpenCl => DeviceApi::OpenCl,
            Self::WebGpu => DeviceApi::WebGpu,
            _ => DeviceApi::Cuda,
        }
    }

    /// What the code section of its variants holds.
    pub const fn language(self) -> Language {
        match self.api() {
            DeviceApi::OpenCl => Language::OpenClC,
            DeviceApi::Cuda => Language::Ptx,
            DeviceApi::WebGpu => Language::Wgsl,
        }
    }

    /// The compute capability that NVIDIA's architectures begin with.
    pub const fn capability(self) -> Option<(u32, u32)> {
        match self {
            Self::OpenCl | Self::WebGpu => None,
            Self::Sm75 => Some((7, 5)),
            Self::Sm80 => Some((8, 0)),
            Self::Sm86 => Some((8, 6)),
            Self::Sm89 => Some((8, 9)),
            Self::Sm90a => Some((9, 0)),
        }
    }

    /// Whether a device of a compute capability runs its code: PTX runs on all later devices too, but for that with an
    /// `a` behind the architecture's name.
    pub fn runs_on(self, capability: (u32, u32)) -> bool {
        match self {
            Self::Sm90a => capability == (9, 0),
            _ => self.capability().is_some_and(|least| capability >= least),
        }
    }

    /// The newest of NVIDIA's architectures whose code a device of a compute capability runs.
    pub fn of_capability(capability: (u32, u32)) -> Option<Self> {
        Self::ALL.into_iter().rev().find(|own| own.runs_on(capability))
    }

    /// The oldest version of CUDA whose driver reads its PTX: the first that knows the architecture, and 11.1 for older
    /// ones.
    pub const fn least_driver(self) -> (u32, u32) {
        match self {
            Self::Sm89 => (11, 8),
            Self::Sm90a => (12, 0),
            _ => (11, 1),
        }
    }
}

impl fmt::Display for Accelerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that names no accelerator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no accelerator '{word}': use {}", known())]
pub struct UnknownAccelerator {
    /// The word.
    pub word: String,
}

fn known() -> String {
    let names = Accelerator::ALL.map(Accelerator::name);
    let (last, others) = names.split_last().unwrap_or((&"", &[]));
    format!("{} or {last}", others.join(", "))
}

impl FromStr for Accelerator {
    type Err = UnknownAccelerator;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        // The code for Hopper needs the device that sm_90 stands for.
        let name = if word == "sm_90" { "sm_90a" } else { word };
        let found = Self::ALL.into_iter().find(|own| own.name() == name);
        found.ok_or_else(|| UnknownAccelerator { word: word.to_owned() })
    }
}

/// What the code section of such a variant holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Language {
    /// OpenCL C 1.2 in UTF-8: one text with every kernel, which the driver compiles when the artifact is loaded.
    #[serde(rename = "opencl-c")]
    OpenClC,
    /// PTX in UTF-8: one text with every kernel, which the driver assembles when the artifact is loaded.
    #[serde(rename = "ptx")]
    Ptx,
    /// WGSL without extensions in UTF-8: one text with every kernel. Buffers and counters are bindings of group 0 in
    /// the order of a launch's arguments; every buffer is of `read_write` access, a counter is a uniform `i32`.
    #[serde(rename = "wgsl")]
    Wgsl,
}

impl Language {
    /// Its name, for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OpenClC => "OpenCL C",
            Self::Ptx => "PTX",
            Self::Wgsl => "WGSL",
        }
    }
}

/// How the steps of a variant are launched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceCode {
    /// What the code section holds.
    pub language: Language,
    /// What the device has to offer.
    pub limits: DeviceLimits,
    /// What each kernel of the step table is, by its symbol; every symbol of the step table once.
    pub kernels: Vec<DeviceKernel>,
}

impl DeviceCode {
    /// The commands of a kernel of the step table.
    pub fn commands(&self, symbol: &str) -> Option<&[Command]> {
        let found = self.kernels.iter().find(|kernel| kernel.symbol == symbol);
        found.map(|kernel| kernel.commands.as_slice())
    }
}

/// What a device has to offer to run a variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceLimits {
    /// Lanes of a block in all.
    pub lanes: u64,
    /// Lanes of a block along `x`, `y` and `z`.
    pub lanes_along: [u64; 3],
    /// Bytes of shared memory of a block.
    pub shared_bytes: u64,
    /// Every offset of a step's argument in the arena and the weights is a multiple of so many bytes, for devices
    /// that give access to part of a buffer at such offsets alone.
    pub alignment: u64,
    /// Buffers that a launch is given at most, where devices have a limit of them, as WebGPU's do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_buffers: Option<u64>,
}

/// A kernel of the step table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceKernel {
    /// [`crate::Step::kernel`].
    pub symbol: String,
    /// What runs, in order; each command sees what those before it stored.
    pub commands: Vec<Command>,
}

/// A part of a kernel of the step table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Command {
    /// A launch.
    Launch(Launch),
    /// The same again and again, with a counter from 0.
    Repeat {
        /// How often.
        times: u64,
        /// What is repeated.
        body: Vec<Command>,
    },
}

/// A launch: every lane of a grid of blocks runs one kernel of the code section.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Launch {
    /// The kernel's name in the code section.
    pub kernel: String,
    /// Blocks along `x`, `y` and `z`.
    pub grid: [u64; 3],
    /// Lanes of a block along `x`, `y` and `z`.
    pub block: [u64; 3],
    /// Bytes of shared memory of a block: what the kernel declares in the code and, of CUDA, what the launch asks for besides.
    pub shared_bytes: u64,
    /// The kernel's arguments, in order.
    pub arguments: Vec<LaunchArgument>,
}

/// An argument of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LaunchArgument {
    /// The address of the step's argument of this number.
    Buffer(u32),
    /// The counter of a repetition around the launch, counted from the outermost: a 64-bit integer.
    Counter(u32),
}

/// Repetitions lie in one another no deeper.
pub const MAX_REPEAT_DEPTH: usize = 16;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn words_are_read_as_they_are_written() {
        for own in Accelerator::ALL {
            assert_eq!(own.name().parse(), Ok(own));
            assert_eq!(serde_json::to_string(&own).unwrap(), format!("\"{own}\""));
        }
        assert_eq!("sm_90".parse(), Ok(Accelerator::Sm90a));
        let error = "sm_70".parse::<Accelerator>().unwrap_err();
        let known = "opencl, webgpu, sm_75, sm_80, sm_86, sm_89 or sm_90a";
        assert_eq!(error.to_string(), format!("there is no accelerator 'sm_70': use {known}"));
    }

    #[test]
    fn a_device_gets_the_newest_architecture_that_it_runs() {
        let newest = |capability| Accelerator::of_capability(capability).map(Accelerator::name);
        assert_eq!(newest((7, 0)), None);
        assert_eq!(newest((7, 5)), Some("sm_75"));
        assert_eq!(newest((8, 7)), Some("sm_86"));
        assert_eq!(newest((9, 0)), Some("sm_90a"));
        // Later devices do not run what is for 9.0 alone.
        assert_eq!(newest((12, 0)), Some("sm_89"));
        assert!(!Accelerator::OpenCl.runs_on((9, 0)));
    }
}
