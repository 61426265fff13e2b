//! Plain HTTP to the API server, through a `kubectl proxy`: it does TLS and, unlike `kubectl create`,
//! limits nobody's rate. A list of all objects, by which kubectl would count them, costs the server
//! more than making them; so what is done is counted by metrics.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use hone_cluster_tests::{Cluster, program};
use serde_json::Value;

/// Requests at once.
const THREADS: usize = 8;

/// The proxy, and the address at which it listens.
pub struct Api {
    proxy: Child,
    address: String,
}

impl Api {
    /// Starts a proxy to `cluster`.
    ///
    /// # Errors
    /// When kubectl cannot be run or does not say where it listens.
    pub fn start(cluster: &Cluster) -> Result<Self> {
        let mut command = Command::new(program("kubectl"));
        command.arg("--kubeconfig").arg(cluster.kubectl().kubeconfig());
        command.args(["proxy", "--port=0"]).stdout(Stdio::piped());
        let mut proxy = command.spawn().context("run kubectl proxy")?;
        let mut line = String::new();
        let output = proxy.stdout.take().context("kubectl proxy has no output")?;
        BufReader::new(output).read_line(&mut line)?;
        let address = line.trim().rsplit(' ').next().unwrap_or_default().to_owned();
        ensure!(address.contains(':'), "kubectl proxy says {line:?}");
        Ok(Self { proxy, address })
    }

    /// The proxy's process.
    pub fn id(&self) -> u32 {
        self.proxy.id()
    }

    /// What is at `path`.
    ///
    /// # Errors
    /// When the answer is not a success.
    pub fn get(&self, path: &str) -> Result<String> {
        request(&self.address, "GET", path, "")
    }

    /// Makes an object.
    ///
    /// # Errors
    /// When it is refused.
    pub fn create(&self, path: &str, object: &Value) -> Result<Value> {
        let made = request(&self.address, "POST", path, &object.to_string())?;
        Ok(serde_json::from_str(&made)?)
    }

    /// Replaces an object, or a subresource of one.
    ///
    /// # Errors
    /// When it is refused.
    pub fn replace(&self, path: &str, object: &Value) -> Result<Value> {
        let made = request(&self.address, "PUT", path, &object.to_string())?;
        Ok(serde_json::from_str(&made)?)
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        let _ = self.proxy.kill();
        let _ = self.proxy.wait();
    }
}

/// Calls `work` with every number of the range, a few at once, and stops at the first error.
///
/// # Errors
/// The first.
pub fn parallel(
    range: std::ops::Range<usize>,
    work: impl Fn(usize) -> Result<()> + Sync,
) -> Result<()> {
    let next = AtomicUsize::new(range.start);
    let failed = Mutex::new(None);
    let run = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= range.end {
                return;
            }
            if let Err(error) = work(number) {
                next.store(range.end, Ordering::Relaxed);
                if let Ok(mut failed) = failed.lock() {
                    failed.get_or_insert(error);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(run);
        }
    });
    match failed.into_inner() {
        Ok(None) => Ok(()),
        Ok(Some(error)) => Err(error),
        Err(_) => bail!("a thread that makes objects panicked"),
    }
}

/// The body of the answer to one request to a server of this machine.
///
/// # Errors
/// When there is none, or it is not a success.
pub fn request(address: &str, method: &str, path: &str, body: &str) -> Result<String> {
    let mut stream =
        TcpStream::connect(address).with_context(|| format!("connect to {address}"))?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").context("no body")?;
    let code = head.split(' ').nth(1).unwrap_or_default();
    ensure!(code.starts_with('2'), "{method} {path}: {code}: {body}");
    Ok(body.to_owned())
}
