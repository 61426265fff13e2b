//! Compiled programs, plain and scheduled, against the interpreter.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "support/common.rs"]
mod common;

use common::{random, run};
use hone_schedule::Schedule;
use hone_tensor::{
    BinaryOp, BufferId, Builder, Combiner, Expr, LoopKind, Program, Scope, Statement, UnaryOp,
    VarId, interpret,
};
use hone_types::DataType::{F32, I64};
use hone_types::{DataType, Tensor, TensorType};

fn floats(shape: &[usize]) -> TensorType {
    TensorType::new(F32, shape)
}

fn load(buffer: BufferId, indices: &[Expr]) -> Expr {
    Expr::Load(buffer, indices.to_vec())
}

fn float(value: f64) -> Expr {
    Expr::Constant(value, F32)
}

/// Inputs of a program: small random numbers; whole ones for integers.
fn inputs(program: &Program) -> Vec<Tensor> {
    let parameters = program.parameters();
    let inputs = parameters.iter().map(|id| &program.buffers[*id]);
    inputs
        .filter(|buffer| matches!(buffer.role, hone_tensor::Role::Input(_)))
        .enumerate()
        .map(|(index, buffer)| {
            let scale = if buffer.dtype.is_float() { 1.0 } else { 4.0 };
            let values = random(buffer.elements(), index as u64 + 3);
            let values: Vec<f64> =
                values.iter().map(|value| (f64::from(*value) + 1.0) * scale).collect();
            Tensor::from_f64(buffer.dtype, buffer.shape.clone(), &values).unwrap()
        })
        .collect()
}

/// Compiles and runs both forms; each agrees with the interpretation of the plain one.
fn check(plain: &Program, scheduled: &Program) {
    let inputs = inputs(plain);
    let expected = interpret(plain, &inputs).unwrap();
    let bytes: Vec<Vec<u8>> = inputs.iter().map(|tensor| tensor.bytes().to_vec()).collect();
    for (form, program) in [("plain", plain), ("scheduled", scheduled)] {
        let actual = run(program, &bytes);
        for (expected, actual) in expected.iter().zip(actual) {
            let actual = Tensor::from_bytes(expected.tensor_type().clone(), actual).unwrap();
            let (expected, actual) = (expected.to_f64(), actual.to_f64());
            for (index, (expected, actual)) in expected.iter().zip(&actual).enumerate() {
                let close = (expected - actual).abs() <= 2e-6 * expected.abs().max(1.0) * 8.0
                    || expected == actual
                    || (expected.is_nan() && actual.is_nan());
                assert!(close, "{form}: element {index} is {actual}, not {expected}");
            }
        }
    }
}

/// Gives a loop a kind also where schedules refuse to: in a reduction, or with a last part.
fn mark(program: &mut Program, var: VarId, kind: LoopKind) {
    fn find(statements: &mut [Statement], var: VarId, kind: LoopKind) {
        for statement in statements {
            if let Statement::Loop(loop_) = statement {
                if loop_.var == var {
                    loop_.kind = kind;
                }
                find(&mut loop_.body, var, kind);
            }
        }
    }
    find(&mut program.body, var, kind);
}

fn lanes(program: &mut Program, var: VarId) {
    mark(program, var, LoopKind::Vectorized);
}

/// x[n] in lanes of every width around the register's.
#[test]
fn elementwise_of_every_width() {
    for width in [1, 2, 3, 5, 7, 8, 12, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65] {
        let mut builder = Builder::new();
        let x = builder.input("x", &floats(&[3, width]));
        let b = builder.input("b", &floats(&[width]));
        let y = builder.map("y", &floats(&[3, width]), |i| {
            (load(x, i) * float(2.0) + load(b, &i[1..])).maximum(float(1.5))
        });
        builder.output(y);
        let plain = builder.finish();
        let mut schedule = Schedule::new(plain.clone());
        let block = schedule.block("y").unwrap();
        let [row, column] = schedule.loops(block)[..] else { panic!() };
        schedule.vectorize(column).unwrap();
        schedule.parallel(row).unwrap();
        check(&plain, schedule.program());
    }
}

