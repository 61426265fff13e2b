//! PTX as LLVM writes it. What is not known is an error: nothing is skipped that might mean something.

use crate::decode::decode;
use crate::program::{Entry, Instruction, Operation, Register, Text};
use anyhow::{Context, Result, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};

/// Parses a text.
///
/// # Errors
/// What is not understood, with the instruction.
pub fn parse(text: &str) -> Result<Text> {
    let text = without_comments(text);
    let mut parsed = Text::default();
    let target = text.split_once(".target").context("the text has no .target")?.1;
    parsed.target = target.split_whitespace().next().unwrap_or_default().to_string();
    let version = text.split_once(".version").and_then(|(_, rest)| rest.split_whitespace().next());
    let version =
        version.and_then(|own| own.split_once('.')).context("the text has no .version")?;
    parsed.version = (version.0.parse()?, version.1.parse()?);
    let mut shared = BTreeMap::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once(".entry") {
        declarations(before, &mut shared)?;
        let (name, after) = after.split_once('(').context("a kernel has no parameters")?;
        let (parameters, after) = after.split_once(')').context("parameters do not end")?;
        let (head, after) = after.split_once('{').context("a kernel has no body")?;
        let end = closing(after).context("a kernel's body does not end")?;
        let name = name.trim().to_string();
        let entry = entry(&name, parameters, head, &after[..end], &shared);
        let entry = entry.with_context(|| format!("kernel '{name}'"))?;
        ensure!(parsed.kernels.insert(name.clone(), entry).is_none(), "two kernels '{name}'");
        rest = &after[end + 1..];
    }
    Ok(parsed)
}

/// Shared memory by name: alignment and bytes, where the text and not the launch says how many.
type SharedNames = BTreeMap<String, (usize, Option<usize>)>;

/// Shared memory that stands outside of kernels.
fn declarations(text: &str, shared: &mut SharedNames) -> Result<()> {
    for statement in text.split(';') {
        if let Some((_, declaration)) = statement.split_once(".shared") {
            let (name, align, bytes) = array(declaration)?;
            ensure!(bytes.is_some() != statement.contains(".extern"), "{}", statement.trim());
            shared.insert(name, (align, bytes));
        }
        ensure!(!statement.contains(".global"), "a global variable: {}", statement.trim());
    }
    Ok(())
}

/// `.align 64 .b8 name[16]`, or `name[]`
fn array(text: &str) -> Result<(String, usize, Option<usize>)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [.., align, kind, name] = words[..] else { bail!("no array: {text}") };
    ensure!(kind == ".b8", "an array of {kind}");
    let (name, bytes) = name.split_once('[').context("an array without a size")?;
    let bytes = match bytes.trim_end_matches(']') {
        "" => None,
        bytes => Some(bytes.parse().context("an array's size")?),
    };
    Ok((name.to_string(), align.parse().context("an alignment")?, bytes))
}

fn without_comments(text: &str) -> String {
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// The place of the brace that closes the one before the text.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 1;
    text.char_indices().find_map(|(position, char)| {
        depth += match char {
            '{' => 1,
            '}' => -1,
            _ => 0,
        };
        (depth == 0).then_some(position)
    })
}

/// What names of a kernel mean.
#[derive(Default)]
pub(crate) struct Names {
    registers: BTreeMap<String, Register>,
    /// Addresses of shared and local memory.
    pub(crate) memory: BTreeMap<String, u64>,
    /// Numbers of parameters.
    pub(crate) parameters: BTreeMap<String, usize>,
}

impl Names {
    /// The register of a name.
    pub(crate) fn register(&mut self, name: &str) -> Result<Register> {
        let plain = name.strip_prefix('%').unwrap_or(name);
        let legal = plain.chars().all(|char| char.is_ascii_alphanumeric() || char == '_');
        ensure!(legal && !plain.is_empty(), "'{name}' is no register");
        let next = self.registers.len() as Register;
        Ok(*self.registers.entry(plain.to_string()).or_insert(next))
    }
}

fn entry(
    name: &str,
    parameters: &str,
    head: &str,
    body: &str,
    shared: &SharedNames,
) -> Result<Entry> {
    let mut entry = Entry { name: name.to_string(), ..Entry::default() };
    let mut names = Names::default();
    for parameter in parameters.split(',').map(str::trim).filter(|text| !text.is_empty()) {
        let parameter_name =
            parameter.split_whitespace().last().context("a parameter has no name")?;
        ensure!(parameter.contains(".u64") || parameter.contains(".b64"), "parameter {parameter}");
        names.parameters.insert(parameter_name.to_string(), entry.parameters.len());
        entry.parameters.push((parameter_name.to_string(), 8));
    }
    entry.lanes = required_lanes(head)?;
    // Shared memory outside of kernels belongs to the kernel that its name begins with.
    let mut shared: SharedNames = shared
        .iter()
        .filter(|(name, _)| body.contains(name.as_str()))
        .map(|(a, b)| (a.clone(), *b))
        .collect();
    let statements = statements(body);
    for (_, statement) in &statements {
        if let Some(declaration) = statement.strip_prefix(".shared") {
            let (name, align, bytes) = array(declaration)?;
            shared.insert(name, (align, bytes));
        } else if let Some(declaration) = statement.strip_prefix(".local") {
            let (name, _, bytes) = array(declaration)?;
            ensure!(entry.local == 0, "two arrays of local memory");
            names.memory.insert(name, 0);
            entry.local = bytes.context("local memory without a size")?;
        }
    }
    lay_out(shared, &mut entry, &mut names);
    let labels = labels(&statements);
    for (label, statement) in &statements {
        if statement.starts_with('.') || statement.is_empty() {
            continue;
        }
        let (guard, rest) = guard(statement, &mut names)?;
        let operation = decode(rest, &mut names, &labels)
            .with_context(|| format!("instruction '{statement}'"))?;
        entry.code.push(Instruction {
            guard,
            operation,
            labelled: !label.is_empty(),
            sums: Vec::new(),
            text: statement.clone(),
        });
    }
    note_sums(&mut entry, &names);
    let ends = matches!(
        entry.code.last(),
        Some(Instruction {
            guard: None,
            operation: Operation::Return | Operation::Branch { .. },
            ..
        })
    );
    ensure!(ends, "the kernel does not end");
    entry.registers = names.registers.len();
    Ok(entry)
}

