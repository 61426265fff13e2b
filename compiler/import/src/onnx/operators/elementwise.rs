//! Element-wise operators that are more than one function of ours: variadic ones, predicates, `Pow`,
//! `Mod`, `Where`.

use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::node::{Node, Outputs};
use hone_ops::{BinaryFunction as B, UnaryFunction as U};
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
    let (base, exponent) = (node.input(0)?, node.input(1)?);
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

/// `Cast` and `CastLike`.
pub(super) fn cast(builder: &mut Builder, node: &mut Node) -> Outputs {
    let to = match node.operator.as_str() {
        "CastLike" => builder.dtype(node.input(1)?),
        _ => {
            let number = node.int("to")?.and_then(|number| i32::try_from(number).ok());
            let number = number.ok_or_else(|| NodeError::invalid("attribute 'to' is missing"))?;
            crate::onnx::tensor::element_type(number).map_err(NodeError::Invalid)?
        }
    };
    // Both decide only about types that are refused above.
    node.ignore(&["saturate", "round_mode"]);
    Ok(vec![builder.cast(node.input(0)?, to)?])
}

/// `BitShift`, by a product or quotient with a power of two.
pub(super) fn bit_shift(builder: &mut Builder, node: &mut Node) -> Outputs {
    let (input, places) = (node.input(0)?, node.input(1)?);
    let dtype = builder.dtype(input);
    if !dtype.is_integer() || dtype.is_signed_integer() {
        return Err(NodeError::invalid(format!("{dtype} is no unsigned integer")));
    }
    let function = match node.string_or("direction", "")?.as_str() {
        "LEFT" => B::Multiply,
        "RIGHT" => B::Divide,
        other => return Err(NodeError::invalid(format!("direction '{other}' is unknown"))),
    };
    let factor = builder.scalar_with(B::Power, 2.0, places)?;
    Ok(vec![builder.binary(function, input, factor)?])
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
