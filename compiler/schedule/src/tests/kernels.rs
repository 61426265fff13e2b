//! The kernels that matter, scheduled as templates will.

use super::{assert_right, floats, load};
use crate::Schedule;
use hone_tensor::{BufferId, Builder, Combiner, Expr, Program, Scope, UnaryOp, verify_registers};
use hone_types::DataType::F32;

fn zero() -> Expr {
    Expr::Constant(0.0, F32)
}

fn relu(builder: &mut Builder, input: BufferId) -> BufferId {
    let tensor_type = builder.tensor_type(input);
    builder.map("relu", &tensor_type, |i| load(input, i).maximum(zero()))
}

/// Packed convolution: x[n, ic_o, h, w, ic_i], weights[oc_o, ic_o, kh, kw, ic_i, oc_i],
/// conv[n, oc_o, oh, ow, oc_i], then relu.
fn convolution(width: usize) -> Program {
    let mut builder = Builder::new();
    let x = builder.input("x", &floats(&[1, 2, 7, width + 2, 4]));
    let weights = builder.input("weights", &floats(&[4, 2, 3, 3, 4, 8]));
    let out = floats(&[1, 4, 5, width, 8]);
    let conv = builder.reduce("conv", &out, &[2, 3, 3, 4], Combiner::Sum, |i, r| {
        let (h, w) = (i[2].clone() + r[1].clone(), i[3].clone() + r[2].clone());
        let own = load(x, &[i[0].clone(), r[0].clone(), h, w, r[3].clone()]);
        let [oc_o, oc_i] = [i[1].clone(), i[4].clone()];
        own * load(weights, &[oc_o, r[0].clone(), r[1].clone(), r[2].clone(), r[3].clone(), oc_i])
    });
    let relu = relu(&mut builder, conv);
    builder.output(relu);
    builder.finish()
}

#[test]
fn convolution_in_registers_under_its_epilogue() {
    let plain = convolution(28);
    let mut schedule = Schedule::new(plain.clone());
    let (conv, relu) = (schedule.block("conv").unwrap(), schedule.block("relu").unwrap());
    let [n, oc_o, oh, ow, oc_i] = schedule.loops(relu)[..] else { panic!() };
    let (oc_oo, oc_b) = schedule.split(oc_o, 2).unwrap();
    let (ow_o, ow_i) = schedule.split(ow, 14).unwrap();
    schedule.reorder(&[n, oc_oo, oh, ow_o, ow_i, oc_b, oc_i]).unwrap();
    schedule.compute_at(conv, ow_o).unwrap();
    schedule.set_scope(conv, Scope::Register).unwrap();
    let loops = schedule.loops(conv);
    assert_eq!(loops[..4], [n, oc_oo, oh, ow_o]);
    let [c_n, c_oc_b, c_oh, c_ow, c_oc_i, ic_o, kh, kw, ic_i] = loops[4..] else { panic!() };
    schedule.reorder(&[c_n, c_oh, ic_o, kh, kw, ic_i, c_ow, c_oc_b, c_oc_i]).unwrap();
    let init = schedule.decompose_reduction(conv, ic_o).unwrap();
    let [.., i_ow, i_oc_b, i_oc_i] = schedule.loops(init)[..] else { panic!() };
    for own in [c_ow, c_oc_b, ow_i, oc_b, i_ow, i_oc_b] {
        schedule.unroll(own).unwrap();
    }
    for own in [c_oc_i, oc_i, i_oc_i] {
        schedule.vectorize(own).unwrap();
    }
    let outer = schedule.fuse(n, oc_oo).unwrap();
    let outer = schedule.fuse(outer, oh).unwrap();
    schedule.parallel(outer).unwrap();
    assert_right(&plain, &schedule, 0.0);
    let program = schedule.program();
    assert_eq!(program.buffers[schedule.buffer(conv)].shape, [1, 2, 1, 14, 8]);
    verify_registers(program).unwrap();
}

