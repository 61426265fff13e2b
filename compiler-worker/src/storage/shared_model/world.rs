//! Compilations, their pods, and what the operator does for them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use hone_artifact::exit_code::Reason;

use super::super::{DELETING, adopt, confirm, depart, enter, give_up, index, owners_name, read};
use super::view::{Answer, Store, View};
use crate::failure::Result;

/// The artifacts that specs lead to: that of the first, and that of an edited one.
const ARTIFACTS: [&str; 2] = ["x.hone", "y.hone"];

fn uid(compilation: usize) -> String {
    format!("u{compilation}")
}

/// What a pod does.
#[derive(Clone, Hash)]
pub(super) enum Work {
    Compile(&'static str),
    Adopt(&'static str),
    CleanUp { named: BTreeSet<String>, heirs: BTreeMap<&'static str, Vec<String>> },
}

impl Work {
    /// What the program `hone` does for it.
    fn run(&self, uid: &str, place: &View<'_>) -> Result<()> {
        match self {
            Self::Compile(artifact) => {
                enter(place, artifact, uid)?;
                place.create(artifact)?;
                confirm(place, artifact, uid)
            }
            Self::Adopt(artifact) => adopt(place, artifact, 4, uid),
            Self::CleanUp { named, heirs } => {
                let mut names = named.clone();
                names.extend(depart(place, uid)?);
                let mut done = Ok(());
                for name in names {
                    let heirs = heirs.get(&*name).map_or(&[][..], Vec::as_slice);
                    done = done.and(give_up(place, &name, uid, heirs).map(drop));
                }
                done
            }
        }
    }
}

/// A pod that runs.
#[derive(Clone, Hash)]
pub(super) struct Pod {
    pub(super) compilation: usize,
    pub(super) work: Work,
    pub(super) answers: Vec<Answer>,
    /// What had changed when it began to wait.
    pub(super) waits: Option<u64>,
    /// Its Job is gone: nobody begins it again.
    pub(super) loose: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Life {
    Absent,
    There,
    /// Its clean-up goes on.
    Going,
    Gone,
}

#[derive(Clone, Hash)]
pub(super) struct Compilation {
    pub(super) deletes: bool,
    /// Whether it enters itself when it takes a result from the cache: versions before did not.
    pub(super) enters: bool,
    pub(super) life: Life,
    pub(super) edited: bool,
    pub(super) artifact: Option<&'static str>,
    /// Whether a worker has told that it is an owner.
    pub(super) entered: bool,
}

impl Compilation {
    fn wanted(&self) -> &'static str {
        ARTIFACTS[usize::from(self.edited)]
    }
}

#[derive(Clone, Hash)]
pub(super) struct World {
    pub(super) store: Store,
    pub(super) compilations: Vec<Compilation>,
    pub(super) pods: Vec<Pod>,
    /// Whether no pod is ever killed or run twice: then no entry is left either. They are empty, and tell nothing.
    pub(super) tidy: bool,
    /// Pods that may still be killed or run twice.
    pub(super) faults: usize,
    /// How often time may still pass while somebody waits.
    pub(super) passes: usize,
    pub(super) forgets: bool,
    /// Whether pods may run on after their compilation was deleted.
    pub(super) runs_on: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Move {
    Step(usize),
    /// Killed, and begun again where it has a Job.
    Kill(usize),
    /// Taken for dead while it runs, so that another does the same beside it.
    Twice(usize),
    Compile(usize),
    Hit(usize),
    Edit(usize),
    /// With pods that were taken for dead, and run on.
    Delete(usize, bool),
    Time,
}

impl World {
    /// Compilations by whether each deletes, and whether it enters itself at a cache hit.
    pub(super) fn new(compilations: &[(bool, bool)], faults: usize, forgets: bool) -> Self {
        let new = |(deletes, enters): &(bool, bool)| Compilation {
            deletes: *deletes,
            enters: *enters,
            life: Life::Absent,
            edited: false,
            artifact: None,
            entered: false,
        };
        let compilations = compilations.iter().map(new).collect();
        let (store, pods) = (Store::default(), Vec::new());
        let tidy = faults == 0;
        Self { store, compilations, pods, tidy, faults, passes: 2, forgets, runs_on: true }
    }

    fn can_step(&self, pod: &Pod) -> bool {
        pod.waits != Some(self.store.changes)
    }

    /// The steps of pods.
    pub(super) fn steps(&self) -> Vec<Move> {
        let steps = self.pods.iter().enumerate().filter(|(_, pod)| self.can_step(pod));
        let mut steps: Vec<Move> = steps.map(|(index, _)| Move::Step(index)).collect();
        if self.passes > 0 && self.pods.iter().any(|pod| !self.can_step(pod)) {
            steps.push(Move::Time);
        }
        steps
    }

    /// What may happen besides.
    pub(super) fn events(&self) -> Vec<Move> {
        let mut events = Vec::new();
        for (index, one) in self.compilations.iter().enumerate() {
            match one.life {
                Life::Absent => {
                    events.push(Move::Compile(index));
                    // Who enters itself may have seen one that is about to go.
                    let seen = |other: &Compilation| {
                        other.artifact == Some(one.wanted())
                            && (one.enters || other.life == Life::There && other.entered)
                    };
                    events.extend(self.compilations.iter().any(seen).then_some(Move::Hit(index)));
                }
                Life::There => {
                    events.extend((!one.edited).then_some(Move::Edit(index)));
                    events.push(Move::Delete(index, false));
                    let runs = self.runs_on && self.pods.iter().any(|pod| pod.compilation == index);
                    events.extend(runs.then_some(Move::Delete(index, true)));
                }
                Life::Going | Life::Gone => {}
            }
        }
        for (index, pod) in self.pods.iter().enumerate().filter(|_| self.faults > 0) {
            let there = self.compilations[pod.compilation].life == Life::There;
            // One that runs on after its compilation was deleted is not killed as well.
            if !pod.loose || there {
                events.push(Move::Kill(index));
            }
            if !pod.loose {
                events.push(Move::Twice(index));
            }
        }
        events
    }

    fn pod(&mut self, compilation: usize, work: Work) {
        let pod = Pod { compilation, work, answers: Vec::new(), waits: None, loose: false };
        self.pods.push(pod);
    }

    pub(super) fn take(&mut self, chosen: Move) {
        match chosen {
            Move::Step(index) => self.step(index),
            Move::Kill(index) => {
                self.faults -= 1;
                self.again(index);
            }
            Move::Twice(index) => {
                self.faults -= 1;
                let again = Pod { answers: Vec::new(), waits: None, ..self.pods[index].clone() };
                self.pods[index].loose = true;
                self.pods.push(again);
            }
            Move::Compile(index) => {
                self.compilations[index].life = Life::There;
                let artifact = self.compilations[index].wanted();
                self.pod(index, Work::Compile(artifact));
            }
            Move::Hit(index) => {
                let one = &mut self.compilations[index];
                let artifact = one.wanted();
                (one.life, one.artifact) = (Life::There, Some(artifact));
                if one.enters {
                    self.pod(index, Work::Adopt(artifact));
                }
            }
            Move::Edit(index) => {
                let one = &mut self.compilations[index];
                one.edited = true;
                // The status need not tell of earlier artifacts: it does not where the policy was `Retain` then.
                (one.artifact, one.entered) = (None, false);
                self.loosen(index);
                let artifact = self.compilations[index].wanted();
                self.pod(index, Work::Compile(artifact));
            }
            Move::Delete(index, runs_on) => self.delete(index, runs_on),
            Move::Time => {
                self.passes = self.passes.saturating_sub(1);
                self.store.now += 2 * DELETING;
                self.store.changes += 1;
            }
        }
    }

    /// A pod that was killed: its Job begins it again.
    fn again(&mut self, index: usize) {
        let pod = &mut self.pods[index];
        if pod.loose {
            self.pods.remove(index);
        } else {
            (pod.answers, pod.waits) = (Vec::new(), None);
        }
    }

    fn loosen(&mut self, compilation: usize) {
        for pod in self.pods.iter_mut().filter(|pod| pod.compilation == compilation) {
            pod.loose = true;
        }
    }

    fn delete(&mut self, index: usize, runs_on: bool) {
        self.loosen(index);
        if !runs_on {
            self.pods.retain(|pod| pod.compilation != index);
        }
        let one = &mut self.compilations[index];
        if !one.deletes {
            one.life = Life::Gone;
            return;
        }
        one.life = Life::Going;
        let named = one.artifact.into_iter().map(str::to_owned).collect();
        let mut heirs: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
        let there =
            |(_, other): &(usize, &Compilation)| other.life == Life::There && !other.entered;
        for (other, one) in self.compilations.iter().enumerate().filter(there) {
            if let Some(artifact) = one.artifact {
                heirs.entry(artifact).or_default().push(uid(other));
            }
        }
        self.pod(index, Work::CleanUp { named, heirs });
    }

    fn step(&mut self, index: usize) {
        let Self { store, pods, forgets, .. } = self;
        let Pod { compilation, work, answers, waits, .. } = &mut pods[index];
        let place = View {
            store: RefCell::new(store),
            answers: RefCell::new(answers),
            at: Cell::new(0),
            stepped: Cell::new(false),
            stopped: Cell::new(false),
            waits: Cell::new(false),
            forgets: *forgets,
        };
        let done = work.run(&uid(*compilation), &place);
        let (stopped, is_waiting) = (place.stopped.get(), place.waits.get());
        *waits = is_waiting.then_some(self.store.changes);
        if !stopped {
            self.ended(index, done);
        }
    }

    /// What the operator makes of the end of a pod.
    fn ended(&mut self, index: usize, done: Result<()>) {
        let Pod { compilation, work, loose, .. } = self.pods[index].clone();
        let one = &mut self.compilations[compilation];
        let current = one.life == Life::There && !loose;
        match (work, done) {
            (Work::Compile(artifact) | Work::Adopt(artifact), Ok(())) => {
                if current {
                    (one.artifact, one.entered) = (Some(artifact), true);
                }
            }
            (Work::Adopt(artifact), Err(_)) => {
                if current {
                    one.artifact = None;
                    self.pod(compilation, Work::Compile(artifact));
                }
            }
            (Work::CleanUp { .. }, Ok(())) => one.life = Life::Gone,
            // The worker of one that has gone is out of its time to delete: as if it had been killed, were it not to go on.
            (Work::Compile(_), Err(failure)) if failure.reason == Reason::StorageFault => {
                (self.pods[index].answers, self.pods[index].waits) = (Vec::new(), None);
                return;
            }
            (_, Err(_)) => return self.again(index),
        }
        self.pods.remove(index);
    }

    fn owners(&self, artifact: &str) -> Vec<String> {
        let bytes = self.store.objects.get(&owners_name(artifact));
        bytes.map_or_else(Vec::new, |bytes| read(artifact, bytes).unwrap().owners)
    }

    /// What is wrong at any time, and once no pod is left.
    pub(super) fn fault(&self) -> Option<String> {
        let is_there = |artifact: &str| self.store.objects.contains_key(artifact);
        let all = || self.compilations.iter().enumerate();
        for (index, one) in all().filter(|(_, one)| one.life == Life::There) {
            let Some(artifact) = one.artifact else { continue };
            if (one.entered || self.pods.is_empty()) && !is_there(artifact) {
                return Some(format!("{artifact} is lost, which {index} names"));
            }
            if one.entered && !self.owners(artifact).contains(&uid(index)) {
                return Some(format!("{index} does not own {artifact}"));
            }
        }
        if !self.pods.is_empty() {
            return None;
        }
        let keeps = |one: &Compilation| one.life == Life::There || !one.deletes;
        let keeping: Vec<String> =
            all().filter(|(_, one)| keeps(one)).map(|(index, _)| uid(index)).collect();
        for artifact in ARTIFACTS {
            let owners = self.owners(artifact);
            if is_there(artifact) && owners.is_empty() {
                return Some(format!("nobody owns {artifact}"));
            }
            if let Some(stranger) = owners.iter().find(|owner| !keeping.contains(owner)) {
                return Some(format!("{stranger} has gone and owns {artifact}"));
            }
        }
        let going = all().filter(|(_, one)| !keeps(one)).map(|(index, _)| index_of(index));
        let entries =
            |index: &String| self.store.objects.keys().any(|name| name.starts_with(index));
        going
            .filter(|index| self.tidy && entries(index))
            .map(|index| format!("{index} has entries"))
            .next()
    }
}

fn index_of(compilation: usize) -> String {
    format!("{}/", index(&uid(compilation)))
}
