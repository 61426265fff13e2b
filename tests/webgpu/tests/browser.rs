//! The page in `examples/web` in a real Chromium: it classifies the test digits by WebGPU as well as the reference does.
//!
//! The browser computes by SwiftShader, so that no GPU is needed. Its own compiler checks what `naga` does not: that all
//! lanes reach a barrier alike, and that no constant expression fails.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::WebGpu;
use common::browser::{browser, report};
use hone_device_tests::{Collector, count, product, sums};
use hone_driver::{Accelerator, Options, Target, compile_graph};
use hone_import::{ImportOptions, import};
use hone_model_tests::read_npz;
use hone_onnx_tests::{Case, folder, load, run};
use hone_tensor::Program;
use hone_types::DataType;
use std::path::Path;

/// As many as the reference gets right; `tests/models/tests/digits.rs`.
const RIGHT: u64 = 357;

/// Of this many official cases one is taken.
const SAMPLE: u64 = 40;

#[test]
fn a_page_classifies_digits() {
    let Some(program) = browser() else { return };
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let digits = examples.join("digits");
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("bundle");
    let model = std::fs::read(digits.join("digits.onnx")).unwrap();
    let target = Target::host().unwrap().with_accelerator(Accelerator::WebGpu).unwrap();
    let graph = import(&model, &ImportOptions::default()).unwrap().graph;
    let artifact = compile_graph(graph, &model, &Options::new(target)).unwrap().artifact;
    std::fs::create_dir(&bundle).unwrap();
    std::fs::write(bundle.join("digits.hone"), artifact).unwrap();
    let images = &read_npz(&digits.join("test-images.npz")).unwrap()[0].1;
    let labels = &read_npz(&digits.join("test-labels.npz")).unwrap()[0].1;
    let labels: Vec<u8> = labels.to_i64().iter().map(|label| *label as u8).collect();
    std::fs::write(bundle.join("images.bin"), images.bytes()).unwrap();
    std::fs::write(bundle.join("labels.bin"), &labels).unwrap();

    let report = report(&program, vec![examples.join("web"), folder.path().to_path_buf()]);
    assert!(report["error"].is_null(), "{report}");
    assert_eq!((report["right"].as_u64(), report["of"].as_u64()), (Some(RIGHT), Some(360)));
}

/// A page that asks the browser's compiler about each text of `texts.json`.
const PAGE: &str = r#"<!doctype html><script type="module">
const report = (result) => fetch("report", { method: "POST", body: JSON.stringify(result) });
try {
  const adapter = await navigator.gpu.requestAdapter();
  const device = await adapter.requestDevice();
  const texts = await (await fetch("texts.json")).json();
  const wrong = [];
  for (const code of texts) {
    device.pushErrorScope("validation");
    const { messages } = await device.createShaderModule({ code }).getCompilationInfo();
    await device.popErrorScope();
    const errors = messages.filter((message) => message.type === "error");
    if (errors.length) wrong.push(`${errors[0].lineNum}: ${errors[0].message}\n${code}`);
  }
  report({ texts: texts.length, wrong });
} catch (error) {
  report({ error: String(error) });
}
</script>"#;

#[test]
fn every_text_is_valid_in_a_browser() {
    let Some(program) = browser() else { return };
    let webgpu = WebGpu::new(None);
    let all = std::env::var_os("HONE_ALL_CASES").is_some();
    let collector = Collector::new(&webgpu);
    let chosen = |case: &Case| all || case.is_in_sample(SAMPLE);
    run(&collector, &load(&folder()).unwrap(), chosen);
    let (_, jobs) = collector.run_all();
    let mut texts: Vec<String> = jobs.iter().map(|job| common::whole(&job.code)).collect();
    let templates: [Program; 3] = [
        product(DataType::F32, [1, 64, 64, 32]).0,
        product(DataType::F16, [1, 64, 32, 32]).0,
        sums(3, 1024).0,
    ];
    texts.extend(templates.iter().map(common::scheduled));
    assert!(texts.iter().filter(|text| text.contains("workgroupBarrier();")).count() >= 3);

    let served = tempfile::tempdir().unwrap();
    std::fs::write(served.path().join("index.html"), PAGE).unwrap();
    let json = serde_json::to_string(&texts).unwrap();
    std::fs::write(served.path().join("texts.json"), json).unwrap();
    let report = report(&program, vec![served.path().to_path_buf()]);
    assert_eq!(report["texts"].as_u64(), Some(texts.len() as u64), "{report}");
    let wrong = report["wrong"].as_array().unwrap();
    let first = wrong.first().and_then(|text| text.as_str()).unwrap_or_default();
    assert!(wrong.is_empty(), "{} of {}, the first: {first}", wrong.len(), texts.len());
    count(texts.len(), "texts of WGSL valid in Chromium");
}
