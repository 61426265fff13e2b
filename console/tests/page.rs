//! The page in a real browser, over a fake API server: what it shows, that it changes by itself, and that nothing of
//! an object becomes markup.
//!
//! Without a browser the tests are left out and say so; `HONE_BROWSER_TESTS=required` makes that a failure.
//! `HONE_PICTURES=DIR` keeps pictures of the page.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod browser;
mod fake;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use browser::Browser;
use fake::{Api, compilation, condition};
use serde_json::{Value, json};

/// The page of a process of the program itself.
struct Page {
    child: Child,
    url: String,
}

impl Page {
    fn start(kubeconfig: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-hone"));
        command.args(["ui", "--listen", "127.0.0.1:0"]).args(arguments);
        command.env("KUBECONFIG", kubeconfig).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        Self { child, url: url.trim().to_owned() }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs `test` with a browser, off the runtime that serves the fake API.
async fn with_browser(test: impl FnOnce(Browser) + Send + 'static) {
    let Some(program) = browser::program() else {
        let required = std::env::var("HONE_BROWSER_TESTS").is_ok_and(|word| word == "required");
        assert!(!required, "there is no Chromium: cargo xtask setup --tests installs it");
        eprintln!("left out: there is no Chromium (cargo xtask setup --tests installs it)");
        return;
    };
    tokio::task::spawn_blocking(move || test(Browser::start(&program))).await.unwrap();
}

fn conditions(ready: (&str, &str), message: &str, finished: &str) -> Value {
    json!([
        condition("Ready", ready.0, ready.1, message),
        condition("Finished", finished, ready.1, ""),
        condition(
            "Verified",
            if finished == "True" { "True" } else { "Unknown" },
            "Passed",
            if finished == "True" { "57 kernels agree with the reference one by one" } else { "" }
        ),
    ])
}

fn running() -> Value {
    json!({"phase": "Running", "observedGeneration": 1, "targetsReady": "0/1",
        "conditions": conditions(("False", "Running"), "a worker is at work", "False"),
        "targets": [{"name": "cpu", "phase": "Running", "pool": "cpus", "jobRef": {"name": "digits-job"}}]})
}

fn succeeded(report: &str) -> Value {
    json!({"phase": "Succeeded", "observedGeneration": 1, "targetsReady": "1/1",
        "conditions": conditions(("True", "Succeeded"), "cpu: 2.61ms", "True"),
        "targets": [{"name": "cpu", "phase": "Succeeded", "pool": "cpus", "reportUri": report, "cache": "Miss",
            "artifact": {"uri": "s3://artifacts/team/cpu-a.hone", "digest": format!("sha256:{}", "a".repeat(64)),
                "sizeBytes": 1132462},
            "latency": {"p50": "2.61ms", "ciLow": "2.6ms", "ciHigh": "2.63ms", "untuned": "4.02ms"},
            "correctness": {"maxAbs": "2e-5", "maxRel": "8e-5", "passed": true, "executedBy": "native"},
            "compileTime": "9s"}]})
}

fn pool(leased: u64) -> Value {
    json!({"apiVersion": "hone.dev/v1alpha1", "kind": "DevicePool", "metadata": {"name": "cpus"},
        "spec": {"kind": "CPU"}, "status": {"capacity": {"nodes": 4, "total": 4, "leased": leased},
            "conditions": [condition("Ready", "True", "Ready", "")]}})
}

fn lease(slot: u64, holder: &str, renewed: &str) -> Value {
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": format!("cpus-{slot}"),
        "namespace": "hone-system", "labels": {"hone.dev/pool": "cpus"}},
        "spec": {"holderIdentity": holder, "acquireTime": "2026-01-01T00:00:01.000000Z",
            "renewTime": renewed, "leaseDurationSeconds": 60}})
}

