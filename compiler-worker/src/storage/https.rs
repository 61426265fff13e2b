//! `https://`, with every address checked, on every redirect.

use std::sync::Arc;
use std::time::Duration;

use hone_artifact::exit_code::Reason;
use reqwest::dns::Resolve;
use reqwest::redirect::{Attempt, Policy};
use reqwest::{Client, ClientBuilder, StatusCode};

use super::{Guard, Incoming, block_on, forbidden, without_query};
use crate::failure::{Failure, Result};

const MOST_REDIRECTS: usize = 5;
const CONNECT: Duration = Duration::from_secs(10);
const SILENCE: Duration = Duration::from_secs(30);

/// A client that connects to nothing that `guard` refuses: no proxy, which would connect in our place.
///
/// # Errors
/// Where the system has no certificates to trust.
pub fn client(guard: &Guard, https_only: bool) -> reqwest::Result<Client> {
    client_with(guard, Arc::new(guard.clone()), https_only)
}

/// A client that asks the platform for the pod's identity: what `guard` lets through, without redirects.
///
/// # Errors
/// As for [`client`].
pub fn identity_client(guard: &Guard) -> reqwest::Result<Client> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    ClientBuilder::new()
        .no_proxy()
        .connect_timeout(CONNECT)
        .read_timeout(SILENCE)
        .dns_resolver(Arc::new(guard.clone()))
        .redirect(Policy::none())
        .build()
}

fn client_with<R: Resolve + 'static>(
    guard: &Guard,
    resolver: Arc<R>,
    https_only: bool,
) -> reqwest::Result<Client> {
    // One provider for the whole process, before the first client; a second call finds it set.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let at_redirect = guard.clone();
    ClientBuilder::new()
        .no_proxy()
        .https_only(https_only)
        .connect_timeout(CONNECT)
        .read_timeout(SILENCE)
        .user_agent(concat!("hone/", env!("CARGO_PKG_VERSION")))
        .dns_resolver(resolver)
        .redirect(Policy::custom(move |attempt| follow(&at_redirect, attempt)))
        .build()
}

fn follow(guard: &Guard, attempt: Attempt) -> reqwest::redirect::Action {
    if attempt.previous().len() > MOST_REDIRECTS {
        return attempt.error("too many redirects");
    }
    match guard.check_literal(attempt.url()) {
        Ok(()) => attempt.follow(),
        Err(refused) => attempt.error(refused),
    }
}

/// The body behind a URL.
///
/// # Errors
/// `SourceForbidden`, `NotFound`, `AccessDenied`, `TooLarge`, `NetworkFault`.
pub fn get(url: &str, guard: &Guard, incoming: &mut Incoming<'_>, https_only: bool) -> Result<()> {
    // A query may hold what nobody else should read.
    let shown = without_query(url);
    let parsed = url::Url::parse(url).map_err(|error| {
        Failure::because(Reason::InvalidSpec, format!("'{shown}' is not a URL"), error)
    })?;
    guard.check_literal(&parsed).map_err(|refused| {
        Failure::because(Reason::SourceForbidden, format!("'{shown}' cannot be fetched"), refused)
    })?;
    block_on(download(url, guard, incoming, https_only))?
}

async fn download(
    url: &str,
    guard: &Guard,
    incoming: &mut Incoming<'_>,
    https_only: bool,
) -> Result<()> {
    let shown = without_query(url);
    let fault = |error: reqwest::Error| {
        let reason = match forbidden(&error) {
            true => Reason::SourceForbidden,
            false => Reason::NetworkFault,
        };
        Failure::because(reason, format!("'{shown}' cannot be fetched"), error.without_url())
    };
    // A client that names no host yet: its certificates are what can be missing.
    let client = client(guard, https_only).map_err(fault)?;
    let mut response = client.get(url).send().await.map_err(fault)?;
    check_status(shown, response.status())?;
    if let Some(length) = response.content_length() {
        incoming.expect(length)?;
    }
    while let Some(chunk) = response.chunk().await.map_err(fault)? {
        incoming.add(&chunk)?;
    }
    Ok(())
}

