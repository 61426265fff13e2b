//! The official operator cases on the operators' tensor expressions: each node's blocks are verified
//! and run by the interpreter of loop programs.

#![allow(clippy::unwrap_used)]

use anyhow::{Context, Result};
use hone_graph::{Definition, ValueId};
use hone_onnx_tests::{Backend, folder, load, run, shorter_suite};
use hone_ops::{Graph, Op};
use hone_tensor::{BufferId, Builder};
use hone_types::{Id, Tensor};

/// Runs each node by its expression; one without is taken apart, or computed plainly where it can
/// only be folded.
struct Expressions;

impl Backend for Expressions {
    fn name(&self) -> &'static str {
        "expressions"
    }

    fn run(&self, graph: &Graph, inputs: &[Tensor]) -> Result<Option<Vec<Tensor>>> {
        self.evaluate(graph, inputs).map(Some)
    }
}

impl Expressions {
    fn evaluate(&self, graph: &Graph, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let mut computed: Vec<Option<Tensor>> = vec![None; graph.values().len()];
        let value = |computed: &[Option<Tensor>], id: ValueId| match &graph.values()[id].definition
        {
            Definition::Input(place) => inputs.get(*place).cloned(),
            Definition::Constant(tensor) => Some(tensor.clone()),
            Definition::Output(..) => computed[id.index()].clone(),
        };
        for (_, node) in graph.nodes().iter() {
            let operands: Vec<Option<Tensor>> =
                node.inputs.iter().map(|input| value(&computed, (*input)?)).collect();
            let results = self
                .node(&node.operation, &operands)
                .with_context(|| format!("node '{}' ({:?})", node.name, node.operation))?;
            for (output, result) in node.outputs.iter().zip(results) {
                computed[output.index()] = Some(result);
            }
        }
        let outputs = graph.outputs().iter();
        Ok(outputs.filter_map(|port| value(&computed, port.value)).collect())
    }

    fn node(&self, operation: &Op, operands: &[Option<Tensor>]) -> Result<Vec<Tensor>> {
        let given: Vec<Tensor> = operands.iter().flatten().cloned().collect();
        let mut builder = Builder::new();
        let buffers: Vec<Option<BufferId>> = operands
            .iter()
            .map(|operand| Some(builder.input("operand", operand.as_ref()?.tensor_type())))
            .collect();
        if let Some(outputs) = operation.expression(&mut builder, &buffers) {
            outputs.iter().for_each(|output| builder.output(*output));
            let program = builder.finish();
            hone_tensor::verify(&program)?;
            return Ok(hone_tensor::interpret(&program, &given)?);
        }
        let mut graph = Graph::new();
        let values: Vec<Option<ValueId>> = operands
            .iter()
            .map(|operand| {
                Some(graph.add_input("operand", operand.as_ref()?.tensor_type().clone()))
            })
            .collect();
        match operation.decompose(&mut graph, &values)? {
            Some(outputs) => {
                outputs.iter().for_each(|output| graph.add_output("output", *output));
                self.evaluate(&graph, &given)
            }
            None => {
                let borrowed: Vec<Option<&Tensor>> = operands.iter().map(Option::as_ref).collect();
                Ok(operation.reference(&borrowed)?)
            }
        }
    }
}

#[test]
fn cases_of_the_shorter_suite() {
    let operators = shorter_suite();
    let cases = load(&folder()).unwrap();
    let report = run(&Expressions, &cases, |case| operators.contains(&case.operator.as_str()));
    println!("{report}");
    assert!(report.is_good(), "{report}");
}
