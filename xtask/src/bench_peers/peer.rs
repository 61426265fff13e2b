//! The peers: what runs them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use super::absolute;
use crate::{python, repository};

/// The peers that are compared unless others are named, in the order that the first round takes.
pub const USUAL: [&str; 7] =
    ["hone", "hone-bf16", "hone-avx2", "onnxruntime", "openvino", "openvino-default", "torch"];

/// All peers.
const NAMES: [&str; 10] = [
    "hone",
    "hone-bf16",
    "hone-avx2",
    "onnxruntime",
    "openvino",
    "openvino-default",
    "torch",
    "iree",
    "tract",
    "tvm",
];

/// A way to run a model.
#[derive(Debug)]
pub struct Peer {
    /// Its name in results.
    pub name: String,
    /// The program and its first arguments.
    pub program: Vec<OsString>,
    /// Arguments after model, inputs and threads.
    pub last: Vec<OsString>,
}

/// The peers called `names`; one that cannot be set up is said aloud and left out.
pub fn all(names: &[String], hone: &Hone) -> Result<Vec<Peer>> {
    let mut peers = Vec::new();
    for name in names {
        match find(name, hone) {
            Ok(peer) => peers.push(peer),
            Err(error) if NAMES.contains(&name.as_str()) => {
                eprintln!("bench-peers: {name} is left out: {error:#}");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(peers)
}

fn find(name: &str, hone: &Hone) -> Result<Peer> {
    // Name, environment, script, last argument.
    let (environment, script, last): (_, _, &[&str]) = match name {
        "hone" => return ours(name, hone, "host", "f32"),
        "hone-bf16" => return ours(name, hone, "host", "bf16"),
        "hone-avx2" => return ours(name, hone, "linux/amd64:x86-64-v3", "f32"),
        "onnxruntime" => ("onnxruntime", "onnxruntime_peer.py", &[]),
        "openvino" => ("openvino", "openvino_peer.py", &["f32"]),
        "openvino-default" => ("openvino", "openvino_peer.py", &["default"]),
        "torch" => return torch(name),
        "iree" => ("iree", "iree_peer.py", &[]),
        "tract" => ("tract", "tract_peer.py", &[]),
        "tvm" => ("tvm", "tvm_peer.py", &[]),
        _ => bail!("no peer called {name}: one of {}", NAMES.join(", ")),
    };
    let interpreter = python::environment(environment)?;
    let script = repository::root().join("tests/peers").join(script);
    Ok(Peer {
        name: name.to_owned(),
        program: vec![interpreter.into(), script.into()],
        last: last.iter().map(OsString::from).collect(),
    })
}

/// torch, which keeps what it compiled: tuning its kernels takes minutes.
fn torch(name: &str) -> Result<Peer> {
    let interpreter = python::environment("models")?;
    let script = repository::root().join("tests/peers/torch_peer.py");
    let program = vec![interpreter.into(), script.into()];
    Ok(Peer { name: name.to_owned(), program, last: vec![kept("torch").into()] })
}

/// Where a peer keeps what it compiles, so that runs of an hour later measure and do not compile.
fn kept(peer: &str) -> PathBuf {
    repository::scratch().join("bench-peers").join(peer)
}

/// What of Hone is measured.
#[derive(Debug)]
pub struct Hone {
    /// The `hone` program, which compiles.
    pub program: PathBuf,
    /// The runtime's shared library, which runs.
    pub library: PathBuf,
}

impl Hone {
    /// The program at `program` and the library at `library`, which is built where none is named.
    ///
    /// # Errors
    /// A program or a named library that does not exist; a library that cannot be built.
    pub fn find(program: &Path, named: Option<&Path>) -> Result<Self> {
        let program = absolute(program);
        if !program.exists() {
            bail!("{} does not exist: build it with cargo build --release", program.display());
        }
        let library = match named {
            Some(named) => absolute(named),
            None => library()?,
        };
        Ok(Self { program, library })
    }
}

/// Hone through its shared library, from Python as the others.
fn ours(name: &str, hone: &Hone, target: &str, precision: &str) -> Result<Peer> {
    let interpreter = python::environment("onnxruntime")?;
    let script = repository::root().join("tests/peers/hone_peer.py");
    let Hone { program, library } = hone;
    let last: [OsString; 5] =
        [kept("hone").into(), program.into(), library.into(), target.into(), precision.into()];
    let program = vec![interpreter.into(), script.into()];
    Ok(Peer { name: name.to_owned(), program, last: last.into() })
}

/// The runtime's shared library as it ships, built where it is missing or old.
pub fn library() -> Result<PathBuf> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["rustc", "--quiet", "-p", "hone-runtime", "--profile", "runtime"]);
    command.args(["--crate-type", "cdylib"]).current_dir(repository::root());
    python::check("build the runtime's library", &mut command)?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| repository::root().join("target"));
    Ok(absolute(&target.join("runtime/libhone_runtime.so")))
}
