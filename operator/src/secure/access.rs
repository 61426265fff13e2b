//! Who may read an endpoint: the API server says who a bearer token belongs to (TokenReview) and whether it may `get` the
//! path (SubjectAccessReview for a non-resource URL), as other operators ask it.
//!
//! Always true: nothing is let through that the API server did not let through within the time of [`answers`].

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;
use k8s_openapi::api::authentication::v1::UserInfo;
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};

use super::answers::{self, Answer, Answers};

/// Most answers that are remembered.
const REMEMBERED: usize = 256;

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

impl Answer for Verdict {
    fn allows(&self) -> bool {
        *self == Self::Allowed
    }
}

/// Asks the API server, and remembers its answers for a while.
#[derive(Clone)]
pub struct Gate(Arc<Inner>);

struct Inner {
    client: Client,
    /// Answers about paths.
    answers: Answers<Verdict>,
}

impl Gate {
    /// A gate that asks by `client`, which may create TokenReviews and SubjectAccessReviews.
    pub fn new(client: Client) -> Self {
        Self(Arc::new(Inner { client, answers: Answers::new(REMEMBERED) }))
    }

    /// What the API server says of a `get` of `path` with `token`.
    ///
    /// # Errors
    /// What keeps it from answering.
    async fn ask(&self, path: &str, token: &str) -> Result<Verdict, kube::Error> {
        let status = answers::review(&self.0.client, token, None).await?;
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
}

/// Lets a request through whose bearer token may read its path.
pub async fn admit(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let Some(token) = answers::bearer(request.headers()) else {
        return answers::refuse(StatusCode::UNAUTHORIZED);
    };
    let path = request.uri().path();
    match gate.0.answers.about(path, token, gate.ask(path, token)).await {
        Ok(Verdict::Allowed) => next.run(request).await,
        Ok(Verdict::Unknown) => answers::refuse(StatusCode::UNAUTHORIZED),
        Ok(Verdict::Forbidden) => answers::refuse(StatusCode::FORBIDDEN),
        Err(status) => answers::refuse(status),
    }
}
