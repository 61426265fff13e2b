//! Decides, from values alone, which leases of a pool end and who gets which slot.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Applicant, DeviceLease, Holder, Request, Slot};

/// Seconds from a grant to the Job that uses it.
pub const WITHOUT_JOB: i64 = 30;
/// Seconds that a lease outlives its Job's deadline.
pub const SLACK: i64 = 120;
/// Seconds between two looks at pods that outlive their Job.
const PODS_LEFT: i64 = 2;

/// What is known of the Job that a lease is held for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HolderJob {
    /// Whether it has ended, or asks anew for its next pod.
    pub finished: bool,
    /// When its deadline kills it.
    pub deadline: Timestamp,
}

/// What a decision depends on.
#[derive(Debug, Default)]
pub struct State {
    /// The pool.
    pub pool: String,
    /// Its slots.
    pub slots: Vec<Slot>,
    /// Every lease of the cluster's devices.
    pub leases: Vec<Arc<DeviceLease>>,
    /// The pools that exist.
    pub pools: BTreeSet<String>,
    /// The nodes that exist.
    pub nodes: BTreeSet<String>,
    /// The Jobs of holders, by namespace and name.
    pub jobs: HashMap<(String, String), HolderJob>,
    /// Names of leases whose Job was there and is gone.
    pub over: BTreeSet<String>,
    /// Names of leases that a pod still uses although its Job is gone.
    pub occupied: BTreeSet<String>,
    /// Slots that Jobs under way claim, by the name of the lease.
    pub claimed: BTreeSet<String>,
    /// The uids of compilations that exist and are not being deleted.
    pub applicants: BTreeSet<String>,
    /// Who waits, in order, without whom a better pool serves.
    pub waiting: Vec<(Applicant, Request)>,
    /// Most slots of one namespace.
    pub max_per_namespace: Option<i64>,
}

/// What is to be written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Change {
    /// The lease with its new holder, or with a new expiry.
    Hold(DeviceLease),
    /// The lease without a holder.
    Release(DeviceLease),
    /// The lease's device is gone: the object is deleted.
    Remove(DeviceLease),
}

/// What came out.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// What is to be written, in order.
    pub changes: Vec<Change>,
    /// Slots that stay free.
    pub free: i64,
    /// When to look again.
    pub again: Option<Timestamp>,
}

fn later(time: Timestamp, seconds: i64) -> Timestamp {
    time.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}

/// Where a lease's holder stands.
enum Standing {
    Ended,
    /// It goes on; look again then.
    Until(Timestamp),
    /// It goes on, and its Job may take until then.
    Extend(Timestamp),
}

fn standing(state: &State, holder: &Holder, now: Timestamp) -> Standing {
    match state.jobs.get(&(holder.namespace.clone(), holder.job.clone())) {
        Some(job) if job.finished => Standing::Ended,
        Some(job) => {
            let wanted = later(job.deadline, SLACK);
            if wanted > later(holder.expires, 1) {
                return Standing::Extend(wanted);
            }
            if now >= holder.expires { Standing::Ended } else { Standing::Until(holder.expires) }
        }
        None => {
            let end = later(holder.granted, WITHOUT_JOB);
            let wanted = state.applicants.contains(&holder.applicant.uid);
            if !wanted || now >= end { Standing::Ended } else { Standing::Until(end) }
        }
    }
}

impl State {
    /// The pool's leases that are over although their Job was not seen to end: it is gone, or was made anew. A pod of it may
    /// be left, since Kubernetes' garbage collector deletes a Job when it knows of no pod, and it may know less than there is.
    pub fn without_end(&self, now: Timestamp) -> Vec<&DeviceLease> {
        let without_end = |lease: &&Arc<DeviceLease>| {
            let Some(holder) = lease.holder.as_ref().filter(|_| lease.pool == self.pool) else {
                return false;
            };
            let job = self.jobs.get(&(holder.namespace.clone(), holder.job.clone()));
            let over = self.over.contains(&lease.name)
                || matches!(standing(self, holder, now), Standing::Ended);
            over && job.is_none_or(|job| !job.finished)
        };
        self.leases.iter().filter(without_end).map(Arc::as_ref).collect()
    }
}

/// What is to be done for a pool.
pub fn plan(state: &State, now: Timestamp) -> Decision {
    let mut decision = Decision::default();
    let mut sorted = sort(state, now, &mut decision);
    let mut free: Vec<&Slot> = state.slots.iter().collect();
    free.sort();
    let taken = Taken::by(&sorted.held);
    free.retain(|slot| !state.claimed.contains(&slot.name) && !taken.conflicts(slot));
    serve(state, now, &mut sorted, &mut free, &mut decision);
    for lease in sorted.ended.into_values() {
        let change = match state.nodes.contains(&lease.node) {
            true => Change::Release(DeviceLease { holder: None, ..Arc::unwrap_or_clone(lease) }),
            false => Change::Remove(Arc::unwrap_or_clone(lease)),
        };
        decision.changes.push(change);
    }
    decision.free = i64::try_from(free.len()).unwrap_or(i64::MAX);
    decision
}

impl Decision {
    fn look_again(&mut self, at: Timestamp) {
        self.again = Some(self.again.map_or(at, |again| again.min(at)));
    }
}

/// The leases by what becomes of them.
#[derive(Default)]
struct Sorted {
    /// Their holders go on.
    held: Vec<Arc<DeviceLease>>,
    /// Nobody holds them; by name.
    unheld: BTreeMap<String, Arc<DeviceLease>>,
    /// Their holders have ended; by name.
    ended: BTreeMap<String, Arc<DeviceLease>>,
}

