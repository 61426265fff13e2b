//! Models of branches and loops as torch exports them (`tests/models/control.py`), run and verified as a user would.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{Place, repository};

/// The floats of the only array of a file of stored arrays.
fn floats(npz: &[u8]) -> Vec<f32> {
    let start = npz.windows(6).position(|bytes| bytes == b"\x93NUMPY").unwrap();
    let header = u16::from_le_bytes([npz[start + 8], npz[start + 9]]) as usize;
    let content = &npz[start + 10 + header..];
    // Three rows of eight.
    content[..96].chunks_exact(4).map(|own| f32::from_le_bytes(own.try_into().unwrap())).collect()
}

fn place(models: &[&str]) -> Place {
    let place = Place::new();
    for entry in std::fs::read_dir(repository("tests/models/control")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if models.iter().any(|model| name.starts_with(model)) {
            place.write(name, std::fs::read(&path).unwrap());
        }
    }
    place
}

#[test]
fn models_that_decide_as_they_run_give_the_answers_of_onnxruntime() {
    let place = place(&["choice", "cond", "steps", "while"]);
    let cases = [
        "choice-a", "choice-b", "cond-a", "cond-b", "steps-0", "steps-1", "steps-4", "steps-7",
        "while-a", "while-b",
    ];
    for case in cases {
        let model = format!("{}.onnx", case.split('-').next().unwrap());
        let (inputs, wanted) = (format!("{case}-in.npz"), format!("{case}-want.npz"));
        for reference in [&[][..], &["--reference"]] {
            let run = ["run", &model, "--inputs", &inputs, "--outputs", "got.npz"];
            let ended = place.hone(&[&run[..], reference].concat());
            assert_eq!(ended.code, 0, "{case}: {}", ended.err);
            let got = floats(&std::fs::read(place.path("got.npz")).unwrap());
            let want = floats(&std::fs::read(place.path(&wanted)).unwrap());
            for (got, want) in got.iter().zip(&want) {
                assert!(
                    (got - want).abs() <= 1e-5 * want.abs().max(1.0),
                    "{case}: {got} for {want}"
                );
            }
        }
    }
}

#[test]
fn kernels_of_branches_and_loops_are_verified() {
    let place = place(&["steps", "choice"]);
    for model in ["steps", "choice"] {
        let file = format!("{model}.onnx");
        let out = place.path(&format!("out-{model}"));
        let out = out.to_str().unwrap();
        let compiled = place.hone(&["compile", &file, "--no-measure", "--out", out]);
        assert_eq!(compiled.code, 0, "{}", compiled.err);
        let artifact = place.only(&format!("out-{model}"), "hone");
        let artifact = artifact.to_str().unwrap();
        let ended = place.hone(&["verify", artifact, "--model", &file, "--kernels"]);
        assert_eq!(ended.code, 0, "{}", ended.err);
        assert!(ended.out.contains("kernels"), "{}", ended.out);
        // A sample that takes one branch says that the other one was not checked.
        if model == "choice" {
            let inputs = ["--inputs", "choice-a-in.npz"];
            let ended =
                place.hone(&[&["verify", artifact, "--model", &file][..], &inputs].concat());
            assert_eq!(ended.code, 0, "{}", ended.err);
            assert!(ended.out.contains("kernels were not checked"), "{}", ended.out);
        }
    }
}
