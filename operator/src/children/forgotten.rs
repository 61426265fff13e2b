//! Jobs that Kubernetes' Job controller has lost sight of.
//!
//! The Job controller makes no pod while it waits to see the one that it made before. Where that pod is deleted before
//! the controller's watch has shown it, such as while the API server restarts, it is never seen. The controller stops
//! waiting after five minutes, but looks at the Job again only when something of that changes, and so the Job stays
//! without a pod until its deadline. Any change of the Job ends that: an annotation does.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::jobs::JobView;
use super::steps::{Action, Draft};

/// Seconds that a Job may be without a pod before it is changed: a minute more than the Job controller waits.
const PATIENCE: i64 = 360;

/// Changes a Job that has had no pod for long, or asks for another look by then. Where the Job controller has reasons
/// to wait, such as its back-off after a failure, nothing comes of it.
pub fn wake(job: &JobView, now: &Time, draft: &mut Draft) {
    let has_pods = job.active > 0 || job.ready > 0;
    if has_pods || job.suspended || job.deleting || job.finish.is_some() {
        return;
    }
    let since = job.created.as_ref().max(job.started.as_ref()).max(job.woken.as_ref());
    let Some(since) = since else { return };
    let age = now.0.as_second() - since.0.as_second();
    match u64::try_from(PATIENCE - age) {
        Ok(left) if left > 0 => draft.again(left),
        _ => {
            draft.actions.push(Action::WakeJob(job.name.clone()));
            draft.again(PATIENCE.unsigned_abs());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::children::jobs::Finish;

    fn at(second: i64) -> Time {
        Time(jiff::Timestamp::from_second(second).unwrap())
    }

    fn job() -> JobView {
        JobView { name: "j".to_owned(), created: Some(at(1000)), failed: 1, ..JobView::default() }
    }

    fn plan(job: &JobView, second: i64) -> (Vec<Action>, Option<u64>) {
        let mut draft = Draft::default();
        wake(job, &at(second), &mut draft);
        (draft.actions, draft.again_seconds)
    }

    #[test]
    fn a_job_without_pods_is_woken_in_time_and_not_at_every_look() {
        assert_eq!(plan(&job(), 1010), (vec![], Some(350)));
        let woken = (vec![Action::WakeJob("j".to_owned())], Some(360));
        assert_eq!(plan(&job(), 1360), woken);
        let after = JobView { woken: Some(at(1360)), ..job() };
        assert_eq!(plan(&after, 1361), (vec![], Some(359)));
        assert_eq!(plan(&after, 1720), woken);
        let resumed = JobView { started: Some(at(1300)), ..job() };
        assert_eq!(plan(&resumed, 1360), (vec![], Some(300)));
    }

    #[test]
    fn a_job_that_has_pods_or_needs_none_is_left_alone() {
        for job in [
            JobView { active: 1, ..job() },
            JobView { suspended: true, ..job() },
            JobView { deleting: true, ..job() },
            JobView { finish: Some(Finish::Complete), ..job() },
        ] {
            assert_eq!(plan(&job, 9999), (vec![], None), "{job:?}");
        }
    }
}
