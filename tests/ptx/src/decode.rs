//! One instruction's words to what it does.

mod tensor;

use crate::parse::Names;
use crate::program::{Address, Operation, Register, Source, Space};
use crate::types::{Binary, Compare, Rounding, Type, Unary};
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use tensor::{tensor, warpgroup};

/// The words of an instruction and its operands.
struct Words<'a> {
    words: Vec<&'a str>,
    operands: Vec<&'a str>,
}

impl<'a> Words<'a> {
    fn of(text: &'a str) -> Self {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let (mut operands, mut nested, mut start) = (Vec::new(), 0, 0);
        for (position, char) in rest.char_indices() {
            match char {
                '{' | '[' => nested += 1,
                '}' | ']' => nested -= 1,
                ',' if nested == 0 => {
                    operands.push(rest[start..position].trim());
                    start = position + 1;
                }
                _ => {}
            }
        }
        operands.push(rest[start..].trim());
        operands.retain(|operand| !operand.is_empty());
        Self { words: word.split('.').collect(), operands }
    }

    fn has(&self, word: &str) -> bool {
        self.words.contains(&word)
    }

    fn operand(&self, index: usize) -> Result<&'a str> {
        self.operands.get(index).copied().with_context(|| format!("operand {index} is missing"))
    }

    fn ty(&self) -> Result<Type> {
        Type::last_of(&self.words[1..])
    }
}

/// What an instruction does.
pub(crate) fn decode(
    text: &str,
    names: &mut Names,
    labels: &BTreeMap<String, usize>,
) -> Result<Operation> {
    let words = Words::of(text);
    if words.words == ["ex2", "approx", "ftz", "f32"] {
        let (ty, to) = (words.ty()?, names.register(words.operand(0)?)?);
        return Ok(Operation::Unary {
            op: Unary::PowerOfTwo,
            ty,
            to,
            a: source(&words, 1, names)?,
        });
    }
    // Results here are computed with subnormal numbers, as the text has to ask for.
    ensure!(!words.has("ftz") && !words.has("approx"), "flushes or approximates");
    let register = |names: &mut Names| names.register(words.operand(0)?);
    Ok(match words.words[0] {
        "mov" => return moves(&words, names),
        "ld" => return load(&words, names),
        "st" => return store(&words, names),
        "cvt" if words.has("bf16x2") || words.has("f16x2") => return convert_pair(&words, names),
        "cvt" => return convert(&words, names),
        "shfl" => return exchange(&words, names),
        "cvta" => {
            let space = space_of(&words)?;
            let back = words.has("to");
            Operation::Generic {
                to: register(names)?,
                from: source(&words, 1, names)?,
                space,
                back,
            }
        }
        "setp" => return comparison(&words, names),
        "selp" => Operation::Select {
            to: register(names)?,
            then: source(&words, 1, names)?,
            otherwise: source(&words, 2, names)?,
            by: source(&words, 3, names)?,
        },
        "bra" => {
            let label = words.operand(0)?;
            Operation::Branch { to: *labels.get(label).with_context(|| format!("label {label}"))? }
        }
        "bar" | "barrier" => {
            ensure!(words.has("sync") && words.operand(0)? == "0", "a barrier of some lanes");
            ensure!(words.operands.len() == 1, "a barrier of some lanes");
            Operation::Barrier
        }
        "ret" => Operation::Return,
        "fma" => Operation::Fused {
            ty: words.ty()?,
            to: register(names)?,
            a: source(&words, 1, names)?,
            b: source(&words, 2, names)?,
            c: source(&words, 3, names)?,
        },
        "mad" => {
            ensure!(words.has("lo") || words.has("wide"), "a part of a product");
            Operation::MultiplyAdd {
                ty: words.ty()?,
                wide: words.has("wide"),
                to: register(names)?,
                a: source(&words, 1, names)?,
                b: source(&words, 2, names)?,
                c: source(&words, 3, names)?,
            }
        }
        "bfe" => Operation::Field {
            ty: words.ty()?,
            to: register(names)?,
            a: source(&words, 1, names)?,
            b: source(&words, 2, names)?,
            c: source(&words, 3, names)?,
        },
        "shf" => Operation::Funnel {
            left: words.has("l"),
            wrap: words.has("wrap"),
            to: register(names)?,
            low: source(&words, 1, names)?,
            high: source(&words, 2, names)?,
            by: source(&words, 3, names)?,
        },
        "prmt" => {
            ensure!(words.words == ["prmt", "b32"], "a permutation of another mode");
            Operation::Permute {
                to: register(names)?,
                a: source(&words, 1, names)?,
                b: source(&words, 2, names)?,
                c: source(&words, 3, names)?,
            }
        }
        "cp" | "ldmatrix" | "mma" => return tensor(&words, names),
        "wgmma" | "fence" => return warpgroup(&words, names),
        _ => return arithmetic(&words, names),
    })
}