fn check_status(url: &str, status: StatusCode) -> Result<()> {
    let reason = match status {
        status if status.is_success() => return Ok(()),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Reason::AccessDenied,
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => Reason::NetworkFault,
        status if status.is_client_error() => Reason::NotFound,
        _ => Reason::NetworkFault,
    };
    Err(Failure::new(reason, format!("'{url}' cannot be fetched: the server answers {status}")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener};
    use std::sync::Mutex;

    use reqwest::dns::{Name, Resolving};

    /// Serves one answer a connection, for as long as the test lives; gives the port.
    fn serve(answers: Vec<String>) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 4096];
                let _ = stream.read(&mut request).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        port
    }

    fn body_of(url: &str, guard: &Guard, limit: u64, https_only: bool) -> Result<Vec<u8>> {
        let mut incoming = Incoming::new(url, limit, std::path::Path::new("/nowhere"));
        get(url, guard, &mut incoming, https_only)?;
        Ok(incoming.finish()?.bytes.to_vec())
    }

    fn body(text: &str) -> String {
        format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
            text.len()
        )
    }

    fn redirect(to: &str) -> String {
        format!(
            "HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )
    }

    #[test]
    fn addresses_of_the_machine_and_its_network_are_refused() {
        for url in [
            "https://127.0.0.1/model",
            "https://[::1]/model",
            "https://169.254.169.254/latest/meta-data",
            "https://[::ffff:169.254.169.254]/",
            "https://2130706433/model",
            "https://0x7f.1/model",
            "https://localhost/model",
        ] {
            let failure = body_of(url, &Guard::default(), 100, true).unwrap_err();
            assert_eq!(failure.reason, Reason::SourceForbidden, "{url}: {}", failure.chain());
        }
    }

    /// A name server that answers differently every time, behind the guard.
    struct Changing {
        guard: Guard,
        answers: Mutex<Vec<&'static str>>,
    }

    impl Resolve for Changing {
        fn resolve(&self, name: Name) -> Resolving {
            let next = self.answers.lock().unwrap().pop().expect("asked more often than answered");
            let found = vec![SocketAddr::new(next.parse().unwrap(), 0)];
            let passed = self.guard.pass(name.as_str(), found);
            Box::pin(async move { Ok(passed?) })
        }
    }

    /// The name is asked once a connection, and the connection is to the address that was checked; when
    /// it leads elsewhere at the next one, that is refused.
    #[test]
    fn a_name_that_changes_its_answer_gains_nothing() {
        let port = serve(vec![redirect("http://other.example/secret")]);
        let guard = Guard::new(["127.0.0.1"]);
        let answers = Mutex::new(vec!["169.254.169.254", "127.0.0.1"]);
        let resolver = Arc::new(Changing { guard: guard.clone(), answers });
        let client = client_with(&guard, Arc::clone(&resolver), false).unwrap();
        let url = format!("http://changing.example:{port}/model");
        let error = block_on(async { client.get(&url).send().await }).unwrap().unwrap_err();
        assert!(forbidden(&error), "{error:?}");
        assert!(
            resolver.answers.lock().unwrap().is_empty(),
            "the second address was not asked for"
        );
    }

    #[test]
    fn a_redirect_to_a_refused_address_is_refused() {
        let guard = Guard::new(["127.0.0.1"]);
        for target in ["http://169.254.169.254/", "http://[fd00:ec2::254]/", "http://localhost:1/"]
        {
            let port = serve(vec![redirect(target)]);
            // `localhost` as a name is not the allowed address' spelling only where it resolves elsewhere;
            // so it is checked against a guard that allows the one server by its name alone.
            let guard = match target.contains("localhost") {
                true => Guard::new(["allowed.invalid"]),
                false => guard.clone(),
            };
            let url = format!("http://127.0.0.1:{port}/model");
            let failure = body_of(&url, &guard, 100, false).unwrap_err();
            assert_eq!(failure.reason, Reason::SourceForbidden, "{target}: {}", failure.chain());
        }
    }

    #[test]
    fn allowed_servers_are_read_up_to_the_limit() {
        let guard = Guard::new(["127.0.0.0/8"]);
        let port = serve(vec![redirect("/other"), body("model"), body("model"), body("")]);
        let url = format!("http://127.0.0.1:{port}/model");
        assert_eq!(body_of(&url, &guard, 5, false).unwrap(), b"model");
        assert_eq!(body_of(&url, &guard, 4, false).unwrap_err().reason, Reason::TooLarge);
        // Plain http is not spoken where https is asked for.
        assert!(body_of(&url, &guard, 5, true).is_err());
    }

    #[test]
    fn a_server_that_never_tells_its_length_is_cut_off() {
        let endless = format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{}", "x".repeat(1000));
        let port = serve(vec![endless]);
        let url = format!("http://127.0.0.1:{port}/model");
        let failure = body_of(&url, &Guard::new(["127.0.0.1"]), 100, false).unwrap_err();
        assert_eq!(failure.reason, Reason::TooLarge);
    }

    #[test]
    fn refusals_of_servers_are_classed() {
        for (code, reason) in [
            (404, Reason::NotFound),
            (403, Reason::AccessDenied),
            (503, Reason::NetworkFault),
            (429, Reason::NetworkFault),
        ] {
            let status = StatusCode::from_u16(code).unwrap();
            assert_eq!(check_status("u", status).unwrap_err().reason, reason);
        }
    }
}
