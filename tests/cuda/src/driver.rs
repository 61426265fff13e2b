//! What the driver knows: contexts, memory, modules, streams and events of all its devices.

use crate::capture::{
    CAPTURE_INVALIDATED, CAPTURE_UNSUPPORTED, Capture, ILLEGAL_STATE, WRONG_THREAD, Work,
};
use crate::settings::{Fault, Settings};
use hone_ptx_tests::{Entry, Global, Text, UNWRITTEN, launch, parse};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A number of an error of the API.
pub type Code = i32;
/// What is done, or the number of an error.
pub type Outcome<T> = Result<T, Code>;

pub const INVALID_VALUE: Code = 1;
pub const OUT_OF_MEMORY: Code = 2;
pub const NOT_INITIALIZED: Code = 3;
pub const UNAVAILABLE: Code = 46;
pub const NO_DEVICE: Code = 100;
pub const INVALID_DEVICE: Code = 101;
pub const INVALID_CONTEXT: Code = 201;
pub const INVALID_PTX: Code = 218;
pub const UNSUPPORTED_PTX_VERSION: Code = 222;
pub const INVALID_HANDLE: Code = 400;
pub const NOT_FOUND: Code = 500;
pub const NOT_READY: Code = 600;
pub const ILLEGAL_ADDRESS: Code = 700;
pub const MISALIGNED_ADDRESS: Code = 716;
pub const LAUNCH_FAILED: Code = 719;
pub const CAPTURED_EVENT: Code = 907;

