//! Devices are leased: who may use which device of which pool, and who is next.
//!
//! A pool whose `exclusivity` is not Shared has *slots*: its nodes, or what its nodes have of its extended resource. A
//! worker runs in such a pool only while its work holds the Lease of one slot. A compilation or a tuning run asks by a
//! [`Request`]; the DevicePool controller, and nobody else, decides by [`grant::plan`] and writes Leases.
//!
//! Invariants:
//! 1. A slot is one Lease object of the operator's namespace, named after the device and not after the pool, so
//!    pools that overlap share it. It is written with its resource version only, so no two grants of one slot stand.
//! 2. A whole node and a device of that node are never held at once.
//! 3. The Leases are the truth: what is kept here of them is what the API server said last, by resource version. A
//!    replica that begins to lead learns them from its watch, and requests from reconciling every object.
//! 4. A lease ends with its Job and that Job's pods, and a slot that a Job claims is not free, whatever its Lease says. Without a Job it ends
//!    [`grant::WITHOUT_JOB`] seconds after it was granted, and in any case at its expiry, which lies behind the Job's own
//!    deadline. It also ends when a Job is suspended whose pods wait for their device, once none of them is left.
//! 5. Each grant raises the slot's fence by one. The Job carries slot and fence, so a lease is never mistaken for an
//!    earlier one of the same slot.

pub mod grant;
pub mod lease;
pub mod pools;
pub mod slots;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use lease::{DeviceLease, Holder};
pub use slots::Slot;

use crate::context::Context;
use crate::runtime::queue::{Key, Priority};

/// The controller that decides, in keys, metrics and logs.
pub const CONTROLLER: &str = "devicepool";

/// A wish for a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Request {
    /// The name of the Job that will use it: unique in its namespace, and made from its owner's uid.
    pub job: String,
    /// Pools whose devices will do, the preferred one first.
    pub pools: Vec<String>,
    /// The value of the workers' PriorityClass; the highest is served first.
    #[serde(default)]
    pub priority: i32,
    /// How often it got a device in vain: who never did is served before.
    #[serde(default)]
    pub attempts: i32,
    /// Since when it waits.
    pub since: Timestamp,
    /// How many seconds its Job may take.
    pub seconds: i64,
}

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Applicant {
    /// Its kind's controller, which is told of a grant.
    #[serde(default = "lease::first_kind")]
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

impl Applicant {
    /// An object of the kind that `controller` works on.
    pub fn of<K: kube::Resource>(controller: &str, object: &K) -> Self {
        let metadata = object.meta();
        Self {
            kind: controller.to_owned(),
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
        }
    }

    /// What tells it apart while its wishes are kept.
    fn key(&self) -> (String, String, String) {
        (self.kind.clone(), self.namespace.clone(), self.name.clone())
    }
}

/// Tells the broker what devices an object wishes for, and has the pools look that may have one.
pub fn ask(context: &Context, applicant: Applicant, requests: &[Request]) {
    for pool in context.broker.ask(&applicant, requests.to_vec()) {
        let key = Key { kind: CONTROLLER, namespace: String::new(), name: pool };
        match context.broker.may_have_free(&key.name) {
            true => context.queue.add(key, Priority::Change),
            false => context.queue.add_after(key, Duration::from_secs(5)),
        }
    }
}

/// The order in which requests are served.
type Turn = (std::cmp::Reverse<i32>, i32, Timestamp, String, String);

/// What is known of a pool since its controller looked last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolState {
    /// Slots that nobody holds.
    pub free: i64,
    /// Most slots of one namespace.
    pub max_per_namespace: Option<i64>,
}

/// Requests and leases.
#[derive(Debug, Default)]
pub struct Broker(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Requests by namespace and Job.
    requests: HashMap<(String, String), (Applicant, Request)>,
    /// The Jobs for which each applicant, by kind, namespace and name, asks.
    of_applicant: HashMap<(String, String, String), Vec<String>>,
    /// Requests in their order, by pool.
    turns: BTreeMap<String, BTreeSet<Turn>>,
    /// Leases by name.
    leases: HashMap<String, Arc<DeviceLease>>,
    /// Names of leases by the namespace and Job that hold them.
    held: HashMap<(String, String), BTreeSet<String>>,
    /// The fences of leases whose Job was there and has ended, by the namespace and Job that hold them.
    over: HashMap<(String, String), u64>,
    /// Held leases by pool and namespace.
    counts: BTreeMap<String, BTreeMap<String, i64>>,
    pools: HashMap<String, PoolState>,
}

