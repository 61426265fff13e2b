//! The worker's pod is restricted and placed as its pool says: manifests compared as text.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use hone_crds::{DevicePool, DevicePoolStatus, ModelCompilation};
use hone_operator::config::Config;
use hone_operator::model_compilation::model::{JobBounds, JobPlan, PoolView, Purpose};
use hone_operator::model_compilation::{job, request};
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;

fn read(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/specs/accepted");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

fn manifest(object: &str, pool: &str) -> Job {
    let mut object = ModelCompilation::from_yaml(&read(object)).unwrap();
    object.metadata.uid = Some("11111111-2222-3333-4444-555555555555".to_owned());
    object.metadata.namespace = Some("team-a".to_owned());
    let pool = DevicePool::from_yaml(&read(pool)).unwrap();
    let pool =
        PoolView { name: pool.name_any(), spec: pool.spec, status: DevicePoolStatus::default() };
    let target = &object.spec.targets[0];
    let plan = JobPlan {
        name: "job".to_owned(),
        purpose: Purpose::Compile,
        target: Some(target.name.clone()),
        request: request::compile(&object, target, &pool),
        pool: Some(pool),
        bounds: JobBounds { name: "job".to_owned(), active_deadline_seconds: 60, backoff_limit: 3 },
    };
    job::manifest(&Config::default(), &object, &plan).unwrap()
}

/// What the restricted Pod Security Standard asks for, and what we promise besides.
#[test]
fn pods_are_restricted() {
    for pool in ["pool-cpu.yaml", "pool-gpu.yaml", "pool-fpga-claim.yaml"] {
        let job = serde_json::to_value(manifest("full.yaml", pool)).unwrap();
        let pod = &job["spec"]["template"]["spec"];
        assert_eq!(pod["automountServiceAccountToken"], false);
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
        for field in ["hostNetwork", "hostPID", "hostIPC"] {
            assert!(pod[field].is_null());
        }
        let container = &pod["containers"][0];
        let security = &container["securityContext"];
        assert_eq!(security["allowPrivilegeEscalation"], false);
        assert_eq!(security["readOnlyRootFilesystem"], true);
        assert_eq!(security["capabilities"]["drop"][0], "ALL");
        assert_eq!(pod["containers"].as_array().unwrap().len(), 1);
    }
}

#[test]
fn manifests() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/manifests");
    for (name, object, pool) in [
        ("cpu", "full.yaml", "pool-cpu.yaml"),
        ("gpu", "minimal.yaml", "pool-gpu.yaml"),
        ("claim", "minimal.yaml", "pool-fpga-claim.yaml"),
    ] {
        let path = folder.join(format!("{name}.yaml"));
        let got = serde_yaml::to_string(&manifest(object, pool)).unwrap();
        if std::env::var_os("HONE_UPDATE_EXPECT").is_some() {
            std::fs::write(&path, &got).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap();
        assert_eq!(got, expected, "{}", path.display());
    }
}
