//! Texts cut into tokens.

use serde::{Deserialize, Serialize};

/// The token before those of a text, where they are marked: START OF TEXT.
const BEGIN: &str = "\u{2}";
/// The token behind them: END OF TEXT.
const END: &str = "\u{3}";

/// How texts are cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tokens {
    /// What tokens are.
    pub rule: TokenRule,
    /// Whether the characters 2 and 3 stand around the tokens of each text.
    pub mark: bool,
    /// What fills the rows of texts with fewer tokens than others.
    pub pad: String,
    /// Least characters of a token.
    pub least: u64,
}

/// What tokens are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TokenRule {
    /// Single characters.
    Characters,
    /// What stands between matches of patterns: texts are cut at the first one, their parts at the second, and so on.
    Separators(Vec<Scanner>),
    /// What a pattern matches.
    Pattern(Box<Scanner>),
}

/// A pattern that is looked for: of the matches that begin leftmost the longest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Scanner {
    /// Reads a text from its end; where it says that a match ends, one begins.
    pub backward: ScanTable,
    /// Reads on from the beginning of a match, and says where matches that begin there end.
    pub forward: ScanTable,
}

/// A deterministic automaton that says where matches end. It knows of an end when it has read one byte more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScanTable {
    /// The class of each of the 256 bytes.
    pub classes: Vec<u8>,
    /// How many classes there are.
    pub width: u32,
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

impl ScanTable {
    fn holds_together(&self) -> bool {
        let (width, states) = (self.width as usize, self.accepts.len());
        self.classes.len() == 256
            && self.classes.iter().all(|class| usize::from(*class) < width)
            && width.checked_mul(states) == Some(self.next.len())
            && self.starts.len() == width + 1
            && self.ended.len() == states
            && self.next.iter().chain(&self.starts).all(|state| (*state as usize) < states)
    }

    /// The state behind a byte, or at the edge of the text.
    fn start(&self, behind: Option<u8>) -> usize {
        let class =
            behind.map_or(self.width as usize, |byte| usize::from(self.classes[usize::from(byte)]));
        self.starts[class] as usize
    }

    fn step(&self, state: usize, byte: u8) -> usize {
        let class = usize::from(self.classes[usize::from(byte)]);
        self.next[state * self.width as usize + class] as usize
    }
}

impl Scanner {
    /// Where matches begin.
    fn begins(&self, text: &[u8], found: &mut Vec<bool>) {
        found.clear();
        found.resize(text.len() + 1, false);
        let mut state = self.backward.start(None);
        for (place, byte) in text.iter().enumerate().rev() {
            state = self.backward.step(state, *byte);
            found[place + 1] = self.backward.ended[state];
        }
        found[0] = self.backward.accepts[state];
    }

    /// Where the longest match ends that begins at a place.
    fn end(&self, text: &[u8], from: usize) -> Option<usize> {
        let table = &self.forward;
        let dead = table.dead.map(|dead| dead as usize);
        let mut state = table.start(from.checked_sub(1).map(|place| text[place]));
        let mut found = None;
        for (place, byte) in text.iter().enumerate().skip(from) {
            state = table.step(state, *byte);
            if table.ended[state] {
                found = Some(place);
            }
            if dead == Some(state) {
                return found;
            }
        }
        if table.accepts[state] { Some(text.len()) } else { found }
    }
}

impl Tokens {
    /// Whether all automata hold together.
    pub(crate) fn check(&self) -> Result<(), String> {
        let scanners = match &self.rule {
            TokenRule::Characters => &[][..],
            TokenRule::Separators(scanners) => scanners,
            TokenRule::Pattern(scanner) => std::slice::from_ref(&**scanner),
        };
        let sound = |own: &Scanner| own.forward.holds_together() && own.backward.holds_together();
        if scanners.iter().all(sound) {
            Ok(())
        } else {
            Err("an automaton does not hold together".to_owned())
        }
    }

    /// Calls `token` with each token of a text, not marked. The automata hold together.
    pub(crate) fn each<'a>(
        &self,
        text: &'a str,
        mut token: impl FnMut(&'a str) -> Result<(), String>,
    ) -> Result<(), String> {
        match &self.rule {
            TokenRule::Characters => {
                let ends =
                    text.char_indices().map(|(place, own)| &text[place..place + own.len_utf8()]);
                ends.into_iter().try_for_each(token)
            }
            TokenRule::Pattern(scanner) => self.matched(scanner, text, &mut token),
            TokenRule::Separators(scanners) => {
                let mut parts = vec![text];
                for scanner in scanners {
                    parts = self.separated(scanner, &parts);
                }
                parts.into_iter().try_for_each(token)
            }
        }
    }

    fn is_long(&self, text: &str) -> bool {
        // A character has at most four bytes.
        text.len() as u64 >= self.least.saturating_mul(4)
            || text.chars().count() as u64 >= self.least
    }

    fn matched<'a>(
        &self,
        scanner: &Scanner,
        text: &'a str,
        token: &mut impl FnMut(&'a str) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut begins = Vec::new();
        scanner.begins(text.as_bytes(), &mut begins);
        let mut from = 0;
        while let Some(begin) = next_begin(text, &begins, from) {
            let found = scanner.end(text.as_bytes(), begin).and_then(|end| text.get(begin..end));
            if let Some(found) = found.filter(|own| !own.is_empty() && self.is_long(own)) {
                token(found)?;
                from = begin + found.len();
            } else {
                // Behind a match that is too short, it goes on at the next character.
                let Some(next) = text[begin..].chars().next() else { break };
                from = begin + next.len_utf8();
            }
        }
        Ok(())
    }

