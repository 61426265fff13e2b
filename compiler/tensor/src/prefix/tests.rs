//! Programs that run with a size below the bound: what is needed is that of the whole program, whatever lies behind.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::{Program, interpret, parse};
use hone_types::Tensor;

const BOUND: usize = 6;

/// The program limited, and what is needed of its inputs.
fn limited(text: &str, inputs: &[Contents], outputs: &[Need]) -> (Program, Vec<Need>) {
    let program = parse(text).unwrap();
    crate::verify(&program).unwrap();
    let contents = contents(&program, BOUND, inputs);
    let prefix = Prefix::of(&program, (BOUND, &contents), outputs, &|_| true);
    let mut limited = program.clone();
    prefix.limit(&mut limited);
    crate::verify(&limited).unwrap();
    assert_eq!(parse(&limited.to_string()).unwrap(), limited);
    (limited, prefix.inputs)
}

fn tensor(shape: &[usize], of: impl Fn(usize) -> f32) -> Tensor {
    let count: usize = shape.iter().product();
    Tensor::from_elements(shape, &(0..count).map(of).collect::<Vec<f32>>()).unwrap()
}

fn size(size: usize) -> Tensor {
    Tensor::scalar(size as i64)
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    tensor.elements::<f32>().unwrap()
}

fn before(stride: usize) -> Need {
    Need::Before(vec![Positions { stride, extent: BOUND, halo: 0 }])
}

const SCALED: &str = r#"
input 0 b0 "x": f32[6, 4]
output 1 b1 "y": f32[6, 4]
for v2 "i" in 0..3 parallel {
  for v3 "j" in 0..8 unrolled {
    block0 "scale" (v0 "i" < 6 = v2 * 2 + v3 // 4, v1 "j" < 4 = v3 % 4) {
      b1[v0, v1] = b0[v0, v1] * 2.0:f32
    }
  }
}
"#;

#[test]
fn rows_behind_the_size_are_left_out_by_whole_iterations() {
    let (program, inputs) = limited(SCALED, &[], &[before(4)]);
    assert_eq!(inputs, [before(4)]);
    let x = tensor(&[6, 4], |element| element as f32);
    for n in 1..=BOUND {
        let y = floats(&interpret(&program, &[x.clone(), size(n)]).unwrap()[0]);
        // Fresh memory is not a number: a row that was left out stays so.
        for (element, y) in y.iter().enumerate() {
            let row = element / 4;
            match row < n {
                true => assert_eq!(*y, 2.0 * element as f32),
                // Tasks compute two rows.
                false => assert_eq!(y.is_nan(), row >= n.next_multiple_of(2), "{n} {element}"),
            }
        }
    }
}

#[test]
fn everything_runs_where_everything_is_needed() {
    let (program, inputs) = limited(SCALED, &[], &[Need::Everything]);
    assert_eq!((program.limits.len(), &inputs[..]), (0, &[Need::Everything][..]));
}

#[test]
fn a_row_that_reads_the_next_one_needs_one_more() {
    let text = r#"
input 0 b0 "x": f32[7]
output 1 b1 "y": f32[6]
for v1 "i" in 0..6 {
  block0 "next" (v0 "i" < 6 = v1) {
    b1[v0] = b0[v0 + 1]
  }
}
"#;
    let (program, inputs) = limited(text, &[], &[before(1)]);
    let halo = Need::Before(vec![Positions { stride: 1, extent: BOUND + 1, halo: 1 }]);
    assert_eq!((program.limits.len(), &inputs[..]), (1, &[halo][..]));
    // Of an axis without room for the row behind the last one, nothing is shown.
    let around = text.replace("f32[7]", "f32[6]").replace("v0 + 1", "(v0 + 1) % 6");
    let (program, inputs) = limited(&around, &[], &[before(1)]);
    assert_eq!((program.limits.len(), &inputs[..]), (1, &[Need::Everything][..]));
}

