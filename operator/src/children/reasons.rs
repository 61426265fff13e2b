//! Why something is as it is: every word that the operator writes into conditions, `status.targets[].failure` and
//! events, in one table. The page `docs/kubernetes/reasons.md` is generated from it and from the workers' reasons
//! ([`hone_artifact::exit_code`]) by [`page`]; a test compares them.

use serde::{Deserialize, Serialize};

mod page;

pub use page::page;

/// Names every word once: the type, its text, and the list of all.
macro_rules! words {
    ($($word:ident),* $(,)?) => {
        /// A word of the operator's own.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[allow(missing_docs)] // The table says what each means.
        pub enum Reason { $($word),* }

        impl Reason {
            /// All words.
            pub const ALL: &[Self] = &[$(Self::$word),*];

            /// The word as it stands in conditions and events.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$word => stringify!($word)),* }
            }
        }
    };
}

words! {
    Pending,
    Running,
    Suspended,
    Succeeded,
    Tuning,
    Revised,
    Tuned,
    TuningRunRefused,
    Started,
    Queued,
    ArtifactsDeleted,
    ArtifactsLeft,
    NamespaceTerminating,
    NoMatchingPool,
    PoolNotFound,
    PoolNotAllowed,
    PoolNotSupported,
    PoolManagedElsewhere,
    PoolMismatch,
    WaitingForDevice,
    WaitingForSession,
    CheckingArtifact,
    Unschedulable,
    QuotaExceeded,
    JobForbidden,
    JobInvalid,
    JobNameTaken,
    SecretNotFound,
    ConfigMapNotFound,
    ServiceAccountNotFound,
    PriorityClassNotFound,
    RuntimeClassNotFound,
    VolumeClaimNotFound,
    ResourceClaimMissing,
    VolumeNotMounted,
    SandboxFailed,
    NodeNotReady,
    ImagePullFailed,
    InvalidImageName,
    ContainerConfigInvalid,
    PodSecurityViolation,
    PodInvalid,
    PodRefused,
    PendingDeadlineExceeded,
    DeadlineExceeded,
    ResultLost,
    NoReport,
    InvalidReport,
    WorkerFailed,
}

/// Who has to act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Nobody: this is how it should be, or it passes.
    Nobody,
    /// Whoever wrote the object.
    User,
    /// Whoever runs the cluster.
    Administrator,
    /// The project: a bug.
    Project,
}

/// What becomes of a target for this reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The work goes on, or has ended well.
    None,
    /// It waits, until `limits.pendingDeadline` at the latest.
    Waits,
    /// Its Job is deleted at once, so that its device is free, and made again after a back-off; after so many starts
    /// it has failed.
    FailsAfter(i32),
    /// It has failed.
    Fails,
}

/// Which event goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// None.
    None,
    /// `Normal`.
    Normal,
    /// `Warning`.
    Warning,
}

/// One line of the table.
struct Row(Reason, Class, &'static str, EventType, Ending, &'static str);

