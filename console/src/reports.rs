//! Reports that workers stored beside artifacts: fetched from the store, bounded, and never executed.
//!
//! The page fetches only from folders that whoever started it names, since the URIs in a status come from other
//! people's objects. The plugin fetches what the user asks for, with the user's credentials.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use futures::StreamExt;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::path::Path as Key;
use object_store::{Error, ObjectStore, ObjectStoreExt};

/// Most bytes of a report; a page of a large model has a few hundred kilobytes.
pub const LIMIT_BYTES: u64 = 32 << 20;

/// Why a report cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// It is not in a folder that may be read.
    #[error(
        "'{uri}' is in none of the folders that reports are read from: pass --reports with a folder that holds it"
    )]
    NotAllowed {
        /// The report.
        uri: String,
    },
    /// It is no location that can be read.
    #[error("'{uri}' is no report that can be read: {why}")]
    Malformed {
        /// The report.
        uri: String,
        /// What is wrong with it.
        why: String,
    },
    /// It is not there.
    #[error(
        "'{uri}' does not exist: it was deleted, or the worker ended before it stored a report"
    )]
    NotFound {
        /// The report.
        uri: String,
    },
    /// The store refuses.
    #[error(
        "'{uri}' may not be read with these credentials: set those of the store in the environment, such as AWS_ACCESS_KEY_ID"
    )]
    Denied {
        /// The report.
        uri: String,
    },
    /// It is too large.
    #[error("'{uri}' is larger than {LIMIT_BYTES} bytes: download it with the store's client")]
    TooLarge {
        /// The report.
        uri: String,
    },
    /// The store could not be reached or answered something else. Nothing of its answer is repeated.
    #[error(
        "'{uri}' cannot be read from its store: look whether the store can be reached from here, or pass --endpoint"
    )]
    Store {
        /// The report.
        uri: String,
    },
}

/// A folder that reports are read from: `s3://bucket/folder/`, `gs://…`, `az://…` or `file:///folder/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder(String);

impl FromStr for Folder {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = ["s3://", "gs://", "az://", "file:///"];
        let Some(rest) = known.iter().find_map(|scheme| text.strip_prefix(scheme)) else {
            return Err(format!(
                "'{text}' is no folder: begin it with s3://, gs://, az:// or file:///"
            ));
        };
        match text.ends_with('/') && !rest.is_empty() && !rest.starts_with('/') {
            true => Ok(Self(text.to_owned())),
            // So that s3://models does not allow s3://models-of-others.
            false => Err(format!("'{text}' is no folder: end it with a slash")),
        }
    }
}

/// Where reports may be read, and with what.
#[derive(Clone, Debug, Default)]
pub struct Reports {
    /// Folders; `None` for any, where a user asks for one report by name.
    pub folders: Option<Vec<Folder>>,
    /// Options of the store, named as in a Secret; over those of the environment.
    pub options: BTreeMap<String, String>,
    /// Where the store is reached instead of where the options say, such as through `kubectl port-forward`.
    pub endpoint: Option<String>,
}

impl Reports {
    /// Whether `uri` is in a folder that may be read, and has no steps upwards.
    pub fn allows(&self, uri: &str) -> bool {
        let steps =
            |uri: &str| uri.split('/').any(|part| matches!(part, "." | "..")) || uri.contains('%');
        match &self.folders {
            None => true,
            Some(folders) => !steps(uri) && folders.iter().any(|folder| uri.starts_with(&folder.0)),
        }
    }

    /// The bytes of a report.
    ///
    /// # Errors
    /// Every [`ReportError`].
    pub async fn fetch(&self, uri: &str) -> Result<Vec<u8>, ReportError> {
        if !self.allows(uri) {
            return Err(ReportError::NotAllowed { uri: uri.to_owned() });
        }
        let malformed =
            |why: &str| ReportError::Malformed { uri: uri.to_owned(), why: why.to_owned() };
        let url = url::Url::parse(uri).map_err(|error| malformed(&error.to_string()))?;
        if url.scheme() == "file" {
            let path =
                url.to_file_path().map_err(|()| malformed("it names no file of this machine"))?;
            return self.read(uri, &path);
        }
        let bucket = url.host_str().ok_or_else(|| malformed("it names no bucket"))?;
        let key = Key::from_url_path(url.path()).map_err(|error| malformed(&error.to_string()))?;
        let store = self
            .store(url.scheme(), bucket)
            .map_err(|_| malformed("the options of its store are wrong"))?;
        self.download(uri, store.as_ref(), &key).await
    }

