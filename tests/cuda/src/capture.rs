//! Streams: what is put into one runs at once, or is recorded while the stream is captured; and graphs of what was
//! recorded. The rules are those of the manual ("Stream Management", "Graph Management") and of the section on
//! prohibited calls of the programming guide.

use crate::driver::{
    Code, Context, Driver, INVALID_HANDLE, INVALID_VALUE, OUT_OF_MEMORY, Object, Outcome,
};
use crate::settings::Fault;
use std::sync::Arc;
use std::thread::{ThreadId, current};

pub const ILLEGAL_STATE: Code = 401;
pub const CAPTURE_UNSUPPORTED: Code = 900;
pub const CAPTURE_INVALIDATED: Code = 901;
pub const WRONG_THREAD: Code = 908;

/// What is done with bytes of the device's memory.
pub type Use = Arc<dyn Fn(&mut [u8]) + Send + Sync>;

/// What is put into a stream.
#[derive(Clone)]
pub enum Work {
    /// A kernel, by the handle of its function, with its arguments, blocks and lanes.
    Launch { function: u64, arguments: Vec<u64>, sizes: [[usize; 3]; 2], shared_bytes: usize },
    /// Something with bytes of the device, from an address on; with the place in the host's memory that it has to do
    /// with.
    Bytes { place: (u64, usize), host: Option<usize>, with: Use },
    /// A copy between two addresses of the device.
    Copy { from: u64, to: u64, bytes: usize },
}

/// `CUstreamCaptureMode`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Global,
    ThreadLocal,
    Relaxed,
}

/// A capture under way.
pub struct Capture {
    mode: Mode,
    thread: ThreadId,
    works: Vec<Work>,
    /// Whether nothing that is not allowed was tried.
    valid: bool,
}

impl Capture {
    /// Whether calls of this thread that may be unsafe are prohibited because of it.
    fn prohibits(&self) -> bool {
        match self.mode {
            Mode::Relaxed => false,
            Mode::ThreadLocal => self.thread == current().id(),
            Mode::Global => true,
        }
    }
}

impl Context {
    fn captures(&mut self) -> impl Iterator<Item = &mut Capture> {
        self.objects.values_mut().filter_map(|object| match object {
            Object::Stream(capture) => capture.as_mut(),
            _ => None,
        })
    }

    /// The capture of a stream, where one is under way.
    pub fn capture(&mut self, stream: u64) -> Outcome<&mut Option<Capture>> {
        match self.objects.get_mut(&stream) {
            Some(Object::Stream(capture)) => Ok(capture),
            _ => Err(INVALID_HANDLE),
        }
    }

    /// Whether an address is in page-locked memory of the host.
    pub fn is_locked(&self, address: usize) -> bool {
        self.objects.iter().any(|(start, object)| match object {
            Object::Host { memory } => {
                (*start as usize..*start as usize + 8 * memory.len()).contains(&address)
            }
            _ => false,
        })
    }
}

