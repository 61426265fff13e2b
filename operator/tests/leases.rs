//! Devices are leased: controllers, caches and broker together against a fake API server that keeps Leases as the
//! real one does, by resource version.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{error, put};
use hone_crds::{DevicePool, ModelCompilation};
use hone_operator::children::jobs::JobFacts;
use hone_operator::children::pods;
use hone_operator::config::Config;
use hone_operator::context::Context;
use hone_operator::device_pool;
use hone_operator::model_compilation::{digest, reconcile};
use hone_operator::nodes;
use hone_operator::stores::Stores;
use hone_operator::tuning_run;
use http::Method;
use kube::runtime::watcher::Event;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

/// Objects by path, and a count of what was written.
#[derive(Default)]
struct Server {
    objects: Mutex<BTreeMap<String, Value>>,
    versions: Mutex<u64>,
    writes: Mutex<Vec<String>>,
}

/// Keeps an object under its path and a new version.
fn keep(
    objects: &mut BTreeMap<String, Value>,
    version: u64,
    path: String,
    mut object: Value,
) -> Value {
    object["metadata"]["resourceVersion"] = json!(version.to_string());
    if object["metadata"]["uid"].is_null() {
        object["metadata"]["uid"] = json!(format!("uid-{version}"));
    }
    objects.insert(path, object.clone());
    object
}

/// A JSON merge patch (RFC 7396).
fn merge(object: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else { return *object = patch };
    if !object.is_object() {
        *object = json!({});
    }
    for (key, value) in patch {
        match value {
            Value::Null => drop(object.as_object_mut().unwrap().remove(&key)),
            value => merge(&mut object[key], value),
        }
    }
}

impl Server {
    fn client(self: &Arc<Self>) -> Client {
        let server = Arc::clone(self);
        common::client(move |method, uri, body| {
            server.answer(method, uri.split('?').next().unwrap_or_default(), body)
        })
    }

    fn answer(&self, method: &Method, path: &str, mut body: Value) -> (u16, Value) {
        let mut objects = self.objects.lock().unwrap();
        let mut version = self.versions.lock().unwrap();
        if method != Method::GET {
            self.writes.lock().unwrap().push(format!("{method} {path}"));
        }
        *version += 1;
        let version = *version;
        match *method {
            Method::POST => {
                let name = body["metadata"]["name"].as_str().unwrap().to_owned();
                let path = format!("{path}/{name}");
                match objects.contains_key(&path) {
                    true => error(409, "exists"),
                    false => (201, keep(&mut objects, version, path, body)),
                }
            }
            Method::PUT => {
                let is_status = path.ends_with("/status");
                let path = path.trim_end_matches("/status").to_owned();
                let Some(known) = objects.get(&path) else { return error(404, "not found") };
                if known["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"] {
                    return error(409, "conflict");
                }
                let mut object = known.clone();
                match is_status {
                    true => object["status"] = body["status"].take(),
                    false => object = body,
                }
                (200, keep(&mut objects, version, path, object))
            }
            Method::PATCH => {
                let is_status = path.ends_with("/status");
                let path = path.trim_end_matches("/status").to_owned();
                let Some(known) = objects.get(&path) else { return error(404, "not found") };
                let mut object = known.clone();
                match is_status {
                    true => object["status"] = body["status"].take(),
                    false => merge(&mut object, body),
                }
                (200, keep(&mut objects, version, path, object))
            }
            Method::DELETE => match objects.remove(path) {
                Some(object) => (200, object),
                None => error(404, "not found"),
            },
            _ if path.ends_with("/pods") => {
                let pods = objects.iter().filter(|(own, _)| own.starts_with(path));
                let items: Vec<&Value> = pods.map(|(_, pod)| pod).collect();
                (
                    200,
                    json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}),
                )
            }
            _ => objects.get(path).map_or_else(|| error(404, "none"), |o| (200, o.clone())),
        }
    }

    fn count(&self, method: &str, part: &str) -> usize {
        let writes = self.writes.lock().unwrap();
        writes.iter().filter(|w| w.starts_with(method) && w.contains(part)).count()
    }

    /// Holders of leases by the name of the lease.
    fn holders(&self) -> BTreeMap<String, String> {
        let objects = self.objects.lock().unwrap();
        let leases = objects.iter().filter(|(path, _)| path.contains("/leases/"));
        leases
            .filter_map(|(path, lease)| {
                let holder = lease["spec"]["holderIdentity"].as_str()?;
                Some((path.rsplit('/').next()?.to_owned(), holder.to_owned()))
            })
            .collect()
    }
}

