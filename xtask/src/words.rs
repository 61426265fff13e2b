//! Words that the code does not use: each is refused in the identifiers of the rooms that are free of it, with what to
//! write instead. `docs/glossary.md` has the words that are used.

/// Rooms without any of the words; a room that is cleaned of them joins.
const CLEAN_ROOMS: &[&str] = &[
    "compiler/machine/",
    "compiler/passes/",
    "compiler/tune/",
    "compiler/search/",
    "compiler/lower/",
    "compiler/codegen/",
    "compiler/codegen-text/",
    "emulator/",
    "console/",
];

/// A word, or several joined by `_`, and what to say instead. `own` is found in `own_steps`, `place` in `PerPlace`.
const REFUSED: &[(&str, &str)] = &[
    ("own", "what it is, such as loop_, axis, operand, block, entry"),
    ("place", "index, axis, position, offset, coordinate or argument"),
    ("places", "indices, axes, positions, offsets, coordinates or arguments"),
    ("slim", "reduced, of reduced precision"),
    ("narrowed", "reduced, or stored in reduced precision"),
    ("wide", "f32, extended, or how many bits"),
    ("widen", "extend, convert"),
    ("widened", "extended, converted"),
    ("tap", "kernel position"),
    ("seam", "boundary"),
    ("seams", "boundaries"),
    ("walk", "iterate, visit, or the access pattern"),
    ("walks", "iterates, visits, or the access pattern"),
    ("turned", "transposed"),
    ("write_out", "unroll"),
    ("written_out", "unrolled"),
    ("brings", "prefetches, loads"),
    ("share", "fraction, ratio"),
    ("granted", "tolerance, allowance"),
    ("nudge", "perturb"),
    ("unsteadiness", "rounding sensitivity"),
    ("truth", "predicate, mask, boolean"),
    ("holds", "predicate, or what is contained"),
    ("facts", "properties, bounds"),
    ("told", "reported, printed, described"),
    ("said", "reported, printed, decoded"),
    ("news", "notification"),
    ("lap", "stage timer"),
    ("crew", "thread pool"),
    ("seat", "worker slot"),
    ("settle", "commit"),
];

/// The complaints about a file's identifiers.
pub fn complaints(file: &str, text: &str) -> Vec<String> {
    if !file.ends_with(".rs") || !CLEAN_ROOMS.iter().any(|room| file.starts_with(room)) {
        return Vec::new();
    }
    let identifiers = identifiers(text).into_iter();
    identifiers
        .filter_map(|(line, name)| {
            let (word, instead) = REFUSED.iter().find(|(word, _)| has_word(name, word))?;
            Some(format!("{file}:{line}: '{name}' has the word '{word}': say {instead}"))
        })
        .collect()
}

/// Whether a name in snake case, camel case or capitals has a word, or several one after another.
fn has_word(name: &str, word: &str) -> bool {
    let parts = parts(name);
    let words: Vec<&str> = word.split('_').collect();
    parts.windows(words.len()).any(|window| window == words)
}

/// The words that a name is made of, in lower case.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut after_lower = false;
    for letter in name.chars() {
        if letter == '_' || letter.is_uppercase() && after_lower {
            parts.push(String::new());
        }
        after_lower = letter.is_lowercase();
        if let (true, Some(part)) = (letter != '_', parts.last_mut()) {
            part.extend(letter.to_lowercase());
        }
    }
    parts
}

/// The identifiers and keywords of Rust code with their lines, counted from 1: nothing of comments and literals.
fn identifiers(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while let Some(first) = rest.chars().next() {
        let length = match first {
            _ if first.is_alphabetic() || first == '_' => {
                let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
                let end = end.unwrap_or(rest.len());
                match raw_string(rest) {
                    Some(length) => length,
                    None => {
                        found.push((line, &rest[..end]));
                        end
                    }
                }
            }
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            '"' => quoted(rest, '"'),
            '\'' if is_character(rest) => quoted(rest, '\''),
            '0'..='9' => rest.find(|letter: char| !letter.is_alphanumeric()).unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    found
}

/// The length of the raw string that a text begins with.
fn raw_string(text: &str) -> Option<usize> {
    let after = text.strip_prefix("br").or(text.strip_prefix('r'))?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    let content = after[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let before = text.len() - content.len();
    Some(content.find(&end).map_or(text.len(), |length| before + length + end.len()))
}

/// The length of the literal that a text begins with, up to `quote`.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (index, letter) in text.char_indices().skip(1) {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if letter == quote => return index + quote.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// Whether a text that begins with `'` begins with a character, and not with a lifetime.
fn is_character(text: &str) -> bool {
    let mut letters = text.chars().skip(1);
    letters.next() == Some('\\') || letters.next() == Some('\'')
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLEAN: &str = "compiler/tune/src/tile.rs";

    #[test]
    fn refused_words_are_found_in_every_form_of_a_name() {
        for code in ["|own| own.extent", "let own_steps = 1;", "enum A { PerPlace }", "PLACES"] {
            assert!(!complaints(CLEAN, code).is_empty(), "{code}");
        }
        let found = complaints(CLEAN, "let a = \"\n\";\nlet place = 1;");
        let instead = "'place' has the word 'place': say index, axis, position";
        assert!(
            found.len() == 1 && found[0].starts_with(&format!("{CLEAN}:3: {instead}")),
            "{found:?}"
        );
    }

    #[test]
    fn other_words_comments_and_literals_are_accepted() {
        for code in [
            "|axis| axis.extent.to_owned()",
            "// its own place",
            "/* own */ let a = 'a';",
            "panic!(\"place the buffer \\\" in its own scope\")",
            "let a = r#\"own \" place\"#;",
            "fn displaced<'a>(a: &'a str, b: char) { b == '\"' || b == '\\'' }",
        ] {
            assert!(complaints(CLEAN, code).is_empty(), "{code}");
        }
        assert!(complaints("compiler/ops/src/pad.rs", "|own| own").is_empty());
    }
}
