//! The list of cases that are expected to fail, with reasons.
//!
//! A line is `operator NAME: reason` (every case with that operator in its graph), or `case PATTERN:
//! reason`, where a pattern may end in `*`; `perhaps PATTERN: reason` are cases that some machines pass. Behind a line `[BACKEND]` stand cases that only that
//! backend fails.

use crate::Case;

/// The list.
pub struct Ignored {
    rules: Vec<(Rule, Expected, &'static str)>,
}

/// Whether a case of the list fails on every machine.
#[derive(Clone, Copy, PartialEq)]
enum Expected {
    Always,
    Perhaps,
}

enum Rule {
    Operator(&'static str),
    Case(&'static str),
    Prefix(&'static str),
}

impl Ignored {
    /// The list in `ignored.txt`, for a backend of this name.
    pub fn read(backend: &str) -> Self {
        let lines = include_str!("../ignored.txt").lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let (mut rules, mut holds) = (Vec::new(), true);
        for line in lines {
            match line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                Some(name) => holds = name == backend,
                None if holds => rules.extend(rule(line)),
                None => {}
            }
        }
        Self { rules }
    }

    /// Why a case is expected to fail; nothing for one that `passed` and may.
    pub fn reason(&self, case: &Case, passed: bool) -> Option<&'static str> {
        let matches = |rule: &Rule| match rule {
            Rule::Operator(name) => case.operators.iter().any(|operator| operator == name),
            Rule::Case(name) => case.name == *name,
            Rule::Prefix(prefix) => case.name.starts_with(prefix),
        };
        let mut rules = self.rules.iter();
        let found = rules.find(|(rule, expected, _)| {
            matches(rule) && !(passed && *expected == Expected::Perhaps)
        });
        found.map(|(_, _, reason)| *reason)
    }
}

fn rule(line: &'static str) -> Option<(Rule, Expected, &'static str)> {
    let (what, reason) = line.split_once(": ")?;
    let (kind, name) = what.split_once(' ')?;
    let rule = match (kind, name.strip_suffix('*')) {
        ("operator", _) => Rule::Operator(name),
        (_, Some(prefix)) => Rule::Prefix(prefix),
        _ => Rule::Case(name),
    };
    let expected = if kind == "perhaps" { Expected::Perhaps } else { Expected::Always };
    Some((rule, expected, reason))
}
