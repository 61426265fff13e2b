//! `hone-onnx-tests [--compiled] [CASE...]`: runs all cases, or those whose name begins as given, on
//! the interpreter or on compiled code.

use anyhow::{Result, bail};
use hone_onnx_tests::{Backend, Case, Compiled, Interpreter, folder, load, run};

fn main() -> Result<()> {
    let (options, wanted): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|own| own == "--compiled");
    let backend: Box<dyn Backend> =
        if options.is_empty() { Box::new(Interpreter) } else { Box::new(Compiled::for_host()?) };
    let chosen =
        |case: &Case| wanted.is_empty() || wanted.iter().any(|name| case.name.starts_with(name));
    let report = run(backend.as_ref(), &load(&folder())?, chosen);
    println!("{report}");
    if !report.is_good() {
        bail!("not every case came out as expected");
    }
    Ok(())
}
