//! A listener that speaks TLS: with a certificate from files, which may be renewed while it runs, or with one that it
//! signs itself.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Longest time of a handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Most handshakes under way; others wait.
const HANDSHAKES: usize = 64;
/// How long a certificate is used before its files are read again.
const READ_AGAIN: Duration = Duration::from_secs(30);

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// One of the files is none.
    #[error("'{}' is no certificate or key in PEM: name a folder with tls.crt and tls.key", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    /// Certificate and key are not usable together.
    #[error("the certificate cannot be used")]
    Certificate(#[from] rustls::Error),
    /// None can be made.
    #[error("no certificate can be signed")]
    SelfSigned(#[from] rcgen::Error),
}

/// Where a certificate comes from.
#[derive(Debug)]
struct Certificate {
    /// The folder with `tls.crt` and `tls.key`; `None` where it is signed here.
    folder: Option<PathBuf>,
    current: Mutex<(Instant, Arc<CertifiedKey>)>,
}

impl Certificate {
    fn open(folder: Option<PathBuf>) -> Result<Self, TlsError> {
        let key = match &folder {
            Some(folder) => read(folder)?,
            None => sign()?,
        };
        Ok(Self { folder, current: Mutex::new((Instant::now(), Arc::new(key))) })
    }

    /// The certificate, read again where that is due. One that cannot be read leaves the one before in use.
    fn current(&self) -> Arc<CertifiedKey> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(folder) = self.folder.as_ref().filter(|_| current.0.elapsed() >= READ_AGAIN) {
            current.0 = Instant::now();
            match read(folder) {
                Ok(key) => current.1 = Arc::new(key),
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, "the certificate of metrics is not renewed");
                }
            }
        }
        Arc::clone(&current.1)
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn read(folder: &Path) -> Result<CertifiedKey, TlsError> {
    let file = |name: &str| folder.join(name);
    let wrong = |path: PathBuf| move |source| TlsError::File { path, source };
    let chain = CertificateDer::pem_file_iter(file("tls.crt"))
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(wrong(file("tls.crt")))?;
    let key = PrivateKeyDer::from_pem_file(file("tls.key")).map_err(wrong(file("tls.key")))?;
    Ok(CertifiedKey::from_der(chain, key, &provider())?)
}

fn sign() -> Result<CertifiedKey, TlsError> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    Ok(CertifiedKey::from_der(vec![made.cert.der().clone()], key, &provider())?)
}

type Handshake = BoxFuture<'static, Option<(TlsStream<TcpStream>, SocketAddr)>>;

/// Accepts connections over TLS. Slow handshakes keep nobody else waiting, and those that fail are dropped.
pub struct TlsListener {
    tcp: TcpListener,
    acceptor: TlsAcceptor,
    handshakes: FuturesUnordered<Handshake>,
}

impl TlsListener {
    /// Over `tcp`, with the certificate in `folder`, or one that is signed here and that nobody can check.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn new(tcp: TcpListener, folder: Option<PathBuf>) -> Result<Self, TlsError> {
        let certificate = Arc::new(Certificate::open(folder)?);
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(certificate);
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Ok(Self { tcp, acceptor, handshakes: FuturesUnordered::new() })
    }

    fn begin(&self, stream: TcpStream, address: SocketAddr) {
        let handshake = self.acceptor.accept(stream);
        self.handshakes.push(Box::pin(async move {
            let done = tokio::time::timeout(HANDSHAKE, handshake).await;
            Some((done.ok()?.ok()?, address))
        }));
    }
}

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            tokio::select! {
                Some(done) = self.handshakes.next() => {
                    if let Some(connection) = done {
                        return connection;
                    }
                }
                accepted = TcpListener::accept(&self.tcp), if self.handshakes.len() < HANDSHAKES => {
                    match accepted {
                        Ok((stream, address)) => self.begin(stream, address),
                        // Such as too many open files: it passes.
                        Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                    }
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.tcp.local_addr()
    }
}
