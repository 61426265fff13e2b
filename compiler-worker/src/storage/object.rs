//! Object stores: `s3://`, `gs://` and `az://`, with credentials from a mounted folder or the environment.

use std::fs;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use hone_artifact::exit_code::Reason;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::path::Path as Key;
use object_store::{
    ClientOptions, Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
    RetryConfig, UpdateVersion,
};

use super::answer::LastRefusal;
use super::destination::Entry;
use super::{Guard, Incoming, block_on, forbidden, https, local};
use crate::failure::{Failure, Result};

/// Most bytes that are sent without a look whether they are there already. A store may refuse a conditional write before
/// it has read the whole of it, and close the connection, which the sender sees as a fault of the network.
const UNSEEN: usize = 64 << 10;

/// How often a request is begun again after a fault of the network or the store.
const RETRIES: usize = 4;

/// An object, or a folder of objects, of a store.
#[derive(Debug)]
pub struct Place {
    uri: String,
    store: Arc<dyn ObjectStore>,
    key: Key,
    refusal: LastRefusal,
    credentials: Option<PathBuf>,
    guard: Guard,
}

/// Whether a conditional write found the object there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// It was written.
    Created,
    /// It was there.
    Existed,
}

/// Connects through a client that the guard watches over.
#[derive(Clone, Debug)]
struct Guarded {
    guard: Guard,
    refusal: LastRefusal,
    /// Whether the platform may be asked for the pod's identity. Only where no option comes from a user, so that no
    /// request is anything but the library's own question.
    identity: bool,
}

impl HttpConnector for Guarded {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let key = object_store::ClientConfigKey::AllowHttp;
        let plain = options.get_config_value(&key).is_some_and(|value| value == "true");
        let client = https::client(&self.guard, !plain)
            .map_err(|error| Error::Generic { store: "http", source: Box::new(error) })?;
        let (guard, refusal) = (self.guard.clone(), self.refusal.clone());
        Ok(HttpClient::new(Watched { guard, client, refusal, identity: self.identity }))
    }
}

/// Checks hosts that are addresses themselves, which no resolver sees: endpoints from a Secret, and
/// the metadata services that stores ask for credentials when there are no others.
#[derive(Debug)]
struct Watched {
    guard: Guard,
    client: reqwest::Client,
    refusal: LastRefusal,
    identity: bool,
}

impl HttpService for Watched {
    fn call<'s, 'a>(
        &'s self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = std::result::Result<HttpResponse, HttpError>> + Send + 'a>>
    where
        's: 'a,
        Self: 'a,
    {
        let literal = url::Url::parse(&request.uri().to_string());
        let asked = literal.as_ref().ok().filter(|_| self.identity).and_then(Guard::for_identity);
        if let Some(client) = asked.and_then(|guard| https::identity_client(&guard).ok()) {
            return Box::pin(async move { HttpService::call(&client, request).await });
        }
        if let Ok(Err(refused)) = literal.map(|url| self.guard.check_literal(&url)) {
            let refused = HttpError::new(HttpErrorKind::Unknown, refused);
            return Box::pin(async { Err(refused) });
        }
        let (answer, refusal) = (self.client.call(request), self.refusal.clone());
        Box::pin(async move { refusal.note(answer.await?).await })
    }
}

impl Place {
    /// Opens what `uri` names. `credentials` is a folder with one file per option of the store, named
    /// as the option is; without one the environment's are used.
    ///
    /// # Errors
    /// `InvalidSpec` for a URI or options that the store does not know what to do with.
    pub fn open(uri: &str, credentials: Option<&Path>, guard: &Guard) -> Result<Self> {
        Self::open_with(uri, credentials, guard, RETRIES)
    }

