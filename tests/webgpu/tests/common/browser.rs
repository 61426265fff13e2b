//! A real Chromium without a window, which computes by SwiftShader, and pages for it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// What a page reports that is served from folders, the first that has a file: `?report` stands behind its address, and
/// it posts to `report`.
pub fn report(program: &Path, folders: Vec<PathBuf>) -> serde_json::Value {
    let profile = tempfile::tempdir().unwrap();
    let (port, reports) = serve(folders);
    let browser = Command::new(program)
        .args(["--headless=new", "--no-sandbox", "--no-first-run", "--disable-dev-shm-usage"])
        .args(["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("http://127.0.0.1:{port}/?report"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let browser = Running(browser);
    let report = reports.recv_timeout(Duration::from_secs(240)).expect("the page said nothing");
    drop(browser);
    println!("in the browser: {report}");
    serde_json::from_str(&report).unwrap()
}

/// The browser of this machine; `None`, with a line that says so, where there is none.
pub fn browser() -> Option<PathBuf> {
    let given = std::env::var_os("HONE_CHROMIUM").map(PathBuf::from);
    let usual = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
    let found = given.or_else(|| usual.iter().map(PathBuf::from).find(|path| path.exists()));
    let required = std::env::var_os("HONE_BROWSER_TESTS").is_some_and(|value| value == "required");
    assert!(found.is_some() || !required, "no Chromium: run `cargo xtask setup --tests`");
    if found.is_none() {
        println!("skipped: there is no Chromium (cargo xtask setup --tests installs one)");
    }
    found
}

/// Serves the files of folders, the first that has one, and hands over what is posted. It ends with the process.
fn serve(folders: Vec<PathBuf>) -> (u16, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (send, receive) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A browser that ends in the middle of a request is no failure.
            let _ = answer(stream, &folders, &send);
        }
    });
    (port, receive)
}

fn answer(
    mut stream: TcpStream,
    folders: &[PathBuf],
    posted: &Sender<String>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut request = String::new();
    reader.read_line(&mut request)?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim().to_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let path = request.split(' ').nth(1).unwrap_or_default().split('?').next().unwrap_or_default();
    if request.starts_with("POST") {
        // Nobody waits any more where the test has ended.
        let _ = posted.send(String::from_utf8_lossy(&body).into_owned());
        return stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
    }
    let name = if path == "/" { "index.html" } else { path.trim_start_matches('/') };
    let Some(bytes) = folders.iter().find_map(|folder| std::fs::read(folder.join(name)).ok())
    else {
        return stream.write_all(b"HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\n");
    };
    let kind = match name.rsplit('.').next() {
        Some("html") => "text/html",
        Some("js") => "text/javascript",
        _ => "application/octet-stream",
    };
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        bytes.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(&bytes)
}

/// A browser that is ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
