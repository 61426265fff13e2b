//! How far searches are while their pods are at work: posted by the pods, shown in `status`.
//!
//! Always true: a status is written for posts no more often than every [`EVERY`], whatever is posted; what is lost on the
//! way is corrected by the next post, and at the end by the pod's termination message. Nothing is kept of a Job that ended.

mod caller;
mod receive;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hone_artifact::progress::{Progress, SessionSeen};
use tokio::time::Instant;

pub use receive::{Leading, Receiver, router};

/// How often a run's status is written for what its pod posts.
pub const EVERY: Duration = Duration::from_secs(10);
/// A pod may post so often.
pub const LEAST: Duration = Duration::from_secs(1);

/// The last post of each Job, by its uid.
#[derive(Debug, Default)]
pub struct Posts(Mutex<HashMap<String, Post>>);

#[derive(Debug)]
struct Post {
    progress: Progress,
    at: Instant,
    /// When its run looks at it.
    look: Instant,
}

/// What becomes of a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It came too soon after the one before, and is left out.
    TooSoon,
    /// It is kept, and somebody will look.
    Kept,
    /// It is kept, and its run is to look after this time.
    Look(Duration),
}

impl Posts {
    fn posts(&self) -> MutexGuard<'_, HashMap<String, Post>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a post of the pod of Job `uid`.
    pub fn take(&self, uid: &str, progress: Progress) -> Taken {
        let now = Instant::now();
        let mut posts = self.posts();
        let Some(post) = posts.get_mut(uid) else {
            posts.insert(uid.to_owned(), Post { progress, at: now, look: now });
            return Taken::Look(Duration::ZERO);
        };
        if now < post.at + LEAST {
            return Taken::TooSoon;
        }
        let is_new = post.progress != progress;
        (post.progress, post.at) = (progress, now);
        if !is_new || now < post.look {
            return Taken::Kept;
        }
        post.look = now.max(post.look + EVERY);
        Taken::Look(post.look - now)
    }

    /// The last post of Job `uid`.
    pub fn of(&self, uid: &str) -> Option<Progress> {
        self.posts().get(uid).map(|post| post.progress.clone())
    }

    /// The sessions that the pod of Job `uid` told of last, and how long ago it did.
    pub fn sessions_of(&self, uid: &str) -> Option<(Vec<SessionSeen>, Duration)> {
        let posts = self.posts();
        let post = posts.get(uid)?;
        Some((post.progress.sessions.clone()?, post.at.elapsed()))
    }

    /// Job `uid` is at work no more.
    pub fn ended(&self, uid: &str) {
        self.posts().remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(measured: u64) -> Progress {
        Progress { measured, ..Progress::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_looks_at_once_and_then_every_ten_seconds() {
        let posts = Posts::default();
        let advance = |seconds| tokio::time::advance(Duration::from_secs(seconds));
        assert_eq!(posts.take("1", at(1)), Taken::Look(Duration::ZERO));
        assert_eq!(posts.take("1", at(2)), Taken::TooSoon);
        assert_eq!(posts.of("1"), Some(at(1)));
        advance(4).await;
        // The next look is ten seconds after the last, and one is enough for all posts until then.
        assert_eq!(posts.take("1", at(3)), Taken::Look(Duration::from_secs(6)));
        advance(4).await;
        assert_eq!(posts.take("1", at(4)), Taken::Kept);
        advance(4).await;
        assert_eq!(posts.take("1", at(5)), Taken::Look(Duration::from_secs(8)));
        // What is no news wakes nobody.
        advance(60).await;
        assert_eq!(posts.take("1", at(5)), Taken::Kept);
        advance(1).await;
        assert_eq!(posts.take("1", at(6)), Taken::Look(Duration::ZERO));
        assert_eq!(posts.take("2", at(1)), Taken::Look(Duration::ZERO));
        posts.ended("1");
        assert_eq!((posts.of("1"), posts.of("2")), (None, Some(at(1))));
    }
}
