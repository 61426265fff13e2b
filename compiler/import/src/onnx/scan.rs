//! A walk over the bytes of a model before they are decoded.
//!
//! A few bytes of protobuf can decode into many: an empty node is two bytes in the file and hundreds
//! in memory. The walk adds up what decoding would allocate, so that a hostile file is refused before
//! anything is allocated. It also finds where a file that was cut short ends.

use super::proto;
use crate::{ImportError, Limits};

/// Nested messages deeper than this are refused; the decoder has a like bound.
const DEPTH: usize = 64;

/// A message type whose fields matter to the count.
#[derive(Clone, Copy)]
enum Message {
    Model,
    Graph,
    Node,
    Attribute,
    Tensor,
    Sparse,
    ValueInfo,
    Function,
    Training,
    Entry,
    Annotation,
    /// Small messages: whatever they hold is charged at the worst rate.
    Small,
}

/// What one field decodes into.
enum Content {
    Message(Message, usize),
    /// Numbers packed one after the other: bytes each takes in memory per byte of the file.
    Packed(usize),
    /// A string or byte string.
    Text,
    /// Raw data: taken as it lies, and bounded by the file itself.
    Raw,
    /// A field the decoder skips or an enclosed message of no known kind.
    Unknown,
}

use Content as C;
use Message as M;

/// Most bytes that a byte of a small message decodes into, and what each message takes besides.
const WORST_RATE: usize = 64;
const MESSAGE: usize = 64;

fn content(message: Message, field: u64) -> Content {
    let node = C::Message(M::Node, size_of::<proto::NodeProto>());
    let tensor = C::Message(M::Tensor, size_of::<proto::TensorProto>());
    let graph = C::Message(M::Graph, size_of::<proto::GraphProto>());
    let attribute = C::Message(M::Attribute, size_of::<proto::AttributeProto>());
    let value_info = C::Message(M::ValueInfo, size_of::<proto::ValueInfoProto>());
    let sparse = C::Message(M::Sparse, size_of::<proto::SparseTensorProto>());
    let entry = C::Message(M::Entry, size_of::<proto::StringStringEntryProto>());
    let small = C::Message(M::Small, 4 * MESSAGE);
    match (message, field) {
        (M::Model, 7) => graph,
        (M::Model, 8 | 26) => small,
        (M::Model, 14) => entry,
        (M::Model, 20) => C::Message(M::Training, size_of::<proto::TrainingInfoProto>()),
        (M::Model, 25) => C::Message(M::Function, size_of::<proto::FunctionProto>()),
        (M::Graph, 1) => node,
        (M::Graph, 5) => tensor,
        (M::Graph, 11..=13) => value_info,
        (M::Graph, 14) => C::Message(M::Annotation, size_of::<proto::TensorAnnotation>()),
        (M::Graph, 15) => sparse,
        (M::Graph, 16) => entry,
        (M::Node, 5) => attribute,
        (M::Node, 9) => entry,
        (M::Node, 10) => small,
        (M::Attribute, 5 | 10) => tensor,
        (M::Attribute, 6 | 11) => graph,
        (M::Attribute, 7) => C::Packed(1),
        (M::Attribute, 8) => C::Packed(8),
        (M::Attribute, 14 | 15) => small,
        (M::Attribute, 22 | 23) => sparse,
        (M::Tensor, 1 | 7 | 11) => C::Packed(8),
        (M::Tensor, 3) => small,
        (M::Tensor, 4 | 10) => C::Packed(1),
        (M::Tensor, 5) => C::Packed(4),
        (M::Tensor, 9) => C::Raw,
        (M::Tensor, 13 | 16) => entry,
        (M::Sparse, 1 | 2) => tensor,
        (M::Sparse, 3) => C::Packed(8),
        (M::ValueInfo, 2) => small,
        (M::ValueInfo, 4) => entry,
        (M::Function, 7) => node,
        (M::Function, 9) => small,
        (M::Function, 11) => attribute,
        (M::Function, 12) => value_info,
        (M::Function, 14) => entry,
        (M::Training, 1 | 2) => graph,
        (M::Training, 3 | 4) | (M::Annotation, 2) => entry,
        (M::Small, _) => C::Unknown,
        (_, 1..=40) => C::Text,
        _ => C::Unknown,
    }
}

/// What the walk found.
#[derive(Debug, Default)]
struct Totals {
    /// Bytes that decoding allocates, without raw data.
    bytes: usize,
    /// Whether there is a graph and an operator set, as every model has.
    graph: bool,
    opset: bool,
}

/// Refuses bytes that are no model, are cut short, or would take more memory than allowed.
pub(super) fn check(bytes: &[u8], limits: &Limits) -> Result<(), ImportError> {
    if bytes.len() > limits.file_bytes {
        return Err(too_large("the size of the file in bytes", bytes.len(), limits.file_bytes));
    }
    if bytes.is_empty() {
        return Err(not_onnx("it is empty"));
    }
    let mut walk = Walk {
        totals: Totals::default(),
        limit: bytes.len().saturating_mul(2).saturating_add(limits.structure_bytes),
        whole: bytes,
    };
    walk.message(M::Model, bytes, 0)?;
    if !walk.totals.graph {
        return Err(not_onnx("it holds no graph"));
    }
    if !walk.totals.opset {
        return Err(not_onnx("it names no operator set"));
    }
    Ok(())
}

