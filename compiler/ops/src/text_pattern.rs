//! Regular expressions in RE2's syntax, made into deterministic automata while compiling: a run takes a step for each
//! byte, whatever the pattern. `\w`, `\d`, `\s` and `\b` are of ASCII, as RE2 has them; what repeats or nests beyond
//! bounds is refused.

use regex_automata::Anchored;
use regex_automata::dfa::{Automaton as _, StartKind, dense};
use regex_automata::nfa::thompson::{self, NFA, WhichCaptures, pikevm::PikeVM};
use regex_automata::util::{start, syntax};
use std::collections::HashMap;

/// Most bytes of the automaton that is not deterministic, and of a pattern.
const MOST_BYTES: usize = 1 << 20;
/// Most bytes of the deterministic one while it is made.
pub(crate) const MOST_TABLE: usize = 32 << 20;
/// Most entries of its table.
pub(crate) const MOST_ENTRIES: usize = 1 << 20;

/// A deterministic automaton over the bytes of UTF-8. States and classes of bytes are numbered from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextAutomaton {
    /// The class of each byte.
    pub classes: Vec<u8>,
    /// How many classes there are.
    pub width: usize,
    /// The state after each class in each state, `[states, width]`.
    pub next: Vec<u32>,
    /// The state in which a string begins.
    pub start: u32,
    /// Whether a string is accepted that ends in a state.
    pub accepts: Vec<bool>,
}

/// The pattern as `regex-syntax` reads it, for whole strings.
fn whole(pattern: &str) -> Result<String, String> {
    Ok(format!(r"\A(?:{})\z", translated(pattern)?))
}

/// The pattern as `regex-syntax` reads it.
///
/// # Errors
/// A pattern that is too long, ends in a backslash, or sets a flag that RE2 does not have.
pub(crate) fn translated(pattern: &str) -> Result<String, String> {
    if pattern.len() > MOST_BYTES {
        return Err(format!("the pattern has more than {MOST_BYTES} bytes"));
    }
    let mut made = String::new();
    let mut characters = pattern.chars().peekable();
    // How many characters of a bracket were read.
    let mut bracket: Option<usize> = None;
    while let Some(character) = characters.next() {
        match (character, bracket) {
            ('\\', _) => {
                let escaped = characters.next().ok_or("the pattern ends with a backslash")?;
                match (escaped, bracket) {
                    ('w', _) => made.push_str("[0-9A-Za-z_]"),
                    ('W', _) => made.push_str("[^0-9A-Za-z_]"),
                    ('d', _) => made.push_str("[0-9]"),
                    ('D', _) => made.push_str("[^0-9]"),
                    ('s', _) => made.push_str(r"[\t\n\x0c\r ]"),
                    ('S', _) => made.push_str(r"[^\t\n\x0c\r ]"),
                    ('b' | 'B', None) => made.extend(["(?-u:\\", &String::from(escaped), ")"]),
                    _ => made.extend(['\\', escaped]),
                }
            }
            ('[', None) => {
                made.push('[');
                bracket = Some(0);
                if characters.next_if_eq(&'^').is_some() {
                    made.push('^');
                }
                continue;
            }
            ('(', None) => {
                check_flags(characters.clone())?;
                made.push('(');
            }
            (']', Some(0)) => made.push_str(r"\]"),
            (']', Some(_)) => {
                made.push(']');
                bracket = None;
            }
            ('[', Some(_)) if characters.peek() == Some(&':') => {
                made.push('[');
                for inner in characters.by_ref() {
                    made.push(inner);
                    if inner == ']' {
                        break;
                    }
                }
            }
            ('[' | '&' | '~', Some(_)) => made.extend(['\\', character]),
            _ => made.push(character),
        }
        bracket = bracket.map(|read| read + 1);
    }
    Ok(made)
}

/// Refuses flags behind an opening parenthesis that `regex-syntax` takes and RE2 does not: a pattern of Python's that
/// begins with `(?u)` would be of ASCII here and of all letters there.
fn check_flags(mut behind: impl Iterator<Item = char>) -> Result<(), String> {
    if behind.next() != Some('?') {
        return Ok(());
    }
    let mut unknown = None;
    for flag in behind {
        match flag {
            'i' | 'm' | 's' | 'U' | '-' => {}
            ':' | ')' => break,
            _ if flag.is_ascii_alphabetic() => unknown = unknown.or(Some(flag)),
            // A group with a name, or what is refused anyway.
            _ => return Ok(()),
        }
    }
    unknown.map_or(Ok(()), |flag| {
        Err(format!("the pattern has the flag '{flag}', which RE2's syntax has not"))
    })
}

/// The automaton, not deterministic, of an expression as `regex-syntax` reads it; of the reversed expression where
/// `reverse` says so. `pattern` is what it was made of.
pub(crate) fn compiled(pattern: &str, expression: &str, reverse: bool) -> Result<NFA, String> {
    let captures = if reverse { WhichCaptures::None } else { WhichCaptures::Implicit };
    let settings = thompson::Config::new()
        .utf8(false)
        .nfa_size_limit(Some(MOST_BYTES))
        .reverse(reverse)
        .which_captures(captures);
    let mut compiler = thompson::Compiler::new();
    compiler.syntax(syntax::Config::new().utf8(false).nest_limit(100)).configure(settings);
    compiler.build(expression).map_err(|error| {
        let mut reason = error.to_string();
        if let Some(source) = std::error::Error::source(&error) {
            reason = format!("{reason}: {source}");
        }
        format!("pattern {pattern:?}: {reason}")
    })
}