    /// As [`Place::open`], with requests that are begun again so many times.
    fn open_with(
        uri: &str,
        credentials: Option<&Path>,
        own: &Guard,
        retries: usize,
    ) -> Result<Self> {
        let named = || format!("'{uri}' cannot be opened");
        let invalid = |why: String| Failure::because(Reason::InvalidSpec, named(), why);
        let url = url::Url::parse(uri).map_err(|error| invalid(error.to_string()))?;
        let bucket = url.host_str().ok_or_else(|| invalid("it names no bucket".into()))?;
        let key = Key::from_url_path(url.path()).map_err(|error| invalid(error.to_string()))?;
        let options = options(credentials).map_err(|error| Failure::io(named(), error))?;
        let identity = own.has_identity() && credentials.is_none();
        let guard = own.for_bucket(&format!("{}://{bucket}", url.scheme()));
        let refusal = LastRefusal::default();
        let store = build(
            url.scheme(),
            bucket,
            options,
            Guarded { guard, refusal: refusal.clone(), identity },
            retries,
        )
        .map_err(|error| Failure::because(Reason::InvalidSpec, named(), error))?;
        let (uri, credentials) = (uri.to_owned(), credentials.map(Path::to_owned));
        Ok(Self { uri, store, key, refusal, credentials, guard: own.clone() })
    }

    /// The object's bytes, taken as they come.
    ///
    /// # Errors
    /// `NotFound`, `AccessDenied`, `TooLarge`, `StorageFault`.
    pub fn fetch(&self, incoming: &mut Incoming<'_>) -> Result<()> {
        block_on(self.download(incoming))?
    }

    async fn download(&self, incoming: &mut Incoming<'_>) -> Result<()> {
        let fault = |error| self.failure(format!("'{}' cannot be read", self.uri), error);
        let found = self.store.get(&self.key).await.map_err(fault)?;
        incoming.expect(found.meta.size)?;
        let mut chunks = found.into_stream();
        while let Some(chunk) = chunks.next().await {
            incoming.add(&chunk.map_err(fault)?)?;
        }
        Ok(())
    }

    /// Writes `name` inside this folder if nothing is there. What is there already counts only where it is the same
    /// byte for byte: others may write to the folder, and names can be computed beforehand.
    ///
    /// # Errors
    /// `ArtifactConflict` where other bytes are there; `AccessDenied`, `NotFound` for the bucket, `StorageFault`.
    pub fn create(&self, name: &str, bytes: &[u8]) -> Result<Put> {
        if bytes.len() > UNSEEN && matches!(self.size(name), Ok(Some(_))) {
            return self.compare(name, bytes);
        }
        match block_on(self.put(name, bytes.to_vec(), PutMode::Create))? {
            Ok(()) => Ok(Put::Created),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {
                self.compare(name, bytes)
            }
            Err(error) => {
                Err(self.failure(format!("'{}/{name}' cannot be written", self.uri), error))
            }
        }
    }

    /// What is there already counts where it is the same.
    fn compare(&self, name: &str, bytes: &[u8]) -> Result<Put> {
        match block_on(self.holds(name, bytes))?? {
            true => Ok(Put::Existed),
            false => Err(conflict(&format!("{}/{name}", self.uri))),
        }
    }

    /// Whether `name` inside this folder holds these bytes and no others; it is never in memory as a whole.
    async fn holds(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        let fault = |error| self.failure(format!("'{}/{name}' cannot be read", self.uri), error);
        let found = self.store.get(&self.child(name)).await.map_err(fault)?;
        let mut left = bytes;
        let mut chunks = found.into_stream();
        while let Some(chunk) = chunks.next().await {
            let Some(after) = left.strip_prefix(&*chunk.map_err(fault)?) else { return Ok(false) };
            left = after;
        }
        Ok(left.is_empty())
    }

    /// Writes `name` inside this folder over what is there.
    ///
    /// # Errors
    /// As for [`Place::create`].
    pub fn overwrite(&self, name: &str, bytes: Vec<u8>) -> Result<()> {
        block_on(self.put(name, bytes, PutMode::Overwrite))?.map_err(|error| {
            self.failure(format!("'{}/{name}' cannot be written", self.uri), error)
        })
    }

    /// The key of `name`, which may lie in a folder, inside this folder.
    fn child(&self, name: &str) -> Key {
        name.split('/').fold(self.key.clone(), Key::join)
    }

    /// The bytes of `name` inside this folder and their version; nothing where it is not there.
    ///
    /// # Errors
    /// As for [`Place::fetch`].
    pub fn versioned(&self, name: &str, limit: u64) -> Result<Option<(Vec<u8>, UpdateVersion)>> {
        let named = format!("{}/{name}", self.uri);
        let fault = |error| self.failure(format!("'{named}' cannot be read"), error);
        block_on(async {
            let found = match self.store.get(&self.child(name)).await {
                Ok(found) => found,
                Err(Error::NotFound { .. }) => return Ok(None),
                Err(error) => return Err(fault(error)),
            };
            if found.meta.size > limit {
                return Err(local::too_large(&named, found.meta.size, limit));
            }
            let (e_tag, version) = (found.meta.e_tag.clone(), found.meta.version.clone());
            let bytes = found.bytes().await.map_err(fault)?.to_vec();
            Ok(Some((bytes, UpdateVersion { e_tag, version })))
        })?
    }