fn not_onnx(reason: impl Into<String>) -> ImportError {
    ImportError::NotOnnx { reason: reason.into() }
}

fn too_large(what: &str, actual: usize, limit: usize) -> ImportError {
    ImportError::TooLarge { what: what.into(), actual: actual as u64, limit: limit as u64 }
}

struct Walk<'a> {
    totals: Totals,
    limit: usize,
    whole: &'a [u8],
}

impl<'a> Walk<'a> {
    fn offset(&self, rest: &[u8]) -> usize {
        (rest.as_ptr() as usize).saturating_sub(self.whole.as_ptr() as usize)
    }

    fn charge(&mut self, bytes: usize) -> Result<(), ImportError> {
        self.totals.bytes = self.totals.bytes.saturating_add(bytes);
        if self.totals.bytes > self.limit {
            let what = "the memory that decoding the file takes, in bytes,";
            return Err(too_large(what, self.totals.bytes, self.limit));
        }
        Ok(())
    }

    fn message(
        &mut self,
        message: Message,
        bytes: &'a [u8],
        depth: usize,
    ) -> Result<(), ImportError> {
        if depth > DEPTH {
            return Err(too_large("the depth of nested parts", depth, DEPTH));
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let key = self.varint(&mut rest)?;
            let field = key >> 3;
            if field == 0 {
                return Err(self.malformed(rest, "a field number of 0"));
            }
            match key & 7 {
                0 => {
                    self.varint(&mut rest)?;
                    self.charge(8)?;
                }
                1 => {
                    self.take(&mut rest, 8)?;
                    self.charge(8)?;
                }
                5 => {
                    self.take(&mut rest, 4)?;
                    self.charge(4)?;
                }
                2 => {
                    let length = self.varint(&mut rest)?;
                    let inner = self.take(&mut rest, length)?;
                    if matches!(message, M::Model) {
                        self.totals.graph |= field == 7;
                        self.totals.opset |= field == 8;
                    }
                    self.field(content(message, field), inner, depth)?;
                }
                _ => return Err(self.malformed(rest, "an unknown wire type")),
            }
        }
        Ok(())
    }

    fn field(
        &mut self,
        content: Content,
        inner: &'a [u8],
        depth: usize,
    ) -> Result<(), ImportError> {
        match content {
            C::Message(M::Small, size) => self.charge(size + inner.len() * WORST_RATE),
            C::Message(message, size) => {
                self.charge(size)?;
                self.message(message, inner, depth + 1)
            }
            C::Packed(rate) => self.charge(inner.len().saturating_mul(rate)),
            C::Text => self.charge(inner.len() + 24),
            C::Raw => self.charge(64),
            C::Unknown => Ok(()),
        }
    }

    fn varint(&self, rest: &mut &'a [u8]) -> Result<u64, ImportError> {
        let mut value = 0u64;
        for (place, byte) in rest.iter().enumerate().take(10) {
            value |= u64::from(byte & 0x7f).checked_shl(7 * place as u32).unwrap_or(0);
            if byte & 0x80 == 0 {
                *rest = &rest[place + 1..];
                return Ok(value);
            }
        }
        if rest.len() >= 10 {
            return Err(self.malformed(rest, "a number of more than 64 bits"));
        }
        Err(ImportError::Truncated {
            offset: self.offset(rest),
            needed: rest.len() as u64 + 1,
            left: rest.len(),
        })
    }

    fn take(&self, rest: &mut &'a [u8], length: u64) -> Result<&'a [u8], ImportError> {
        let taken = usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length));
        let Some((inner, after)) = taken else {
            let (offset, left) = (self.offset(rest), rest.len());
            // At the top level the file ends; deeper, or absurdly far past the end, it is garbage.
            let at_end = rest.as_ptr_range().end == self.whole.as_ptr_range().end;
            if at_end && length < 1 << 40 {
                return Err(ImportError::Truncated { offset, needed: length, left });
            }
            return Err(self.malformed(rest, "a part that is longer than what it lies in"));
        };
        *rest = after;
        Ok(inner)
    }

    fn malformed(&self, rest: &[u8], what: &str) -> ImportError {
        not_onnx(format!("there is {what} at byte {}", self.offset(rest)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn tells_a_cut_file_from_another_kind() {
        let limits = Limits::default();
        assert!(matches!(check(b"", &limits), Err(ImportError::NotOnnx { .. })));
        assert!(matches!(check(b"PK\x03\x04aaaa", &limits), Err(ImportError::NotOnnx { .. })));
        let cut = [0x3a, 100, 1, 2, 3];
        let error = check(&cut, &limits).unwrap_err();
        assert!(matches!(error, ImportError::Truncated { offset: 2, needed: 100, left: 3 }));
    }

    #[test]
    fn refuses_what_would_swell_when_decoded() {
        // A graph of a million empty nodes: two bytes each.
        let mut bytes = vec![0x42, 0, 0x3a, 0x80, 0x89, 0x7a];
        bytes.extend([0x0a, 0x00].repeat(1_000_000));
        let limits = Limits { structure_bytes: 1 << 20, ..Limits::default() };
        assert!(matches!(check(&bytes, &limits), Err(ImportError::TooLarge { .. })));
    }
}
