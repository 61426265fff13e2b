//! A case as it lies in its folder.

use anyhow::{Context, Result, bail};
use hone_import::InputForm;
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
    /// What each input is: `tensor`, `sequence` or `optional`.
    input_kinds: Vec<String>,
    /// The same of each output.
    output_kinds: Vec<String>,
    model: ModelProto,
    folder: PathBuf,
}

/// The values of a case's inputs or outputs.
#[derive(Default)]
pub struct Values {
    /// Tensors by name, those of a sequence `x` as `x[0]`, `x[1]` and so on; `None` where the file holds none.
    pub tensors: Vec<(String, Option<Tensor>)>,
    /// Which of the values are sequences, and which are not there.
    pub forms: Vec<(String, InputForm)>,
}

impl Values {
    /// The tensor of a name.
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.tensors.iter().find(|(own, _)| own == name)?.1.as_ref()
    }
}

/// A sequence as ONNX's test data has it.
#[derive(Clone, PartialEq, prost::Message)]
struct SequenceProto {
    #[prost(message, repeated, tag = "3")]
    tensor_values: Vec<TensorProto>,
}

/// An optional value as ONNX's test data has it.
#[derive(Clone, PartialEq, prost::Message)]
struct OptionalProto {
    #[prost(message, optional, tag = "3")]
    tensor_value: Option<TensorProto>,
    #[prost(message, optional, tag = "5")]
    sequence_value: Option<SequenceProto>,
}

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
        input_kinds: line.inputs,
        output_kinds: line.outputs,
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
    /// Whether the case is in a sample of one of so many: by its name, so that the sample does not depend on what
    /// other cases there are.
    pub fn is_in_sample(&self, one_of: u64) -> bool {
        let hash = self.name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        (hash >> 32).is_multiple_of(one_of)
    }

    /// Inputs and expected outputs; an error says why the case is none for us.
    pub fn values(&self) -> Result<(Values, Values)> {
        let read = |prefix: &str, names: &[String], kinds: &[String]| -> Result<Values> {
            let mut values = Values::default();
            for (place, (name, kind)) in names.iter().zip(kinds).enumerate() {
                self.read(prefix, place, (name, kind), &mut values)?;
            }
            Ok(values)
        };
        let inputs = read("input", &self.inputs, &self.input_kinds)?;
        Ok((inputs, read("output", &self.outputs, &self.output_kinds)?))
    }

    fn bytes(&self, prefix: &str, place: usize) -> Result<Vec<u8>> {
        let file = self.folder.join(format!("{prefix}_{place}.pb"));
        fs::read(&file).with_context(|| format!("cannot read {}", file.display()))
    }

    /// Adds one value of a case.
    fn read(
        &self,
        prefix: &str,
        place: usize,
        (name, kind): (&str, &str),
        values: &mut Values,
    ) -> Result<()> {
        let bytes = self.bytes(prefix, place)?;
        let (single, sequence) = match kind {
            "sequence" => (None, Some(SequenceProto::decode(bytes.as_slice())?)),
            "optional" => {
                let own = OptionalProto::decode(bytes.as_slice())?;
                (own.tensor_value, own.sequence_value)
            }
            _ => (Some(TensorProto::decode(bytes.as_slice())?), None),
        };
        match (single, sequence) {
            (Some(proto), _) => values.tensors.push((name.to_owned(), tensor(proto)?)),
            (None, Some(sequence)) => {
                let count = sequence.tensor_values.len();
                values.forms.push((name.to_owned(), InputForm::Sequence(count)));
                for (item, proto) in sequence.tensor_values.into_iter().enumerate() {
                    values.tensors.push((format!("{name}[{item}]"), tensor(proto)?));
                }
            }
            (None, None) => values.forms.push((name.to_owned(), InputForm::Absent)),
        }
        Ok(())
    }

    /// The model's bytes, with the inputs called `stored` stored inside.
    pub fn model_with(&self, stored: &[String]) -> Result<Vec<u8>> {
        let mut model = self.model.clone();
        if let Some(graph) = &mut model.graph {
            for (place, name) in self.inputs.iter().enumerate() {
                if stored.contains(name) {
                    let proto = TensorProto::decode(self.bytes("input", place)?.as_slice())?;
                    graph.initializer.push(TensorProto { name: Some(name.clone()), ..proto });
                }
            }
        }
        Ok(model.encode_to_vec())
    }
}

/// A stored tensor; `None` of one without a type.
fn tensor(proto: TensorProto) -> Result<Option<Tensor>> {
    if proto.data_type.unwrap_or(0) == 0 {
        return Ok(None);
    }
    match hone_import::onnx::tensor(proto) {
        Ok(tensor) => Ok(Some(tensor)),
        Err(error) => bail!("{error}"),
    }
}
