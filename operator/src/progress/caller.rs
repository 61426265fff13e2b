//! Who posts: the API server says which pod a token belongs to (TokenReview), and the pod which Job controls it.

use axum::http::StatusCode;
use hone_artifact::progress::{AUDIENCE, PATH};
use k8s_openapi::api::authentication::v1::TokenReviewStatus;
use kube::{Api, Client};

use crate::children::pods;
use crate::secure::answers::{self, Answer, Answers};
use crate::seen::SeenPod;

/// Most answers that are remembered: of each pod that searches there is one.
const REMEMBERED: usize = 4096;
/// What the user of a token that is bound to a pod has besides.
const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";

/// Whose a token is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A pod that a Job controls.
    Pod {
        /// The namespace.
        namespace: String,
        /// The uid of the Job.
        job_uid: String,
        /// The uid of the Job's owner, as the pod's label says. Whoever reads it compares it with the Job.
        owner_uid: String,
    },
    /// Nobody knows.
    Unknown,
    /// Somebody else's.
    Other,
}

impl Answer for Caller {
    fn allows(&self) -> bool {
        matches!(self, Self::Pod { .. })
    }
}

/// Asks the API server, and remembers its answers for a while.
pub struct Callers {
    client: Client,
    answers: Answers<Caller>,
}

impl Callers {
    /// Asks by `client`, which may create TokenReviews and get pods.
    pub fn new(client: Client) -> Self {
        Self { client, answers: Answers::new(REMEMBERED) }
    }

    /// Whose `token` is: from memory where that was asked lately.
    ///
    /// # Errors
    /// The status to answer with where nobody can be asked now.
    pub async fn of(&self, token: &str) -> Result<Caller, StatusCode> {
        self.answers.about(PATH, token, self.ask(token)).await
    }

    async fn ask(&self, token: &str) -> Result<Caller, kube::Error> {
        let status = answers::review(&self.client, token, Some(vec![AUDIENCE.to_owned()])).await?;
        let Some((namespace, name, uid)) = bound_pod(&status) else {
            return Ok(if is_ours(&status) { Caller::Other } else { Caller::Unknown });
        };
        let api: Api<SeenPod> = Api::namespaced(self.client.clone(), namespace);
        let pod = api.get_opt(name).await?;
        let facts = pod.as_ref().and_then(pods::facts).map(|(_, facts)| facts);
        Ok(match facts.filter(|facts| facts.uid == uid) {
            Some(facts) => Caller::Pod {
                namespace: facts.namespace,
                job_uid: facts.job_uid,
                owner_uid: facts.owner_uid,
            },
            None => Caller::Other,
        })
    }
}

/// Whether a token is good for [`AUDIENCE`]. An API server that knows no audiences names none.
fn is_ours(status: &TokenReviewStatus) -> bool {
    let audiences = status.audiences.as_deref().unwrap_or_default();
    status.authenticated == Some(true) && audiences.iter().any(|audience| audience == AUDIENCE)
}

/// Namespace, name and uid of the pod that a token is bound to.
fn bound_pod(status: &TokenReviewStatus) -> Option<(&str, &str, &str)> {
    let user = status.user.as_ref().filter(|_| is_ours(status))?;
    let account = user.username.as_ref()?.strip_prefix("system:serviceaccount:")?;
    let extra = |key: &str| user.extra.as_ref()?.get(key)?.first().map(String::as_str);
    Some((account.split(':').next()?, extra(POD_NAME)?, extra(POD_UID)?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn review(change: impl FnOnce(&mut Value)) -> TokenReviewStatus {
        let mut status = json!({
            "authenticated": true, "audiences": [AUDIENCE],
            "user": {"username": "system:serviceaccount:team:default",
                "extra": {POD_NAME: ["p"], POD_UID: ["1"]}}
        });
        change(&mut status);
        serde_json::from_value(status).unwrap()
    }

    #[test]
    fn only_tokens_of_pods_for_this_audience_count() {
        assert_eq!(bound_pod(&review(|_| {})), Some(("team", "p", "1")));
        let refused: [fn(&mut Value); 6] = [
            |status| status["authenticated"] = json!(false),
            |status| status["audiences"] = json!(["https://kubernetes.default.svc"]),
            |status| status["audiences"] = Value::Null,
            |status| status["user"]["username"] = json!("jane"),
            |status| status["user"]["extra"] = json!({POD_NAME: ["p"]}),
            |status| status["user"] = Value::Null,
        ];
        for change in refused {
            assert_eq!(bound_pod(&review(change)), None);
        }
    }
}