/// A split that does not divide, in lanes: the last part is masked.
#[test]
fn last_parts_in_lanes() {
    for (width, factor) in [(37, 16), (5, 16), (100, 32), (33, 16), (50, 8)] {
        let mut builder = Builder::new();
        let x = builder.input("x", &floats(&[width]));
        let y = builder.map("y", &floats(&[width]), |i| load(x, i).unary(UnaryOp::Exp));
        builder.output(y);
        let plain = builder.finish();
        for parallel in [false, true] {
            let mut schedule = Schedule::new(plain.clone());
            let block = schedule.block("y").unwrap();
            let [column] = schedule.loops(block)[..] else { panic!() };
            let (outer, inner) = schedule.split(column, factor).unwrap();
            if parallel {
                schedule.parallel(outer).unwrap();
            }
            let mut scheduled = schedule.into_program();
            lanes(&mut scheduled, inner);
            check(&plain, &scheduled);
        }
    }
}

/// Padding by a condition on the index: guarded loads, scalar, per lane and fused into one loop.
fn padded() -> Program {
    let mut builder = Builder::new();
    let x = builder.input("x", &floats(&[3, 9, 11]));
    let y = builder.map("y", &floats(&[3, 13, 17]), |i| {
        let (h, w) = (i[1].clone() - 2, i[2].clone() - 3);
        let inside = Expr::from(0)
            .less_equal(h.clone())
            .and(h.clone().less(Expr::from(9)))
            .and(Expr::from(0).less_equal(w.clone()))
            .and(w.clone().less(Expr::from(11)));
        inside.select(load(x, &[i[0].clone(), h, w]), float(-1.0))
    });
    builder.output(y);
    builder.finish()
}

#[test]
fn padding_reads_only_what_is_there() {
    let plain = padded();
    let mut schedule = Schedule::new(plain.clone());
    let block = schedule.block("y").unwrap();
    let [c, h, w] = schedule.loops(block)[..] else { panic!() };
    schedule.vectorize(w).unwrap();
    let fused = schedule.fuse(c, h).unwrap();
    schedule.parallel(fused).unwrap();
    check(&plain, schedule.program());

    let mut schedule = Schedule::new(plain.clone());
    let [_, h, w] = schedule.loops(block)[..] else { panic!() };
    let fused = schedule.fuse(h, w).unwrap();
    let (_, inner) = schedule.split(fused, 16).unwrap();
    let mut scheduled = schedule.into_program();
    lanes(&mut scheduled, inner);
    check(&plain, &scheduled);
}

#[test]
fn strides_transposes_and_repeats() {
    let mut builder = Builder::new();
    let x = builder.input("x", &floats(&[10, 40]));
    let y = builder.map("y", &floats(&[20, 5]), |i| {
        let strided = load(x, &[i[1].clone() * 2, i[0].clone() * 2]);
        let repeated = load(x, &[i[1].clone(), i[0].clone().floor_divide(Expr::from(3))]);
        strided + repeated
    });
    let z = builder.map("z", &floats(&[5, 20]), |i| load(y, &[i[1].clone(), i[0].clone()]));
    builder.output(z);
    let plain = builder.finish();
    let mut schedule = Schedule::new(plain.clone());
    for name in ["y", "z"] {
        let block = schedule.block(name).unwrap();
        let [outer, inner] = schedule.loops(block)[..] else { panic!() };
        if name == "y" {
            schedule.reorder(&[inner, outer]).unwrap();
            schedule.vectorize(outer).unwrap();
        } else {
            schedule.vectorize(inner).unwrap();
        }
    }
    check(&plain, schedule.program());
}