/// A report as a worker stores it, with the curve of a search, and its page.
fn store_report(folder: &Path) -> String {
    let curve: Vec<Value> = [(1, 4_020_000), (9, 3_500_000), (40, 2_900_000), (210, 2_610_000)]
        .iter()
        .map(|point| json!(point))
        .collect();
    std::fs::write(
        folder.join("cpu-a.uid.json"),
        json!({"details": {"tuning": {"curve": curve}}}).to_string(),
    )
    .unwrap();
    // The log of a run, too.
    let progress = json!({"measured": 210, "failed": 3, "winners": 2, "segment": 2, "seconds": 31.25, "building": 14.5,
        "executing": 9.0, "proposing": 2.25, "untuned": 4_020_000, "curve": curve});
    std::fs::create_dir(folder.join("log")).unwrap();
    std::fs::write(folder.join("log/progress.json"), progress.to_string()).unwrap();
    store_trials(&folder.join("log/segments"));
    let page =
        "<!doctype html><h1>report of digits</h1><script>parent.postMessage('ran', '*')</script>";
    std::fs::write(folder.join("cpu-a.uid.html"), page).unwrap();
    format!("file://{}/cpu-a.uid.json", folder.display())
}

/// Two segments of a log: trials whose order in time is not that of their times, one that failed with markup in its cause,
/// and a line that is none.
fn store_trials(segments: &Path) {
    std::fs::create_dir(segments).unwrap();
    let trial = |node: &str, nanoseconds: Value, cause: &str| {
        let class = if cause.is_empty() { "Ok" } else { "WrongResult" };
        json!({"schema": 3, "kind": "trial", "program": "p", "nodes": node, "template": "contraction",
            "decisions": [["rows", 6]], "class": class, "nanoseconds": nanoseconds, "ratio": 0.5, "cause": cause})
        .to_string()
    };
    let first = [trial("slow", json!(90_000), ""), "torn".to_owned()];
    let evil = "<img src=x onerror=\"window.broken=1\">";
    let second = [
        trial("fast", json!(9_000), ""),
        trial("wrong", Value::Null, evil),
        trial("middle", json!(50_000), ""),
    ];
    std::fs::write(segments.join("00000001.jsonl"), first.join("\n")).unwrap();
    std::fs::write(segments.join("00000002.jsonl"), second.join("\n")).unwrap();
}

