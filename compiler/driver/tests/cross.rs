//! A whole model for another processor: compiled by the same path, its code run by an emulator where
//! there is one, its answers those of the reference.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use hone_artifact::{Argument, Manifest, Reader, Slot};
use hone_driver::{ImportOptions, Options, Target, Tensor, compile, evaluate};
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

const COMPILER: &str = "aarch64-linux-gnu-gcc";
const EMULATOR: &str = "qemu-aarch64";

/// Libraries of the emulated machine.
const SYSTEM: &str = "/usr/aarch64-linux-gnu";

/// What runs the steps of a manifest: the runtime's work, in few lines of C.
const MAIN: &str = r#"
    static void fill(const char *name, char *to, long bytes) {
        FILE *file = fopen(name, "rb");
        if (!file || fread(to, 1, bytes, file) != (size_t)bytes) exit(3);
        fclose(file);
    }
    int main(void) {
        fill("weights", weights, sizeof weights);
        fill("input", input, sizeof input);
        void *library = dlopen("./code.so", RTLD_NOW);
        if (!library) { fprintf(stderr, "%s\n", dlerror()); return 4; }
        steps(library);
        FILE *file = fopen("output", "wb");
        if (!file || fwrite(output, 1, sizeof output, file) != sizeof output) return 5;
        return fclose(file) != 0;
    }
"#;

/// A C program for the one variant of a manifest of one input and one output.
fn program(manifest: &Manifest) -> String {
    let variant = &manifest.variants[0];
    let mut text = String::from(
        "#include <dlfcn.h>\n#include <stdint.h>\n#include <stdio.h>\n#include <stdlib.h>\n\
         typedef void Kernel(void *const *, int64_t, int64_t, void *);\n",
    );
    for (name, bytes) in [
        ("input", manifest.inputs[0].bytes),
        ("output", manifest.outputs[0].bytes),
        ("weights", variant.weights_bytes),
        ("arena", variant.arena_bytes),
        ("scratch", variant.scratch_bytes_per_thread.max(1)),
    ] {
        writeln!(text, "static _Alignas(64) char {name}[{bytes}];").unwrap();
    }
    text.push_str("static void steps(void *library) {\n");
    for step in &variant.steps {
        let places: Vec<String> = step.arguments.iter().map(place).collect();
        let (kernel, tasks) = (&step.kernel, step.tasks);
        writeln!(
            text,
            "{{ void *table[] = {{{}}}; ((Kernel *)dlsym(library, \"{kernel}\"))(table, 0, {tasks}, \
             scratch); }}",
            places.join(", ")
        )
        .unwrap();
    }
    text.push_str("}\n");
    text + MAIN
}

fn place(argument: &Argument) -> String {
    match argument.slot {
        Slot::Input { offset, .. } => format!("input + {offset}"),
        Slot::Output { offset, .. } => format!("output + {offset}"),
        Slot::Arena { offset } => format!("arena + {offset}"),
        Slot::Weight { offset } => format!("weights + {offset}"),
    }
}

#[test]
fn a_model_for_arm_answers_as_the_reference_does() {
    let present = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !present(COMPILER) || !present(EMULATOR) || !Path::new(SYSTEM).exists() {
        eprintln!("left out: {COMPILER} or {EMULATOR} is not installed");
        return;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits/digits.onnx");
    let model = std::fs::read(path).unwrap();
    let options = Options::new(Target::for_platform("linux", "arm64", "neoverse-n1").unwrap());
    let import = ImportOptions::default();
    let compiled = compile(&model, &import, &options).unwrap();
    let reader = Reader::new(&compiled.artifact).unwrap();
    let manifest = reader.manifest();
    assert!(manifest.variants[0].target.features.iter().any(|own| own == "neon"));

    let graph = &compiled.reference;
    let own = graph.tensor_type(graph.inputs()[0].value).clone();
    let values: Vec<f64> = (0..own.elements()).map(|n| (n * 37 % 101) as f64 / 100.0).collect();
    let input = Tensor::from_f64(own.dtype, own.shape.clone(), &values).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let write =
        |name: &str, bytes: &[u8]| std::fs::write(directory.path().join(name), bytes).unwrap();
    write("code.so", reader.code(manifest.variants[0].code).unwrap());
    write("weights", reader.weights(manifest.variants[0].weights).unwrap());
    write("input", input.bytes());
    write("main.c", program(manifest).as_bytes());
    let run = |program: &str, arguments: &[&str]| {
        let ended =
            Command::new(program).args(arguments).current_dir(directory.path()).output().unwrap();
        assert!(ended.status.success(), "{program}: {ended:?}");
    };
    run(COMPILER, &["-O1", "-o", "main", "main.c", "-ldl"]);
    run(EMULATOR, &["-L", SYSTEM, "./main"]);

    let expected = evaluate(graph, &[input]).unwrap().remove(0);
    let bytes = std::fs::read(directory.path().join("output")).unwrap();
    let actual = Tensor::from_bytes(expected.tensor_type().clone(), bytes).unwrap();
    for (expected, actual) in expected.to_f64().iter().zip(actual.to_f64()) {
        assert!((expected - actual).abs() <= 1e-4 + 1e-3 * expected.abs(), "{expected} {actual}");
    }
    assert!(expected.to_f64().iter().any(|score| score.abs() > 1.0));
}
