//! A real Chromium without a window, driven over its pipe: one JSON message after another, each ended by a
//! zero byte (the DevTools protocol).

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Where Debian's package and others put it.
const PROGRAMS: &[&str] =
    &["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

/// The browser, with one page.
pub struct Browser {
    child: Child,
    to: File,
    from: BufReader<File>,
    session: String,
    last: u64,
    /// Messages of the page's console and errors of its scripts.
    pub complaints: Vec<String>,
    _folder: tempfile::TempDir,
}

/// The browser of this machine; `None` where there is none.
pub fn program() -> Option<PathBuf> {
    let given = std::env::var_os("HONE_CHROMIUM").map(PathBuf::from);
    given.or_else(|| PROGRAMS.iter().map(PathBuf::from).find(|path| path.exists()))
}

impl Browser {
    pub fn start(program: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let pipe = |name: &str| {
            let path = folder.path().join(name);
            assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
            path
        };
        let (to, from) = (pipe("to"), pipe("from"));
        // The browser reads messages from descriptor 3 and writes to 4.
        let script = r#"exec "$0" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
            --hide-scrollbars --window-size=1280,1400 --remote-debugging-pipe --user-data-dir="$3" about:blank 3<"$1" 4>"$2""#;
        let child = Command::new("sh")
            .args(["-c", script])
            .arg(program)
            .args([&to, &from, &folder.path().join("profile")])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let to = File::options().write(true).open(to).unwrap();
        let from = BufReader::new(File::open(from).unwrap());
        let mut browser = Self {
            child,
            to,
            from,
            session: String::new(),
            last: 0,
            complaints: Vec::new(),
            _folder: folder,
        };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attached = browser.call(
            "Target.attachToTarget",
            json!({"targetId": target["targetId"], "flatten": true}),
        );
        browser.session = attached["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            browser.call(domain, json!({}));
        }
        browser
    }

    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.last += 1;
        let mut message = json!({"id": self.last, "method": method, "params": parameters});
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let mut bytes = Vec::new();
            self.from.read_until(0, &mut bytes).unwrap();
            assert_eq!(bytes.pop(), Some(0), "the browser ended");
            let response: Value = serde_json::from_slice(&bytes).unwrap();
            if response["id"] == self.last {
                assert!(response["error"].is_null(), "{method}: {response}");
                return response["result"].clone();
            }
            self.note(&response);
        }
    }

    fn note(&mut self, event: &Value) {
        let parameters = &event["params"];
        let text = match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => parameters["exceptionDetails"].to_string(),
            Some("Log.entryAdded") if parameters["entry"]["level"] == "error" => {
                parameters["entry"].to_string()
            }
            Some("Runtime.consoleAPICalled") if parameters["type"] == "error" => {
                parameters.to_string()
            }
            _ => return,
        };
        self.complaints.push(text);
    }

    pub fn open(&mut self, url: &str) {
        self.call("Page.navigate", json!({"url": url}));
    }

    /// The value of an expression in the page; promises are waited for.
    pub fn value(&mut self, expression: &str) -> Value {
        let parameters =
            json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let result = self.call("Runtime.evaluate", parameters);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    pub fn until(&mut self, expression: &str) {
        let end = Instant::now() + Duration::from_secs(60);
        while self.value(&format!("Boolean({expression})")) != true {
            let text = || "document.body.innerText".to_owned();
            assert!(Instant::now() < end, "never: {expression}\n{}", self.value(&text()));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A picture of the page, as PNG.
    pub fn picture(&mut self, file: &Path) {
        let picture = self.call("Page.captureScreenshot", json!({"format": "png"}));
        let text = picture["data"].clone();
        let bytes: k8s_openapi::ByteString = serde_json::from_value(text).unwrap();
        std::fs::write(file, bytes.0).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
