//! Machine code brought into this process by the system's loader.

use std::ffi::{CStr, CString, c_void};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::LoadError;

/// `kernel(buffers, begin, end, scratch)`, see [`hone_artifact::Manifest`].
pub(crate) type Kernel =
    unsafe extern "C" fn(buffers: *const *mut c_void, begin: i64, end: i64, scratch: *mut c_void);

/// A loaded shared object; unloaded when dropped.
#[derive(Debug)]
pub(crate) struct Library {
    handle: NonNull<c_void>,
    /// Keeps the number of the memory file taken: the loader knows objects by their path, and would
    /// answer for the next one under the same number with this one.
    _file: Option<File>,
}

// SAFETY: the loader's functions may be called from any thread.
unsafe impl Send for Library {}
// SAFETY: as above; the handle is never changed.
unsafe impl Sync for Library {}

impl Library {
    /// Loads a shared object from its bytes: through memory alone where the system allows it, else
    /// through a file in the temporary folder that is removed at once.
    pub(crate) fn load(code: &[u8]) -> Result<Self, LoadError> {
        let first = match in_memory(code) {
            Ok(file) => match open(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd()))) {
                Ok(mut library) => {
                    library._file = Some(file);
                    return Ok(library);
                }
                Err(reason) => reason,
            },
            Err(error) => error.to_string(),
        };
        // The loader's word on the object itself says more than a failure to find a second place for it.
        in_file(code).map_err(|second| {
            let reason = second.unwrap_or(first);
            LoadError::Code { reason }
        })
    }

    /// The kernel with this symbol.
    pub(crate) fn kernel(&self, symbol: &str) -> Option<Kernel> {
        let symbol = CString::new(symbol).ok()?;
        // SAFETY: the handle is open and the symbol ends with a zero.
        let address = unsafe { libc::dlsym(self.handle.as_ptr(), symbol.as_ptr()) };
        let address = NonNull::new(address)?;
        // SAFETY: the artifact's contract is that its step table names functions of this type.
        Some(unsafe { std::mem::transmute::<*mut c_void, Kernel>(address.as_ptr()) })
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: the handle came from `dlopen`; no kernel runs any more, as the plan that called them
        // owned this library.
        unsafe { libc::dlclose(self.handle.as_ptr()) };
    }
}

fn in_memory(code: &[u8]) -> io::Result<File> {
    // SAFETY: a plain system call with a constant name.
    let fd = unsafe { libc::memfd_create(c"hone".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    let mut file = unsafe { File::from_raw_fd(fd) };
    file.write_all(code)?;
    Ok(file)
}

/// `Err(None)` where not even the file could be made.
fn in_file(code: &[u8]) -> Result<Library, Option<String>> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let name = format!("hone-{}-{number}.so", std::process::id());
    let path = std::env::temp_dir().join(name);
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o700);
    let mut file = options.open(&path).map_err(|_| None)?;
    let written = file.write_all(code);
    drop(file);
    let result = match written {
        Ok(()) => open(&path).map_err(Some),
        Err(_) => Err(None),
    };
    let _ = fs::remove_file(&path);
    result
}

fn open(path: &Path) -> Result<Library, String> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
    // SAFETY: the path ends with a zero. Initialisers of the object run here: loading an artifact is
    // trusting it, as the crate's documentation says.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    NonNull::new(handle).map(|handle| Library { handle, _file: None }).ok_or_else(last_error)
}

fn last_error() -> String {
    // SAFETY: `dlerror` gives null or a string that stays until this thread's next call of the loader.
    let message = unsafe { libc::dlerror() };
    if message.is_null() {
        return "the loader gave no reason".into();
    }
    // SAFETY: not null, see above.
    unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    /// Where memory files are forbidden the code goes through the temporary folder, and leaves it.
    #[test]
    fn the_way_through_a_file_works_and_leaves_nothing() {
        // A shared object that this program uses anyway.
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let mut paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
        let code = fs::read(paths.find(|path| path.contains("libgcc_s")).unwrap()).unwrap();
        let library = in_file(&code).unwrap();
        assert!(library.kernel("_Unwind_GetIP").is_some());
        assert!(library.kernel("no_such_symbol").is_none());
        let ours = format!("hone-{}-", std::process::id());
        let left = fs::read_dir(std::env::temp_dir()).unwrap().flatten();
        let left = left.filter(|entry| entry.file_name().to_string_lossy().starts_with(&ours));
        assert_eq!(left.count(), 0);
    }
}
