//! Classical machine learning (`ai.onnx.ml`): features, linear models and kernels, as loops over numbers.

use crate::NodeError;
use crate::onnx::builder::{Builder, Operand};
use crate::onnx::node::{Node, Outputs};
use crate::onnx::shorthands::Step;
use hone_ops::{ArgReduce, BinaryFunction as B, Gather, ReduceFunction as R, UnaryFunction as U};
use hone_types::{DataType, Tensor};

/// A list of floats as a constant of `dtype`.
fn row(b: &mut Builder, values: &[f32], dtype: DataType) -> Step {
    let tensor = Tensor::from_elements([values.len()], values)?;
    let row = b.constant(tensor);
    b.cast(row, dtype)
}

/// `Scaler`: `(x - offset) * scale`.
pub(super) fn scale(builder: &mut Builder, node: &mut Node) -> Outputs {
    let mut x = builder.cast(node.input(0)?, DataType::F32)?;
    for (name, function) in [("offset", B::Subtract), ("scale", B::Multiply)] {
        if let Some(values) = node.floats(name)? {
            let values = row(builder, &values, DataType::F32)?;
            x = builder.binary(function, x, values)?;
        }
    }
    Ok(vec![x])
}

/// `Normalizer`: rows over their largest element, the sum of their magnitudes, or the root of the sum of squares.
pub(super) fn normalize(builder: &mut Builder, node: &mut Node) -> Outputs {
    let x = builder.cast(node.input(0)?, DataType::F32)?;
    let function = match node.string_or("norm", "MAX")?.as_str() {
        "MAX" => R::Maximum,
        "L1" => R::L1,
        "L2" => R::L2,
        other => return Err(NodeError::invalid(format!("norm '{other}' is unknown"))),
    };
    let last = builder.rank(x).saturating_sub(1);
    let size = builder.reduce(function, x, vec![last], true)?;
    let none = builder.with_scalar(B::Equal, size, 0.0)?;
    let one = builder.scalar(DataType::F32, 1.0)?;
    let divisor = builder.select(none, one, size)?;
    Ok(vec![builder.divide(x, divisor)?])
}

/// `Imputer`: values that stand for missing ones replaced.
pub(super) fn impute(builder: &mut Builder, node: &mut Node) -> Outputs {
    let x = node.input(0)?;
    let dtype = builder.dtype(x);
    let (floats, integers) =
        (node.floats("imputed_value_floats")?, node.ints("imputed_value_int64s")?);
    let missing = match dtype.is_float() {
        true => node.float_or("replaced_value_float", 0.0)?,
        false => node.int_or("replaced_value_int64", 0)? as f64,
    };
    node.ignore(&["replaced_value_float", "replaced_value_int64"]);
    let values = match (floats, integers) {
        (Some(values), _) => row(builder, &values, dtype)?,
        (None, Some(values)) => {
            let values = builder.integers(&values)?;
            builder.cast(values, dtype)?
        }
        (None, None) => return Err(NodeError::invalid("there are no imputed values")),
    };
    let values = match builder.tensor_type(values).elements() {
        1 => builder.reshape(values, vec![])?,
        _ => values,
    };
    let is_missing = match missing.is_nan() {
        true => builder.unary(U::IsNan, x)?,
        false => builder.with_scalar(B::Equal, x, missing)?,
    };
    Ok(vec![builder.select(is_missing, values, x)?])
}

/// `Binarizer`: 1 above a threshold, else 0.
pub(super) fn binarize(builder: &mut Builder, node: &mut Node) -> Outputs {
    let x = node.input(0)?;
    let threshold = node.float_or("threshold", 0.0)?;
    let above = builder.with_scalar(B::Greater, x, threshold)?;
    Ok(vec![builder.cast(above, builder.dtype(x))?])
}

/// `ArrayFeatureExtractor`: columns by their numbers.
pub(super) fn extract(builder: &mut Builder, node: &mut Node) -> Outputs {
    let (mut x, columns) = (node.input(0)?, node.input(1)?);
    let count = builder.tensor_type(columns).elements();
    let columns = builder.reshape(columns, vec![count])?;
    let shape = builder.shape(x);
    if shape.len() == 1 {
        x = builder.reshape(x, vec![1, shape[0]])?;
    }
    let last = builder.rank(x).saturating_sub(1);
    Ok(vec![builder.apply(Gather { axis: last }, &[x, columns])?])
}