const POOLS: &str = "/apis/hone.dev/v1alpha1/devicepools";
const TEAM: &str = "/apis/hone.dev/v1alpha1/namespaces/team/modelcompilations";

const RUNS: &str = "/apis/hone.dev/v1alpha1/namespaces/team/tuningruns";

fn pool(name: &str, spec: Value) -> DevicePool {
    serde_json::from_value(json!({"apiVersion": "hone.dev/v1alpha1", "kind": "DevicePool",
        "metadata": {"name": name, "uid": name}, "spec": spec}))
    .unwrap()
}

fn compilation(name: &str, start: &str) -> ModelCompilation {
    serde_json::from_value(json!({"apiVersion": "hone.dev/v1alpha1", "kind": "ModelCompilation",
        "metadata": {"name": name, "namespace": "team", "uid": name, "generation": 1},
        "spec": {"model": {"uri": "s3://models/x.onnx"}, "output": {"uri": "s3://artifacts/x"},
            "targets": [{"name": "cpu", "pool": "cpus"}], "correctness": {}},
        "status": {"phase": "Pending", "observedGeneration": 1, "startTime": start}}))
    .unwrap()
}

async fn node(stores: &Stores, name: &str) {
    let seen = serde_json::from_value(json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}))
    .unwrap();
    let events = futures::stream::iter([Ok(Event::Apply(seen))]);
    stores.nodes.follow("nodes", events, nodes::facts, |_, _| {}).await;
}

/// An operator over `server`, without watches: tests bring what changed.
fn operator(server: &Arc<Server>) -> Arc<Context> {
    let config = Config { namespace: "hone".to_owned(), ..Config::default() };
    let (context, _publish) = common::operator(server.client(), config);
    Arc::new(context)
}

/// Brings what the API server has of pools and compilations into the caches, as watches would.
async fn catch_up(context: &Context, server: &Server) {
    let objects = server.objects.lock().unwrap().clone();
    for (path, object) in objects {
        if path.starts_with(POOLS) {
            put(&context.stores.pools, serde_json::from_value(object).unwrap()).await;
        } else if path.starts_with(TEAM) {
            put(&context.stores.compilations, serde_json::from_value(object).unwrap()).await;
        } else if path.starts_with(RUNS) {
            put(&context.stores.tuning_runs, serde_json::from_value(object).unwrap()).await;
        } else if path.contains("/jobs/") {
            let seen = serde_json::from_value(object).unwrap();
            let events = futures::stream::iter([Ok(Event::Apply(seen))]);
            let kinds = ["ModelCompilation", "TuningRun"];
            let view = |job: &_| hone_operator::children::jobs::facts(job, &kinds);
            context.stores.jobs.follow("jobs", events, view, |_, _| {}).await;
        } else if path.contains("/pods/") {
            let events =
                futures::stream::iter([Ok(Event::Apply(serde_json::from_value(object).unwrap()))]);
            context.stores.pods.follow("pods", events, pods::facts, |_, _| {}).await;
        }
    }
}

async fn reconcile_pool(context: &Arc<Context>, server: &Server, name: &str) -> Option<Duration> {
    catch_up(context, server).await;
    let object = context.stores.pools.get("", name).unwrap();
    device_pool::reconcile(object, Arc::clone(context)).await.unwrap()
}