#[test]
fn convolution_with_a_last_tile_that_is_narrower() {
    let plain = convolution(31);
    let mut schedule = Schedule::new(plain.clone());
    let (conv, relu) = (schedule.block("conv").unwrap(), schedule.block("relu").unwrap());
    let [.., ow, oc_i] = schedule.loops(relu)[..] else { panic!() };
    let (ow_o, _) = schedule.split(ow, 14).unwrap();
    schedule.vectorize(oc_i).unwrap();
    schedule.compute_at(conv, ow_o).unwrap();
    let program = schedule.program();
    assert_eq!(program.buffers[schedule.buffer(conv)].shape, [1, 1, 1, 14, 8]);
    let c_ow = schedule.loops(conv)[4 + 3];
    let extent = &program.loop_of(c_ow).unwrap().extent;
    let rest = Expr::Integer(31) - Expr::Var(ow_o) * 14;
    let expected = Expr::Integer(14).minimum(rest);
    let domain = program.domain_at(&program.find_loop(c_ow).unwrap());
    assert_eq!(*extent, domain.simplify(&expected));
    assert_right(&plain, &schedule, 0.0);
}

/// c[m, n] = relu(sum over k of a[m, k] * b[k, n])
fn product(m: usize, n: usize, k: usize) -> Program {
    let mut builder = Builder::new();
    let a = builder.input("a", &floats(&[m, k]));
    let b = builder.input("b", &floats(&[k, n]));
    let product = builder.reduce("product", &floats(&[m, n]), &[k], Combiner::Sum, |i, r| {
        let own = load(a, &[i[0].clone(), r[0].clone()]);
        own * load(b, &[r[0].clone(), i[1].clone()])
    });
    let relu = relu(&mut builder, product);
    builder.output(relu);
    builder.finish()
}

#[test]
fn product_with_tiles_that_divide_nothing() {
    let plain = product(13, 37, 19);
    let mut schedule = Schedule::new(plain.clone());
    let (product, relu) = (schedule.block("product").unwrap(), schedule.block("relu").unwrap());
    let [m, n] = schedule.loops(relu)[..] else { panic!() };
    let (outer, _) = schedule.tile(&[m, n], &[4, 16]).unwrap();
    schedule.compute_at(product, outer[1]).unwrap();
    let [.., p_m, p_n, p_k] = schedule.loops(product)[..] else { panic!() };
    let (k_o, k_i) = schedule.split(p_k, 8).unwrap();
    schedule.reorder(&[k_o, k_i, p_m, p_n]).unwrap();
    schedule.decompose_reduction(product, k_o).unwrap();
    let fused = schedule.fuse(outer[0], outer[1]).unwrap();
    schedule.parallel(fused).unwrap();
    assert_right(&plain, &schedule, 0.0);
    assert_eq!(schedule.program().buffers[schedule.buffer(product)].shape, [4, 16]);
}

#[test]
fn product_with_its_epilogue_below_it() {
    let plain = product(13, 37, 19);
    let mut schedule = Schedule::new(plain.clone());
    let (product, relu) = (schedule.block("product").unwrap(), schedule.block("relu").unwrap());
    let [m, n, k] = schedule.loops(product)[..] else { panic!() };
    let (m_o, m_i) = schedule.split(m, 4).unwrap();
    let (n_o, n_i) = schedule.split(n, 16).unwrap();
    schedule.reorder(&[m_o, n_o, k, m_i, n_i]).unwrap();
    schedule.reverse_compute_at(relu, n_o).unwrap();
    schedule.decompose_reduction(product, k).unwrap();
    schedule.parallel(m_o).unwrap();
    assert_right(&plain, &schedule, 0.0);
    assert_eq!(schedule.program().buffers[schedule.buffer(product)].shape, [4, 16]);
}

/// Softmax over the last axis: greatest, exponent, total, quotient.
fn softmax(rows: usize, columns: usize) -> Program {
    let mut builder = Builder::new();
    let x = builder.input("x", &floats(&[rows, columns]));
    let (row, whole) = (floats(&[rows]), floats(&[rows, columns]));
    let greatest = builder.reduce("greatest", &row, &[columns], Combiner::Maximum, |i, r| {
        load(x, &[i[0].clone(), r[0].clone()])
    });
    let exponent = builder
        .map("exponent", &whole, |i| (load(x, i) - load(greatest, &i[..1])).unary(UnaryOp::Exp));
    let total = builder.reduce("total", &row, &[columns], Combiner::Sum, |i, r| {
        load(exponent, &[i[0].clone(), r[0].clone()])
    });
    let quotient = builder.map("quotient", &whole, |i| load(exponent, i) / load(total, &i[..1]));
    builder.output(quotient);
    builder.finish()
}

