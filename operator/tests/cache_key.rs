//! B11: when two compilations are equal work, so that one takes the other's result.
#![allow(clippy::unwrap_used)]

use hone_crds::ModelCompilation;
use hone_operator::config::Config;
use hone_operator::model_compilation::digest::content_key;
use hone_operator::model_compilation::model::PoolView;

const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn key_with(config: &Config, target: &str, rest: &str, pools: &str) -> Option<String> {
    let text = format!(
        "{{apiVersion: hone.dev/v1alpha1, kind: ModelCompilation, metadata: {{name: a}}, spec: {{
           model: {{uri: 's3://m/x', digest: '{DIGEST}'}}, output: {{uri: 's3://o/x'}},
           targets: [{target}]{rest}}}}}"
    );
    let object: ModelCompilation = serde_yaml::from_str(&text).unwrap();
    let pools: Vec<PoolView> = serde_yaml::from_str(pools).unwrap();
    content_key(config, &object, &object.spec.targets[0], &pools)
}

fn key(target: &str, pools: &str) -> Option<String> {
    key_with(&Config::default(), target, ", correctness: {}", pools)
}

const ONE: &str = "[{name: p, machine: m1/u1, spec: {kind: CPU}}]";

#[test]
fn the_name_of_a_target_decides_nothing() {
    let of =
        |name: &str| key(&format!("{{name: {name}, platform: {{arch: amd64, cpu: zen4}}}}"), "[]");
    assert!(of("a").is_some());
    assert_eq!(of("a"), of("b"));
}

/// `host` is another processor on another machine.
#[test]
fn the_hosts_processor_is_known_only_where_a_pool_is_one_machine() {
    let host = "{name: t, platform: {arch: amd64, cpu: host}}";
    let here = key(host, ONE);
    assert!(here.is_some());
    assert_ne!(here, key(host, &ONE.replace("u1", "u2")), "another machine of the same name");
    assert_eq!(key(host, &ONE.replace("machine: m1/u1, ", "")), None, "several nodes");
    let two = "[{name: p, machine: m1/u1, spec: {kind: CPU}}, {name: q, machine: m2/u2, spec: {kind: CPU}}]";
    assert_eq!(key(host, two), None, "several pools");
    assert!(key("{name: t, pool: q, platform: {arch: amd64, cpu: host}}", two).is_some());
    assert_eq!(key("{name: t, pool: gone}", two), None);
    // A pool that names its processor is compiled for that.
    let named = "[{name: p, spec: {kind: CPU, platform: {arch: amd64, cpu: zen4}}}]";
    assert!(key("{name: t, pool: p}", named).is_some());
    assert_ne!(
        key("{name: t, pool: p}", named),
        key("{name: t, pool: p}", &named.replace("zen4", "zen5"))
    );
}

/// The worker's image is the compiler, whatever the operator's own version is.
#[test]
fn another_image_is_another_compiler() {
    let target = "{name: t, platform: {arch: amd64, cpu: zen4}}";
    let with = |image: &str| {
        let config = Config { worker_image: image.to_owned(), ..Config::default() };
        key_with(&config, target, ", correctness: {}", "[]")
    };
    assert_ne!(with("r/worker@sha256:1"), with("r/worker@sha256:2"));
}

/// Samples that nothing pins may be others the next time.
#[test]
fn samples_without_a_digest_make_no_equal_work() {
    let target = "{name: t, platform: {arch: amd64, cpu: zen4}}";
    let with = |samples: &str| {
        let rest = format!(", correctness: {{samples: {{uri: 's3://m/s.npz'{samples}}}}}");
        key_with(&Config::default(), target, &rest, "[]")
    };
    assert_eq!(with(""), None);
    assert!(with(&format!(", digest: '{DIGEST}'")).is_some());
}
