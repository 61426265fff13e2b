//! Functions that WGSL has not, as the interpreter of loop programs computes them.

/// The helpers: behind each line that begins with `////` stands what a text that uses it contains, then the
/// helper.
const HELPERS: [&str; 6] = [
    include_str!("helpers/words.wgsl"),
    include_str!("helpers/halves.wgsl"),
    include_str!("helpers/floats.wgsl"),
    include_str!("helpers/functions.wgsl"),
    include_str!("helpers/doubles.wgsl"),
    include_str!("helpers/double_arithmetic.wgsl"),
];

/// The helpers that `text` uses, and those that they use.
pub(super) fn prelude(text: &str) -> String {
    let helpers = HELPERS.iter().flat_map(|file| file.split("//// "));
    let mut unused: Vec<(&str, &str)> =
        helpers.filter_map(|helper| helper.split_once('\n')).collect();
    let mut used = String::new();
    loop {
        let before = used.len();
        unused.retain(|(name, helper)| {
            let needed = text.contains(name) || used.contains(name);
            if needed {
                used.push_str(helper);
            }
            !needed
        });
        if used.len() == before {
            return used;
        }
    }
}