fn turn(namespace: &str, request: &Request) -> Turn {
    let Request { job, priority, attempts, since, .. } = request;
    (std::cmp::Reverse(*priority), *attempts, *since, namespace.to_owned(), job.clone())
}

impl Broker {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that `applicant` has exactly these wishes now. Returns the pools whose controller has to look.
    pub fn ask(&self, applicant: &Applicant, requests: Vec<Request>) -> BTreeSet<String> {
        let owner = applicant.key();
        let mut inner = self.inner();
        if requests.is_empty() && !inner.of_applicant.contains_key(&owner) {
            return BTreeSet::new();
        }
        let mut pools = BTreeSet::new();
        let wanted: Vec<String> = requests.iter().map(|request| request.job.clone()).collect();
        for job in inner.of_applicant.remove(&owner).unwrap_or_default() {
            if !wanted.contains(&job) {
                inner.drop_request(&(applicant.namespace.clone(), job));
            }
        }
        for request in requests {
            let key = (applicant.namespace.clone(), request.job.clone());
            if inner.requests.get(&key).is_some_and(|(_, known)| *known == request) {
                continue;
            }
            inner.drop_request(&key);
            for pool in &request.pools {
                let turns = inner.turns.entry(pool.clone()).or_default();
                turns.insert(turn(&applicant.namespace, &request));
            }
            pools.extend(request.pools.iter().cloned());
            inner.requests.insert(key, (applicant.clone(), request));
        }
        if !wanted.is_empty() {
            inner.of_applicant.insert(owner, wanted);
        }
        pools
    }

    /// The first `most` who wait for a device of `pool`, in order, without those who hold one already.
    pub fn waiting(&self, pool: &str, most: usize) -> Vec<(Applicant, Request)> {
        let inner = self.inner();
        let turns = inner.turns.get(pool).into_iter().flatten();
        let keys = turns.map(|(_, _, _, namespace, job)| (namespace.clone(), job.clone()));
        let free = keys.filter(|key| !inner.held.contains_key(key));
        free.filter_map(|key| inner.requests.get(&key).cloned()).take(most).collect()
    }

    /// How many ask for a device of `pool`.
    pub fn unserved(&self, pool: &str) -> i64 {
        let inner = self.inner();
        inner.turns.get(pool).map_or(0, |turns| i64::try_from(turns.len()).unwrap_or(i64::MAX))
    }

    /// The pools that somebody waits for.
    pub fn wanted_pools(&self) -> Vec<String> {
        self.inner().turns.keys().cloned().collect()
    }

    /// The lease that a Job holds or is to hold, unless one of that name had it already and ended; the lowest name
    /// where there are several, which the pool's controller mends.
    pub fn grant(&self, namespace: &str, job: &str) -> Option<DeviceLease> {
        let inner = self.inner();
        let key = (namespace.to_owned(), job.to_owned());
        let lease = inner.leases.get(inner.held.get(&key)?.first()?)?;
        (inner.over.get(&key) != Some(&lease.fence)).then(|| lease.as_ref().clone())
    }

    /// The Job that holds a lease has ended, is gone, or asks anew for its next pod: the lease is over, whatever its times say.
    pub fn job_ended(&self, namespace: &str, job: &str) {
        let mut inner = self.inner();
        let key = (namespace.to_owned(), job.to_owned());
        let first = inner.held.get(&key).and_then(|names| names.first());
        if let Some(fence) = first.and_then(|name| inner.leases.get(name)).map(|lease| lease.fence)
        {
            inner.over.insert(key, fence);
        }
    }

    /// Whether the Job that holds `lease` was there and has ended.
    pub fn is_over(&self, lease: &DeviceLease) -> bool {
        let Some(holder) = &lease.holder else { return true };
        let key = (holder.namespace.clone(), holder.job.clone());
        self.inner().over.get(&key) == Some(&lease.fence)
    }

