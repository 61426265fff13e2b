//! The record of a schedule: text a person can read, and JSON as a list of such lines.

use crate::argument::Handle;
use crate::schedule::list;
use crate::{ScheduleError, Step};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// A step and what it made.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The step.
    pub step: Step,
    /// The loops and blocks it made, in the order in which its method returns them.
    pub results: Vec<Handle>,
}

/// Steps in the order they were taken. Its text form has one step a line, such as
/// `v12, v13 = split(v5, factor=14)`; in JSON it is a list of those lines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// The steps.
    pub entries: Vec<Entry>,
}

impl Trace {
    pub(crate) fn record(&mut self, step: Step, results: Vec<Handle>) {
        self.entries.push(Entry { step, results });
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.results.is_empty() {
            write!(formatter, "{} = ", list(&self.results))?;
        }
        write!(formatter, "{}", self.step)
    }
}

impl FromStr for Entry {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self, ScheduleError> {
        // An equals sign in front of the parenthesis belongs to the results.
        let call = text.find('(').unwrap_or(text.len());
        let Some(equals) = text[..call].find('=') else {
            return Ok(Self { step: text.parse()?, results: vec![] });
        };
        let handle = |own: &str| {
            Handle::parse(own.trim()).ok_or_else(|| ScheduleError::Syntax {
                text: text.to_string(),
                reason: format!("'{}' names no loop or block", own.trim()),
            })
        };
        let results = text[..equals].split(',').map(handle).collect::<Result<_, _>>()?;
        Ok(Self { step: text[equals + 1..].parse()?, results })
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.entries.iter().try_for_each(|entry| writeln!(formatter, "{entry}"))
    }
}

impl FromStr for Trace {
    type Err = ScheduleError;

    /// Empty lines and lines that begin with `#` are passed over.
    fn from_str(text: &str) -> Result<Self, ScheduleError> {
        let lines = text.lines().map(str::trim);
        let entries = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        Ok(Self { entries: entries.map(str::parse).collect::<Result<_, _>>()? })
    }
}

impl Serialize for Trace {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.entries.iter().map(Entry::to_string))
    }
}

impl<'de> Deserialize<'de> for Trace {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let lines = Vec::<String>::deserialize(deserializer)?;
        let entries = lines.iter().map(|line| line.parse().map_err(serde::de::Error::custom));
        Ok(Self { entries: entries.collect::<Result<_, _>>()? })
    }
}
