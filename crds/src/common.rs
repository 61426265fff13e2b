//! Fields that more than one kind has.

use std::fmt;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a URI that is read or written may look like.
pub const URI_PATTERN: &str = r"^(s3|gs|az|https|file)://[^\s]+$";
/// What a digest that users see looks like.
pub const DIGEST_PATTERN: &str = "^sha256:[0-9a-f]{64}$";
/// A DNS label, as names inside lists are.
pub const LABEL_PATTERN: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// A DNS subdomain, as names of objects are.
pub const SUBDOMAIN_PATTERN: &str = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$";

/// A Secret in the same namespace. Its keys are options of the store, such as
/// `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalSecretRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253), regex(pattern = SUBDOMAIN_PATTERN))]
    pub name: String,
}

/// Where a model comes from.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("!self.uri.startsWith('https://') || has(self.digest)",
        "a model fetched over https needs a digest: set digest to sha256:<64 hex digits>"),
    validation = ("!self.uri.matches('^[a-z0-9]+://[^/]*@')",
        "a URI must not carry a user or password: use credentialsSecretRef"),
    validation = ("!self.uri.matches('(?i)[?&](x-amz-signature|x-goog-signature|x-amz-security-token|signature|sig|token)=')",
        "a URI must not carry a signature: use credentialsSecretRef"),
    validation = ("!self.uri.startsWith('file://') || !has(self.credentialsSecretRef)",
        "credentialsSecretRef has no meaning for file://: remove it"),
)]
pub struct ModelSource {
    /// `s3://`, `gs://`, `az://`, `https://` or `file://` (a local path or a mounted volume).
    #[schemars(length(max = 2048), regex(pattern = URI_PATTERN))]
    pub uri: String,
    /// SHA-256 of the file, checked before it is parsed. Without it the cache is not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 71), regex(pattern = DIGEST_PATTERN))]
    pub digest: Option<String>,
    /// Credentials for the store. They are mounted into the worker only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_secret_ref: Option<LocalSecretRef>,
}

/// Where every trial is recorded, in segments that are only ever added.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("!self.uri.startsWith('https://')",
        "the log cannot be https: use s3, gs, az or file"),
    validation = ("!self.uri.matches('^[a-z0-9]+://[^/]*@')",
        "a URI must not carry a user or password: use credentialsSecretRef"),
)]
pub struct Log {
    /// A folder of `s3://`, `gs://`, `az://` or `file://`, which no other run writes to.
    #[schemars(length(max = 2048), regex(pattern = URI_PATTERN))]
    pub uri: String,
    /// Credentials for the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_secret_ref: Option<LocalSecretRef>,
}

/// Arrays to compare or calibrate with: an `.npz` file whose arrays are named as the model's inputs are.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("!self.uri.startsWith('https://') || has(self.digest)",
        "samples fetched over https need a digest: set digest to sha256:<64 hex digits>"),
    validation = ("!self.uri.matches('^[a-z0-9]+://[^/]*@')",
        "a URI must not carry a user or password: use credentialsSecretRef"),
    validation = ("!self.uri.matches('(?i)[?&](x-amz-signature|x-goog-signature|x-amz-security-token|signature|sig|token)=')",
        "a URI must not carry a signature: use credentialsSecretRef"),
)]
pub struct SampleSource {
    /// Where the file is; schemes as for the model.
    #[schemars(length(max = 2048), regex(pattern = URI_PATTERN))]
    pub uri: String,
    /// SHA-256 of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 71), regex(pattern = DIGEST_PATTERN))]
    pub digest: Option<String>,
    /// Credentials for the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_secret_ref: Option<LocalSecretRef>,
}

/// Architectures, as Kubernetes names them.
pub const ARCH_PATTERN: &str = "^(amd64|arm64|riscv64)$";

/// Element types of tensors.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum ElementType {
    F16,
    Bf16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Bool,
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Arithmetic that a compilation may use.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum PrecisionType {
    F32,
    F16,
    Bf16,
    Int8,
}

impl fmt::Display for PrecisionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// What runs the result.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("!has(self.features) || has(self.cpu)",
        "features add to a cpu: set cpu, for example to generic"),
    validation = ("!has(self.accelerator) || !has(self.cpu) && !has(self.features)",
        "an accelerator runs every step: remove cpu and features"),
    validation = ("!has(self.accelerator) || self.os == 'linux'",
        "an accelerator is driven from linux: set os to linux"),
    validation = ("!has(self.accelerator) || self.arch != 'riscv64'",
        "there is no driver of accelerators for riscv64: set arch to amd64 or arm64"),
)]
pub struct Platform {
    /// Operating system.
    #[serde(default = "linux")]
    #[schemars(length(max = 32), regex(pattern = "^(linux|none)$"))]
    pub os: String,
    /// Architecture, as Kubernetes names it.
    #[schemars(length(max = 32), regex(pattern = ARCH_PATTERN))]
    pub arch: String,
    /// The processor as LLVM names it, such as `znver4`; what all of `arch` have when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = "^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")
    )]
    pub cpu: Option<String>,
    /// Features added to (`+x`) or taken from (`-x`) it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), inner(length(max = 64), regex(pattern = "^[+-][a-z0-9._-]+$")))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub features: Option<Vec<String>>,
    /// What runs every step in place of the processor, driven from a machine of `os` and `arch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<Accelerator>,
}

/// What runs models in place of the processor.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[schemars(inline)]
pub enum Accelerator {
    /// A GPU, or another device, with a driver for OpenCL 1.2 or newer.
    #[serde(rename = "opencl")]
    OpenCl,
    /// WebGPU in browsers: compiled on any node, and run on none.
    #[serde(rename = "webgpu")]
    WebGpu,
    /// NVIDIA's device of the worker's node, whichever it is.
    #[serde(rename = "cuda")]
    Cuda,
    /// NVIDIA's devices of compute capability 7.5 and later.
    #[serde(rename = "sm_75")]
    Sm75,
    /// Of 8.0 and later.
    #[serde(rename = "sm_80")]
    Sm80,
    /// Of 8.6 and later.
    #[serde(rename = "sm_86")]
    Sm86,
    /// Of 8.9 and later.
    #[serde(rename = "sm_89")]
    Sm89,
    /// Of 9.0 alone.
    #[serde(rename = "sm_90")]
    Sm90,
    /// The same, by the name of the code that is made.
    #[serde(rename = "sm_90a")]
    Sm90a,
}

impl Accelerator {
    /// The compute capability that NVIDIA's architectures begin with, as one number: 80 is 8.0.
    pub const fn capability(self) -> Option<u32> {
        match self {
            Self::OpenCl | Self::WebGpu | Self::Cuda => None,
            Self::Sm75 => Some(75),
            Self::Sm80 => Some(80),
            Self::Sm86 => Some(86),
            Self::Sm89 => Some(89),
            Self::Sm90 | Self::Sm90a => Some(90),
        }
    }

    /// Whether devices that a pool offers under this name run what is built for another: code for NVIDIA's older
    /// architectures runs on later devices, and all of them run OpenCL.
    pub fn runs(self, other: Self) -> bool {
        if other == Self::WebGpu {
            return self == other;
        }
        match (self.capability(), other.capability()) {
            (Some(own), Some(other)) => other <= own,
            // What `cuda` is, nobody has said.
            (Some(_), None) | (None, Some(_)) => self != Self::OpenCl,
            (None, None) => self == other || self == Self::Cuda,
        }
    }
}

impl fmt::Display for Accelerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

fn linux() -> String {
    "linux".to_owned()
}
