//! What an artifact holds and where, checked without running it: packed weights byte for byte, and the
//! memory plan by following each value from its writer to its readers.
//!
//! Two values never lie in the same memory while both are needed, but for a join and its inputs, which are parts of it.
//!
//! Of graphs inside of nodes, weights and overlaps are checked, and that nothing that is needed later lies where they
//! write; what they read and give is followed by whole runs alone.

use std::collections::{BTreeMap, HashMap, HashSet};

use hone_artifact::{Access, Argument, Part, Slot, Variant};
use hone_driver::ops::Join;
use hone_driver::{Definition, Id, MappedCall, NodeId, StepMap, ValueId};

/// Checks weights and memory plan. `weights` is the section that the variant's steps refer to.
///
/// # Errors
/// The first thing that does not hold, in words that name steps and nodes.
pub fn check(map: &StepMap, variant: &Variant, weights: &[u8]) -> Result<(), String> {
    let mut memory = Memory::new(map);
    let parts = variant.program.iter().filter(|part| !matches!(part, Part::Steps { .. }));
    let mut regions = map.regions.iter().zip(parts).peekable();
    for (number, call) in map.calls.iter().enumerate() {
        while let Some((_, part)) = regions.next_if(|(own, _)| own.calls_before <= number) {
            memory.write_part(part, variant);
        }
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
    regions.for_each(|(_, part)| memory.write_part(part, variant));
    for graph in map.regions.iter().flat_map(|regions| &regions.graphs) {
        check_inside(graph, variant, weights)?;
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

/// Checks weights and overlaps of the calls of a graph inside of a node.
fn check_inside(map: &StepMap, variant: &Variant, weights: &[u8]) -> Result<(), String> {
    for call in &map.calls {
        let step = &variant.steps[call.steps.start];
        let at = |why| format!("step {} ({}): {why}", call.steps.start, step.nodes.join(", "));
        overlaps(call, &step.arguments).map_err(at)?;
        for (value, argument) in call.parameters.iter().zip(&step.arguments).take(call.inputs) {
            let root = map.roots[value.index()];
            match argument.slot {
                Slot::Weight { offset } => constant(map, *value, weights, offset).map_err(at)?,
                _ if map.graph.constant(root).is_some() => {
                    return Err(at("it reads a constant elsewhere than in the weights".to_owned()));
                }
                _ => {}
            }
        }
    }
    let inside = map.regions.iter().flat_map(|regions| &regions.graphs);
    inside.into_iter().try_for_each(|graph| check_inside(graph, variant, weights))
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
    /// Nodes with graphs inside, whose results are not followed.
    opaque: HashSet<NodeId>,
}

impl<'a> Memory<'a> {
    fn new(map: &'a StepMap) -> Self {
        let (regions, values) = (BTreeMap::new(), HashMap::new());
        let opaque = map.regions.iter().map(|regions| regions.node).collect();
        let mut memory = Self { map, regions, values, lost: HashMap::new(), opaque };
        for (id, value) in map.graph.values().iter() {
            if let Definition::Input(index) = value.definition {
                let bytes = value.tensor_type.bytes() as u64;
                memory.put(id, (Space::Input(index as u32), 0, bytes));
            }
        }
        memory
    }

    /// Whether a value lies whole where an argument reads it. What nobody wrote may still be there part by part: the
    /// inputs of a join, one after another.
    fn holds(&self, value: ValueId, argument: &Argument) -> Result<(), String> {
        let (space, begin, end) = region(argument);
        let mut pending = vec![(value, (space, begin, end))];
        while let Some((value, place)) = pending.pop() {
            let producer = self.map.graph.producer(value);
            let (_, begin, end) = place;
            if begin == end || producer.is_some_and(|node| self.opaque.contains(&node)) {
                continue;
            }
            let name = &self.map.graph.values()[value].name;
            match (self.values.get(&value), self.lost.get(&value)) {
                (Some(found), _) if *found == place => {}
                (Some(_), _) => {
                    return Err(format!("value '{name}' does not lie where it is read"));
                }
                (None, Some(step)) => {
                    return Err(format!("value '{name}' was overwritten by step {step}"));
                }
                (None, None) => match self.parts(value, (space, begin)) {
                    Some(parts) => pending.extend(parts),
                    None => return Err(format!("value '{name}' was never written")),
                },
            }
        }
        Ok(())
    }

    /// The inputs of the join that makes a value, and where each of them lies if the value begins at `begin`.
    fn parts(
        &self,
        value: ValueId,
        (space, begin): (Space, u64),
    ) -> Option<Vec<(ValueId, Region)>> {
        let node = &self.map.graph.nodes()[self.map.graph.producer(value)?];
        node.operation.downcast::<Join>()?;
        let types = || node.inputs.iter().flatten().map(|part| self.map.graph.tensor_type(*part));
        let places = node.inputs.iter().flatten().zip(Join::offsets(types())).zip(types());
        let parts = places.map(|((part, offset), of)| {
            let first = begin + offset as u64;
            (self.map.roots[part.index()], (space, first, first + of.bytes() as u64))
        });
        Some(parts.collect())
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

    /// Notes everything that a part of a program may write.
    fn write_part(&mut self, part: &Part, variant: &Variant) {
        match part {
            Part::Steps { first, count } => {
                for index in *first as usize..*first as usize + *count as usize {
                    let arguments = variant.steps[index].arguments.iter();
                    let written = arguments.filter(|argument| argument.access != Access::Read);
                    written.for_each(|argument| self.write(None, argument, index));
                }
            }
            Part::Host(own) => {
                for output in &own.outputs {
                    let bytes = output.of.bytes().unwrap_or(0);
                    let argument = Argument { slot: output.slot, bytes, access: Access::Write };
                    self.write(None, &argument, 0);
                }
            }
            Part::If(own) => {
                own.then
                    .iter()
                    .chain(&own.otherwise)
                    .for_each(|part| self.write_part(part, variant));
            }
            Part::Loop(own) => {
                let mut buffers = vec![(own.number, 8), (own.count, 8)];
                for carried in &own.carried {
                    let all = [carried.current, carried.next, carried.result];
                    buffers.extend(all.map(|slot| (slot, carried.bytes)));
                }
                let capacity = own.capacity.unwrap_or(0);
                let collected = own.collected.iter();
                buffers.extend(collected.map(|own| (own.all, capacity * own.bytes)));
                for (slot, bytes) in buffers {
                    self.write(None, &Argument { slot, bytes, access: Access::Write }, 0);
                }
                own.body.iter().for_each(|part| self.write_part(part, variant));
            }
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
