//! `kubectl` against one cluster.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::eventually;
use crate::scripts::{program, run};

/// `kubectl` with a kubeconfig and, usually, a namespace.
#[derive(Clone, Debug)]
pub struct Kubectl {
    kubeconfig: PathBuf,
    namespace: Option<String>,
}

impl Kubectl {
    pub(crate) fn new(kubeconfig: &Path) -> Self {
        Self { kubeconfig: kubeconfig.to_owned(), namespace: None }
    }

    /// The same cluster, seen from a namespace.
    #[must_use]
    pub fn in_namespace(&self, namespace: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), ..self.clone() }
    }

    /// The kubeconfig that is used.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The namespace that is used, if any is set.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let ours = program("kubectl");
        let beside = std::env::var_os("KUBEBUILDER_ASSETS")
            .map(|assets| PathBuf::from(assets).join("kubectl"))
            .filter(|path| path.exists());
        let path =
            if ours.exists() { ours } else { beside.unwrap_or_else(|| PathBuf::from("kubectl")) };
        let mut command = Command::new(path);
        command.arg("--kubeconfig").arg(&self.kubeconfig);
        if let Some(namespace) = &self.namespace {
            command.arg("--namespace").arg(namespace);
        }
        command.args(arguments);
        command
    }

    /// Runs `kubectl` with these arguments and returns its standard output.
    ///
    /// # Errors
    /// When it fails; the error holds its standard error.
    pub fn run(&self, arguments: &[&str]) -> Result<String> {
        run(self.command(arguments), "")
    }

    /// The same, with `yaml` on its standard input (give `-f -` among the arguments).
    ///
    /// # Errors
    /// When it fails; the error holds its standard error.
    pub fn run_with(&self, arguments: &[&str], yaml: &str) -> Result<String> {
        // kubectl takes input that begins with "{" for JSON, and YAML's flow mappings begin so too.
        run(self.command(arguments), &format!("# yaml\n---\n{yaml}"))
    }

    /// `kubectl apply` of one or more YAML documents.
    ///
    /// # Errors
    /// When the API server refuses one.
    pub fn apply(&self, yaml: &str) -> Result<String> {
        self.run_with(&["apply", "-f", "-"], yaml)
    }

    /// Server-side apply as `manager`.
    ///
    /// # Errors
    /// When the API server refuses, conflicts included.
    pub fn apply_as(&self, manager: &str, yaml: &str) -> Result<String> {
        let manager = format!("--field-manager={manager}");
        self.run_with(&["apply", "--server-side", &manager, "-f", "-"], yaml)
    }

    /// Applies what must be refused, and returns the refusal.
    ///
    /// # Errors
    /// When it is accepted.
    pub fn refused(&self, yaml: &str) -> Result<String> {
        match self.apply(yaml) {
            Ok(accepted) => bail!("should be refused, but: {accepted}"),
            Err(error) => Ok(format!("{error:#}")),
        }
    }

    /// An object as JSON; `object` is `kind/name`, or words such as `pods -l app=x`.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn json(&self, object: &str) -> Result<Value> {
        let mut arguments = vec!["get"];
        arguments.extend(object.split_whitespace());
        arguments.extend(["-o", "json"]);
        let text = self.run(&arguments)?;
        serde_json::from_str(&text).with_context(|| format!("kubectl get {object}: not JSON"))
    }

    /// What a JSONPath template finds in an object, as text.
    ///
    /// # Errors
    /// When the object does not exist.
    pub fn text(&self, object: &str, template: &str) -> Result<String> {
        let output = format!("jsonpath={template}");
        let mut arguments = vec!["get"];
        arguments.extend(object.split_whitespace());
        arguments.extend(["-o", &output]);
        self.run(&arguments)
    }

    /// Waits until a JSONPath template finds exactly `wanted`.
    ///
    /// # Errors
    /// When it does not within `limit`; the message holds what was found last.
    pub fn until(&self, object: &str, template: &str, wanted: &str, limit: Duration) -> Result<()> {
        eventually(&format!("{object} {template} to be {wanted:?}"), limit, || {
            let found = self.text(object, template)?;
            if found != wanted {
                bail!("it is {found:?}");
            }
            Ok(Some(()))
        })
    }

    /// Waits for a condition to be true, such as `Complete` of `job/x`.
    ///
    /// # Errors
    /// When it is not within `limit`.
    pub fn wait(&self, object: &str, condition: &str, limit: Duration) -> Result<()> {
        let end = Instant::now() + limit;
        let condition = format!("--for=condition={condition}");
        let limit = format!("--timeout={}s", limit.as_secs());
        let mut arguments = vec!["wait"];
        arguments.extend(object.split_whitespace());
        arguments.extend([condition.as_str(), &limit]);
        // kubectl does not wait for an object that has no conditions at all yet.
        loop {
            match self.run(&arguments) {
                Err(error) if has_no_conditions(&error) && Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(200));
                }
                result => return result.map(drop),
            }
        }
    }
}

/// Whether kubectl gave up since an object's status has no conditions.
fn has_no_conditions(error: &anyhow::Error) -> bool {
    format!("{error:#}").contains(".status.conditions accessor error")
}
