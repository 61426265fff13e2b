//! Patterns that are looked for in texts: leftmost matches, and of those that begin at one place the longest, as RE2 finds
//! them when it is asked for the longest. Two deterministic automata are made while compiling: one reads a text
//! backwards and says where matches begin, the other reads on from there.

use crate::text_pattern::{MOST_ENTRIES, MOST_TABLE, compiled, translated};
use regex_automata::dfa::{Automaton as _, StartKind, dense};
use regex_automata::nfa::thompson::pikevm::{Cache, PikeVM};
use regex_automata::util::{primitives::StateID, start};
use regex_automata::{Anchored, Input, MatchKind};
use std::collections::HashMap;
use std::ops::Range;

/// A deterministic automaton over the bytes of UTF-8 that says where matches end. It knows of an end when it has read one
/// byte more. States and classes of bytes are numbered from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanTable {
    /// The class of each byte.
    pub classes: Vec<u8>,
    /// How many classes there are.
    pub width: usize,
    /// The state after each class in each state, `[states, width]`.
    pub next: Vec<u32>,
    /// The state to begin in behind a byte of each class, and at last that at the text's edge.
    pub starts: Vec<u32>,
    /// Whether a match has ended before the byte that led to a state.
    pub ended: Vec<bool>,
    /// Whether a match ends where the text does.
    pub accepts: Vec<bool>,
    /// The state from which no match is reached, where there is one.
    pub dead: Option<u32>,
}

/// A pattern as two automata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextScanner {
    /// Reads a text from its end to its beginning; where it says that a match ends, one begins.
    pub backward: ScanTable,
    /// Reads on from the beginning of a match, and says where matches that begin there end.
    pub forward: ScanTable,
}

impl TextScanner {
    /// Whether it matches somewhere without a character.
    pub fn matches_empty(&self) -> bool {
        let table = &self.forward;
        let is_ended = |state: &u32| table.ended[*state as usize];
        table.starts.iter().any(|state| {
            let row = *state as usize * table.width;
            table.accepts[*state as usize]
                || table.next[row..row + table.width].iter().any(is_ended)
        })
    }
}

/// The automata of a pattern in RE2's syntax.
///
/// # Errors
/// What is wrong with the pattern, or that an automaton is too large.
pub fn text_scanner(pattern: &str) -> Result<TextScanner, String> {
    let expression = translated(pattern)?;
    let table = |anchored: Anchored, reverse: bool| {
        let kind = match anchored {
            Anchored::No => StartKind::Unanchored,
            _ => StartKind::Anchored,
        };
        let dfa = dense::Builder::new()
            .configure(
                dense::Config::new()
                    .start_kind(kind)
                    .match_kind(MatchKind::All)
                    .dfa_size_limit(Some(MOST_TABLE))
                    .determinize_size_limit(Some(MOST_TABLE)),
            )
            .build_from_nfa(&compiled(pattern, &expression, reverse)?)
            .map_err(|error| format!("pattern {pattern:?}: {error}"))?;
        read(&dfa, anchored).map_err(|reason| format!("pattern {pattern:?}: {reason}"))
    };
    Ok(TextScanner { backward: table(Anchored::No, true)?, forward: table(Anchored::Yes, false)? })
}

/// The states of an automaton, numbered as they are reached.
fn read(dfa: &dense::DFA<Vec<u32>>, anchored: Anchored) -> Result<ScanTable, String> {
    let (mut numbers, mut states): (HashMap<StateID, u32>, Vec<StateID>) = Default::default();
    let mut number = |state: StateID, states: &mut Vec<StateID>| {
        *numbers.entry(state).or_insert_with(|| {
            states.push(state);
            states.len() as u32 - 1
        })
    };
    let mut starts = Vec::with_capacity(257);
    for before in (0..=255).map(Some).chain([None]) {
        let config = start::Config::new().anchored(anchored).look_behind(before);
        let state = dfa.start_state(&config).map_err(|error| error.to_string())?;
        starts.push(number(state, &mut states));
    }
    let mut rows: Vec<u32> = Vec::new();
    let mut at = 0;
    while let Some(state) = states.get(at).copied() {
        at += 1;
        rows.extend((0..=255u8).map(|byte| number(dfa.next_state(state, byte), &mut states)));
        if rows.len() / 256 > MOST_ENTRIES / 4 {
            return Err("its automaton is too large".into());
        }
    }
    let table = ScanTable {
        ended: states.iter().map(|state| dfa.is_match_state(*state)).collect(),
        accepts: states
            .iter()
            .map(|state| dfa.is_match_state(dfa.next_eoi_state(*state)))
            .collect(),
        dead: states.iter().position(|state| dfa.is_dead_state(*state)).map(|dead| dead as u32),
        ..classed(&rows, &starts)
    };
    match table.next.len() > MOST_ENTRIES {
        true => Err("its automaton is too large".into()),
        false => Ok(table),
    }
}

