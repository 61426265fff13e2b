//! The program of a variant made ready: entries of the table of pointers stand in place of slots.

use std::ops::Range;

use hone_artifact::{HostFunction, HostTensor, HostType, Slot, Step, Variant};

/// See [`hone_artifact::Part`]. Numbers of entries are those of a context's table of pointers.
pub(crate) enum Part {
    Calls(Range<usize>),
    If { condition: usize, then: Vec<Part>, otherwise: Vec<Part> },
    Loop(Box<Loop>),
    Host(Box<Host>),
}

/// See [`hone_artifact::Host`].
pub(crate) struct Host {
    /// Its place among the variant's functions, as profiles count them.
    pub(crate) index: usize,
    pub(crate) node: String,
    pub(crate) function: HostFunction,
    pub(crate) inputs: Vec<Option<(usize, HostType)>>,
    /// Each with its bytes.
    pub(crate) outputs: Vec<(usize, usize)>,
}

/// See [`hone_artifact::Loop`].
pub(crate) struct Loop {
    pub(crate) node: String,
    pub(crate) most: Option<u64>,
    pub(crate) trips: Option<usize>,
    pub(crate) condition: Option<usize>,
    pub(crate) goes_on: Option<usize>,
    pub(crate) capacity: Option<u64>,
    pub(crate) number: usize,
    pub(crate) count: usize,
    pub(crate) carried: Vec<Carried>,
    pub(crate) collected: Vec<Collected>,
    pub(crate) body: Vec<Part>,
    /// Entries of the table that lead to the other buffer of a carried value in every second iteration, and how
    /// far that is from their own.
    pub(crate) exchanges: Vec<(usize, isize)>,
}

pub(crate) struct Carried {
    pub(crate) initial: usize,
    pub(crate) current: usize,
    pub(crate) result: usize,
    pub(crate) bytes: usize,
}

pub(crate) struct Collected {
    pub(crate) from: usize,
    pub(crate) all: usize,
    pub(crate) bytes: usize,
    pub(crate) reversed: bool,
}

/// The parts of a variant in order, and the slots of the operands that they have beside those of the steps, in the
/// order of their entries. `steps` has the first entry of each step, and the number of all of them at its end.
pub(crate) fn program(variant: &Variant, steps: &[usize]) -> (Vec<Part>, Vec<Slot>) {
    let all = steps.last().copied().unwrap_or(0);
    let mut maker =
        Maker { steps: &variant.steps, first: steps, all, operands: Vec::new(), hosts: 0 };
    let parts = match variant.program.is_empty() {
        true => vec![Part::Calls(0..variant.steps.len())],
        false => maker.parts(&variant.program),
    };
    (parts, maker.operands)
}

struct Maker<'a> {
    steps: &'a [Step],
    first: &'a [usize],
    all: usize,
    operands: Vec<Slot>,
    /// Functions so far.
    hosts: usize,
}

