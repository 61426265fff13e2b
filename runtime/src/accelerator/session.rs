//! What one run at a time on a device needs for itself: memory, kernels, queues; and the run.

mod transfers;

use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use hone_artifact::{HostValue, LaunchArgument, Texts};

use super::DeviceError;
use super::code::{Code, Ready};
use super::driver::{Launch, Value};
use super::memory::{Entry, Memory, Space};
use super::objects::Kernel;
use super::queue::{Event, Queue};
use super::sequences::Sequences;
use crate::RunError;
use crate::images::Decoder;
use crate::plan::Plan;
use crate::profile::Profile;
use crate::program::{Host, Loop, Part};

/// Commands whose times are kept before they are added up.
const MOST_EVENTS: usize = 4096;

/// See the module's documentation.
pub(crate) struct Session {
    /// What was recorded; before the kernels and buffers that it uses.
    sequences: Sequences,
    code: Arc<Code>,
    memory: Memory,
    /// Where each entry of the table of operands lies; see [`Plan::slots`].
    table: Vec<Entry>,
    /// By the number of [`Code::kernels`].
    kernels: Vec<Kernel>,
    /// One for runs, and one for those that are timed.
    queues: [Queue; 2],
    /// Which of them the run under way uses.
    timed: bool,
    /// Commands of the run under way with their steps, where it is timed.
    events: Vec<(usize, Event)>,
    /// Arguments of the launch under way.
    values: Vec<Value>,
    /// Counters of the repetitions under way, outermost first.
    counters: Vec<i64>,
    /// Extents of outputs that the last run decided.
    extents: Vec<u64>,
    /// Why the device is not asked again.
    lost: Option<RunError>,
    /// The strings that handles stand for.
    texts: Texts,
    bytes: u64,
}

impl Session {
    /// Reserves all that runs of `plan` need on the device of `code`; `texts` are the strings of constants.
    ///
    /// # Errors
    /// Too little memory; a kernel that the driver refuses.
    pub(crate) fn new(plan: &Plan, code: &Arc<Code>, texts: &Texts) -> Result<Self, DeviceError> {
        let (memory, table, bytes) = Memory::new(plan, code)?;
        let context = &code.context;
        let kernels = code.kernels.iter().map(|needs| code.program.kernel(needs));
        Ok(Self {
            kernels: kernels.collect::<Result<_, _>>()?,
            queues: [
                Queue::new(context, false, code.timeout)?,
                Queue::new(context, true, code.timeout)?,
            ],
            sequences: Sequences::default(),
            code: code.clone(),
            memory,
            table,
            timed: false,
            events: Vec::new(),
            values: Vec::new(),
            counters: Vec::new(),
            extents: Vec::new(),
            lost: None,
            texts: texts.clone(),
            bytes,
        })
    }

    /// The code, for other sessions.
    pub(crate) fn code(&self) -> Arc<Code> {
        self.code.clone()
    }

    /// The strings that handles stand for.
    pub(crate) fn texts(&mut self) -> &mut Texts {
        &mut self.texts
    }

    /// The string that a handle stands for.
    pub(crate) fn text(&self, handle: u64) -> Option<&str> {
        self.texts.get(handle)
    }

    /// Bytes reserved on the device beside the weights.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Extents of outputs that the last run decided, in the manifest's order.
    pub(crate) fn extents(&self) -> &[u64] {
        &self.extents
    }

    /// Puts the inputs into the device's memory, runs the program there, and takes the outputs out.
    ///
    /// # Errors
    /// What went wrong on the device, after which it is not asked again; a loop that goes on beyond the room for what
    /// it collects, a host function that cannot be computed.
    ///
    /// # Safety
    /// The pointers are the model's inputs and outputs in order, each of its tensor's size, and nothing else touches
    /// them until the end.
    pub(crate) unsafe fn run(
        &mut self,
        plan: &Plan,
        inputs: &[*const c_void],
        outputs: &[*mut c_void],
        mut profile: Option<&mut Profile>,
    ) -> Result<(), RunError> {
        self.timed = profile.is_some();
        if let Some(profile) = profile.as_deref_mut() {
            profile.clear();
        }
        let start = Instant::now();
        let done = self.guarded(|session| {
            for (index, tensor) in plan.tensors(false).iter().enumerate() {
                // SAFETY: the caller's promise.
                unsafe { session.take(index, inputs[index], tensor.bytes)? };
            }
            session.parts(plan, &plan.program, &mut profile)?;
            for (index, tensor) in plan.tensors(true).iter().enumerate() {
                // SAFETY: as above.
                unsafe { session.give(index, outputs[index], tensor.bytes)? };
            }
            session.extents = plan
                .extents()
                .map(|entry| Ok(session.number(entry)?.max(0) as u64))
                .collect::<Result<_, RunError>>()?;
            session.settle(&mut profile)
        });
        self.events.clear();
        if let Some(profile) = profile {
            profile.total = start.elapsed();
        }
        done
    }

