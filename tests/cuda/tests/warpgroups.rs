//! Products of warpgroups in models for sm_90a, whose kernels ask for more shared memory than a text may declare.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{LIBRARY, SETTINGS, chain, compiled, library, options, outputs, said};
use hone_artifact::{Command, Manifest, Reader, Writer};
use hone_device_tests::{error, inputs};
use hone_driver::{Accelerator, DataType};
use hone_model_builder::Builder;
use hone_ops::Graph;
use hone_runtime::Model;
use prost::Message;

/// What a child process does: `run` or `load`; with fewer bytes of shared memory: `short`.
const WHAT: &str = "HONE_WARPGROUPS";

/// A product of 1,024 x 512 by 512 x 1,024, and its artifact.
fn compiled_product() -> (Graph, Vec<u8>) {
    let mut b = Builder::new("product", 3);
    let x = b.input("x", &[1024, 512]);
    let weight = b.weight("weight", &[512, 1024], 0.0, 0.1);
    let y = b.node("MatMul", &[&x, &weight], Vec::new());
    b.output("y", &y, &[1024, 1024]);
    compiled(&b.finish().encode_to_vec(), &options(Accelerator::Sm90a, DataType::BF16))
}

/// The bytes of shared memory of the launch that has most, which `change` may set.
fn largest(manifest: &mut Manifest, change: impl Fn(u64) -> u64) -> u64 {
    let device = manifest.variants[0].device.as_mut().unwrap();
    let commands = device.kernels.iter_mut().flat_map(|kernel| &mut kernel.commands);
    let launches = commands.filter_map(|command| match command {
        Command::Launch(launch) => Some(launch),
        Command::Repeat { .. } => None,
    });
    let launch = launches.max_by_key(|launch| launch.shared_bytes).unwrap();
    launch.shared_bytes = change(launch.shared_bytes);
    launch.shared_bytes
}

#[test]
fn child() {
    let Ok(what) = std::env::var(WHAT) else { return };
    let (graph, mut artifact) = compiled_product();
    let reader = Reader::new(&artifact).unwrap();
    let text = String::from_utf8(reader.code(0).unwrap().to_vec()).unwrap();
    assert!(text.contains("wgmma.mma_async") && text.contains(".extern .shared"), "{text}");
    let mut manifest = reader.manifest().clone();
    let bytes = largest(&mut manifest, |bytes| bytes);
    assert!(bytes > 48 << 10, "{bytes}");
    assert_eq!(manifest.variants[0].device.as_ref().unwrap().limits.shared_bytes, bytes);
    if what == "short" {
        largest(&mut manifest, |bytes| bytes - (32 << 10));
        let mut writer = Writer::new();
        writer.code(text.into_bytes());
        writer.weights(reader.weights(0).unwrap().to_vec());
        artifact = writer.to_bytes(&manifest).unwrap();
    }
    let mut model = match Model::load_memory(artifact, &Default::default()) {
        Ok(model) => model,
        Err(error) => return println!("load: {}", chain(&error)),
    };
    let inputs = inputs(&graph, 0);
    let mut failed = None;
    let outputs = outputs(&mut model, &inputs, |model, given, buffers| {
        failed = model.run(given, buffers).err();
    });
    match failed {
        Some(error) => println!("run: {}", chain(&error)),
        None => println!("error below bound: {}", error(&graph, &inputs, &outputs) < 3e-2),
    }
}

fn told(what: &str, settings: &str) -> String {
    said("child", &[(LIBRARY, &library())], &[(WHAT, what), (SETTINGS, settings)])
}

#[test]
fn kernels_get_the_shared_memory_that_they_ask_for() {
    let said = told("run", "capability=9.0");
    assert!(said.contains("error below bound: true"), "{said}");
}

#[test]
fn a_device_with_less_shared_memory_is_refused_when_loading() {
    let said = told("load", "capability=9.0 shared=65536");
    assert!(
        said.contains("load: ") && said.contains("has 65536 bytes of memory that a block"),
        "{said}"
    );
}

/// The launch asks for what the artifact says, and no more.
#[test]
fn a_launch_that_asks_for_too_little_fails() {
    let said = told("short", "capability=9.0");
    assert!(said.contains("run: ") && said.contains("was lost"), "{said}");
}
