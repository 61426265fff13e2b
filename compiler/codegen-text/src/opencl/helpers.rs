//! Functions that OpenCL C has not, as the interpreter of loop programs computes them.

/// What every text begins with.
const HEAD: &str = "\
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT OFF

";

/// The helpers: behind each line that begins with `////` stands what a text that uses it contains, then the
/// helper.
const HELPERS: &str = include_str!("helpers.cl");

/// The head, and the helpers that `text` uses.
pub(super) fn prelude(text: &str) -> String {
    let helpers = HELPERS.split("//// ").filter_map(|helper| helper.split_once('\n'));
    let used: String =
        helpers.filter(|(name, _)| text.contains(name)).map(|(_, helper)| helper).collect();
    format!("{HEAD}{used}")
}
