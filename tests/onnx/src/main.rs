//! `hone-onnx-tests [CASE...]`: runs all cases, or those whose name begins as given, on the
//! interpreter.

use anyhow::{Result, bail};
use hone_onnx_tests::{Case, Interpreter, folder, load, run};

fn main() -> Result<()> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let chosen =
        |case: &Case| wanted.is_empty() || wanted.iter().any(|name| case.name.starts_with(name));
    let report = run(&Interpreter, &load(&folder())?, chosen);
    println!("{report}");
    if !report.is_good() {
        bail!("not every case came out as expected");
    }
    Ok(())
}