#[test]
fn sums_that_go_on_run_whole() {
    let text = r#"
input 0 b0 "x": f32[6]
output 1 b1 "y": f32[6]
for v1 "i" in 0..6 {
  block0 "sum" (v0 "i" < 6 = v1) {
    b1[v0] = b0[v0] + select(0 < v0, b1[v0 - 1], 0.0:f32)
  }
}
"#;
    let (program, inputs) = limited(text, &[], &[before(1)]);
    assert_eq!((program.limits.len(), &inputs[..]), (0, &[Need::Everything][..]));
}

/// Queries, keys and values of `[6]` and `[6, 2]`; scores behind the size are masked.
const ATTENTION: &str = r#"
input 0 b0 "q": f32[6]
input 1 b1 "k": f32[6]
input 2 b2 "v": f32[6, 2]
input 3 b3 "mask": bool[6]
temporary b4 "masked": f32[6, 6]
temporary b5 "maximum": f32[6]
temporary b6 "exp": f32[6, 6]
temporary b7 "sum": f32[6]
temporary b8 "values": f32[6, 2]
output 4 b9 "y": f32[6, 2]
for v13 "k" in 0..6 {
  for v14 "q" in 0..6 {
    block0 "masked" (v0 "k" < 6 = v13, v1 "q" < 6 = v14) {
      b4[v0, v1] = select(b3[v0], b0[v1] * b1[v0], -inf:f32)
    }
  }
}
for v15 "q" in 0..6 {
  for v16 "r" in 0..6 {
    block1 "maximum" (v2 "q" < 6 = v15, reduce v3 "r" < 6 = v16) {
      b5[v2] maximum= b4[v3, v2] from -inf:f32
    }
  }
}
for v17 "k" in 0..6 {
  for v18 "q" in 0..6 {
    block2 "exp" (v4 "k" < 6 = v17, v5 "q" < 6 = v18) {
      b6[v4, v5] = exp(b4[v4, v5] - b5[v5])
    }
  }
}
for v19 "q" in 0..6 {
  for v20 "r" in 0..6 {
    block3 "sum" (v6 "q" < 6 = v19, reduce v7 "r" < 6 = v20) {
      b7[v6] sum= b6[v7, v6] from 0.0:f32
    }
  }
}
for v21 "q" in 0..6 {
  for v22 "c" in 0..2 {
    for v23 "r" in 0..6 {
      block4 "values" (v8 "q" < 6 = v21, v9 "c" < 2 = v22, reduce v10 "r" < 6 = v23) {
        b8[v8, v9] sum= b6[v10, v8] * b2[v10, v9] from 0.0:f32
      }
    }
  }
}
for v24 "q" in 0..6 {
  for v25 "c" in 0..2 {
    block5 "y" (v11 "q" < 6 = v24, v12 "c" < 2 = v25) {
      b9[v11, v12] = b8[v11, v12] / b7[v11]
    }
  }
}
"#;

fn masked(stride: usize) -> Contents {
    let behind = vec![(Positions { stride, extent: BOUND, halo: 0 }, Behind::Number(0.0))];
    Contents { behind, ..Contents::default() }
}

fn attention_inputs(n: usize, behind: f32) -> Vec<Tensor> {
    let of = |stride: usize, own: fn(f32) -> f32| {
        move |element: usize| match element / stride < n {
            true => own(element as f32),
            false => behind,
        }
    };
    let mask: Vec<bool> = (0..BOUND).map(|position| position < n).collect();
    vec![
        tensor(&[6], of(1, |x| (x * 0.7).sin())),
        tensor(&[6], of(1, |x| (x * 1.3).cos())),
        tensor(&[6, 2], of(2, |x| x * 0.25 - 1.0)),
        Tensor::from_elements([6], &mask).unwrap(),
    ]
}

