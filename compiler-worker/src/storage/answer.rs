//! What may be repeated of a server's answer: its status and its one-word code, such as `NoSuchKey`. The rest of an
//! answer is whatever the server, or whoever the request was led to, chose to say; it must not reach a status, an
//! event or a log that others read.

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

use object_store::client::{HttpError, HttpErrorKind, HttpResponse, HttpResponseBody};

use super::Forbidden;

/// The last refusal of a server; clones share it.
#[derive(Clone, Debug, Default)]
pub struct LastRefusal(Arc<Mutex<Option<String>>>);

/// Most bytes of a refusal that are read for its code.
const READ: u64 = 64 << 10;
/// Most bytes of a code.
const CODE: usize = 64;

impl LastRefusal {
    /// Passes an answer on. A refusal loses all of its body but the code, before the library sees it.
    pub async fn note(&self, answer: HttpResponse) -> Result<HttpResponse, HttpError> {
        if answer.status().is_success() || answer.status().is_informational() {
            return Ok(answer);
        }
        let (parts, body) = answer.into_parts();
        let length = parts.headers.get("content-length").and_then(|length| length.to_str().ok());
        let length: Option<u64> = length.and_then(|length| length.parse().ok());
        let code = match length {
            Some(length) if length > READ => None,
            _ => code(&String::from_utf8_lossy(&body.bytes().await.unwrap_or_default())),
        };
        let code = code.unwrap_or_default();
        let mut words = parts.status.to_string();
        if !code.is_empty() {
            words.push_str(&format!(" ({code})"));
        }
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(words);
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::from(code)))
    }

    /// Why a request failed, in words that hold nothing of the server's but status and code.
    pub fn words(&self, error: &(dyn Error + 'static)) -> String {
        let causes: Vec<&(dyn Error + 'static)> = causes(error).collect();
        if let Some(refused) = causes.iter().find_map(|cause| cause.downcast_ref::<Forbidden>()) {
            return refused.to_string();
        }
        if let Some(answer) = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone() {
            return format!("the server answers {answer}");
        }
        if let Some(io) = causes.iter().rev().find_map(|c| c.downcast_ref::<std::io::Error>()) {
            return format!("no answer: {}", io.kind());
        }
        let kind = causes.iter().find_map(|cause| cause.downcast_ref::<HttpError>());
        match kind.map(HttpError::kind) {
            Some(HttpErrorKind::Connect) => "no connection".to_owned(),
            Some(HttpErrorKind::Timeout) => "no answer in time".to_owned(),
            Some(HttpErrorKind::Interrupted) => "the connection broke".to_owned(),
            _ => "the store's answer cannot be used".to_owned(),
        }
    }
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let cause = next?;
        next = cause.source();
        Some(cause)
    })
}

/// The code of a refusal as S3, Azure and Google write it: in XML as `<Code>`, in JSON as `"reason"`.
fn code(body: &str) -> Option<String> {
    let xml = body.split("<Code>").nth(1).and_then(|rest| rest.split("</Code>").next());
    let json = || {
        let rest = body.split("\"reason\"").nth(1)?;
        rest.split('"').nth(1)
    };
    let code = xml.or_else(json)?.trim();
    let is_word = !code.is_empty()
        && code.len() <= CODE
        && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_word.then(|| code.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_word_is_taken_as_code() {
        let is = |body: &str| -> Option<String> { code(body) };
        assert_eq!(is("<Error><Code>NoSuchKey</Code></Error>").as_deref(), Some("NoSuchKey"));
        assert_eq!(
            is(r#"{"error": {"errors": [{"reason": "notFound"}]}}"#).as_deref(),
            Some("notFound")
        );
        assert_eq!(is("<Code>AKIA secret</Code>"), None);
        assert_eq!(is(&format!("<Code>{}</Code>", "A".repeat(65))), None);
        assert_eq!(is("root:x:0:0"), None);
    }
}