fn automaton(pattern: &str) -> Result<NFA, String> {
    compiled(pattern, &whole(pattern)?, false)
}

/// Whether a pattern matches each of some strings as a whole, by simulation.
pub(crate) fn matches(pattern: &str, texts: &[impl AsRef<str>]) -> Result<Vec<bool>, String> {
    let machine = PikeVM::new_from_nfa(automaton(pattern)?).map_err(|error| error.to_string())?;
    let mut cache = machine.create_cache();
    Ok(texts.iter().map(|text| machine.is_match(&mut cache, text.as_ref())).collect())
}

/// The deterministic automaton of a pattern.
///
/// # Errors
/// What is wrong with the pattern, or that its automaton is too large.
pub fn text_automaton(pattern: &str) -> Result<TextAutomaton, String> {
    let large = |error: dense::BuildError| format!("pattern {pattern:?}: {error}");
    let dfa = dense::Builder::new()
        .configure(
            dense::Config::new()
                .start_kind(StartKind::Anchored)
                .dfa_size_limit(Some(MOST_TABLE))
                .determinize_size_limit(Some(MOST_TABLE)),
        )
        .build_from_nfa(&automaton(pattern)?)
        .map_err(large)?;
    let begin = dfa.start_state(&start::Config::new().anchored(Anchored::Yes));
    let begin = begin.map_err(|error| format!("pattern {pattern:?}: {error}"))?;
    let too_large = || format!("pattern {pattern:?}: its automaton is too large");
    let (mut numbers, mut states) = (HashMap::from([(begin, 0u32)]), vec![begin]);
    let mut rows: Vec<u32> = Vec::new();
    let mut at = 0;
    while let Some(state) = states.get(at).copied() {
        at += 1;
        for byte in 0..=255u8 {
            let next = dfa.next_state(state, byte);
            let fresh = states.len() as u32;
            let number = *numbers.entry(next).or_insert(fresh);
            if number == fresh {
                states.push(next);
            }
            rows.push(number);
        }
        if rows.len() / 256 > MOST_ENTRIES / 4 {
            return Err(too_large());
        }
    }
    let accepts = states.iter().map(|state| dfa.is_match_state(dfa.next_eoi_state(*state)));
    let accepts: Vec<bool> = accepts.collect();
    let packed = packed(&rows, accepts);
    if packed.next.len() > MOST_ENTRIES { Err(too_large()) } else { Ok(packed) }
}

/// Bytes that lead to the same states everywhere as one class.
fn packed(rows: &[u32], accepts: Vec<bool>) -> TextAutomaton {
    let mut columns: HashMap<Vec<u32>, u8> = HashMap::new();
    let (mut classes, mut firsts) = (Vec::with_capacity(256), Vec::new());
    for byte in 0..256 {
        let column: Vec<u32> = rows.iter().skip(byte).step_by(256).copied().collect();
        let fresh = columns.len() as u8;
        let class = *columns.entry(column).or_insert(fresh);
        if usize::from(class) == firsts.len() {
            firsts.push(byte);
        }
        classes.push(class);
    }
    let next = rows.chunks_exact(256).flat_map(|row| firsts.iter().map(|byte| row[*byte]));
    let next = next.collect();
    TextAutomaton { classes, width: firsts.len(), next, start: 0, accepts }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn accepts(made: &TextAutomaton, text: &str) -> bool {
        let step = |state: u32, byte: u8| {
            made.next[state as usize * made.width + usize::from(made.classes[usize::from(byte)])]
        };
        made.accepts[text.bytes().fold(made.start, step) as usize]
    }

    #[track_caller]
    fn check(pattern: &str, cases: &[(&str, bool)]) {
        let made = text_automaton(pattern).unwrap();
        let texts: Vec<&str> = cases.iter().map(|(text, _)| *text).collect();
        let simulated = matches(pattern, &texts).unwrap();
        for ((text, expected), simulated) in cases.iter().zip(simulated) {
            assert_eq!(
                (accepts(&made, text), simulated),
                (*expected, *expected),
                "{pattern} {text}"
            );
        }
    }

    #[test]
    fn both_ways_match_whole_strings() {
        check("a|ab", &[("ab", true), ("a", true), ("abb", false), ("", false)]);
        check(
            r"www\.[\w.-]+\.\bcom\b",
            &[("www.google.com", true), ("www.google.comm", false), ("www.é.com", false)],
        );
        check(r"\w*", &[("é", false), ("e_0", true), ("", true)]);
        check(r"\W.", &[("éé", true), ("\u{1f600}x", true), ("ab", false)]);
        check(r"[]\d&&x]+", &[("]5&x", true), ("d", false)]);
        check(r"[[:alpha:]]\B.", &[("ab", true), ("a ", false)]);
        check(r"(?i)straße\p{Lu}$", &[("STRASSEA", false), ("STRAßEA", true)]);
    }

    #[test]
    fn what_is_wrong_or_too_large_is_refused() {
        for pattern in ["(", "\\", "[b-a]", r"(a)\1", "(?=a)", r"(?u)\w", "(?x:a)"] {
            assert!(text_automaton(pattern).is_err(), "{pattern}");
        }
        assert!(text_automaton("(a{1000}){1000}").is_err());
        assert!(text_automaton("(.*a.{18}|b)*").unwrap_err().contains("pattern"));
        assert!(text_automaton(&"(".repeat(100_000)).is_err());
    }
}