#[test]
fn an_attention_reads_nothing_behind_the_size() {
    let known = [Contents::default(), Contents::default(), masked(2), masked(1)];
    let (program, inputs) = limited(ATTENTION, &known, &[before(2)]);
    assert_eq!(inputs, [before(1), before(1), before(2), before(1)]);
    let whole = parse(ATTENTION).unwrap();
    for n in 1..=BOUND {
        let want = floats(&interpret(&whole, &attention_inputs(n, 0.0)).unwrap()[0]);
        for behind in [f32::NAN, f32::INFINITY, 1e30] {
            let mut given = attention_inputs(n, behind);
            given.push(size(n));
            let got = floats(&interpret(&program, &given).unwrap()[0]);
            assert_eq!(got[..2 * n], want[..2 * n], "{n}");
            assert!(got[2 * n..].iter().all(|value| value.is_nan()), "{n} ran whole");
        }
    }
}

#[test]
fn a_reduction_by_two_terms_at_once_does_not_end_with_the_size() {
    let known = [Contents::default(), Contents::default(), masked(2), masked(1)];
    let program = parse(ATTENTION).unwrap();
    let contents = contents(&program, BOUND, &known);
    let need = [before(2)];
    let prefix = Prefix::of(&program, (BOUND, &contents), &need, &|_| true);
    let mut plain = program.clone();
    prefix.limit(&mut plain);
    assert_eq!(prefix.exact(&plain).len(), 3);
    let by_two = ATTENTION
        .replace(
            "for v20 \"r\" in 0..6 {",
            "for v20 \"r\" in 0..3 {\n for v26 \"s\" in 0..2 unrolled {",
        )
        .replace("reduce v7 \"r\" < 6 = v20", "reduce v7 \"r\" < 6 = v20 * 2 + v26")
        .replace("sum= b6[v7, v6] from 0.0:f32\n    }", "sum= b6[v7, v6] from 0.0:f32\n    }\n }");
    let mut by_two = parse(&by_two).unwrap();
    crate::verify(&by_two).unwrap();
    prefix.limit(&mut by_two);
    let exact = prefix.exact(&by_two);
    assert_eq!(exact.len(), 2);
    // Then all of what it sums up is needed, and all of the mask with it.
    let prefix = Prefix::of(&program, (BOUND, &contents), &need, &|id| exact.contains(&id));
    assert_eq!(prefix.inputs[3], Need::Everything);
}

#[test]
fn values_that_nothing_masks_are_summed_whole() {
    let known = [Contents::default(), Contents::default(), Contents::default(), masked(1)];
    let (_, inputs) = limited(ATTENTION, &known, &[before(2)]);
    assert_eq!(inputs[2], Need::Everything);
    // Without a mask, so are scores.
    let (_, inputs) = limited(ATTENTION, &[], &[before(2)]);
    let all = Need::Everything;
    assert_eq!(inputs, [before(1), all.clone(), all.clone(), all]);
}

#[test]
fn the_maximum_has_to_be_that_of_the_same_scores() {
    let known = [Contents::default(), Contents::default(), masked(2), masked(1)];
    let other = ATTENTION.replace("maximum= b4[v3, v2]", "maximum= b4[v3, 0]");
    let (_, inputs) = limited(&other, &known, &[before(2)]);
    assert_eq!(inputs[2], Need::Everything);
}

#[test]
fn masks_are_found_where_positions_are_compared_with_the_size() {
    let text = r#"
input 0 b0 "positions": i32[6]
input 1 b1 "n": i64[]
output 2 b2 "mask": bool[6]
for v1 "i" in 0..6 {
  block0 "less" (v0 "i" < 6 = v1) {
    b2[v0] = b0[v0] < i32(b1[])
  }
}
"#;
    let program = parse(text).unwrap();
    let positions = Positions { stride: 1, extent: BOUND, halo: 0 };
    let numbers = Contents { numbers: vec![positions], ..Contents::default() };
    let number = Contents { is_size: true, ..Contents::default() };
    let found = contents(&program, BOUND, &[numbers.clone(), number]);
    assert_eq!(found[2].behind, [(positions, Behind::Number(0.0))]);
    let found = contents(&program, BOUND, &[numbers, Contents::default()]);
    assert_eq!(found[2].behind, []);
}

