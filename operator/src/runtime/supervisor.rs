//! Every task of the process under one supervisor: none is meant to end, so the first that ends or panics ends the
//! process, and a fresh one takes over.

use std::collections::HashMap;
use std::future::Future;

use tokio::task::{Id, JoinSet};

/// A task that ended.
#[derive(Debug, thiserror::Error)]
pub enum TaskEnded {
    /// It returned.
    #[error("task '{0}' ended, which no task may: starting over")]
    Returned(String),
    /// It panicked.
    #[error("task '{task}' panicked, please report this: starting over")]
    Panicked {
        /// The task.
        task: String,
        /// The panic.
        #[source]
        source: tokio::task::JoinError,
    },
}

/// Tasks that run as long as the process. Dropping this aborts them.
#[derive(Debug, Default)]
pub struct Supervisor {
    tasks: JoinSet<()>,
    names: HashMap<Id, String>,
}

impl Supervisor {
    /// Starts a task.
    pub fn spawn(&mut self, name: &str, task: impl Future<Output = ()> + Send + 'static) {
        let id = self.tasks.spawn(task).id();
        self.names.insert(id, name.to_owned());
    }

    /// Returns when the first task ends; never while there is none.
    pub async fn ended(&mut self) -> TaskEnded {
        let Some(ended) = self.tasks.join_next_with_id().await else {
            return std::future::pending().await;
        };
        match ended {
            Ok((id, ())) => TaskEnded::Returned(self.name(id)),
            Err(source) => TaskEnded::Panicked { task: self.name(source.id()), source },
        }
    }

    /// Returns when every task has ended, however it did.
    pub async fn drained(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }

    fn name(&mut self, id: Id) -> String {
        self.names.remove(&id).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_ends_is_reported() {
        let mut supervisor = Supervisor::default();
        supervisor.spawn("watch of pods", std::future::pending());
        supervisor.spawn("watch of jobs", async {});
        let ended = supervisor.ended().await;
        assert!(matches!(&ended, TaskEnded::Returned(name) if name == "watch of jobs"), "{ended}");
    }

    #[tokio::test]
    async fn a_task_that_panics_is_reported() {
        let mut supervisor = Supervisor::default();
        supervisor.spawn("watch of nodes", async { panic!("a bug") });
        let ended = supervisor.ended().await;
        assert!(
            matches!(&ended, TaskEnded::Panicked { task, .. } if task == "watch of nodes"),
            "{ended}"
        );
    }
}
