//! What a text of WGSL says, without a device.

use anyhow::{Result, anyhow};
use naga::valid::{Capabilities, ValidationFlags, Validator};
use naga::{AddressSpace, Module, StorageAccess};

/// Parses a text and validates it as WebGPU does, without any extension.
///
/// # Errors
/// What is wrong, and where.
pub fn validate(source: &str) -> Result<Module> {
    let module = naga::front::wgsl::parse_str(source)
        .map_err(|error| anyhow!("{}", error.emit_to_string(source)))?;
    Validator::new(ValidationFlags::all(), Capabilities::empty())
        .validate(&module)
        .map_err(|error| anyhow!("{}", error.emit_to_string(source)))?;
    Ok(module)
}

/// A buffer that a kernel is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// One that it only reads.
    Read,
    /// One that it writes too.
    Written,
    /// A counter.
    Counter,
}

/// What a kernel is given, by the numbers of its bindings. The names of a kernel's variables begin with its own.
pub fn bindings(module: &Module, kernel: &str) -> Vec<(u32, Binding)> {
    let prefix = format!("{kernel}_");
    let variables = module.global_variables.iter().map(|(_, variable)| variable);
    let given = variables.filter_map(|variable| {
        let named = variable.name.as_ref()?.starts_with(&prefix);
        let number = variable.binding.filter(|_| named)?.binding;
        Some((
            number,
            match variable.space {
                AddressSpace::Storage { access } if access.contains(StorageAccess::STORE) => {
                    Binding::Written
                }
                AddressSpace::Storage { .. } => Binding::Read,
                _ => Binding::Counter,
            },
        ))
    });
    given.collect()
}
