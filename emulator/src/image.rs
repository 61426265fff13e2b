//! A shared object of kernels, laid out in an emulated process.

use crate::error::{EmulatorError, Result};
use crate::machine::Machine;
use object::{
    Architecture, Object, ObjectSegment, ObjectSymbol, RelocationFlags, RelocationTarget, elf,
};
use std::collections::HashMap;

/// Where the functions of a loaded shared object are.
#[derive(Debug)]
pub(crate) struct Image {
    functions: HashMap<String, u64>,
}

impl Image {
    /// Loads what the compiler links: segments, relocations relative to the object itself, symbols.
    pub(crate) fn load(machine: &mut Machine, code: &[u8]) -> Result<Self> {
        let file = object::File::parse(code).map_err(|error| refused(&error.to_string()))?;
        let end = file.segments().map(|segment| segment.address().saturating_add(segment.size()));
        let bytes = end.max().ok_or_else(|| refused("it has nothing to load"))?;
        let base = machine.map(bytes)?;
        for segment in file.segments() {
            let content = segment.data().map_err(|error| refused(&error.to_string()))?;
            machine.write(base + segment.address(), content)?;
        }
        relocate(machine, &file, base)?;
        let symbols = file.dynamic_symbols().filter(|symbol| symbol.is_definition());
        let functions = symbols
            .filter_map(|symbol| Some((symbol.name().ok()?.to_string(), base + symbol.address())));
        Ok(Self { functions: functions.collect() })
    }

    /// The address of a function.
    pub(crate) fn function(&self, symbol: &str) -> Result<u64> {
        let found = self.functions.get(symbol).copied();
        found.ok_or_else(|| refused(&format!("it has no kernel '{symbol}'")))
    }
}

/// Adds the object's address to the words that hold addresses inside of it. Kernels import nothing, so
/// there is no other kind.
fn relocate(machine: &mut Machine, file: &object::File<'_>, base: u64) -> Result<()> {
    let relative = match file.architecture() {
        Architecture::X86_64 => elf::R_X86_64_RELATIVE,
        Architecture::Aarch64 => elf::R_AARCH64_RELATIVE,
        Architecture::Riscv64 => elf::R_RISCV_RELATIVE,
        other => return Err(refused(&format!("it is for {other:?}"))),
    };
    for (offset, relocation) in file.dynamic_relocations().into_iter().flatten() {
        let known = relocation.target() == RelocationTarget::Absolute
            && relocation.flags() == RelocationFlags::Elf { r_type: relative };
        if !known {
            return Err(refused(&format!("the relocation at {offset:#x} is not relative")));
        }
        let address = base.wrapping_add_signed(relocation.addend());
        machine.write(base + offset, &address.to_le_bytes())?;
    }
    Ok(())
}

fn refused(message: &str) -> EmulatorError {
    EmulatorError::Code { message: message.to_string() }
}