fn picture(browser: &mut Browser, name: &str) {
    if let Some(folder) = std::env::var_os("HONE_PICTURES") {
        browser.picture(&Path::new(&folder).join(name));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_shows_what_happens_as_it_happens() {
    let api = Api::start().await;
    let folder = tempfile::tempdir().unwrap();
    let report = store_report(folder.path());
    api.put(compilation("digits", running()));
    let failure = "node 'attention/softmax' (Foo, opset 17) is not supported: remove it";
    let mut failed = running();
    failed["phase"] = json!("Failed");
    failed["conditions"] = conditions(("False", "UnsupportedOperator"), failure, "True");
    failed["failure"] = json!({"reason": "UnsupportedOperator", "message": failure});
    failed["targets"][0]["phase"] = json!("Failed");
    failed["targets"][0]["failure"] = failed["failure"].clone();
    api.put(compilation("bert", failed));
    api.put(pool(1));
    let soon = "2126-01-01T00:00:00.000000Z";
    api.put(lease(0, "team/digits-job", soon));
    api.put(lease(1, "team/dead-job", "2026-01-01T00:00:01.000000Z"));
    api.put(json!({"apiVersion": "hone.dev/v1alpha1", "kind": "TuningRun", "metadata": {"name": "search",
        "namespace": "team", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"pool": "cpus", "log": {"uri": format!("file://{}/log", folder.path().display())}},
        "status": {"phase": "Running", "trials": {"measured": 210, "failed": 3},
            "progress": {"usedPercent": 43, "expected": "2.61ms", "untuned": "4.02ms"}}}));
    let reports = format!("file://{}/", folder.path().display());
    let page = Page::start(&api.kubeconfig(folder.path()), &["--reports", &reports]);
    let server = Arc::clone(&api);
    with_browser(move |mut browser| {
        browser.open(&page.url);
        browser.until("document.querySelector('[data-object=\"team/digits\"] .badge.Running')");
        browser.until("document.getElementById('connection').textContent === 'live'");
        // Who holds which device, and whose lease ran out.
        browser.until("document.querySelectorAll('[data-pool=cpus] .slots i.held').length === 2");
        let holders = browser.value("document.querySelector('[data-pool=cpus] .holders').innerText");
        let holders = holders.as_str().unwrap();
        assert!(holders.contains("cpus-0: team/digits-job") && holders.contains("expired"), "{holders}");
        browser.until("document.getElementById('runs').innerText.includes('210')");
        let why = browser.value("document.querySelector('[data-object=\"team/bert\"] .why').innerText");
        assert!(why.as_str().unwrap().contains("attention/softmax"), "{why}");
        picture(&mut browser, "running.png");
        // It changes without a reload.
        browser.value("window.same = true");
        server.put(compilation("digits", succeeded(&report)));
        browser.until("document.querySelector('[data-object=\"team/digits\"] .badge.Succeeded')");
        let row = browser.value("document.querySelector('[data-object=\"team/digits\"]').innerText");
        let row = row.as_str().unwrap();
        assert!(row.contains("4.02 ms → 2.61 ms") && row.contains("1.54×") && row.contains("Miss"), "{row}");
        browser.until("document.getElementById('activity').innerText.includes('Running → Succeeded')");
        assert_eq!(browser.value("window.same"), true);
        shows_the_report(&mut browser);
        shows_the_search(&mut browser);
        // A filter leaves pools alone.
        browser.value("(() => { const f = document.getElementById('filter'); f.value = 'BERT'; f.dispatchEvent(new Event('input')); })()");
        browser.until("document.querySelectorAll('#compilations tbody').length === 1");
        browser.until("document.querySelector('[data-pool=cpus]')");
        assert_eq!(browser.complaints, Vec::<String>::new());
    })
    .await;
}

fn shows_the_search(browser: &mut Browser) {
    browser.value("[...document.querySelectorAll('#runs button.name')][0].click()");
    browser.until("document.getElementById('detail').innerText.includes('43 %')");
    browser.value("document.querySelector('button.report').click()");
    browser.until("document.getElementById('tuning-curve')");
    let view = browser.value("document.getElementById('report-view').innerText");
    let view = view.as_str().unwrap();
    // 31.25 s less what is named.
    assert!(view.contains("14.5 s") && view.contains("5.5 s"), "{view}");
    shows_the_trials(browser);
    picture(browser, "search.png");
}

/// Every trial of both segments, the latest first, and in the order of a column that is clicked.
fn shows_the_trials(browser: &mut Browser) {
    browser.until("document.querySelectorAll('#trials tbody tr').length === 4");
    let programs = |browser: &mut Browser| {
        browser.value("[...document.querySelectorAll('#trials tbody tr')].map((row) => row.children[1].textContent).join(' ')")
    };
    let click = |browser: &mut Browser, column: &str| {
        browser.value(&format!(
            "[...document.querySelectorAll('#trials button.sort')].find((b) => b.textContent === '{column}').click()"
        ));
    };
    assert_eq!(programs(browser), "middle wrong fast slow");
    click(browser, "time");
    assert_eq!(programs(browser), "fast middle slow wrong");
    click(browser, "time");
    assert_eq!(programs(browser), "slow middle fast wrong", "one that failed has no time");
    click(browser, "class");
    assert_eq!(
        browser.value("document.querySelector('#trials th[aria-sort=ascending]').textContent"),
        "class"
    );
    assert_eq!(programs(browser), "slow fast middle wrong");
    let text = browser.value("document.getElementById('trials').textContent");
    assert!(
        text.as_str().unwrap().contains("onerror") && text.as_str().unwrap().contains("rows 6"),
        "{text}"
    );
    assert_eq!(
        browser.value("document.querySelectorAll('img').length + Number(window.broken ?? 0)"),
        0
    );
    assert_eq!(browser.value("document.querySelector('button.more').hidden"), true);
}

fn shows_the_report(browser: &mut Browser) {
    browser.value("document.querySelector('[data-object=\"team/digits\"] button.name').click()");
    browser.until("!document.getElementById('detail').hidden");
    let detail = browser.value("document.getElementById('detail').innerText");
    let detail = detail.as_str().unwrap();
    assert!(detail.contains("57 kernels agree") && detail.contains("1.08 MiB"), "{detail}");
    browser.value("addEventListener('message', () => { window.ran = true; })");
    browser.value("document.querySelector('button.report').click()");
    browser.until("document.getElementById('tuning-curve')");
    browser.until("document.getElementById('report')");
    let frame = browser.value(
        "fetch('report/team/digits/cpu/html').then((a) => a.text().then((t) => [a.headers.get('content-security-policy'), t]))",
    );
    assert!(frame[0].as_str().unwrap().starts_with("sandbox; default-src 'none'"), "{frame}");
    assert!(frame[1].as_str().unwrap().contains("report of digits"), "{frame}");
    browser.until("performance.getEntriesByType('resource').some((e) => e.initiatorType === 'iframe' && e.responseEnd > 0)");
    // A script would run once the frame is drawn.
    std::thread::sleep(std::time::Duration::from_millis(500));
    picture(browser, "report.png");
    assert_eq!(browser.value("window.ran === undefined"), true, "a script in the report ran");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_an_object_becomes_markup() {
    let api = Api::start().await;
    let evil = "<img src=x onerror=\"window.broken=1\"><script>window.broken=1</script>";
    let mut status = succeeded(evil);
    status["phase"] = json!(evil);
    for pointer in
        ["/targets/0/pool", "/targets/0/artifact/uri", "/targets/0/phase", "/targets/0/precision"]
    {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        status.pointer_mut(parent).unwrap()[field] = json!(evil);
    }
    status["conditions"] =
        json!([condition(evil, evil, evil, evil), condition("Ready", "False", evil, evil)]);
    status["failure"] = json!({"reason": evil, "message": evil});
    let mut object = compilation(evil, status);
    object["spec"]["model"]["uri"] = json!(evil);
    api.put(object.clone());
    let mut bad_pool = pool(1);
    bad_pool["status"]["conditions"] = json!([condition("Ready", "False", evil, evil)]);
    api.put(bad_pool);
    api.forbid("TuningRun");
    let folder = tempfile::tempdir().unwrap();
    let page = Page::start(&api.kubeconfig(folder.path()), &[]);
    let server = Arc::clone(&api);
    with_browser(move |mut browser| {
        browser.open(&page.url);
        browser.until("document.querySelector('button.name')");
        browser.value("document.querySelector('button.name').click()");
        browser.until("!document.getElementById('detail').hidden");
        browser.until(
            "document.getElementById('notices').innerText.includes('TuningRun: may not be read')",
        );
        // Reports of changes quote the object as well.
        object["status"]["conditions"][1]["message"] = json!(format!("{evil} again"));
        object["status"]["conditions"][1]["reason"] = json!(format!("{evil}2"));
        server.put(object);
        browser.until("document.getElementById('activity').innerText.includes('onerror')");
        assert_eq!(
            browser.value("document.querySelectorAll('img, #detail script, td script').length"),
            0
        );
        assert_eq!(browser.value("window.broken === undefined"), true);
        // A report outside of the folders is refused, in words.
        let status = browser.value(&format!(
            "fetch('report/team/' + encodeURIComponent({}) + '/cpu/json').then((a) => a.status)",
            json!(evil)
        ));
        assert_eq!(status, 403);
        browser.complaints.retain(|complaint| !complaint.contains("403"));
        assert_eq!(browser.complaints, Vec::<String>::new());
    })
    .await;
}