#[test]
fn softmax_in_one_row_loop() {
    let plain = softmax(6, 21);
    let mut schedule = Schedule::new(plain.clone());
    let row = schedule.loops(schedule.block("quotient").unwrap())[0];
    for name in ["total", "exponent", "greatest"] {
        schedule.compute_at(schedule.block(name).unwrap(), row).unwrap();
    }
    let total = schedule.block("total").unwrap();
    let [.., column] = schedule.loops(total)[..] else { panic!() };
    let (_, lane) = schedule.split(column, 8).unwrap();
    let parts = schedule.rfactor(total, lane).unwrap();
    schedule.parallel(row).unwrap();
    assert_right(&plain, &schedule, 1e-6);
    let program = schedule.program();
    let shape = |name: &str| {
        let block = schedule.block(name).unwrap();
        program.buffers[schedule.buffer(block)].shape.clone()
    };
    assert_eq!(shape("greatest"), [1]);
    assert_eq!(shape("exponent"), [1, 21]);
    assert_eq!(program.buffers[schedule.buffer(parts)].shape, [1, 8]);
    assert_eq!(program.body.len(), 1);
}

/// Layer norm over the last axis, by mean and variance.
fn layer_norm(rows: usize, columns: usize) -> Program {
    let mut builder = Builder::new();
    let x = builder.input("x", &floats(&[rows, columns]));
    let scale = builder.input("scale", &floats(&[columns]));
    let (row, whole) = (floats(&[rows]), floats(&[rows, columns]));
    let count = || Expr::Constant(columns as f64, F32);
    let sum = builder.reduce("sum", &row, &[columns], Combiner::Sum, |i, r| {
        load(x, &[i[0].clone(), r[0].clone()])
    });
    let mean = builder.map("mean", &row, |i| load(sum, i) / count());
    let centred = builder.map("centred", &whole, |i| load(x, i) - load(mean, &i[..1]));
    let squares = builder.reduce("squares", &row, &[columns], Combiner::Sum, |i, r| {
        let own = load(centred, &[i[0].clone(), r[0].clone()]);
        own.clone() * own
    });
    let inverse = builder.map("inverse", &row, |i| {
        let variance = load(squares, i) / count() + Expr::Constant(1e-5, F32);
        Expr::Constant(1.0, F32) / variance.unary(UnaryOp::Sqrt)
    });
    let norm = builder
        .map("norm", &whole, |i| load(centred, i) * load(inverse, &i[..1]) * load(scale, &i[1..]));
    builder.output(norm);
    builder.finish()
}

#[test]
fn layer_norm_in_one_row_loop() {
    let plain = layer_norm(5, 24);
    let mut schedule = Schedule::new(plain.clone());
    schedule.compute_inline(schedule.block("centred").unwrap()).unwrap();
    let row = schedule.loops(schedule.block("norm").unwrap())[0];
    for name in ["inverse", "squares", "mean", "sum"] {
        schedule.compute_at(schedule.block(name).unwrap(), row).unwrap();
    }
    schedule.parallel(row).unwrap();
    assert_right(&plain, &schedule, 1e-5);
    assert_eq!(schedule.program().body.len(), 1);
}

/// Padding, depthwise convolution with stride 2, relu.
fn depthwise() -> Program {
    let mut builder = Builder::new();
    let x = builder.input("x", &floats(&[1, 8, 11, 13]));
    let weights = builder.input("weights", &floats(&[8, 3, 3]));
    let padded = builder.map("padded", &floats(&[1, 8, 13, 15]), |i| {
        let (h, w) = (i[2].clone() - 1, i[3].clone() - 1);
        let inside = Expr::Integer(0)
            .less_equal(h.clone())
            .and(h.clone().less(Expr::Integer(11)))
            .and(Expr::Integer(0).less_equal(w.clone()))
            .and(w.clone().less(Expr::Integer(13)));
        inside.select(load(x, &[i[0].clone(), i[1].clone(), h, w]), zero())
    });
    let out = floats(&[1, 8, 6, 7]);
    let conv = builder.reduce("conv", &out, &[3, 3], Combiner::Sum, |i, r| {
        let h = i[2].clone() * 2 + r[0].clone();
        let w = i[3].clone() * 2 + r[1].clone();
        let own = load(padded, &[i[0].clone(), i[1].clone(), h, w]);
        own * load(weights, &[i[1].clone(), r[0].clone(), r[1].clone()])
    });
    let relu = relu(&mut builder, conv);
    builder.output(relu);
    builder.finish()
}