#[test]
fn gathers_by_loaded_indices() {
    let mut builder = Builder::new();
    let table = builder.input("table", &floats(&[8, 24]));
    let index = builder.input("index", &TensorType::new(I64, [20]));
    let y = builder.map("y", &floats(&[20, 24]), |i| {
        let row = load(index, &i[..1]).maximum(0.into()).minimum(7.into());
        load(table, &[row, i[1].clone()])
    });
    builder.output(y);
    let plain = builder.finish();
    for lanes_first in [false, true] {
        let mut schedule = Schedule::new(plain.clone());
        let block = schedule.block("y").unwrap();
        let [row, column] = schedule.loops(block)[..] else { panic!() };
        if lanes_first {
            schedule.reorder(&[column, row]).unwrap();
            schedule.vectorize(row).unwrap();
        } else {
            schedule.vectorize(column).unwrap();
        }
        check(&plain, schedule.program());
    }
}

#[test]
fn reductions_of_every_kind() {
    for combiner in [Combiner::Sum, Combiner::Product, Combiner::Maximum, Combiner::Minimum] {
        for dtype in [F32, DataType::F64, DataType::I32, DataType::U8, DataType::F16] {
            let mut builder = Builder::new();
            let x = builder.input("x", &TensorType::new(dtype, [6, 19]));
            let out = TensorType::new(dtype, [6]);
            let y = builder.reduce("y", &out, &[19], combiner, |i, r| {
                load(x, &[i[0].clone(), r[0].clone()]) + Expr::Constant(-1.0, dtype)
            });
            builder.output(y);
            let plain = builder.finish();
            // 16-bit products of 19 values round differently in another order.
            if dtype == DataType::F16 && combiner != Combiner::Maximum {
                continue;
            }
            let across = Schedule::new(plain.clone());
            let block = across.block("y").unwrap();
            let [_, r] = across.loops(block)[..] else { panic!() };
            let mut across = across.into_program();
            lanes(&mut across, r);
            check(&plain, &across);

            let mut along = Schedule::new(plain.clone());
            let [i, r] = along.loops(block)[..] else { panic!() };
            along.reorder(&[r, i]).unwrap();
            along.vectorize(i).unwrap();
            check(&plain, along.program());

            let mut rolled = Schedule::new(plain.clone());
            let [_, r] = rolled.loops(block)[..] else { panic!() };
            let (_, inner) = rolled.split(r, 4).unwrap();
            let mut rolled = rolled.into_program();
            lanes(&mut rolled, inner);
            check(&plain, &rolled);
        }
    }
}

#[test]
fn sum_into_one_element() {
    let mut builder = Builder::new();
    let x = builder.input("x", &floats(&[23, 7]));
    let y = builder.reduce("y", &floats(&[]), &[23, 7], Combiner::Sum, |_, r| load(x, r));
    builder.output(y);
    let plain = builder.finish();
    let mut schedule = Schedule::new(plain.clone());
    let block = schedule.block("y").unwrap();
    let [outer, inner] = schedule.loops(block)[..] else { panic!() };
    let fused = schedule.fuse(outer, inner).unwrap();
    let (_, inner) = schedule.split(fused, 16).unwrap();
    let mut scheduled = schedule.into_program();
    lanes(&mut scheduled, inner);
    check(&plain, &scheduled);
}

