//! The values of one statement's expressions: equal ones are one, and what is taken more than once gets a name, so that
//! it is written, and computed, once.
//!
//! A [`Table`] gives for each text that is computed a *reference*, which stands for it in other texts. When all texts of
//! a statement are known, [`Table::plan`] decides what gets a name, and [`Plan::complete`] puts names and texts in place
//! of references, behind the declarations that they need.

use crate::Dialect;
use hone_types::DataType;
use std::cell::RefCell;
use std::collections::HashMap;

/// What a reference begins with; its number follows. No name of a text begins so.
const REFERENCE: &str = "hone_value_";

/// A value that is computed.
struct Value {
    /// Its text, with references to its operands.
    text: String,
    dtype: DataType,
    /// Whether an element is read on the way to it.
    reads: bool,
    /// Operands, once for each time that the text has them.
    operands: Vec<usize>,
    /// Operands that are computed only where a condition has them chosen.
    chosen: Vec<usize>,
}

/// Values by their texts.
#[derive(Default)]
pub(crate) struct Table {
    values: RefCell<Vec<Value>>,
    known: RefCell<HashMap<(String, DataType), usize>>,
}

impl Table {
    /// A reference to a value of a type; `reads` where it is itself an element of a buffer.
    pub(crate) fn value(&self, text: String, dtype: DataType, reads: bool) -> String {
        let operands = references(&text);
        self.keep(text, dtype, reads, operands, Vec::new())
    }

    /// A reference to one of two values; `lazy` where the other one must not be computed.
    pub(crate) fn choice(
        &self,
        text: String,
        dtype: DataType,
        (condition, sides): (&str, [&str; 2]),
        lazy: bool,
    ) -> String {
        if !lazy {
            return self.value(text, dtype, false);
        }
        let chosen = sides.into_iter().flat_map(references).collect();
        self.keep(text, dtype, false, references(condition), chosen)
    }

    fn keep(
        &self,
        text: String,
        dtype: DataType,
        reads: bool,
        operands: Vec<usize>,
        chosen: Vec<usize>,
    ) -> String {
        let mut values = self.values.borrow_mut();
        let number =
            *self.known.borrow_mut().entry((text, dtype)).or_insert_with_key(|(text, _)| {
                let mut of_operands = operands.iter().chain(&chosen).map(|number| &values[*number]);
                let reads = reads || of_operands.any(|operand| operand.reads);
                values.push(Value { text: text.clone(), dtype, reads, operands, chosen });
                values.len() - 1
            });
        format!("{REFERENCE}{number}")
    }

    /// Decides what gets a name, where the statement consists of `texts`, each with whether it is computed whatever
    /// happens. What reads gets one only if it is computed in any case: a read may be out of bounds elsewhere.
    pub(crate) fn plan(self, texts: &[(&str, bool)]) -> Plan {
        let values = self.values.into_inner();
        let mut taken = vec![0usize; values.len()];
        let mut always = vec![false; values.len()];
        for (text, computed) in texts {
            for number in references(text) {
                taken[number] += 1;
                always[number] |= computed;
            }
        }
        let mut named = vec![false; values.len()];
        // Operands stand in front of what is made of them.
        for (number, value) in values.iter().enumerate().rev() {
            named[number] = taken[number] > 1 && (always[number] || !value.reads);
            let times = if named[number] { 1 } else { taken[number] };
            for operand in value.operands.iter().chain(&value.chosen) {
                taken[*operand] = taken[*operand].saturating_add(times);
            }
            if always[number] {
                value.operands.iter().for_each(|operand| always[*operand] = true);
            }
        }
        let names = vec![None; values.len()];
        Plan { values, named, names }
    }
}

/// What of a statement's values gets a name, and those that have one already.
pub(crate) struct Plan {
    values: Vec<Value>,
    named: Vec<bool>,
    names: Vec<Option<String>>,
}