    /// Does something with the device, unless it is lost, and notes when it gets lost.
    pub(super) fn guarded(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<(), RunError>,
    ) -> Result<(), RunError> {
        if let Some(lost) = &self.lost {
            return Err(lost.clone());
        }
        let mut done = work(self);
        let is_lost = |done: &Result<(), RunError>| {
            matches!(done, Err(RunError::DeviceLost { .. } | RunError::DeviceTimeout { .. }))
        };
        // What is under way would meet the next run, which may use the other queue.
        if done.is_err() && !is_lost(&done) {
            done = self.queue().finish().and(done);
        }
        self.lost = is_lost(&done).then(|| done.clone().err()).flatten();
        done
    }

    fn queue(&mut self) -> &mut Queue {
        &mut self.queues[usize::from(self.timed)]
    }

    /// Runs parts of the program, in order.
    fn parts(
        &mut self,
        plan: &Plan,
        parts: &[Part],
        profile: &mut Option<&mut Profile>,
    ) -> Result<(), RunError> {
        for part in parts {
            match part {
                Part::Calls(range) => self.calls(plan, range.clone(), profile)?,
                Part::If { condition, then, otherwise } => {
                    let taken = if self.holds(*condition)? { then } else { otherwise };
                    self.parts(plan, taken, profile)?;
                }
                Part::Loop(repeated) => self.repeat(plan, repeated, profile)?,
                Part::Host(function) => self.host(function)?,
            }
        }
        Ok(())
    }

    /// Runs some steps: by one call where they were recorded, else one by one.
    fn calls(
        &mut self,
        plan: &Plan,
        steps: Range<usize>,
        profile: &mut Option<&mut Profile>,
    ) -> Result<(), RunError> {
        if self.timed {
            return self.launches(plan, steps, profile);
        }
        let operands = plan.first_entry(steps.start)..plan.first_entry(steps.end);
        if let Some(recorded) = self.sequences.of(&steps, &self.table[operands.clone()]) {
            return self.queues[0].launch_recorded(recorded);
        }
        self.launches(plan, steps.clone(), profile)?;
        if self.sequences.wants(&steps, self.code.launches(steps.clone())) {
            let recorded = match self.queues[0].record()? {
                false => None,
                true => {
                    let put = self.launches(plan, steps.clone(), &mut None);
                    // What is refused here is so again when it is launched.
                    self.queues[0].recorded().filter(|_| put.is_ok())
                }
            };
            self.sequences.keep(&steps, &self.table[operands], recorded);
        }
        Ok(())
    }

    /// Launches some steps one by one.
    pub(super) fn launches(
        &mut self,
        plan: &Plan,
        range: Range<usize>,
        profile: &mut Option<&mut Profile>,
    ) -> Result<(), RunError> {
        let code = self.code.clone();
        for step in range {
            let first = plan.first_entry(step);
            self.commands(code.commands(step), first, step)?;
            if let Some(timing) =
                profile.as_deref_mut().and_then(|timing| timing.steps.get_mut(step))
            {
                timing.runs += 1;
                timing.threads = 1;
            }
            if self.events.len() > MOST_EVENTS {
                self.settle(profile)?;
            }
        }
        Ok(())
    }