fn moves(words: &Words<'_>, names: &mut Names) -> Result<Operation> {
    let (to, from) = (words.operand(0)?, words.operand(1)?);
    let bits = words.ty()?.bits;
    if let Some(parts) = list(to) {
        let bits = bits / parts.len() as u32;
        let to = parts.iter().map(|part| match *part {
            "_" => Ok(None),
            part => names.register(part).map(Some),
        });
        let to = to.collect::<Result<_>>()?;
        return Ok(Operation::Unpack { to, from: source(words, 1, names)?, bits });
    }
    let to = names.register(to)?;
    if let Some(parts) = list(from) {
        let bits = bits / parts.len() as u32;
        let ty = Type { bits, ..Type::last_of(&["b64"])? };
        let parts = parts.iter().map(|part| operand(part, ty, names)).collect::<Result<_>>()?;
        return Ok(Operation::Pack { to, parts, bits });
    }
    Ok(Operation::Move { to, from: source(words, 1, names)? })
}

/// `{a, b}`
fn list(text: &str) -> Option<Vec<&str>> {
    let inside = text.strip_prefix('{')?.strip_suffix('}')?;
    Some(inside.split(',').map(str::trim).collect())
}

fn source(words: &Words<'_>, index: usize, names: &mut Names) -> Result<Source> {
    operand(words.operand(index)?, words.ty()?, names)
}

fn operand(text: &str, ty: Type, names: &mut Names) -> Result<Source> {
    let special = |prefix: &str| {
        let dimension = text.strip_prefix(prefix)?;
        ["x", "y", "z"].iter().position(|name| *name == dimension)
    };
    if let Some(dimension) = special("%tid.") {
        return Ok(Source::Lane(dimension));
    }
    if let Some(dimension) = special("%ntid.") {
        return Ok(Source::Lanes(dimension));
    }
    if let Some(dimension) = special("%ctaid.") {
        return Ok(Source::Block(dimension));
    }
    if let Some(dimension) = special("%nctaid.") {
        return Ok(Source::Blocks(dimension));
    }
    if text.starts_with('%') {
        return names.register(text).map(Source::Register);
    }
    if let Some(address) = names.memory.get(text) {
        return Ok(Source::Constant(*address));
    }
    if let Some(value) = constant(text, ty) {
        return Ok(Source::Constant(value));
    }
    // A name that a scope declares.
    names.register(text).map(Source::Register)
}

/// A number: `-1`, `0x1F`, `0f3F800000`, `0d3FF0000000000000`.
fn constant(text: &str, ty: Type) -> Option<u64> {
    if let Some(digits) = text.strip_prefix("0f") {
        return u32::from_str_radix(digits, 16).ok().map(u64::from);
    }
    if let Some(digits) = text.strip_prefix("0d") {
        return u64::from_str_radix(digits, 16).ok();
    }
    if let Some(digits) = text.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).ok();
    }
    let value: i128 = text.parse().ok()?;
    Some(ty.cut(value as u64))
}

