//! What a language for devices writes its own way.

use hone_tensor::{BinaryOp, Level, Scope, UnaryOp};
use hone_types::DataType;

/// An element of a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Element<'a> {
    /// The buffer's name in the text.
    pub buffer: &'a str,
    /// The type of its elements.
    pub dtype: DataType,
    /// Where it lies.
    pub scope: Scope,
    /// Whether the kernel writes the buffer.
    pub written: bool,
    /// The element's number, as text.
    pub index: &'a str,
}

/// A language. Operands are texts that may stand in any expression, as is what comes out; where a language has
/// no form for something it gives `None`.
pub trait Dialect {
    /// Its name, for messages.
    fn name(&self) -> &'static str;

    /// Whether buffers may hold such elements.
    fn stores(&self, dtype: DataType) -> bool;

    /// The type in which indices are counted: `i64`, or `i32` where the language has no 64 bits of its own. Index
    /// expressions that are known to fit it are computed in it.
    fn index_type(&self) -> DataType {
        DataType::I64
    }

    /// How many buffers in global memory a kernel may have.
    fn most_buffers(&self) -> usize {
        usize::MAX
    }

    /// The name by which a kernel knows a buffer or a counter.
    fn variable(&self, kernel: &str, name: &str, scope: Scope) -> String {
        let _ = (kernel, scope);
        name.to_string()
    }

    /// Whether a kernel's shared buffers are declared where its parameters are.
    fn shares_as_parameters(&self) -> bool {
        false
    }

    /// The declaration of a variable that holds an index.
    fn index(&self, name: &str, value: &str) -> String;

    /// The declaration of a variable that holds a value of a type, as expressions compute it.
    fn value(&self, name: &str, dtype: DataType, value: &str) -> String;

    /// Whether a text is a constant expression, which the language's compiler computes and may refuse.
    fn is_constant(&self, text: &str) -> bool {
        let _ = text;
        false
    }

    /// The number of the block or lane along a dimension (0 for `x`).
    fn number(&self, level: Level, dimension: usize) -> String;

    /// The parameter, of that number, by which a kernel gets a buffer in global memory.
    fn parameter(&self, number: usize, name: &str, dtype: DataType, written: bool) -> String;

    /// The parameter, of that number, by which a kernel gets a counter.
    fn counter(&self, number: usize, name: &str) -> String;

    /// The declaration of a buffer that a kernel has itself.
    fn buffer(&self, name: &str, dtype: DataType, scope: Scope, elements: usize) -> String;

    /// A kernel's first line, up to the brace that opens its body.
    fn kernel(&self, name: &str, parameters: &[String], items: [usize; 3]) -> String;

    /// The head of a loop from 0, up to the brace that opens its body.
    fn counted(&self, name: &str, extent: &str, unrolled: bool) -> String;

    /// Lanes of a block wait for each other.
    fn sync(&self) -> &'static str;

    /// An integer constant, of the type of indices or of `i64`.
    fn integer(&self, value: i64, dtype: DataType) -> String;

    /// A constant of a type.
    fn constant(&self, value: f64, dtype: DataType) -> Option<String>;

    /// The value of an element.
    fn load(&self, element: Element<'_>) -> String;

    /// The statement that stores a value of the element's type.
    fn store(&self, element: Element<'_>, value: &str) -> String;

    /// A statement that runs where a condition is met.
    fn guarded(&self, condition: &str, statement: &str) -> String {
        format!("if ({condition}) {statement}")
    }

    /// An operation on one value of a type.
    fn unary(&self, op: UnaryOp, dtype: DataType, operand: &str) -> Option<String>;

    /// An operation on two values of a type; `natural` where both are known not to be negative, and the right one
    /// to be positive.
    fn binary(
        &self,
        op: BinaryOp,
        dtype: DataType,
        operands: (&str, &str),
        natural: bool,
    ) -> Option<String>;

    /// A value of another type.
    fn cast(&self, from: DataType, to: DataType, operand: &str) -> Option<String>;

    /// One of two values.
    fn select(&self, condition: &str, then: &str, otherwise: &str) -> String;

    /// Whether a choice evaluates the chosen value alone, because reading out of bounds has an effect.
    fn chooses_lazily(&self) -> bool;

    /// What has to stand in front of a text.
    fn prelude(&self, text: &str) -> String;
}
