//! Convolutions on tensor cores: strides, dilations, padding, groups and tails, on channels in blocks, in the interpreter of
//! PTX, by `ptxas`, and the mix of instructions of their main loop.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{Products, all_architectures, changed, late, main_loop, moved, noticed, numbers};
use hone_codegen::nvptx::{Architecture, Module, ProductOptions, Tiles, product};
use hone_device_tests::count;
use hone_ptx_tests::Ptxas;
use hone_tensor::{Builder, Combiner, Expr, Program, interpret};
use hone_types::{DataType, Tensor, TensorType};

/// A convolution of `[images, groups * blocks, X.., block]` by `[groups * outputs, blocks, K.., block, results]`, of bytes by
/// signed ones with the block last.
#[derive(Clone, Debug)]
struct Sizes {
    dtype: DataType,
    images: usize,
    groups: usize,
    /// Blocks of input channels of a group, and channels of a block.
    inputs: [usize; 2],
    /// Blocks of output channels of a group, and channels of a block.
    outputs: [usize; 2],
    spatial: Vec<usize>,
    kernel: Vec<usize>,
    strides: Vec<usize>,
    dilations: Vec<usize>,
    /// Before and after each axis.
    pads: Vec<[usize; 2]>,
}

impl Sizes {
    /// Over two axes of 9 and 7, by 3 x 3 with padding of 1.
    fn square(inputs: [usize; 2], outputs: [usize; 2]) -> Self {
        Self {
            dtype: DataType::F16,
            images: 1,
            groups: 1,
            inputs,
            outputs,
            spatial: vec![9, 7],
            kernel: vec![3, 3],
            strides: vec![1, 1],
            dilations: vec![1, 1],
            pads: vec![[1, 1], [1, 1]],
        }
    }

    /// Of bytes, whose rounds are 64 channels.
    fn bytes(dtype: DataType, inputs: [usize; 2], outputs: [usize; 2]) -> Self {
        Self { dtype, ..Self::square(inputs, outputs) }
    }

    fn has_bytes(&self) -> bool {
        self.dtype.bytes() == 1
    }

    fn results(&self) -> Vec<usize> {
        let along = |axis: usize| {
            let padded = self.spatial[axis] + self.pads[axis][0] + self.pads[axis][1];
            (padded - (self.kernel[axis] - 1) * self.dilations[axis] - 1) / self.strides[axis] + 1
        };
        (0..self.spatial.len()).map(along).collect()
    }
}

/// `max(convolution + bias + other, 0)`, rounded to the operands' type; of bytes a 64th of the sums, and no more than 100.
fn program(sizes: &Sizes) -> (Program, Vec<Tensor>) {
    let Sizes { dtype, images, groups, inputs, outputs, .. } = *sizes;
    let around =
        |first: [usize; 2], spatial: &[usize], last: &[usize]| [&first[..], spatial, last].concat();
    let x_shape = around([images, groups * inputs[0]], &sizes.spatial, &[inputs[1]]);
    let (bytes, weights) =
        (sizes.has_bytes(), if sizes.has_bytes() { DataType::I8 } else { dtype });
    let last = if bytes { [outputs[1], inputs[1]] } else { [inputs[1], outputs[1]] };
    let w_shape = around([groups * outputs[0], inputs[0]], &sizes.kernel, &last);
    let y_shape = around([images, groups * outputs[0]], &sizes.results(), &[outputs[1]]);
    let mut builder = Builder::new();
    let x = builder.input("x", &TensorType::new(dtype, x_shape.clone()));
    let w = builder.input("w", &TensorType::new(weights, w_shape.clone()));
    let bias_shape = [groups * outputs[0], outputs[1]];
    let bias = builder.input("bias", &TensorType::new(DataType::F32, bias_shape));
    let other = builder.input("other", &TensorType::new(dtype, y_shape.clone()));
    let axes = sizes.spatial.len();
    let summed = if bytes { DataType::I32 } else { DataType::F32 };
    let sums = TensorType::new(summed, y_shape.clone());
    let reduced = [&w_shape[1..2 + axes], &[inputs[1]]].concat();
    let sums = builder.reduce("sum", &sums, &reduced, Combiner::Sum, |i, r| {
        let block = match groups {
            1 => r[0].clone(),
            _ => i[1].clone().floor_divide(outputs[0].into()) * inputs[0] + r[0].clone(),
        };
        let (mut read, mut inside) = (vec![i[0].clone(), block], None::<Expr>);
        for axis in 0..axes {
            let at = i[2 + axis].clone() * sizes.strides[axis]
                + r[1 + axis].clone() * sizes.dilations[axis];
            let [begin, end] = sizes.pads[axis];
            if begin + end > 0 {
                let last = Expr::from(begin + sizes.spatial[axis]);
                let here = Expr::from(begin).less_equal(at.clone()).and(at.clone().less(last));
                inside = Some(match inside {
                    Some(others) => others.and(here),
                    None => here,
                });
            }
            read.push(at - begin);
        }
        read.push(r[1 + axes].clone());
        let load = Expr::Load(x, read);
        let value = match inside {
            Some(inside) => inside.select(load, Expr::Constant(0.0, dtype)),
            None => load,
        };
        let (outer, inner) = r.split_at(1 + axes);
        let result = [i[2 + axes].clone()];
        let last = if bytes { [&result, inner] } else { [inner, &result[..]] }.concat();
        let weight = [&[i[1].clone()], outer, &last].concat();
        value.cast(summed) * Expr::Load(w, weight).cast(summed)
    });
    let y = builder.map("y", &TensorType::new(dtype, y_shape.clone()), |i| {
        let bias = Expr::Load(bias, vec![i[1].clone(), i[2 + axes].clone()]);
        let number = |value: f64| Expr::Constant(value, DataType::F32);
        let sum = Expr::Load(sums, i.to_vec());
        let sum = if bytes { sum.cast(DataType::F32) * number(1.0 / 64.0) } else { sum };
        let sum = sum + bias + Expr::Load(other, i.to_vec()).cast(DataType::F32);
        let positive = sum.maximum(number(0.0));
        if bytes { positive.minimum(number(100.0)) } else { positive }.cast(dtype)
    });
    builder.output(y);
    let inputs = vec![
        numbers(dtype, &x_shape, 0),
        numbers(weights, &w_shape, 1),
        numbers(DataType::F32, &bias_shape, 2),
        numbers(dtype, &y_shape, 3),
    ];
    (builder.finish(), inputs)
}

