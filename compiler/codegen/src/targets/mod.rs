//! The machines that code is made for. A target is a file here and a line in [`FAMILIES`].

mod aarch64;
mod host_tiles;
mod riscv64;
mod table;
mod x86_64;

use crate::error::{CodegenError, Result};
use crate::intrinsics::{Gain, instruction};
use hone_tensor::Intrinsic;
use hone_types::DataType;
use inkwell::OptimizationLevel;
use inkwell::llvm_sys::support::LLVMParseCommandLineOptions;
use inkwell::targets::{
    CodeModel, InitializationConfig, RelocMode, TargetMachine, TargetMachineOptions, TargetTriple,
};
use std::ffi::CStr;

/// What one instruction-set family brings to a [`Target`].
pub(crate) struct Family {
    /// Names of the architecture: the API's first, LLVM's last.
    names: &'static [&'static str],
    /// Registers the family's code generator with LLVM.
    initialize: fn(),
    /// The processor meant where none is named.
    default_cpu: &'static str,
    /// Features that every Linux machine of the family has, where LLVM does not imply them.
    common_features: &'static [&'static str],
    /// The feature without which a processor cannot run code of the family, where LLVM lists such
    /// processors.
    needed_feature: Option<&'static str>,
    /// Name of the calling convention, where LLVM's choice is not that of Linux.
    abi: Option<&'static str>,
    /// Width of a vector register in bytes under these features.
    vector_bytes: fn(features: &Features) -> usize,
    /// Number of vector registers under these features.
    vector_registers: fn(features: &Features) -> usize,
    /// Whether loads and stores of part of a vector are single instructions.
    masks: fn(features: &Features) -> bool,
}

/// Every family.
const FAMILIES: [&Family; 3] = [&x86_64::FAMILY, &aarch64::FAMILY, &riscv64::FAMILY];

/// Features by LLVM's names (`+name`), as LLVM resolved them for a processor.
pub(crate) struct Features<'a>(&'a [String]);

impl Features<'_> {
    /// Whether `name` is switched on.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|feature| feature.strip_prefix('+') == Some(name))
    }
}

/// A machine to make code for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// LLVM's target triple.
    pub triple: String,
    /// LLVM's name of the processor.
    pub cpu: String,
    /// Features switched on (`+name`) and off (`-name`), by LLVM's names, on top of those of the
    /// processor; sorted.
    pub features: Vec<String>,
    /// Features that code may use (`+name`): those of the processor and those switched on, with what
    /// they imply, by LLVM's table.
    pub resolved: Vec<String>,
    /// Width of a vector register in bytes.
    pub vector_bytes: usize,
    /// Number of vector registers.
    pub vector_registers: usize,
    /// Whether loads and stores of part of a vector are single instructions.
    pub masks: bool,
    /// Whether `f32` converts to and from binary16 by instruction.
    pub half_conversion: bool,
    /// Whether `f32` converts to bfloat16 by instruction.
    pub bfloat_conversion: bool,
    /// Whether floats are rounded to whole numbers by LLVM's intrinsics, else by additions.
    pub rounding: bool,
    /// Whether vectors of floats are multiplied by powers of two, and their reciprocals estimated, by
    /// instruction, as AVX-512 does.
    pub scaling: bool,
}

impl Target {
    /// This machine, by what its processor reports.
    pub fn host() -> Result<Self> {
        initialize();
        let triple = TargetMachine::get_default_triple();
        let text = |string: inkwell::support::LLVMString| string.to_string();
        let features = text(TargetMachine::get_host_cpu_features());
        let features = features.split(',').map(str::to_string).collect();
        let features = host_tiles::permitted(features);
        let triple = triple.as_str().to_string_lossy();
        let named = text(TargetMachine::get_host_cpu_name());
        let has_tiles = Self::new(&triple, &named, vec![])?.has("x86_64", host_tiles::TILES);
        let cpu = host_tiles::processor(&features).filter(|_| !has_tiles).unwrap_or(&named);
        Self::new(&triple, cpu, features)
    }

    /// The machine that a platform names: `os` is `linux`, `arch` as Kubernetes or LLVM spells it,
    /// `cpu` LLVM's name of a processor, or empty for the architecture's common ground.
    pub fn for_platform(os: &str, arch: &str, cpu: &str) -> Result<Self> {
        initialize();
        let unavailable =
            |message: String| CodegenError::Target { target: format!("{os}/{arch}"), message };
        let family = family(arch).ok_or_else(|| {
            let known: Vec<&str> = FAMILIES.iter().map(|family| family.names[0]).collect();
            unavailable(format!("known architectures are {}", known.join(", ")))
        })?;
        if os != "linux" {
            return Err(unavailable("the operating system must be linux".to_string()));
        }
        let cpu = if cpu.is_empty() { family.default_cpu } else { cpu };
        let arch = family.names.last().unwrap_or(&arch);
        Self::new(&format!("{arch}-unknown-linux-gnu"), cpu, vec![])
    }

