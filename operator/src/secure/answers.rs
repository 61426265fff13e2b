//! Answers of the API server about tokens, remembered for a while.
//!
//! Always true: an answer is used for [`ALLOWED`] at the longest; and whoever has no rights makes the operator ask no more
//! than [`AT_ONCE`] questions at a time, and takes the place of nobody who has.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::api::PostParams;
use kube::{Api, Client};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// How long it counts that something is allowed.
const ALLOWED: Duration = Duration::from_secs(60);
/// How long it counts that it is not.
const REFUSED: Duration = Duration::from_secs(10);
/// Most questions to the API server at a time.
const AT_ONCE: usize = 8;
/// Longest token that is looked at, in bytes.
const LONGEST: usize = 16 << 10;

/// What the API server says of a token.
pub trait Answer: Clone {
    /// Whether it allows what was asked.
    fn allows(&self) -> bool;
}

/// Answers by the digest of a subject and a token.
pub struct Answers<A> {
    known: Mutex<HashMap<[u8; 32], (Instant, A)>>,
    questions: Semaphore,
    most: usize,
}

impl<A: Answer> Answers<A> {
    /// No answers yet, and room for `most`.
    pub fn new(most: usize) -> Self {
        Self { known: Mutex::default(), questions: Semaphore::new(AT_ONCE), most }
    }

    /// The answer about `token` and `subject`: from memory where `ask` was asked lately.
    ///
    /// # Errors
    /// The status to answer with where nobody can be asked now.
    pub async fn about(
        &self,
        subject: &str,
        token: &str,
        ask: impl Future<Output = Result<A, kube::Error>>,
    ) -> Result<A, StatusCode> {
        let key = Sha256::new().chain_update(subject).chain_update([0]).chain_update(token);
        let key: [u8; 32] = key.finalize().into();
        if let Some(answer) = self.remembered(&key) {
            return Ok(answer);
        }
        // Who floods an endpoint does not flood the API server.
        let turn = self.questions.try_acquire();
        let _turn = turn.map_err(|_| StatusCode::TOO_MANY_REQUESTS)?;
        let answer = ask.await.map_err(|error| {
            tracing::warn!(%error, subject, "the API server does not say whose a token is");
            StatusCode::SERVICE_UNAVAILABLE
        })?;
        self.remember(key, &answer);
        Ok(answer)
    }

    fn remembered(&self, key: &[u8; 32]) -> Option<A> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (until, answer) = known.get(key)?;
        (Instant::now() < *until).then(|| answer.clone())
    }

    fn remember(&self, key: [u8; 32], answer: &A) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if known.len() >= self.most {
            known.retain(|_, (until, _)| now < *until);
        }
        if known.len() >= self.most {
            known.retain(|_, (_, answer)| answer.allows());
        }
        let lasts = if answer.allows() { ALLOWED } else { REFUSED };
        known.insert(key, (now + lasts, answer.clone()));
    }
}

/// What the API server says of a token: whose it is, and for which of `audiences` it is good; for its own where none is
/// named.
///
/// # Errors
/// What keeps it from answering.
pub async fn review(
    client: &Client,
    token: &str,
    audiences: Option<Vec<String>>,
) -> Result<TokenReviewStatus, kube::Error> {
    let spec = TokenReviewSpec { token: Some(token.to_owned()), audiences };
    let review = TokenReview { spec, ..TokenReview::default() };
    let api: Api<TokenReview> = Api::all(client.clone());
    let answer = api.create(&PostParams::default(), &review).await?;
    Ok(answer.status.unwrap_or_default())
}

/// The token of the header `Authorization: Bearer TOKEN`.
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    let usable = !token.is_empty() && token.len() <= LONGEST;
    (scheme.eq_ignore_ascii_case("bearer") && usable).then_some(token)
}

/// The answer to a request that is not let through.
pub fn refuse(status: StatusCode) -> Response {
    match status {
        StatusCode::UNAUTHORIZED => {
            (status, [(header::WWW_AUTHENTICATE, "Bearer")]).into_response()
        }
        status => status.into_response(),
    }
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

    impl Answer for bool {
        fn allows(&self) -> bool {
            *self
        }
    }

    async fn asked(answers: &Answers<bool>, token: &str, answer: bool) -> (bool, bool) {
        let mut asked = false;
        let ask = async {
            asked = true;
            Ok(answer)
        };
        let answer = answers.about("x", token, ask).await.unwrap();
        (answer, asked)
    }

    #[tokio::test(start_paused = true)]
    async fn answers_run_out_and_refusals_make_room_first() {
        let answers = Answers::new(3);
        assert_eq!(asked(&answers, "good", true).await, (true, true));
        // What was asked lately is not asked again, whatever the answer would be now.
        assert_eq!(asked(&answers, "good", false).await, (true, false));
        for number in 0..10 {
            assert_eq!(asked(&answers, &number.to_string(), false).await, (false, true));
        }
        assert_eq!(asked(&answers, "good", false).await, (true, false));
        assert!(answers.known.lock().unwrap().len() <= 3);
        tokio::time::advance(REFUSED).await;
        assert_eq!(asked(&answers, "9", true).await, (true, true));
        tokio::time::advance(ALLOWED).await;
        assert_eq!(asked(&answers, "good", false).await, (false, true));
    }
}
