//! `transform_layout`: the elements of a temporary lie in memory in another order.
//!
//! The new axes are parts of the old ones: `1/16` is the index of axis 1 divided by 16, `1%16` what
//! remains, `1/16%4` the remainder by 4 of the quotient. Indices of all loads and stores change
//! accordingly; loops do not.
//!
//! Legal: for a temporary, where the parts of each axis determine its index. Where a divisor does not
//! divide an extent the buffer grows by elements that are never used.
//! Buys: unit stride for the reader, and blocks that fit pages and vectors. A block that computes a
//! buffer with divided axes can no longer be moved: move it first.

use crate::argument::Argument;
use crate::edit::{block_domain, map_loads, must_hold};
use crate::error::{Outcome, Refusal};
use hone_tensor::{BufferId, Domain, Expr, Program, Role};
use std::fmt;
use std::str::FromStr;

/// One axis of a layout: `index / divisor % modulus` of one axis of the buffer as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AxisPart {
    /// The axis it is a part of.
    pub axis: usize,
    /// What the index is divided by, rounding down.
    pub divisor: usize,
    /// What the remainder is taken by; `None` for the most significant part.
    pub modulus: Option<usize>,
}

/// The axes of a buffer, outermost first, in terms of its former axes. Its text form is
/// `[0, 1/16, 1%16]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The new axes.
    pub parts: Vec<AxisPart>,
}

impl Layout {
    /// The same axes in another order: axis `i` of the result is axis `order[i]`.
    pub fn permutation(order: &[usize]) -> Self {
        let part = |axis: &usize| AxisPart { axis: *axis, divisor: 1, modulus: None };
        Self { parts: order.iter().map(part).collect() }
    }

    /// Whether the parts determine every index, and the new shape.
    fn shape(&self, shape: &[usize]) -> Result<Vec<usize>, String> {
        for (axis, extent) in shape.iter().enumerate() {
            let mut parts: Vec<&AxisPart> =
                self.parts.iter().filter(|part| part.axis == axis).collect();
            parts.sort_by_key(|part| part.divisor);
            let mut known = 1;
            for part in parts {
                if part.divisor != known || part.modulus == Some(0) {
                    return Err(format!("the parts of axis {axis} do not join"));
                }
                known = part.modulus.map_or(usize::MAX, |own| known.saturating_mul(own));
            }
            if known < *extent {
                return Err(format!("the parts of axis {axis} do not determine its index"));
            }
        }
        let extent = |part: &AxisPart| {
            let whole =
                shape.get(part.axis).ok_or_else(|| format!("there is no axis {}", part.axis));
            whole.map(|whole| {
                let quotients = whole.div_ceil(part.divisor.max(1));
                part.modulus.map_or(quotients, |modulus| modulus.min(quotients))
            })
        };
        self.parts.iter().map(extent).collect()
    }

    fn indices(&self, old: &[Expr], domain: &Domain) -> Vec<Expr> {
        let part = |part: &AxisPart| {
            let quotient = match part.divisor {
                1 => old[part.axis].clone(),
                divisor => old[part.axis].clone().floor_divide(Expr::from(divisor)),
            };
            domain.simplify(&match part.modulus {
                Some(modulus) => quotient.modulo(Expr::from(modulus)),
                None => quotient,
            })
        };
        self.parts.iter().map(part).collect()
    }
}

pub(crate) fn apply(program: &mut Program, buffer: BufferId, layout: Layout) -> Outcome<()> {
    let object = match program.buffers.get(buffer) {
        Some(entry) => format!("buffer {buffer} '{}'", entry.name),
        None => format!("buffer {buffer}"),
    };
    let refuse = |reason: String| Refusal { object: object.clone(), reason };
    let Some(entry) = program.buffers.get(buffer) else {
        return Err(refuse("it is not a buffer of the program".into()));
    };
    if entry.role != Role::Temporary {
        return Err(refuse("it is a parameter of the program".into()));
    }
    let shape = layout.shape(&entry.shape).map_err(refuse)?;
    program.buffers[buffer].shape = shape;
    let mut blocks = [program.writers(buffer), program.readers(buffer)].concat();
    blocks.sort_unstable();
    blocks.dedup();
    for block in &blocks {
        let Some(path) = program.find_block(*block) else { continue };
        let domain = block_domain(&program.blocks[*block], &program.domain_at(&path));
        let own = &mut program.blocks[*block];
        if own.buffer == buffer {
            own.indices = layout.indices(&own.indices, &domain);
        }
        own.map_expressions(&mut |expr| {
            map_loads(expr, buffer, &mut |old| Expr::Load(buffer, layout.indices(&old, &domain)))
        });
    }
    match blocks.first() {
        Some(block) => must_hold(program, *block),
        None => Ok(()),
    }
}

impl fmt::Display for AxisPart {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.axis)?;
        if self.divisor != 1 {
            write!(formatter, "/{}", self.divisor)?;
        }
        self.modulus.map_or(Ok(()), |modulus| write!(formatter, "%{modulus}"))
    }
}

impl FromStr for AxisPart {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |own: &str| {
            own.trim().parse::<usize>().map_err(|_| format!("'{own}' in '{text}' is no number"))
        };
        let (rest, modulus) = match text.split_once('%') {
            Some((rest, modulus)) => (rest, Some(number(modulus)?)),
            None => (text, None),
        };
        let (axis, divisor) = match rest.split_once('/') {
            Some((axis, divisor)) => (number(axis)?, number(divisor)?),
            None => (number(rest)?, 1),
        };
        if divisor == 0 {
            return Err(format!("'{text}' divides by zero"));
        }
        Ok(Self { axis, divisor, modulus })
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.parts.iter().map(AxisPart::to_string).collect();
        write!(formatter, "[{}]", texts.join(", "))
    }
}

impl FromStr for Layout {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let inside = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let inside = inside.ok_or_else(|| format!("'{text}' is not in brackets"))?;
        let parts = inside.split(',').map(str::trim).filter(|part| !part.is_empty());
        Ok(Self { parts: parts.map(str::parse).collect::<Result<_, _>>()? })
    }
}

impl Argument for Layout {
    const POSITIONAL: bool = false;
    fn print(&self) -> String {
        self.to_string()
    }
    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}