const TABLE: &[Row] = {
    use Class::{Administrator, Nobody, Project, User};
    use Ending::{Fails, FailsAfter, Waits};
    use EventType::{Normal, Warning};
    use Reason as R;
    const READY: &str = "Ready";
    const STALLED: &str = "Stalled";
    const QUIET: EventType = EventType::None;
    const GOES_ON: Ending = Ending::None;
    &[
        Row(
            R::Pending,
            Nobody,
            READY,
            QUIET,
            Waits,
            "A Job is made, and its worker has not started.",
        ),
        Row(R::Running, Nobody, READY, QUIET, GOES_ON, "A worker is at work."),
        Row(R::Suspended, User, READY, Normal, GOES_ON, "`spec.suspend` is set."),
        Row(
            R::Succeeded,
            Nobody,
            READY,
            Normal,
            GOES_ON,
            "Every target has its artifact; the search of a tuning run has ended.",
        ),
        Row(
            R::Tuning,
            Nobody,
            READY,
            Normal,
            GOES_ON,
            "Every target has its artifact, and TuningRuns search for faster schedules, as `spec.tuning` asks for.",
        ),
        Row(
            R::Revised,
            Nobody,
            "",
            Normal,
            GOES_ON,
            "A target is compiled with what its TuningRun has found so far, and published; the search goes on.",
        ),
        Row(
            R::Tuned,
            Nobody,
            "Tuned",
            Normal,
            GOES_ON,
            "A TuningRun has ended, and the target is compiled with what it found.",
        ),
        Row(
            R::TuningRunRefused,
            User,
            "Tuned",
            Warning,
            GOES_ON,
            "The API server refuses the TuningRun that `spec.tuning` asks for. The artifact without tuning stays.",
        ),
        Row(R::Started, Nobody, "", Normal, GOES_ON, "A Job is made for a target or a tuning run."),
        Row(
            R::Queued,
            Nobody,
            READY,
            QUIET,
            GOES_ON,
            "The Job is suspended, such as by Kueue until there is quota. It holds no device, and the time does not count against `limits.pendingDeadline`.",
        ),
        Row(
            R::ArtifactsDeleted,
            Nobody,
            "",
            Normal,
            GOES_ON,
            "What was stored is given up, as `output.deletionPolicy` says: artifacts that no other compilation owns are deleted.",
        ),
        Row(
            R::ArtifactsLeft,
            User,
            "",
            Warning,
            GOES_ON,
            "What was stored could not be deleted. The note lists it.",
        ),
        Row(
            R::NamespaceTerminating,
            Nobody,
            READY,
            QUIET,
            Waits,
            "The namespace is being deleted: no pod is made in it.",
        ),
        Row(
            R::NoMatchingPool,
            Administrator,
            READY,
            Warning,
            Waits,
            "No DevicePool offers what the target asks for. The message says which labels are missing.",
        ),
        Row(
            R::PoolNotFound,
            User,
            READY,
            Warning,
            Waits,
            "The DevicePool that the target or the run names does not exist.",
        ),
        Row(
            R::PoolNotAllowed,
            Administrator,
            READY,
            Warning,
            Waits,
            "The DevicePool does not allow the namespace.",
        ),
        Row(
            R::PoolNotSupported,
            User,
            STALLED,
            Warning,
            Fails,
            "The DevicePool that the target or the run names is of a kind that this release makes no code for, such as FPGA, or of another kind than the platform: accelerators are in pools of kind GPU, processors in pools of kind CPU; pools of kind External are for tuning runs.",
        ),
        Row(
            R::PoolManagedElsewhere,
            Administrator,
            READY,
            Warning,
            Waits,
            "Another operator grants the devices of the DevicePool.",
        ),
        Row(
            R::WaitingForDevice,
            Nobody,
            READY,
            QUIET,
            Waits,
            "Every device that would do is leased, or the namespace holds as many as it may. No pod is made before.",
        ),
        Row(
            R::WaitingForSession,
            Administrator,
            READY,
            QUIET,
            Waits,
            "The run searches, and no session of its pool, which is of kind External, answers. The message names those that are set aside.",
        ),
        Row(
            R::CheckingArtifact,
            Nobody,
            READY,
            QUIET,
            Waits,
            "Another compilation has the result. A worker without a device looks whether its artifact is still there; where it is not, the work is done.",
        ),
        Row(
            R::PoolMismatch,
            User,
            READY,
            Warning,
            Waits,
            "The DevicePool offers another platform than the target asks for.",
        ),
        Row(
            R::Unschedulable,
            Nobody,
            READY,
            QUIET,
            Waits,
            "The scheduler finds no node for the pod. The message is the scheduler's.",
        ),
        Row(
            R::QuotaExceeded,
            Administrator,
            READY,
            Warning,
            Waits,
            "A ResourceQuota of the namespace is used up.",
        ),
        Row(
            R::JobForbidden,
            Administrator,
            READY,
            Warning,
            Waits,
            "The API server forbids the Job (403): a quota, an admission policy or missing rights. It is tried again with exponential back-off.",
        ),
        Row(
            R::JobInvalid,
            User,
            STALLED,
            Warning,
            Fails,
            "The API server refuses the Job as invalid (400 or 422), such as `requests` over `limits`.",
        ),
        Row(
            R::JobNameTaken,
            User,
            STALLED,
            Warning,
            Fails,
            "A Job of the same name exists that this object does not own.",
        ),
        Row(
            R::SecretNotFound,
            User,
            STALLED,
            Warning,
            FailsAfter(2),
            "A Secret that `credentialsSecretRef` names does not exist.",
        ),
        Row(
            R::ConfigMapNotFound,
            User,
            STALLED,
            Warning,
            FailsAfter(2),
            "A ConfigMap that the pod needs does not exist.",
        ),
        Row(
            R::ServiceAccountNotFound,
            User,
            STALLED,
            Warning,
            FailsAfter(2),
            "`worker.serviceAccountName` names no ServiceAccount of the namespace.",
        ),
        Row(
            R::PriorityClassNotFound,
            User,
            STALLED,
            Warning,
            FailsAfter(2),
            "`worker.priorityClassName` names no PriorityClass.",
        ),
        Row(
            R::RuntimeClassNotFound,
            Administrator,
            STALLED,
            Warning,
            FailsAfter(2),
            "The pool's `runtimeClassName` names no RuntimeClass.",
        ),
        Row(
            R::VolumeClaimNotFound,
            Administrator,
            STALLED,
            Warning,
            FailsAfter(2),
            "The shared volume's claim does not exist in the namespace.",
        ),
        Row(
            R::ResourceClaimMissing,
            Administrator,
            STALLED,
            Warning,
            FailsAfter(2),
            "The pool's ResourceClaimTemplate does not exist in the namespace.",
        ),
        Row(
            R::VolumeNotMounted,
            Administrator,
            READY,
            Warning,
            Waits,
            "The node cannot mount a volume of the pod. The message is the kubelet's.",
        ),
        Row(
            R::SandboxFailed,
            Administrator,
            READY,
            Warning,
            Waits,
            "The node cannot start the pod's sandbox. The message is the kubelet's.",
        ),
        Row(
            R::NodeNotReady,
            Administrator,
            READY,
            Warning,
            GOES_ON,
            "The worker's node does not answer. Kubernetes evicts the pod after its tolerations, five minutes by default; then the operator removes it, and the work goes on in another pod, on another node where the pool has one.",
        ),
        Row(
            R::ImagePullFailed,
            Administrator,
            STALLED,
            Warning,
            FailsAfter(3),
            "The worker's image cannot be pulled.",
        ),
        Row(
            R::InvalidImageName,
            Administrator,
            STALLED,
            Warning,
            Fails,
            "The worker's image has no valid name.",
        ),
        Row(
            R::ContainerConfigInvalid,
            User,
            STALLED,
            Warning,
            FailsAfter(2),
            "The node cannot make the container. The message is the kubelet's.",
        ),
        Row(
            R::PodSecurityViolation,
            Administrator,
            STALLED,
            Warning,
            FailsAfter(2),
            "The namespace's pod security standard refuses the pod.",
        ),
        Row(
            R::PodInvalid,
            User,
            STALLED,
            Warning,
            Fails,
            "The API server refuses the pod as invalid.",
        ),
        Row(
            R::PodRefused,
            Administrator,
            READY,
            Warning,
            Waits,
            "The API server refuses the pod for another reason. The message is its own.",
        ),
        Row(
            R::PendingDeadlineExceeded,
            User,
            STALLED,
            Warning,
            Fails,
            "The target or the run waited longer than `limits.pendingDeadline`. The message says what for.",
        ),
        Row(
            R::DeadlineExceeded,
            User,
            STALLED,
            Warning,
            Fails,
            "The work took longer than `limits.activeDeadline`. A tuning run goes on from its log once that is raised.",
        ),
        Row(
            R::ResultLost,
            Administrator,
            READY,
            Warning,
            FailsAfter(3),
            "The pod of a finished Job was deleted before its report was read. The work is done again.",
        ),
        Row(R::NoReport, Project, STALLED, Warning, Fails, "The worker ended without a report."),
        Row(
            R::InvalidReport,
            Project,
            STALLED,
            Warning,
            Fails,
            "The worker's report does not belong to the object, or a field of it is out of bounds.",
        ),
        Row(
            R::WorkerFailed,
            Administrator,
            STALLED,
            Warning,
            Fails,
            "The worker ended with an exit code of no meaning, such as after an eviction.",
        ),
    ]
};