impl Maker<'_> {
    fn entry(&mut self, slot: Slot) -> usize {
        self.operands.push(slot);
        self.all + self.operands.len() - 1
    }

    fn parts(&mut self, parts: &[hone_artifact::Part]) -> Vec<Part> {
        let make = |part: &hone_artifact::Part| match part {
            hone_artifact::Part::Steps { first, count } => {
                Part::Calls(*first as usize..*first as usize + *count as usize)
            }
            hone_artifact::Part::If(own) => Part::If {
                condition: self.entry(own.condition),
                then: self.parts(&own.then),
                otherwise: self.parts(&own.otherwise),
            },
            hone_artifact::Part::Loop(own) => Part::Loop(Box::new(self.repetition(own))),
            hone_artifact::Part::Host(own) => Part::Host(Box::new(self.host(own))),
        };
        parts.iter().map(make).collect()
    }

    fn host(&mut self, own: &hone_artifact::Host) -> Host {
        let input = |input: &Option<HostTensor>| {
            input.as_ref().map(|input| (self.entry(input.slot), input.of.clone()))
        };
        let inputs = own.inputs.iter().map(input).collect();
        let output = |output: &HostTensor| {
            // Validated: it lies in the arena or with the caller.
            (self.entry(output.slot), output.of.bytes().unwrap_or(0) as usize)
        };
        let outputs = own.outputs.iter().map(output).collect();
        let (node, function, index) = (own.node.clone(), own.function.clone(), self.hosts);
        self.hosts += 1;
        Host { index, node, function, inputs, outputs }
    }

    fn repetition(&mut self, own: &hone_artifact::Loop) -> Loop {
        let trips = own.trips.map(|slot| self.entry(slot));
        let condition = own.condition.map(|slot| self.entry(slot));
        let (number, count) = (self.entry(own.number), self.entry(own.count));
        let ends: Vec<[usize; 2]> = own
            .carried
            .iter()
            .map(|carried| [self.entry(carried.initial), self.entry(carried.result)])
            .collect();
        let alls: Vec<usize> =
            own.collected.iter().map(|collected| self.entry(collected.all)).collect();
        // From here on, entries follow the exchange.
        let begin = self.operands.len();
        let goes_on = own.goes_on.map(|slot| self.entry(slot));
        let carried = own.carried.iter().zip(ends).map(|(carried, [initial, result])| {
            let (current, bytes) = (self.entry(carried.current), carried.bytes as usize);
            Carried { initial, current, result, bytes }
        });
        let carried = carried.collect();
        let collected = own.collected.iter().zip(alls).map(|(collected, all)| {
            let (from, bytes) = (self.entry(collected.from), collected.bytes as usize);
            Collected { from, all, bytes, reversed: collected.reversed }
        });
        let collected = collected.collect();
        let body = self.parts(&own.body);
        let exchanges = self.exchanges(own, begin);
        let hone_artifact::Loop { node, most, capacity, .. } = own.clone();
        Loop {
            node,
            most,
            trips,
            condition,
            goes_on,
            capacity,
            number,
            count,
            carried,
            collected,
            body,
            exchanges,
        }
    }

    /// Entries of the loop's body, and of operands from number `begin` on, that lead to a carried value.
    fn exchanges(&self, own: &hone_artifact::Loop, begin: usize) -> Vec<(usize, isize)> {
        let mut exchanges = Vec::new();
        let mut add = |entry: usize, slot: Slot| {
            for carried in &own.carried {
                let (Slot::Arena { offset: current }, Slot::Arena { offset: next }) =
                    (carried.current, carried.next)
                else {
                    continue;
                };
                let apart = next as isize - current as isize;
                match slot {
                    own if own == carried.current => exchanges.push((entry, apart)),
                    own if own == carried.next => exchanges.push((entry, -apart)),
                    _ => {}
                }
            }
        };
        let range = steps_of(&own.body);
        for index in range {
            let arguments = self.steps[index].arguments.iter().enumerate();
            arguments.for_each(|(place, argument)| add(self.first[index] + place, argument.slot));
        }
        for (place, slot) in self.operands.iter().enumerate().skip(begin) {
            add(self.all + place, *slot);
        }
        exchanges
    }
}

/// The steps of some parts, those inside included; they follow one another.
fn steps_of(parts: &[hone_artifact::Part]) -> Range<usize> {
    use hone_artifact::Part;
    let join = |a: Range<usize>, b: Range<usize>| match (a.is_empty(), b.is_empty()) {
        (true, _) => b,
        (_, true) => a,
        _ => a.start.min(b.start)..a.end.max(b.end),
    };
    let ranges = parts.iter().map(|part| match part {
        Part::Steps { first, count } => *first as usize..*first as usize + *count as usize,
        Part::If(own) => join(steps_of(&own.then), steps_of(&own.otherwise)),
        Part::Loop(own) => steps_of(&own.body),
        Part::Host(_) => 0..0,
    });
    ranges.fold(0..0, join)
}