    /// Every lease.
    pub fn leases(&self) -> Vec<Arc<DeviceLease>> {
        self.inner().leases.values().cloned().collect()
    }

    /// How many slots of `pool` are held.
    pub fn held(&self, pool: &str) -> i64 {
        self.inner().counts.get(pool).map_or(0, |counts| counts.values().sum())
    }

    /// How many slots of `pool` each namespace holds.
    pub fn held_by_namespace(&self, pool: &str) -> BTreeMap<String, i64> {
        self.inner().counts.get(pool).cloned().unwrap_or_default()
    }

    /// The API server said that this is the lease now. Returns whether it is news: what is older than what is known is
    /// not.
    pub fn saw(&self, lease: DeviceLease) -> bool {
        let mut inner = self.inner();
        let known = inner.leases.get(&lease.name);
        if known.is_some_and(|known| known.version >= lease.version) {
            return false;
        }
        inner.forget_lease(&lease.name);
        if let Some(holder) = &lease.holder {
            let key = (holder.namespace.clone(), holder.job.clone());
            inner.held.entry(key).or_default().insert(lease.name.clone());
            let counts = inner.counts.entry(lease.pool.clone()).or_default();
            *counts.entry(holder.namespace.clone()).or_insert(0) += 1;
        }
        inner.leases.insert(lease.name.clone(), Arc::new(lease));
        true
    }

    /// The API server said that there is no such lease any more.
    pub fn gone(&self, name: &str) {
        self.inner().forget_lease(name);
    }

    /// What the controller of `pool` found.
    pub fn note_pool(&self, pool: &str, state: PoolState) {
        self.inner().pools.insert(pool.to_owned(), state);
    }

    /// `pool` is gone.
    pub fn forget_pool(&self, pool: &str) {
        self.inner().pools.remove(pool);
    }

    /// Whether `pool` may have a device to give: unless its controller looked and found none.
    pub fn may_have_free(&self, pool: &str) -> bool {
        self.inner().pools.get(pool).is_none_or(|state| state.free > 0)
    }

    /// Whether a pool that `request` prefers to `pool` has a device for it now, so that `pool` leaves it to that one.
    pub fn served_better(&self, namespace: &str, request: &Request, pool: &str) -> bool {
        let inner = self.inner();
        request.pools.iter().take_while(|other| *other != pool).any(|other| {
            let Some(state) = inner.pools.get(other) else { return false };
            let counts = inner.counts.get(other);
            let held = counts.and_then(|counts| counts.get(namespace)).copied().unwrap_or(0);
            state.free > 0 && state.max_per_namespace.is_none_or(|most| held < most)
        })
    }
}

impl Inner {
    fn drop_request(&mut self, key: &(String, String)) {
        let Some((_, request)) = self.requests.remove(key) else { return };
        for pool in &request.pools {
            if let Some(turns) = self.turns.get_mut(pool) {
                turns.remove(&turn(&key.0, &request));
                if turns.is_empty() {
                    self.turns.remove(pool);
                }
            }
        }
    }

