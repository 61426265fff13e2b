//! System libraries that drive devices, and their functions, found when they are first asked for.

use std::ffi::{CStr, CString, c_void};

/// Opens a system library; what the system says where it cannot. It stays open until the process ends: drivers have
/// threads of their own.
pub(super) fn open(library: &str) -> Result<*mut c_void, String> {
    let path = CString::new(library).map_err(|error| error.to_string())?;
    // SAFETY: the name ends with a zero. The library is the system's, and its initialisers have no preconditions.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if !handle.is_null() {
        return Ok(handle);
    }
    // SAFETY: `dlerror` gives null or a string that stays until this thread's next call of the system's loader.
    let message = unsafe { libc::dlerror() };
    if message.is_null() {
        return Err("the system gave no reason".to_owned());
    }
    // SAFETY: not null, see above.
    Err(unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned())
}

/// The address of a function, or null.
pub(super) fn symbol(library: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: the library is open, and the name ends with a zero.
    unsafe { libc::dlsym(library, name.as_ptr()) }
}

/// The value of an environment variable, where it has one.
pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Declares the functions of an API that are used: the type `Api` with a pointer to each, and `Api::find`, which looks
/// them up in an open library and gives the symbol of the first that it lacks.
macro_rules! functions {
    ($($name:ident: $symbol:literal ($($type:ty),*) -> $result:ty;)*) => {
        /// The loaded functions.
        pub(crate) struct Api {
            $(pub(crate) $name: unsafe extern "C" fn($($type),*) -> $result,)*
        }

        impl Api {
            fn find(library: *mut std::ffi::c_void) -> Result<Self, &'static str> {
                Ok(Self {
                    $($name: {
                        let name = std::ffi::CStr::from_bytes_with_nul(
                            concat!($symbol, "\0").as_bytes(),
                        );
                        let address = name.map_or(std::ptr::null_mut(), |name| {
                            $crate::accelerator::library::symbol(library, name)
                        });
                        if address.is_null() {
                            return Err($symbol);
                        }
                        // SAFETY: the signature is that of the API's specification.
                        unsafe {
                            std::mem::transmute::<
                                *mut std::ffi::c_void,
                                unsafe extern "C" fn($($type),*) -> $result,
                            >(address)
                        }
                    },)*
                })
            }
        }
    };
}
pub(super) use functions;
