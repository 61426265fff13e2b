//! The floating-point mode in which kernels run: round to nearest, no traps, and subnormal numbers
//! taken as zero and flushed to zero.
//!
//! Arithmetic on subnormal numbers (magnitudes below `f32::MIN_POSITIVE`, about 1.2e-38, and
//! `f64::MIN_POSITIVE`) takes more than a hundred cycles an instruction on many x86 processors, and a
//! softmax over masked scores makes them by the thousand. Kernels therefore run with flush-to-zero and
//! denormals-are-zero (x86: `MXCSR.FTZ` and `MXCSR.DAZ`, AArch64: `FPCR.FZ`). Half-precision numbers
//! keep their subnormals: `MXCSR` does not govern their conversion, and `FPCR.FZ16` stays off. RISC-V
//! has no such mode, and no other architecture is changed.
//!
//! The whole control register is set, not only two bits of it, so that results do not depend on the
//! mode of the thread that calls a run. The worker threads set it once, when they start.

/// The caller's mode while a run lasts; dropping it restores that mode, with the exception flags that
/// stood in it.
#[derive(Debug)]
#[must_use]
pub(crate) struct FloatMode {
    before: Register,
}

impl FloatMode {
    /// Puts this thread into the kernels' mode until the value is dropped.
    pub(crate) fn enter() -> Self {
        let before = register::read();
        if before != register::KERNELS {
            register::write(register::KERNELS);
        }
        Self { before }
    }

    /// Puts this thread into the kernels' mode for the rest of its life.
    pub(crate) fn enter_forever() {
        std::mem::forget(Self::enter());
    }
}

impl Drop for FloatMode {
    fn drop(&mut self) {
        // Also where it equals KERNELS: the run may have raised exception flags.
        register::write(self.before);
    }
}

use register::Register;

#[cfg(target_arch = "x86_64")]
mod register {
    use std::arch::asm;

    /// MXCSR: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, section 10.2.3.
    pub(super) type Register = u32;

    const FLUSH_TO_ZERO: u32 = 1 << 15;
    const DENORMALS_ARE_ZERO: u32 = 1 << 6;
    /// All exceptions masked; rounding to nearest is 0.
    const MASKS: u32 = 0x1f80;
    pub(super) const KERNELS: u32 = MASKS | FLUSH_TO_ZERO | DENORMALS_ARE_ZERO;

    pub(super) fn read() -> u32 {
        let mut value = 0u32;
        // SAFETY: stores four bytes to a local variable.
        unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut value, options(nostack, preserves_flags)) };
        value
    }

    pub(super) fn write(value: u32) {
        // SAFETY: the value is KERNELS, whose bits every x86-64 processor has, or one that was read.
        // Floating-point operations of this crate's own code are not between the two writes of a run.
        unsafe {
            asm!("ldmxcsr [{}]", in(reg) &raw const value, options(nostack, preserves_flags))
        };
    }
}

#[cfg(target_arch = "aarch64")]
mod register {
    use std::arch::asm;

    /// FPCR: Arm Architecture Reference Manual for A-profile, section C5.2.8.
    pub(super) type Register = u64;

    /// FZ. Rounding to nearest and no traps are 0.
    pub(super) const KERNELS: u64 = 1 << 24;

    pub(super) fn read() -> u64 {
        let value: u64;
        // SAFETY: reads a register that programs may read.
        unsafe { asm!("mrs {}, fpcr", out(reg) value, options(nomem, nostack, preserves_flags)) };
        value
    }

    pub(super) fn write(value: u64) {
        // SAFETY: the value is KERNELS or one that was read.
        unsafe { asm!("msr fpcr, {}", in(reg) value, options(nostack, preserves_flags)) };
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod register {
    /// Nothing to keep.
    pub(super) type Register = ();

    pub(super) const KERNELS: () = ();

    pub(super) fn read() {}

    pub(super) fn write(_: ()) {}
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use std::hint::black_box;

    use super::*;

    #[test]
    fn the_callers_mode_comes_back_with_its_flags() {
        // Rounds up, traps nothing, has the flag of an inexact result.
        let odd = 0x1f80 | 0x4000 | 0x20;
        let before = register::read();
        register::write(odd);
        let mode = FloatMode::enter();
        let within = register::read();
        drop(mode);
        let after = register::read();
        register::write(before);
        assert_eq!(within, register::KERNELS);
        assert_eq!(after, odd);
    }

    #[test]
    fn subnormal_numbers_count_as_zero_in_between() {
        let (least, half) = (f32::MIN_POSITIVE, 0.5f32);
        let subnormal = black_box(black_box(least) * black_box(half));
        assert!(subnormal > 0.0);
        let mode = FloatMode::enter();
        let flushed = black_box(black_box(least) * black_box(half));
        let read = black_box(black_box(subnormal) * black_box(2.0f32));
        drop(mode);
        assert_eq!((flushed.to_bits(), read.to_bits()), (0, 0));
    }
}
