//! Who may read an endpoint: the API server says who a bearer token belongs to (TokenReview) and whether it may `get` the
//! path (SubjectAccessReview for a non-resource URL), as other operators ask it.
//!
//! Always true: nothing is let through that the API server did not let through within [`ALLOWED`]; and whoever has no
//! rights makes the operator ask it no more than [`AT_ONCE`] questions at a time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// How long it counts that a token may read.
const ALLOWED: Duration = Duration::from_secs(60);
/// How long it counts that it may not.
const REFUSED: Duration = Duration::from_secs(10);
/// Most questions to the API server at a time.
const AT_ONCE: usize = 8;
/// Most answers that are remembered.
const REMEMBERED: usize = 256;
/// Longest token that is looked at, in bytes.
const LONGEST: usize = 16 << 10;

/// What the API server says of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may read.
    Allowed,
    /// Nobody knows whose the token is.
    Unknown,
    /// Its owner may not.
    Forbidden,
}

/// Asks the API server, and remembers its answers for a while.
#[derive(Clone)]
pub struct Gate(Arc<Inner>);

struct Inner {
    client: Client,
    /// Answers by the digest of path and token.
    known: Mutex<HashMap<[u8; 32], (Instant, Verdict)>>,
    questions: Semaphore,
}

impl Gate {
    /// A gate that asks by `client`, which may create TokenReviews and SubjectAccessReviews.
    pub fn new(client: Client) -> Self {
        let (known, questions) = (Mutex::default(), Semaphore::new(AT_ONCE));
        Self(Arc::new(Inner { client, known, questions }))
    }

    /// What the API server says of a `get` of `path` with `token`.
    ///
    /// # Errors
    /// What keeps it from answering.
    async fn ask(&self, path: &str, token: &str) -> Result<Verdict, kube::Error> {
        let spec = TokenReviewSpec { token: Some(token.to_owned()), audiences: None };
        let review = TokenReview { spec, ..TokenReview::default() };
        let api: Api<TokenReview> = Api::all(self.0.client.clone());
        let status = api.create(&PostParams::default(), &review).await?.status.unwrap_or_default();
        let user = status.user.filter(|_| status.authenticated == Some(true));
        let Some(UserInfo { extra, groups, uid, username }) = user else {
            return Ok(Verdict::Unknown);
        };
        let spec = SubjectAccessReviewSpec {
            extra,
            groups,
            uid,
            user: username,
            non_resource_attributes: Some(NonResourceAttributes {
                path: Some(path.to_owned()),
                verb: Some("get".to_owned()),
            }),
            resource_attributes: None,
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let api: Api<SubjectAccessReview> = Api::all(self.0.client.clone());
        let status = api.create(&PostParams::default(), &review).await?.status.unwrap_or_default();
        Ok(if status.allowed { Verdict::Allowed } else { Verdict::Forbidden })
    }

    /// As [`Self::ask`], from memory where it was asked lately.
    async fn judge(&self, path: &str, token: &str) -> Result<Verdict, StatusCode> {
        let key = Sha256::new().chain_update(path).chain_update([0]).chain_update(token);
        let key: [u8; 32] = key.finalize().into();
        if let Some(verdict) = self.remembered(&key) {
            return Ok(verdict);
        }
        // Who floods this endpoint does not flood the API server.
        let turn = self.0.questions.try_acquire();
        let _turn = turn.map_err(|_| StatusCode::TOO_MANY_REQUESTS)?;
        let verdict = self.ask(path, token).await.map_err(|error| {
            tracing::warn!(%error, path, "the API server does not say who may read");
            StatusCode::SERVICE_UNAVAILABLE
        })?;
        self.remember(key, verdict);
        Ok(verdict)
    }

    fn remembered(&self, key: &[u8; 32]) -> Option<Verdict> {
        let known = self.0.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (until, verdict) = known.get(key)?;
        (Instant::now() < *until).then_some(*verdict)
    }

    fn remember(&self, key: [u8; 32], verdict: Verdict) {
        let mut known = self.0.known.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if known.len() >= REMEMBERED {
            known.retain(|_, (until, _)| now < *until);
        }
        if known.len() >= REMEMBERED {
            // Whoever may read keeps its place, whatever is tried by others.
            known.retain(|_, (_, verdict)| *verdict == Verdict::Allowed);
        }
        let lasts = if verdict == Verdict::Allowed { ALLOWED } else { REFUSED };
        known.insert(key, (now + lasts, verdict));
    }
}

/// Lets a request through whose bearer token may read its path.
pub async fn admit(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let Some(token) = bearer(request.headers()) else {
        return refuse(StatusCode::UNAUTHORIZED);
    };
    match gate.judge(request.uri().path(), token).await {
        Ok(Verdict::Allowed) => next.run(request).await,
        Ok(Verdict::Unknown) => refuse(StatusCode::UNAUTHORIZED),
        Ok(Verdict::Forbidden) => refuse(StatusCode::FORBIDDEN),
        Err(status) => refuse(status),
    }
}

fn refuse(status: StatusCode) -> Response {
    match status {
        StatusCode::UNAUTHORIZED => {
            (status, [(header::WWW_AUTHENTICATE, "Bearer")]).into_response()
        }
        status => status.into_response(),
    }
}

/// The token of the header `Authorization: Bearer TOKEN`.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    let usable = !token.is_empty() && token.len() <= LONGEST;
    (scheme.eq_ignore_ascii_case("bearer") && usable).then_some(token)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_bearer_tokens_count() {
        let of = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
            bearer(&headers).map(str::to_owned)
        };
        assert_eq!(of("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(of("bearer  abc").as_deref(), Some("abc"));
        let long = format!("Bearer {}", "a".repeat(LONGEST + 1));
        for wrong in ["Basic abc", "Bearer", "Bearer ", "abc", &long] {
            assert_eq!(of(wrong), None);
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
    }
}
