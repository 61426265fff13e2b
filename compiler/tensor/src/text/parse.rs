//! Text to programs.

use super::names::{CALLS, COMBINERS, INFIX, KINDS, LEVELS, SCOPES, UNARY, entry};
use crate::{
    Axis, Block, BlockBody, BlockId, Buffer, BufferId, Expr, Intrinsic, Iterator, IteratorKind,
    Limit, Loop, LoopKind, Prefetch, Program, Realize, Role, Scope, Statement, Var, VarId,
};
use hone_types::{DataType, Id, Table};
use std::collections::BTreeMap;
use thiserror::Error;

/// Nesting deeper than this is refused, so that no text exhausts the stack.
const DEPTH: usize = 200;

/// Why a text is no program.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("line {line}, column {column}: {reason}")]
pub struct ParseError {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub reason: String,
}

/// Reads the text form of a program. The program is not verified.
pub fn parse(text: &str) -> Result<Program, ParseError> {
    let mut parser = Parser {
        text,
        place: 0,
        depth: 0,
        vars: BTreeMap::new(),
        buffers: BTreeMap::new(),
        blocks: BTreeMap::new(),
    };
    parser.program()
}

struct Parser<'a> {
    text: &'a str,
    place: usize,
    depth: usize,
    vars: BTreeMap<usize, Var>,
    buffers: BTreeMap<usize, Buffer>,
    blocks: BTreeMap<usize, Block>,
}

type Parsed<T> = Result<T, ParseError>;