    fn forget_lease(&mut self, name: &str) {
        let Some(lease) = self.leases.remove(name) else { return };
        let Some(holder) = &lease.holder else { return };
        let key = (holder.namespace.clone(), holder.job.clone());
        if let Some(names) = self.held.get_mut(&key) {
            names.remove(name);
            if names.is_empty() {
                self.held.remove(&key);
                self.over.remove(&key);
            }
        }
        if let Some(counts) = self.counts.get_mut(&lease.pool) {
            if let Some(count) = counts.get_mut(&holder.namespace) {
                *count -= 1;
            }
            counts.retain(|_, count| *count > 0);
            if counts.is_empty() {
                self.counts.remove(&lease.pool);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn applicant(name: &str) -> Applicant {
        let (kind, namespace) = ("modelcompilation".to_owned(), "team".to_owned());
        Applicant { kind, namespace, name: name.to_owned(), uid: name.to_owned() }
    }

    fn request(job: &str, priority: i32, attempts: i32, second: i64) -> Request {
        Request {
            job: job.to_owned(),
            pools: vec!["cheap".to_owned(), "dear".to_owned()],
            priority,
            attempts,
            since: Timestamp::from_second(second).unwrap(),
            seconds: 60,
        }
    }

    fn order(broker: &Broker, pool: &str) -> Vec<String> {
        broker.waiting(pool, 9).into_iter().map(|(_, request)| request.job).collect()
    }

    #[test]
    fn the_urgent_come_first_then_who_never_had_a_device_then_who_waits_longest() {
        let broker = Broker::default();
        let ask = |name: &str, request| broker.ask(&applicant(name), vec![request]);
        ask("a", request("late", 0, 0, 9));
        ask("b", request("early", 0, 0, 1));
        ask("c", request("in-vain", 0, 2, 0));
        assert_eq!(ask("d", request("urgent", 5, 0, 99)).len(), 2);
        // The same again wakes nobody.
        assert!(ask("d", request("urgent", 5, 0, 99)).is_empty());
        assert_eq!(order(&broker, "cheap"), ["urgent", "early", "late", "in-vain"]);
        broker.ask(&applicant("d"), Vec::new());
        broker.ask(&applicant("b"), vec![request("other", 0, 0, 1)]);
        assert_eq!(order(&broker, "dear"), ["other", "late", "in-vain"]);
        for name in ["a", "b", "c"] {
            broker.ask(&applicant(name), Vec::new());
        }
        let inner = broker.inner();
        assert!(inner.requests.is_empty() && inner.turns.is_empty());
        assert!(inner.of_applicant.is_empty());
    }

    fn lease(version: u64, job: Option<&str>) -> DeviceLease {
        DeviceLease {
            name: "device-n".to_owned(),
            version,
            pool: "cheap".to_owned(),
            node: "n".to_owned(),
            whole: true,
            fence: version,
            holder: job.map(|job| Holder {
                applicant: applicant("a"),
                namespace: "team".to_owned(),
                job: job.to_owned(),
                priority: 0,
                granted: Timestamp::UNIX_EPOCH,
                expires: Timestamp::UNIX_EPOCH,
            }),
        }
    }

    #[test]
    fn what_is_older_is_no_news_and_holders_do_not_wait() {
        let broker = Broker::default();
        broker.ask(&applicant("a"), vec![request("a", 0, 0, 1)]);
        assert!(broker.saw(lease(5, Some("a"))));
        assert!(!broker.saw(lease(4, None)) && !broker.saw(lease(5, None)));
        assert!(order(&broker, "cheap").is_empty());
        assert_eq!(broker.grant("team", "a").unwrap().fence, 5);
        assert_eq!(broker.held_by_namespace("cheap")["team"], 1);
        // Its Job ends: another of the name does not get by this grant.
        broker.job_ended("team", "a");
        assert!(broker.grant("team", "a").is_none() && broker.is_over(&lease(5, Some("a"))));
        assert!(broker.saw(lease(6, None)));
        assert_eq!(order(&broker, "cheap"), ["a"]);
        assert_eq!(broker.held("cheap"), 0);
        broker.gone("device-n");
        let inner = broker.inner();
        assert!(inner.leases.is_empty() && inner.held.is_empty() && inner.counts.is_empty());
        assert!(inner.over.is_empty());
    }

    /// A run that is named as a compilation has wishes of its own.
    #[test]
    fn kinds_do_not_take_each_others_place() {
        let broker = Broker::default();
        let run = Applicant { kind: "tuningrun".to_owned(), ..applicant("a") };
        broker.ask(&applicant("a"), vec![request("a-cpu", 0, 0, 1)]);
        broker.ask(&run, vec![request("a-tune", 0, 0, 2)]);
        assert_eq!(order(&broker, "cheap"), ["a-cpu", "a-tune"]);
        broker.ask(&run, Vec::new());
        assert_eq!(order(&broker, "cheap"), ["a-cpu"]);
    }

    #[test]
    fn a_preferred_pool_serves_first_within_its_quota() {
        let broker = Broker::default();
        let asked = request("a", 0, 0, 1);
        assert!(!broker.served_better("team", &asked, "dear"));
        broker.note_pool("cheap", PoolState { free: 1, max_per_namespace: Some(1) });
        assert!(broker.served_better("team", &asked, "dear"));
        assert!(!broker.served_better("team", &asked, "cheap"));
        broker.saw(lease(1, Some("b")));
        assert!(!broker.served_better("team", &asked, "dear"));
    }
}