fn space_of(words: &Words<'_>) -> Result<Space> {
    let all = [("global", Space::Global), ("shared", Space::Shared), ("local", Space::Local)];
    let found = all.iter().find(|(word, _)| words.has(word)).map(|(_, space)| *space);
    if words.has("nc") {
        ensure!(found == Some(Space::Global), "an access of another kind");
        return Ok(Space::Constant);
    }
    Ok(found.unwrap_or(Space::Generic))
}

/// `[base+offset]`
fn address(text: &str, names: &mut Names) -> Result<Address> {
    let inside = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let inside = inside.with_context(|| format!("'{text}' is no address"))?;
    let (base, offset) = match inside.split_once('+') {
        Some((base, offset)) => (base.trim(), offset.trim().parse().context("an offset")?),
        None => (inside.trim(), 0),
    };
    let base = operand(base, Type::last_of(&["u64"])?, names)?;
    Ok(Address { base, offset })
}

fn load(words: &Words<'_>, names: &mut Names) -> Result<Operation> {
    if words.has("param") {
        let name = words.operand(1)?.trim_start_matches('[').trim_end_matches(']');
        let number = *names.parameters.get(name).with_context(|| format!("parameter {name}"))?;
        return Ok(Operation::Parameter { to: names.register(words.operand(0)?)?, number });
    }
    let (space, ty) = (space_of(words)?, words.ty()?);
    let to = words.operand(0)?;
    let parts = list(to).unwrap_or_else(|| vec![to]);
    let to: Vec<Register> = parts.iter().map(|part| names.register(part)).collect::<Result<_>>()?;
    ensure!(to.len() == vector_length(words), "not as many registers as elements");
    Ok(Operation::Load { space, ty, to, address: address(words.operand(1)?, names)? })
}

fn vector_length(words: &Words<'_>) -> usize {
    if words.has("v4") {
        4
    } else if words.has("v2") {
        2
    } else {
        1
    }
}

fn store(words: &Words<'_>, names: &mut Names) -> Result<Operation> {
    let (space, ty) = (space_of(words)?, words.ty()?);
    let address = address(words.operand(0)?, names)?;
    let from = words.operand(1)?;
    let parts = list(from).unwrap_or_else(|| vec![from]);
    let from: Vec<Source> =
        parts.iter().map(|part| operand(part, ty, names)).collect::<Result<_>>()?;
    ensure!(from.len() == vector_length(words), "not as many registers as elements");
    Ok(Operation::Store { space, ty, from, address })
}

fn convert(words: &Words<'_>, names: &mut Names) -> Result<Operation> {
    let types: Vec<Type> = words.words[1..].iter().filter_map(|word| Type::named(word)).collect();
    let [to_type, from_type] = types[..] else { bail!("a conversion between {types:?}") };
    let mut rounding = Rounding::Nearest;
    for word in &words.words[1..] {
        rounding = match *word {
            "rn" | "sat" => rounding,
            "rni" => Rounding::WholeNearest,
            "rzi" => Rounding::WholeZero,
            "rmi" => Rounding::WholeDown,
            "rpi" => Rounding::WholeUp,
            _ if Type::named(word).is_some() => rounding,
            other => bail!("conversion '{other}'"),
        };
    }
    let (to, a) =
        (names.register(words.operand(0)?)?, operand(words.operand(1)?, from_type, names)?);
    let saturate = words.has("sat");
    Ok(Operation::Convert { to_type, from_type, rounding, saturate, to, a })
}

/// `cvt.rn.bf16x2.f32 d, a, b`: `a` goes into the upper half.
fn convert_pair(words: &Words<'_>, names: &mut Names) -> Result<Operation> {
    let ["cvt", "rn", pair, "f32"] = words.words[..] else { bail!("a conversion of another form") };
    let to_type = Type::named(&pair[..pair.len() - 2]).with_context(|| format!("type {pair}"))?;
    let from = Type::named("f32").context("f32")?;
    let (to, upper) =
        (names.register(words.operand(0)?)?, operand(words.operand(1)?, from, names)?);
    Ok(Operation::ConvertPair {
        to_type,
        to,
        upper,
        lower: operand(words.operand(2)?, from, names)?,
    })
}

