//! Commands that run beside others, with less priority: they take what cores the others leave idle.

use anyhow::{Context, Result, bail};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Instant;

use crate::repository;

/// Commands that run one after another beside what the program does meanwhile. Dropping it ends them.
pub struct Background {
    child: Child,
    name: String,
    start: Instant,
}

impl Background {
    /// Starts the commands, each of which needs the one before it to succeed. Their output goes to a file.
    ///
    /// # Errors
    /// A shell that cannot be started, a file that cannot be written.
    pub fn start(name: &str, commands: &[&[&str]]) -> Result<Self> {
        std::fs::create_dir_all(repository::scratch())?;
        let path = output_of(name);
        let output = File::create(&path).with_context(|| format!("write {}", path.display()))?;
        let commands: Vec<String> = commands.iter().map(|command| command.join(" ")).collect();
        let commands = commands.join(" && ");
        println!("== {name}: {commands}, in the background");
        let script = format!("({commands}) & {WATCH}");
        let parent = std::process::id().to_string();
        let child = Command::new("nice")
            .args(["-n", "19", "bash", "-c", &script, "bash", &parent])
            .current_dir(repository::root())
            .stderr(output.try_clone()?)
            .stdout(output)
            // A group of its own, so that it can be ended with all that it started.
            .process_group(0)
            .spawn()
            .with_context(|| format!("{name} could not be started"))?;
        Ok(Self { child, name: name.to_string(), start: Instant::now() })
    }

    /// Waits until the commands have ended, and prints what they said.
    ///
    /// # Errors
    /// A command that failed.
    pub fn join(mut self) -> Result<()> {
        let status = self.child.wait().with_context(|| format!("wait for {}", self.name))?;
        let said = std::fs::read(output_of(&self.name)).unwrap_or_default();
        print!("{}", String::from_utf8_lossy(&said));
        if !status.success() {
            bail!("{} failed: {status}", self.name);
        }
        println!(
            "== {}: passed {:.0} s after its start",
            self.name,
            self.start.elapsed().as_secs_f64()
        );
        Ok(())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // What is wrong is told by whoever ends early; nothing more can be done about a group that has gone.
            let group = format!("-{}", self.child.id());
            let _ = Command::new("kill").args(["--", &group]).status();
            let _ = self.child.wait();
        }
    }
}

/// Waits for the job before it, and ends the whole group when the process `$1`, which started it, is gone: a group of
/// its own does not get the signal of Ctrl-C.
const WATCH: &str = "job=$!; while kill -0 $job 2>/dev/null; do \
                     kill -0 $1 2>/dev/null || kill -- -$$; sleep 1; done; wait $job";

/// Where the output of the commands of a name is kept while they run.
fn output_of(name: &str) -> std::path::PathBuf {
    repository::scratch().join(format!("{}.log", name.replace(' ', "-")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn commands_run_in_order_and_a_failure_is_told() {
        let good =
            Background::start("background test", &[&["echo", "one"], &["echo", "two"]]).unwrap();
        good.join().unwrap();
        let said = std::fs::read_to_string(output_of("background test")).unwrap();
        assert_eq!(said, "one\ntwo\n");
        let bad = Background::start("background failure", &[&["false"], &["echo", "two"]]).unwrap();
        assert!(bad.join().unwrap_err().to_string().contains("background failure failed"));
    }

    #[test]
    fn what_is_dropped_is_ended_with_all_that_it_started() {
        let dropped = Background::start("background drop", &[&["sleep", "600"]]).unwrap();
        let group = format!("-{}", dropped.child.id());
        drop(dropped);
        let alive = || {
            let mut probe = Command::new("kill");
            probe
                .args(["-0", "--", &group])
                .stderr(std::process::Stdio::null())
                .status()
                .unwrap()
                .success()
        };
        // Whoever adopts what was ended takes a moment to notice.
        let ended = (0..100).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(100));
            !alive()
        });
        assert!(ended);
    }
}
