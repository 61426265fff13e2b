//! Letters of strings changed.

use serde::{Deserialize, Serialize};

/// How letters are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Letters {
    /// Not at all.
    Keep,
    /// To lower case.
    Lower,
    /// To upper case.
    Upper,
}

/// Which letter one becomes: always one, so that a text keeps its length in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CaseRule {
    /// What Unicode's simple mappings say.
    #[default]
    Unicode,
    /// The same, but of the Turkic languages: `I` and `ı`, `İ` and `i` belong together.
    Turkic,
    /// Only those of ASCII change.
    Ascii,
}

impl CaseRule {
    /// The letters of a text changed.
    pub(crate) fn apply(self, letters: Letters, text: &str) -> String {
        if letters == Letters::Keep {
            return text.to_owned();
        }
        if self == Self::Ascii || (self == Self::Unicode && text.is_ascii()) {
            return match letters {
                Letters::Lower => text.to_ascii_lowercase(),
                _ => text.to_ascii_uppercase(),
            };
        }
        let mut changed = String::with_capacity(text.len());
        changed.extend(text.chars().map(|letter| match letters {
            Letters::Lower => self.lower(letter),
            _ => self.upper(letter),
        }));
        changed
    }

    fn lower(self, letter: char) -> char {
        if self == Self::Turkic && letter == 'I' {
            return 'ı';
        }
        // The one letter whose full mapping has two: a small i, and the dot above it.
        letter.to_lowercase().next().unwrap_or(letter)
    }

    fn upper(self, letter: char) -> char {
        if self == Self::Turkic && letter == 'i' {
            return 'İ';
        }
        let mut full = letter.to_uppercase();
        if full.len() == 1 {
            return full.next().unwrap_or(letter);
        }
        // Greek vowels with an iota below have a capital of their own; other letters of long mappings have none.
        let own = letter as u32;
        let capital = match own {
            0x1f80..=0x1faf => own | 8,
            0x1fb3 | 0x1fc3 | 0x1ff3 => own + 9,
            _ => own,
        };
        char::from_u32(capital).unwrap_or(letter)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_letter_becomes_one_letter() {
        let check = |rule: CaseRule, text: &str, lower: &str, upper: &str| {
            assert_eq!(rule.apply(Letters::Lower, text), lower);
            assert_eq!(rule.apply(Letters::Upper, text), upper);
        };
        check(CaseRule::Unicode, "ÀIİıßΣςǅŉᾀᾈᾳﬁẞა", "àiiıßσςǆŉᾀᾀᾳﬁßა", "ÀIİIßΣΣǄŉᾈᾈᾼﬁẞᲐ");
        check(CaseRule::Unicode, "aZ1", "az1", "AZ1");
        check(CaseRule::Turkic, "IiİıÀ", "ıiiıà", "IİİIÀ");
        check(CaseRule::Ascii, "ÀaZ", "Àaz", "ÀAZ");
        assert_eq!(CaseRule::Turkic.apply(Letters::Keep, "Iß"), "Iß");
    }
}