impl Plan {
    /// A text without references. `declare` gives a name to a value of a type, and writes its declaration.
    pub(crate) fn complete(
        &mut self,
        text: &str,
        declare: &mut dyn FnMut(DataType, &str) -> String,
    ) -> String {
        let mut parts = text.split(REFERENCE);
        let mut complete = parts.next().unwrap_or_default().to_string();
        for part in parts {
            let digits = digits(part);
            // What follows a reference's beginning is its number.
            let number = part[..digits].parse().unwrap_or(0);
            complete.push_str(&self.operand(number, declare));
            complete.push_str(&part[digits..]);
        }
        complete
    }

    fn operand(
        &mut self,
        number: usize,
        declare: &mut dyn FnMut(DataType, &str) -> String,
    ) -> String {
        if let Some(name) = &self.names[number] {
            return name.clone();
        }
        let text = self.values[number].text.clone();
        let text = self.complete(&text, declare);
        if !self.named[number] {
            return text;
        }
        let name = declare(self.values[number].dtype, &text);
        self.names[number] = Some(name.clone());
        name
    }
}

/// Whether a text is a reference and nothing else.
pub(crate) fn is_reference(text: &str) -> bool {
    text.strip_prefix(REFERENCE).is_some_and(|rest| digits(rest) == rest.len())
}

/// A value's text as it stands in other texts: a constant as it is, anything else as a reference.
pub(crate) fn referred(
    table: &Table,
    dialect: &dyn Dialect,
    text: String,
    dtype: DataType,
) -> String {
    if is_reference(&text) || dialect.is_constant(&text) {
        return text;
    }
    table.value(text, dtype, false)
}

/// The numbers of a text's references.
fn references(text: &str) -> Vec<usize> {
    let parts = text.split(REFERENCE).skip(1);
    parts.filter_map(|part| part[..digits(part)].parse().ok()).collect()
}

/// How many digits a text begins with.
fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const F32: DataType = DataType::F32;

    /// What is written for texts of a statement: declarations, then the texts.
    fn written(table: Table, texts: &[(&str, bool)]) -> Vec<String> {
        let mut plan = table.plan(texts);
        let mut lines = Vec::new();
        for (text, _) in texts {
            let completed = plan.complete(text, &mut |_, value| {
                let name = format!("t{}", lines.len());
                lines.push(format!("{name} = {value}"));
                name
            });
            lines.push(completed);
        }
        lines
    }

    #[test]
    fn what_is_taken_twice_is_written_once() {
        let table = Table::default();
        let sum = table.value("(a + b)".into(), F32, false);
        let square = table.value(format!("({sum} * {sum})"), F32, false);
        let again = table.value(format!("({sum} * {sum})"), F32, false);
        assert_eq!(square, again);
        let all = table.value(format!("({square} - {again})"), F32, false);
        let lines = written(table, &[(&all, true)]);
        assert_eq!(lines, ["t0 = (a + b)", "t1 = (t0 * t0)", "(t1 - t1)"]);
    }

    #[test]
    fn operands_of_what_has_no_name_are_counted_as_often_as_it_is_written() {
        let table = Table::default();
        let index = table.value("(i + 1)".into(), DataType::I64, false);
        let read = table.value(format!("x[{index}]"), F32, true);
        let square = table.value(format!("({read} * {read})"), F32, false);
        let chosen = format!("(c ? {square} : 0)");
        let chosen = table.choice(chosen, F32, ("c", [&square, "0"]), true);
        // What is read where the condition is met must not be read elsewhere.
        assert_eq!(
            written(table, &[(&chosen, true)]),
            ["t0 = (i + 1)", "(c ? (x[t0] * x[t0]) : 0)"]
        );
    }

    #[test]
    fn what_is_read_in_any_case_is_read_once() {
        let table = Table::default();
        let read = table.value("x[i]".into(), F32, true);
        let chosen = format!("(c ? {read} : 0)");
        let chosen = table.choice(chosen, F32, ("c", [&read, "0"]), true);
        let all = table.value(format!("({read} + {chosen})"), F32, false);
        assert_eq!(written(table, &[(&all, true)]), ["t0 = x[i]", "(t0 + (c ? t0 : 0))"]);
    }
}
