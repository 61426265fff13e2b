//! The worker's pod is restricted and placed as its pool says: manifests compared as text.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use hone_crds::{DevicePool, DevicePoolStatus, ModelCompilation};
use hone_operator::children::jobs;
use hone_operator::config::Config;
use hone_operator::model_compilation::model::{Grant, JobBounds, JobPlan, PoolView, Purpose};
use hone_operator::model_compilation::{job, request};
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;

fn read(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/specs/accepted");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

fn grant() -> Grant {
    let (pool, slot, node) = ("p".to_owned(), "device-n1".to_owned(), "n1".to_owned());
    Grant { pool, slot, node, fence: 3 }
}

fn manifest(object: &str, pool: &str) -> Job {
    manifest_for(Purpose::Compile, &Config::default(), object, pool)
}

fn manifest_for(purpose: Purpose, config: &Config, object: &str, pool: &str) -> Job {
    let mut object = ModelCompilation::from_yaml(&read(object)).unwrap();
    object.metadata.uid = Some("11111111-2222-3333-4444-555555555555".to_owned());
    object.metadata.namespace = Some("team-a".to_owned());
    let pool = DevicePool::from_yaml(&read(pool)).unwrap();
    let pool = PoolView {
        name: pool.name_any(),
        spec: pool.spec,
        assigned: 0,
        foreign: false,
        machine: None,
        status: DevicePoolStatus::default(),
    };
    let target = &object.spec.targets[0];
    let plan = JobPlan {
        gated: false,
        suspended: false,
        name: "job".to_owned(),
        purpose,
        target: (purpose == Purpose::Compile).then(|| target.name.clone()),
        request: request::compile(&object, target, &pool, None),
        pool: Some(pool),
        grant: Some(grant()),
        optional_secrets: Vec::new(),
        bounds: JobBounds { name: "job".to_owned(), active_deadline_seconds: 60, backoff_limit: 3 },
    };
    job::manifest(config, &object, &plan).unwrap()
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

/// Whoever deletes it, such as the garbage collector after its owner: it is there until its pods are gone, and its device
/// is not free before.
#[test]
fn a_job_outlives_its_pods() {
    let job = serde_json::to_value(manifest("full.yaml", "pool-cpu.yaml")).unwrap();
    assert_eq!(job["metadata"]["finalizers"], serde_json::json!(["foregroundDeletion"]));
}

fn pod(job: &Job) -> serde_json::Value {
    serde_json::to_value(job).unwrap()["spec"]["template"]["spec"].clone()
}

/// A clean-up must start where the pool has no node left and the Secrets of the model are deleted.
#[test]
fn who_only_looks_at_the_store_needs_the_output_secret_and_any_node() {
    let config =
        Config { traces_endpoint: Some("http://c/v1/traces".to_owned()), ..Config::default() };
    let both = [Purpose::Cleanup, Purpose::Adopt];
    let all =
        both.into_iter().flat_map(|p| ["pool-cpu.yaml", "pool-gpu.yaml"].map(|pool| (p, pool)));
    for (purpose, pool) in all {
        let job = manifest_for(purpose, &config, "full.yaml", pool);
        let seen = serde_json::from_value(serde_json::to_value(&job).unwrap()).unwrap();
        let (_, facts) = jobs::facts(&seen, &["ModelCompilation"]).unwrap();
        assert_eq!((facts.view.purpose, facts.view.slot), (purpose, None));
        let pod = pod(&job);
        assert!(!pod["containers"][0]["env"].to_string().contains("TRACEPARENT"));
        let volumes = pod["volumes"].as_array().unwrap().iter();
        let secrets: Vec<&str> =
            volumes.filter_map(|volume| volume["secret"]["secretName"].as_str()).collect();
        assert_eq!(secrets.len(), 1, "{secrets:?}");
        assert!(pod["nodeSelector"].is_null() && pod["affinity"].is_null(), "{pod}");
        assert!(pod["priorityClassName"].is_null());
        let resources = &pod["containers"][0]["resources"];
        assert_eq!(resources["requests"]["memory"], "128Mi", "{resources}");
        assert!(resources["limits"]["nvidia.com/gpu"].is_null());
    }
}

/// A hostile model must not take its neighbours' memory.
#[test]
fn memory_is_bounded_by_default() {
    let pod = pod(&manifest("minimal.yaml", "pool-cpu.yaml"));
    let resources = &pod["containers"][0]["resources"];
    assert_eq!(resources["limits"]["memory"], "2Gi", "{resources}");
    assert_eq!(resources["requests"]["memory"], "2Gi");
}

#[test]
fn file_uris_lead_to_where_the_shared_volume_is() {
    let config = Config {
        shared_volume_claim: Some("models".to_owned()),
        shared_volume_path: "/shared".to_owned(),
        ..Config::default()
    };
    let pod = pod(&manifest_for(Purpose::Compile, &config, "minimal.yaml", "pool-cpu.yaml"));
    let container = &pod["containers"][0];
    let mounts = container["volumeMounts"].as_array().unwrap();
    assert!(
        mounts.iter().any(|mount| mount["name"] == "shared" && mount["mountPath"] == "/shared")
    );
    let variables = container["env"].as_array().unwrap();
    let root = variables.iter().find(|variable| variable["name"] == "HONE_FILE_ROOT");
    assert_eq!(root.unwrap()["value"], "/shared");
}

#[test]
fn private_images_are_pulled_with_the_administrators_secrets() {
    let config =
        Config { worker_image_pull_secrets: vec!["registry".to_owned()], ..Config::default() };
    let pod = pod(&manifest_for(Purpose::Compile, &config, "minimal.yaml", "pool-cpu.yaml"));
    assert_eq!(pod["imagePullSecrets"][0]["name"], "registry");
}

/// A pool's name may be longer than a label.
#[test]
fn the_pool_of_a_job_is_known_whatever_its_names_length() {
    let text = read("pool-cpu.yaml");
    let mut pool = DevicePool::from_yaml(&text).unwrap();
    let name = "p".repeat(200);
    pool.metadata.name = Some(name.clone());
    let mut object = ModelCompilation::from_yaml(&read("minimal.yaml")).unwrap();
    object.metadata.uid = Some("1".to_owned());
    let pool = PoolView {
        name: name.clone(),
        spec: pool.spec,
        assigned: 0,
        foreign: false,
        machine: None,
        status: DevicePoolStatus::default(),
    };
    let plan = JobPlan {
        gated: true,
        suspended: true,
        name: "job".to_owned(),
        purpose: Purpose::Compile,
        target: None,
        request: request::compile(&object, &object.spec.targets[0], &pool, None),
        pool: Some(pool),
        grant: Some(grant()),
        optional_secrets: Vec::new(),
        bounds: JobBounds { name: "job".to_owned(), active_deadline_seconds: 60, backoff_limit: 3 },
    };
    let job = job::manifest(&Config::default(), &object, &plan).unwrap();
    assert!(job.labels().values().all(|value| value.len() <= 63));
    let seen = serde_json::from_value(serde_json::to_value(&job).unwrap()).unwrap();
    let (_, facts) = jobs::facts(&seen, &["ModelCompilation"]).unwrap();
    assert_eq!(facts.view.pool, Some(name));
    // So is the device that it was granted, and that nothing of it runs before somebody lets it go.
    assert_eq!(facts.view.slot.as_deref(), Some("device-n1"));
    assert!(facts.view.gated && facts.view.suspended && facts.view.at_rest && facts.gave_back());
    let pod = job.spec.unwrap().template.spec.unwrap();
    assert_eq!(pod.scheduling_gates.unwrap()[0].name, "hone.dev/device");
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
