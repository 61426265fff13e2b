//! Mutated models never make the importer panic or take memory without bound.
//!
//! The number of mutations is fixed and so is the seed; `HONE_FUZZ_ROUNDS` sets another number.

#![allow(clippy::unwrap_used)]

mod build;

use build::*;
use cap::Cap;
use hone_import::onnx::proto::*;
use hone_import::{FoldingLimits, ImportOptions, InputBinding, Limits};
use prost::Message;
use std::alloc::System;
use std::panic::catch_unwind;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// Most bytes that may be allocated at any time.
const MEMORY: usize = 192 << 20;

/// A xorshift generator: the same numbers everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.below(from.len()))
    }

    /// A number that code likes to get wrong.
    fn number(&mut self) -> i64 {
        let extremes = [
            0,
            1,
            -1,
            2,
            3,
            7,
            64,
            255,
            4096,
            65_537,
            1 << 20,
            1 << 31,
            1 << 32,
            1 << 40,
            1 << 62,
            i64::MAX,
            i64::MIN,
            i64::MAX - 1,
            -2,
            -3,
            -4096,
        ];
        *self.pick(&extremes).unwrap()
    }
}

fn options() -> ImportOptions {
    let binding = |name: &str, shape: &[usize]| InputBinding {
        name: name.into(),
        shape: shape.to_vec(),
        dtype: None,
    };
    ImportOptions {
        folder: Some(std::env::temp_dir()),
        bindings: vec![binding("tokens", &[2, 3])],
        forms: Vec::new(),
        constants: Vec::new(),
        inputs_have_room: true,
        backing: None,
        limits: Limits {
            structure_bytes: 16 << 20,
            constant_bytes: 32 << 20,
            folding: FoldingLimits {
                result_bytes: 1 << 20,
                operations: 1 << 20,
                all_operations: 1 << 22,
            },
            nodes: 10_000,
            ..Limits::default()
        },
    }
}

/// Changes bytes without knowing what they mean.
fn mutate_bytes(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(4) {
        let place = random.below(bytes.len());
        match random.below(6) {
            0 if !bytes.is_empty() => bytes[place] ^= 1 << random.below(8),
            1 if !bytes.is_empty() => bytes[place] = random.next() as u8,
            2 => bytes.truncate(place),
            3 => {
                let end = (place + random.below(40)).min(bytes.len());
                let part = bytes[place..end].to_vec();
                let to = random.below(bytes.len() + 1);
                bytes.splice(to..to, part);
            }
            4 => {
                let end = (place + random.below(20)).min(bytes.len());
                bytes.drain(place..end);
            }
            _ => bytes.insert(place, random.next() as u8),
        }
    }
}

/// Changes what a model says, and leaves it well-formed protobuf.
fn mutate_model(model: &mut ModelProto, random: &mut Random) {
    let operators: Vec<&str> = hone_import::onnx::supported().map(|(_, name)| name).collect();
    let Some(graph) = &mut model.graph else { return };
    let names: Vec<String> =
        graph.node.iter().flat_map(|node| node.output.iter().chain(&node.input).cloned()).collect();
    match random.below(12) {
        0 => {
            let place = random.below(graph.initializer.len());
            if let Some(tensor) = graph.initializer.get_mut(place) {
                mutate_tensor(tensor, random);
            }
        }
        1 => {
            let place = random.below(graph.input.len());
            if let Some(input) = graph.input.get_mut(place) {
                let dims = ["a", "batch", "0", "1", "7", "-1", "4611686018427387904"];
                let rank = random.below(6);
                let dims: Vec<&str> = (0..rank).map(|_| *random.pick(&dims).unwrap()).collect();
                let kind = random.below(16) as i32;
                *input = port(input.name.as_deref().unwrap_or_default(), kind, &dims);
            }
        }
        2 => {
            for opset in &mut model.opset_import {
                opset.version = Some(7 + random.below(22) as i64);
            }
        }
        3 => {
            let (one, other) = (random.below(graph.node.len()), random.below(graph.node.len()));
            if !graph.node.is_empty() {
                graph.node.swap(one, other);
            }
        }
        _ => {
            let place = random.below(graph.node.len());
            if let Some(node) = graph.node.get_mut(place) {
                mutate_node(node, &names, &operators, random);
            }
        }
    }
}

