//! Sleeping until a word changes.

use std::ptr;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps while `word` holds `value`. May return early: the caller looks again.
pub(crate) fn wait(word: &AtomicU32, value: u32) {
    // SAFETY: the word lives as long as the borrow; without a timeout no other pointer is read.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            value,
            ptr::null::<libc::timespec>(),
        )
    };
}

/// Wakes the one thread that sleeps on `word`, if one does.
pub(crate) fn wake(word: &AtomicU32) {
    // SAFETY: only the word's address is used.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            1,
        )
    };
}

/// Sleeps while `word` holds `value`, for as long as `most`. May return early: the caller looks again.
pub(crate) fn wait_for(word: &AtomicU32, value: u32, most: Duration) {
    let most = libc::timespec {
        tv_sec: most.as_secs() as libc::time_t,
        tv_nsec: most.subsec_nanos() as _,
    };
    // SAFETY: word and timeout live as long as the call.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            value,
            &raw const most,
        )
    };
}
