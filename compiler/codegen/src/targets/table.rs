//! LLVM's table of processors and features. Its C interface does not return it, so `table.cpp`
//! beside this file calls the C++ one.

use crate::error::{CodegenError, Result};
use std::ffi::{CStr, CString, c_char, c_void};

/// Most names proposed for one that is unknown.
const PROPOSED: usize = 3;

/// Least similarity (Jaro-Winkler, of 0 to 1) of a name that is proposed.
const SIMILAR: f64 = 0.8;

type Take = unsafe extern "C" fn(list: *mut c_void, name: *const c_char);

unsafe extern "C" {
    fn hone_processors(triple: *const c_char, take: Take, list: *mut c_void) -> bool;
    fn hone_features(
        triple: *const c_char,
        cpu: *const c_char,
        features: *const c_char,
        all: bool,
        take: Take,
        list: *mut c_void,
    ) -> bool;
}

/// Names of all processors that LLVM has for a triple.
pub(super) fn processors(triple: &str) -> Result<Vec<String>> {
    let (name, mut list) = (text(triple, triple)?, Vec::<String>::new());
    // SAFETY: the text ends in zero, and `push` is given the list that it expects.
    let found = unsafe { hone_processors(name.as_ptr(), push, (&raw mut list).cast()) };
    complete(found, triple, list)
}

/// Names of all features that LLVM has for a triple.
pub(super) fn features(triple: &str) -> Result<Vec<String>> {
    query(triple, "", "", true)
}

/// Features that a processor has with others switched on (`+name`) and off (`-name`), implied ones
/// included; all names are known to LLVM.
pub(super) fn features_of(triple: &str, cpu: &str, changes: &[String]) -> Result<Vec<String>> {
    query(triple, cpu, &changes.join(","), false)
}

/// The names among `known` that are most like `name`, as the end of a sentence.
pub(super) fn nearest(name: &str, known: &[String]) -> String {
    let similar = |known: &&String| strsim::jaro_winkler(name, known) >= SIMILAR;
    let mut names: Vec<&String> = known.iter().filter(similar).collect();
    let order = |name: &str, a: &str, b: &str| {
        let distance = |other: &str| strsim::damerau_levenshtein(name, other);
        distance(a).cmp(&distance(b)).then_with(|| a.cmp(b))
    };
    names.sort_by(|a, b| order(name, a, b));
    names.dedup();
    names.truncate(PROPOSED);
    match names.as_slice() {
        [] => "no known name is like it".to_string(),
        names => {
            let names: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
            format!("the nearest known names are {}", names.join(", "))
        }
    }
}

fn query(triple: &str, cpu: &str, changes: &str, all: bool) -> Result<Vec<String>> {
    let mut list = Vec::<String>::new();
    let name = text(triple, triple)?;
    let (cpu, changes) = (text(triple, cpu)?, text(triple, changes)?);
    // SAFETY: the texts end in zero, and `push` is given the list that it expects.
    let found = unsafe {
        let list = (&raw mut list).cast();
        hone_features(name.as_ptr(), cpu.as_ptr(), changes.as_ptr(), all, push, list)
    };
    complete(found, triple, list)
}

/// # Safety
/// `list` is a `Vec<String>` that nothing else uses meanwhile; `name` is a text that ends in zero.
unsafe extern "C" fn push(list: *mut c_void, name: *const c_char) {
    // SAFETY: the caller's promise.
    let (list, name) = unsafe { (&mut *list.cast::<Vec<String>>(), CStr::from_ptr(name)) };
    list.push(name.to_string_lossy().into_owned());
}

fn text(triple: &str, text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| CodegenError::Target {
        target: triple.replace('\0', "?"),
        message: "a name holds a zero byte".to_string(),
    })
}

fn complete(found: bool, triple: &str, mut list: Vec<String>) -> Result<Vec<String>> {
    if !found {
        let message = "LLVM does not know the triple".to_string();
        return Err(CodegenError::Target { target: triple.to_string(), message });
    }
    list.sort_unstable();
    list.dedup();
    Ok(list)
}
