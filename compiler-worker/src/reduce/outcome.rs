//! How compiling a candidate ended, and when two endings are alike.

use std::fmt;
use std::process::ExitStatus;
use std::sync::LazyLock;

use hone_artifact::exit_code::Reason;
use regex::Regex;

use crate::show::stage_of;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With this exit code; 0 is success, 101 a panic.
    Code(u8),
    /// By this signal.
    Signal(i32),
    /// It was ended because it ran for longer than allowed.
    TimeLimit,
}

impl End {
    /// Of a process that ended by itself.
    pub fn of(status: ExitStatus) -> Self {
        use std::os::unix::process::ExitStatusExt;
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(u8::try_from(code).unwrap_or(u8::MAX)),
            (None, signal) => Self::Signal(signal.unwrap_or_default()),
        }
    }

    /// Whether it is the compiler's or the model's matter: not success, and not a fault of the command line, of files
    /// or of the machine, which a smaller model would have too.
    pub fn is_of_model(self) -> bool {
        let Self::Code(code) = self else { return true };
        match Reason::from_code(code) {
            None => true,
            Some(reason) => matches!(
                reason,
                Reason::InternalError
                    | Reason::InvalidModel
                    | Reason::UnsupportedOperator
                    | Reason::InvalidShape
                    | Reason::NotSupportedYet
                    | Reason::InvalidArtifact
                    | Reason::InvalidInput
                    | Reason::TooLarge
                    | Reason::CorrectnessBreach
                    | Reason::NonFiniteOutput
                    | Reason::DeviceLost
                    | Reason::OutOfMemory
                    | Reason::CompilerError
                    | Reason::VerifierError
                    | Reason::WrongCode
            ),
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(PANIC) => f.write_str("a panic"),
            Self::Code(code) => match Reason::from_code(*code) {
                Some(reason) => write!(f, "{reason}, exit code {code}"),
                None => write!(f, "exit code {code}"),
            },
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::TimeLimit => f.write_str("the time limit"),
        }
    }
}

/// The exit code of a Rust program that panics.
const PANIC: u8 = 101;

/// How compiling a candidate ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The exit code or what it was ended by.
    pub end: End,
    /// What it said of it: the error message with its causes, of a panic the place in the source and the message, of
    /// other ends all that it said and the stage that it was in.
    pub message: String,
}

/// What is equal of outcomes that are alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Likeness {
    end: End,
    message: String,
}

impl Outcome {
    /// Of how a process ended and what it wrote to standard error.
    pub fn new(end: End, stderr: &str) -> Self {
        Self { end, message: message(end, stderr) }
    }

    /// What others that are alike have in common with it: the end, and the message without names, files and numbers. The
    /// place of a panic in the source counts as it is.
    pub fn likeness(&self) -> Likeness {
        let message = match (self.end, self.message.split_once('\n')) {
            (End::Code(PANIC), Some((location, message))) => {
                format!("{location}\n{}", without_particulars(message))
            }
            _ => without_particulars(&self.message),
        };
        Likeness { end: self.end, message }
    }
}

/// The part of standard error that says why the process ended.
fn message(end: End, stderr: &str) -> String {
    let error = stderr.rfind("\nerror[").map(|index| index + 1);
    let error = error.or_else(|| stderr.starts_with("error[").then_some(0));
    if let (End::Code(_), Some(begin)) = (end, error) {
        let error = &stderr[begin..];
        return error.split("\nor on the command line:").next().unwrap_or(error).trim().to_owned();
    }
    if let (End::Code(PANIC), Some(begin)) = (end, stderr.find("panicked at ")) {
        let panic = &stderr[begin..];
        return panic.split("\nnote: ").next().unwrap_or(panic).trim().to_owned();
    }
    let stage = stderr.lines().rev().find_map(stage_of);
    let others =
        stderr.lines().filter(|line| stage_of(line).is_none() && !line.starts_with("note: "));
    let stage = stage.map(|stage| format!("in stage {stage}"));
    others.map(str::to_owned).chain(stage).collect::<Vec<_>>().join("\n").trim().to_owned()
}

/// What is taken out of messages, and what stands for it, in this order.
static PARTICULARS: LazyLock<Vec<(Regex, &'static str)>> = LazyLock::new(|| {
    let rules = [
        // Names of nodes that stand without quotes.
        (r"step \d+, of [^\n]*?: ", "step #: "),
        (r"step \d+ \([^\n]*?\): ", "step #: "),
        // Names, values, files in quotes; an apostrophe follows a letter.
        (r"\B'.*?'\B", "''"),
        (r#""[^"\n]*""#, "''"),
        // Files without quotes.
        (r"(^|\s)[^\s:]*/[^\s:]*", "$1"),
        (r"\b0x[0-9a-f]+\b", "#"),
        (r"[-+]?\b\d[\d,.]*(e[-+]?\d+)?\b|[-+]?\b(NaN|inf)\b", "#"),
        // Shapes, of whatever rank.
        (r"\[[^\[\]\n]*\]", "[]"),
        (r"#([, ]+#)+", "#"),
        (r"''(, '')+", "''"),
        (r"\band # more( nodes)?\b", ""),
    ];
    let compiled = rules.into_iter().map(|(rule, with)| Some((Regex::new(rule).ok()?, with)));
    compiled.flatten().collect()
});

