//! One compilation of the suite: what it asks for, and what users have changed of it since.

use hone_types::Random;

use super::HASH;

/// The namespaces that compilations and tuning runs are in.
pub const NAMESPACES: [&str; 2] = ["team-a", "team-b"];
/// The pool whose workers run side by side.
pub const SHARED_POOL: &str = "amd64";
/// The pool whose device is leased to one worker at a time.
pub const EXCLUSIVE_POOL: &str = "exclusive";
/// Of so many compilations after one another, those that share a folder share the same one, whatever their namespace.
const SHARING: usize = 24;
/// Processors that edits ask for in turn, as fields of a platform; the first is that of the pool's node.
const PROCESSORS: [Option<&str>; 3] =
    [None, Some(r#""cpu": "generic""#), Some(r#""cpu": "generic", "features": ["+avx2", "+fma"]"#)];

/// What is particular about a compilation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing: one target, and a folder that no other compilation stores to.
    Alone,
    /// Equal work with one folder: within a namespace a cache hit, over namespaces several owners of one artifact.
    Shared,
    /// As `Alone`, on a device that is leased.
    Leased,
    /// As `Alone`, with a search for faster schedules.
    Tuned,
}

/// A compilation, as the suite has asked for it.
#[derive(Clone, Debug)]
pub struct Compilation {
    /// Its name, which no other has, whatever its namespace.
    pub name: String,
    /// Its namespace, as an index into [`NAMESPACES`].
    pub namespace: usize,
    /// What is particular about it.
    pub kind: Kind,
    /// Its output folder, below the one of the suite.
    pub folder: String,
    /// Whether its artifacts go when it is deleted.
    pub deletes: bool,
    /// The finalizer may not be there yet, because `deletes` was set by an edit.
    pub late_finalizer: bool,
    /// How often its target was changed.
    pub edits: usize,
    /// Whether `spec.suspend` is set.
    pub suspended: bool,
    /// The uid that the API server gave it.
    pub uid: String,
    /// Whether it was deleted.
    pub deleted: bool,
}

impl Compilation {
    /// The compilation of a number: what it is follows from the number and the seed alone.
    pub fn new(number: usize, seed: u64) -> Self {
        let mut random = Random::new(seed ^ HASH.wrapping_mul(number as u64 + 1));
        let kind = match random.below(8) {
            0 => Kind::Tuned,
            1 | 2 => Kind::Leased,
            3 => Kind::Alone,
            _ => Kind::Shared,
        };
        let folder = match kind {
            Kind::Shared => format!("shared-{}", number / SHARING),
            _ => format!("c{number}"),
        };
        Self {
            name: format!("c{number}"),
            namespace: random.below(NAMESPACES.len()),
            kind,
            folder,
            deletes: random.below(3) > 0,
            late_finalizer: false,
            edits: 0,
            suspended: false,
            uid: String::new(),
            deleted: false,
        }
    }

    /// The processor that it is compiled for, where that is not the node's.
    pub fn processor(&self) -> Option<&'static str> {
        PROCESSORS[self.edits % PROCESSORS.len()]
    }

    /// The targets of its spec, in YAML's flow form.
    pub fn targets(&self) -> String {
        let pool = match self.kind {
            Kind::Leased => EXCLUSIVE_POOL,
            _ => SHARED_POOL,
        };
        let platform = self.processor().map_or_else(String::new, |cpu| {
            format!(", \"platform\": {{\"os\": \"linux\", \"arch\": \"amd64\", {cpu}}}")
        });
        format!("[{{\"name\": \"main\", \"pool\": \"{pool}\"{platform}}}]")
    }

    /// What becomes of its artifacts, as the API has it.
    pub fn policy(&self) -> &'static str {
        if self.deletes { "Delete" } else { "Retain" }
    }

    /// The object as a whole. `digest` is that of the model, without which no result is reused.
    pub fn manifest(&self, digest: &str) -> String {
        let digest = match self.kind {
            Kind::Shared => format!("digest: '{digest}', "),
            _ => String::new(),
        };
        let tuning = match self.kind {
            Kind::Tuned => "  tuning: {maxTrials: 40}\n",
            _ => "",
        };
        let (name, targets, policy) = (&self.name, self.targets(), self.policy());
        let (namespace, folder) = (NAMESPACES[self.namespace], &self.folder);
        format!(
            "
apiVersion: hone.dev/v1alpha1
kind: ModelCompilation
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  model: {{uri: 's3://models/digits.onnx', {digest}credentialsSecretRef: {{name: store}}}}
  targets: {targets}
  output:
    uri: 's3://artifacts/chaos/{folder}'
    credentialsSecretRef: {{name: store}}
    deletionPolicy: {policy}
  limits: {{retries: 10}}
{tuning}  worker: {{resources: {{requests: {{cpu: 100m, memory: 1Gi}}}}}}
"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_and_a_seed_decide_what_is_asked_for() {
        for number in 0..50 {
            let [one, same] = [0, 0].map(|_| Compilation::new(number, 3).manifest("sha256:0"));
            assert_eq!(one, same);
        }
        let kinds: Vec<Kind> = (0..50).map(|number| Compilation::new(number, 3).kind).collect();
        for kind in [Kind::Alone, Kind::Shared, Kind::Leased, Kind::Tuned] {
            assert!(kinds.contains(&kind), "{kind:?}");
        }
    }

    #[test]
    fn sharers_of_a_folder_are_in_both_namespaces() {
        let all = (0..50).map(|number| Compilation::new(number, 3));
        let shared = all.filter(|one| one.folder == "shared-1");
        let namespaces: Vec<usize> = shared.map(|one| one.namespace).collect();
        assert!(namespaces.contains(&0) && namespaces.contains(&1), "{namespaces:?}");
    }

    #[test]
    fn edits_take_turns_and_return() {
        let mut one = Compilation::new(0, 3);
        let first = one.targets();
        one.edits = 1;
        assert_ne!(one.targets(), first);
        one.edits = PROCESSORS.len();
        assert_eq!(one.targets(), first);
    }
}
