//! One line of a log: `{"input": [target, task, arguments, {}], "config": {"index", "code_hash", "entity": [[knob, kind,
//! value], …]}, "result": [[seconds, …], error, seconds in all, time], "version": 0.2, "tvm_version": …}`. A kind is `sp` for
//! the factors of a loop that was split, outermost first, and `ot` for another value.

use super::workload::Workload;
use hone_tune::Choice;
use serde::Deserialize;
use serde_json::Value;

/// A line that a search here can begin with.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) target: String,
    pub(super) task: String,
    pub(super) workload: Workload,
    /// The innermost factor of each loop that was split, and the other values.
    pub(super) knobs: Vec<Choice>,
    /// Mean of the measured times.
    pub(super) seconds: f64,
}

#[derive(Deserialize)]
struct Line {
    input: (String, String, Vec<Value>, Value),
    config: Config,
    result: (Value, i64, f64, f64),
    version: f64,
}

#[derive(Deserialize)]
struct Config {
    entity: Vec<(String, String, Value)>,
}

/// The version of lines that is read.
const VERSION: f64 = 0.2;
/// Largest extent that is believed.
const MOST: u64 = 1 << 24;

/// Whether a line has what every line of a log has.
pub(super) fn is_one(text: &str) -> bool {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    ["input", "config", "result"].iter().all(|key| value.get(key).is_some())
}

/// What a line says.
///
/// # Errors
/// Why a search here cannot begin with it, in words that do not differ between lines of one log for one reason.
pub(super) fn parse(text: &str) -> Result<Measured, String> {
    let value: Value =
        serde_json::from_str(text).map_err(|_| "it is no line of AutoTVM".to_owned())?;
    match value.get("version").and_then(Value::as_f64) {
        Some(VERSION) => {}
        Some(other) => return Err(format!("it has version {other}, and 0.2 is read")),
        None => return Err("it has no version".to_owned()),
    }
    let line: Line =
        serde_json::from_value(value).map_err(|_| "it is no line of AutoTVM".to_owned())?;
    let (target, task, arguments, _) = line.input;
    debug_assert_eq!(line.version, VERSION);
    if line.result.1 != 0 {
        return Err(format!("it failed there with error {}", line.result.1));
    }
    let (workload, names) = match task.as_str() {
        "conv2d_NCHWc.x86" => (convolution(&arguments, false)?, CONVOLUTION),
        "depthwise_conv2d_NCHWc.x86" => (convolution(&arguments, true)?, CONVOLUTION),
        "dense_pack.x86" | "dense_nopack.x86" => (dense(&arguments)?, DENSE),
        other => return Err(format!("no template here is like '{other}'")),
    };
    let knobs = line.config.entity.iter().filter(|knob| names.contains(&knob.0.as_str()));
    let knobs = knobs.map(knob).collect::<Result<Vec<_>, _>>()?;
    Ok(Measured { target, task, workload, knobs, seconds: seconds(&line.result.0)? })
}

/// Knobs of convolutions. `tile_oh` is that of windows of one element.
const CONVOLUTION: &[&str] = &["tile_ic", "tile_oc", "tile_ow", "tile_oh", "unroll_kw"];
/// Knobs of products.
const DENSE: &[&str] = &["tile_y", "tile_x", "tile_k"];

fn knob((name, kind, value): &(String, String, Value)) -> Result<Choice, String> {
    let number = match (kind.as_str(), value) {
        ("sp", Value::Array(factors)) => factors.last().and_then(Value::as_i64),
        ("ot", Value::Bool(is_so)) => Some(i64::from(*is_so)),
        ("ot", value) => value.as_i64(),
        _ => None,
    };
    let least = if name == "unroll_kw" { 0 } else { 1 };
    number
        .filter(|number| (least..=MOST as i64).contains(number))
        .map(|number| Choice(name.clone(), number))
        .ok_or_else(|| format!("its knob '{name}' has another form"))
}

/// Mean of the times.
fn seconds(costs: &Value) -> Result<f64, String> {
    let times: Option<Vec<f64>> =
        costs.as_array().into_iter().flatten().map(Value::as_f64).collect();
    let times = times.unwrap_or_default();
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    match mean.is_finite() && mean > 0.0 {
        true => Ok(mean),
        false => Err("its costs are no times".to_owned()),
    }
}

