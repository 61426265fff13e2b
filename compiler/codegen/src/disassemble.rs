//! Machine code to text, for people who want to see what a kernel became.

use crate::Target;
use crate::error::{CodegenError, Result};
use inkwell::llvm_sys::disassembler::{
    LLVMCreateDisasmCPUFeatures, LLVMDisasmContextRef, LLVMDisasmDispose, LLVMDisasmInstruction,
};
use object::{Object, ObjectSection, ObjectSymbol};
use std::ffi::{CStr, CString};
use std::fmt::Write;

/// Longest text of one instruction.
const TEXT: usize = 256;

/// The instructions of an exported function of a shared object, one a line with its address, and of the
/// body in front of it that it alone calls. `None` where there is no such function.
pub fn disassemble(code: &[u8], target: &Target, symbol: &str) -> Result<Option<String>> {
    let malformed = |error: object::Error| CodegenError::Malformed {
        symbol: symbol.to_string(),
        message: error.to_string(),
    };
    let file = object::File::parse(code).map_err(malformed)?;
    let mut functions: Vec<(u64, u64, String)> = file
        .dynamic_symbols()
        .filter(|symbol| symbol.size() > 0)
        .filter_map(|symbol| {
            Some((symbol.address(), symbol.size(), symbol.name().ok()?.to_string()))
        })
        .collect();
    functions.sort_unstable();
    let Some(index) = functions.iter().position(|(_, _, name)| name == symbol) else {
        return Ok(None);
    };
    let Some(section) = file.sections().find(|section| section.name() == Ok(".text")) else {
        return Ok(None);
    };
    // The body has no symbol: it lies behind the function before.
    let before = index.checked_sub(1).map(|before| functions[before].0 + functions[before].1);
    let start = before.unwrap_or_else(|| section.address());
    let end = functions[index].0 + functions[index].1;
    let bytes = section.data_range(start, end - start).map_err(malformed)?.unwrap_or_default();
    Decoder::new(target)?.text(bytes, start).map(Some)
}

/// LLVM's decoder of one processor's instructions.
struct Decoder {
    context: LLVMDisasmContextRef,
    /// Bytes to pass over where there is no instruction.
    step: usize,
}

impl Decoder {
    fn new(target: &Target) -> Result<Self> {
        // Making a machine of LLVM's registers the decoder, too.
        target.machine()?;
        let failed = || CodegenError::Target {
            target: target.triple.clone(),
            message: "LLVM has no disassembler for it".to_string(),
        };
        let text = |text: &str| CString::new(text).map_err(|_| failed());
        let (triple, cpu) = (text(&target.triple)?, text(&target.cpu)?);
        let features = text(&target.resolved.join(","))?;
        // SAFETY: the three texts end in zero and live through the call, which copies them; no
        // callbacks are given.
        let context = unsafe {
            LLVMCreateDisasmCPUFeatures(
                triple.as_ptr(),
                cpu.as_ptr(),
                features.as_ptr(),
                std::ptr::null_mut(),
                0,
                None,
                None,
            )
        };
        if context.is_null() {
            return Err(failed());
        }
        let step = if target.triple.starts_with("x86_64") { 1 } else { 4 };
        Ok(Self { context, step })
    }

    fn text(&self, bytes: &[u8], address: u64) -> Result<String> {
        let mut bytes = bytes.to_vec();
        let (mut offset, mut text) = (0, String::new());
        while offset < bytes.len() {
            let mut line = [0; TEXT];
            let rest = &mut bytes[offset..];
            // SAFETY: the context is LLVM's own; bytes and line are valid for the lengths given, and
            // LLVM ends the line with a zero.
            let length = unsafe {
                LLVMDisasmInstruction(
                    self.context,
                    rest.as_mut_ptr(),
                    rest.len() as u64,
                    address + offset as u64,
                    line.as_mut_ptr(),
                    TEXT,
                )
            };
            // SAFETY: `line` was zeroed and its last byte is never written by LLVM.
            let decoded = unsafe { CStr::from_ptr(line.as_ptr()) }.to_string_lossy();
            let shown = if length == 0 { "\t?" } else { decoded.as_ref() };
            let _ = writeln!(text, "{:8x}:{shown}", address + offset as u64);
            offset += if length == 0 { self.step } else { length };
        }
        Ok(text)
    }
}

impl Drop for Decoder {
    fn drop(&mut self) {
        // SAFETY: the context was made by LLVM and is disposed of once.
        unsafe { LLVMDisasmDispose(self.context) };
    }
}
