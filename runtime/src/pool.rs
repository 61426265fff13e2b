//! The process's one pool of worker threads, shared by all models.
//!
//! There are never more workers than cores less one: the caller of a run works too. A run claims seats
//! and gives them back at its end; where several runs are under way each uses its share of the cores, so
//! that callers and workers together do not outnumber them. The pool ends with the last model.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};

use crate::float_mode::FloatMode;
use crate::options::Affinity;
use crate::seat::Seat;

/// More threads than this in a run gain nothing: each hand-over costs the caller.
const MOST_THREADS: usize = 256;

static POOL: Mutex<Weak<Pool>> = Mutex::new(Weak::new());

/// See the module's documentation.
pub(crate) struct Pool {
    cores: usize,
    process: u32,
    runs: AtomicUsize,
    workers: Mutex<Vec<Worker>>,
}

struct Worker {
    seat: Arc<Seat>,
    thread: Option<JoinHandle<()>>,
}

impl Pool {
    /// The pool, with workers for runs of `threads` threads, and these workers' seats. 0 threads are as
    /// many as there are cores.
    pub(crate) fn join(
        threads: usize,
        affinity: Affinity,
    ) -> io::Result<(Arc<Self>, Vec<Arc<Seat>>)> {
        let mut place = lock(&POOL);
        let pool = place.upgrade().unwrap_or_else(|| {
            let cores = thread::available_parallelism().map_or(1, |n| n.get()).min(MOST_THREADS);
            let pool = Arc::new(Self {
                cores,
                process: std::process::id(),
                runs: AtomicUsize::new(0),
                workers: Mutex::new(Vec::new()),
            });
            *place = Arc::downgrade(&pool);
            pool
        });
        drop(place);
        let threads = if threads == 0 { pool.cores } else { threads.min(pool.cores) };
        let mut workers = lock(&pool.workers);
        let before = workers.len();
        let mut started = Ok(());
        while started.is_ok() && workers.len() + 1 < threads {
            started = Worker::start(workers.len() + 1).map(|worker| workers.push(worker));
        }
        for worker in &workers[before..] {
            // What a starting thread allocates shall not fall into a run.
            worker.seat.wait();
        }
        started?;
        place_workers(&workers, affinity);
        let seats = workers.iter().take(threads - 1).map(|worker| worker.seat.clone()).collect();
        drop(workers);
        Ok((pool, seats))
    }

    /// Notes that a run begins on this thread, and puts the thread into the kernels' floating-point mode;
    /// both end with the guard's drop.
    pub(crate) fn enter(&self) -> Entry<'_> {
        self.runs.fetch_add(1, Ordering::Relaxed);
        Entry { pool: self, _mode: FloatMode::enter() }
    }

    /// Whether the workers live in this process and not in one that it was forked from.
    pub(crate) fn is_alive(&self) -> bool {
        self.process == std::process::id()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let workers = self.workers.get_mut().unwrap_or_else(PoisonError::into_inner);
        if self.process != std::process::id() {
            // After a fork the threads are the parent's: there is nobody to dismiss or to wait for.
            workers.drain(..).for_each(std::mem::forget);
        }
        for worker in workers.iter() {
            worker.seat.dismiss();
        }
        for worker in workers.iter_mut() {
            if let Some(thread) = worker.thread.take() {
                // A worker only calls kernels, which cannot unwind.
                let _ = thread.join();
            }
        }
    }
}

/// A run under way.
pub(crate) struct Entry<'a> {
    pool: &'a Pool,
    _mode: FloatMode,
}

impl Entry<'_> {
    /// Threads that this run may use now, the caller's among them: its share of the cores.
    pub(crate) fn share(&self) -> usize {
        (self.pool.cores / self.pool.runs.load(Ordering::Relaxed).max(1)).max(1)
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.pool.runs.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Worker {
    fn start(number: usize) -> io::Result<Self> {
        let seat = Arc::new(Seat::new());
        let its = seat.clone();
        let thread = thread::Builder::new()
            .name(format!("hone-{number}"))
            .stack_size(1 << 20)
            .spawn(move || {
                block_signals();
                FloatMode::enter_forever();
                its.work();
            })?;
        Ok(Self { seat, thread: Some(thread) })
    }
}

/// Signals are for the application's own threads.
fn block_signals() {
    // SAFETY: the set is filled before it is used, and only this thread's mask changes.
    unsafe {
        let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), std::ptr::null_mut());
    }
}

/// Puts the workers where `affinity` says. A refusal leaves them where they were: it costs speed only.
fn place_workers(workers: &[Worker], affinity: Affinity) {
    use std::os::unix::thread::JoinHandleExt;

    let size = size_of::<libc::cpu_set_t>();
    // SAFETY: all zeros is an empty set; the call fills at most `size` bytes of it.
    let mut allowed: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: as above; 0 is this process's first thread, whose set the workers inherited.
    if unsafe { libc::sched_getaffinity(libc::getpid(), size, &mut allowed) } != 0 {
        return;
    }
    // SAFETY: the index stays below the set's capacity.
    let cpus =
        (0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &allowed) });
    for (worker, cpu) in workers.iter().zip(cpus.skip(1)) {
        let set = match affinity {
            Affinity::None => allowed,
            Affinity::Pinned => {
                // SAFETY: an empty set, and an index that is in the allowed one.
                unsafe {
                    let mut one: libc::cpu_set_t = std::mem::zeroed();
                    libc::CPU_SET(cpu, &mut one);
                    one
                }
            }
        };
        if let Some(thread) = &worker.thread {
            // SAFETY: the thread has not been joined, so its handle is valid.
            unsafe { libc::pthread_setaffinity_np(thread.as_pthread_t(), size, &set) };
        }
    }
}

/// Nothing panics while it holds these locks; if it did, their content would still be whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