fn cases() -> Vec<Sizes> {
    let square = Sizes::square;
    vec![
        // Windows of 3 x 3: strides, dilations, both, uneven padding, images, several blocks, fewer channels than a round.
        square([1, 32], [1, 32]),
        Sizes { strides: vec![2, 1], ..square([2, 32], [1, 32]) },
        Sizes { dilations: vec![2, 3], pads: vec![[2, 1], [3, 2]], ..square([1, 32], [2, 32]) },
        Sizes { strides: vec![2, 3], dilations: vec![1, 2], images: 2, ..square([1, 24], [1, 16]) },
        Sizes { pads: vec![[0, 0], [2, 0]], images: 3, ..square([2, 8], [1, 40]) },
        Sizes { pads: vec![[0, 0], [0, 0]], ..square([1, 32], [2, 32]) },
        Sizes { dtype: DataType::BF16, strides: vec![2, 2], images: 2, ..square([2, 64], [1, 8]) },
        // Channels of several rounds, the last one not whole.
        Sizes { images: 2, ..square([1, 72], [1, 32]) },
        // Groups, of one block and of two.
        Sizes { groups: 3, ..square([1, 32], [1, 32]) },
        Sizes { groups: 2, images: 2, strides: vec![2, 2], ..square([2, 32], [2, 16]) },
        // 1 x 1, with and without strides and padding.
        Sizes {
            kernel: vec![1, 1],
            pads: vec![[0, 0], [0, 0]],
            images: 2,
            ..square([3, 32], [2, 32])
        },
        Sizes { kernel: vec![1, 1], strides: vec![2, 2], ..square([3, 32], [2, 32]) },
        // 7 x 7 of few channels with strides, windows longer than the input.
        Sizes {
            kernel: vec![7, 7],
            strides: vec![2, 2],
            pads: vec![[3, 3], [3, 3]],
            ..square([1, 8], [1, 32])
        },
        // Bytes: one block and several, of both kinds, fewer channels than a round, 1 x 1, padding of one side.
        Sizes::bytes(DataType::U8, [1, 64], [1, 64]),
        Sizes { strides: vec![2, 1], images: 2, ..Sizes::bytes(DataType::I8, [2, 64], [1, 64]) },
        Sizes { pads: vec![[0, 1], [2, 0]], ..Sizes::bytes(DataType::I8, [1, 16], [2, 32]) },
        Sizes { dilations: vec![2, 3], ..Sizes::bytes(DataType::U8, [1, 48], [1, 16]) },
        Sizes {
            kernel: vec![1, 1],
            pads: vec![[0, 0], [0, 0]],
            strides: vec![1, 2],
            ..Sizes::bytes(DataType::I8, [3, 64], [1, 64])
        },
        // One axis, and three.
        Sizes {
            spatial: vec![50],
            kernel: vec![5],
            strides: vec![1],
            dilations: vec![2],
            pads: vec![[4, 4]],
            images: 2,
            ..square([2, 32], [1, 32])
        },
        Sizes {
            spatial: vec![4, 5, 6],
            kernel: vec![3, 2, 3],
            strides: vec![1, 2, 1],
            dilations: vec![1, 1, 2],
            pads: vec![[1, 1], [0, 1], [2, 2]],
            ..square([1, 32], [1, 32])
        },
    ]
}

