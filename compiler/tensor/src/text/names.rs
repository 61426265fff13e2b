//! Words of the text form, shared by printer and parser.

use crate::{BinaryOp, Combiner, Level, LoopKind, Scope, UnaryOp};

pub(super) const UNARY: [(UnaryOp, &str); 28] = [
    (UnaryOp::Negate, "neg"),
    (UnaryOp::Abs, "abs"),
    (UnaryOp::Exp, "exp"),
    (UnaryOp::Log, "log"),
    (UnaryOp::Sqrt, "sqrt"),
    (UnaryOp::Tanh, "tanh"),
    (UnaryOp::Erf, "erf"),
    (UnaryOp::Sigmoid, "sigmoid"),
    (UnaryOp::Sin, "sin"),
    (UnaryOp::Cos, "cos"),
    (UnaryOp::Tan, "tan"),
    (UnaryOp::Asin, "asin"),
    (UnaryOp::Acos, "acos"),
    (UnaryOp::Atan, "atan"),
    (UnaryOp::Sinh, "sinh"),
    (UnaryOp::Cosh, "cosh"),
    (UnaryOp::Asinh, "asinh"),
    (UnaryOp::Acosh, "acosh"),
    (UnaryOp::Atanh, "atanh"),
    (UnaryOp::Floor, "floor"),
    (UnaryOp::Ceil, "ceil"),
    (UnaryOp::Round, "round"),
    (UnaryOp::Truncate, "truncate"),
    (UnaryOp::Not, "not"),
    (UnaryOp::IsNan, "is_nan"),
    (UnaryOp::IsInfinite, "is_infinite"),
    // Other spellings that only the parser takes.
    (UnaryOp::Negate, "negate"),
    (UnaryOp::Not, "complement"),
];

/// Operations written as calls.
pub(super) const CALLS: [(BinaryOp, &str); 5] = [
    (BinaryOp::Minimum, "min"),
    (BinaryOp::Maximum, "max"),
    (BinaryOp::Power, "pow"),
    (BinaryOp::Remainder, "rem"),
    (BinaryOp::Xor, "xor"),
];

/// Operations written between their operands, with how strongly they bind.
pub(super) const INFIX: [(BinaryOp, &str, u8); 13] = [
    (BinaryOp::Or, "||", 1),
    (BinaryOp::And, "&&", 2),
    (BinaryOp::Equal, "==", 3),
    (BinaryOp::LessEqual, "<=", 3),
    (BinaryOp::ShiftLeft, "<<", 4),
    (BinaryOp::Less, "<", 3),
    (BinaryOp::ShiftRight, ">>", 4),
    (BinaryOp::Add, "+", 5),
    (BinaryOp::Subtract, "-", 5),
    (BinaryOp::Multiply, "*", 6),
    (BinaryOp::FloorDivide, "//", 6),
    (BinaryOp::Divide, "/", 6),
    (BinaryOp::Modulo, "%", 6),
];

pub(super) const COMBINERS: [(Combiner, &str); 4] = [
    (Combiner::Sum, "sum"),
    (Combiner::Product, "product"),
    (Combiner::Maximum, "maximum"),
    (Combiner::Minimum, "minimum"),
];

/// Serial loops carry no word, bound ones that of their axis, tensorized ones the intrinsic's name.
pub(super) const KINDS: [(LoopKind, &str); 3] = [
    (LoopKind::Parallel, "parallel"),
    (LoopKind::Unrolled, "unrolled"),
    (LoopKind::Vectorized, "vectorized"),
];

/// Global buffers carry no word.
pub(super) const SCOPES: [(Scope, &str); 3] =
    [(Scope::Shared, "shared"), (Scope::Scratch, "scratch"), (Scope::Register, "register")];

pub(super) const LEVELS: [(Level, &str); 3] =
    [(Level::Grid, "grid"), (Level::Block, "block"), (Level::Lane, "lane")];

/// The word of a loop's kind; empty for a serial one.
pub(super) fn kind_word(kind: LoopKind) -> &'static str {
    match kind {
        LoopKind::Bound(axis) => axis.name(),
        LoopKind::Tensorized(intrinsic) => intrinsic.name(),
        kind => word(&KINDS, &kind),
    }
}

/// The word of an entry; empty where it has none.
pub(super) fn word<T: PartialEq>(words: &[(T, &'static str)], entry: &T) -> &'static str {
    words.iter().find(|(own, _)| own == entry).map_or("", |(_, word)| word)
}

/// The entry of a word.
pub(super) fn entry<T: Copy>(words: &[(T, &'static str)], word: &str) -> Option<T> {
    words.iter().find(|(_, own)| *own == word).map(|(entry, _)| *entry)
}
