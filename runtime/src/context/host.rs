//! Steps that the runtime computes itself.

use super::Context;
use crate::RunError;
use crate::images::Decoder;
use crate::program::Host;
use hone_artifact::{HostType, HostValue};
use std::ptr::NonNull;

impl Context {
    /// Computes what has a size that depends on data; the only part of a run that allocates.
    ///
    /// # Safety
    /// The operands and results lie where the manifest says.
    pub(super) unsafe fn host(&mut self, host: &Host) -> Result<(), RunError> {
        let read = |input: &Option<(usize, HostType)>| -> Option<&[u8]> {
            let (entry, of) = input.as_ref()?;
            let bytes = of.bytes()? as usize;
            let from = self.table[*entry].cast::<u8>().cast_const();
            // SAFETY: the manifest was validated, and no step runs meanwhile: results that lie in the same place are
            // stored when the operands are no longer used. What has no bytes may lie nowhere.
            Some(if bytes == 0 { &[] } else { unsafe { std::slice::from_raw_parts(from, bytes) } })
        };
        let inputs: Vec<Option<HostValue<'_>>> = host
            .inputs
            .iter()
            .map(|input| Some(HostValue { of: &input.as_ref()?.1, bytes: read(input)? }))
            .collect();
        let failed = |reason| RunError::Host { node: host.node.clone(), reason };
        let results = host.outputs.iter().map(|(entry, bytes)| match bytes {
            // What has no bytes may lie nowhere.
            0 => (NonNull::dangling().as_ptr(), 0),
            _ => (self.table[*entry].cast(), *bytes),
        });
        let results: Vec<(*mut u8, usize)> = results.collect();
        let operands: Vec<(*const u8, usize)> =
            inputs.iter().flatten().map(|own| (own.bytes.as_ptr(), own.bytes.len())).collect();
        let decoder = Decoder::current();
        if are_apart(&results, &operands) {
            // SAFETY: as above, and nothing else lies there, neither an operand nor another result.
            let mut results: Vec<&mut [u8]> = results
                .into_iter()
                .map(|(to, bytes)| unsafe { std::slice::from_raw_parts_mut(to, bytes) })
                .collect();
            let (texts, tools) = (&mut self.texts, &decoder.tools());
            return host.function.compute_into(&inputs, &mut results, texts, tools).map_err(failed);
        }
        let computed = host.function.compute_with(&inputs, &mut self.texts, &decoder.tools());
        for ((to, _), bytes) in results.into_iter().zip(computed.map_err(failed)?) {
            // SAFETY: as above; results have the sizes that were validated.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        }
        Ok(())
    }
}

/// Whether some memory that is written overlaps neither with other such memory nor with what is read. Both are given by
/// address and bytes.
fn are_apart(written: &[(*mut u8, usize)], read: &[(*const u8, usize)]) -> bool {
    let range = |from: *const u8, bytes: usize| (from.addr(), from.addr() + bytes);
    let written: Vec<_> =
        written.iter().map(|(from, bytes)| range(from.cast_const(), *bytes)).collect();
    let read = read.iter().map(|(from, bytes)| range(*from, *bytes));
    let all: Vec<_> = written.iter().copied().chain(read).collect();
    let apart = |a: (usize, usize), b: (usize, usize)| a.1 <= b.0 || b.1 <= a.0;
    written
        .iter()
        .enumerate()
        .all(|(place, own)| all.iter().skip(place + 1).all(|other| apart(*own, *other)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_touches_is_apart_and_memory_that_overlaps_is_not() {
        let mut bytes = [0u8; 32];
        let base = bytes.as_mut_ptr();
        let written = |from: usize, count: usize| (base.wrapping_add(from), count);
        let read = |from: usize, count: usize| (base.wrapping_add(from).cast_const(), count);
        assert!(are_apart(&[written(0, 8), written(8, 8)], &[read(16, 16), read(20, 4)]));
        assert!(!are_apart(&[written(0, 8), written(7, 8)], &[]));
        assert!(!are_apart(&[written(0, 8)], &[read(7, 1)]));
        assert!(!are_apart(&[written(4, 1)], &[read(0, 8)]));
        assert!(are_apart(&[], &[read(0, 8), read(0, 8)]));
    }
}
