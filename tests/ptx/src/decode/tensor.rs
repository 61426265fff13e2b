//! Asynchronous copies and products of tensor cores.

use super::{Words, address, list, operand};
use crate::parse::Names;
use crate::program::{Operation, Register, Source};
use crate::tensor_core::Factors;
use crate::types::Type;
use crate::warpgroup::Product;
use anyhow::{Context, Result, anyhow, bail, ensure};

/// Asynchronous copies, and what tensor cores do.
pub(super) fn tensor(words: &Words<'_>, names: &mut Names) -> Result<Operation> {
    let name = words.words.join(".");
    Ok(match name.as_str() {
        "cp.async.commit_group" => Operation::CommitCopies,
        "cp.async.wait_all" => Operation::WaitCopies { groups: 0 },
        "cp.async.wait_group" => {
            Operation::WaitCopies { groups: words.operand(0)?.parse().context("groups")? }
        }
        "cp.async.cg.shared.global" | "cp.async.ca.shared.global" => Operation::CopyAsync {
            to: address(words.operand(0)?, names)?,
            from: address(words.operand(1)?, names)?,
            bytes: words.operand(2)?.parse().context("bytes")?,
            read: match words.operands.get(3) {
                Some(read) => Some(operand(read, Type::last_of(&["u32"])?, names)?),
                None => None,
            },
        },
        _ if name.starts_with("ldmatrix.sync.aligned.m8n8.") => {
            let to = list(words.operand(0)?).context("registers")?;
            let to: Vec<Register> =
                to.iter().map(|part| names.register(part)).collect::<Result<_>>()?;
            let number = if words.has("x4") {
                4
            } else if words.has("x2") {
                2
            } else {
                1
            };
            ensure!(to.len() == number && words.has("shared"), "matrices of another form");
            let address = address(words.operand(1)?, names)?;
            Operation::LoadMatrix { transposed: words.has("trans"), to, address }
        }
        _ if name.starts_with("mma.sync.aligned.") => return multiplication(words, &name, names),
        other => bail!("'{other}' is not known"),
    })
}

fn multiplication(words: &Words<'_>, name: &str, names: &mut Names) -> Result<Operation> {
    let form = name.strip_prefix("mma.sync.aligned.").unwrap_or_default();
    let ty = |word: &str| Type::named(word).with_context(|| format!("type {word}"));
    let factors = match form.split('.').collect::<Vec<_>>()[..] {
        ["m16n8k16", "row", "col", "f32", a @ ("f16" | "bf16"), b, "f32"] if a == b => {
            Factors::Floats(ty(a)?)
        }
        ["m16n8k8", "row", "col", "f32", "tf32", "tf32", "f32"] => Factors::TensorFloats,
        ["m16n8k32", "row", "col", "s32", a @ ("s8" | "u8"), b @ ("s8" | "u8"), "s32"] => {
            Factors::Bytes([ty(a)?, ty(b)?])
        }
        _ => bail!("'{name}' is not known"),
    };
    let word = ty("b32")?;
    let mut sources = |index: usize| -> Result<Vec<Source>> {
        let parts = list(words.operand(index)?).context("registers")?;
        parts.iter().map(|part| operand(part, word, names)).collect()
    };
    let (a, b, c) = (sources(1)?, sources(2)?, sources(3)?);
    let d = list(words.operand(0)?).context("registers")?;
    let d: Vec<Register> = d.iter().map(|part| names.register(part)).collect::<Result<_>>()?;
    let wrong = || anyhow!("not as many registers as matrices have");
    Ok(Operation::Multiply {
        factors,
        d: d.try_into().map_err(|_| wrong())?,
        a: a.try_into().map_err(|_| wrong())?,
        b: b.try_into().map_err(|_| wrong())?,
        c: c.try_into().map_err(|_| wrong())?,
    })
}

/// Products of warpgroups, and what orders them.
pub(super) fn warpgroup(words: &Words<'_>, names: &mut Names) -> Result<Operation> {
    let name = words.words.join(".");
    Ok(match name.as_str() {
        "fence.proxy.async" | "fence.proxy.async.shared::cta" => Operation::FenceWrites,
        "wgmma.fence.sync.aligned" => Operation::FenceWarpgroup,
        "wgmma.commit_group.sync.aligned" => Operation::CommitProducts,
        "wgmma.wait_group.sync.aligned" => {
            Operation::WaitProducts { groups: words.operand(0)?.parse().context("groups")? }
        }
        _ => {
            let form = name.strip_prefix("wgmma.mma_async.sync.aligned.");
            let form = form.with_context(|| format!("'{name}' is not known"))?;
            let factors = warpgroup_factors(form)?;
            let sums = list(words.operand(0)?).context("registers")?;
            let sums = sums.iter().map(|part| names.register(part)).collect::<Result<_>>()?;
            let long = Type::last_of(&["b64"])?;
            let descriptor = |index, names: &mut Names| operand(words.operand(index)?, long, names);
            let descriptors = [descriptor(1, names)?, descriptor(2, names)?];
            let added = names.register(words.operand(3)?)?;
            let rest: Vec<i32> = words.operands[4..]
                .iter()
                .map(|word| word.parse().context("a scale or an order"))
                .collect::<Result<_>>()?;
            Operation::MultiplyWarpgroup(Box::new(Product::new(
                factors,
                (sums, descriptors, added),
                &rest,
            )?))
        }
    })
}

/// What `m64n256k16.f32.f16.f16` multiplies, and its columns.
fn warpgroup_factors(form: &str) -> Result<(Factors, usize)> {
    let (shape, types) = form.split_once('.').context("types")?;
    let (columns, depth) = shape
        .strip_prefix("m64n")
        .and_then(|rest| rest.split_once('k'))
        .with_context(|| format!("shape {shape}"))?;
    let ty = |word: &str| Type::named(word).with_context(|| format!("type {word}"));
    let factors = match (depth, &types.split('.').collect::<Vec<_>>()[..]) {
        ("16", ["f32", a @ ("f16" | "bf16"), b]) if a == b => Factors::Floats(ty(a)?),
        ("8", ["f32", "tf32", "tf32"]) => Factors::TensorFloats,
        ("32", ["s32", a @ ("s8" | "u8"), b @ ("s8" | "u8")]) => Factors::Bytes([ty(a)?, ty(b)?]),
        _ => bail!("'{form}' is not known"),
    };
    let columns: usize = columns.parse().context("columns")?;
    ensure!(columns.is_multiple_of(8) && (8..=256).contains(&columns), "{columns} columns");
    Ok((factors, columns))
}