#[test]
fn softmax_of_several_blocks() {
    let mut builder = Builder::new();
    let shape = floats(&[4, 21]);
    let x = builder.input("x", &shape);
    let row = floats(&[4]);
    let maximum = builder.reduce("maximum", &row, &[21], Combiner::Maximum, |i, r| {
        load(x, &[i[0].clone(), r[0].clone()])
    });
    let power =
        builder.map("power", &shape, |i| (load(x, i) - load(maximum, &i[..1])).unary(UnaryOp::Exp));
    let sum = builder.reduce("sum", &row, &[21], Combiner::Sum, |i, r| {
        load(power, &[i[0].clone(), r[0].clone()])
    });
    let y = builder.map("y", &shape, |i| load(power, i) / load(sum, &i[..1]));
    builder.output(y);
    let plain = builder.finish();
    let mut schedule = Schedule::new(plain.clone());
    let [y, sum, power, maximum] =
        ["y", "sum", "power", "maximum"].map(|name| schedule.block(name).unwrap());
    let [row, column] = schedule.loops(y)[..] else { panic!() };
    schedule.vectorize(column).unwrap();
    let mut inner = Vec::new();
    for block in [sum, power, maximum] {
        schedule.compute_at(block, row).unwrap();
        inner.push(*schedule.loops(block).last().unwrap());
        schedule.set_scope(block, Scope::Scratch).unwrap();
    }
    schedule.parallel(row).unwrap();
    let mut scheduled = schedule.into_program();
    inner.into_iter().for_each(|loop_| lanes(&mut scheduled, loop_));
    check(&plain, &scheduled);
}

/// Packed convolution x[ic_o, h, w, ic_i] with its accumulators in registers, and an epilogue.
#[test]
fn convolution_in_registers() {
    for width in [28, 31, 9] {
        let mut builder = Builder::new();
        let x = builder.input("x", &floats(&[2, 7, width + 2, 16]));
        let weights = builder.input("weights", &floats(&[4, 2, 3, 3, 16, 16]));
        let bias = builder.input("bias", &floats(&[4, 16]));
        let out = floats(&[4, 5, width, 16]);
        let conv = builder.reduce("conv", &out, &[2, 3, 3, 16], Combiner::Sum, |i, r| {
            let (h, w) = (i[1].clone() + r[1].clone(), i[2].clone() + r[2].clone());
            let element = load(x, &[r[0].clone(), h, w, r[3].clone()]);
            let part = [
                i[0].clone(),
                r[0].clone(),
                r[1].clone(),
                r[2].clone(),
                r[3].clone(),
                i[3].clone(),
            ];
            element * load(weights, &part)
        });
        let relu = builder.map("relu", &out, |i| {
            (load(conv, i) + load(bias, &[i[0].clone(), i[3].clone()])).maximum(float(0.0))
        });
        builder.output(relu);
        let plain = builder.finish();
        let mut schedule = Schedule::new(plain.clone());
        let (conv, relu) = (schedule.block("conv").unwrap(), schedule.block("relu").unwrap());
        let [oc_o, oh, ow, oc_i] = schedule.loops(relu)[..] else { panic!() };
        let (oc_oo, oc_b) = schedule.split(oc_o, 2).unwrap();
        let (ow_o, ow_i) = schedule.split(ow, 14).unwrap();
        schedule.reorder(&[oc_oo, oh, ow_o, ow_i, oc_b, oc_i]).unwrap();
        schedule.compute_at(conv, ow_o).unwrap();
        schedule.set_scope(conv, Scope::Register).unwrap();
        let loops = schedule.loops(conv);
        let [c_oc_b, c_oh, c_ow, c_oc_i, ic_o, kh, kw, ic_i] = loops[3..] else {
            panic!("{loops:?}")
        };
        schedule.reorder(&[c_oh, ic_o, kh, kw, ic_i, c_ow, c_oc_b, c_oc_i]).unwrap();
        let fused = schedule.fuse(oc_oo, oh).unwrap();
        let fused = schedule.fuse(fused, ow_o).unwrap();
        schedule.parallel(fused).unwrap();
        let mut scheduled = schedule.into_program();
        for loop_ in [c_ow, c_oc_b, ow_i, oc_b] {
            mark(&mut scheduled, loop_, LoopKind::Unrolled);
        }
        for loop_ in [c_oc_i, oc_i] {
            lanes(&mut scheduled, loop_);
        }
        check(&plain, &scheduled);
    }
}