/// `FeatureVectorizer`: all operands side by side.
pub(super) fn vectorize(builder: &mut Builder, node: &mut Node) -> Outputs {
    node.ignore(&["inputdimensions"]);
    let mut parts = Vec::new();
    for own in node.variadic()? {
        let own = builder.cast(own, DataType::F32)?;
        let shape = builder.shape(own);
        let rows = if shape.len() < 2 { 1 } else { shape[0] };
        let wide = builder.tensor_type(own).elements().checked_div(rows).unwrap_or(0);
        parts.push(builder.reshape(own, vec![rows, wide])?);
    }
    Ok(vec![builder.concat(&parts, 1)?])
}

/// `OneHotEncoder`: which of the categories an element is.
pub(super) fn one_hot(builder: &mut Builder, node: &mut Node) -> Outputs {
    let x = node.input(0)?;
    let zeros = node.flag("zeros", true)?;
    let texts = node.strings("cats_strings")?.unwrap_or_default();
    let numbers = node.ints("cats_int64s")?.unwrap_or_default();
    if builder.is_text(x) == texts.is_empty() {
        return Err(NodeError::invalid("the categories are of another type than the input"));
    }
    let (x, categories) = match texts.is_empty() {
        false => (x, builder.texts(&texts)?),
        true => (builder.cast(x, DataType::I64)?, builder.integers(&numbers)?),
    };
    let column = [&builder.shape(x)[..], &[1]].concat();
    let x = builder.reshape(x, column)?;
    let same = builder.binary(B::Equal, x, categories)?;
    if !zeros {
        // Each element is to be one of the categories.
        let last = builder.rank(same) - 1;
        let bits = builder.cast(same, DataType::I32)?;
        let known = builder.reduce(R::Maximum, bits, vec![last], false)?;
        let known = builder.cast(known, DataType::Bool)?;
        builder.require(known, "an element is none of the categories")?;
    }
    Ok(vec![builder.cast(same, DataType::F32)?])
}

/// One side of a `LabelEncoder`'s table.
fn side(b: &mut Builder, node: &mut Node, name: &str) -> Result<Option<Operand>, NodeError> {
    if let Some(values) = node.floats(&format!("{name}_floats"))? {
        return Ok(Some(row(b, &values, DataType::F32)?));
    }
    if let Some(values) = node.ints(&format!("{name}_int64s"))? {
        return Ok(Some(b.integers(&values)?));
    }
    if let Some(texts) = node.strings(&format!("{name}_strings"))? {
        return Ok(Some(b.texts(&texts)?));
    }
    Ok(match node.tensor(&format!("{name}_tensor"))? {
        Some(tensor) => {
            let own = b.load(tensor)?;
            let elements = b.tensor_type(own).elements();
            let list = b.reshape(own, vec![elements])?;
            Some(if b.is_text(own) { b.as_text(list) } else { list })
        }
        None => None,
    })
}

/// `LabelEncoder`: each element is looked up in a table; what is not there becomes a default.
pub(super) fn label(builder: &mut Builder, node: &mut Node) -> Outputs {
    let x = node.input(0)?;
    if let Some(classes) = node.strings("classes_strings")? {
        return numbered(builder, node, x, &classes);
    }
    let missing = || NodeError::invalid("a side of the table is missing");
    let keys = side(builder, node, "keys")?.ok_or_else(missing)?;
    let values = side(builder, node, "values")?.ok_or_else(missing)?;
    if builder.is_text(x) != builder.is_text(keys) {
        return Err(NodeError::invalid("the keys are of another type than the input"));
    }
    let dtype = builder.dtype(values);
    let float = node.float_or("default_float", -0.0)?;
    let integer = node.int_or("default_int64", -1)?;
    let text = node.string_or("default_string", "_Unused")?;
    let default = match node.tensor("default_tensor")? {
        Some(tensor) => {
            let own = builder.load(tensor)?;
            builder.reshape(own, vec![])?
        }
        None if builder.is_text(values) => builder.texts(&[text])?,
        None if dtype.is_float() => builder.scalar(dtype, float)?,
        None => builder.scalar(dtype, integer as f64)?,
    };
    let default = builder.cast(default, dtype)?;
    let found = looked_up(builder, x, keys, values, default)?;
    Ok(vec![if builder.is_text(values) { builder.as_text(found) } else { found }])
}