/// Sorts the leases. Those of another pool are that pool's to end; those of a pool that is gone are everybody's.
fn sort(state: &State, now: Timestamp, decision: &mut Decision) -> Sorted {
    let mut sorted = Sorted::default();
    let mut holders = BTreeSet::new();
    let mut leases: Vec<&Arc<DeviceLease>> = state.leases.iter().collect();
    leases.sort_by(|a, b| a.name.cmp(&b.name));
    for lease in leases {
        let ours = lease.pool == state.pool || !state.pools.contains(&lease.pool);
        let Some(holder) = &lease.holder else {
            match ours && !state.nodes.contains(&lease.node) {
                true => decision.changes.push(Change::Remove(lease.as_ref().clone())),
                false => drop(sorted.unheld.insert(lease.name.clone(), Arc::clone(lease))),
            }
            continue;
        };
        if !ours {
            sorted.held.push(Arc::clone(lease));
            continue;
        }
        // One lease is enough for one Job.
        let twice = !holders.insert((holder.namespace.clone(), holder.job.clone()));
        let over = twice || state.over.contains(&lease.name);
        match standing(state, holder, now) {
            _ if state.occupied.contains(&lease.name) => {
                decision.look_again(later(now, PODS_LEFT));
                sorted.held.push(Arc::clone(lease));
            }
            Standing::Until(at) if !over => {
                decision.look_again(at);
                sorted.held.push(Arc::clone(lease));
            }
            Standing::Extend(expires) if !over => {
                let holder = Some(Holder { expires, ..holder.clone() });
                let lease = DeviceLease { holder, ..lease.as_ref().clone() };
                decision.look_again(expires);
                sorted.held.push(Arc::new(lease.clone()));
                decision.changes.push(Change::Hold(lease));
            }
            _ => drop(sorted.ended.insert(lease.name.clone(), Arc::clone(lease))),
        }
    }
    sorted
}

/// Gives free slots to who waits, in order.
fn serve(
    state: &State,
    now: Timestamp,
    sorted: &mut Sorted,
    free: &mut Vec<&Slot>,
    decision: &mut Decision,
) {
    let mut counts: HashMap<String, i64> = HashMap::new();
    let ours = sorted.held.iter().filter(|lease| lease.pool == state.pool);
    for holder in ours.filter_map(|lease| lease.holder.as_ref()) {
        *counts.entry(holder.namespace.clone()).or_insert(0) += 1;
    }
    for (applicant, request) in &state.waiting {
        if free.is_empty() {
            break;
        }
        let count = counts.entry(applicant.namespace.clone()).or_insert(0);
        if state.max_per_namespace.is_some_and(|most| *count >= most) {
            continue;
        }
        *count += 1;
        // The slots of one pool are nodes or devices, never both, so that no other one goes along with it.
        let slot = free.swap_remove(pick(request, free.len()));
        let before = sorted.ended.remove(&slot.name).or_else(|| sorted.unheld.remove(&slot.name));
        let lease = grant(state, slot, before.map(Arc::unwrap_or_clone), applicant, request, now);
        decision.look_again(later(now, WITHOUT_JOB));
        decision.changes.push(Change::Hold(lease));
    }
}

/// What leases hold, so that a look takes time in proportion to slots and leases and not to their product.
#[derive(Default)]
struct Taken<'a> {
    /// The names of the leases.
    names: HashSet<&'a str>,
    /// Nodes that are held as a whole.
    whole: HashSet<&'a str>,
    /// Nodes that are held as a whole or in part.
    nodes: HashSet<&'a str>,
}

impl<'a> Taken<'a> {
    fn by(held: &'a [Arc<DeviceLease>]) -> Self {
        let mut taken = Self::default();
        for lease in held {
            taken.names.insert(&lease.name);
            taken.nodes.insert(&lease.node);
            if lease.whole {
                taken.whole.insert(&lease.node);
            }
        }
        taken
    }

    /// Whether one of the leases keeps a slot from being held.
    fn conflicts(&self, slot: &Slot) -> bool {
        let node = slot.node.as_str();
        self.names.contains(slot.name.as_str())
            || self.whole.contains(node)
            || (slot.whole && self.nodes.contains(node))
    }
}

/// Which of the free slots a request gets: another one for each attempt, as a node may refuse what its neighbour takes.
fn pick(request: &Request, free: usize) -> usize {
    let mut hasher = DefaultHasher::new();
    (&request.job, request.attempts).hash(&mut hasher);
    usize::try_from(hasher.finish() % free.max(1) as u64).unwrap_or(0)
}

fn grant(
    state: &State,
    slot: &Slot,
    before: Option<DeviceLease>,
    applicant: &Applicant,
    request: &Request,
    now: Timestamp,
) -> DeviceLease {
    let before = before.unwrap_or_else(|| DeviceLease::new(slot, &state.pool));
    DeviceLease {
        pool: state.pool.clone(),
        node: slot.node.clone(),
        whole: slot.whole,
        fence: before.fence + 1,
        holder: Some(Holder {
            applicant: applicant.clone(),
            namespace: applicant.namespace.clone(),
            job: request.job.clone(),
            priority: request.priority,
            granted: now,
            expires: later(now, WITHOUT_JOB + SLACK + request.seconds.max(0)),
        }),
        ..before
    }
}

#[cfg(test)]
#[path = "grant_tests.rs"]
mod tests;