impl Reason {
    fn row(self) -> &'static Row {
        // Every reason has a row: a test shows it. The first row is never used in place of another.
        TABLE.iter().find(|row| row.0 == self).unwrap_or(&TABLE[0])
    }

    /// What becomes of a target for this reason.
    pub fn ending(self) -> Ending {
        self.row().4
    }

    /// Whether waiting cannot help, so that a worker that does not start for it holds its device in vain.
    pub fn is_hopeless(self) -> bool {
        matches!(self.ending(), Ending::Fails | Ending::FailsAfter(_))
    }

    /// What it means, in a sentence.
    pub fn meaning(self) -> &'static str {
        self.row().5
    }

    /// Who has to act.
    pub fn class(self) -> Class {
        self.row().1
    }

    /// The reason with this name.
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.as_str() == word)
    }

    /// The type of its event.
    pub fn event(self) -> EventType {
        self.row().3
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_one_row_and_its_own_name() {
        for reason in Reason::ALL {
            let rows = TABLE.iter().filter(|row| row.0 == *reason).count();
            assert_eq!(rows, 1, "{reason}");
            assert_eq!(serde_json::json!(reason), reason.as_str());
        }
    }

    /// What waiting cannot cure is explained where kstatus looks for failures.
    #[test]
    fn what_fails_is_stalled_and_warned_of() {
        for Row(reason, _, condition, event, ending, _) in TABLE {
            if matches!(ending, Ending::Fails) {
                assert_eq!((*condition, *event), ("Stalled", EventType::Warning), "{reason}");
            }
        }
    }
}