impl<'a> Parser<'a> {
    fn error<T>(&self, reason: impl Into<String>) -> Parsed<T> {
        let before = &self.text[..self.place];
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|letter| *letter != '\n').count() + 1;
        Err(ParseError { line, column, reason: reason.into() })
    }

    fn rest(&self) -> &'a str {
        &self.text[self.place..]
    }

    fn skip_space(&mut self) {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start();
            self.place += rest.len() - trimmed.len();
            if !trimmed.starts_with('#') {
                return;
            }
            self.place += trimmed.find('\n').unwrap_or(trimmed.len());
        }
    }

    /// Takes a sign or a whole word.
    fn accept(&mut self, token: &str) -> bool {
        self.skip_space();
        let Some(behind) = self.rest().strip_prefix(token) else { return false };
        let word = |letter: char| letter.is_alphanumeric() || letter == '_';
        if token.ends_with(word) && behind.starts_with(word) {
            return false;
        }
        self.place += token.len();
        true
    }

    fn expect(&mut self, token: &str) -> Parsed<()> {
        match self.accept(token) {
            true => Ok(()),
            false => self.error(format!("expected '{token}'")),
        }
    }

    fn peek_word(&mut self) -> &'a str {
        self.skip_space();
        let rest = self.rest();
        let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
        &rest[..end.unwrap_or(rest.len())]
    }

    fn word(&mut self) -> Parsed<&'a str> {
        match self.peek_word() {
            "" => self.error("expected a word"),
            word => {
                self.place += word.len();
                Ok(word)
            }
        }
    }

    fn number(&mut self) -> Parsed<usize> {
        let word = self.peek_word();
        match word.parse() {
            Ok(number) => {
                self.place += word.len();
                Ok(number)
            }
            Err(_) => self.error("expected a whole number"),
        }
    }

    fn handle<T: Id>(&mut self, prefix: &str) -> Parsed<T> {
        let word = self.peek_word();
        let digits = word.strip_prefix(prefix).and_then(|digits| digits.parse::<u32>().ok());
        match digits {
            Some(index) => {
                self.place += word.len();
                Ok(T::from_index(index as usize))
            }
            None => self.error(format!("expected a handle such as '{prefix}0'")),
        }
    }

    fn name(&mut self) -> Parsed<String> {
        self.expect("\"")?;
        let mut name = String::new();
        let mut letters = self.rest().char_indices();
        while let Some((place, letter)) = letters.next() {
            match letter {
                '"' => {
                    self.place += place + 1;
                    return Ok(name);
                }
                '\\' => name.extend(letters.next().map(|(_, letter)| letter)),
                _ => name.push(letter),
            }
        }
        self.error("the name does not end")
    }

    fn program(&mut self) -> Parsed<Program> {
        while self.buffer()? {}
        let (mut body, mut prefetches, mut limits) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            self.skip_space();
            if self.rest().is_empty() {
                break;
            }
            if self.accept("unused") {
                self.unused()?;
            } else if self.accept("prefetch") {
                prefetches.push(self.prefetch()?);
            } else if self.accept("limit") {
                limits.push(self.limit()?);
            } else if self.accept("removed") {
                self.block()?;
            } else {
                body.push(self.statement()?);
            }
        }
        let program = Program {
            vars: self.table("variable v", |own| std::mem::take(&mut own.vars))?,
            buffers: self.table("buffer b", |own| std::mem::take(&mut own.buffers))?,
            blocks: self.table("block", |own| std::mem::take(&mut own.blocks))?,
            body,
            prefetches,
            limits,
        };
        let known = |own: &Prefetch| {
            program.blocks.get(own.block).is_some()
                && program.buffers.get(own.buffer).is_some()
                && program.vars.get(own.target).is_some()
        };
        if !program.prefetches.iter().all(known) {
            return self.error("a prefetch names what is never defined");
        }
        let known = |own: &Limit| {
            let has_size = program.buffers.get(own.size).is_some();
            has_size && program.vars.get(own.target).is_some()
        };
        match program.limits.iter().all(known) {
            true => Ok(program),
            false => self.error("a limit names what is never defined"),
        }
    }

    fn limit(&mut self) -> Parsed<Limit> {
        let target = self.handle("v")?;
        self.expect("to")?;
        let first = self.expr(0)?;
        self.expect("below")?;
        Ok(Limit { target, first, size: self.handle("b")? })
    }

    fn prefetch(&mut self) -> Parsed<Prefetch> {
        let buffer = self.handle("b")?;
        self.expect("of")?;
        let block = self.handle("block")?;
        self.expect("ahead")?;
        self.expect("of")?;
        Ok(Prefetch { block, buffer, target: self.handle("v")? })
    }

    fn table<I: Id, T>(
        &mut self,
        what: &str,
        take: impl FnOnce(&mut Self) -> BTreeMap<usize, T>,
    ) -> Parsed<Table<I, T>> {
        let mut table = Table::new();
        for (index, entry) in take(self) {
            if index != table.len() {
                return self.error(format!("{what}{} is never defined", table.len()));
            }
            table.push(entry);
        }
        Ok(table)
    }

    fn buffer(&mut self) -> Parsed<bool> {
        let role = if self.accept("input") {
            Role::Input(self.number()?)
        } else if self.accept("output") {
            Role::Output(self.number()?)
        } else if self.accept("temporary") {
            Role::Temporary
        } else {
            return Ok(false);
        };
        let id: BufferId = self.handle("b")?;
        let name = self.name()?;
        self.expect(":")?;
        let dtype = self.dtype()?;
        self.expect("[")?;
        let mut shape = Vec::new();
        while !self.accept("]") {
            if !shape.is_empty() {
                self.expect(",")?;
            }
            shape.push(self.number()?);
        }
        let scope = entry(&SCOPES, self.peek_word());
        if scope.is_some() {
            self.word()?;
        }
        let scope = scope.unwrap_or(Scope::Global);
        let buffer = Buffer { name, dtype, shape, role, scope };
        match self.buffers.insert(id.index(), buffer) {
            Some(_) => self.error(format!("{id} is defined twice")),
            None => Ok(true),
        }
    }

    fn dtype(&mut self) -> Parsed<DataType> {
        let word = self.peek_word();
        match word.parse() {
            Ok(dtype) => {
                self.place += word.len();
                Ok(dtype)
            }
            Err(reason) => self.error(reason),
        }
    }

    fn bind(&mut self) -> Parsed<VarId> {
        let var: VarId = self.handle("v")?;
        let name = self.name()?;
        match self.vars.insert(var.index(), Var { name }) {
            Some(_) => self.error(format!("{var} is bound twice")),
            None => Ok(var),
        }
    }

    fn unused(&mut self) -> Parsed<()> {
        loop {
            self.bind()?;
            if !self.accept(",") {
                return Ok(());
            }
        }
    }

    /// The kind that stands behind a loop's extent.
    fn kind(&mut self) -> Parsed<LoopKind> {
        if let Some((axis, _)) = Axis::ALL.iter().find(|(_, name)| self.accept(name)) {
            return Ok(LoopKind::Bound(*axis));
        }
        let word = self.peek_word();
        let kind = entry(&KINDS, word).or_else(|| Intrinsic::named(word).map(LoopKind::Tensorized));
        if kind.is_some() {
            self.word()?;
        }
        Ok(kind.unwrap_or(LoopKind::Serial))
    }

    fn statement(&mut self) -> Parsed<Statement> {
        if self.accept("sync") {
            return match entry(&LEVELS, self.word()?) {
                Some(level) => Ok(Statement::Sync(level)),
                None => self.error("expected 'grid', 'block' or 'lane' behind 'sync'"),
            };
        }
        if !self.accept("for") {
            return self.block().map(Statement::Realize);
        }
        self.deeper()?;
        let var = self.bind()?;
        self.expect("in")?;
        self.expect("0..")?;
        let extent = self.expr(0)?;
        let kind = self.kind()?;
        self.expect("{")?;
        let mut body = Vec::new();
        while !self.accept("}") {
            body.push(self.statement()?);
        }
        self.depth -= 1;
        Ok(Statement::Loop(Box::new(Loop { var, extent, kind, body })))
    }

    fn deeper(&mut self) -> Parsed<()> {
        self.depth += 1;
        match self.depth > DEPTH {
            true => self.error("it is nested too deeply"),
            false => Ok(()),
        }
    }

    fn block(&mut self) -> Parsed<Realize> {
        let id: BlockId = self.handle("block")?;
        let name = self.name()?;
        self.expect("(")?;
        let (mut iterators, mut bindings) = (Vec::new(), Vec::new());
        while !self.accept(")") {
            if !iterators.is_empty() {
                self.expect(",")?;
            }
            let reduce = self.accept("reduce");
            let kind = if reduce { IteratorKind::Reduction } else { IteratorKind::Spatial };
            let var = self.bind()?;
            self.expect("<")?;
            iterators.push(Iterator { var, extent: self.number()?, kind });
            if self.accept("=") {
                bindings.push(self.expr(0)?);
            }
        }
        let predicate = if self.accept("if") { Some(self.expr(0)?) } else { None };
        self.expect("{")?;
        let buffer: BufferId = self.handle("b")?;
        self.expect("[")?;
        let indices = self.list("]")?;
        let body = self.body()?;
        self.expect("}")?;
        let block = Block { name, iterators, buffer, indices, body };
        match self.blocks.insert(id.index(), block) {
            Some(_) => self.error(format!("{id} stands twice")),
            None => Ok(Realize { block: id, bindings, predicate }),
        }
    }

    fn body(&mut self) -> Parsed<BlockBody> {
        if self.accept("=") {
            return self.expr(0).map(BlockBody::Map);
        }
        let Some(combiner) = entry(&COMBINERS, self.peek_word()) else {
            return self.error("expected '=' or a reduction such as 'sum='");
        };
        self.word()?;
        self.expect("=")?;
        let value = self.expr(0)?;
        let initial = if self.accept("from") { Some(self.expr(0)?) } else { None };
        Ok(BlockBody::Reduce { combiner, initial, value })
    }

    /// Expressions up to `close`.
    fn list(&mut self, close: &str) -> Parsed<Vec<Expr>> {
        let mut list = Vec::new();
        while !self.accept(close) {
            if !list.is_empty() {
                self.expect(",")?;
            }
            list.push(self.expr(0)?);
        }
        Ok(list)
    }

    /// An expression of operations that bind at least as strongly as `level`.
    fn expr(&mut self, level: u8) -> Parsed<Expr> {
        self.deeper()?;
        let mut left = self.atom()?;
        loop {
            self.skip_space();
            let found =
                INFIX.iter().find(|(_, sign, own)| *own >= level && self.rest().starts_with(sign));
            let Some((op, sign, own)) = found else { break };
            self.place += sign.len();
            left = left.binary(*op, self.expr(own + 1)?);
        }
        self.depth -= 1;
        Ok(left)
    }

    fn atom(&mut self) -> Parsed<Expr> {
        if self.accept("(") {
            let inside = self.expr(0)?;
            self.expect(")")?;
            return Ok(inside);
        }
        let rest = self.rest();
        if rest.starts_with(|letter: char| letter.is_ascii_digit() || letter == '-') {
            return self.literal();
        }
        let word = self.peek_word();
        if matches!(word, "inf" | "NaN") {
            return self.literal();
        }
        if matches!(word, "true" | "false") {
            self.word()?;
            return Ok(Expr::Constant(f64::from(u8::from(word == "true")), DataType::Bool));
        }
        let number = |prefix: &str| {
            word.strip_prefix(prefix).is_some_and(|digits| digits.parse::<u32>().is_ok())
        };
        if number("v") {
            return self.handle("v").map(Expr::Var);
        }
        if number("b") {
            let buffer = self.handle("b")?;
            self.expect("[")?;
            return Ok(Expr::Load(buffer, self.list("]")?));
        }
        self.call()
    }

    fn call(&mut self) -> Parsed<Expr> {
        self.skip_space();
        let start = self.place;
        let word = self.word()?;
        self.expect("(")?;
        let mut arguments = self.list(")")?.into_iter();
        let arguments = (arguments.next(), arguments.next(), arguments.next(), arguments.next());
        match arguments {
            (Some(only), None, ..) => {
                if let Some(op) = entry(&UNARY, word) {
                    return Ok(only.unary(op));
                }
                if let Ok(dtype) = word.parse() {
                    return Ok(only.cast(dtype));
                }
            }
            (Some(left), Some(right), None, _) => {
                if let Some(op) = entry(&CALLS, word) {
                    return Ok(left.binary(op, right));
                }
            }
            (Some(condition), Some(then), Some(otherwise), None) if word == "select" => {
                return Ok(condition.select(then, otherwise));
            }
            _ => {}
        }
        self.place = start;
        self.error(format!("'{word}' is no function of as many arguments"))
    }

    /// A number: with a type behind it a constant, otherwise an index.
    fn literal(&mut self) -> Parsed<Expr> {
        let rest = self.rest();
        let part =
            |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '+');
        // A sign belongs to the number in front and behind an exponent only.
        let mut end = 0;
        for (place, letter) in rest.char_indices() {
            let sign = matches!(letter, '-' | '+');
            let exponent = place > 0 && rest[..place].ends_with(['e', 'E']);
            if !part(letter) || (sign && place > 0 && !exponent) {
                break;
            }
            end = place + letter.len_utf8();
        }
        // The dots of `0..4` are no decimal point.
        let end = rest[..end].find("..").unwrap_or(end);
        let digits = &rest[..end];
        self.place += end;
        if self.rest().starts_with(':') {
            self.place += 1;
            let dtype = self.dtype()?;
            return match digits.parse() {
                Ok(value) => Ok(Expr::Constant(value, dtype)),
                Err(_) => self.error(format!("'{digits}' is no number")),
            };
        }
        match digits.parse() {
            Ok(value) => Ok(Expr::Integer(value)),
            Err(_) => self.error(format!("'{digits}' is no whole number")),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    const SUM: &str = r#"input 0 b0 "x": f32[4, 6]
output 1 b1 "sum": f32[4]
temporary b2 "own \"name\"": i8[] register

for v2 "i0_loop" in 0..4 parallel {
  for v3 "r0_loop" in 0..min(6, 12 - v2 * 2) {
    block0 "sum" (v0 "i0" < 4 = v2, reduce v1 "r0" < 6 = v3) if v3 < 5 && (v2 == 1 || true) {
      b1[v0] sum= select(v0 <= 2, exp(b0[v0, v1]), -inf:f32) * 1.5e-7:f32 - (-2.0:f32 - NaN:f32) from 0.0:f32
    }
  }
}
removed block1 "gone" (v4 "i0" < 3) {
  b2[] = i8(v4 // 2 % 3 * 4 - (v4 - -1)) + 3.0:i8
}
unused v5 "spare", v6 "other"
"#;

    #[test]
    fn text_survives_a_round() {
        let program = parse(SUM).unwrap();
        assert_eq!(program.to_string(), SUM);
    }

    #[test]
    fn damaged_text_is_an_error_or_another_program() {
        for cut in 0..SUM.len() {
            // Whatever comes out prints and parses again; nothing panics.
            for text in [SUM[..cut].to_string(), format!("{}{}", &SUM[..cut], &SUM[cut + 1..])] {
                if let Ok(program) = parse(&text) {
                    assert_eq!(
                        parse(&program.to_string()).unwrap().to_string(),
                        program.to_string()
                    );
                }
            }
        }
    }

    #[test]
    fn errors_name_the_place() {
        let error = |text: &str| parse(text).unwrap_err().to_string();
        assert_eq!(error("input 0 b0 x"), "line 1, column 12: expected '\"'");
        let text = SUM.replace("exp(", "exq(");
        assert_eq!(error(&text), "line 8, column 35: 'exq' is no function of as many arguments");
        assert_eq!(
            error("output 0 b1 \"x\": f32[]"),
            "line 1, column 23: buffer b0 is never defined"
        );
        let deep = format!("for v0 \"i\" in 0..{}", "(".repeat(100_000));
        assert!(error(&deep).ends_with("it is nested too deeply"));
    }
}