/// `LabelEncoder` of the first version: strings to their numbers in a list, or numbers to strings.
fn numbered(b: &mut Builder, node: &mut Node, x: Operand, classes: &[String]) -> Outputs {
    let number = node.int_or("default_int64", -1)?;
    let text = node.string_or("default_string", "_Unused")?;
    let count: Vec<i64> = (0..classes.len() as i64).collect();
    let (texts, numbers) = (b.texts(classes)?, b.integers(&count)?);
    if b.is_text(x) {
        let default = b.integers(&[number])?;
        return Ok(vec![looked_up(b, x, texts, numbers, default)?]);
    }
    let default = b.texts(&[text])?;
    let found = looked_up(b, x, numbers, texts, default)?;
    Ok(vec![b.as_text(found)])
}

/// Each element of `x` looked up among `keys`: the value at the first that is equal, else the default, of one element.
pub(super) fn looked_up(
    builder: &mut Builder,
    x: Operand,
    keys: Operand,
    values: Operand,
    default: Operand,
) -> Step {
    let keys = builder.cast(keys, builder.dtype(x))?;
    let default = builder.reshape(default, vec![])?;
    if builder.shape(keys) != builder.shape(values) || builder.shape(keys) == [0] {
        return Err(NodeError::invalid("the sides of the table differ in length, or are empty"));
    }
    let shape = builder.shape(x);
    let column = builder.reshape(x, [&shape[..], &[1]].concat())?;
    let mut same = builder.binary(B::Equal, column, keys)?;
    if builder.dtype(x).is_float() {
        // A key that is no number stands for all that are none.
        let (one, other) = (builder.unary(U::IsNan, column)?, builder.unary(U::IsNan, keys)?);
        let both = builder.binary(B::And, one, other)?;
        same = builder.binary(B::Or, same, both)?;
    }
    let same = builder.cast(same, DataType::I32)?;
    let last = shape.len();
    let first = ArgReduce { maximum: true, axis: last, keep_axis: false, select_last: false };
    let place = builder.apply(first, &[same])?;
    let found = builder.reduce(R::Maximum, same, vec![last], false)?;
    let found = builder.cast(found, DataType::Bool)?;
    let value = builder.apply(Gather { axis: 0 }, &[values, place])?;
    builder.select(found, value, default)
}

/// What is done to scores at the end.
pub(super) fn transformed(b: &mut Builder, name: &str, scores: Operand) -> Step {
    match name {
        "NONE" => Ok(scores),
        "LOGISTIC" => b.unary(U::Sigmoid, scores),
        "SOFTMAX" => super::normalization::softmax_of(b, scores, 1, false),
        "SOFTMAX_ZERO" => {
            // What is zero stays so, and has no share.
            let none = b.with_scalar(B::Equal, scores, 0.0)?;
            let most = b.reduce(R::Maximum, scores, vec![1], true)?;
            let less = b.subtract(scores, most)?;
            let powers = b.unary(U::Exp, less)?;
            let zero = b.scalar(b.dtype(scores), 0.0)?;
            let powers = b.select(none, zero, powers)?;
            let sum = b.reduce(R::Sum, powers, vec![1], true)?;
            let nothing = b.with_scalar(B::Equal, sum, 0.0)?;
            let one = b.scalar(b.dtype(scores), 1.0)?;
            let sum = b.select(nothing, one, sum)?;
            b.divide(powers, sum)
        }
        other => Err(NodeError::unsupported(format!("post_transform {other}"))),
    }
}

/// `x` as a matrix of `f32`, a sample in each row.
pub(super) fn samples(b: &mut Builder, x: Operand) -> Step {
    let x = b.cast(x, DataType::F32)?;
    let shape = b.shape(x);
    if shape.len() == 2 { Ok(x) } else { b.reshape(x, vec![1, shape.iter().product()]) }
}