async fn reconcile_compilation(context: &Arc<Context>, server: &Server, name: &str) {
    catch_up(context, server).await;
    let object = context.stores.compilations.get("team", name).unwrap();
    reconcile::reconcile(object, Arc::clone(context)).await.unwrap();
    catch_up(context, server).await;
}

fn add(server: &Server, object: Value) {
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    let folder = match object["kind"].as_str().unwrap() {
        "DevicePool" => POOLS,
        "TuningRun" => RUNS,
        _ => TEAM,
    };
    let mut objects = server.objects.lock().unwrap();
    let mut object = object;
    object["metadata"]["resourceVersion"] = json!("1");
    objects.insert(format!("{folder}/{name}"), object);
}

/// A server with a pool of these nodes, and an operator that has claimed it.
async fn pool_of(nodes: &[&str]) -> (Arc<Server>, Arc<Context>) {
    let server: Arc<Server> = Arc::default();
    *server.versions.lock().unwrap() = 100;
    add(&server, serde_json::to_value(pool("cpus", json!({"kind": "CPU"}))).unwrap());
    for (name, start) in [
        ("first", "2026-01-01T00:00:01Z"),
        ("second", "2026-01-01T00:00:02Z"),
        ("third", "2026-01-01T00:00:03Z"),
    ] {
        // Long ago, but within the deadline that the test's objects have.
        let mut object = serde_json::to_value(compilation(name, start)).unwrap();
        object["spec"]["limits"] = json!({"pendingDeadline": "87600h"});
        add(&server, object);
    }
    let context = operator(&server);
    for name in nodes {
        node(&context.stores, name).await;
    }
    reconcile_pool(&context, &server, "cpus").await;
    (server, context)
}

fn job_path(name: &str) -> String {
    let object = compilation(name, "2026-01-01T00:00:01Z");
    let job = digest::job_name(&object, &object.spec.targets[0]);
    format!("/apis/batch/v1/namespaces/team/jobs/{job}")
}

fn has_job(server: &Server, name: &str) -> bool {
    server.objects.lock().unwrap().contains_key(&job_path(name))
}

/// The Job of a compilation ends.
async fn finish(context: &Context, server: &Server, name: &str) {
    let condition = json!([{"type": "Complete", "status": "True"}]);
    server.objects.lock().unwrap().get_mut(&job_path(name)).unwrap()["status"]["conditions"] =
        condition;
    catch_up(context, server).await;
}

#[tokio::test]
async fn a_job_is_made_when_its_device_is_granted_and_the_next_gets_it_after() {
    let (server, context) = pool_of(&["n1"]).await;
    for name in ["second", "first", "third"] {
        reconcile_compilation(&context, &server, name).await;
        assert!(!has_job(&server, name), "a Job without a device");
    }
    reconcile_pool(&context, &server, "cpus").await;
    // The one that waits longest, whatever the order of asking.
    let holders = server.holders();
    assert_eq!(holders.len(), 1);
    assert!(holders["device-n1"].starts_with("team/first-"), "{holders:?}");
    for name in ["first", "second", "third"] {
        reconcile_compilation(&context, &server, name).await;
    }
    assert!(has_job(&server, "first") && !has_job(&server, "second"));
    let job = server.objects.lock().unwrap()[&job_path("first")].clone();
    let pod = &job["spec"]["template"];
    assert_eq!(pod["metadata"]["annotations"]["hone.dev/slot"], "device-n1");
    assert_eq!(pod["metadata"]["annotations"]["hone.dev/fence"], "1");
    assert!(pod["spec"]["affinity"]["podAntiAffinity"].is_null());
    let node = pod.pointer("/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchFields/0/values/0");
    assert_eq!(node.unwrap(), "n1");
    // Looking again changes nothing.
    let writes = server.count("", "/leases");
    reconcile_pool(&context, &server, "cpus").await;
    assert_eq!(server.count("", "/leases"), writes);

    finish(&context, &server, "first").await;
    reconcile_pool(&context, &server, "cpus").await;
    assert!(server.holders()["device-n1"].starts_with("team/second-"));
    reconcile_compilation(&context, &server, "second").await;
    let job = server.objects.lock().unwrap()[&job_path("second")].clone();
    assert_eq!(job["metadata"]["annotations"]["hone.dev/fence"], "2");
    // Given from hand to hand in one write.
    assert_eq!(server.count("", "/leases"), 2);
}