#[test]
fn a_block_that_computes_what_its_reader_did_is_needed_with_it() {
    let text = r#"
input 0 b0 "x": f32[6]
input 1 b1 "mask": bool[6]
temporary b2 "double": f32[6]
output 2 b3 "y": f32[6]
for v2 "i" in 0..6 {
  block0 "double" (v0 "i" < 6 = v2) {
    b2[v0] = b0[v0] * 2.0:f32
  }
}
for v3 "i" in 0..6 {
  block1 "y" (v1 "i" < 6 = v3) {
    b3[v1] = select(b1[v1], b2[v1], 0.0:f32)
  }
}
"#;
    let known = [Contents::default(), masked(1)];
    let (program, inputs) = limited(text, &known, &[Need::Everything]);
    assert_eq!((program.limits.len(), &inputs[..]), (1, &[before(1), Need::Everything][..]));
    let plain = parse(text).unwrap();
    let contents = contents(&plain, BOUND, &known);
    let prefix = Prefix::of(&plain, (BOUND, &contents), &[Need::Everything], &|_| true);
    let inlined = text.replace(
        "    b2[v0] = b0[v0] * 2.0:f32",
        "    b3[v0] = select(b1[v0], b0[v0] * 2.0:f32, 0.0:f32)",
    );
    let end = inlined.find("for v3").unwrap();
    let mut inlined = parse(&format!(
        "{}removed block1 \"y\" (v1 \"i\" < 6) {{\n  b3[v1] = b2[v1]\n}}\nunused v3 \"i\"\n",
        &inlined[..end]
    ))
    .unwrap();
    prefix.limit(&mut inlined);
    assert_eq!(inlined.limits, []);
}

/// A state of two that goes on from step to step, and the last one.
const STEPS: &str = r#"
input 0 b0 "first": f32[2]
input 1 b1 "x": f32[6, 2]
output 2 b2 "states": f32[6, 2]
temporary b3 "state": f32[2]
output 3 b4 "last": f32[2]
for v0 "step" in 0..6 {
  for v2 "i" in 0..2 {
    block0 "state" (v1 "j" < 2 = v2) {
      b3[v1] = select(0 < v0, b2[v0 - 1, v1], b0[v1])
    }
  }
  for v4 "i" in 0..2 {
    block1 "next" (v3 "j" < 2 = v4) {
      b2[v0, v3] = b3[1 - v3] * 0.5:f32 + b1[v0, v3]
    }
  }
}
for v6 "i" in 0..2 {
  block2 "last" (v5 "j" < 2 = v6) {
    b4[v5] = b2[5, v5]
  }
}
"#;

#[test]
fn steps_end_with_the_size_where_nothing_needs_the_last_one() {
    let (program, inputs) = limited(STEPS, &[], &[before(2), Need::Nothing]);
    assert_eq!(inputs, [Need::Everything, before(2)]);
    assert_eq!(program.limits.len(), 1);
    let (first, x) = (tensor(&[2], |at| at as f32), tensor(&[6, 2], |at| at as f32));
    let whole = interpret(&parse(STEPS).unwrap(), &[first.clone(), x.clone()]).unwrap();
    let whole = floats(&whole[0]);
    for n in 1..=BOUND {
        let given = [first.clone(), x.clone(), size(n)];
        let states = floats(&interpret(&program, &given).unwrap()[0]);
        assert_eq!(states[..2 * n], whole[..2 * n]);
        assert!(states[2 * n..].iter().all(|state| state.is_nan()), "{n}: {states:?}");
    }
}

#[test]
fn all_steps_run_where_the_last_one_is_needed_or_they_store_from_the_end() {
    let everything = [Need::Everything, Need::Everything];
    let (program, inputs) = limited(STEPS, &[], &[before(2), Need::Everything]);
    assert_eq!((program.limits.len(), &inputs[..]), (0, &everything[..]));
    let backwards =
        STEPS.replace("b2[v0, v3]", "b2[5 - v0, v3]").replace("b2[v0 - 1, v1]", "b2[6 - v0, v1]");
    let (program, inputs) = limited(&backwards, &[], &[before(2), Need::Nothing]);
    assert_eq!((program.limits.len(), &inputs[..]), (0, &everything[..]));
}
