//! Element-wise operators that are more than one function of ours: variadic ones, predicates, `Pow`,
//! `Mod`, `Where`.

use super::strings;
use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::legacy;
use crate::onnx::narrow::{NarrowType, Rounding};
use crate::onnx::node::{Node, Outputs};
use hone_ops::{BinaryFunction as B, BitCast, UnaryFunction as U};
use hone_types::DataType;

/// `Sum`, `Mean`, `Min`, `Max`: any number of inputs.
pub(super) fn variadic(builder: &mut Builder, node: &mut Node) -> Outputs {
    let inputs = node.variadic()?;
    let function = match node.operator.as_str() {
        "Min" => B::Minimum,
        "Max" => B::Maximum,
        _ => B::Add,
    };
    let mut result = inputs[0];
    for input in &inputs[1..] {
        result = builder.binary(function, result, *input)?;
    }
    if node.operator == "Mean" {
        result = builder.with_scalar(B::Divide, result, inputs.len() as f64)?;
    }
    Ok(vec![result])
}

/// `Pow`: the result has the base's type, whatever the exponent's.
pub(super) fn pow(builder: &mut Builder, node: &mut Node) -> Outputs {
    let base = node.input(0)?;
    let exponent = legacy::second_operand(builder, node, base)?;
    let (to, from) = (builder.dtype(base), builder.dtype(exponent));
    // An integer to a fractional power needs floating point before it is cut.
    let between = if from.is_float() && !to.is_float() { DataType::F64 } else { to };
    let (base, exponent) = (builder.cast(base, between)?, builder.cast(exponent, between)?);
    let power = builder.binary(B::Power, base, exponent)?;
    Ok(vec![builder.cast(power, to)?])
}

/// `Mod`: with `fmod` the sign is the dividend's, else the divisor's.
pub(super) fn modulo(builder: &mut Builder, node: &mut Node) -> Outputs {
    let function = if node.flag("fmod", false)? { B::Remainder } else { B::Modulo };
    Ok(vec![builder.binary(function, node.input(0)?, node.input(1)?)?])
}

/// `Where`.
pub(super) fn select(builder: &mut Builder, node: &mut Node) -> Outputs {
    Ok(vec![builder.select(node.input(0)?, node.input(1)?, node.input(2)?)?])
}

/// `IsInf`, with either sign left out.
pub(super) fn is_infinite(builder: &mut Builder, node: &mut Node) -> Outputs {
    let input = node.input(0)?;
    let negative = node.flag("detect_negative", true)?;
    let positive = node.flag("detect_positive", true)?;
    let mut infinite = builder.unary(U::IsInfinite, input)?;
    for (counts, sign) in [(negative, B::Less), (positive, B::Greater)] {
        if !counts {
            let there = builder.with_scalar(sign, input, 0.0)?;
            let elsewhere = builder.unary(U::Not, there)?;
            infinite = builder.binary(B::And, infinite, elsewhere)?;
        }
    }
    Ok(vec![infinite])
}

/// `BitCast`: the same bits as elements of another type.
pub(super) fn bit_cast(builder: &mut Builder, node: &mut Node) -> Outputs {
    let number = node.int("to")?.and_then(|number| i32::try_from(number).ok());
    let number = number.ok_or_else(|| NodeError::invalid("attribute 'to' is missing"))?;
    let to = crate::onnx::tensor::element_type(number).map_err(NodeError::Invalid)?;
    Ok(vec![builder.apply(BitCast { to }, &[node.input(0)?])?])
}

/// `Cast` and `CastLike`; before opset 6 the type is a name.
pub(super) fn cast(builder: &mut Builder, node: &mut Node) -> Outputs {
    let (to, narrow) = match node.operator.as_str() {
        "CastLike" => {
            let like = node.input(1)?;
            (builder.dtype(like), builder.narrow_type(like))
        }
        _ => {
            let number = match node.opset {
                ..6 => node.string("to")?.as_deref().and_then(crate::onnx::tensor::type_number),
                _ => node.int("to")?.and_then(|number| i32::try_from(number).ok()),
            };
            let number = number.ok_or_else(|| NodeError::invalid("attribute 'to' is missing"))?;
            crate::onnx::tensor::carrier_type(number).map_err(NodeError::Invalid)?
        }
    };
    let saturate = node.flag("saturate", true)?;
    let mode = rounding(node)?;
    let input = node.input(0)?;
    match (builder.is_text(input), narrow == Some(NarrowType::Text)) {
        (true, true) => return Ok(vec![input]),
        (true, false) if narrow.is_none() => return Ok(vec![strings::read(builder, input, to)?]),
        (false, true) => {
            let x = builder.numbers(input)?;
            return Ok(vec![strings::written(builder, x)?]);
        }
        _ => {}
    }
    let x = builder.numbers(input)?;
    Ok(vec![match narrow {
        Some(_) if builder.narrow_type(input) == narrow => input,
        Some(narrow) => {
            let rounding = if narrow == NarrowType::F8E8M0 { mode } else { Rounding::Nearest };
            builder.narrowed(x, narrow, saturate, rounding)?
        }
        None => builder.cast(x, to)?,
    }])
}