async fn reconcile_run(context: &Arc<Context>, server: &Server, name: &str) {
    catch_up(context, server).await;
    let object = context.stores.tuning_runs.get("team", name).unwrap();
    tuning_run::reconcile::reconcile(object, Arc::clone(context)).await.unwrap();
    catch_up(context, server).await;
}

/// A run and a compilation of one name share a pool, and neither takes the other's place or device.
#[tokio::test]
async fn a_tuning_run_holds_a_device_as_a_compilation_does() {
    let (server, context) = pool_of(&["n1"]).await;
    let run = json!({"apiVersion": "hone.dev/v1alpha1", "kind": "TuningRun",
        "metadata": {"name": "first", "namespace": "team", "uid": "run", "generation": 1},
        "spec": {"model": {"uri": "s3://models/x.onnx"}, "target": {"arch": "amd64"},
            "pool": "cpus", "stop": {"maxTrials": 10}, "log": {"uri": "s3://tuning/x"},
            "limits": {"pendingDeadline": "87600h"}},
        "status": {"phase": "Pending", "observedGeneration": 1, "startTime": "2026-01-01T00:00:00Z"}});
    add(&server, run.clone());
    reconcile_run(&context, &server, "first").await;
    reconcile_compilation(&context, &server, "first").await;
    reconcile_pool(&context, &server, "cpus").await;
    let job = tuning_run::digest::job_name(&serde_json::from_value(run).unwrap());
    assert_eq!(server.holders()["device-n1"], format!("team/{job}"));
    reconcile_run(&context, &server, "first").await;
    reconcile_compilation(&context, &server, "first").await;
    let path = format!("/apis/batch/v1/namespaces/team/jobs/{job}");
    let made = server.objects.lock().unwrap()[&path].clone();
    assert_eq!(made["metadata"]["labels"]["hone.dev/purpose"], "tune");
    assert_eq!(made["metadata"]["annotations"]["hone.dev/slot"], "device-n1");
    assert_eq!(made["metadata"]["ownerReferences"][0]["kind"], "TuningRun");
    assert!(!has_job(&server, "first"), "two Jobs on one device");
    // Suspended, it gives the device back once its Job is gone.
    let mut edited = server.objects.lock().unwrap()[&format!("{RUNS}/first")].clone();
    edited["spec"]["suspend"] = json!(true);
    edited["metadata"]["generation"] = json!(2);
    edited["metadata"]["resourceVersion"] = json!("1000");
    server.objects.lock().unwrap().insert(format!("{RUNS}/first"), edited);
    reconcile_run(&context, &server, "first").await;
    assert_eq!(server.count("DELETE", &job), 1);
    let condition = json!([{"type": "Failed", "status": "True", "reason": "x"}]);
    let mut ended = made;
    ended["status"]["conditions"] = condition;
    server.objects.lock().unwrap().insert(path, ended);
    catch_up(&context, &server).await;
    reconcile_pool(&context, &server, "cpus").await;
    let holder = server.holders()["device-n1"].clone();
    assert!(holder.starts_with("team/first-cpu-"), "{holder}");
}