/// Bytes that lead to the same states everywhere, and behind which one begins in the same state, as one class.
fn classed(rows: &[u32], starts: &[u32]) -> ScanTable {
    let mut columns: HashMap<Vec<u32>, u8> = HashMap::new();
    let (mut classes, mut firsts) = (Vec::with_capacity(256), Vec::new());
    for (byte, start) in starts.iter().take(256).enumerate() {
        let behind = [*start];
        let column = rows.iter().skip(byte).step_by(256).chain(&behind).copied().collect();
        let fresh = columns.len() as u8;
        let class = *columns.entry(column).or_insert(fresh);
        if usize::from(class) == firsts.len() {
            firsts.push(byte);
        }
        classes.push(class);
    }
    let next = rows.chunks_exact(256).flat_map(|row| firsts.iter().map(|byte| row[*byte]));
    let edge = starts.last().copied().unwrap_or(0);
    ScanTable {
        classes,
        width: firsts.len(),
        next: next.collect(),
        starts: firsts.iter().map(|byte| starts[*byte]).chain([edge]).collect(),
        ended: Vec::new(),
        accepts: Vec::new(),
        dead: None,
    }
}

/// A pattern that is looked for by simulation.
pub(crate) struct Simulated {
    machine: PikeVM,
    cache: Cache,
}

impl Simulated {
    pub(crate) fn new(pattern: &str) -> Result<Self, String> {
        let machine = PikeVM::builder()
            .configure(PikeVM::config().match_kind(MatchKind::All))
            .build_from_nfa(compiled(pattern, &translated(pattern)?, false)?)
            .map_err(|error| format!("pattern {pattern:?}: {error}"))?;
        let cache = machine.create_cache();
        Ok(Self { machine, cache })
    }

    /// The leftmost match that begins at byte `from` or behind it, the longest of those that begin there.
    pub(crate) fn find(&mut self, text: &str, from: usize) -> Option<Range<usize>> {
        let places = (from..=text.len()).filter(|place| text.is_char_boundary(*place));
        places.into_iter().find_map(|place| {
            let input = Input::new(text).span(place..text.len()).anchored(Anchored::Yes);
            Some(self.machine.find(&mut self.cache, input)?.range())
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn step(table: &ScanTable, state: u32, byte: u8) -> u32 {
        table.next[state as usize * table.width + usize::from(table.classes[usize::from(byte)])]
    }

    /// Where matches begin.
    fn begins(table: &ScanTable, text: &str) -> Vec<bool> {
        let mut state = *table.starts.last().unwrap();
        let mut found = vec![false; text.len() + 1];
        for (place, byte) in text.bytes().enumerate().rev() {
            state = step(table, state, byte);
            found[place + 1] = table.ended[state as usize];
        }
        found[0] = table.accepts[state as usize];
        found
    }

    fn longest(table: &ScanTable, text: &str, from: usize) -> Option<usize> {
        let class =
            from.checked_sub(1).map(|place| table.classes[usize::from(text.as_bytes()[place])]);
        let mut state = table.starts[class.map_or(table.width, usize::from)];
        let mut found = None;
        for (place, byte) in text.bytes().enumerate().skip(from) {
            state = step(table, state, byte);
            if table.ended[state as usize] {
                found = Some(place);
            }
            if table.dead == Some(state) {
                return found;
            }
        }
        if table.accepts[state as usize] { Some(text.len()) } else { found }
    }

    #[track_caller]
    fn check(pattern: &str, text: &str, expected: &[&str]) {
        let made = text_scanner(pattern).unwrap();
        let mut simulated = Simulated::new(pattern).unwrap();
        let marks = begins(&made.backward, text);
        let (mut found, mut from) = (Vec::new(), 0);
        while let Some(range) = simulated.find(text, from) {
            let first = (from..=text.len()).find(|place| marks[*place]);
            assert_eq!(first, Some(range.start), "{pattern} in {text}");
            assert_eq!(
                longest(&made.forward, text, range.start),
                Some(range.end),
                "{pattern} in {text}"
            );
            found.push(&text[range.clone()]);
            from = range.end;
        }
        assert_eq!(found, expected);
    }

    #[test]
    fn both_ways_find_the_longest_of_the_leftmost() {
        check("a|ab|abc", "ab abcd", &["ab", "abc"]);
        check("[a-z]+", "cat, dog!", &["cat", "dog"]);
        check(r"\b\w\w+\b", "a bc é de_1", &["bc", "de_1"]);
        check("^a", "aa", &["a"]);
        check("a$", "aa", &["a"]);
        check("(?i)É+|.日", "xéÉ日日", &["éÉ", "日日"]);
        check("[a-z]+@|b", "aabab", &["b", "b"]);
        check("é", "", &[]);
    }

    #[test]
    fn matches_without_characters_are_known() {
        let empty = |pattern: &str| text_scanner(pattern).unwrap().matches_empty();
        assert!(empty("x*") && empty(r"\b") && empty("$") && empty("a|") && empty(r"\B"));
        assert!(!empty("x+") && !empty(" ") && !empty(r"\bx") && !empty("^a"));
    }

    #[test]
    fn a_pattern_that_is_wrong_or_too_large_is_refused() {
        for pattern in ["(", "(?u)a", "(a{1000}){1000}"] {
            assert!(text_scanner(pattern).is_err(), "{pattern}");
        }
    }
}