    /// What is long enough between matches in some texts.
    fn separated<'a>(&self, scanner: &Scanner, texts: &[&'a str]) -> Vec<&'a str> {
        let (mut parts, mut begins) = (Vec::new(), Vec::new());
        for text in texts {
            scanner.begins(text.as_bytes(), &mut begins);
            let mut from = 0;
            while let Some(begin) = next_begin(text, &begins, from) {
                let found =
                    scanner.end(text.as_bytes(), begin).and_then(|end| text.get(begin..end));
                let Some(found) = found.filter(|own| !own.is_empty()) else { break };
                parts.push(&text[from..begin]);
                from = begin + found.len();
            }
            parts.push(&text[from..]);
        }
        parts.retain(|part| !part.is_empty() && self.is_long(part));
        parts
    }

    /// Puts marks around the tokens of rows and fills them up to the longest one. Without any tokens there are no marks.
    pub(crate) fn squared<T: Clone>(
        &self,
        rows: &mut [Vec<T>],
        mut made: impl FnMut(&str) -> Result<T, String>,
    ) -> Result<(), String> {
        if rows.iter().all(Vec::is_empty) {
            return Ok(());
        }
        if self.mark {
            let (begin, end) = (made(BEGIN)?, made(END)?);
            for row in rows.iter_mut() {
                row.insert(0, begin.clone());
                row.push(end.clone());
            }
        }
        let most = rows.iter().map(Vec::len).max().unwrap_or(0);
        let pad = made(&self.pad)?;
        rows.iter_mut().for_each(|row| row.resize(most, pad.clone()));
        Ok(())
    }
}

/// The first character at `from` or behind it where a match begins.
fn next_begin(text: &str, begins: &[bool], from: usize) -> Option<usize> {
    let marked = begins.iter().enumerate().skip(from).filter(|(_, own)| **own);
    marked.map(|(place, _)| place).find(|place| text.is_char_boundary(*place))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// `b+`, in both directions: state 0 reads no `b`, 1 has read one, 2 has just left a row of them; 3 is dead.
    fn scanner() -> Scanner {
        let mut classes = vec![0; 256];
        classes[usize::from(b'b')] = 1;
        let backward = ScanTable {
            classes: classes.clone(),
            width: 2,
            next: vec![0, 1, 2, 4, 0, 1, 3, 3, 2, 4],
            starts: vec![0, 0, 0],
            ended: vec![false, false, true, false, true],
            accepts: vec![false, true, false, false, true],
            dead: Some(3),
        };
        let forward = ScanTable { next: vec![3, 1, 2, 4, 3, 3, 3, 3, 2, 4], ..backward.clone() };
        Scanner { backward, forward }
    }

    fn tokens(rule: TokenRule, least: u64) -> Tokens {
        Tokens { rule, mark: true, pad: "#".into(), least }
    }

    fn cut(tokens: &Tokens, text: &str) -> Vec<String> {
        tokens.check().unwrap();
        let mut found = Vec::new();
        tokens
            .each(text, |token| {
                found.push(token.to_owned());
                Ok(())
            })
            .unwrap();
        found
    }

    #[test]
    fn tokens_are_matches_or_what_lies_between() {
        let pattern = |least| tokens(TokenRule::Pattern(Box::new(scanner())), least);
        assert_eq!(cut(&pattern(1), "abba béb"), ["bb", "b", "b"]);
        assert_eq!(cut(&pattern(2), "abba béb"), ["bb"]);
        assert_eq!(cut(&pattern(1), ""), [""; 0]);
        let parts = tokens(TokenRule::Separators(vec![scanner()]), 1);
        assert_eq!(cut(&parts, "abba béb"), ["a", "a ", "é"]);
        assert_eq!(cut(&tokens(TokenRule::Characters, 1), "é\n"), ["é", "\n"]);
    }

    #[test]
    fn rows_are_as_long_as_the_longest() {
        let own = tokens(TokenRule::Characters, 1);
        let mut rows = vec![vec!["a".to_owned()], Vec::new()];
        own.squared(&mut rows, |text| Ok(text.to_owned())).unwrap();
        assert_eq!(rows, [["\u{2}", "a", "\u{3}"], ["\u{2}", "\u{3}", "#"]]);
        let mut none = vec![Vec::<String>::new(); 2];
        own.squared(&mut none, |text| Ok(text.to_owned())).unwrap();
        assert!(none.iter().all(Vec::is_empty));
    }

    #[test]
    fn automata_from_elsewhere_are_checked() {
        let refused = |change: fn(&mut ScanTable)| {
            let mut own = scanner();
            change(&mut own.forward);
            tokens(TokenRule::Separators(vec![own]), 1).check().is_err()
        };
        assert!(refused(|own| own.starts[1] = 9));
        assert!(refused(|own| own.ended.clear()));
        assert!(refused(|own| own.next[0] = 5));
        assert!(refused(|own| own.starts.truncate(1)));
    }
}
