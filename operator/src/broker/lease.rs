//! A device's lease as an object of the API: `coordination.k8s.io/v1` Lease, one for each slot, kept when nobody holds
//! it, so that its fence only rises.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::ResourceExt;
use serde::{Deserialize, Serialize};

use super::{Applicant, Slot};
use crate::children::{bounds, names};
use crate::runtime::cache::Cached;

/// Label and its value of the Leases of devices.
pub const LEASE_LABEL: (&str, &str) = ("hone.dev/lease", "device");
const POOL: &str = names::POOL_ANNOTATION;
const NODE: &str = "hone.dev/node";
const WHOLE: &str = "hone.dev/whole-node";
const HOLDER_KIND: &str = "hone.dev/holder-kind";
const HOLDER_NAMESPACE: &str = "hone.dev/holder-namespace";
const HOLDER_NAME: &str = "hone.dev/holder-name";
const HOLDER_UID: &str = "hone.dev/holder-uid";
const HOLDER_JOB: &str = "hone.dev/holder-job";
const PRIORITY: &str = "hone.dev/priority";
const FENCE: &str = names::FENCE_ANNOTATION;

/// The lease of one slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeviceLease {
    /// Its name, which is the slot's.
    pub name: String,
    /// Its resource version.
    #[serde(default)]
    pub version: u64,
    /// The pool that granted it last.
    pub pool: String,
    /// The node.
    pub node: String,
    /// Whether it is the whole node.
    #[serde(default)]
    pub whole: bool,
    /// How often it was granted.
    #[serde(default)]
    pub fence: u64,
    /// Who holds it.
    #[serde(default)]
    pub holder: Option<Holder>,
}

/// Who holds a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Holder {
    /// The object that asked.
    pub applicant: Applicant,
    /// The namespace of object and Job.
    pub namespace: String,
    /// The Job.
    pub job: String,
    /// The priority that it was granted for.
    #[serde(default)]
    pub priority: i32,
    /// When it was granted.
    pub granted: Timestamp,
    /// When it ends, whatever its holder does.
    pub expires: Timestamp,
}

impl Cached for DeviceLease {
    fn name(&self) -> &str {
        &self.name
    }
}

/// The kind of holders of leases that say none: when there was one.
pub(super) fn first_kind() -> String {
    "modelcompilation".to_owned()
}

/// Group and facts of a lease; none of Leases that are no device's.
pub fn facts(lease: &Lease) -> Option<(String, DeviceLease)> {
    let annotations = lease.annotations();
    let text = |key: &str| annotations.get(key).cloned().unwrap_or_default();
    let number = |key: &str| text(key).parse().unwrap_or(0);
    let spec = lease.spec.as_ref()?;
    let held = spec.holder_identity.as_deref().is_some_and(|holder| !holder.is_empty());
    let time = |time: &Option<MicroTime>| time.as_ref().map_or(Timestamp::UNIX_EPOCH, |t| t.0);
    let length = SignedDuration::from_secs(i64::from(spec.lease_duration_seconds.unwrap_or(0)));
    let renewed = time(&spec.renew_time);
    let facts = DeviceLease {
        name: lease.name_any(),
        version: lease.resource_version().and_then(|v| v.parse().ok()).unwrap_or(0),
        pool: text(POOL),
        node: annotations.get(NODE)?.clone(),
        whole: annotations.contains_key(WHOLE),
        fence: text(FENCE).parse().unwrap_or(0),
        holder: held.then(|| Holder {
            applicant: Applicant {
                kind: annotations.get(HOLDER_KIND).cloned().unwrap_or_else(first_kind),
                namespace: text(HOLDER_NAMESPACE),
                name: text(HOLDER_NAME),
                uid: text(HOLDER_UID),
            },
            namespace: text(HOLDER_NAMESPACE),
            job: text(HOLDER_JOB),
            priority: number(PRIORITY),
            granted: time(&spec.acquire_time),
            expires: renewed.checked_add(length).unwrap_or(Timestamp::MAX),
        }),
    };
    Some((facts.name.clone(), facts))
}

/// The object of a lease. `version` makes writing it fail where somebody wrote it since; 0 is for one that is new.
pub fn object(namespace: &str, lease: &DeviceLease, now: Timestamp) -> Lease {
    let mut annotations = BTreeMap::from([
        (POOL.to_owned(), lease.pool.clone()),
        (NODE.to_owned(), lease.node.clone()),
        (FENCE.to_owned(), lease.fence.to_string()),
    ]);
    if lease.whole {
        annotations.insert(WHOLE.to_owned(), "true".to_owned());
    }
    let mut spec = LeaseSpec {
        lease_transitions: Some(i32::try_from(lease.fence).unwrap_or(i32::MAX)),
        ..LeaseSpec::default()
    };
    if let Some(holder) = &lease.holder {
        let Applicant { kind, namespace, name, uid } = &holder.applicant;
        let text = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        annotations.extend([
            text(HOLDER_KIND, kind),
            text(HOLDER_NAMESPACE, namespace),
            text(HOLDER_NAME, name),
            text(HOLDER_UID, uid),
            text(HOLDER_JOB, &holder.job),
            text(PRIORITY, &holder.priority.to_string()),
        ]);
        let left = holder.expires.duration_since(now).as_secs().clamp(1, i64::from(i32::MAX));
        spec.holder_identity = Some(format!("{namespace}/{}", holder.job));
        spec.acquire_time = Some(MicroTime(holder.granted));
        spec.renew_time = Some(MicroTime(now));
        spec.lease_duration_seconds = i32::try_from(left).ok();
    }
    let labels = [
        (names::MANAGED_BY.to_owned(), names::MANAGER.to_owned()),
        (LEASE_LABEL.0.to_owned(), LEASE_LABEL.1.to_owned()),
        (names::POOL_LABEL.to_owned(), bounds::label(&lease.pool)),
    ];
    Lease {
        metadata: ObjectMeta {
            name: Some(lease.name.clone()),
            namespace: Some(namespace.to_owned()),
            resource_version: (lease.version > 0).then(|| lease.version.to_string()),
            labels: Some(BTreeMap::from(labels)),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
    }
}

impl DeviceLease {
    /// The lease of a slot that was never granted.
    pub fn new(slot: &Slot, pool: &str) -> Self {
        Self {
            name: slot.name.clone(),
            version: 0,
            pool: pool.to_owned(),
            node: slot.node.clone(),
            whole: slot.whole,
            fence: 0,
            holder: None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_lease_is_read_as_it_was_written() {
        let slot = Slot { name: "device-n".to_owned(), node: "n".to_owned(), whole: true };
        let now = Timestamp::from_second(100).unwrap();
        let applicant = Applicant {
            kind: "tuningrun".to_owned(),
            namespace: "team".to_owned(),
            name: "a".to_owned(),
            uid: "1".to_owned(),
        };
        let lease = DeviceLease {
            version: 7,
            fence: 3,
            holder: Some(Holder {
                applicant,
                namespace: "team".to_owned(),
                job: "a-cpu".to_owned(),
                priority: -5,
                granted: now,
                expires: Timestamp::from_second(160).unwrap(),
            }),
            ..DeviceLease::new(&slot, "cpus")
        };
        let written = object("hone", &lease, now);
        assert_eq!(written.spec.as_ref().unwrap().holder_identity.as_deref(), Some("team/a-cpu"));
        assert_eq!(facts(&written).unwrap().1, lease);
        let free = DeviceLease { holder: None, ..lease };
        assert_eq!(facts(&object("hone", &free, now)).unwrap().1, free);
        assert!(facts(&Lease::default()).is_none());
    }
}
