//! What an artifact holds and where, checked without running it: packed weights byte for byte, and the
//! memory plan by following each value from its writer to its readers.

use std::collections::{BTreeMap, HashMap};

use hone_artifact::{Access, Argument, Slot, Variant};
use hone_driver::{Definition, Id, MappedCall, StepMap, ValueId};

/// Checks weights and memory plan. `weights` is the section that the variant's steps refer to.
///
/// # Errors
/// The first thing that does not hold, in words that name steps and nodes.
pub fn check(map: &StepMap, variant: &Variant, weights: &[u8]) -> Result<(), String> {
    let mut memory = Memory::new(map);
    for call in &map.calls {
        let step = &variant.steps[call.steps.start];
        let at = || format!("step {} ({})", call.steps.start, step.nodes.join(", "));
        overlaps(call, &step.arguments).map_err(|why| format!("{}: {why}", at()))?;
        for (value, argument) in call.parameters.iter().zip(&step.arguments).take(call.inputs) {
            let found = match argument.slot {
                Slot::Weight { offset } => constant(map, *value, weights, offset),
                _ => memory.holds(map.roots[value.index()], argument),
            };
            found.map_err(|why| format!("{}: {why}", at()))?;
        }
        for (place, argument) in step.arguments.iter().enumerate().skip(call.inputs) {
            let value = call.parameters.get(place).map(|value| map.roots[value.index()]);
            memory.write(value, argument, call.steps.start);
        }
    }
    for (index, port) in map.graph.outputs().iter().enumerate() {
        let bytes = map.graph.tensor_type(port.value).bytes() as u64;
        let slot = Slot::Output { index: index as u32, offset: 0 };
        let whole = Argument { slot, bytes, access: Access::Read };
        memory
            .holds(map.roots[port.value.index()], &whole)
            .map_err(|why| format!("output '{}': {why}", port.name))?;
    }
    Ok(())
}

/// Whether the weights hold a constant at `offset`.
fn constant(map: &StepMap, value: ValueId, weights: &[u8], offset: u64) -> Result<(), String> {
    let root = map.roots[value.index()];
    let Some(tensor) = map.graph.constant(root) else {
        return Err("it reads weights where the model has a computed value".to_owned());
    };
    let begin = offset as usize;
    let found = weights.get(begin..begin + tensor.bytes().len());
    let wrong = match found {
        None => return Err("a weight lies beyond the end of the weights".to_owned()),
        Some(found) => found.iter().zip(tensor.bytes()).position(|(a, b)| a != b),
    };
    match wrong {
        None => Ok(()),
        Some(byte) => {
            let name = &map.graph.values()[root].name;
            Err(format!("weight '{name}' differs from the model's constant at byte {byte}"))
        }
    }
}

/// Whether a buffer that the kernel writes overlaps another of its buffers: kernels read and write in any
/// order, none works in place.
fn overlaps(call: &MappedCall, arguments: &[Argument]) -> Result<(), String> {
    for (place, written) in arguments.iter().enumerate().skip(call.inputs) {
        for (other, argument) in arguments.iter().enumerate().filter(|(other, _)| *other != place) {
            if overlap(region(written), region(argument)) {
                return Err(format!("it writes argument {place} over argument {other}"));
            }
        }
    }
    Ok(())
}

/// Kinds of memory that values lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Space {
    Input(u32),
    Output(u32),
    Arena,
    Weights,
}

/// A stretch of memory: first byte, and the one behind the last.
type Region = (Space, u64, u64);

fn region(argument: &Argument) -> Region {
    let (space, offset) = match argument.slot {
        Slot::Input { index, offset } => (Space::Input(index), offset),
        Slot::Output { index, offset } => (Space::Output(index), offset),
        Slot::Arena { offset } => (Space::Arena, offset),
        Slot::Weight { offset } => (Space::Weights, offset),
    };
    (space, offset, offset + argument.bytes)
}

fn overlap(a: Region, b: Region) -> bool {
    a.0 == b.0 && a.1 < b.2 && b.1 < a.2
}

/// What lies where as steps go by.
struct Memory<'a> {
    map: &'a StepMap,
    /// By space and first byte: the byte behind the last, and the value. No two of them overlap.
    regions: BTreeMap<(Space, u64), (u64, ValueId)>,
    values: HashMap<ValueId, Region>,
    /// Values that were overwritten, and the step that did.
    lost: HashMap<ValueId, usize>,
}

impl<'a> Memory<'a> {
    fn new(map: &'a StepMap) -> Self {
        let (regions, values) = (BTreeMap::new(), HashMap::new());
        let mut memory = Self { map, regions, values, lost: HashMap::new() };
        for (id, value) in map.graph.values().iter() {
            if let Definition::Input(index) = value.definition {
                let bytes = value.tensor_type.bytes() as u64;
                memory.put(id, (Space::Input(index as u32), 0, bytes));
            }
        }
        memory
    }

    /// Whether a value lies whole where an argument reads it.
    fn holds(&self, value: ValueId, argument: &Argument) -> Result<(), String> {
        if argument.bytes == 0 {
            return Ok(());
        }
        let name = &self.map.graph.values()[value].name;
        match (self.values.get(&value), self.lost.get(&value)) {
            (Some(found), _) if *found == region(argument) => Ok(()),
            (Some(_), _) => Err(format!("value '{name}' does not lie where it is read")),
            (None, Some(step)) => Err(format!("value '{name}' was overwritten by step {step}")),
            (None, None) => Err(format!("value '{name}' was never written")),
        }
    }

    /// Notes that a step writes an argument; whatever lay there is lost.
    fn write(&mut self, value: Option<ValueId>, argument: &Argument, step: usize) {
        let (space, begin, end) = region(argument);
        while let Some((&(found, first), &(last, old))) =
            self.regions.range(..(space, end)).next_back()
            && found == space
            && last > begin
        {
            self.regions.remove(&(found, first));
            self.values.remove(&old);
            self.lost.insert(old, step);
        }
        if let Some(value) = value {
            self.put(value, (space, begin, end));
        }
    }

    fn put(&mut self, value: ValueId, region: Region) {
        let (space, begin, end) = region;
        if begin < end {
            self.regions.insert((space, begin), (end, value));
            self.values.insert(value, region);
        }
    }
}