impl Driver {
    /// Begins a call that a capture may prohibit, as those that may wait for a stream without saying so.
    pub fn unless_captured(&mut self, context: u64) -> Outcome<()> {
        let mut prohibited = self.context(context)?.captures().filter(|own| own.prohibits());
        let count = prohibited.by_ref().map(|own| own.valid = false).count();
        if count > 0 { Err(CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }

    /// Does what is put into a stream, or records it.
    pub fn put(&mut self, context: u64, stream: u64, work: Work) -> Outcome<()> {
        self.check(context, &work)?;
        let own = self.context(context)?;
        let host = match work {
            Work::Bytes { host, .. } => host,
            _ => None,
        };
        let locked = host.is_none_or(|address| own.is_locked(address));
        if let Some(capture) = own.capture(stream)? {
            // Memory that may be paged out is copied by calls that wait.
            capture.valid &= locked;
            return match (capture.valid, locked) {
                (_, false) => Err(CAPTURE_UNSUPPORTED),
                (false, true) => Err(CAPTURE_INVALIDATED),
                (true, true) => {
                    capture.works.push(work);
                    self.say("recorded");
                    Ok(())
                }
            };
        }
        if matches!(work, Work::Launch { .. }) {
            self.say("launched");
        }
        self.execute(context, &work)
    }

    /// What is refused when it is put in, whether it is recorded or run.
    fn check(&mut self, context: u64, work: &Work) -> Outcome<()> {
        match work {
            Work::Launch { function, sizes, shared_bytes, .. } => {
                self.has_shared(context, *function, *shared_bytes)?;
                self.fits(*sizes)
            }
            Work::Bytes { place, .. } => self.with_bytes(context, *place, |_| {}),
            Work::Copy { from, to, bytes } => {
                self.with_bytes(context, (*from, *bytes), |_| {})?;
                self.with_bytes(context, (*to, *bytes), |_| {})
            }
        }
    }

    fn execute(&mut self, context: u64, work: &Work) -> Outcome<()> {
        match work {
            Work::Launch { function, arguments, sizes, shared_bytes } => {
                self.launch(context, *function, arguments, (*sizes, *shared_bytes))
            }
            Work::Bytes { place, with, .. } => {
                self.with_bytes(context, *place, |bytes| with(bytes))
            }
            Work::Copy { from, to, bytes } => {
                let mut between = Vec::new();
                self.with_bytes(context, (*from, *bytes), |from| between = from.to_vec())?;
                self.with_bytes(context, (*to, *bytes), |to| to.copy_from_slice(&between))
            }
        }
    }

    /// Begins to record what is put into a stream.
    pub fn begin_capture(&mut self, context: u64, stream: u64, mode: u32) -> Outcome<()> {
        self.captures += 1;
        let refused = self.settings.fault == Some(Fault::Capture(self.captures));
        let mode = match mode {
            0 => Mode::Global,
            1 => Mode::ThreadLocal,
            2 => Mode::Relaxed,
            _ => return Err(INVALID_VALUE),
        };
        // The default stream, whose handle is 0, is never captured.
        if refused || stream == 0 {
            return Err(CAPTURE_UNSUPPORTED);
        }
        let capture = self.context(context)?.capture(stream)?;
        if capture.is_some() {
            return Err(ILLEGAL_STATE);
        }
        let (thread, works) = (current().id(), Vec::new());
        *capture = Some(Capture { mode, thread, works, valid: true });
        Ok(())
    }

    /// Ends it; the graph.
    pub fn end_capture(&mut self, context: u64, stream: u64) -> Outcome<u64> {
        let capture = self.context(context)?.capture(stream)?;
        match capture {
            None => return Err(ILLEGAL_STATE),
            Some(own) if own.mode != Mode::Relaxed && own.thread != current().id() => {
                return Err(WRONG_THREAD);
            }
            Some(_) => {}
        }
        match capture.take() {
            Some(Capture { works, valid: true, .. }) => self.add(context, Object::Graph(works)),
            _ => Err(CAPTURE_INVALIDATED),
        }
    }

    /// Makes a graph ready to be launched.
    pub fn instantiate(&mut self, context: u64, graph: u64, flags: u64) -> Outcome<u64> {
        self.graphs += 1;
        let refused = self.settings.fault == Some(Fault::Instantiate(self.graphs));
        let Some(Object::Graph(works)) = self.context(context)?.objects.get(&graph) else {
            return Err(INVALID_HANDLE);
        };
        let works = works.clone();
        match (refused, flags) {
            (true, _) => Err(OUT_OF_MEMORY),
            (false, 0) => {
                self.say(&format!("instantiated {}", works.len()));
                self.add(context, Object::Executable(works))
            }
            _ => Err(INVALID_VALUE),
        }
    }

    /// Puts all of a graph into a stream.
    pub fn launch_graph(&mut self, context: u64, executable: u64, stream: u64) -> Outcome<()> {
        let own = self.context(context)?;
        let Some(Object::Executable(works)) = own.objects.get(&executable) else {
            return Err(INVALID_HANDLE);
        };
        let works = works.clone();
        match own.capture(stream)? {
            Some(capture) if capture.valid => capture.works.extend(works),
            Some(_) => return Err(CAPTURE_INVALIDATED),
            None => {
                self.say(&format!("launched a graph of {}", works.len()));
                works.iter().try_for_each(|work| self.execute(context, work))?;
            }
        }
        Ok(())
    }

    /// Takes a graph away, or one that is ready.
    pub fn remove_graph(&mut self, context: u64, handle: u64, is_ready: bool) -> Outcome<()> {
        match self.context(context)?.objects.get(&handle) {
            Some(Object::Graph(_)) if !is_ready => {}
            Some(Object::Executable(_)) if is_ready => {}
            _ => return Err(INVALID_VALUE),
        }
        self.remove(context, handle)
    }

    fn say(&self, what: &str) {
        if self.settings.says_launches {
            eprintln!("fake CUDA: {what}");
        }
    }
}
