//! The smallest model so far that fails alike, and trials of others.

use std::collections::HashSet;
use std::path::PathBuf;

use hone_artifact::write_atomically;
use hone_driver::onnx::proto::{
    GraphProto, ModelProto, tensor_shape_proto::dimension::Value as Extent,
    type_proto::Value as TypeValue,
};
use prost::Message;

use super::attempt::{Attempts, Flags};
use super::cleaned::{cleaned, without_texts};
use super::outcome::{Likeness, Outcome};
use crate::failure::{Failure, Result};

/// Most bytes of a model that is one file: the format's limit.
const LARGEST: usize = (1 << 31) - 1;

/// The state of a reduction.
#[derive(Debug)]
pub struct Trials<'a> {
    attempts: &'a Attempts,
    /// What candidates are compiled with.
    pub flags: Flags,
    likeness: Likeness,
    /// Where the smallest is written.
    out: PathBuf,
    /// The smallest so far.
    best: ModelProto,
    /// Its bytes in a file, once one has failed alike.
    pub bytes: Option<usize>,
    /// Models that were tried, by digest.
    tried: HashSet<blake3::Hash>,
    digest: Option<blake3::Hash>,
    /// How many were compiled.
    pub count: usize,
    /// The last outcome that was alike.
    pub outcome: Outcome,
    /// Whether what nothing reads is left out.
    pub prunes: bool,
}

impl<'a> Trials<'a> {
    /// Begins with a model that failed in this way.
    pub fn new(
        attempts: &'a Attempts,
        flags: Flags,
        out: PathBuf,
        (model, outcome): (ModelProto, Outcome),
    ) -> Self {
        Self {
            attempts,
            flags,
            likeness: outcome.likeness(),
            out,
            best: model,
            bytes: None,
            tried: HashSet::new(),
            digest: None,
            count: 1,
            outcome,
            prunes: true,
        }
    }

    /// What compiles candidates.
    pub fn attempts(&self) -> &'a Attempts {
        self.attempts
    }

    /// The smallest model so far.
    pub fn best(&self) -> &ModelProto {
        &self.best
    }

    /// Its graph.
    pub fn graph(&self) -> GraphProto {
        self.best.graph.clone().unwrap_or_default()
    }

    /// Nodes of its graph.
    pub fn nodes(&self) -> usize {
        self.best.graph.as_ref().map_or(0, |graph| graph.node.len())
    }

    /// The options with which it is compiled.
    pub fn options(&self) -> Vec<std::ffi::OsString> {
        self.options_of(&self.best)
    }

    fn options_of(&self, model: &ModelProto) -> Vec<std::ffi::OsString> {
        let names = sized_names(model);
        self.flags.of(|name| names.contains(name))
    }

    /// Tries the smallest model with another graph; none is not alike.
    ///
    /// # Errors
    /// As for [`Trials::is_alike`].
    pub fn is_graph_alike(&mut self, graph: Option<GraphProto>) -> Result<bool> {
        match graph {
            Some(graph) => self.is_alike(ModelProto { graph: Some(graph), ..self.best.clone() }),
            None => Ok(false),
        }
    }

    /// Whether a model fails alike. Then it is the smallest from now on, and is written.
    ///
    /// # Errors
    /// `Interrupted`; what hinders compiling or writing.
    pub fn is_alike(&mut self, model: ModelProto) -> Result<bool> {
        let model = if self.prunes { cleaned(model) } else { without_texts(model) };
        if model.encoded_len() > LARGEST {
            return Ok(false);
        }
        let bytes = model.encode_to_vec();
        let digest = blake3::hash(&bytes);
        if self.digest == Some(digest) {
            return Ok(true);
        }
        if !self.tried.insert(digest) {
            return Ok(false);
        }
        let path = self.attempts.candidate();
        let unwritten = |error| Failure::io("temporary files cannot be written", error);
        std::fs::write(&path, &bytes).map_err(unwritten)?;
        self.count += 1;
        let outcome = self.attempts.compile(&path, &self.options_of(&model))?;
        if outcome.likeness() != self.likeness {
            return Ok(false);
        }
        write_atomically(&self.out, std::iter::once(&bytes[..]))?;
        (self.best, self.digest, self.bytes) = (model, Some(digest), Some(bytes.len()));
        self.outcome = outcome;
        eprintln!("{} nodes, {} bytes after {} attempts", self.nodes(), bytes.len(), self.count);
        Ok(true)
    }
}

/// Names that sizes can be given for: of inputs, and of their dimensions.
fn sized_names(model: &ModelProto) -> HashSet<String> {
    let mut names = HashSet::new();
    for input in model.graph.iter().flat_map(|graph| &graph.input) {
        names.extend(input.name.clone());
        let Some(TypeValue::TensorType(tensor)) =
            input.r#type.as_ref().and_then(|entry| entry.value.as_ref())
        else {
            continue;
        };
        names.extend(tensor.shape.iter().flat_map(|shape| &shape.dim).filter_map(|dim| {
            match &dim.value {
                Some(Extent::DimParam(symbol)) => Some(symbol.clone()),
                _ => None,
            }
        }));
    }
    names
}
