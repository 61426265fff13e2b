//! Starts again what ends by itself, as the service manager of a real machine does: a kubelet that panics is no fault of
//! the product, and a node that stays away is a suite of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use hone_cluster_tests::Cluster;

/// Time between two looks.
const LOOK: Duration = Duration::from_secs(3);
/// Lines of its log that are printed of what has ended.
const LINES: usize = 5;

/// Looks after the processes of a cluster.
#[derive(Default)]
pub struct Supervisor {
    /// Held while something is killed, which has its return in the same hand.
    striking: Mutex<()>,
    done: AtomicBool,
}

/// Ends the looking after when it is dropped: a panic must not leave the thread behind.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Supervisor {
    /// What `work` returns; the cluster's processes are looked after until then.
    pub fn while_running<T>(&self, cluster: &Cluster, work: impl FnOnce() -> T) -> T {
        std::thread::scope(|scope| {
            scope.spawn(|| self.look_after(cluster));
            let _done = Done(&self.done);
            work()
        })
    }

    /// What `strike` returns, while nothing is looked after.
    pub fn without<T>(&self, strike: impl FnOnce() -> T) -> T {
        let _held = self.striking.lock().unwrap_or_else(PoisonError::into_inner);
        strike()
    }

    fn look_after(&self, cluster: &Cluster) {
        while !self.done.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
            if let Err(error) = self.without(|| start_again(cluster)) {
                eprintln!("the cluster's processes cannot be looked after: {error:#}");
            }
        }
    }
}

/// Starts what has ended, with the end of its log in the output.
fn start_again(cluster: &Cluster) -> Result<()> {
    for name in cluster.ended_services()? {
        let log = cluster.service_log(&name).unwrap_or_else(|error| format!("{error:#}"));
        let lines: Vec<&str> = log.lines().collect();
        println!("{name} has ended by itself and is started again. The end of its log:");
        lines[lines.len().saturating_sub(LINES)..].iter().for_each(|line| println!("    {line}"));
        cluster.service("start", &name)?;
    }
    Ok(())
}
