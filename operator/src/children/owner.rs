//! Which object a child belongs to: by the controller's owner reference, which the API server and the garbage
//! collector follow, and never by a label, which anybody may put on.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;

/// The owner reference to `object` as the controller of a child.
pub fn reference<K: Resource<DynamicType = ()>>(object: &K) -> OwnerReference {
    let metadata = object.meta();
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: metadata.name.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// The owner that controls a child, where it is of an API group and kind.
pub fn controller<'a>(
    child: &'a ObjectMeta,
    group: &str,
    kind: &str,
) -> Option<&'a OwnerReference> {
    let mut owners = child.owner_references.iter().flatten();
    owners.find(|owner| {
        let of_group = owner.api_version.split('/').next() == Some(group);
        owner.controller == Some(true) && owner.kind == kind && of_group
    })
}

/// The group of the children of an owner: those of its namespace that name its uid.
pub fn group(namespace: &str, uid: &str) -> String {
    format!("{namespace}/{uid}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_the_controller_owns() {
        let owner = |controller, api_version: &str| OwnerReference {
            api_version: api_version.to_owned(),
            kind: "ModelCompilation".to_owned(),
            name: "a".to_owned(),
            uid: "1".to_owned(),
            controller,
            block_owner_deletion: None,
        };
        let child =
            |owner| ObjectMeta { owner_references: Some(vec![owner]), ..ObjectMeta::default() };
        let found =
            |child: &ObjectMeta| controller(child, "hone.dev", "ModelCompilation").is_some();
        assert!(found(&child(owner(Some(true), "hone.dev/v1alpha1"))));
        assert!(!found(&child(owner(None, "hone.dev/v1alpha1"))));
        assert!(!found(&child(owner(Some(true), "hone.dev.example/v1"))));
        assert!(!found(&ObjectMeta::default()));
    }
}