    /// The size of `name` in bytes; nothing where there is no such object.
    ///
    /// # Errors
    /// `AccessDenied`, `StorageFault`.
    pub fn size(&self, name: &str) -> Result<Option<u64>> {
        match block_on(self.store.head(&self.child(name)))? {
            Ok(found) => Ok(Some(found.size)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => {
                Err(self.failure(format!("'{}/{name}' cannot be looked at", self.uri), error))
            }
        }
    }

    /// Writes `name` where it still has `version`, or is not there for `None`; whether it did.
    ///
    /// # Errors
    /// As for [`Place::create`].
    pub fn swap(&self, name: &str, bytes: &[u8], version: Option<UpdateVersion>) -> Result<bool> {
        let mode = version.map_or(PutMode::Create, PutMode::Update);
        match block_on(self.put(name, bytes.to_vec(), mode))? {
            Ok(()) => Ok(true),
            // An object that went counts as changed.
            Err(
                Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotFound { .. },
            ) => Ok(false),
            Err(error) => {
                Err(self.failure(format!("'{}/{name}' cannot be written", self.uri), error))
            }
        }
    }

    /// Deletes `name` inside this folder; one that is gone already counts as deleted.
    ///
    /// # Errors
    /// `AccessDenied`, `StorageFault`.
    pub fn remove(&self, name: &str) -> Result<()> {
        match block_on(self.store.delete(&self.child(name)))? {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => {
                Err(self.failure(format!("'{}/{name}' cannot be deleted", self.uri), error))
            }
        }
    }

    /// As [`Place::remove`], in a single request: where its answer is lost it is not begun again, so that it does not
    /// delete what somebody wrote after it.
    ///
    /// # Errors
    /// `AccessDenied`, `StorageFault`.
    pub fn remove_once(&self, name: &str) -> Result<()> {
        Self::open_with(&self.uri, self.credentials.as_deref(), &self.guard, 0)?.remove(name)
    }

    /// The objects in `folder` inside this folder, and in its folders.
    ///
    /// # Errors
    /// `AccessDenied`, `StorageFault`.
    pub fn entries(&self, folder: &str) -> Result<Vec<Entry>> {
        let prefix = self.child(folder);
        block_on(async {
            let mut entries = Vec::new();
            let mut found = self.store.list(Some(&prefix));
            while let Some(object) = found.next().await {
                let object = object.map_err(|error| {
                    self.failure(format!("'{}/{folder}' cannot be listed", self.uri), error)
                })?;
                let Some(parts) = object.location.prefix_match(&prefix) else { continue };
                let path: Vec<String> = parts.map(|part| part.as_ref().to_owned()).collect();
                // A store's times are of whole seconds.
                let version = object.e_tag.unwrap_or_default();
                let version = format!("{version} {}", object.last_modified);
                let modified = object.last_modified.into();
                entries.push(Entry { path: path.join("/"), version, modified });
            }
            Ok(entries)
        })?
    }

    async fn put(&self, name: &str, bytes: Vec<u8>, mode: PutMode) -> object_store::Result<()> {
        let key = self.child(name);
        let options = PutOptions { mode, ..PutOptions::default() };
        self.store.put_opts(&key, PutPayload::from(bytes), options).await.map(|_| ())
    }

    /// The failure behind an error of the library, whose own text repeats what servers said.
    fn failure(&self, message: String, error: Error) -> Failure {
        let reason = match &error {
            error if forbidden(error) => Reason::SourceForbidden,
            Error::NotFound { .. } => Reason::NotFound,
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => Reason::AccessDenied,
            Error::NotImplemented { .. } | Error::NotSupported { .. } => Reason::NotSupportedYet,
            _ => Reason::StorageFault,
        };
        Failure::new(reason, format!("{message}: {}", self.refusal.words(&error)))
    }
}

/// Other bytes lie where an artifact is to be stored.
pub(super) fn conflict(uri: &str) -> Failure {
    let message = format!(
        "'{uri}' exists and holds other bytes than this artifact: find out who wrote it, delete it, or choose another output"
    );
    Failure::new(Reason::ArtifactConflict, message)
}

/// The options in a folder: names as the files are, without a line's end that an editor left.
fn options(folder: Option<&Path>) -> std::io::Result<Vec<(String, String)>> {
    let mut options = Vec::new();
    let Some(folder) = folder else { return Ok(options) };
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        // Mounted Secrets keep folders of their own beside the links to files.
        if let Some(name) = path.file_name().and_then(|name| name.to_str())
            && path.is_file()
        {
            let value = fs::read_to_string(&path)?;
            options
                .push((name.to_ascii_lowercase(), value.trim_end_matches(['\n', '\r']).to_owned()));
        }
    }
    options.sort();
    Ok(options)
}

fn build(
    scheme: &str,
    bucket: &str,
    options: Vec<(String, String)>,
    connector: Guarded,
    retries: usize,
) -> object_store::Result<Arc<dyn ObjectStore>> {
    let retry = RetryConfig {
        max_retries: retries,
        retry_timeout: Duration::from_secs(60),
        ..RetryConfig::default()
    };
    // A store's options that another store has too are not an error: one Secret may serve several.
    Ok(match scheme {
        "s3" => {
            let builder =
                options.iter().fold(AmazonS3Builder::from_env(), |builder, (key, value)| {
                    match AmazonS3ConfigKey::from_str(key) {
                        Ok(key) => builder.with_config(key, value),
                        Err(_) => builder,
                    }
                });
            let builder = builder.with_bucket_name(bucket).with_retry(retry);
            Arc::new(builder.with_http_connector(connector).build()?)
        }
        "gs" => {
            let start = GoogleCloudStorageBuilder::from_env();
            let builder =
                options.iter().fold(
                    start,
                    |builder, (key, value)| match GoogleConfigKey::from_str(key) {
                        Ok(key) => builder.with_config(key, value),
                        Err(_) => builder,
                    },
                );
            let builder = builder.with_bucket_name(bucket).with_retry(retry);
            Arc::new(builder.with_http_connector(connector).build()?)
        }
        _ => {
            let start = MicrosoftAzureBuilder::from_env();
            let builder =
                options.iter().fold(start, |builder, (key, value)| match AzureConfigKey::from_str(
                    key,
                ) {
                    Ok(key) => builder.with_config(key, value),
                    Err(_) => builder,
                });
            let builder = builder.with_container_name(bucket).with_retry(retry);
            Arc::new(builder.with_http_connector(connector).build()?)
        }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_mounted_secret_is_read_as_options() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("..data")).unwrap();
        fs::write(folder.path().join("..data/AWS_REGION"), "eu-west-1\n").unwrap();
        std::os::unix::fs::symlink("..data/AWS_REGION", folder.path().join("AWS_REGION")).unwrap();
        let found = options(Some(folder.path())).unwrap();
        assert_eq!(found, [("aws_region".to_owned(), "eu-west-1".to_owned())]);
    }

    /// S9: the pod's identity is asked for where the administrator says so, and never by a URL of a user's making.
    #[test]
    fn a_secret_leads_to_no_metadata_service() {
        // A tenant's Secret makes the metadata service its endpoint, and a bucket of the path.
        let folder = tempfile::tempdir().unwrap();
        for (name, value) in [
            ("AWS_ENDPOINT", "http://169.254.169.254"),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_ACCESS_KEY_ID", "a"),
            ("AWS_SECRET_ACCESS_KEY", "b"),
        ] {
            fs::write(folder.path().join(name), value).unwrap();
        }
        let guard = Guard::default().with_identity(true);
        let uri = "s3://latest/meta-data/iam/security-credentials/role";
        let place = Place::open(uri, Some(folder.path()), &guard);
        let failure = place.and_then(|place| get(&place, 10)).unwrap_err();
        assert_eq!(failure.reason, Reason::SourceForbidden, "{}", failure.chain());
    }

    #[test]
    fn a_store_at_a_private_address_is_refused_unless_allowed() {
        let folder = tempfile::tempdir().unwrap();
        for (name, value) in [
            ("AWS_ENDPOINT", "http://127.0.0.1:9"),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_ACCESS_KEY_ID", "a"),
            ("AWS_SECRET_ACCESS_KEY", "b"),
        ] {
            fs::write(folder.path().join(name), value).unwrap();
        }
        let place = Place::open("s3://models/a.onnx", Some(folder.path()), &Guard::default());
        let failure = place.and_then(|place| get(&place, 10)).unwrap_err();
        assert_eq!(failure.reason, Reason::SourceForbidden, "{}", failure.chain());
        let allowed = Guard::new(["s3://models@127.0.0.1"]);
        let place = Place::open("s3://models/a.onnx", Some(folder.path()), &allowed);
        let failure = place.and_then(|place| get(&place, 10)).unwrap_err();
        assert_eq!(failure.reason, Reason::StorageFault, "{}", failure.chain());
    }

    /// A store on this machine that gives each of these answers to one connection; its port.
    fn store(answers: Vec<String>) -> u16 {
        use std::io::{Read, Write};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = vec![0; 1 << 16];
                let _ = stream.read(&mut request);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        port
    }

    fn answer(status: &str, body: &str) -> String {
        format!(
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\nETag: \"e\"\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
    }

    fn get(place: &Place, limit: u64) -> Result<Vec<u8>> {
        let mut incoming = Incoming::new(&place.uri, limit, Path::new("/nowhere"));
        place.fetch(&mut incoming)?;
        Ok(incoming.finish()?.bytes.to_vec())
    }

    fn place(port: u16) -> Place {
        let folder = tempfile::tempdir().unwrap();
        for (name, value) in [
            ("AWS_ENDPOINT", format!("http://127.0.0.1:{port}").as_str()),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_ACCESS_KEY_ID", "a"),
            ("AWS_SECRET_ACCESS_KEY", "b"),
        ] {
            fs::write(folder.path().join(name), value).unwrap();
        }
        let guard = Guard::new(["s3://models@127.0.0.1"]);
        Place::open("s3://models/x", Some(folder.path()), &guard).unwrap()
    }

    #[test]
    fn nothing_of_a_servers_answer_is_repeated_but_status_and_code() {
        const SECRET: &str = "<Error><Code>AccessDenied</Code><Message>token eyJhbGciOi</Message><AWSAccessKeyId>AKIA123</AWSAccessKeyId></Error>";
        for (status, reason) in [
            ("403 Forbidden", Reason::AccessDenied),
            ("404 Not Found", Reason::NotFound),
            ("418 eyJhbGciOi", Reason::StorageFault),
        ] {
            let place = place(store(vec![answer(status, SECRET)]));
            let text = get(&place, 100).map_err(|failure| (failure.reason, failure.chain()));
            let (found, text) = text.unwrap_err();
            assert_eq!(found, reason, "{text}");
            assert!(text.contains(&status[..3]) && text.contains("AccessDenied"), "{text}");
            assert!(!text.contains("eyJ") && !text.contains("AKIA"), "{text}");
        }
    }

    /// S3: an object that is there already is ours only where its bytes are.
    #[test]
    fn what_is_there_already_is_compared() {
        let exists = || answer("412 Precondition Failed", "");
        let same = place(store(vec![exists(), answer("200 OK", "code")]));
        assert_eq!(same.create("a.hone", b"code").unwrap(), Put::Existed);
        for other in ["evil", "more than the code", ""] {
            let other = place(store(vec![exists(), answer("200 OK", other)]));
            let failure = other.create("a.hone", b"code").unwrap_err();
            assert_eq!(failure.reason, Reason::ArtifactConflict, "{}", failure.chain());
        }
    }

    /// Many bytes are not sent where something is there; without anything there they are.
    #[test]
    fn many_bytes_are_sent_only_where_nothing_is_there() {
        let code = "c".repeat(UNSEEN + 1);
        let there = || answer("200 OK", &code);
        let same = place(store(vec![there(), there()]));
        assert_eq!(same.create("a.hone", code.as_bytes()).unwrap(), Put::Existed);
        let other = place(store(vec![there(), answer("200 OK", "evil")]));
        let failure = other.create("a.hone", code.as_bytes()).unwrap_err();
        assert_eq!(failure.reason, Reason::ArtifactConflict, "{}", failure.chain());
        let nothing = place(store(vec![answer("404 Not Found", ""), answer("200 OK", "")]));
        assert_eq!(nothing.create("a.hone", code.as_bytes()).unwrap(), Put::Created);
    }
}
