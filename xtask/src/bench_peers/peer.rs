//! The peers: what runs them.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Result, bail};

use super::absolute;
use crate::{python, repository};

/// The peers' names, in the order that the first round takes.
pub const NAMES: [&str; 9] = [
    "hone",
    "hone-bf16",
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
    /// Whether a process of its own compiles, and those that run find the result.
    pub ahead: bool,
}

/// The peers called `names`; one that cannot be set up is said aloud and left out.
pub fn all(names: &[String], hone: &Path) -> Result<Vec<Peer>> {
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

fn find(name: &str, hone: &Path) -> Result<Peer> {
    // Name, environment, script, last argument.
    let (environment, script, last): (_, _, &[&str]) = match name {
        "hone" => return ours(name, hone, "f32"),
        "hone-bf16" => return ours(name, hone, "bf16"),
        "onnxruntime" => ("onnxruntime", "onnxruntime_peer.py", &[]),
        "openvino" => ("openvino", "openvino_peer.py", &["f32"]),
        "openvino-default" => ("openvino", "openvino_peer.py", &["default"]),
        "torch" => ("models", "torch_peer.py", &[]),
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
        ahead: false,
    })
}

fn ours(name: &str, hone: &Path, precision: &str) -> Result<Peer> {
    let program = absolute(hone);
    if !program.exists() {
        bail!("{} does not exist: build it with cargo build --release", program.display());
    }
    let options = ["bench", "--serve", "--precision", precision].map(OsString::from);
    let program = [program.into()].into_iter().chain(options).collect();
    Ok(Peer { name: name.to_owned(), program, last: Vec::new(), ahead: true })
}
