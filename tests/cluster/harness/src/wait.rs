//! Waiting for what happens in its own time.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// The time between two looks.
const INTERVAL: Duration = Duration::from_millis(200);

/// Looks until `look` finds something, and returns it.
///
/// `look` returns `Ok(None)` for "not yet"; its errors count as "not yet" too (an object may not exist
/// yet, an API server may be on its way up) and the last one is told when the time is over.
///
/// # Errors
/// When nothing is found within `limit`; the message says `what` was waited for.
pub fn eventually<T>(
    what: &str,
    limit: Duration,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        let seen = look();
        if let Ok(Some(found)) = seen {
            return Ok(found);
        }
        if start.elapsed() >= limit {
            let message = format!("waited {} s for: {what}", limit.as_secs());
            match seen {
                Err(error) => return Err(error).context(message),
                Ok(_) => bail!(message),
            }
        }
        std::thread::sleep(INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    #[test]
    fn found_at_the_third_look() {
        let mut looks = 0;
        let found = eventually("three", Duration::from_secs(5), || {
            looks += 1;
            match looks {
                1 => bail!("not there"),
                2 => Ok(None),
                _ => Ok(Some(looks)),
            }
        });
        assert_eq!(found.unwrap(), 3);
    }

    #[test]
    fn the_last_error_is_told() {
        let error = eventually::<()>("it", Duration::ZERO, || bail!("no such thing")).unwrap_err();
        assert_eq!(format!("{error:#}"), "waited 0 s for: it: no such thing");
    }
}
