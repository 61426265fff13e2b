//! Convolutions and pools along an axis of which a run decides how much is there.

#![allow(clippy::unwrap_used)]

mod build;

use build::*;
use hone_import::onnx::proto::{NodeProto, TensorProto};
use hone_types::Tensor;

/// Most columns that a run may choose.
const ROOM: usize = 8;

/// Column `place` of what windows move over: never zero, and mostly negative, so that a zero behind the part would be the
/// largest.
fn column(place: usize) -> [f32; 3] {
    let own = place as f32;
    [-1.0 - own * 0.5, -3.0 + own, -0.25 * own * own - 0.1]
}

/// What `node` makes of `columns`, `f32[1, 3, count]`, where the model says how many there are.
fn whole(made: &NodeProto, stored: &[TensorProto], count: usize) -> (Vec<f64>, Vec<usize>) {
    let extent = count.to_string();
    let inputs = vec![port("columns", F32, &["1", "3", &extent])];
    let elements: Vec<f32> =
        (0..3).flat_map(|row| (0..count).map(move |place| column(place)[row])).collect();
    let model = model(graph(inputs, stored.to_vec(), vec![made.clone()], &["y"]), 18);
    first(&model, &[Tensor::from_elements([1, 3, count], &elements).unwrap()])
}

/// The model where a run chooses the columns: those with a mark above zero.
fn chosen_columns(
    made: &NodeProto,
    stored: &[TensorProto],
) -> hone_import::onnx::proto::ModelProto {
    let nodes = vec![
        node("Greater", &["marks", "nothing"], &["mask"]),
        node("Compress", &["x", "mask"], &["rows"]).int("axis", 0),
        node("Transpose", &["rows"], &["turned"]),
        node("Unsqueeze", &["turned", "first"], &["columns"]),
        made.clone(),
    ];
    let mut all = vec![floats("nothing", &[], &[0.0]), integers("first", &[0])];
    all.extend_from_slice(stored);
    let room = ROOM.to_string();
    let inputs = vec![port("x", F32, &[&room, "3"]), port("marks", F32, &[&room])];
    model(graph(inputs, all, nodes, &["y"]), 18)
}

/// Compares what a run makes of the first columns with what a model of as many makes of them, for all numbers of columns
/// from `least` on.
fn check(least: usize, made: NodeProto, stored: &[TensorProto]) {
    let model = chosen_columns(&made, stored);
    let x: Vec<f32> = (0..ROOM).flat_map(column).collect();
    for count in least..=ROOM {
        let marks: Vec<f32> = (0..ROOM).map(|own| if own < count { 1.0 } else { -1.0 }).collect();
        let given = [
            Tensor::from_elements([ROOM, 3], &x).unwrap(),
            Tensor::from_elements([ROOM], &marks).unwrap(),
        ];
        let (elements, shape) = first(&model, &given);
        let (expected, expected_shape) = whole(&made, stored, count);
        assert_eq!(shape, expected_shape, "{count} columns, {made:?}");
        for (own, other) in elements.iter().zip(&expected) {
            assert!((own - other).abs() < 1e-5, "{elements:?} is not {expected:?}, {made:?}");
        }
    }
}

fn refused(made: NodeProto, stored: &[TensorProto]) {
    let message = chain(&import(&chosen_columns(&made, stored)).unwrap_err());
    assert!(message.contains("decided when the model runs"), "{message}");
}

#[test]
fn convolutions_read_padding_behind_the_part() {
    let stored = [weights("w", &[2, 3, 3]), weights("b", &[2])];
    let of = || node("Conv", &["columns", "w", "b"], &["y"]);
    check(1, of().ints("pads", &[1, 1]), &stored);
    check(1, of().ints("pads", &[2, 0]), &stored);
    check(1, of().ints("pads", &[2, 1]), &stored);
    check(3, of(), &stored);
    check(5, of().ints("dilations", &[2]), &stored);
    check(1, of().ints("dilations", &[2]).ints("pads", &[2, 2]), &stored);
    check(1, of().ints("strides", &[2]).ints("pads", &[1, 1]), &stored);
    check(1, of().ints("strides", &[3]).ints("pads", &[0, 2]), &stored);
    check(1, of().string("auto_pad", "SAME_UPPER"), &stored);
    check(3, of().string("auto_pad", "VALID").ints("strides", &[2]), &stored);
    refused(of().string("auto_pad", "SAME_UPPER").ints("strides", &[2]), &stored);
}

#[test]
fn transposed_convolutions_spread_what_is_there() {
    let stored = [weights("w", &[3, 2, 4]), weights("b", &[2])];
    let of = || node("ConvTranspose", &["columns", "w", "b"], &["y"]);
    check(1, of().ints("strides", &[2]).ints("pads", &[1, 1]), &stored);
    check(1, of(), &stored);
    check(1, of().ints("strides", &[3]).ints("pads", &[1, 0]), &stored);
    check(2, of().ints("strides", &[2]).ints("pads", &[3, 2]), &stored);
    check(1, of().ints("strides", &[5]).ints("output_padding", &[1]), &stored);
    check(1, of().ints("strides", &[2]).string("auto_pad", "SAME_LOWER"), &stored);
    refused(of().ints("strides", &[2]).ints("output_shape", &[16]), &stored);
}

#[test]
fn pools_take_what_is_there() {
    let of = |operator: &str, size: i64| {
        node(operator, &["columns"], &["y"]).ints("kernel_shape", &[size])
    };
    check(1, of("MaxPool", 3).ints("pads", &[1, 1]), &[]);
    check(2, of("MaxPool", 2).ints("strides", &[2]), &[]);
    check(2, of("AveragePool", 2).ints("strides", &[2]), &[]);
    let padded = || of("AveragePool", 3).ints("pads", &[1, 1]);
    check(1, padded().int("count_include_pad", 1), &[]);
    check(1, of("LpPool", 3).ints("pads", &[1, 1]), &[]);
    for operator in ["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"] {
        check(1, node(operator, &["columns"], &["y"]), &[]);
    }
    refused(padded(), &[]);
    refused(of("MaxPool", 2).int("ceil_mode", 1), &[]);
    let mut with_places = of("MaxPool", 2);
    with_places.name = Some("pool".into());
    with_places.output = vec!["values".into(), "y".into()];
    refused(with_places, &[]);
    refused(node("InstanceNormalization", &["columns", "w", "w"], &["y"]), &[weights("w", &[3])]);
}