#[test]
fn registers_need_constant_indices() {
    let mut builder = Builder::new();
    let x = builder.input("x", &floats(&[8]));
    let y = builder.map("y", &floats(&[8]), |i| load(x, i) + float(1.0));
    let z = builder.map("z", &floats(&[8]), |i| load(y, i) * float(2.0));
    builder.output(z);
    let mut program = builder.finish();
    program.buffers[y].scope = Scope::Register;
    let statements = std::mem::take(&mut program.body);
    let var = program.add_var("one");
    program.body = vec![hone_tensor::Statement::Loop(Box::new(hone_tensor::Loop {
        var,
        extent: Expr::from(1),
        kind: hone_tensor::LoopKind::Serial,
        body: statements,
    }))];
    let unit = hone_codegen::Unit { symbol: "kernel", program: &program };
    let target = hone_codegen::Target::host().unwrap();
    let error = hone_codegen::compile(&[unit], &target, &Default::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "buffer 'y' is in registers but indexed by 'i0_loop', which is no constant: unroll or \
         vectorize the loops it depends on, or place the buffer in scratch memory"
    );
}

/// Operations whose results an integer of any size must agree on.
#[test]
fn integer_operations() {
    let ops = [
        BinaryOp::Add,
        BinaryOp::Subtract,
        BinaryOp::Multiply,
        BinaryOp::Divide,
        BinaryOp::FloorDivide,
        BinaryOp::Modulo,
        BinaryOp::Remainder,
        BinaryOp::Minimum,
        BinaryOp::Maximum,
        BinaryOp::And,
        BinaryOp::Or,
        BinaryOp::Xor,
        BinaryOp::ShiftLeft,
        BinaryOp::ShiftRight,
        BinaryOp::Power,
    ];
    use DataType::{I8, I16, I32, U8, U16, U32, U64};
    for dtype in [I8, I16, I32, I64, U8, U16, U32, U64] {
        let bits = dtype.bytes() * 8;
        let signed = dtype.is_signed_integer();
        let limit = if signed { 2f64.powi(bits as i32 - 1) } else { 2f64.powi(bits as i32) };
        let minimum = if signed { -limit } else { 0.0 };
        let small = [0.0, 1.0, 2.0, 3.0, 5.0, 7.0, 100.0];
        let mut a: Vec<f64> = small.to_vec();
        if signed {
            a.extend(small.iter().map(|value| -value));
        }
        a.extend([minimum, if bits == 64 { 2f64.powi(52) } else { limit - 1.0 }]);
        let pairs: Vec<(f64, f64)> = a
            .iter()
            .flat_map(|x| a.iter().map(move |y| (*x, *y)))
            .filter(|(_, y)| *y != 0.0)
            .collect();
        let count = pairs.len();
        let mut builder = Builder::new();
        let tensor_type = TensorType::new(dtype, [count]);
        let (x, y) = (builder.input("x", &tensor_type), builder.input("y", &tensor_type));
        for op in ops {
            let shift = matches!(op, BinaryOp::ShiftLeft | BinaryOp::ShiftRight | BinaryOp::Power);
            let z = builder.map("z", &tensor_type, |i| {
                let right = load(y, i);
                let small = Expr::Constant(7.0, dtype);
                let right = if shift { right.binary(BinaryOp::And, small) } else { right };
                load(x, i).binary(op, right)
            });
            builder.output(z);
        }
        let plain = builder.finish();
        let scheduled = in_lanes(&plain);
        let tensor = |pick: fn(&(f64, f64)) -> f64| {
            let values: Vec<f64> = pairs.iter().map(pick).collect();
            Tensor::from_f64(dtype, [count], &values).unwrap()
        };
        let inputs = [tensor(|pair| pair.0), tensor(|pair| pair.1)];
        let expected = interpret(&plain, &inputs).unwrap();
        let bytes = inputs.map(|input| input.bytes().to_vec());
        for program in [&plain, &scheduled] {
            for ((actual, expected), op) in run(program, &bytes).into_iter().zip(&expected).zip(ops)
            {
                let actual = Tensor::from_bytes(tensor_type.clone(), actual).unwrap();
                let (actual, expected) = (actual.to_i64(), expected.to_i64());
                for ((pair, actual), expected) in pairs.iter().zip(&actual).zip(&expected) {
                    assert_eq!(actual, expected, "{dtype}: {op:?} of {pair:?}");
                }
            }
        }
    }
}

