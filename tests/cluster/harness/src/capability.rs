//! What the test cluster can do on this machine.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context, Result};

use crate::scripts::script;

/// A part of the test environment that a test may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Capability {
    /// An API server.
    Plane,
    /// An API server with controllers and a scheduler.
    Controllers,
    /// A real node that runs containers.
    Node,
    /// Simulated nodes.
    Kwok,
    /// Kueue, which queues Jobs by quota.
    Kueue,
    /// Tekton's controller.
    Tekton,
    /// An S3 server with conditional writes.
    S3,
    /// Servers that speak Google Cloud Storage and Azure Blob Storage.
    Azure,
    /// The image writer.
    Images,
    /// The program `helm`.
    Helm,
    /// The program `kubeconform`.
    Kubeconform,
    /// Flux's view of an object's health.
    Kstatus,
    /// Argo CD's engine for health scripts.
    Argohealth,
    /// A device plugin, and an OpenCL driver that it can hand to containers.
    OpenCl,
    /// Our own programs as they ship, for images.
    Product,
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plane => "plane",
            Self::Controllers => "controllers",
            Self::Node => "node",
            Self::Kwok => "kwok",
            Self::Kueue => "kueue",
            Self::Tekton => "tekton",
            Self::S3 => "s3",
            Self::Azure => "azure",
            Self::Images => "images",
            Self::Helm => "helm",
            Self::Kubeconform => "kubeconform",
            Self::Kstatus => "kstatus",
            Self::Argohealth => "argohealth",
            Self::OpenCl => "opencl",
            Self::Product => "product",
        })
    }
}

/// Whether a capability is to be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It is set up.
    Yes,
    /// It is not set up; this command does it.
    Missing(String),
    /// This machine cannot, for this reason.
    Impossible(String),
}

/// The states of all capabilities, by name.
#[derive(Clone, Debug)]
pub struct Capabilities(BTreeMap<String, State>);

impl Capabilities {
    /// Asks `capabilities.sh`.
    ///
    /// # Errors
    /// When the script cannot be run, or prints what this does not understand.
    pub fn read() -> Result<Self> {
        Self::parse(&script("capabilities.sh", &[])?)
    }

    fn parse(text: &str) -> Result<Self> {
        text.lines()
            .map(|line| {
                parse_line(line).with_context(|| format!("capabilities.sh printed {line:?}"))
            })
            .collect::<Result<_>>()
            .map(Self)
    }

    /// The state of one capability; one that the script does not list cannot be had.
    pub fn state(&self, capability: Capability) -> State {
        let name = capability.to_string();
        self.0
            .get(&name)
            .cloned()
            .unwrap_or_else(|| State::Impossible(format!("capabilities.sh does not list {name}")))
    }
}

fn parse_line(line: &str) -> Result<(String, State)> {
    let mut fields = line.splitn(3, '\t');
    let mut next = || fields.next().context("want three fields");
    let (name, state, reason) = (next()?, next()?, next()?.to_owned());
    let state = match state {
        "yes" => State::Yes,
        "missing" => State::Missing(reason),
        "impossible" => State::Impossible(reason),
        other => anyhow::bail!("unknown state {other:?}"),
    };
    Ok((name.to_owned(), state))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    #[test]
    fn lines_become_states() {
        let read = Capabilities::parse(
            "plane\tyes\t\nnode\timpossible\tno root\ns3\tmissing\tsetup.sh s3",
        )
        .unwrap();
        assert_eq!(read.state(Capability::Plane), State::Yes);
        assert_eq!(read.state(Capability::Node), State::Impossible("no root".into()));
        assert_eq!(read.state(Capability::S3), State::Missing("setup.sh s3".into()));
        assert!(matches!(read.state(Capability::Helm), State::Impossible(_)));
    }

    #[test]
    fn a_broken_line_is_an_error() {
        assert!(Capabilities::parse("plane yes").is_err());
        assert!(Capabilities::parse("plane\tperhaps\t").is_err());
    }
}