fn mutate_tensor(tensor: &mut TensorProto, random: &mut Random) {
    match random.below(6) {
        0 => tensor.dims.push(random.number()),
        1 => {
            let place = random.below(tensor.dims.len());
            if let Some(dim) = tensor.dims.get_mut(place) {
                *dim = random.number();
            }
        }
        2 => tensor.data_type = Some(random.below(28) as i32),
        3 => {
            tensor.raw_data = None;
            tensor.dims = vec![tensor.int64_data.len() as i64];
            if let Some(value) = tensor.int64_data.first_mut() {
                *value = random.number();
            }
        }
        4 => {
            tensor.dims.clear();
        }
        _ => {
            tensor.data_location = Some(1);
            let entry = |key: &str, value: String| StringStringEntryProto {
                key: Some(key.into()),
                value: Some(value),
            };
            let locations = ["../x", "/etc/passwd", "a/b", "", "..", "\0", "nothing"];
            tensor.external_data = vec![
                entry("location", random.pick(&locations).unwrap().to_string()),
                entry("offset", random.number().to_string()),
                entry("length", random.number().to_string()),
            ];
        }
    }
    if random.below(2) == 0
        && let Some(value) = tensor.int64_data.first_mut()
    {
        *value = random.number();
    }
}

fn mutate_node(node: &mut NodeProto, names: &[String], operators: &[&str], random: &mut Random) {
    match random.below(7) {
        0 => node.op_type = random.pick(operators).map(|name| name.to_string()),
        1 => {
            let place = random.below(node.input.len());
            if let (Some(input), Some(name)) = (node.input.get_mut(place), random.pick(names)) {
                *input = name.clone();
            }
        }
        2 => node.input.extend(random.pick(names).cloned()),
        3 => {
            node.input.pop();
        }
        4 => {
            let kinds = [
                "axis",
                "axes",
                "perm",
                "pads",
                "strides",
                "dilations",
                "group",
                "kernel_shape",
                "to",
                "epsilon",
                "mode",
                "blocksize",
                "size",
                "p",
                "num_outputs",
                "equation",
                "output_shape",
                "hidden_size",
                "direction",
                "batch_dims",
                "k",
                "keepdims",
                "ceil_mode",
                "value_ints",
            ];
            let name = *random.pick(&kinds).unwrap();
            let count = random.below(5);
            let numbers: Vec<i64> = (0..count).map(|_| random.number()).collect();
            let changed = std::mem::take(node);
            *node = match random.below(4) {
                0 => changed.int(name, random.number()),
                1 => changed.ints(name, &numbers),
                2 => changed.float(name, random.number() as f32),
                _ => changed.string(name, "bidirectional"),
            };
        }
        _ => {
            let place = random.below(node.attribute.len());
            let Some(attribute) = node.attribute.get_mut(place) else { return };
            attribute.i = attribute.i.map(|_| random.number());
            attribute.f = attribute.f.map(|_| random.number() as f32);
            let entry = random.below(attribute.ints.len());
            if let Some(value) = attribute.ints.get_mut(entry) {
                *value = random.number();
            }
            if let Some(text) = &mut attribute.s {
                mutate_bytes(text, random);
            }
            if random.below(8) == 0 {
                node.attribute.remove(place);
            }
        }
    }
}

#[test]
fn mutated_models() {
    let rounds = std::env::var("HONE_FUZZ_ROUNDS").ok().and_then(|text| text.parse().ok());
    let rounds: u64 = rounds.unwrap_or(6000);
    let seeds = [convolutional(), attention(), assorted(), controlled(), counted(), decided()];
    let encoded: Vec<Vec<u8>> = seeds.iter().map(Message::encode_to_vec).collect();
    let options = options();
    let mut imported = 0;
    for round in 0..rounds {
        let mut random =
            Random(0x9e37_79b9_7f4a_7c15 ^ (round + 1).wrapping_mul(0x2545_f491_4f6c_dd1d));
        let seed = random.below(seeds.len());
        let bytes = if round % 3 == 0 {
            let mut bytes = encoded[seed].clone();
            mutate_bytes(&mut bytes, &mut random);
            bytes
        } else {
            let mut model = seeds[seed].clone();
            (0..=random.below(4)).for_each(|_| mutate_model(&mut model, &mut random));
            model.encode_to_vec()
        };
        let outcome = catch_unwind(|| hone_import::import(&bytes, &options).is_ok());
        imported += usize::from(outcome.unwrap_or_else(|_| panic!("round {round} panics")));
        let peak = ALLOCATOR.max_allocated();
        assert!(peak < MEMORY, "round {round} brings the memory to {peak} bytes");
    }
    // The mutations must not be so coarse that everything is refused at the door.
    assert!(imported > rounds as usize / 100, "only {imported} of {rounds} models were imported");
}