/// `shfl.sync.bfly.b32 d, a, bits, 31, -1`: of a whole warp.
fn exchange(words: &Words<'_>, names: &mut Names) -> Result<Operation> {
    let is_whole = words.words == ["shfl", "sync", "bfly", "b32"]
        && words.operand(3)? == "31"
        && words.operand(4)? == "-1";
    ensure!(is_whole && !words.operand(0)?.contains('|'), "an exchange of another form");
    Ok(Operation::Exchange {
        to: names.register(words.operand(0)?)?,
        a: source(words, 1, names)?,
        bits: words.operand(2)?.parse().context("bits")?,
    })
}

fn comparison(words: &Words<'_>, names: &mut Names) -> Result<Operation> {
    let ty = words.ty()?;
    ensure!(words.words.len() == 3, "a comparison of another form");
    let (op, unordered) = match words.words[1] {
        "eq" => (Compare::Equal, false),
        // Integers are always ordered; floats have `neu` for what is also true of NaN.
        "ne" => (Compare::NotEqual, false),
        "lt" | "lo" => (Compare::Less, false),
        "le" | "ls" => (Compare::LessEqual, false),
        "gt" | "hi" => (Compare::Greater, false),
        "ge" | "hs" => (Compare::GreaterEqual, false),
        "equ" => (Compare::Equal, true),
        "neu" => (Compare::NotEqual, true),
        "ltu" => (Compare::Less, true),
        "leu" => (Compare::LessEqual, true),
        "gtu" => (Compare::Greater, true),
        "geu" => (Compare::GreaterEqual, true),
        "num" => (Compare::Number, false),
        "nan" => (Compare::Nan, false),
        other => bail!("comparison '{other}'"),
    };
    let to = names.register(words.operand(0)?)?;
    let (a, b) = (source(words, 1, names)?, source(words, 2, names)?);
    Ok(Operation::Compare { op, unordered, ty, to, a, b })
}

fn arithmetic(words: &Words<'_>, names: &mut Names) -> Result<Operation> {
    let ty = words.ty()?;
    let known = ["rn", "lo", "hi", "wide", "NaN"];
    for word in &words.words[1..] {
        ensure!(known.contains(word) || Type::named(word).is_some(), "'{word}' is not known");
    }
    let unary = match words.words[0] {
        "neg" => Some(Unary::Neg),
        "abs" => Some(Unary::Abs),
        "not" => Some(Unary::Not),
        "sqrt" => Some(Unary::Sqrt),
        "rcp" => Some(Unary::Reciprocal),
        "popc" => Some(Unary::PopulationCount),
        "clz" => Some(Unary::LeadingZeros),
        "brev" => Some(Unary::Reverse),
        _ => None,
    };
    let to = names.register(words.operand(0)?)?;
    if let Some(op) = unary {
        return Ok(Operation::Unary { op, ty, to, a: source(words, 1, names)? });
    }
    let nan = words.has("NaN");
    let op = match words.words[0] {
        "add" => Binary::Add,
        "sub" => Binary::Sub,
        "mul" if words.has("wide") => Binary::MulWide,
        "mul" if words.has("hi") => Binary::MulHigh,
        "mul" => Binary::MulLow,
        "div" => Binary::Div,
        "rem" => Binary::Rem,
        "min" => {
            if nan {
                Binary::MinNan
            } else {
                Binary::Min
            }
        }
        "max" => {
            if nan {
                Binary::MaxNan
            } else {
                Binary::Max
            }
        }
        "and" => Binary::And,
        "or" => Binary::Or,
        "xor" => Binary::Xor,
        "shl" => Binary::Shl,
        "shr" => Binary::Shr,
        "copysign" => Binary::CopySign,
        other => bail!("'{other}' is not known"),
    };
    let (a, b) = (source(words, 1, names)?, source(words, 2, names)?);
    Ok(Operation::Binary { op, ty, to, a, b })
}
