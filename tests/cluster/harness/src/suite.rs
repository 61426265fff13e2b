//! A test program: one cluster, many tests.

use std::io::Write;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use anyhow::{Result, anyhow};
use libtest_mimic::{Arguments, Failed, Trial};

use crate::{Capabilities, Capability, Cluster, ClusterOptions, Kubectl, State, evidence};

/// What a test gets.
#[derive(Debug)]
pub struct Context<'a> {
    /// The cluster that all tests of the program share.
    pub cluster: &'a Cluster,
    /// `kubectl` in a namespace that is the test's own.
    pub kubectl: Kubectl,
    /// That namespace.
    pub namespace: String,
}

/// The body of a test.
type Body = fn(&Context<'_>) -> Result<()>;

struct Case {
    name: &'static str,
    needs: Vec<Capability>,
    alone: bool,
    body: Body,
}

/// What the tests of a program share.
#[derive(Default)]
struct Shared {
    options: ClusterOptions,
    /// Started by the first test that runs; an error of the start fails every test.
    cluster: OnceLock<Result<Cluster, String>>,
    /// Held for writing by a test that must run alone, for reading by the others.
    turn: RwLock<()>,
}

/// A test program in the making.
pub struct Suite {
    name: &'static str,
    options: ClusterOptions,
    needs: Vec<Capability>,
    cases: Vec<Case>,
}

impl Suite {
    /// A test program whose tests share one cluster of this kind.
    pub fn new(name: &'static str, options: ClusterOptions) -> Self {
        Self { name, options, needs: Vec::new(), cases: Vec::new() }
    }

    /// What every test that is added after this needs.
    #[must_use]
    pub fn needs(mut self, capabilities: &[Capability]) -> Self {
        self.needs = capabilities.to_vec();
        self
    }

    /// Adds a test.
    #[must_use]
    pub fn test(self, name: &'static str, body: Body) -> Self {
        self.add(name, false, body)
    }

    /// Adds a test that disturbs the cluster, so that no other may run beside it.
    #[must_use]
    pub fn alone(self, name: &'static str, body: Body) -> Self {
        self.add(name, true, body)
    }

    fn add(mut self, name: &'static str, alone: bool, body: Body) -> Self {
        let needs = self.needs.clone();
        self.cases.push(Case { name, needs, alone, body });
        self
    }

    /// Runs the program: reads the arguments that `cargo test` passes on, runs the tests whose needs
    /// are met, says which were left out and why, ends the cluster and the process.
    pub fn main(mut self) -> ! {
        let arguments = Arguments::from_args();
        let shared =
            Arc::new(Shared { options: std::mem::take(&mut self.options), ..Shared::default() });
        let trials = self.trials(&shared, arguments.list);
        let conclusion = libtest_mimic::run(&arguments, trials);
        // The process ends without running destructors; the cluster must end before.
        drop(shared);
        conclusion.exit()
    }

    fn trials(self, shared: &Arc<Shared>, only_list: bool) -> Vec<Trial> {
        let capabilities = if only_list { None } else { Some(Capabilities::read()) };
        let required = std::env::var_os("HONE_CLUSTER_TESTS").is_some_and(|v| v == "required");
        let mut left_out: Vec<String> = Vec::new();
        let suite = self.name;
        let trials = self
            .cases
            .into_iter()
            .map(|case| {
                let name = format!("{suite}::{}", case.name);
                let verdict = match &capabilities {
                    None => Verdict::Run,
                    Some(Err(error)) => Verdict::Fail(format!("{error:#}")),
                    Some(Ok(known)) => judge(known, &case.needs, required),
                };
                match verdict {
                    Verdict::Run => {
                        let shared = Arc::clone(shared);
                        Trial::test(name.clone(), move || shared.run(&name, &case))
                    }
                    Verdict::LeaveOut(reason) => {
                        left_out.push(format!("{name}: {reason}"));
                        let failure = format!("left out: {reason}");
                        Trial::test(name, move || Err(Failed::from(failure)))
                            .with_ignored_flag(true)
                    }
                    Verdict::Fail(reason) => Trial::test(name, move || Err(Failed::from(reason))),
                }
            })
            .collect();
        tell(&left_out);
        trials
    }
}

enum Verdict {
    Run,
    LeaveOut(String),
    Fail(String),
}

/// What is impossible is always left out; what is merely not set up fails where it is required.
fn judge(known: &Capabilities, needs: &[Capability], required: bool) -> Verdict {
    for need in needs {
        match known.state(*need) {
            State::Yes => {}
            State::Impossible(reason) => {
                return Verdict::LeaveOut(format!("{need} is not to be had here: {reason}"));
            }
            State::Missing(command) => {
                let reason = format!("{need} is not set up; {command} sets it up");
                return if required { Verdict::Fail(reason) } else { Verdict::LeaveOut(reason) };
            }
        }
    }
    Verdict::Run
}

/// Straight to the standard error, which no test runner hides.
fn tell(left_out: &[String]) {
    let mut stderr = std::io::stderr().lock();
    for line in left_out {
        // Nobody to tell is no reason to fail.
        drop(writeln!(stderr, "left out: {line}"));
    }
}

impl Shared {
    fn run(&self, name: &str, case: &Case) -> Result<(), Failed> {
        // A test that failed leaves nothing broken in a lock that holds nothing.
        let (_alone, _together);
        if case.alone {
            _alone = self.turn.write().unwrap_or_else(PoisonError::into_inner);
        } else {
            _together = self.turn.read().unwrap_or_else(PoisonError::into_inner);
        }
        let started = self
            .cluster
            .get_or_init(|| Cluster::start(&self.options).map_err(|error| format!("{error:#}")));
        match started {
            Ok(cluster) => run_in_namespace(cluster, name, case.body)
                .map_err(|error| Failed::from(format!("{error:#}"))),
            Err(error) => Err(Failed::from(error)),
        }
    }
}

fn run_in_namespace(cluster: &Cluster, name: &str, body: Body) -> Result<()> {
    let namespace = create_namespace(cluster, name)?;
    let context =
        Context { cluster, kubectl: cluster.kubectl().in_namespace(&namespace), namespace };
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(&context)))
        .unwrap_or_else(|panic| Err(anyhow!("panicked: {}", panic_message(&*panic))));
    let outcome = outcome.map_err(|error| {
        let file_name = name.replace("::", ".");
        match evidence::collect(cluster, &file_name, &context.kubectl) {
            Ok(directory) => error.context(format!("evidence is in {}", directory.display())),
            Err(why) => error.context(format!("no evidence could be kept: {why:#}")),
        }
    });
    // A cluster that ends soon needs no waiting for the namespace's end; one that was given is tidied.
    let removed = cluster.kubectl().run(&[
        "delete",
        "namespace",
        &context.namespace,
        "--wait=false",
        "--ignore-not-found",
    ]);
    outcome.and(removed.map(drop))
}

/// A namespace with its default service account, without which no pod can be made.
fn create_namespace(cluster: &Cluster, name: &str) -> Result<String> {
    let prefix: String = name
        .replace("::", "-")
        .to_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .take(40)
        .collect();
    let yaml = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{generateName: {prefix}-}}");
    let kubectl = cluster.kubectl();
    let created =
        kubectl.run_with(&["create", "-f", "-", "-o", "jsonpath={.metadata.name}"], &yaml)?;
    if cluster.has_controllers() {
        kubectl.in_namespace(&created).run(&[
            "wait",
            "--for=create",
            "serviceaccount/default",
            "--timeout=60s",
        ])?;
    }
    Ok(created)
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "with no message".to_owned())
}