fn with_tiles(
    program: &Program,
    architecture: Architecture,
    tiles: Option<Tiles>,
) -> Option<Module> {
    product(program, architecture, &ProductOptions { tiles, rounded: false }, "k").unwrap()
}

#[test]
fn convolutions_compute_the_same_on_tensor_cores() {
    let mut products = Products::default();
    for (number, sizes) in cases().into_iter().enumerate() {
        let (program, inputs) = program(&sizes);
        let expected = interpret(&program, &inputs).unwrap();
        for architecture in all_architectures() {
            // The smallest tiles, those of the model, and the others in turn.
            let turn = Tiles::ALL[number % 4];
            for tiles in [Some(Tiles::ALL[4]), None, Some(turn)] {
                let module = with_tiles(&program, architecture, tiles);
                if architecture == Architecture::Sm75 {
                    assert!(module.is_none());
                    continue;
                }
                let module = module.unwrap_or_else(|| panic!("{sizes:?}: {program}"));
                let case = (&program, &inputs[..], &expected[..]);
                products.check(&module, architecture, case, &(&sizes, &tiles));
            }
        }
    }
    products.finish("convolutions on tensor cores");
}

#[test]
fn convolutions_compute_the_same_by_warpgroups() {
    let mut products = Products::default();
    for (number, sizes) in cases().into_iter().enumerate() {
        let (program, inputs) = program(&sizes);
        let expected = interpret(&program, &inputs).unwrap();
        // Rows of 64 columns in lines of 64 bytes, and the others in turn.
        for tiles in [Tiles::WARPGROUPS[5], Tiles::WARPGROUPS[number % 5]] {
            let architecture = Architecture::Sm90a;
            let module = with_tiles(&program, architecture, Some(tiles));
            if sizes.dtype == DataType::U8 {
                // Bytes with signs by those without take a later version of PTX.
                assert!(module.is_none());
                continue;
            }
            let module = module.unwrap_or_else(|| panic!("{sizes:?} {tiles:?}: {program}"));
            assert!(module.text.contains("wgmma.mma_async"), "{tiles:?}");
            let case = (&program, &inputs[..], &expected[..]);
            products.check(&module, architecture, case, &(&sizes, &tiles));
        }
    }
    products.finish("convolutions by warpgroups");
}

#[test]
fn what_has_no_whole_chunks_is_left_to_others() {
    let none = |sizes: Sizes| {
        let (program, _) = program(&sizes);
        with_tiles(&program, Architecture::Sm80, Some(Tiles::ALL[4])).is_none()
    };
    let square = Sizes::square;
    assert!(!none(square([1, 32], [1, 32])));
    // Channels that are no whole chunks, of inputs and of outputs.
    assert!(none(square([1, 12], [1, 32])));
    assert!(none(square([1, 32], [1, 12])));
    assert!(none(Sizes::bytes(DataType::I8, [1, 24], [1, 64])));
    // More steps of windows than a word has bits, but where nothing is padded.
    let long = |pads: usize| Sizes {
        spatial: vec![60],
        kernel: vec![40],
        strides: vec![1],
        dilations: vec![1],
        pads: vec![[pads, pads]],
        ..square([1, 32], [1, 32])
    };
    assert!(none(long(3)));
    assert!(!none(long(0)));
}