/// Names and words of errors, as the manual of the API has them.
pub const ERRORS: [(Code, &str, &str); 20] = [
    (INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"),
    (OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"),
    (NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"),
    (
        UNAVAILABLE,
        "CUDA_ERROR_DEVICE_UNAVAILABLE",
        "CUDA-capable device(s) is/are busy or unavailable",
    ),
    (NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"),
    (INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"),
    (INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"),
    (INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"),
    (
        UNSUPPORTED_PTX_VERSION,
        "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        "the provided PTX was compiled with an unsupported toolchain.",
    ),
    (INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"),
    (
        ILLEGAL_STATE,
        "CUDA_ERROR_ILLEGAL_STATE",
        "the operation cannot be performed in the present state",
    ),
    (NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"),
    (NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"),
    (ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"),
    (MISALIGNED_ADDRESS, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"),
    (LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"),
    (
        CAPTURE_UNSUPPORTED,
        "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
        "operation not permitted when stream is capturing",
    ),
    (
        CAPTURE_INVALIDATED,
        "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
        "operation failed due to a previous error during capture",
    ),
    (
        CAPTURED_EVENT,
        "CUDA_ERROR_CAPTURED_EVENT",
        "operation not permitted on an event last recorded in a capturing stream",
    ),
    (
        WRONG_THREAD,
        "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
        "attempt to terminate a thread-local capture sequence from another thread",
    ),
];

/// What stands behind a handle of a context.
pub enum Object {
    Module(Text),
    Function {
        module: u64,
        kernel: String,
        /// Bytes of shared memory that launches may ask for, where it was said.
        requested_bytes: Option<i32>,
    },
    /// With its capture, where one is under way.
    Stream(Option<Capture>),
    /// What was recorded.
    Graph(Vec<Work>),
    /// The same, ready to be launched.
    Executable(Vec<Work>),
    Event(Event),
    /// Page-locked memory of the host.
    Host {
        memory: Vec<u64>,
    },
}

/// What an event is at.
pub enum Event {
    /// It was not recorded.
    New,
    /// It came then.
    At(Instant),
    /// It never comes.
    Never,
    /// It was recorded in a stream that is captured.
    Captured,
}

/// A device's primary context.
#[derive(Default)]
pub struct Context {
    /// How often it is retained. Where it is not, it is not there.
    retained: u64,
    /// The error that every call reports, since a kernel failed.
    error: Option<Code>,
    memory: Global,
    used: usize,
    pub(crate) objects: BTreeMap<u64, Object>,
    hangs: bool,
}

impl Context {
    /// What only returns when everything under way is done: where that never is, the process ends instead.
    fn waits(&self) {
        if self.hangs {
            eprintln!("fake CUDA: a call waits for a launch that never ends");
            std::process::abort();
        }
    }
}

/// All of it.
pub struct Driver {
    pub settings: Settings,
    contexts: Vec<Context>,
    /// The number of the next handle, over all contexts.
    next: u64,
    launches: u64,
    allocations: u64,
    pub(crate) captures: u64,
    pub(crate) graphs: u64,
}

static DRIVER: Mutex<Option<Driver>> = Mutex::new(None);

/// Bytes of shared memory that a kernel has without asking for more.
pub const DECLARED_SHARED_BYTES: i32 = 48 << 10;

/// Handles of contexts: this and the number of the device.
pub const CONTEXTS: u64 = 0xc000;

impl Driver {
    /// Begins, once.
    pub fn init() -> Outcome<()> {
        let mut driver = DRIVER.lock().unwrap_or_else(PoisonError::into_inner);
        if driver.is_some() {
            return Ok(());
        }
        let words = std::env::var("HONE_FAKE_CUDA").unwrap_or_default();
        let settings = Settings::parse(&words).map_err(|error| {
            eprintln!("HONE_FAKE_CUDA: {error:#}");
            INVALID_VALUE
        })?;
        if settings.devices == 0 {
            return Err(NO_DEVICE);
        }
        let contexts = (0..settings.devices).map(|_| Context::default()).collect();
        *driver = Some(Self {
            settings,
            contexts,
            next: 1 << 20,
            launches: 0,
            allocations: 0,
            captures: 0,
            graphs: 0,
        });
        Ok(())
    }

    /// The driver, once it is initialised.
    pub fn get<T>(use_it: impl FnOnce(&mut Driver) -> Outcome<T>) -> Outcome<T> {
        let mut driver: MutexGuard<'_, _> = DRIVER.lock().unwrap_or_else(PoisonError::into_inner);
        driver.as_mut().ok_or(NOT_INITIALIZED).and_then(use_it)
    }

    /// Retains the primary context of a device; its handle.
    pub fn retain(&mut self, device: i32) -> Outcome<u64> {
        let place = usize::try_from(device).map_err(|_| INVALID_DEVICE)?;
        let context = self.contexts.get_mut(place).ok_or(INVALID_DEVICE)?;
        context.retained += 1;
        Ok(CONTEXTS + place as u64)
    }

    /// Releases it; the last one takes everything of it away, and its error with it.
    pub fn release(&mut self, device: i32) -> Outcome<()> {
        let place = usize::try_from(device).map_err(|_| INVALID_DEVICE)?;
        let context = self.contexts.get_mut(place).ok_or(INVALID_DEVICE)?;
        context.waits();
        context.retained = context.retained.checked_sub(1).ok_or(INVALID_CONTEXT)?;
        if context.retained == 0 {
            *context = Context::default();
        }
        Ok(())
    }

    pub(crate) fn context(&mut self, handle: u64) -> Outcome<&mut Context> {
        let place = handle.checked_sub(CONTEXTS).ok_or(INVALID_CONTEXT)?;
        let context = self.contexts.get_mut(place as usize).ok_or(INVALID_CONTEXT)?;
        match (context.retained, context.error) {
            (0, _) => Err(INVALID_CONTEXT),
            (_, Some(code)) => Err(code),
            _ => Ok(context),
        }
    }

    /// Whether a context can be made current.
    pub fn is_there(&mut self, handle: u64) -> Outcome<()> {
        match self.context(handle) {
            // A context that has failed stays one.
            Err(INVALID_CONTEXT) => Err(INVALID_CONTEXT),
            _ => Ok(()),
        }
    }

    pub(crate) fn add(&mut self, context: u64, object: Object) -> Outcome<u64> {
        self.context(context)?;
        let handle = self.next;
        self.next += 1;
        self.context(context)?.objects.insert(handle, object);
        Ok(handle)
    }

    /// Parses a text; the error comes with what is wrong.
    pub fn load(&mut self, context: u64, text: &str) -> Result<u64, (Code, String)> {
        self.context(context).map_err(|code| (code, String::new()))?;
        if self.settings.fault == Some(Fault::Refuse) {
            return Err((INVALID_PTX, "ptxas fatal : told to refuse".to_string()));
        }
        let text =
            parse(text).map_err(|error| (INVALID_PTX, format!("ptxas fatal : {error:#}")))?;
        let (major, minor) = text.version;
        // CUDA 11.x reads PTX 7.x, CUDA 12.x 8.x.
        if self.settings.driver < ((major + 4) * 1000 + minor * 10) as i32 {
            let log = format!(
                "ptxas application ptx input, fatal : Unsupported .version {major}.{minor}"
            );
            return Err((UNSUPPORTED_PTX_VERSION, log));
        }
        let (major, minor) = self.settings.capability;
        let own = major * 10 + minor;
        let digits: String = text.target.chars().filter(char::is_ascii_digit).collect();
        let target: u32 = digits.parse().unwrap_or(u32::MAX);
        let runs = if text.target.ends_with('a') { target == own } else { target <= own };
        if !runs {
            let log = format!(
                "ptxas fatal : Program with .target '{}' cannot be compiled to future architecture",
                text.target
            );
            return Err((INVALID_PTX, log));
        }
        self.add(context, Object::Module(text)).map_err(|code| (code, String::new()))
    }

    /// A kernel of a module.
    pub fn function(&mut self, context: u64, module: u64, name: &str) -> Outcome<u64> {
        match self.context(context)?.objects.get(&module) {
            Some(Object::Module(text)) if text.kernels.contains_key(name) => {}
            Some(Object::Module(_)) => return Err(NOT_FOUND),
            _ => return Err(INVALID_HANDLE),
        }
        let kernel = name.to_string();
        self.add(context, Object::Function { module, kernel, requested_bytes: None })
    }

    /// Memory of the device.
    pub fn allocate(&mut self, context: u64, bytes: usize) -> Outcome<u64> {
        self.allocations += 1;
        let refused = self.settings.fault == Some(Fault::Memory(self.allocations));
        let (most, number) = (self.settings.memory, self.allocations);
        let context = self.context(context)?;
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        if refused || context.used.checked_add(bytes).is_none_or(|used| used > most) {
            return Err(OUT_OF_MEMORY);
        }
        context.used += bytes;
        Ok(context.memory.add(format!("allocation {number}"), vec![UNWRITTEN; bytes]))
    }

    pub fn free(&mut self, context: u64, address: u64) -> Outcome<()> {
        let context = self.context(context)?;
        context.waits();
        let bytes = context.memory.free(address).ok_or(INVALID_VALUE)?;
        context.used -= bytes;
        Ok(())
    }

    /// Bytes of the device's memory.
    pub fn with_bytes(
        &mut self,
        context: u64,
        (address, bytes): (u64, usize),
        use_them: impl FnOnce(&mut [u8]),
    ) -> Outcome<()> {
        let memory = &mut self.context(context)?.memory;
        memory.host(address, bytes).map(use_them).map_err(|error| {
            eprintln!("fake CUDA: {error:#}");
            INVALID_VALUE
        })
    }

    /// Whether an address is one of page-locked memory of the host, 1, or of the device, 2.
    pub fn memory_type(&mut self, context: u64, address: u64) -> Outcome<u32> {
        let own = self.context(context)?;
        match (own.is_locked(address as usize), own.memory.host(address, 0)) {
            (true, _) => Ok(1),
            (false, Ok(_)) => Ok(2),
            (false, Err(_)) => Err(INVALID_VALUE),
        }
    }

    /// Page-locked memory of the host.
    pub fn allocate_host(&mut self, context: u64, bytes: usize) -> Outcome<*mut u8> {
        let mut memory = vec![0u64; bytes.div_ceil(8)];
        let place = memory.as_mut_ptr().cast();
        self.context(context)?.objects.insert(place as usize as u64, Object::Host { memory });
        Ok(place)
    }

    pub fn stream(&mut self, context: u64) -> Outcome<u64> {
        self.add(context, Object::Stream(None))
    }

    pub fn event(&mut self, context: u64) -> Outcome<u64> {
        self.add(context, Object::Event(Event::New))
    }

    /// Takes an object of a context away.
    pub fn remove(&mut self, context: u64, handle: u64) -> Outcome<()> {
        self.context(context)?.objects.remove(&handle).map(|_| ()).ok_or(INVALID_HANDLE)
    }

    /// Records an event behind what a stream has.
    pub fn record(&mut self, context: u64, handle: u64, stream: u64) -> Outcome<()> {
        let context = self.context(context)?;
        let now = match (context.capture(stream)?.is_some(), context.hangs) {
            (true, _) => Event::Captured,
            (false, true) => Event::Never,
            (false, false) => Event::At(Instant::now()),
        };
        match context.objects.get_mut(&handle) {
            Some(Object::Event(event)) => {
                *event = now;
                Ok(())
            }
            _ => Err(INVALID_HANDLE),
        }
    }

    /// When an event came.
    pub fn came(&mut self, context: u64, handle: u64) -> Outcome<Instant> {
        match self.context(context)?.objects.get(&handle) {
            Some(Object::Event(Event::At(at))) => Ok(*at),
            Some(Object::Event(Event::Never)) => Err(NOT_READY),
            Some(Object::Event(Event::Captured)) => Err(CAPTURED_EVENT),
            _ => Err(INVALID_HANDLE),
        }
    }

    /// A kernel, and the bytes of shared memory that its launches may ask for, where that was said.
    pub fn kernel(&mut self, context: u64, function: u64) -> Outcome<(&Entry, Option<i32>)> {
        let objects = &self.context(context)?.objects;
        let Some(Object::Function { module, kernel, requested_bytes }) = objects.get(&function)
        else {
            return Err(INVALID_HANDLE);
        };
        match objects.get(module) {
            Some(Object::Module(text)) => {
                let entry = text.kernels.get(kernel).ok_or(NOT_FOUND)?;
                Ok((entry, *requested_bytes))
            }
            _ => Err(INVALID_HANDLE),
        }
    }

    /// Says how many bytes of shared memory launches of a kernel may ask for.
    pub fn request_shared(&mut self, context: u64, function: u64, bytes: i32) -> Outcome<()> {
        let most = self.settings.shared_bytes();
        let declared = self.kernel(context, function)?.0.shared as i32;
        if bytes < 0 || bytes > most - declared {
            return Err(INVALID_VALUE);
        }
        match self.context(context)?.objects.get_mut(&function) {
            Some(Object::Function { requested_bytes, .. }) => *requested_bytes = Some(bytes),
            _ => return Err(INVALID_HANDLE),
        }
        Ok(())
    }

    /// Whether a launch of a kernel may ask for so much shared memory: up to 48 KiB with what is declared, else what was said.
    pub fn has_shared(&mut self, context: u64, function: u64, bytes: usize) -> Outcome<()> {
        let (entry, requested) = self.kernel(context, function)?;
        let most = requested.unwrap_or(DECLARED_SHARED_BYTES - entry.shared as i32);
        if bytes as i64 <= i64::from(most) { Ok(()) } else { Err(INVALID_VALUE) }
    }

    /// Whether blocks and lanes are so many as a launch may have.
    pub fn fits(&self, [blocks, lanes]: [[usize; 3]; 2]) -> Outcome<()> {
        let fits = lanes.iter().product::<usize>() <= self.settings.lanes as usize;
        let some = blocks.iter().chain(&lanes).all(|extent| *extent != 0);
        if fits && some { Ok(()) } else { Err(INVALID_VALUE) }
    }

    /// Runs a kernel to its end. What goes wrong in it is told by later calls.
    pub fn launch(
        &mut self,
        context: u64,
        function: u64,
        arguments: &[u64],
        (sizes, requested_bytes): ([[usize; 3]; 2], usize),
    ) -> Outcome<()> {
        self.launches += 1;
        let (number, fault) = (self.launches, self.settings.fault);
        let context = self.context(context)?;
        match fault {
            Some(Fault::Gone(own)) if own == number => {
                context.error = Some(UNAVAILABLE);
                return Err(UNAVAILABLE);
            }
            Some(Fault::Launch(own)) if own == number => {
                context.error = Some(LAUNCH_FAILED);
                return Ok(());
            }
            Some(Fault::Hang(own)) if own <= number => {
                context.hangs = true;
                return Ok(());
            }
            _ => {}
        }
        let Context { objects, memory, error, .. } = context;
        let Some(Object::Function { module, kernel, .. }) = objects.get(&function) else {
            return Err(INVALID_HANDLE);
        };
        let Some(Object::Module(text)) = objects.get(module) else { return Err(INVALID_HANDLE) };
        let entry = text.kernels.get(kernel).ok_or(NOT_FOUND)?;
        if let Err(reason) = launch(entry, memory, arguments, sizes, requested_bytes) {
            let words = format!("{reason:#}");
            eprintln!("fake CUDA: {words}");
            *error = Some(match &words {
                words if words.contains("out of bounds") => ILLEGAL_ADDRESS,
                words if words.contains("misaligned") => MISALIGNED_ADDRESS,
                _ => LAUNCH_FAILED,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const TEXT: &str =
        ".version 7.1\n.target sm_80\n.address_size 64\n.visible .entry k(\n)\n{\n\tret;\n}\n";

    /// As the manual has it: beyond 48 KiB a launch is refused before the kernel's attribute says so.
    #[test]
    fn shared_memory_beyond_48_kib_has_to_be_asked_for() {
        Driver::init().unwrap();
        let outcome = Driver::get(|driver| {
            let context = driver.retain(0)?;
            let module = driver.load(context, TEXT).map_err(|(code, _)| code)?;
            let kernel = driver.function(context, module, "k")?;
            let (least, most) = (DECLARED_SHARED_BYTES, driver.settings.shared_bytes());
            driver.has_shared(context, kernel, least as usize)?;
            assert_eq!(driver.has_shared(context, kernel, least as usize + 1), Err(INVALID_VALUE));
            assert_eq!(driver.request_shared(context, kernel, most + 1), Err(INVALID_VALUE));
            driver.request_shared(context, kernel, most)?;
            driver.has_shared(context, kernel, most as usize)?;
            assert_eq!(driver.has_shared(context, kernel, most as usize + 1), Err(INVALID_VALUE));
            Ok(())
        });
        assert_eq!(outcome, Ok(()));
    }
}
