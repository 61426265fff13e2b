//! Buffers that operators need besides the tensors of the model: too large a one is refused by name, however
//! its size overflows.
#![allow(clippy::unwrap_used)]

use hone_driver::{
    CompileError, DataType, Graph, LowerError, Options, Target, TensorType, compile_graph,
};
use hone_ops::{Convolution, ConvolutionTranspose, Op, Window};

/// Compiles `operation` of inputs `x` `[1, 1, 2, 2]` and weights `[1, 1, 2, 2]` that are no constants, and
/// returns the name of the buffer that is refused.
fn refused(operation: impl Into<Op>) -> String {
    let mut graph = Graph::new();
    let x = graph.add_input("x", TensorType::new(DataType::F32, [1, 1, 2, 2]));
    let w = graph.add_input("w", TensorType::new(DataType::F32, [1, 1, 2, 2]));
    let y = graph.add_node("large", operation.into(), &[Some(x), Some(w)]).unwrap()[0];
    graph.add_output("y", y);
    let options = Options::new(Target::host().unwrap());
    match compile_graph(graph, b"sizes", &options) {
        Err(CompileError::Lower(LowerError::TooLarge { node, buffer, .. })) => {
            assert_eq!(node, "large");
            buffer
        }
        other => panic!("{:?} instead of a buffer that is too large", other.err()),
    }
}

#[test]
fn the_padded_input_of_a_convolution() {
    // Two axes of 2^32 make 2^64 elements, which wraps to none.
    let amounts = [(1 << 31) - 1; 2].to_vec();
    let window = Window {
        strides: vec![1 << 31; 2],
        dilations: vec![1; 2],
        pads_begin: amounts.clone(),
        pads_end: amounts,
    };
    assert_eq!(refused(Convolution { window, groups: 1 }), "pad");
}

#[test]
fn the_spread_input_of_a_transposed_convolution() {
    let window = Window {
        strides: vec![2; 2],
        dilations: vec![1 << 31; 2],
        pads_begin: vec![1 << 31; 2],
        pads_end: vec![0; 2],
    };
    let operation = ConvolutionTranspose { window, groups: 1, output_padding: vec![0; 2] };
    assert_eq!(refused(operation), "spread");
}

#[test]
fn a_buffer_just_beyond_the_limit() {
    // 2^16 + 2 rows of as many columns of four bytes.
    let window = Window {
        strides: vec![1 << 16; 2],
        dilations: vec![1; 2],
        pads_begin: vec![1 << 15; 2],
        pads_end: vec![1 << 15; 2],
    };
    assert_eq!(refused(Convolution { window, groups: 1 }), "pad");
}