    fn commands(&mut self, commands: &[Ready], first: usize, step: usize) -> Result<(), RunError> {
        for command in commands {
            match command {
                Ready::Launch { kernel, grid, block, arguments } => {
                    let Self { table, counters, kernels, queues, timed, values, .. } = self;
                    let value = |argument: &LaunchArgument| match *argument {
                        LaunchArgument::Buffer(argument) => {
                            Value::Buffer(table[first + argument as usize].handle)
                        }
                        LaunchArgument::Counter(depth) => Value::Counter(counters[depth as usize]),
                    };
                    values.clear();
                    values.extend(arguments.iter().map(value));
                    let event = queues[usize::from(*timed)].launch(&Launch {
                        kernel: kernels[*kernel].handle(),
                        arguments: values,
                        grid: *grid,
                        block: *block,
                        timed: *timed,
                    })?;
                    self.events.extend(event.map(|event| (step, event)));
                }
                Ready::Repeat { times, body } => {
                    for round in 0..*times {
                        self.counters.push(round as i64);
                        let done = self.commands(body, first, step);
                        self.counters.pop();
                        done?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Waits for everything, and adds up how long each step took.
    fn settle(&mut self, profile: &mut Option<&mut Profile>) -> Result<(), RunError> {
        self.queue().finish()?;
        for (step, event) in self.events.drain(..) {
            if let Some(timing) =
                profile.as_deref_mut().and_then(|timing| timing.steps.get_mut(step))
            {
                timing.time += event.time();
            }
        }
        Ok(())
    }

    /// Computes what has a size that depends on data, here.
    fn host(&mut self, host: &Host) -> Result<(), RunError> {
        let mut contents: Vec<Option<Vec<u8>>> = Vec::with_capacity(host.inputs.len());
        for input in &host.inputs {
            contents.push(match input {
                None => None,
                Some((entry, of)) => {
                    // The manifest was validated: the size fits.
                    let mut bytes = vec![0; of.bytes().unwrap_or(0) as usize];
                    self.read(self.at(*entry), &mut bytes)?;
                    Some(bytes)
                }
            });
        }
        let inputs: Vec<Option<HostValue<'_>>> = host
            .inputs
            .iter()
            .zip(&contents)
            .map(|(input, bytes)| {
                let (_, of) = input.as_ref()?;
                Some(HostValue { of, bytes: bytes.as_deref()? })
            })
            .collect();
        let decoder = Decoder::current();
        let results = host.function.compute_with(&inputs, &mut self.texts, &decoder.tools());
        let results =
            results.map_err(|reason| RunError::Host { node: host.node.clone(), reason })?;
        for ((entry, _), bytes) in host.outputs.iter().zip(results) {
            self.write(self.at(*entry), &bytes)?;
        }
        Ok(())
    }

    /// Runs a loop; see [`hone_artifact::Loop`]. The entries that it exchanges are as before at its end.
    fn repeat(
        &mut self,
        plan: &Plan,
        repeated: &Loop,
        profile: &mut Option<&mut Profile>,
    ) -> Result<(), RunError> {
        let trips = repeated.trips.map(|entry| self.number(entry)).transpose()?;
        let trips = trips.map(|trips| trips.max(0) as u64);
        let most = repeated.most.into_iter().chain(trips).min().unwrap_or(u64::MAX);
        let mut goes_on = repeated.condition.map_or(Ok(true), |entry| self.holds(entry))?;
        for carried in &repeated.carried {
            self.copy(carried.initial, (carried.current, 0), carried.bytes as u64)?;
        }
        let mut count = 0;
        let mut done = Ok(());
        while goes_on && count < most && done.is_ok() {
            if repeated.capacity.is_some_and(|capacity| count >= capacity) {
                done = Err(RunError::Overrun { node: repeated.node.clone(), capacity: count });
                break;
            }
            match self.iteration(plan, repeated, (count, most), profile) {
                Ok(again) => {
                    goes_on = again;
                    self.exchange(repeated);
                    count += 1;
                }
                Err(error) => done = Err(error),
            }
        }
        if done.is_ok() {
            done = self.results(repeated, count);
        }
        if count % 2 == 1 {
            self.exchange(repeated);
        }
        done
    }

    /// One iteration; whether the loop goes on.
    fn iteration(
        &mut self,
        plan: &Plan,
        repeated: &Loop,
        (count, most): (u64, u64),
        profile: &mut Option<&mut Profile>,
    ) -> Result<bool, RunError> {
        self.store(repeated.number, count as i64)?;
        self.parts(plan, &repeated.body, profile)?;
        for collected in &repeated.collected {
            let index = if collected.reversed { most - 1 - count } else { count };
            let bytes = collected.bytes as u64;
            self.copy(collected.from, (collected.all, index * bytes), bytes)?;
        }
        repeated.goes_on.map_or(Ok(true), |entry| self.holds(entry))
    }

    /// Puts what a loop gives where it belongs.
    fn results(&mut self, repeated: &Loop, count: u64) -> Result<(), RunError> {
        for carried in &repeated.carried {
            self.copy(carried.current, (carried.result, 0), carried.bytes as u64)?;
        }
        for collected in &repeated.collected {
            let rest = repeated.capacity.unwrap_or(count) - count;
            let (space, offset) = self.at(collected.all);
            let bytes = collected.bytes as u64;
            self.fill((space, offset + count * bytes), &[0], rest * bytes)?;
        }
        self.store(repeated.count, count as i64)
    }

    /// Leads the entries of carried values to their other buffers.
    fn exchange(&mut self, repeated: &Loop) {
        for (entry, _) in &repeated.exchanges {
            let entry = &mut self.table[*entry];
            if let Some((offset, handle)) = &mut entry.other {
                std::mem::swap(offset, &mut entry.offset);
                std::mem::swap(handle, &mut entry.handle);
            }
        }
    }

    fn at(&self, entry: usize) -> (Space, u64) {
        let Entry { space, offset, .. } = self.table[entry];
        (space, offset)
    }

    /// Whether the byte of an entry is not zero.
    fn holds(&mut self, entry: usize) -> Result<bool, RunError> {
        let mut byte = [0];
        self.read(self.at(entry), &mut byte)?;
        Ok(byte[0] != 0)
    }

    /// The number of 64 bits of an entry.
    fn number(&mut self, entry: usize) -> Result<i64, RunError> {
        let mut bytes = [0; 8];
        self.read(self.at(entry), &mut bytes)?;
        Ok(i64::from_ne_bytes(bytes))
    }

    /// Puts a number of 64 bits, without waiting.
    fn store(&mut self, entry: usize, number: i64) -> Result<(), RunError> {
        self.fill(self.at(entry), &number.to_ne_bytes(), 8)
    }

    /// Copies what an entry leads to behind the first bytes of what another does.
    fn copy(&mut self, from: usize, to: (usize, u64), bytes: u64) -> Result<(), RunError> {
        let ((source, begin), (target, offset)) = (self.at(from), self.at(to.0));
        let queue = &mut self.queues[usize::from(self.timed)];
        let from = (self.memory.of(source), begin);
        queue.copy(from, (self.memory.of(target), offset + to.1), bytes)
    }
}