/// Every block's innermost loop in lanes.
fn in_lanes(plain: &Program) -> Program {
    let mut schedule = Schedule::new(plain.clone());
    for block in plain.blocks.ids() {
        let innermost = *schedule.loops(block).last().unwrap();
        schedule.vectorize(innermost).unwrap();
    }
    schedule.into_program()
}

/// Division by zero ends in a value, not in a trap.
#[test]
fn division_by_zero_does_not_trap() {
    for dtype in [DataType::I32, I64, DataType::U8] {
        for op in [BinaryOp::Divide, BinaryOp::FloorDivide, BinaryOp::Modulo, BinaryOp::Remainder] {
            let mut builder = Builder::new();
            let tensor_type = TensorType::new(dtype, [3]);
            let (x, y) = (builder.input("x", &tensor_type), builder.input("y", &tensor_type));
            let z = builder.map("z", &tensor_type, |i| load(x, i).binary(op, load(y, i)));
            builder.output(z);
            let program = builder.finish();
            let tensor =
                |values: &[f64]| Tensor::from_f64(dtype, [3], values).unwrap().bytes().to_vec();
            let result =
                run(&program, &[tensor(&[5.0, 7.0, 0.0]), tensor(&[0.0, 2.0, 0.0])]).remove(0);
            let result = Tensor::from_bytes(tensor_type, result).unwrap().to_i64();
            let quotient = matches!(op, BinaryOp::Divide | BinaryOp::FloorDivide);
            assert_eq!(result, if quotient { [0, 3, 0] } else { [5, 1, 0] }, "{dtype} {op:?}");
        }
    }
}

/// Every pair of types, with values at the edges of both.
#[test]
fn casts_between_all_types() {
    let values = [
        0.0,
        1.0,
        -1.0,
        2.5,
        -2.5,
        3.999,
        127.0,
        128.0,
        -128.0,
        -129.0,
        255.0,
        256.0,
        32767.0,
        40000.0,
        65504.0,
        65519.0,
        65520.0,
        70000.0,
        -40000.0,
        2147483648.0,
        5e9,
        -5e9,
        1e19,
        -1e19,
        1e39,
        1e-8,
        6e-8,
        3e-5,
        1e-40,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        0.1,
        1.0009765625,
        1.00146484375,
        3.3895e38,
        1.00390625,
        1.01171875,
        0.333333,
    ];
    for from in DataType::all() {
        let count = values.len();
        let mut builder = Builder::new();
        let x = builder.input("x", &TensorType::new(from, [count]));
        for to in DataType::all() {
            let out = TensorType::new(to, [count]);
            let y = builder.map("y", &out, |i| load(x, i).cast(to));
            builder.output(y);
        }
        let plain = builder.finish();
        let input = Tensor::from_f64(from, [count], &values).unwrap();
        let expected = interpret(&plain, std::slice::from_ref(&input)).unwrap();
        for program in [&plain, &in_lanes(&plain)] {
            let actual = run(program, &[input.bytes().to_vec()]);
            for (expected, actual) in expected.iter().zip(actual) {
                let actual = Tensor::from_bytes(expected.tensor_type().clone(), actual).unwrap();
                let to = actual.dtype();
                for ((from_value, actual), expected) in
                    input.to_f64().iter().zip(actual.to_f64()).zip(expected.to_f64())
                {
                    // The instruction for it takes subnormal numbers for zero.
                    let flushed = to == DataType::BF16
                        && actual == 0.0
                        && expected.abs() < f64::from(f32::MIN_POSITIVE);
                    let same = actual == expected || (actual.is_nan() && expected.is_nan());
                    assert!(
                        same || flushed,
                        "{from} {from_value} to {to}: {actual}, not {expected}"
                    );
                }
            }
        }
    }
}
