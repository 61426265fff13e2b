//! The official operator cases through verification: no sound kernel is refused.

#![allow(clippy::unwrap_used)]

use anyhow::{Result, ensure};
use hone_driver::{Graph, Options, Target, Tensor, compile_graph};
use hone_onnx_tests::{Backend, folder, load, run, shorter_suite};
use hone_worker::verify::{Sample, Settings, Subject, verify};
use hone_worker::work::executor::{Executor, Native};

/// Compiled code that is verified kernel by kernel before it runs.
struct Verified {
    options: Options,
}

impl Backend for Verified {
    fn name(&self) -> &'static str {
        "verified code"
    }

    fn run(&self, graph: &Graph, inputs: &[Tensor]) -> Result<Option<Vec<Tensor>>> {
        let artifact = compile_graph(graph.clone(), b"case", &self.options)?.artifact;
        let options = hone_runtime::Options { threads: 1, ..Default::default() };
        let mut native = Native::from_bytes(artifact.clone(), &options)?;
        let inputs: Vec<Vec<u8>> = inputs.iter().map(|tensor| tensor.bytes().to_vec()).collect();
        let sample = Sample { name: "case".to_owned(), inputs: inputs.clone(), edges: false };
        let subject = Subject {
            name: "case",
            artifact: &artifact,
            sizes: 0,
            imported: graph,
            options: Ok(&self.options),
        };
        let settings = Settings { rtol: 1e-3, atol: Some(1e-3), max_relative_error: None };
        let found = verify(&subject, &[sample], settings, &mut native)?;
        // Some cases give infinities on purpose.
        ensure!(found.passed() || found.end_to_end.not_finite.is_some(), "refused: {found:#?}");
        ensure!(found.end_to_end_only.is_none(), "not by kernels: {:?}", found.end_to_end_only);
        let unchecked = found.passes.as_ref().and_then(|passes| passes.unchecked.as_ref());
        ensure!(unchecked.is_none(), "the passes were not checked: {unchecked:?}");
        let types = graph.outputs().iter().map(|port| graph.tensor_type(port.value).clone());
        let outputs = types.zip(native.run(&inputs)?);
        outputs
            .map(|(own, bytes)| Ok(Tensor::from_bytes(own, bytes)?))
            .collect::<Result<_>>()
            .map(Some)
    }
}

#[test]
fn cases_of_the_shorter_suite() {
    let operators = shorter_suite();
    let cases = load(&folder()).unwrap();
    let backend = Verified { options: Options::new(Target::host().unwrap()) };
    let report = run(&backend, &cases, |case| {
        let all = std::env::var_os("HONE_ALL_CASES").is_some();
        all || operators.contains(&case.operator.as_str())
    });
    println!("{report}");
    assert!(report.is_good(), "{report}");
}
