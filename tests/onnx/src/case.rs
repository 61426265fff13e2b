//! A case as it lies in its folder.

use anyhow::{Context, Result, bail};
use hone_import::onnx::proto::{ModelProto, TensorProto};
use hone_types::Tensor;
use prost::Message;
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};

/// A line of the index.
#[derive(Deserialize)]
struct Line {
    case: String,
    op_type: String,
    domain: String,
    rtol: f64,
    atol: f64,
    inputs: Vec<String>,
    outputs: Vec<String>,
    operators: Vec<String>,
}

/// One operator case.
pub struct Case {
    /// Its name.
    pub name: String,
    /// The operator under test, with its domain unless it is ONNX's own.
    pub operator: String,
    /// The operators its graph holds.
    pub operators: Vec<String>,
    /// Relative tolerance.
    pub rtol: f64,
    /// Absolute tolerance.
    pub atol: f64,
    /// Names of the graph's inputs.
    pub inputs: Vec<String>,
    /// Names of the graph's outputs.
    pub outputs: Vec<String>,
    /// Whether all values are tensors, neither sequences nor options.
    tensors: bool,
    model: ModelProto,
    folder: PathBuf,
}

/// The values of a case's inputs or outputs; `None` where the file holds none.
pub type Values = Vec<Option<Tensor>>;

/// Every case below `folder`, sorted by name.
pub fn load(folder: &Path) -> Result<Vec<Case>> {
    let index = folder.join("index.jsonl");
    let text = fs::read_to_string(&index).with_context(|| {
        format!("cannot read {}: run `cargo xtask onnx-tests` first", index.display())
    })?;
    text.lines().map(|line| read(folder, line)).collect()
}

fn read(folder: &Path, line: &str) -> Result<Case> {
    let line: Line = serde_json::from_str(line)?;
    let folder = folder.join(&line.case);
    let bytes = fs::read(folder.join("model.onnx"))
        .with_context(|| format!("cannot read the model of {}", line.case))?;
    let model = ModelProto::decode(bytes.as_slice())?;
    let graph = model.graph.clone().unwrap_or_default();
    let names = |ports: &[hone_import::onnx::proto::ValueInfoProto]| {
        ports.iter().map(|port| port.name.clone().unwrap_or_default()).collect()
    };
    let operator = match line.domain.as_str() {
        "" => line.op_type,
        domain => format!("{domain}.{}", line.op_type),
    };
    Ok(Case {
        inputs: names(&graph.input),
        outputs: names(&graph.output),
        tensors: line.inputs.iter().chain(&line.outputs).all(|kind| kind == "tensor"),
        name: line.case,
        operator,
        operators: line.operators,
        rtol: line.rtol,
        atol: line.atol,
        model,
        folder,
    })
}

impl Case {
    /// Inputs and expected outputs; an error says why the case is none for us.
    pub fn values(&self) -> Result<(Values, Values)> {
        if !self.tensors {
            bail!("sequences and options are no tensors");
        }
        let read = |prefix: &str, count: usize| -> Result<Values> {
            (0..count).map(|place| self.value(prefix, place)).collect()
        };
        Ok((read("input", self.inputs.len())?, read("output", self.outputs.len())?))
    }

    fn proto(&self, prefix: &str, place: usize) -> Result<TensorProto> {
        let file = self.folder.join(format!("{prefix}_{place}.pb"));
        let bytes = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        Ok(TensorProto::decode(bytes.as_slice())?)
    }

    fn value(&self, prefix: &str, place: usize) -> Result<Option<Tensor>> {
        let proto = self.proto(prefix, place)?;
        if proto.data_type.unwrap_or(0) == 0 {
            return Ok(None);
        }
        match hone_import::onnx::tensor(proto) {
            Ok(tensor) => Ok(Some(tensor)),
            Err(error) => bail!("{error}"),
        }
    }

    /// The model's bytes, with the inputs at `stored` stored inside.
    pub fn model_with(&self, stored: &[usize]) -> Result<Vec<u8>> {
        let mut model = self.model.clone();
        if let Some(graph) = &mut model.graph {
            for place in stored {
                let name = self.inputs.get(*place).cloned();
                graph.initializer.push(TensorProto { name, ..self.proto("input", *place)? });
            }
        }
        Ok(model.encode_to_vec())
    }
}
