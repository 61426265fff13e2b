//! Texts cut into tokens, as `com.microsoft.Tokenizer` does.

use crate::text_scanner::Simulated;
use serde::{Deserialize, Serialize};

/// The token before those of a text, where they are marked: START OF TEXT.
const BEGIN: &str = "\u{2}";
/// The token behind them: END OF TEXT.
const END: &str = "\u{3}";

/// How texts are cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    /// What tokens are.
    pub rule: TokenRule,
    /// Whether the characters 2 and 3 stand around the tokens of each text.
    pub mark: bool,
    /// What fills the rows of texts with fewer tokens than others.
    pub pad: String,
    /// Least characters of a token.
    pub least: usize,
}

/// What tokens are. Patterns have RE2's syntax; of the matches that begin leftmost the longest counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenRule {
    /// Single characters.
    Characters,
    /// What stands between matches of patterns: texts are cut at the first one, their parts at the second, and so on.
    Separators(Vec<String>),
    /// What a pattern matches.
    Pattern(String),
}

impl Tokens {
    /// The tokens of each text, all as many: behind those of a text `pad` stands.
    ///
    /// # Errors
    /// A pattern that is wrong.
    pub(crate) fn rows(&self, texts: &[impl AsRef<str>]) -> Result<Vec<Vec<String>>, String> {
        let mut rows: Vec<Vec<String>> = match &self.rule {
            TokenRule::Characters => {
                texts.iter().map(|text| text.as_ref().chars().map(String::from).collect()).collect()
            }
            TokenRule::Pattern(pattern) => {
                let mut pattern = Simulated::new(pattern)?;
                texts.iter().map(|text| self.matched(&mut pattern, text.as_ref())).collect()
            }
            TokenRule::Separators(separators) => {
                let made = separators.iter().map(|separator| Simulated::new(separator));
                let mut made = made.collect::<Result<Vec<_>, _>>()?;
                texts.iter().map(|text| self.separated(&mut made, text.as_ref())).collect()
            }
        };
        if rows.iter().all(Vec::is_empty) {
            return Ok(rows);
        }
        if self.mark {
            for row in &mut rows {
                row.insert(0, BEGIN.into());
                row.push(END.into());
            }
        }
        let most = rows.iter().map(Vec::len).max().unwrap_or(0);
        rows.iter_mut().for_each(|row| row.resize(most, self.pad.clone()));
        Ok(rows)
    }

    fn is_long(&self, text: &str) -> bool {
        text.chars().count() >= self.least
    }

    /// Matches that are long enough. Behind one that is too short, it goes on at the next character.
    fn matched(&self, pattern: &mut Simulated, text: &str) -> Vec<String> {
        let (mut tokens, mut from) = (Vec::new(), 0);
        while let Some(range) = pattern.find(text, from) {
            let token = &text[range.clone()];
            if self.is_long(token) {
                tokens.push(token.to_owned());
                from = range.end;
                continue;
            }
            let Some(next) = text[range.start..].chars().next() else { break };
            from = range.start + next.len_utf8();
        }
        tokens
    }

    /// What is long enough between separators, none of which matches an empty text.
    fn separated(&self, separators: &mut [Simulated], text: &str) -> Vec<String> {
        let mut parts = vec![text.to_owned()];
        for separator in separators {
            let mut finer = Vec::new();
            for part in &parts {
                let mut from = 0;
                while let Some(range) = separator.find(part, from).filter(|own| !own.is_empty()) {
                    finer.push(part[from..range.start].to_owned());
                    from = range.end;
                }
                finer.push(part[from..].to_owned());
            }
            finer.retain(|part| self.is_long(part));
            parts = finer;
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[track_caller]
    fn check(rule: TokenRule, least: usize, mark: bool, texts: &[&str], expected: &[&[&str]]) {
        let tokens = Tokens { rule, mark, pad: "#".into(), least };
        assert_eq!(tokens.rows(texts).unwrap(), expected);
    }

    #[test]
    fn texts_are_cut_and_filled_up() {
        let words = || TokenRule::Pattern("[a-z]+".into());
        check(words(), 1, false, &["a b", "", "c"], &[&["a", "b"], &["#", "#"], &["c", "#"]]);
        check(words(), 2, false, &["a bc"], &[&["bc"]]);
        check(words(), 1, true, &["", "a"], &[&["\u{2}", "\u{3}", "#"], &["\u{2}", "a", "\u{3}"]]);
        check(words(), 1, true, &["", "1"], &[&[], &[]]);
        check(TokenRule::Pattern("x*".into()), 1, false, &["abxxc"], &[&["xx"]]);
        check(TokenRule::Characters, 1, false, &["é\n"], &[&["é", "\n"]]);
        let cuts =
            |list: &[&str]| TokenRule::Separators(list.iter().map(|own| own.to_string()).collect());
        check(cuts(&[" ", ","]), 1, false, &["a b,c  d"], &[&["a", "b", "c", "d"]]);
        check(cuts(&[" ", ","]), 2, false, &["a b,cc  d"], &[&["cc"]]);
        check(cuts(&["."]), 1, false, &["a.b"], &[&[]]);
    }
}
