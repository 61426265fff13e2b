//! Which trace, and which span of it: as W3C Trace Context writes them.

use std::fmt;
use std::str::FromStr;

use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};
use sha2::{Digest, Sha256};

/// A span's place: its trace and its own id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    trace: TraceId,
    span: SpanId,
}

/// Why a text is no context.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no traceparent: write 00-<32 hex digits>-<16 hex digits>-01")]
pub struct ParentError(String);

impl TraceContext {
    /// The first span of the trace of a thing, such as of a compilation's uid; `attempt` tells several such spans apart.
    pub fn root(thing: &str, attempt: &str) -> Self {
        let digest = Sha256::digest(format!("trace\0{thing}"));
        let mut trace = [0; 16];
        trace.copy_from_slice(&digest[..16]);
        let trace = TraceId::from_bytes(trace);
        Self { trace, span: span(trace, SpanId::INVALID, attempt) }
    }

    /// The span of a thing within this trace; the same for the same parent and thing.
    pub fn child(&self, thing: &str) -> Self {
        Self { trace: self.trace, span: span(self.trace, self.span, thing) }
    }

    pub(crate) fn span_id(&self) -> SpanId {
        self.span
    }

    pub(crate) fn to_span_context(self) -> SpanContext {
        SpanContext::new(self.trace, self.span, TraceFlags::SAMPLED, true, TraceState::default())
    }
}

/// The id of a span: eight bytes of a digest, never all zero.
fn span(trace: TraceId, parent: SpanId, thing: &str) -> SpanId {
    let mut hash = Sha256::new();
    hash.update(trace.to_bytes());
    hash.update(parent.to_bytes());
    hash.update(thing);
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&hash.finalize()[..8]);
    bytes[7] |= u8::from(bytes == [0; 8]);
    SpanId::from_bytes(bytes)
}

/// The value of `traceparent`.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-01", self.trace, self.span)
    }
}

impl FromStr for TraceContext {
    type Err = ParentError;

    fn from_str(text: &str) -> Result<Self, ParentError> {
        let wrong = || ParentError(text.chars().take(80).collect());
        let parts: Vec<&str> = text.split('-').collect();
        let [version, trace, span, flags] = parts[..] else { return Err(wrong()) };
        let hex = |text: &str, digits: usize| {
            text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        };
        if version != "00" || !hex(trace, 32) || !hex(span, 16) || !hex(flags, 2) {
            return Err(wrong());
        }
        let trace = TraceId::from_hex(trace).map_err(|_| wrong())?;
        let span = SpanId::from_hex(span).map_err(|_| wrong())?;
        match trace != TraceId::INVALID && span != SpanId::INVALID {
            true => Ok(Self { trace, span }),
            false => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn ids_follow_from_what_they_are_of() {
        let root = TraceContext::root("uid", "");
        assert_eq!(root, TraceContext::root("uid", ""));
        assert_ne!(root, TraceContext::root("other", ""));
        let job = root.child("job-1");
        assert_eq!(job, root.child("job-1"));
        assert_ne!(job.span, root.child("job-2").span);
        assert_eq!(job.trace, root.trace);
        let again = TraceContext::root("uid", "2");
        assert!(again.trace == root.trace && again.span != root.span);
    }

    #[test]
    fn a_traceparent_crosses_and_nonsense_does_not() {
        let job = TraceContext::root("uid", "").child("job");
        assert_eq!(job.to_string().parse::<TraceContext>().unwrap(), job);
        for wrong in [
            "",
            "00-0-0-01",
            "00-00000000000000000000000000000000-0000000000000001-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert!(wrong.parse::<TraceContext>().is_err(), "{wrong}");
        }
    }
}
