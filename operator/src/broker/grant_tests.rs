#![allow(clippy::unwrap_used)]
use super::*;

const NOW: i64 = 1_000_000;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(NOW + seconds).unwrap()
}

fn slot(node: &str, device: Option<u8>) -> Slot {
    let name = device.map_or(format!("device-{node}"), |device| format!("device-{node}-{device}"));
    Slot { name, node: node.to_owned(), whole: device.is_none() }
}

fn waiting(namespace: &str, job: &str) -> (Applicant, Request) {
    let applicant = Applicant {
        kind: "modelcompilation".to_owned(),
        namespace: namespace.to_owned(),
        name: job.to_owned(),
        uid: format!("uid-{job}"),
    };
    let pools = vec!["p".to_owned()];
    let since = at(-10);
    (
        applicant,
        Request { job: job.to_owned(), pools, priority: 0, attempts: 0, since, seconds: 60 },
    )
}

/// A lease of `slot` that `job` of namespace `team` was granted `age` seconds ago.
fn held(slot: &Slot, job: &str, age: i64) -> Arc<DeviceLease> {
    let (applicant, _) = waiting("team", job);
    Arc::new(DeviceLease {
        version: 1,
        fence: 4,
        holder: Some(Holder {
            applicant,
            namespace: "team".to_owned(),
            job: job.to_owned(),
            priority: 0,
            granted: at(-age),
            expires: at(-age + 1000),
        }),
        ..DeviceLease::new(slot, "p")
    })
}

fn state(slots: Vec<Slot>) -> State {
    let nodes = slots.iter().map(|slot| slot.node.clone()).collect();
    State {
        pool: "p".to_owned(),
        slots,
        pools: BTreeSet::from(["p".to_owned(), "q".to_owned()]),
        nodes,
        ..State::default()
    }
}

fn job(state: &mut State, name: &str, finished: bool, deadline: i64) {
    let deadline = at(deadline);
    state.jobs.insert(("team".to_owned(), name.to_owned()), HolderJob { finished, deadline });
}

/// Whether a Job that is gone, or one that nobody leased to, keeps a slot.
#[test]
fn what_a_job_claims_is_not_free_and_what_it_leaves_is_at_once() {
    let mut state = state(vec![slot("a", None)]);
    state.leases = vec![held(&slot("a", None), "old", 2)];
    state.applicants.insert("uid-old".to_owned());
    assert_eq!(changes(&state), [] as [&str; 0]);
    // Its Job came and went within the time that it has to make one.
    state.over.insert("device-a".to_owned());
    state.waiting = vec![waiting("team", "new")];
    assert_eq!(changes(&state), ["device-a to new fence 5"]);
    // Somebody deleted the Lease of a Job that runs.
    state.leases.clear();
    state.over.clear();
    state.claimed.insert("device-a".to_owned());
    assert_eq!(changes(&state), [] as [&str; 0]);
}

/// Who gets what, in words.
fn changes(state: &State) -> Vec<String> {
    let decision = plan(state, at(0));
    let describe = |change: &Change| match change {
        Change::Hold(l) => {
            format!("{} to {} fence {}", l.name, l.holder.as_ref().unwrap().job, l.fence)
        }
        Change::Release(l) => format!("{} released", l.name),
        Change::Remove(l) => format!("{} removed", l.name),
    };
    // What was decided stands: deciding again changes nothing.
    let mut after = State {
        waiting: state.waiting.clone(),
        leases: state.leases.clone(),
        ..self::state(state.slots.clone())
    };
    after.jobs = state.jobs.clone();
    after.applicants = state.applicants.clone();
    after.nodes = state.nodes.clone();
    after.claimed = state.claimed.clone();
    after.max_per_namespace = state.max_per_namespace;
    for change in &decision.changes {
        let (Change::Hold(lease) | Change::Release(lease) | Change::Remove(lease)) = change;
        after.leases.retain(|known| known.name != lease.name);
        if let Change::Hold(lease) = change {
            let holder = lease.holder.as_ref().unwrap();
            after.waiting.retain(|(_, request)| request.job != holder.job);
            after.applicants.insert(holder.applicant.uid.clone());
        }
        if !matches!(change, Change::Remove(_)) {
            after.leases.push(Arc::new(lease.clone()));
        }
    }
    let again = plan(&after, at(0));
    assert_eq!(again.changes, [], "deciding again changes something");
    assert_eq!(again.free, decision.free);
    decision.changes.iter().map(describe).collect()
}

#[test]
fn as_many_as_there_are_slots_get_one_in_order() {
    let mut state = state(vec![slot("a", None), slot("b", None)]);
    state.waiting = ["one", "two", "three"].map(|job| waiting("team", job)).to_vec();
    let got = changes(&state);
    assert_eq!(got.len(), 2);
    assert!(got.iter().any(|text| text.contains("to one fence 1")), "{got:?}");
    assert!(got.iter().any(|text| text.contains("to two fence 1")), "{got:?}");
}