/// Nothing is kept but the Leases: who begins to lead knows as much as who led.
#[tokio::test]
async fn a_fresh_leader_knows_from_the_leases_who_holds_what() {
    let (server, context) = pool_of(&["n1"]).await;
    reconcile_compilation(&context, &server, "first").await;
    reconcile_pool(&context, &server, "cpus").await;
    reconcile_compilation(&context, &server, "first").await;

    let fresh = operator(&server);
    node(&fresh.stores, "n1").await;
    let lease = "/apis/coordination.k8s.io/v1/namespaces/hone/leases/device-n1";
    let lease = server.objects.lock().unwrap()[lease].clone();
    let lease = serde_json::from_value(lease).unwrap();
    let (_, lease) = hone_operator::broker::lease::facts(&lease).unwrap();
    fresh.broker.saw(lease);
    for name in ["first", "second"] {
        reconcile_compilation(&fresh, &server, name).await;
    }
    reconcile_pool(&fresh, &server, "cpus").await;
    assert!(server.holders()["device-n1"].starts_with("team/first-"));
    assert!(!has_job(&server, "second"));
    finish(&fresh, &server, "first").await;
    reconcile_pool(&fresh, &server, "cpus").await;
    assert!(server.holders()["device-n1"].starts_with("team/second-"));
}

/// A replica that was deposed and looks at old Leases is refused by the API server.
#[tokio::test]
async fn old_leases_grant_nothing() {
    let (server, context) = pool_of(&["n1"]).await;
    let deposed = operator(&server);
    node(&deposed.stores, "n1").await;
    reconcile_compilation(&deposed, &server, "second").await;
    reconcile_compilation(&context, &server, "first").await;
    reconcile_pool(&context, &server, "cpus").await;
    catch_up(&deposed, &server).await;
    let object = deposed.stores.pools.get("", "cpus").unwrap();
    device_pool::reconcile(object, deposed).await.unwrap_err();
    assert!(server.holders()["device-n1"].starts_with("team/first-"));
}

/// B7: two operators do not take turns in writing one pool's status.
#[tokio::test]
async fn one_operator_manages_a_pool() {
    let (server, _context) = pool_of(&["n1"]).await;
    let other = operator(&server);
    let mut other = Arc::try_unwrap(other).ok().unwrap();
    other.config.namespace = "another".to_owned();
    let other = Arc::new(other);
    let written = server.count("PATCH", "devicepools");
    reconcile_pool(&other, &server, "cpus").await;
    assert_eq!(server.count("PATCH", "devicepools"), written);
    reconcile_compilation(&other, &server, "first").await;
    let status = server.objects.lock().unwrap()[&format!("{TEAM}/first")]["status"].clone();
    assert_eq!(status["targets"][0]["failure"]["reason"], "PoolManagedElsewhere", "{status}");
}

/// B23: a pool at rest is looked at once and then no more until something changes.
#[tokio::test]
async fn a_pool_at_rest_costs_nothing() {
    let (server, context) = pool_of(&["n1"]).await;
    // The claim is seen, the status stands.
    assert_eq!(reconcile_pool(&context, &server, "cpus").await, None);
    let writes = server.writes.lock().unwrap().len();
    assert_eq!(reconcile_pool(&context, &server, "cpus").await, None);
    assert_eq!(server.writes.lock().unwrap().len(), writes);
}

/// Counts that change with every worker are not written with every worker.
#[tokio::test]
async fn counts_are_written_seldom() {
    let (server, context) = pool_of(&["n1", "n2"]).await;
    reconcile_pool(&context, &server, "cpus").await;
    let before = server.count("PATCH", "devicepools");
    for name in ["first", "second", "third"] {
        reconcile_compilation(&context, &server, name).await;
        reconcile_pool(&context, &server, "cpus").await;
    }
    let again = reconcile_pool(&context, &server, "cpus").await;
    assert_eq!(server.count("PATCH", "devicepools"), before);
    assert!(again.unwrap() <= Duration::from_secs(11), "{again:?}");
    assert_eq!(context.stores.pools.get("", "cpus").unwrap().name_any(), "cpus");
}

