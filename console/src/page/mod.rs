//! The page that `hone ui` serves: read-only, one HTML file, one script, one style sheet, nothing from elsewhere.
//!
//! `watch` follows the cluster into `state`; `server` sends every reader what changed as server-sent events. A slow
//! reader gets the newest state of what changed since its last batch, never a queue, so memory does not depend on
//! readers.

pub mod server;
pub mod shown;
pub mod state;
pub mod trials;
pub mod watch;
