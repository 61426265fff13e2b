//! Posts how far a search is to the operator, which shows it in the run's status.
//!
//! Always true: nothing of a search waits for a post, and none that fails ends it. The operator hears of everything
//! that counts by the termination message.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Duration;

use hone_artifact::progress::{ENDPOINT_VARIABLE, Progress, Revision, SessionSeen, TOKEN_VARIABLE};
use hone_artifact::report::TuningReport;
use reqwest::StatusCode;
use reqwest::blocking::Client;
use reqwest::redirect::Policy;

use super::outcome::Outcome;

/// Least time between two posts, and before one that was not taken is tried again.
const PAUSE: Duration = Duration::from_secs(5);
/// Longest time that one may take.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Replicas of the operator that are tried until the one that leads is found.
const TRIES: usize = 4;

/// Why a post was not taken.
#[derive(Debug, thiserror::Error)]
enum PostError {
    #[error("the token '{0}' cannot be read")]
    Token(PathBuf, #[source] std::io::Error),
    #[error("nobody answers")]
    Unreachable(#[from] reqwest::Error),
    #[error("it is answered with {0}")]
    Refused(StatusCode),
}

/// A thread that posts; it ends with the process.
#[derive(Clone, Debug)]
pub struct Posts(Sender<Update>);

/// What there is to post.
#[derive(Debug)]
enum Update {
    /// How far the search is; its sessions are told apart.
    Search(Progress),
    /// The sessions that it knows.
    Sessions(Vec<SessionSeen>),
}

impl Posts {
    /// Posts to the endpoint that the operator named; `None` where it named none.
    pub fn from_environment() -> Option<Self> {
        let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let (endpoint, token) = (set(ENDPOINT_VARIABLE)?, set(TOKEN_VARIABLE)?);
        let (sender, receiver) = channel();
        let poster = Poster { endpoint, token: token.into(), pause: PAUSE };
        let thread = std::thread::Builder::new().name("progress".to_owned());
        match thread.spawn(move || poster.run(&receiver)) {
            Ok(_) => Some(Self(sender)),
            Err(error) => {
                eprintln!("warning: progress is not posted: {error}");
                None
            }
        }
    }

    /// How far the search is now, of whose limits the share `used` is used up, and what its log holds. Of several calls in
    /// a short time the last is posted.
    pub fn tell(&self, outcome: &Outcome, used: f64, report: &TuningReport) {
        let Some((_, expected)) = outcome.curve.last() else { return };
        let failed: usize = outcome.failed.values().sum();
        let progress = Progress {
            measured: (outcome.logged.0 + outcome.trials - failed) as u64,
            failed: (outcome.logged.1 + failed) as u64,
            used: used.clamp(0.0, 1.0),
            expected: *expected as u64,
            untuned: outcome.untuned as u64,
            revision: Revision::of(report),
            sessions: None,
        };
        // A thread that ended posts nothing any more.
        drop(self.0.send(Update::Search(progress)));
    }

    /// Which sessions there are, also before the search begins.
    pub fn tell_sessions(&self, sessions: &[SessionSeen]) {
        drop(self.0.send(Update::Sessions(sessions.to_vec())));
    }
}

struct Poster {
    endpoint: String,
    token: PathBuf,
    /// [`PAUSE`].
    pause: Duration,
}

impl Poster {
    fn run(&self, receiver: &Receiver<Update>) {
        let client = match client() {
            Ok(client) => client,
            Err(error) => return eprintln!("warning: progress is not posted: {error}"),
        };
        let mut works = true;
        let mut progress = Progress::default();
        while self.receive(receiver, &mut progress, works) {
            let posted = self.post(&client, &progress);
            if let (true, Err(error)) = (works, &posted) {
                let chain = hone_artifact::with_causes(error);
                eprintln!(
                    "warning: progress is not posted to {}: {chain}; the search goes on",
                    self.endpoint
                );
            }
            works = posted.is_ok();
            if works {
                std::thread::sleep(self.pause);
            }
        }
    }

    /// Waits for what there is to post, or for the time at which a post that was not taken is tried again: a search that
    /// waits for a session has nothing new to tell. `false` where nothing comes any more.
    fn receive(&self, receiver: &Receiver<Update>, progress: &mut Progress, works: bool) -> bool {
        let first = match works {
            true => receiver.recv().map_err(|_| TryRecvError::Disconnected),
            false => {
                std::thread::sleep(self.pause);
                receiver.try_recv()
            }
        };
        if matches!(first, Err(TryRecvError::Disconnected)) {
            return false;
        }
        for update in first.into_iter().chain(receiver.try_iter()) {
            match update {
                Update::Search(search) => {
                    *progress = Progress { sessions: progress.sessions.take(), ..search };
                }
                Update::Sessions(sessions) => progress.sessions = Some(sessions),
            }
        }
        true
    }

    /// Posts to whichever replica answers, and to another where it does not lead.
    fn post(&self, client: &Client, progress: &Progress) -> Result<(), PostError> {
        // It is renewed while the pod runs.
        let token = std::fs::read_to_string(&self.token);
        let token = token.map_err(|error| PostError::Token(self.token.clone(), error))?;
        // Plain data always has a JSON form.
        let body = serde_json::to_vec(progress).unwrap_or_default();
        let mut last = StatusCode::SERVICE_UNAVAILABLE;
        for _ in 0..TRIES {
            let request = client.post(&self.endpoint).bearer_auth(token.trim());
            last = request.body(body.clone()).send()?.status();
            if last != StatusCode::SERVICE_UNAVAILABLE {
                break;
            }
        }
        match last.is_success() {
            true => Ok(()),
            false => Err(PostError::Refused(last)),
        }
    }
}

/// The address is the operator's, so no proxy and no guard stands between; each post has a connection of its own, since one
/// that is kept always leads to the same replica.
fn client() -> reqwest::Result<Client> {
    // Whichever came first is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::builder().no_proxy().redirect(Policy::none()).timeout(TIMEOUT);
    client.pool_max_idle_per_host(0).build()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn what_no_replica_took_is_posted_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}/progress", listener.local_addr().unwrap());
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        std::fs::write(&token, "secret").unwrap();
        let (sender, receiver) = channel();
        let poster = Poster { endpoint, token, pause: Duration::from_millis(20) };
        let seen = vec![SessionSeen { name: "a".to_owned(), ..SessionSeen::default() }];
        sender.send(Update::Sessions(seen)).unwrap();
        let thread = std::thread::spawn(move || poster.run(&receiver));
        // No replica leads while all tries of the first post and one of the second are made.
        let mut posted = Vec::new();
        for number in 0..TRIES + 2 {
            let (mut stream, _) = listener.accept().unwrap();
            let mut read = Vec::new();
            // The whole of a request comes before its answer is awaited.
            while !read.ends_with(b"}") {
                let mut bytes = [0; 1024];
                let count = stream.read(&mut bytes).unwrap();
                assert!(count > 0, "the request ends early");
                read.extend_from_slice(&bytes[..count]);
            }
            posted.push(String::from_utf8(read).unwrap());
            let status = if number <= TRIES { "503 Service Unavailable" } else { "204 No Content" };
            let answer =
                format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            stream.write_all(answer.as_bytes()).unwrap();
        }
        drop(sender);
        thread.join().unwrap();
        assert!(posted.iter().all(|post| post.contains("\"name\":\"a\"")), "{posted:?}");
    }
}
