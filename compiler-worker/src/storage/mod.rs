//! Where models come from and where results go: local files, `https://`, and object stores.

mod answer;
mod destination;
mod digest;
mod gone;
mod guard;
mod https;
mod incoming;
pub mod local;
mod model_files;
mod object;
mod objects;
pub mod shared;

use std::error::Error;
use std::path::Path;

use hone_artifact::exit_code::Reason;
use hone_artifact::request::Source;
use sha2::{Digest, Sha256};

pub use destination::{Destination, Entry};
pub use guard::{Forbidden, Guard};
pub use incoming::{Fetched, Incoming};
pub use local::Places;
pub use model_files::ModelFiles;

use crate::failure::{Failure, Result};

/// Everything that decides what may be read, and how.
#[derive(Clone, Debug)]
pub struct Access {
    /// Where local files may lie.
    pub places: Places,
    /// Which addresses may be fetched from.
    pub guard: Guard,
    /// Most bytes of one file.
    pub limit: u64,
}

/// `sha256:` and the digest of `bytes`.
pub fn sha256(bytes: &[u8]) -> String {
    format!("sha256:{:x}", Sha256::digest(bytes))
}

impl Access {
    /// Fetches a source and checks its digest, before anything is parsed. Where it is large a file without a name in
    /// `folder` holds it.
    ///
    /// # Errors
    /// What the place refuses; `DigestMismatch` where the content is another.
    pub fn fetch(&self, source: &Source, folder: &Path) -> Result<Fetched> {
        let uri = source.uri.as_str();
        refuse_signed(uri)?;
        let mut incoming = Incoming::new(without_query(uri), self.limit, folder);
        match uri.split_once("://").map(|(scheme, _)| scheme) {
            Some("file") => local::read_into(&self.places.existing(uri)?, &mut incoming)?,
            Some("https") => self.https(source, &mut incoming)?,
            Some("s3" | "gs" | "az") => {
                let credentials = source.credentials.as_deref().map(Path::new);
                object::Place::open(uri, credentials, &self.guard)?.fetch(&mut incoming)?
            }
            _ => {
                let message = format!("'{uri}' has no known scheme: use s3, gs, az, https or file");
                return Err(Failure::new(Reason::InvalidSpec, message));
            }
        }
        let fetched = incoming.finish()?;
        check_digest(uri, source.digest.as_deref(), &fetched.digest)?;
        Ok(fetched)
    }

    fn https(&self, source: &Source, incoming: &mut Incoming<'_>) -> Result<()> {
        if source.digest.is_none() {
            let message = format!(
                "'{}' is fetched over https and has no digest: set digest to sha256:<64 hex digits>",
                source.uri
            );
            return Err(Failure::new(Reason::InvalidSpec, message));
        }
        https::get(&source.uri, &self.guard, incoming, true)
    }
}

/// Query parameters that carry a signature or a token.
const SIGNATURES: &[&str] =
    &["x-amz-signature", "x-goog-signature", "signature", "sig", "token", "x-amz-security-token"];

/// Refuses URLs that are credentials themselves: they would stand in the spec, in reports and in logs.
fn refuse_signed(uri: &str) -> Result<()> {
    let query = uri.split_once('?').map_or("", |(_, query)| query);
    let names = query.split('&').filter_map(|part| part.split('=').next());
    let mut names = names.map(str::to_ascii_lowercase);
    match names.any(|name| SIGNATURES.contains(&name.as_str())) {
        true => {
            let message = format!(
                "'{}' carries a signature: name the object without it and give credentialsSecretRef",
                without_query(uri)
            );
            Err(Failure::new(Reason::InvalidSpec, message))
        }
        false => Ok(()),
    }
}

/// A URI as it may be repeated.
fn without_query(uri: &str) -> &str {
    uri.split(['?', '#']).next().unwrap_or(uri)
}

fn check_digest(uri: &str, expected: Option<&str>, found: &str) -> Result<()> {
    let Some(expected) = expected else { return Ok(()) };
    if found == expected {
        return Ok(());
    }
    let uri = without_query(uri);
    let message = format!(
        "'{uri}' is not the file that was meant: its digest is {found}, the spec says {expected}; correct the digest or fetch the right file"
    );
    Err(Failure::new(Reason::DigestMismatch, message))
}

/// Runs a request to its end on this thread.
fn block_on<T>(future: impl Future<Output = T>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::io("the network cannot be used", error))?;
    Ok(runtime.block_on(future))
}

/// Whether the guard's refusal is somewhere among the causes.
fn forbidden(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(cause) = next {
        if cause.is::<Forbidden>() {
            return true;
        }
        next = cause.source();
    }
    false
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn signed_urls_are_refused_and_not_repeated() {
        for uri in [
            "https://b.s3.amazonaws.com/x?X-Amz-Expires=9&X-Amz-Signature=deadbeef",
            "https://a.blob.core.windows.net/c/x?sv=1&sig=deadbeef",
        ] {
            let failure = refuse_signed(uri).unwrap_err();
            assert_eq!(failure.reason, Reason::InvalidSpec);
            assert!(!failure.chain().contains("deadbeef"), "{}", failure.chain());
        }
        assert!(refuse_signed("https://example.org/x?download=true").is_ok());
        assert!(refuse_signed("s3://models/x.onnx").is_ok());
    }

    #[test]
    fn another_digest_is_refused_before_parsing() {
        let digest = sha256(b"model");
        assert!(check_digest("m", Some(&digest), &sha256(b"model")).is_ok());
        let failure = check_digest("m", Some(&digest), &sha256(b"modem")).unwrap_err();
        assert_eq!(failure.reason, Reason::DigestMismatch);
        assert!(failure.to_string().contains(&sha256(b"modem")));
    }
}
