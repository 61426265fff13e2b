//! Single faults in the packed weights of an artifact.

use anyhow::{Context, Result};
use hone_artifact::{Argument, Reader, Slot, Writer};
use hone_model_builder::Random;

use crate::program::below;

/// For each call of the kernel of number `kernel`, the bytes of each argument that is a constant.
pub fn of_kernel(artifact: &[u8], kernel: usize) -> Result<Vec<Vec<Option<Vec<u8>>>>> {
    let reader = Reader::new(artifact)?;
    let variant = reader.manifest().variants.first().context("an artifact has a variant")?;
    let weights = reader.weights(variant.weights).context("its weights")?;
    // A kernel of several functions has a step for each, of the same arguments.
    let symbols = [format!("hone_k{kernel}"), format!("hone_k{kernel}_0")];
    let calls = variant.steps.iter().filter(|step| symbols.contains(&step.kernel));
    let constant = |argument: &Argument| match argument.slot {
        Slot::Weight { offset } => {
            weights.get(offset as usize..(offset + argument.bytes) as usize).map(<[u8]>::to_vec)
        }
        _ => None,
    };
    Ok(calls.map(|step| step.arguments.iter().map(constant).collect()).collect())
}

/// The artifact with one fault in the weights that a step reads, and what it is; the file is whole again,
/// with checksums that fit. `None` where the drawn fault changes nothing.
pub fn draw(artifact: &[u8], random: &mut Random) -> Result<Option<(Vec<u8>, String)>> {
    let reader = Reader::new(artifact)?;
    let mut manifest = reader.manifest().clone();
    let variant = manifest.variants.first_mut().context("an artifact has a variant")?;
    let mut weights = reader.weights(variant.weights).context("its weights")?.to_vec();
    let code = reader.code(variant.code).context("its code")?.to_vec();
    let regions: Vec<(String, usize, usize)> = variant
        .steps
        .iter()
        .flat_map(|step| step.arguments.iter().map(move |argument| (step, argument)))
        .filter_map(|(step, argument)| match argument.slot {
            Slot::Weight { offset } => {
                Some((step.nodes.join(", "), offset as usize, argument.bytes as usize))
            }
            _ => None,
        })
        .collect();
    if regions.is_empty() {
        return Ok(None);
    }
    let (nodes, offset, bytes) = &regions[below(random, regions.len())];
    let region = &mut weights[*offset..offset + bytes];
    let before = region.to_vec();
    let what = alter(region, random);
    if *region == before[..] {
        return Ok(None);
    }
    let mut writer = Writer::new();
    variant.code = writer.code(code);
    variant.weights = writer.weights(weights);
    writer.header(hone_artifact::c_header(&manifest, "model"));
    Ok(Some((writer.to_bytes(&manifest)?, format!("weights of {nodes}: {what}"))))
}

/// Changes some bytes of a constant.
fn alter(region: &mut [u8], random: &mut Random) -> &'static str {
    let place = below(random, region.len());
    match below(random, 3) {
        0 => {
            // The highest bit but one: of a byte much, of the exponent of a number everything.
            region[place] ^= 0x40;
            "one bit is flipped"
        }
        1 => {
            region[place] = region[place].wrapping_add(1);
            "one byte is one larger"
        }
        _ => {
            let lane = [4, 16, 32, 64][below(random, 4)].min(region.len() / 2).max(1);
            let (first, second) = region.split_at_mut(region.len() / 2);
            let width = lane.min(first.len()).min(second.len());
            first[..width].swap_with_slice(&mut second[..width]);
            "two channels are swapped"
        }
    }
}
