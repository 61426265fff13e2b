//! Checks of a variant's program: it names every step once and in order, its buffers lie where they may, and a
//! kernel that finds the other buffer of a carried value reaches no byte beyond it.

use crate::host::{Host, HostType};
use crate::manifest::{Access, Manifest, Slot, Variant};
use crate::program::{If, Loop, MAX_PROGRAM_DEPTH, Part};

/// Bytes of a number that a program reads or stores.
const NUMBER: u64 = 8;

impl Manifest {
    /// Checks program and extents of a variant.
    pub(crate) fn check_program(&self, variant: &Variant) -> Result<(), String> {
        let uses = !variant.program.is_empty() || !variant.extents.is_empty();
        if uses && self.schema_version < 2 {
            return Err("it has a program, which schema version 1 does not know".into());
        }
        for extent in &variant.extents {
            let output = self.outputs.get(extent.output as usize);
            if output.is_none_or(|output| extent.axis as usize >= output.shape.len()) {
                let (output, axis) = (extent.output, extent.axis);
                return Err(format!("there is no axis {axis} of an output {output}"));
            }
            self.check_slot(variant, extent.slot, NUMBER, Access::Read)?;
        }
        if variant.program.is_empty() {
            return Ok(());
        }
        let mut check = Check { manifest: self, variant, next: 0, exchanged: Vec::new() };
        check.parts(&variant.program, 0)?;
        match check.next == variant.steps.len() as u64 {
            true => Ok(()),
            false => Err(format!("its program ends before step {}", check.next)),
        }
    }
}

struct Check<'a> {
    manifest: &'a Manifest,
    variant: &'a Variant,
    /// The step that the program must name next.
    next: u64,
    /// Of the loops around: places of buffers that may be exchanged, and their sizes.
    exchanged: Vec<(Slot, u64)>,
}

impl Check<'_> {
    fn parts(&mut self, parts: &[Part], depth: usize) -> Result<(), String> {
        if depth > MAX_PROGRAM_DEPTH {
            return Err(format!("its program is nested deeper than {MAX_PROGRAM_DEPTH}"));
        }
        for part in parts {
            match part {
                Part::Steps { first, count } => self.steps(*first, *count)?,
                Part::If(own) => self
                    .choice(own, depth)
                    .map_err(|what| format!("condition '{}': {what}", own.node))?,
                Part::Loop(own) => self
                    .repetition(own, depth)
                    .map_err(|what| format!("loop '{}': {what}", own.node))?,
                Part::Host(own) => {
                    self.host(own).map_err(|what| format!("node '{}': {what}", own.node))?;
                }
            }
        }
        Ok(())
    }

    fn steps(&mut self, first: u32, count: u32) -> Result<(), String> {
        let end = u64::from(first) + u64::from(count);
        if u64::from(first) != self.next || end > self.variant.steps.len() as u64 {
            let next = self.next;
            return Err(format!(
                "its program names steps {first} to {end} where step {next} is due"
            ));
        }
        let range = first as usize..end as usize;
        for argument in self.variant.steps[range].iter().flat_map(|step| &step.arguments) {
            self.reach(argument.slot, argument.bytes)?;
        }
        self.next = end;
        Ok(())
    }

    fn choice(&mut self, own: &If, depth: usize) -> Result<(), String> {
        self.read(own.condition, 1)?;
        self.parts(&own.then, depth + 1)?;
        self.parts(&own.otherwise, depth + 1)
    }

    fn repetition(&mut self, own: &Loop, depth: usize) -> Result<(), String> {
        own.trips.map_or(Ok(()), |slot| self.read(slot, NUMBER))?;
        own.condition.map_or(Ok(()), |slot| self.read(slot, 1))?;
        self.write(own.number, NUMBER)?;
        self.write(own.count, NUMBER)?;
        let before = self.exchanged.len();
        for carried in &own.carried {
            let bytes = carried.bytes;
            self.read(carried.initial, bytes)?;
            self.write(carried.result, bytes)?;
            for slot in [carried.current, carried.next] {
                self.write(slot, bytes)?;
                if !matches!(slot, Slot::Arena { .. }) {
                    return Err("a carried value does not lie in the arena".into());
                }
                if self.exchanged.iter().any(|(known, _)| *known == slot) {
                    return Err("two carried values lie in one place".into());
                }
                // The size is that of the smallest buffer that may come to lie there.
                self.exchanged.push((slot, bytes));
            }
        }
        for collected in &own.collected {
            let all = own.capacity.and_then(|capacity| capacity.checked_mul(collected.bytes));
            let all = all.ok_or("nothing says how much room what it collects has")?;
            self.write(collected.all, all)?;
            if collected.reversed && (own.most != own.capacity || own.trips.is_some()) {
                return Err("it collects backwards without a fixed number of iterations".into());
            }
        }
        self.parts(&own.body, depth + 1)?;
        own.goes_on.map_or(Ok(()), |slot| self.read(slot, 1))?;
        for collected in &own.collected {
            self.read(collected.from, collected.bytes)?;
        }
        self.exchanged.truncate(before);
        Ok(())
    }

    fn host(&self, own: &Host) -> Result<(), String> {
        let inputs: Vec<Option<&HostType>> =
            own.inputs.iter().map(|input| input.as_ref().map(|own| &own.of)).collect();
        let bytes = |of: &HostType| of.bytes().ok_or("a tensor is too large");
        for input in own.inputs.iter().flatten() {
            self.read(input.slot, bytes(&input.of)?)?;
        }
        let expected = own.function.outputs(&inputs)?;
        if expected.iter().ne(own.outputs.iter().map(|output| &output.of)) {
            return Err("its results have other types than the function gives".into());
        }
        own.outputs.iter().try_for_each(|output| self.write(output.slot, bytes(&output.of)?))
    }

    fn read(&self, slot: Slot, bytes: u64) -> Result<(), String> {
        self.manifest.check_slot(self.variant, slot, bytes, Access::Read)?;
        self.reach(slot, bytes)
    }

    fn write(&self, slot: Slot, bytes: u64) -> Result<(), String> {
        self.manifest.check_slot(self.variant, slot, bytes, Access::Write)?;
        self.reach(slot, bytes)
    }

    /// Whether a buffer that may be exchanged for another is no larger than that.
    fn reach(&self, slot: Slot, bytes: u64) -> Result<(), String> {
        match self.exchanged.iter().find(|(own, size)| *own == slot && *size < bytes) {
            None => Ok(()),
            Some((_, size)) => {
                Err(format!("{bytes} bytes are accessed of a carried value of {size} bytes"))
            }
        }
    }
}