#[test]
fn a_finished_holder_hands_over_in_one_write() {
    let mut state = state(vec![slot("a", None)]);
    state.leases = vec![held(&slot("a", None), "old", 60)];
    job(&mut state, "old", true, 500);
    state.waiting = vec![waiting("team", "new")];
    assert_eq!(changes(&state), ["device-a to new fence 5"]);
    state.waiting.clear();
    assert_eq!(changes(&state), ["device-a released"]);
}

#[test]
fn a_holder_at_work_keeps_its_device_and_waits_for_nobody() {
    let mut state = state(vec![slot("a", None)]);
    state.leases = vec![held(&slot("a", None), "old", 60)];
    job(&mut state, "old", false, 100);
    state.waiting = vec![waiting("team", "new")];
    assert_eq!(changes(&state), [] as [&str; 0]);
    assert_eq!(plan(&state, at(0)).again, Some(at(940)));
    // Its Job was given more time: so is its lease.
    job(&mut state, "old", false, 5000);
    assert_eq!(changes(&state), ["device-a to old fence 4"]);
}

#[test]
fn a_dead_holder_is_collected() {
    let mut state = state(vec![slot("a", None)]);
    // Its compilation is gone.
    state.leases = vec![held(&slot("a", None), "old", 1)];
    assert_eq!(changes(&state), ["device-a released"]);
    // It is there, and its Job is about to be made.
    state.applicants.insert("uid-old".to_owned());
    assert_eq!(changes(&state), [] as [&str; 0]);
    assert_eq!(plan(&state, at(0)).again, Some(at(29)));
    // It never was.
    state.leases = vec![held(&slot("a", None), "old", WITHOUT_JOB)];
    assert_eq!(changes(&state), ["device-a released"]);
    // The Job hangs beyond its own deadline.
    state.leases = vec![held(&slot("a", None), "old", 1000)];
    job(&mut state, "old", false, -500);
    assert_eq!(changes(&state), ["device-a released"]);
}

#[test]
fn a_device_and_its_whole_node_exclude_each_other() {
    // Pool `q` has the whole node that pool `p` has devices of.
    let devices = vec![slot("a", Some(0)), slot("a", Some(1)), slot("b", Some(0))];
    let mut state = state(devices);
    let mut whole = held(&slot("a", None), "other", 5);
    Arc::make_mut(&mut whole).pool = "q".to_owned();
    state.leases = vec![whole];
    state.waiting = ["one", "two", "three"].map(|job| waiting("team", job)).to_vec();
    assert_eq!(changes(&state), ["device-b-0 to one fence 1"]);
    // And a node with a device in use is not given as a whole.
    let mut nodes = self::state(vec![slot("a", None)]);
    let mut device = held(&slot("a", Some(1)), "other", 5);
    Arc::make_mut(&mut device).pool = "q".to_owned();
    nodes.leases = vec![device];
    nodes.waiting = vec![waiting("team", "one")];
    assert_eq!(changes(&nodes), [] as [&str; 0]);
    // A pool that is gone holds nothing back.
    nodes.pools = BTreeSet::from(["p".to_owned()]);
    let decision = plan(&nodes, at(0));
    assert_eq!(decision.changes.len(), 2, "{decision:?}");
}

#[test]
fn a_namespace_holds_no_more_than_its_quota() {
    let mut state = state(vec![slot("a", None), slot("b", None), slot("c", None)]);
    state.max_per_namespace = Some(1);
    state.leases = vec![held(&slot("a", None), "old", 5)];
    job(&mut state, "old", false, 100);
    state.waiting =
        vec![waiting("team", "one"), waiting("others", "two"), waiting("others", "three")];
    let got = changes(&state);
    assert!(got.len() == 1 && got[0].contains("to two"), "{got:?}");
    assert_eq!(plan(&state, at(0)).free, 1);
}

#[test]
fn leases_of_nodes_that_went_are_removed_and_one_job_holds_one() {
    let mut state = state(vec![slot("a", None), slot("b", None)]);
    let mut gone = held(&slot("gone", None), "old", 60);
    Arc::make_mut(&mut gone).holder = None;
    state.leases = vec![held(&slot("a", None), "job", 1), held(&slot("b", None), "job", 1), gone];
    job(&mut state, "job", false, 100);
    assert_eq!(changes(&state), ["device-gone removed", "device-b released"]);
}

#[test]
fn another_slot_is_tried_after_an_attempt_in_vain() {
    let (_, first) = waiting("team", "job");
    let picked: BTreeSet<usize> =
        (0..20).map(|attempts| pick(&Request { attempts, ..first.clone() }, 4)).collect();
    assert_eq!(picked.len(), 4);
}