/// Changes the Job of a compilation, as its controller or Kueue would.
fn change_job(server: &Server, name: &str, patch: Value) {
    merge(server.objects.lock().unwrap().get_mut(&job_path(name)).unwrap(), patch);
}

const POD: &str = "/api/v1/namespaces/team/pods/worker";

/// Kueue lets the Job of a compilation go, and the Job controller makes its pod as the template says.
fn let_go(server: &Server, name: &str) {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    change_job(
        server,
        name,
        json!({"spec": {"suspend": false}, "status": {"active": 1, "startTime": now}}),
    );
    let mut objects = server.objects.lock().unwrap();
    let job = objects[&job_path(name)].clone();
    let mut pod = job["spec"]["template"].clone();
    merge(
        &mut pod,
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "worker", "namespace": "team",
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j",
                "uid": job["metadata"]["uid"], "controller": true}]},
            "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
                "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "SchedulingGated", "message": "Scheduling is blocked"}]}}),
    );
    keep(&mut objects, 1000, POD.to_owned(), pod);
}

fn status_of(server: &Server, name: &str) -> Value {
    server.objects.lock().unwrap()[&format!("{TEAM}/{name}")]["status"].clone()
}

/// Kubernetes' garbage collector may delete a Job before it knows of the Job's pod, which then goes later.
#[tokio::test]
async fn a_pod_that_outlives_its_job_keeps_its_device() {
    let (server, context) = pool_of(&["n1"]).await;
    for name in ["first", "second"] {
        reconcile_compilation(&context, &server, name).await;
    }
    reconcile_pool(&context, &server, "cpus").await;
    reconcile_compilation(&context, &server, "first").await;
    let_go(&server, "first");
    let running = json!({"status": {"phase": "Running"}});
    merge(server.objects.lock().unwrap().get_mut(POD).unwrap(), running);
    catch_up(&context, &server).await;

    // The Job is gone, as its watch says, and the pod is not.
    let job = server.objects.lock().unwrap().remove(&job_path("first")).unwrap();
    let gone = futures::stream::iter([Ok(Event::Delete(serde_json::from_value(job).unwrap()))]);
    let view = |job: &_| hone_operator::children::jobs::facts(job, &["ModelCompilation"]);
    let ended = |before: Option<&JobFacts>, after: Option<&JobFacts>| {
        let job = after.or(before).unwrap();
        context.broker.job_ended(&job.namespace, &job.view.name);
    };
    context.stores.jobs.follow("jobs", gone, view, ended).await;
    let again = reconcile_pool(&context, &server, "cpus").await;
    assert!(server.holders()["device-n1"].starts_with("team/first-"), "{:?}", server.holders());
    assert!(again.unwrap() < Duration::from_secs(3), "{again:?}");

    // A pod with an earlier grant of the same slot keeps nothing.
    let earlier = json!({"metadata": {"annotations": {"hone.dev/fence": "0"}}});
    let pod = server.objects.lock().unwrap()[POD].clone();
    merge(server.objects.lock().unwrap().get_mut(POD).unwrap(), earlier);
    let state = device_pool::observe::leases(&context, &pool("cpus", json!({"kind": "CPU"})));
    let without_end = state.without_end(jiff::Timestamp::now());
    assert_eq!(without_end.len(), 1);
    assert!(device_pool::observe::occupied(&context, &without_end).await.is_empty());
    server.objects.lock().unwrap().insert(POD.to_owned(), pod);
    assert_eq!(device_pool::observe::occupied(&context, &without_end).await.len(), 1);

    server.objects.lock().unwrap().remove(POD);
    reconcile_pool(&context, &server, "cpus").await;
    assert!(server.holders()["device-n1"].starts_with("team/second-"), "{:?}", server.holders());
}

