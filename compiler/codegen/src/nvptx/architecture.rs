//! The devices of NVIDIA's that code is made for.

use crate::Target;
use crate::error::{CodegenError, Result};
use hone_tensor::Limits;
use std::fmt;

/// A generation of NVIDIA's devices, by its compute capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Architecture {
    /// Turing: RTX 2080, T4.
    Sm75,
    /// Ampere: A100.
    Sm80,
    /// Ampere: A10, RTX 3090.
    Sm86,
    /// Ada: L4, L40, RTX 4090.
    Sm89,
    /// Hopper: H100, H200, with what later generations no longer have.
    Sm90a,
}

impl Architecture {
    /// Every one, oldest first.
    pub const ALL: [Architecture; 5] = [
        Architecture::Sm75,
        Architecture::Sm80,
        Architecture::Sm86,
        Architecture::Sm89,
        Architecture::Sm90a,
    ];

    /// Its name, such as `sm_80`.
    pub const fn name(self) -> &'static str {
        match self {
            Architecture::Sm75 => "sm_75",
            Architecture::Sm80 => "sm_80",
            Architecture::Sm86 => "sm_86",
            Architecture::Sm89 => "sm_89",
            Architecture::Sm90a => "sm_90a",
        }
    }

    /// The architecture of a name such as `sm_80`.
    ///
    /// # Errors
    /// A name that is none of [`Architecture::ALL`], with those that are.
    pub fn named(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name).ok_or_else(|| {
            let known: Vec<&str> =
                Self::ALL.iter().map(|architecture| architecture.name()).collect();
            let message = format!("known architectures of NVIDIA's are {}", known.join(", "));
            CodegenError::Target { target: name.to_string(), message }
        })
    }

    /// What a launch may use: 1,024 lanes of a block, 48 KiB of shared memory whose size is known when the kernel is
    /// assembled, and 65,535 blocks along each dimension (along `x` there may be more).
    pub const fn limits(self) -> Limits {
        Limits { blocks: 65_535, lanes_along: [1024, 1024, 64], lanes: 1024, shared_bytes: 49_152 }
    }

    /// Whether there are `mma.sync` for bfloat16 and asynchronous copies into shared memory.
    pub const fn has_asynchronous_copies(self) -> bool {
        !matches!(self, Architecture::Sm75)
    }

    /// Whether there is `wgmma`, by which warpgroups of 128 lanes multiply out of shared memory.
    pub const fn has_warpgroups(self) -> bool {
        matches!(self, Architecture::Sm90a)
    }

    /// Bytes of shared memory of a block where a launch asks for them (CUDA C++ Programming Guide, technical specifications
    /// per compute capability).
    pub const fn largest_shared_bytes(self) -> usize {
        let kilobytes = match self {
            Architecture::Sm75 => 64,
            Architecture::Sm80 => 163,
            Architecture::Sm86 | Architecture::Sm89 => 99,
            Architecture::Sm90a => 227,
        };
        kilobytes << 10
    }

    /// The version of PTX, by LLVM's name of the feature: the oldest that has the architecture, since a driver reads
    /// no text of a later version than its own.
    const fn version(self) -> &'static str {
        match self {
            Architecture::Sm75 | Architecture::Sm80 | Architecture::Sm86 => "+ptx71",
            Architecture::Sm89 => "+ptx78",
            Architecture::Sm90a => "+ptx80",
        }
    }

    pub(super) fn target(self) -> Target {
        Target {
            triple: "nvptx64-nvidia-cuda".to_string(),
            cpu: self.name().to_string(),
            features: vec![self.version().to_string()],
            resolved: vec![],
            vector_bytes: 16,
            vector_registers: 64,
            masks: false,
            half_conversion: true,
            bfloat_conversion: false,
            rounding: true,
            scaling: false,
        }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