    async fn download(
        &self,
        uri: &str,
        store: &dyn ObjectStore,
        key: &Key,
    ) -> Result<Vec<u8>, ReportError> {
        let uri = || uri.to_owned();
        let fault = |error: Error| match error {
            Error::NotFound { .. } => ReportError::NotFound { uri: uri() },
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
                ReportError::Denied { uri: uri() }
            }
            // Other errors of a server may contain anything, credentials included.
            _ => ReportError::Store { uri: uri() },
        };
        let found = store.get(key).await.map_err(fault)?;
        let mut bytes = Vec::new();
        let mut chunks = found.into_stream();
        while let Some(chunk) = chunks.next().await {
            bytes.extend_from_slice(&chunk.map_err(fault)?);
            if bytes.len() as u64 > LIMIT_BYTES {
                return Err(ReportError::TooLarge { uri: uri() });
            }
        }
        Ok(bytes)
    }

    /// Reads a file; a link may not lead out of the folders.
    fn read(&self, uri: &str, path: &Path) -> Result<Vec<u8>, ReportError> {
        let uri = || uri.to_owned();
        let real = path.canonicalize().map_err(|_| ReportError::NotFound { uri: uri() })?;
        let inside = |folder: &Folder| {
            let folder = folder.0.strip_prefix("file://").map(PathBuf::from);
            folder
                .and_then(|folder| folder.canonicalize().ok())
                .is_some_and(|folder| real.starts_with(folder))
        };
        if self.folders.as_ref().is_some_and(|folders| !folders.iter().any(inside)) {
            return Err(ReportError::NotAllowed { uri: uri() });
        }
        let size = real.metadata().map_err(|_| ReportError::NotFound { uri: uri() })?.len();
        if size > LIMIT_BYTES {
            return Err(ReportError::TooLarge { uri: uri() });
        }
        std::fs::read(&real).map_err(|_| ReportError::Denied { uri: uri() })
    }

    fn store(&self, scheme: &str, bucket: &str) -> object_store::Result<Arc<dyn ObjectStore>> {
        // The library takes whichever provider the program installed; a second installation changes nothing.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let options = self.options.iter().map(|(key, value)| (key.to_ascii_lowercase(), value));
        // A store's options that another store has too are not an error: one Secret may serve several.
        Ok(match scheme {
            "s3" => {
                let mut builder = AmazonS3Builder::from_env();
                for (key, value) in options {
                    if let Ok(key) = AmazonS3ConfigKey::from_str(&key) {
                        builder = builder.with_config(key, value);
                    }
                }
                if let Some(endpoint) = &self.endpoint {
                    builder = builder
                        .with_endpoint(endpoint)
                        .with_allow_http(endpoint.starts_with("http://"));
                }
                Arc::new(builder.with_bucket_name(bucket).build()?)
            }
            "gs" => {
                let mut builder = GoogleCloudStorageBuilder::from_env();
                for (key, value) in options {
                    if let Ok(key) = GoogleConfigKey::from_str(&key) {
                        builder = builder.with_config(key, value);
                    }
                }
                Arc::new(builder.with_bucket_name(bucket).build()?)
            }
            _ => {
                let mut builder = MicrosoftAzureBuilder::from_env();
                for (key, value) in options {
                    if let Ok(key) = AzureConfigKey::from_str(&key) {
                        builder = builder.with_config(key, value);
                    }
                }
                if let Some(endpoint) = &self.endpoint {
                    builder = builder.with_endpoint(endpoint.clone());
                }
                Arc::new(builder.with_container_name(bucket).build()?)
            }
        })
    }
}

/// The URI of the page for people beside the report for programs.
pub fn page_of(report: &str) -> String {
    format!("{}.html", report.strip_suffix(".json").unwrap_or(report))
}

/// A name for a file of a report: the last part of its URI.
pub fn file_name(uri: &str) -> String {
    let name = Path::new(uri.rsplit('/').next().unwrap_or("report"));
    match name.components().next_back() {
        Some(Component::Normal(name)) => name.to_string_lossy().into_owned(),
        _ => "report".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn of(folders: &[&str]) -> Reports {
        let folders = folders.iter().map(|folder| folder.parse().unwrap()).collect();
        Reports { folders: Some(folders), ..Reports::default() }
    }

    #[test]
    fn a_folder_ends_at_a_slash() {
        assert!("s3://models".parse::<Folder>().is_err());
        assert!("https://example.com/".parse::<Folder>().is_err());
        assert!("s3:///".parse::<Folder>().is_err());
        assert!("file:///srv/out/".parse::<Folder>().is_ok());
    }

    #[test]
    fn only_what_lies_in_a_folder_is_read() {
        let reports = of(&["s3://artifacts/team/"]);
        assert!(reports.allows("s3://artifacts/team/a.json"));
        for outside in [
            "s3://artifacts/team-of-others/a.json",
            "s3://artifacts/team/../secret.json",
            "s3://artifacts/team/%2e%2e/secret.json",
            "file:///etc/passwd",
            "http://169.254.169.254/latest",
        ] {
            assert!(!reports.allows(outside), "{outside}");
        }
        assert!(!of(&[]).allows("s3://artifacts/team/a.json"));
    }

    #[tokio::test]
    async fn a_link_does_not_lead_out_of_the_folder() {
        let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(inside.path().join("a.json"), "{}").unwrap();
        std::fs::write(outside.path().join("b.json"), "secret").unwrap();
        std::os::unix::fs::symlink(outside.path().join("b.json"), inside.path().join("b.json"))
            .unwrap();
        let folder = format!("file://{}/", inside.path().display());
        let reports = of(&[&folder]);
        assert_eq!(reports.fetch(&format!("{folder}a.json")).await.unwrap(), b"{}");
        let refused = reports.fetch(&format!("{folder}b.json")).await.unwrap_err();
        assert!(matches!(refused, ReportError::NotAllowed { .. }), "{refused}");
        let gone = reports.fetch(&format!("{folder}c.json")).await.unwrap_err();
        assert!(matches!(gone, ReportError::NotFound { .. }), "{gone}");
    }

    #[test]
    fn the_page_lies_beside_the_report() {
        assert_eq!(page_of("s3://a/b-1.u.json"), "s3://a/b-1.u.html");
        assert_eq!(file_name("s3://a/b-1.u.json"), "b-1.u.json");
        assert_eq!(file_name("s3://a/.."), "report");
    }
}