#[test]
fn every_fault_in_copies_and_windows_is_noticed() {
    // Columns and depth come in whole tiles: what is copied beyond them changes nothing that is stored.
    let sizes = Sizes { strides: vec![2, 1], images: 2, ..Sizes::square([2, 32], [1, 32]) };
    let (program, inputs) = program(&sizes);
    let expected = interpret(&program, &inputs).unwrap();
    let module = with_tiles(&program, Architecture::Sm80, Some(Tiles::ALL[4])).unwrap();
    let noticed = |text: &str| {
        let right = |results: &[Tensor]| results == expected;
        noticed(text, (&program, &module.steps), &inputs, right)
    };
    assert!(!noticed(&module.text));
    let late = |line: &str| late(line, "cp.async.wait_group", 1);
    let matrix = |line: &str| moved(line, &["ldmatrix"], 16);
    let copy = |line: &str| moved(line, &["cp.async.cg"], 16);
    // Copies that read where there are no elements, and that bring too few or too many.
    let other_copy = |line: &str, sizes: &str| {
        let copied = line.split_once(", 16, ").filter(|(before, _)| before.contains("cp.async"));
        copied.map(|(before, _)| format!("{before}, {sizes};"))
    };
    let unguarded = |line: &str| other_copy(line, "16");
    let short = |line: &str| other_copy(line, "16, 8");
    let long = |line: &str| other_copy(line, "16, 24");
    let kinds: [(&str, common::Change<'_>); 6] = [
        ("waits one stage late", &late),
        ("matrices read one chunk off", &matrix),
        ("copies one chunk off", &copy),
        ("copies from outside", &unguarded),
        ("copies too short", &short),
        ("copies of more than they write", &long),
    ];
    let mut faults = std::collections::BTreeMap::<&str, usize>::new();
    for (kind, change) in kinds {
        for text in changed(&module.text, change) {
            assert!(noticed(&text), "{kind}: {text}");
            *faults.entry(kind).or_default() += 1;
        }
    }
    println!("PTX of convolutions: {faults:?}");
    count(faults.values().sum(), "faults in PTX noticed");
    assert_eq!(faults.len(), 6, "{faults:?}");
}

#[test]
fn main_loops_hold_little_but_products() {
    let Some(ptxas) = Ptxas::of_tests().unwrap() else { return };
    // Windows of 3 x 3 over 56 x 56, and 1 x 1 with strides, of 32 images; fewer rounds are no loop.
    let window = |kernel: usize, stride: usize| Sizes {
        images: 32,
        spatial: vec![56, 56],
        kernel: vec![kernel; 2],
        strides: vec![stride; 2],
        pads: vec![[kernel / 2; 2]; 2],
        ..Sizes::square([64, 32], [4, 32])
    };
    for (name, sizes) in [("3 x 3", window(3, 1)), ("1 x 1, strides of 2", window(1, 2))] {
        let (program, _) = program(&sizes);
        for architecture in
            Architecture::ALL.into_iter().filter(|other| *other != Architecture::Sm75)
        {
            let module = with_tiles(&program, architecture, Some(Tiles::ALL[0])).unwrap();
            let assembled = ptxas.assemble(&module.text, architecture.name()).unwrap();
            let resources = &assembled.resources[0];
            assert_eq!((resources.spill_stores, resources.spill_loads), (0, 0), "{resources:?}");
            let Some(sass) = ptxas.disassemble(&assembled.cubin).unwrap() else { return };
            let (all, counts) = main_loop(&sass, &["HMMA", "LDSM", "LDGSTS"]);
            let ratio = (all - counts[0]) as f64 / counts[0] as f64;
            println!(
                "{architecture}, {name}: {} registers; main loop of {all} instructions, of them {counts:?} HMMA, LDSM, \
                 LDGSTS: {ratio:.2} others for each HMMA",
                resources.registers
            );
            assert_eq!(counts, [64, 16, 8], "{sass}");
            assert!(ratio < 2.0, "{all} instructions\n{sass}");
        }
        let tiles = Tiles::WARPGROUPS[4];
        let module = with_tiles(&program, Architecture::Sm90a, Some(tiles)).unwrap();
        let assembled = ptxas.assemble(&module.text, "sm_90a").unwrap();
        let resources = &assembled.resources[0];
        assert_eq!((resources.spill_stores, resources.spill_loads), (0, 0), "{resources:?}");
        let Some(sass) = ptxas.disassemble(&assembled.cubin).unwrap() else { return };
        let (all, counts) = main_loop(&sass, &["HGMMA", "LDGSTS"]);
        println!(
            "sm_90a by warpgroups, {name}: {} registers; main loop of {all} instructions, of them {counts:?} HGMMA, LDGSTS",
            resources.registers
        );
        assert_eq!(counts, [2, 4], "{sass}");
        assert!(all < 128, "{all} instructions\n{sass}");
    }
}
