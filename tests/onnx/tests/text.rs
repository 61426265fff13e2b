//! The official operator cases by way of the text form of their graphs: what is printed parses back to the same
//! graph.

#![allow(clippy::unwrap_used)]

use anyhow::{Result, ensure};
use hone_onnx_tests::{Backend, Interpreter, folder, load, run, shorter_suite};
use hone_ops::{Graph, Op};
use hone_types::Tensor;

/// The interpreter on the graph that the text of a graph gives.
struct Text;

impl Backend for Text {
    fn name(&self) -> &'static str {
        "text form"
    }

    fn run(&self, graph: &Graph, inputs: &[Tensor]) -> Result<Option<Vec<Tensor>>> {
        let text = graph.to_string();
        let parsed = hone_graph::parse::<Op>(&text)?;
        ensure!(parsed == *graph, "another graph came back from:\n{text}");
        Interpreter.run(&parsed, inputs)
    }
}

#[test]
fn cases_of_the_shorter_suite() {
    let operators = shorter_suite();
    let cases = load(&folder()).unwrap();
    let report = run(&Text, &cases, |case| operators.contains(&case.operator.as_str()));
    println!("{report}");
    assert!(report.is_good(), "{report}");
}