/// Gives a kernel's shared memory its addresses: what the launch says the size of lies behind everything else.
fn lay_out(shared: SharedNames, entry: &mut Entry, names: &mut Names) {
    for (name, (align, bytes)) in &shared {
        let Some(bytes) = bytes else { continue };
        let start = entry.shared.next_multiple_of(*align);
        names.memory.insert(name.clone(), start as u64);
        entry.shared = start + bytes;
    }
    for (name, (align, bytes)) in shared {
        if bytes.is_none() {
            let start = entry.shared.next_multiple_of(align);
            names.memory.insert(name, start as u64);
            entry.requested = Some(start);
        }
    }
}

/// Notes of each instruction which registers of warpgroups' sums it names.
fn note_sums(entry: &mut Entry, names: &Names) {
    let products = entry.code.iter().filter_map(|instruction| match &instruction.operation {
        Operation::MultiplyWarpgroup(product) => Some(product.sums.iter().copied()),
        _ => None,
    });
    let sums: BTreeSet<Register> = products.flatten().collect();
    let others = entry.code.iter_mut().filter(|instruction| {
        !sums.is_empty() && !matches!(instruction.operation, Operation::MultiplyWarpgroup(_))
    });
    for instruction in others {
        let words =
            instruction.text.split(|char: char| !char.is_ascii_alphanumeric() && char != '_');
        let named = words.filter_map(|word| names.registers.get(word).copied());
        instruction.sums = named.filter(|register| sums.contains(register)).collect();
    }
}

/// `.reqntid 16, 1, 1`
fn required_lanes(head: &str) -> Result<Option<[usize; 3]>> {
    let Some((_, required)) = head.split_once(".reqntid") else { return Ok(None) };
    let numbers: Vec<usize> = required
        .split('.')
        .next()
        .unwrap_or_default()
        .split(',')
        .map(|number| number.trim().parse().context(".reqntid"))
        .collect::<Result<_>>()?;
    let mut lanes = [1; 3];
    ensure!(numbers.len() <= 3, ".reqntid has {} numbers", numbers.len());
    lanes[..numbers.len()].copy_from_slice(&numbers);
    Ok(Some(lanes))
}

/// The statements of a body, each with the labels in front of it. Braces that only bound the names of registers are
/// taken away.
fn statements(body: &str) -> Vec<(Vec<String>, String)> {
    let (mut statements, mut labels) = (Vec::new(), Vec::new());
    let (mut current, mut nested) = (String::new(), 0);
    for char in body.chars() {
        match char {
            ';' => {
                statements.push((std::mem::take(&mut labels), current.trim().to_string()));
                current.clear();
            }
            ':' if current.trim().starts_with('$') => {
                labels.push(current.trim().to_string());
                current.clear();
            }
            '{' if current.trim().is_empty() => {}
            '}' if current.trim().is_empty() && nested == 0 => {}
            '{' => {
                nested += 1;
                current.push(char);
            }
            '}' => {
                nested -= 1;
                current.push(char);
            }
            _ => current.push(if char.is_whitespace() { ' ' } else { char }),
        }
    }
    // A label at the end belongs to the end, where every lane returns before.
    statements.push((labels, String::new()));
    let directive =
        |statement: &str| statement.starts_with(".reg ") || statement.starts_with(".loc ");
    statements.retain(|(labels, statement)| {
        !labels.is_empty() || !statement.is_empty() && !directive(statement)
    });
    statements
}

/// The number of the instruction behind each label.
fn labels(statements: &[(Vec<String>, String)]) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    let mut number = 0;
    for (labels, statement) in statements {
        found.extend(labels.iter().map(|label| (label.clone(), number)));
        number += usize::from(!statement.starts_with('.') && !statement.is_empty());
    }
    found
}

/// `@%p1` or `@!%p1` in front of an instruction, and the instruction.
fn guard<'a>(statement: &'a str, names: &mut Names) -> Result<(Option<(Register, bool)>, &'a str)> {
    let Some(guarded) = statement.strip_prefix('@') else { return Ok((None, statement)) };
    let (predicate, rest) = guarded.split_once(' ').context("a guard without an instruction")?;
    let (name, wanted) = match predicate.strip_prefix('!') {
        Some(name) => (name, false),
        None => (predicate, true),
    };
    Ok((Some((names.register(name)?, wanted)), rest.trim_start()))
}