#[test]
fn depthwise_with_padding_inlined() {
    let plain = depthwise();
    let mut schedule = Schedule::new(plain.clone());
    schedule.compute_inline(schedule.block("padded").unwrap()).unwrap();
    let (conv, relu) = (schedule.block("conv").unwrap(), schedule.block("relu").unwrap());
    let [n, c, h, ..] = schedule.loops(relu)[..] else { panic!() };
    schedule.compute_at(conv, h).unwrap();
    let fused = schedule.fuse(n, c).unwrap();
    schedule.parallel(fused).unwrap();
    assert_right(&plain, &schedule, 0.0);
}

#[test]
fn depthwise_with_padding_by_rows() {
    let plain = depthwise();
    let mut schedule = Schedule::new(plain.clone());
    let [padded, conv, relu] = ["padded", "conv", "relu"].map(|name| schedule.block(name).unwrap());
    let [_, _, h, w] = schedule.loops(relu)[..] else { panic!() };
    let (h_o, h_i) = schedule.split(h, 4).unwrap();
    let (w_o, w_i) = schedule.split(w, 4).unwrap();
    schedule.reorder(&[h_o, w_o, h_i, w_i]).unwrap();
    schedule.compute_at(conv, w_o).unwrap();
    schedule.compute_at(padded, w_o).unwrap();
    assert_right(&plain, &schedule, 0.0);
    // Rows 2 * 4 + 1, columns 2 * 4 + 1.
    assert_eq!(schedule.program().buffers[schedule.buffer(padded)].shape, [1, 1, 9, 9]);
}

/// Max-pool with a guard in place of padding; the border counts as the least value.
fn max_pool() -> Program {
    let mut builder = Builder::new();
    let x = builder.input("x", &floats(&[4, 9, 10]));
    let doubled = builder.map("doubled", &floats(&[4, 9, 10]), |i| load(x, i) + load(x, i));
    let pool = builder.reduce("pool", &floats(&[4, 5, 5]), &[3, 3], Combiner::Maximum, |i, r| {
        let h = i[1].clone() * 2 + r[0].clone() - 1;
        let w = i[2].clone() * 2 + r[1].clone() - 1;
        let inside = Expr::Integer(0)
            .less_equal(h.clone())
            .and(h.clone().less(Expr::Integer(9)))
            .and(Expr::Integer(0).less_equal(w.clone()))
            .and(w.clone().less(Expr::Integer(10)));
        let least = Combiner::Maximum.identity(F32);
        inside.select(load(doubled, &[i[0].clone(), h, w]), least)
    });
    builder.output(pool);
    builder.finish()
}

#[test]
fn max_pool_computes_only_rows_that_exist() {
    let plain = max_pool();
    let mut schedule = Schedule::new(plain.clone());
    let (doubled, pool) = (schedule.block("doubled").unwrap(), schedule.block("pool").unwrap());
    let [c, h, w, ..] = schedule.loops(pool)[..] else { panic!() };
    schedule.compute_at(doubled, h).unwrap();
    assert_right(&plain, &schedule, 0.0);
    assert_eq!(schedule.program().buffers[schedule.buffer(doubled)].shape, [1, 3, 10]);
    let mut schedule = Schedule::new(plain.clone());
    schedule.compute_inline(doubled).unwrap();
    schedule.reorder(&[w, c, h]).unwrap();
    schedule.parallel(w).unwrap();
    assert_right(&plain, &schedule, 0.0);
}

#[test]
fn two_levels_of_tiles_that_divide_nothing() {
    let plain = convolution(31);
    let mut schedule = Schedule::new(plain.clone());
    let (conv, relu) = (schedule.block("conv").unwrap(), schedule.block("relu").unwrap());
    let [_, oc_o, oh, ow, _] = schedule.loops(relu)[..] else { panic!() };
    let (outer, inner) = schedule.tile(&[oc_o, oh, ow], &[3, 3, 14]).unwrap();
    let (outer, _) = {
        let (parts, rest) = schedule.tile(&inner, &[2, 2, 4]).unwrap();
        ([outer, parts].concat(), rest)
    };
    schedule.compute_at(conv, outer[5]).unwrap();
    let loops = schedule.loops(conv);
    let [.., c_h, c_w, c_c, k, _, _, _] = loops[..] else { panic!() };
    schedule.split(c_w, 3).unwrap();
    schedule.decompose_reduction(conv, k).unwrap();
    assert_right(&plain, &schedule, 0.0);
    assert!(schedule.extent(c_h).is_none() && schedule.extent(c_c) == Some(8));
}
