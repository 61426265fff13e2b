//! Kernels that run in waves ([`hone_tensor::Waves`]): the same loops for all of them in order and for some parts of one
//! wave, between bounds that follow from what the kernel is called with.

use super::emitter::Emitter;
use crate::error::Result;
use hone_tensor::{Loop, Range, Statement, Waves};
use inkwell::IntPredicate;
use inkwell::values::IntValue;

/// What a call of a kernel is to run.
struct Call<'c> {
    /// Whether that is everything.
    is_all: IntValue<'c>,
    /// Else the number of a wave's first part among those of all waves.
    first: IntValue<'c>,
    /// And how many parts of that wave.
    count: IntValue<'c>,
}

impl<'c> Emitter<'c, '_> {
    /// The outermost loop of a kernel in waves.
    pub(crate) fn waves(&mut self, outer: &Loop, waves: Waves) -> Result<()> {
        let (begin, end) = self.tasks;
        let builder = &self.ir.builder;
        let call = Call {
            is_all: builder.build_int_compare(IntPredicate::SLT, begin, self.ir.i64(1), "")?,
            first: builder.build_int_nsw_sub(begin, self.ir.i64(1), "")?,
            count: builder.build_int_nsw_sub(end, begin, "")?,
        };
        let (parts, stages) = (waves.parts as i64, waves.stages as i64);
        let step = self.quotient(call.first, parts * stages)?;
        let steps = waves.steps as i64;
        let most = self.limited_end(outer.var, steps)?;
        let is_limited = most.is_some();
        let (first, last) = self.bounds_of(&call, (step, self.ir.i64(1)), steps)?;
        let last = match most {
            None => last,
            Some(most) => {
                let builder = &self.ir.builder;
                let is_less = builder.build_int_compare(IntPredicate::SLT, most, last, "")?;
                builder.build_select(is_less, most, last, "")?.into_int_value()
            }
        };
        let range = Range::extent(steps.max(1));
        self.counted(outer.var, first, last, range, true, |emitter| {
            emitter.with_prefetches(outer, |emitter| match is_limited {
                true => emitter.stages(outer, waves, &call),
                false => {
                    emitter.where_needed(outer.var, |emitter| emitter.stages(outer, waves, &call))
                }
            })
        })
    }

    /// The parallel loops in one iteration of the outermost one: all of them, or some parts of one.
    fn stages(&mut self, outer: &Loop, waves: Waves, call: &Call<'c>) -> Result<()> {
        let (parts, stages) = (waves.parts as i64, waves.stages as i64);
        let wave = self.quotient(call.first, parts)?;
        let part = self.remainder(call.first, parts)?;
        let called = self.remainder(wave, stages)?;
        for (number, statement) in outer.body.iter().enumerate() {
            let Statement::Loop(stage) = statement else { continue };
            let (begin, end) = self.bounds_of(call, (part, call.count), parts)?;
            let range = Range::extent(parts.max(1));
            let run = |emitter: &mut Self| {
                emitter.counted(stage.var, begin, end, range, true, |emitter| {
                    emitter.with_prefetches(stage, |emitter| {
                        emitter.where_needed(stage.var, |emitter| {
                            emitter.bound(stage.var, true, &stage.body)
                        })
                    })
                })
            };
            if stages == 1 {
                run(self)?;
                continue;
            }
            let builder = &self.ir.builder;
            let number = self.ir.i64(number as i64);
            let is_called = builder.build_int_compare(IntPredicate::EQ, called, number, "")?;
            let runs = builder.build_or(call.is_all, is_called, "")?;
            self.guarded(runs.into(), run)?;
        }
        Ok(())
    }

    /// The bounds of a loop: `0..all` where a call runs everything, and else `count` iterations from `first` on.
    fn bounds_of(
        &self,
        call: &Call<'c>,
        (first, count): (IntValue<'c>, IntValue<'c>),
        all: i64,
    ) -> Result<(IntValue<'c>, IntValue<'c>)> {
        let (ir, builder) = (self.ir, &self.ir.builder);
        let begin = builder.build_select(call.is_all, ir.i64(0), first, "")?.into_int_value();
        let end = builder.build_int_nsw_add(first, count, "")?;
        let end = builder.build_select(call.is_all, ir.i64(all), end, "")?.into_int_value();
        Ok((begin, end))
    }

    /// `number / by`, of numbers that are not negative.
    fn quotient(&self, number: IntValue<'c>, by: i64) -> Result<IntValue<'c>> {
        Ok(self.ir.builder.build_int_signed_div(number, self.ir.i64(by.max(1)), "")?)
    }

    /// `number % by`, of numbers that are not negative.
    fn remainder(&self, number: IntValue<'c>, by: i64) -> Result<IntValue<'c>> {
        Ok(self.ir.builder.build_int_signed_rem(number, self.ir.i64(by.max(1)), "")?)
    }
}