/// `x * coefficients' + intercepts`, with a row of coefficients for each result.
fn linear(b: &mut Builder, node: &mut Node, rows: Option<usize>) -> Step {
    let x = samples(b, node.input(0)?)?;
    let features = b.shape(x)[1];
    let coefficients = node.floats("coefficients")?.unwrap_or_default();
    let rows = rows.unwrap_or_else(|| coefficients.len().checked_div(features).unwrap_or(0));
    if rows == 0 || rows.checked_mul(features) != Some(coefficients.len()) {
        return Err(NodeError::invalid(format!(
            "{} coefficients for {features} features",
            coefficients.len()
        )));
    }
    let weights = b.constant(Tensor::from_elements([rows, features], &coefficients)?);
    let weights = b.transpose(weights, vec![1, 0])?;
    let sums = b.matmul(x, weights)?;
    match node.floats("intercepts")? {
        Some(values) if !values.is_empty() => {
            let values = row(b, &values, DataType::F32)?;
            b.add(sums, values)
        }
        _ => Ok(sums),
    }
}

/// `LinearRegressor`.
pub(super) fn linear_regressor(builder: &mut Builder, node: &mut Node) -> Outputs {
    let targets = usize::try_from(node.int_or("targets", 1)?).ok();
    let transform = node.string_or("post_transform", "NONE")?;
    let scores = linear(builder, node, targets)?;
    Ok(vec![transformed(builder, &transform, scores)?])
}

/// The labels of a classifier: those at the places of the largest scores.
pub(super) fn labels(b: &mut Builder, node: &mut Node, place: Operand, name: &str) -> Step {
    let numbers = node.ints(name)?.filter(|own| !own.is_empty());
    let texts = node.strings("classlabels_strings")?.unwrap_or_default();
    match numbers {
        Some(numbers) => {
            let numbers = b.integers(&numbers)?;
            b.apply(Gather { axis: 0 }, &[numbers, place])
        }
        None if texts.is_empty() => Ok(place),
        None => {
            let texts = b.texts(&texts)?;
            let label = b.apply(Gather { axis: 0 }, &[texts, place])?;
            Ok(b.as_text(label))
        }
    }
}

/// `ZipMap`: a map from classes to scores for each row.
pub(super) fn zip_maps(builder: &mut Builder, node: &mut Node) -> Outputs {
    let numbers = node.ints("classlabels_int64s")?.unwrap_or_default();
    let texts = node.strings("classlabels_strings")?.unwrap_or_default();
    let keys = match texts.is_empty() {
        false => builder.texts(&texts)?,
        true => builder.integers(&numbers)?,
    };
    let (mut values, count) = (node.input(0)?, builder.shape(keys)[0]);
    if builder.rank(values) == 1 {
        let wide = builder.shape(values)[0];
        values = builder.reshape(values, vec![1, wide])?;
    }
    match builder.shape(values)[..] {
        [_, wide] if wide == count => Ok(vec![builder.maps(keys, values)]),
        _ => Err(NodeError::invalid(format!("{count} classes for {:?}", builder.shape(values)))),
    }
}

/// The place of the largest score in each row.
pub(super) fn largest(b: &mut Builder, scores: Operand) -> Step {
    b.apply(ArgReduce { maximum: true, axis: 1, keep_axis: false, select_last: false }, &[scores])
}

/// `LinearClassifier`.
pub(super) fn linear_classifier(builder: &mut Builder, node: &mut Node) -> Outputs {
    let transform = node.string_or("post_transform", "NONE")?;
    node.ignore(&["multi_class"]);
    let mut scores = linear(builder, node, None)?;
    let place = if builder.shape(scores)[1] == 1 {
        // The score of the second of two classes.
        let flat = builder.shape(scores)[0];
        let above = builder.with_scalar(B::Greater, scores, 0.0)?;
        let own = transformed(builder, &transform, scores)?;
        let other = builder.scalar_with(B::Subtract, 1.0, own)?;
        scores = builder.concat(&[other, own], 1)?;
        let place = builder.cast(above, DataType::I64)?;
        builder.reshape(place, vec![flat])?
    } else {
        let place = largest(builder, scores)?;
        scores = transformed(builder, &transform, scores)?;
        place
    };
    let label = labels(builder, node, place, "classlabels_ints")?;
    Ok(vec![label, scores])
}
