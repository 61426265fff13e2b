//! Every tensor expression computes what the reference result says, on seeded inputs: the blocks an
//! operator adds are run by the interpreter of loop programs.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod cases;

use cases::{Case, cases};
use hone_graph::ValueId;
use hone_ops::{Graph, NAMES, evaluate};
use hone_tensor::{Builder, interpret, verify};
use hone_types::{DataType, Tensor, TensorType};

/// Operators that are folded or taken apart before code is made of them.
const WITHOUT_EXPRESSION: [&str; 3] = ["gru", "lstm", "rnn"];

#[test]
fn expressions_compute_the_reference_results() {
    for case in cases() {
        let operator = &case.operator;
        let name = format!("{operator:?} of {:?}", case.types());
        let expected =
            operator.reference(&case.borrowed()).unwrap_or_else(|error| panic!("{name}: {error}"));
        let types = case.types();
        let types: Vec<Option<&TensorType>> = types.iter().map(Option::as_ref).collect();
        let inferred = operator.infer(&types).unwrap();
        let given: Vec<&TensorType> = expected.iter().map(Tensor::tensor_type).collect();
        assert_eq!(given, inferred.iter().collect::<Vec<_>>(), "{name}");
        let Some(actual) = run(&case) else {
            assert!(case.is_folded || WITHOUT_EXPRESSION.contains(&operator.name()), "{name}");
            continue;
        };
        assert_eq!(actual.len(), expected.len(), "{name}");
        for (actual, expected) in actual.iter().zip(&expected) {
            compare(&name, actual, expected);
        }
    }
}

#[test]
fn decompositions_compute_the_reference_results() {
    let mut decomposed = 0;
    for case in cases() {
        let mut graph = Graph::new();
        let inputs: Vec<Option<ValueId>> = case
            .inputs
            .iter()
            .enumerate()
            .map(|(place, input)| {
                let own = input.as_ref()?.tensor_type().clone();
                Some(graph.add_input(format!("input{place}"), own))
            })
            .collect();
        let Some(outputs) = case.operator.decompose(&mut graph, &inputs).unwrap() else { continue };
        for (place, output) in outputs.iter().enumerate() {
            graph.add_output(format!("output{place}"), *output);
        }
        graph.verify().unwrap();
        let given: Vec<Tensor> = case.inputs.iter().flatten().cloned().collect();
        let actual = evaluate(&graph, &given).unwrap();
        let expected = case.operator.reference(&case.borrowed()).unwrap();
        assert_eq!(actual.len(), expected.len());
        for (actual, expected) in actual.iter().zip(&expected) {
            compare(&format!("{:?} of {:?}", case.operator, case.types()), actual, expected);
        }
        decomposed += 1;
    }
    assert!(decomposed > 0);
}

#[test]
fn every_operator_has_a_case() {
    let covered: Vec<&str> = cases().iter().map(|case| case.operator.name()).collect();
    let missing: Vec<_> = NAMES.iter().filter(|name| !covered.contains(name)).collect();
    assert!(missing.is_empty(), "no case for {missing:?}");
}

#[test]
fn attributes_survive_the_text_form() {
    for case in cases() {
        let (name, attributes) = (case.operator.name(), case.operator.attributes());
        let text = serde_json::to_string(&attributes).unwrap();
        let back = hone_ops::from_attributes(name, serde_json::from_str(&text).unwrap()).unwrap();
        assert_eq!(back, case.operator);
    }
}

/// The outputs of the operator's blocks; `None` where it has none.
fn run(case: &Case) -> Option<Vec<Tensor>> {
    let mut builder = Builder::new();
    let parameters = case.inputs.iter().enumerate().map(|(place, input)| {
        let input = input.as_ref()?;
        Some(builder.input(&format!("input{place}"), input.tensor_type()))
    });
    let parameters: Vec<_> = parameters.collect();
    let outputs = case.operator.expression(&mut builder, &parameters)?;
    outputs.iter().for_each(|output| builder.output(*output));
    let given: Vec<Tensor> = case.inputs.iter().flatten().cloned().collect();
    let program = builder.finish();
    verify(&program).unwrap_or_else(|error| {
        panic!("{:?} of {:?}: {error}", case.operator, case.types());
    });
    Some(interpret(&program, &given).unwrap_or_else(|error| {
        panic!("{:?} of {:?}: {error}", case.operator, case.types());
    }))
}

fn compare(name: &str, actual: &Tensor, expected: &Tensor) {
    assert_eq!(actual.tensor_type(), expected.tensor_type(), "{name}");
    let tolerance = match actual.dtype() {
        DataType::F32 => 2e-5,
        DataType::F64 => 1e-12,
        DataType::F16 => 2e-3,
        DataType::BF16 => 2e-2,
        _ => 0.0,
    };
    let pairs = actual.to_f64().into_iter().zip(expected.to_f64());
    for (place, (a, b)) in pairs.enumerate() {
        let near =
            a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance * b.abs().max(1.0);
        assert!(near, "{name}: element {place} is {a}, not {b}");
    }
}