/// A message without names, files and numbers; of equal lines one is left.
fn without_particulars(message: &str) -> String {
    let plain = PARTICULARS
        .iter()
        .fold(message.to_owned(), |text, (rule, with)| rule.replace_all(&text, *with).into_owned());
    let mut lines: Vec<&str> = Vec::new();
    for line in plain.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    // Nodes are told in their order, which their removal changes.
    if let Some(others) = lines.get_mut(1..) {
        others.sort_unstable();
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alike(end: End, one: &str, other: &str) -> bool {
        Outcome::new(end, one).likeness() == Outcome::new(end, other).likeness()
    }

    #[test]
    fn names_and_numbers_do_not_count() {
        let node = |name: &str, shapes: &str| {
            format!(
                "host: parse\nerror[InvalidShape]: model '{name}.onnx' cannot be compiled: node '{name}' (Add, opset 17): its inputs do not fit: {shapes} do not broadcast\n"
            )
        };
        let (one, other) =
            (node("sum", "f32[1, 8] and f32[3, 5]"), node("a/b", "f32[] and f32[7]"));
        assert!(alike(End::Code(13), &one, &other));
        assert!(!alike(End::Code(13), &one, &one.replace("Add", "Mul")));
        assert!(!alike(End::Code(13), &one, &other.replace("f32", "i64")));
        let wrong = |count: usize, names: &str| {
            format!(
                "error[WrongCode]: model 'x' compiles to wrong code: {count} of 20 kernels compute what the reference does not; step 3, of {names}: 7 of 64 elements of 'y' differ, and rounding does not explain element 5: -1.5e-3 where the reference gives NaN, and may differ by 1.2e-5; please report this"
            )
        };
        assert!(alike(End::Code(52), &wrong(3, "conv_1, relu_2"), &wrong(1, "/layer.0/Conv")));
        assert!(!alike(End::Code(52), &wrong(3, "x"), "error[WrongCode]: weight 'w' differs"));
    }

    #[test]
    fn the_kinds_of_unsupported_operators_count_and_not_how_many() {
        let list = |nodes: &[(&str, &str)]| {
            let lines =
                nodes.iter().map(|(name, kind)| format!("\n  node '{name}' ({kind}, opset 17)"));
            format!(
                "error[UnsupportedOperator]: unsupported operators:{}\nexport the model without them",
                lines.collect::<String>()
            )
        };
        let all = list(&[("a", "Foo"), ("b", "Bar"), ("c", "Foo")]);
        assert!(alike(End::Code(12), &all, &list(&[("y", "Bar"), ("z", "Foo")])));
        assert!(!alike(End::Code(12), &all, &list(&[("a", "Foo")])));
    }

    #[test]
    fn a_panic_is_known_by_its_place() {
        let panic = |line: usize, number: usize| {
            format!(
                "host: compile\n\nthread 'main' (17) panicked at compiler/lower/src/x.rs:{line}:5:\nindex out of bounds: the len is {number} but the index is 8\nnote: run with `RUST_BACKTRACE=1`\n"
            )
        };
        assert!(alike(End::Code(101), &panic(10, 3), &panic(10, 4)));
        assert!(!alike(End::Code(101), &panic(10, 3), &panic(11, 3)));
    }

    #[test]
    fn other_ends_are_known_by_what_was_said_and_the_stage() {
        let crash = End::Signal(6);
        let (one, other) =
            ("host: parse\nhost: compile\nLLVM ERROR: x 5\n", "a: compile\nLLVM ERROR: x 7");
        assert!(alike(crash, one, other));
        assert!(!alike(crash, one, "host: verify\nLLVM ERROR: x 5\n"));
        assert!(!alike(End::TimeLimit, "host: verify\n", "host: compile\n"));
        let (abort, segment) = (Outcome::new(crash, one), Outcome::new(End::Signal(11), one));
        assert_ne!(abort.likeness(), segment.likeness());
    }

    #[test]
    fn what_a_smaller_model_would_have_too_is_no_failure_of_the_model() {
        for code in [1, 11, 12, 13, 31, 50, 52, 101, 134] {
            assert!(End::Code(code).is_of_model(), "{code}");
        }
        for code in [0, 2, 10, 16, 19, 20, 40, 42, 130, 143] {
            assert!(!End::Code(code).is_of_model(), "{code}");
        }
        assert!(End::Signal(11).is_of_model() && End::TimeLimit.is_of_model());
    }

    #[test]
    fn every_rule_is_a_regular_expression() {
        assert_eq!(PARTICULARS.len(), 11);
    }
}
