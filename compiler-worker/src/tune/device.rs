//! The measuring process as the tuner sees it: started when it is needed, ended when it hangs, and started
//! anew where a candidate ended it. Time counts from when execution starts, not from when work is asked for.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use hone_artifact::exit_code::Reason;
use hone_driver::Target;
use hone_search::Class;
use serde_json::json;

use super::board::Board;
use super::devices::Measurer;
use super::protocol::{Answer, Ask, Compare, Compared, Measured, Trials};
use crate::failure::{Failure, Result};

/// Longest time that code of one request is made in.
const BUILDING: Duration = Duration::from_secs(120);
/// Longest time that a request executes beyond the seconds it asks for.
const EXECUTING: Duration = Duration::from_secs(30);

/// The environment variable that carries what is measured for into the process.
pub const DEVICE_VARIABLE: &str = "HONE_MEASURE";

/// This machine or a board, behind a process.
pub struct Device {
    target: Target,
    board: Option<Board>,
    threads: usize,
    /// Longest time of one candidate.
    timeout: Option<Duration>,
    process: Option<Process>,
    /// Where the time went.
    pub building: Duration,
    /// The same of executing.
    pub executing: Duration,
    /// Processes that ended although nobody asked them to.
    pub lost: usize,
}

struct Process {
    child: Child,
    ask: ChildStdin,
    answers: Receiver<Answer>,
}

/// How a request ended without an answer.
enum Ended {
    /// The process ended before anything was executed.
    Building,
    /// The process ended while it executed.
    Executing,
    /// It executed longer than allowed.
    TooLong,
    /// It said why.
    Said(String),
}

impl Device {
    /// Nothing runs yet.
    pub fn new(
        (target, board): (&Target, Option<&Board>),
        threads: usize,
        timeout: Option<Duration>,
    ) -> Self {
        Self {
            target: target.clone(),
            board: board.cloned(),
            threads,
            timeout,
            process: None,
            building: Duration::ZERO,
            executing: Duration::ZERO,
            lost: 0,
        }
    }

    /// What became of each candidate. Where a request ends the process, its halves are tried apart, so that one
    /// candidate's fault is not another's. On a board a single candidate is tried twice: the first time it may have been the
    /// board that ended.
    ///
    /// # Errors
    /// A process that cannot be started; `DeviceLost` where a board does not answer any more.
    pub fn trials(&mut self, trials: Trials) -> Result<Vec<Measured>> {
        self.trials_again(trials, self.board.is_some())
    }

    fn trials_again(&mut self, trials: Trials, again: bool) -> Result<Vec<Measured>> {
        let count = trials.candidates.len();
        // Candidates of one request share their time, with the plain program and the schedule without tuning.
        let each =
            self.timeout.map(|timeout| timeout * u32::try_from(count + 2).unwrap_or(u32::MAX));
        let longest = each.unwrap_or(EXECUTING) + Duration::from_secs_f64(4.0 * trials.seconds);
        let ended = match self.request(&Ask::Trials(trials.clone()), longest)? {
            Ok(Answer::Trials { trials }) if trials.len() == count => return Ok(trials),
            Ok(_) => Ended::Said("the measuring process answered something else".to_owned()),
            Err(ended) => ended,
        };
        let is_lost = !matches!(ended, Ended::Said(_));
        if is_lost {
            self.reach()?;
        }
        if count > 1 {
            let (one, other) = trials.candidates.split_at(count / 2);
            let mut found = Vec::with_capacity(count);
            for part in [one, other] {
                found.extend(self.trials(Trials { candidates: part.to_vec(), ..trials.clone() })?);
            }
            return Ok(found);
        }
        if is_lost && again {
            return self.trials_again(trials, false);
        }
        let measured = match ended {
            Ended::Building => {
                Measured::failed(Class::CompileError, "making code ended the process")
            }
            Ended::Executing => Measured::failed(Class::DeviceLost, "running it ended the process"),
            Ended::TooLong => Measured::failed(Class::Timeout, "it ran longer than allowed"),
            Ended::Said(cause) => Measured::failed(Class::CompileError, cause),
        };
        Ok(vec![measured; count])
    }

    /// Times of two artifacts in turn.
    ///
    /// # Errors
    /// `DeviceLost` where the process ends or hangs.
    pub fn compare(&mut self, compare: &Compare) -> Result<Compared> {
        match self.compare_once(compare) {
            Err(_) if self.board.is_some() => {
                self.reach()?;
                self.compare_once(compare)
            }
            compared => compared,
        }
    }

