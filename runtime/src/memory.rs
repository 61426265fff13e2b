//! Memory straight from the system: zeroed, page-aligned, given back as a whole.

use std::ffi::c_void;
use std::io;
use std::ptr;

/// Size in bytes of the pages that transparent huge pages give on the machines we know.
const HUGE: usize = 2 << 20;

/// A private anonymous mapping. Its base is a multiple of a page, or of 2 MiB where huge pages are asked
/// for and the size makes them worth it.
#[derive(Debug)]
pub(crate) struct Region {
    mapped: *mut c_void,
    mapped_bytes: usize,
    base: *mut u8,
}

// SAFETY: the region owns its mapping; who may touch which bytes when is its holder's affair.
unsafe impl Send for Region {}
// SAFETY: a shared region gives out only its address.
unsafe impl Sync for Region {}

impl Region {
    /// Maps at least `bytes` bytes of zeros; none at all for 0.
    pub(crate) fn new(bytes: usize, huge_pages: bool) -> io::Result<Self> {
        if bytes == 0 {
            // A kernel may be handed the base of an empty arena; 64-byte alignment still holds.
            let base = ptr::without_provenance_mut(64);
            return Ok(Self { mapped: ptr::null_mut(), mapped_bytes: 0, base });
        }
        let huge = huge_pages && bytes >= HUGE;
        let spare = if huge { HUGE } else { 0 };
        let mapped_bytes = bytes.checked_add(spare).ok_or(io::ErrorKind::OutOfMemory)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new anonymous mapping at an address of the system's choice touches nothing else.
        let mapped = unsafe { libc::mmap(ptr::null_mut(), mapped_bytes, access, flags, -1, 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mut base = mapped.cast::<u8>();
        if huge {
            base = base.wrapping_add(base.align_offset(HUGE));
            // SAFETY: the range lies in the mapping made above. The advice may be refused: no harm.
            unsafe { libc::madvise(base.cast(), bytes, libc::MADV_HUGEPAGE) };
        }
        Ok(Self { mapped, mapped_bytes, base })
    }

    /// The first byte.
    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.mapped_bytes > 0 {
            // SAFETY: the mapping was made by `new`, and nothing outlives the region that uses it.
            unsafe { libc::munmap(self.mapped, self.mapped_bytes) };
        }
    }
}