    /// A target of the given triple, processor and features, all by LLVM's names.
    ///
    /// # Errors
    /// A triple, a processor or a feature that LLVM does not know, with the nearest known names.
    pub fn new(triple: &str, cpu: &str, mut features: Vec<String>) -> Result<Self> {
        initialize();
        let arch = triple.split('-').next().unwrap_or_default();
        let family = family(arch).ok_or_else(|| CodegenError::Target {
            target: triple.to_string(),
            message: format!("there is no code generator for '{arch}'"),
        })?;
        features.extend(family.common_features.iter().map(|feature| feature.to_string()));
        features.sort_unstable();
        features.dedup();
        let resolved = resolved_features(family, triple, cpu, &features)?;
        let known = Features(&resolved);
        let vector_bytes = (family.vector_bytes)(&known);
        let vector_registers = (family.vector_registers)(&known);
        let masks = (family.masks)(&known);
        let half_conversion = known.has("f16c") || known.has("fullfp16") || arch == "aarch64";
        let bfloat_conversion =
            arch == "x86_64" && known.has("avx512bf16") && known.has("avx512vl");
        let scaling = arch == "x86_64" && known.has("avx512f") && known.has("avx512vl");
        // LLVM's code for a truncation in RISC-V's vectors is a masked conversion behind a change of
        // their configuration, on which QEMU 7.2 ends with a failed assertion (its issue 1441).
        let rounding = match arch {
            "x86_64" => known.has("sse4.1"),
            "riscv64" => !known.has("v"),
            _ => true,
        };
        Ok(Self {
            triple: triple.to_string(),
            cpu: cpu.to_string(),
            features,
            vector_bytes,
            vector_registers,
            masks,
            half_conversion,
            bfloat_conversion,
            rounding,
            scaling,
            resolved,
        })
    }

    /// Whether the emitter moves pointers with loops for this target ([`moves_pointers`]).
    pub(crate) fn moves_pointers(&self) -> bool {
        moves_pointers(&self.triple)
    }

    /// Whether it is a device of NVIDIA's.
    pub(crate) fn is_nvptx(&self) -> bool {
        self.triple.starts_with("nvptx64")
    }

    /// Whether a product and its sum are one instruction, rounded once.
    pub fn fuses_multiply_add(&self) -> bool {
        !self.triple.starts_with("x86_64") || Features(&self.resolved).has("fma")
    }

    /// Whether there is an instruction that sums products of elements of type `reduced`.
    pub fn multiplies(&self, reduced: DataType) -> bool {
        let takes = |intrinsic: &Intrinsic| intrinsic.operands().contains(&reduced);
        Intrinsic::ALL.into_iter().filter(takes).any(|intrinsic| self.has_intrinsic(intrinsic))
    }

    /// Whether an instruction, or a short sequence of them, computes the nest that `intrinsic` describes.
    pub fn has_intrinsic(&self, intrinsic: Intrinsic) -> bool {
        self.instruction(intrinsic).is_some()
    }

    /// Whether products of elements of type `reduced` are faster than those of `f32`.
    pub fn multiplies_faster(&self, reduced: DataType) -> bool {
        self.gain(reduced) >= Gain::Direct
    }

    /// Whether they are faster than the fewer products of `f32` that Winograd's filtering takes, too.
    pub fn multiplies_faster_than_filtering(&self, reduced: DataType) -> bool {
        self.gain(reduced) == Gain::Always
    }

    /// The most that instructions for products of elements of type `reduced` gain.
    fn gain(&self, reduced: DataType) -> Gain {
        let takes = |intrinsic: &Intrinsic| intrinsic.operands().contains(&reduced);
        let found = |intrinsic| instruction(self, intrinsic);
        let gains = Intrinsic::ALL.into_iter().filter(takes).filter_map(found);
        gains.map(|found| (found.gain)(self)).max().unwrap_or(Gain::None)
    }