    /// Waits until a board answers, where there is one.
    ///
    /// # Errors
    /// `DeviceLost` where it does not within a minute.
    pub fn reach(&mut self) -> Result<()> {
        let Some(board) = self.board.clone() else { return Ok(()) };
        let cause = match self.request(&Ask::Reach, EXECUTING)? {
            Ok(Answer::Reached) => return Ok(()),
            Err(Ended::Said(cause)) => cause,
            _ => "nothing was answered".to_owned(),
        };
        let message = format!(
            "board '{}' does not answer: {cause}; see that '{}' reaches it, and call again: what was measured is kept",
            board.kind,
            board.command.join(" ")
        );
        Err(Failure::new(Reason::DeviceLost, message))
    }

    fn compare_once(&mut self, compare: &Compare) -> Result<Compared> {
        let longest = EXECUTING + Duration::from_secs_f64(4.0 * compare.seconds);
        let cause = match self.request(&Ask::Compare(compare.clone()), longest)? {
            Ok(Answer::Compared(compared)) => return Ok(compared),
            Ok(_) => "the measuring process answered something else".to_owned(),
            Err(Ended::Said(cause)) => cause,
            Err(Ended::TooLong) => "it ran longer than allowed".to_owned(),
            Err(_) => "the measuring process ended".to_owned(),
        };
        let message = format!("two artifacts cannot be compared: {cause}");
        Err(Failure::new(Reason::DeviceLost, message))
    }

    /// Asks the process; `longest` is for what comes after the code is made.
    fn request(
        &mut self,
        ask: &Ask,
        longest: Duration,
    ) -> Result<std::result::Result<Answer, Ended>> {
        let process = match self.process.take() {
            Some(process) => process,
            None => Process::start((&self.target, self.board.as_ref()), self.threads)?,
        };
        let mut process = process;
        let mut begin = Instant::now();
        let mut started = false;
        let mut limit = BUILDING;
        // Plain data always has a JSON form.
        let line = serde_json::to_string(ask).unwrap_or_default();
        let asked = writeln!(process.ask, "{line}").and_then(|()| process.ask.flush());
        let ended = loop {
            if asked.is_err() {
                break Ended::Building;
            }
            match process.answers.recv_timeout(limit.saturating_sub(begin.elapsed())) {
                Ok(Answer::Started) => {
                    self.building += begin.elapsed();
                    (begin, started) = (Instant::now(), true);
                    limit = longest;
                }
                Ok(answer) => {
                    *(if started { &mut self.executing } else { &mut self.building }) +=
                        begin.elapsed();
                    self.process = Some(process);
                    return Ok(match answer {
                        Answer::Failed { cause } => Err(Ended::Said(cause)),
                        answer => Ok(answer),
                    });
                }
                Err(RecvTimeoutError::Timeout) if started => break Ended::TooLong,
                Err(_) if started => break Ended::Executing,
                Err(_) => break Ended::Building,
            }
        };
        self.lost += 1;
        process.end();
        Ok(Err(ended))
    }
}

impl Measurer for &mut Device {
    fn trials(&mut self, trials: Trials) -> Result<Vec<Measured>> {
        (**self).trials(trials)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            process.end();
        }
    }
}

impl Process {
    fn start((target, board): (&Target, Option<&Board>), threads: usize) -> Result<Self> {
        let cannot = |error| Failure::io("the measuring process cannot be started", error);
        let program = std::env::current_exe().map_err(cannot)?;
        let device = json!({
            "triple": target.triple, "cpu": target.cpu, "features": target.features,
            "threads": threads, "board": board,
        });
        let mut child = Command::new(program)
            .arg("measure")
            .env(DEVICE_VARIABLE, device.to_string())
            // Ctrl-C is for the tuner, which ends this process when it is done with it.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(cannot)?;
        let missing = || Failure::internal("the measuring process has no pipes");
        let ask = child.stdin.take().ok_or_else(missing)?;
        let out = child.stdout.take().ok_or_else(missing)?;
        let (send, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines() {
                let Ok(line) = line else { return };
                let Ok(answer) = serde_json::from_str(&line) else { return };
                if send.send(answer).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, ask, answers })
    }

    fn end(mut self) {
        // With what it started to reach a board, where a kernel may never end. It may have ended by itself.
        let group = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