/// A Job that Kueue holds has no device; let go it asks for one; suspended again it gives it back at once, and asks
/// again when it is let go.
#[tokio::test]
async fn a_job_that_kueue_suspends_holds_no_device() {
    let (server, context) = pool_of(&["n1"]).await;
    let labels = json!({"metadata": {"resourceVersion": "2",
        "labels": {"kueue.x-k8s.io/queue-name": "models"}}});
    merge(server.objects.lock().unwrap().get_mut(&format!("{TEAM}/first")).unwrap(), labels);
    reconcile_compilation(&context, &server, "first").await;
    assert!(has_job(&server, "first"), "Kueue admits Jobs that are there");
    change_job(&server, "first", json!({"spec": {"suspend": true}}));

    // The device is for others meanwhile.
    reconcile_compilation(&context, &server, "second").await;
    reconcile_pool(&context, &server, "cpus").await;
    assert!(server.holders()["device-n1"].starts_with("team/second-"));
    reconcile_compilation(&context, &server, "second").await;
    reconcile_compilation(&context, &server, "first").await;
    assert_eq!(status_of(&server, "first")["targets"][0]["failure"]["reason"], "Queued");

    // There is quota, and no device yet.
    let_go(&server, "first");
    reconcile_compilation(&context, &server, "first").await;
    assert_eq!(status_of(&server, "first")["targets"][0]["failure"]["reason"], "WaitingForDevice");
    let gates =
        |server: &Server| server.objects.lock().unwrap()[POD]["spec"]["schedulingGates"].clone();
    assert_eq!(gates(&server), json!([{"name": "hone.dev/device"}]));
    finish(&context, &server, "second").await;
    reconcile_pool(&context, &server, "cpus").await;
    assert!(server.holders()["device-n1"].starts_with("team/first-"));
    reconcile_compilation(&context, &server, "first").await;
    assert_eq!(gates(&server), json!([]));
    let pod = server.objects.lock().unwrap()[POD].clone();
    assert_eq!(pod["metadata"]["annotations"]["hone.dev/fence"], "2");
    let node = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchFields/0/values/0";
    assert_eq!(pod.pointer(node).unwrap(), "n1");
    // Until the scheduler looks, the pod says that it is gated, since long ago: that is no reason to give up.
    reconcile_compilation(&context, &server, "first").await;
    assert!(has_job(&server, "first") && server.count("DELETE", "/jobs") == 0);
    let running = json!({"spec": {"schedulingGates": []}, "status": {"phase": "Running"}});
    merge(server.objects.lock().unwrap().get_mut(POD).unwrap(), running);
    change_job(&server, "first", json!({"status": {"ready": 1}}));

    // Suspended, but its pod is still there: the device is not free. Then it is, within one look.
    reconcile_compilation(&context, &server, "third").await;
    change_job(&server, "first", json!({"spec": {"suspend": true}, "status": {"ready": 0}}));
    reconcile_pool(&context, &server, "cpus").await;
    assert!(server.holders()["device-n1"].starts_with("team/first-"));
    server.objects.lock().unwrap().remove(POD);
    change_job(&server, "first", json!({"status": {"active": 0, "startTime": null}}));
    reconcile_pool(&context, &server, "cpus").await;
    assert!(server.holders()["device-n1"].starts_with("team/third-"));
    reconcile_compilation(&context, &server, "third").await;
    assert!(has_job(&server, "third"));

    // Let go again it does not start on the device that it had.
    let_go(&server, "first");
    reconcile_compilation(&context, &server, "first").await;
    reconcile_pool(&context, &server, "cpus").await;
    assert_eq!(gates(&server), json!([{"name": "hone.dev/device"}]));
    finish(&context, &server, "third").await;
    reconcile_pool(&context, &server, "cpus").await;
    reconcile_compilation(&context, &server, "first").await;
    assert_eq!(gates(&server), json!([]));
    let job = server.objects.lock().unwrap()[&job_path("first")].clone();
    assert_eq!(job["metadata"]["annotations"]["hone.dev/fence"], "4");
}
