//! What runs the kinds, and knows none of them: the work queue, informer caches, workers, supervision, health.

pub mod cache;
pub mod health;
pub mod queue;
pub mod supervisor;
pub mod worker;

/// An error and its causes in one line.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.ends_with(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        cause = inner.source();
    }
    text
}
