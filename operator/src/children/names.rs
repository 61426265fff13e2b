//! Labels, annotations and finalizers of what the operator makes.

/// The field manager of what is written, and the source of events.
pub const MANAGER: &str = "hone-operator";
/// Label of everything that the operator makes.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Label: the owner's uid. It is named after compilations, which were the first to own anything.
pub const UID_LABEL: &str = "hone.dev/compilation-uid";
/// Label: the compilation's name, where it fits a label.
pub const NAME_LABEL: &str = "hone.dev/compilation";
/// Label: the tuning run's name, where it fits a label.
pub const RUN_LABEL: &str = "hone.dev/tuning-run";
/// Label: the target's name.
pub const TARGET_LABEL: &str = "hone.dev/target";
/// Label: the pool's name, shortened where it is longer than a label.
pub const POOL_LABEL: &str = "hone.dev/pool";
/// Annotation: the pool's name.
pub const POOL_ANNOTATION: &str = "hone.dev/pool";
/// Annotation of Jobs and pods: the slot that was granted, which is the name of its Lease.
pub const SLOT_ANNOTATION: &str = "hone.dev/slot";
/// Annotation of Jobs, pods and Leases: the number of the grant.
pub const FENCE_ANNOTATION: &str = "hone.dev/fence";
/// Annotation of Jobs: the span that one is part of, as W3C Trace Context writes it.
pub const TRACEPARENT_ANNOTATION: &str = "hone.dev/traceparent";
/// Scheduling gate of pods that get their device when they are there: somebody else decides when that is.
pub const DEVICE_GATE: &str = "hone.dev/device";
/// Annotation of Jobs whose pods have [`DEVICE_GATE`].
pub const GATED_ANNOTATION: &str = "hone.dev/device-gate";
/// Annotation of Jobs: when their pods were given their device.
pub const PLACED_ANNOTATION: &str = "hone.dev/placed";
/// Annotation of Jobs: when they were changed last to have the Job controller look at them.
pub const WOKEN_ANNOTATION: &str = "hone.dev/woken";
/// Label of Jobs that Kueue queues.
pub const QUEUE_LABEL: &str = "kueue.x-k8s.io/queue-name";
/// Label: what a Job is for.
pub const PURPOSE_LABEL: &str = "hone.dev/purpose";
/// Value of [`PURPOSE_LABEL`]: compiles one target.
pub const PURPOSE_COMPILE: &str = "compile";
/// Value of [`PURPOSE_LABEL`]: deletes what was stored.
pub const PURPOSE_CLEANUP: &str = "cleanup";
/// Value of [`PURPOSE_LABEL`]: looks whether what another compilation stored is there.
pub const PURPOSE_ADOPT: &str = "adopt";
/// Value of [`PURPOSE_LABEL`]: searches and measures.
pub const PURPOSE_TUNE: &str = "tune";
/// Value of [`PURPOSE_LABEL`]: measures for a search.
pub const PURPOSE_MEASURE: &str = "measure";
/// Annotation that a person changes to have what failed tried again.
pub const RETRY_ANNOTATION: &str = "hone.dev/retry";
/// Label of a namespace whose runs' logs any other may learn from, where it is `true`.
pub const SHARE_RECORDS_LABEL: &str = "hone.dev/share-records";
/// Holds deletion up until stored artifacts are gone; only with `deletionPolicy: Delete`.
pub const FINALIZER: &str = "hone.dev/artifacts";
/// Kubernetes' finalizer of what is gone only after its dependents.
pub const FOREGROUND_DELETION: &str = "foregroundDeletion";
/// Labels of these families are copied to child Jobs.
pub const COPIED_LABELS: &str = "kueue.x-k8s.io/";
/// Node label that says what processor a node has, as LLVM names it.
pub const CPU_LABEL: &str = "hone.dev/cpu";
/// The worker's container.
pub const CONTAINER: &str = "worker";
