//! How long a run takes, and how sure that is.

mod statistics;

use std::time::{Duration, Instant};

pub use statistics::summarize;

/// When a measurement ends.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Time spent running before anything counts.
    pub warm_up: Duration,
    /// Time after which no further run begins, once there are `least`.
    pub budget: Duration,
    /// Fewest runs that count.
    pub least: usize,
    /// Most runs that count.
    pub most: usize,
}

impl Default for Effort {
    fn default() -> Self {
        Self {
            warm_up: Duration::from_millis(150),
            budget: Duration::from_millis(1500),
            least: 10,
            most: 2000,
        }
    }
}

/// Latencies in nanoseconds of `subject`, and of `rival` where there is one. The two take turns, so
/// that what the machine does meanwhile happens to both; a slow rival is run less often, but at least
/// three times.
pub fn interleaved<E>(
    effort: Effort,
    mut subject: impl FnMut() -> Result<(), E>,
    mut rival: Option<&mut dyn FnMut() -> Result<(), E>>,
) -> Result<(Vec<u64>, Vec<u64>), E> {
    let begin = Instant::now();
    subject()?;
    while begin.elapsed() < effort.warm_up {
        subject()?;
    }
    if let Some(rival) = &mut rival {
        rival()?;
    }
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let begin = Instant::now();
    let mut spent_on_rival = Duration::ZERO;
    while ours.len() < effort.most && (ours.len() < effort.least || begin.elapsed() < effort.budget)
    {
        ours.push(nanoseconds(&mut subject)?.as_nanos() as u64);
        let Some(rival) = &mut rival else { continue };
        // Half of the budget is the rival's; the rest stays for what the measurement is about.
        if theirs.len() < 3 || spent_on_rival < effort.budget / 2 {
            let took = nanoseconds(rival)?;
            spent_on_rival += took;
            theirs.push(took.as_nanos() as u64);
        }
    }
    Ok((ours, theirs))
}

fn nanoseconds<E>(mut run: impl FnMut() -> Result<(), E>) -> Result<Duration, E> {
    let begin = Instant::now();
    run()?;
    Ok(begin.elapsed())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn both_take_turns_until_the_bounds() {
        let effort = Effort { warm_up: Duration::ZERO, budget: Duration::ZERO, least: 5, most: 7 };
        let (mut first, mut second) = (0, 0);
        let mut rival = || {
            second += 1;
            Ok::<(), ()>(())
        };
        let subject = || {
            first += 1;
            Ok(())
        };
        let (ours, theirs) = interleaved(effort, subject, Some(&mut rival)).unwrap();
        assert_eq!((ours.len(), theirs.len()), (5, 3));
        assert_eq!((first, second), (6, 4));
    }
}