/// Extents of an argument that is a tensor of f32.
fn tensor(arguments: &[Value], index: usize) -> Result<Vec<usize>, String> {
    let form = "its arguments have another form".to_owned();
    let Some([Value::String(kind), shape, Value::String(dtype)]) =
        arguments.get(index).and_then(Value::as_array).map(Vec::as_slice)
    else {
        return Err(form);
    };
    match (kind.as_str(), dtype.as_str()) {
        ("TENSOR", "float32") => sizes(shape),
        ("TENSOR", other) => {
            Err(format!("its numbers are {other}, and schedules of f32 are searched"))
        }
        _ => Err(form),
    }
}

/// Whole numbers of an array, or one for both axes.
fn sizes(value: &Value) -> Result<Vec<usize>, String> {
    let number = |value: &Value| {
        let number = value.as_u64().filter(|number| *number <= MOST);
        number.map(|number| number as usize).ok_or_else(|| "its shapes are no sizes".to_owned())
    };
    match value {
        Value::Array(all) => all.iter().map(number).collect(),
        one => Ok(vec![number(one)?; 2]),
    }
}

/// `[data, kernel, strides, padding, dilation, layout, layout of the result, type]`.
fn convolution(arguments: &[Value], depthwise: bool) -> Result<Workload, String> {
    let form = || "its arguments have another form".to_owned();
    if let Some(layout) = arguments[2.min(arguments.len())..]
        .iter()
        .filter_map(Value::as_str)
        .find(|text| text.starts_with('N') && *text != "NCHW")
    {
        return Err(format!("its layout is {layout}, and the shapes of NCHW are read"));
    }
    let (data, kernel) = (tensor(arguments, 0)?, tensor(arguments, 1)?);
    let numbers = |index: usize| sizes(arguments.get(index).unwrap_or(&Value::Null));
    let (strides, padding, dilation) = (numbers(2)?, numbers(3)?, numbers(4)?);
    let ([n, c, h, w], [co, ci, kh, kw]) = (&data[..], &kernel[..]) else { return Err(form()) };
    let ([sh, sw], [dh, dw]) = (&strides[..], &dilation[..]) else { return Err(form()) };
    // Top, left, bottom, right; or one for both sides.
    let (rows, columns) = match padding[..] {
        [top, left, bottom, right] => (top + bottom, left + right),
        [rows, columns] => (2 * rows, 2 * columns),
        _ => return Err(form()),
    };
    let groups = if depthwise { *c } else { 1 };
    let (inputs, outputs) = if depthwise { (1, co * ci) } else { (*c, *co) };
    if (!depthwise && ci != c) || (depthwise && co != c) {
        return Err("its channels do not fit each other".to_owned());
    }
    let results = |extent: usize, window: usize, stride: usize, dilation: usize| {
        let reach = window.checked_sub(1)? * dilation + 1;
        Some(extent.checked_sub(reach)?.checked_div(stride)? + 1)
    };
    let plane = results(h + rows, *kh, *sh, *dh).zip(results(w + columns, *kw, *sw, *dw));
    let plane = plane.filter(|_| *n * outputs * inputs > 0);
    let (oh, ow) = plane.ok_or_else(|| "it has no results".to_owned())?;
    Ok(Workload::Convolution {
        channels: [*n, inputs, groups, outputs],
        plane: [oh, ow],
        window: [*kh, *kw],
        strides: [*sh, *sw],
    })
}

/// `[data, weights, bias or null, type]`, the weights with one row for each column of the result.
fn dense(arguments: &[Value]) -> Result<Workload, String> {
    let (data, weights) = (tensor(arguments, 0)?, tensor(arguments, 1)?);
    match (&data[..], &weights[..]) {
        ([rows, depth], [columns, other]) if depth == other && rows * columns * depth > 0 => {
            Ok(Workload::Dense { rows: *rows, columns: *columns, depth: *depth })
        }
        _ => Err("its arguments have another form".to_owned()),
    }
}