/// Attribute `round_mode`, of conversions to powers of two.
fn rounding(node: &mut Node) -> Result<Rounding, NodeError> {
    Ok(match node.string_or("round_mode", "up")?.as_str() {
        "up" => Rounding::Up,
        "down" => Rounding::Down,
        "nearest" => Rounding::Nearest,
        other => return Err(NodeError::invalid(format!("round_mode '{other}' is unknown"))),
    })
}

/// `BitShift`, by a product or quotient with a power of two; of numbers with a sign the quotient is rounded
/// down, as a shift that keeps the sign does.
pub(super) fn bit_shift(builder: &mut Builder, node: &mut Node) -> Outputs {
    let (input, places) = (node.input(0)?, node.input(1)?);
    let dtype = builder.dtype(input);
    if !dtype.is_integer() {
        return Err(NodeError::invalid(format!("{dtype} is no integer")));
    }
    let function = match node.string_or("direction", "")?.as_str() {
        "LEFT" => B::Multiply,
        "RIGHT" => B::Divide,
        other => return Err(NodeError::invalid(format!("direction '{other}' is unknown"))),
    };
    if !dtype.is_signed_integer() {
        let factor = builder.scalar_with(B::Power, 2.0, places)?;
        return Ok(vec![builder.binary(function, input, factor)?]);
    }
    // In 64 bits the power does not reach the sign.
    let (wide, places) =
        (builder.cast(input, DataType::I64)?, builder.cast(places, DataType::I64)?);
    let factor = builder.scalar_with(B::Power, 2.0, places)?;
    let shifted = match function {
        B::Multiply => {
            // Beyond the width nothing is left, whatever the power wraps to.
            let least = builder.with_scalar(B::Less, places, 0.0)?;
            let most = builder.with_scalar(B::Greater, places, 63.0)?;
            let beyond = builder.binary(B::Or, least, most)?;
            let zero = builder.scalar(DataType::I64, 0.0)?;
            let shifted = builder.multiply(wide, factor)?;
            builder.select(beyond, zero, shifted)?
        }
        _ => {
            // Beyond the width, as which a negative number counts, only the sign is left.
            let least = builder.with_scalar(B::Less, places, 0.0)?;
            let most = builder.with_scalar(B::Greater, places, 62.0)?;
            let beyond = builder.binary(B::Or, least, most)?;
            let one = builder.scalar(DataType::I64, 1.0)?;
            let factor = builder.select(beyond, one, factor)?;
            let negative = builder.with_scalar(B::Less, wide, 0.0)?;
            let sign = builder.cast(negative, DataType::I64)?;
            let sign = builder.unary(U::Negate, sign)?;
            let rest = builder.binary(B::Modulo, wide, factor)?;
            let whole = builder.subtract(wide, rest)?;
            let shifted = builder.divide(whole, factor)?;
            builder.select(beyond, sign, shifted)?
        }
    };
    Ok(vec![builder.cast(shifted, dtype)?])
}

/// `Clip`: bounds are attributes before opset 11, inputs since.
pub(super) fn clip(builder: &mut Builder, node: &mut Node) -> Outputs {
    let mut result = node.input(0)?;
    let dtype = builder.dtype(result);
    let bounds: [Option<Operand>; 2] = if node.opset < 11 {
        let (low, high) = (node.float("min")?, node.float("max")?);
        let mut bound = |value: Option<f64>| value.map(|value| builder.scalar(dtype, value));
        [bound(low).transpose()?, bound(high).transpose()?]
    } else {
        [node.optional(1), node.optional(2)]
    };
    for (bound, function) in bounds.into_iter().zip([B::Maximum, B::Minimum]) {
        if let Some(bound) = bound {
            result = builder.binary(function, result, bound)?;
        }
    }
    Ok(vec![result])
}