    /// The name, in assembly text, of the instruction that computes an intrinsic here.
    pub fn instruction(&self, intrinsic: Intrinsic) -> Option<&'static str> {
        instruction(self, intrinsic).map(|instruction| instruction.mnemonic)
    }

    /// Whether the target is of an architecture, by LLVM's name, and has a feature of it.
    pub(crate) fn has(&self, arch: &str, feature: &str) -> bool {
        self.triple.split('-').next() == Some(arch) && Features(&self.resolved).has(feature)
    }

    /// Whether `name` is among the features given (not among those the processor implies).
    pub fn has_feature(&self, name: &str) -> bool {
        Features(&self.features).has(name)
    }

    /// A machine of LLVM's for this target; each thread needs one.
    pub(crate) fn machine(&self) -> Result<TargetMachine> {
        initialize();
        let triple = TargetTriple::create(&self.triple);
        let failed =
            |message: String| CodegenError::Target { target: self.triple.clone(), message };
        let mut options = TargetMachineOptions::new()
            .set_cpu(&self.cpu)
            .set_features(&self.features.join(","))
            .set_level(OptimizationLevel::Default)
            .set_reloc_mode(RelocMode::PIC)
            .set_code_model(CodeModel::Default);
        let arch = self.triple.split('-').next().unwrap_or_default();
        if let Some(abi) = family(arch).and_then(|family| family.abi) {
            options = options.set_abi(abi);
        }
        inkwell::targets::Target::from_triple(&triple)
            .map_err(|message| failed(message.to_string()))?
            .create_target_machine_from_options(&triple, options)
            .ok_or_else(|| failed("LLVM cannot make code for it".to_string()))
    }
}

/// Whether the emitter moves pointers with loops for a triple (`llvm/pointers.rs`), in place of LLVM's pass for strength
/// reduction. Measured on x86 alone; other targets keep that pass.
pub(crate) fn moves_pointers(triple: &str) -> bool {
    triple.starts_with("x86_64")
}

fn family(arch: &str) -> Option<&'static Family> {
    FAMILIES.into_iter().find(|family| family.names.contains(&arch))
}

/// What is set for all of LLVM: its pass for strength reduction runs where it is asked for (`compile.rs`).
const LLVM_OPTIONS: [&CStr; 2] = [c"hone", c"-disable-lsr"];

fn initialize() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let options = LLVM_OPTIONS.map(CStr::as_ptr);
        // SAFETY: the pointers are to C strings that live for ever, as many as is said. The option is read where code is
        // made, for which each thread needs a machine, and machines are made behind this.
        unsafe {
            LLVMParseCommandLineOptions(options.len() as i32, options.as_ptr(), std::ptr::null())
        };
        FAMILIES.iter().for_each(|family| (family.initialize)());
        inkwell::targets::Target::initialize_nvptx(&InitializationConfig::default());
    });
}

/// The features that LLVM's table gives a processor under changes (`+name`, `-name`), each `+name`.
fn resolved_features(
    family: &Family,
    triple: &str,
    cpu: &str,
    changes: &[String],
) -> Result<Vec<String>> {
    let refused = |message| CodegenError::Target { target: format!("{triple}, {cpu}"), message };
    let processors = table::processors(triple)?;
    let known = |name: &String| usable(family, triple, name);
    if !processors.iter().any(|name| name == cpu) {
        let usable: Vec<String> = processors.into_iter().filter(known).collect();
        let nearest = table::nearest(cpu, &usable);
        return Err(refused(format!("LLVM knows no processor '{cpu}'; {nearest}")));
    }
    if !usable(family, triple, cpu) {
        let needed = family.needed_feature.unwrap_or_default();
        return Err(refused(format!("the processor has not '{needed}', which all code needs")));
    }
    let features = table::features(triple)?;
    for change in changes {
        let name = change.strip_prefix(['+', '-']).ok_or_else(|| {
            refused(format!("feature '{change}' begins with neither '+' (on) nor '-' (off)"))
        })?;
        if features.binary_search_by(|known| known.as_str().cmp(name)).is_err() {
            let nearest = table::nearest(name, &features);
            return Err(refused(format!("LLVM knows no feature '{name}'; {nearest}")));
        }
    }
    let resolved = table::features_of(triple, cpu, changes)?;
    Ok(resolved.into_iter().map(|name| format!("+{name}")).collect())
}

/// Whether a processor that LLVM knows can run code of the family.
fn usable(family: &Family, triple: &str, cpu: &str) -> bool {
    let Some(needed) = family.needed_feature else { return true };
    let features = table::features_of(triple, cpu, &[]);
    features.is_ok_and(|features| features.iter().any(|name| name == needed))
}
