//! Functions of strings that the runtime computes itself.

use hone_artifact::{
    Automaton, CaseRule, DataType, Letters, ScanTable, Scanner, TextFunction, TokenRule, Tokens,
};
use hone_ops::NumberType;

/// The runtime's function of strings; `None` of a pattern that the importer would refuse.
pub(crate) fn text_function(function: &hone_ops::TextFunction) -> Option<TextFunction> {
    use hone_ops::TextFunction as Own;
    Some(match function {
        Own::Concat => TextFunction::Concat,
        Own::Split { delimiter, most, room } => TextFunction::Split {
            delimiter: delimiter.clone(),
            most: most.map(|most| most as u64),
            room: *room as u64,
        },
        Own::Normalize { letters, rule, case_sensitive, stopwords } => TextFunction::Normalize {
            letters: letters_of(*letters),
            rule: rule_of(*rule),
            case_sensitive: *case_sensitive,
            stopwords: stopwords.clone(),
        },
        Own::Case { letters, rule } => {
            TextFunction::Case { letters: letters_of(*letters), rule: rule_of(*rule) }
        }
        Own::Tokenize { tokens, room } => {
            TextFunction::Tokenize { tokens: token_rule(tokens)?, room: *room as u64 }
        }
        Own::Match { pattern } => {
            let automaton = hone_ops::text_automaton(pattern).ok()?;
            TextFunction::Match(Automaton {
                classes: automaton.classes,
                width: automaton.width as u32,
                next: automaton.next,
                start: automaton.start,
                accepts: automaton.accepts,
            })
        }
        Own::FromNumber => TextFunction::FromNumber,
        Own::ToNumber { to } => TextFunction::ToNumber {
            dtype: match to {
                NumberType::F32 => DataType::F32,
                NumberType::F64 => DataType::F64,
                NumberType::I64 => DataType::I64,
                NumberType::U64 => DataType::U64,
            },
        },
    })
}

fn letters_of(letters: hone_ops::Letters) -> Letters {
    match letters {
        hone_ops::Letters::Keep => Letters::Keep,
        hone_ops::Letters::Lower => Letters::Lower,
        hone_ops::Letters::Upper => Letters::Upper,
    }
}

fn rule_of(rule: hone_ops::CaseRule) -> CaseRule {
    match rule {
        hone_ops::CaseRule::Unicode => CaseRule::Unicode,
        hone_ops::CaseRule::Turkic => CaseRule::Turkic,
        hone_ops::CaseRule::Ascii => CaseRule::Ascii,
    }
}

/// How the runtime cuts texts; `None` of a pattern that the importer would refuse.
pub(crate) fn token_rule(tokens: &hone_ops::Tokens) -> Option<Tokens> {
    use hone_ops::TokenRule as Own;
    let rule = match &tokens.rule {
        Own::Characters => TokenRule::Characters,
        Own::Pattern(pattern) => TokenRule::Pattern(Box::new(scanner(pattern)?)),
        Own::Separators(separators) => {
            let scanners = separators.iter().map(|separator| scanner(separator));
            TokenRule::Separators(scanners.collect::<Option<_>>()?)
        }
    };
    let (pad, least) = (tokens.pad.clone(), tokens.least as u64);
    Some(Tokens { rule, mark: tokens.mark, pad, least })
}

fn scanner(pattern: &str) -> Option<Scanner> {
    let table = |own: hone_ops::ScanTable| ScanTable {
        classes: own.classes,
        width: own.width as u32,
        next: own.next,
        starts: own.starts,
        ended: own.ended,
        accepts: own.accepts,
        dead: own.dead,
    };
    let made = hone_ops::text_scanner(pattern).ok()?;
    Some(Scanner { backward: table(made.backward), forward: table(made.forward) })
}
