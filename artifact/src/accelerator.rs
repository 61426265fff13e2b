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
}

impl Accelerator {
    /// Every accelerator.
    pub const ALL: [Accelerator; 1] = [Accelerator::OpenCl];

    /// The word that requests, specs and manifests use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OpenCl => "opencl",
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
    Accelerator::ALL.map(Accelerator::name).join(" or ")
}

impl FromStr for Accelerator {
    type Err = UnknownAccelerator;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|own| own.name() == word);
        found.ok_or_else(|| UnknownAccelerator { word: word.to_owned() })
    }
}

/// What the code section of such a variant holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Language {
    /// OpenCL C 1.2 in UTF-8: one text with every kernel, which the driver compiles when the artifact is loaded.
    #[serde(rename = "opencl-c")]
    OpenClC,
}

impl Language {
    /// Its name, for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OpenClC => "OpenCL C",
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
    /// Bytes of shared memory that a block declares in the code.
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
        let error = "cuda".parse::<Accelerator>().unwrap_err();
        assert_eq!(error.to_string(), "there is no accelerator 'cuda': use opencl");
    }
}
