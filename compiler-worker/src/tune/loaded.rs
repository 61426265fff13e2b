//! An artifact whose steps are run and timed: in this process, or on a board.

use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use hone_artifact::Variant;
use hone_emulator::{Emulator, EmulatorError};
use hone_runtime::{Model, Options, Profile, StepArgument};

use crate::failure::{Failure, Result};
use crate::inputs::SEEDS;
use crate::texts;
use crate::work::measure::Subject;
use crate::work::verify::random_inputs;

/// How the process ends where the machine that it measures on is gone.
const GONE: i32 = 70;
/// Longest time that a board may take to start its runner; a little longer than a board takes to come up again.
const REACHING: Duration = Duration::from_secs(60);

/// An artifact, loaded where it runs.
pub(super) enum Loaded {
    /// In this process.
    Here {
        /// The model.
        model: Box<Model>,
        /// Times of its steps.
        profile: Profile,
    },
    /// Beside the runner of a board.
    There(Box<hone_emulator::Model>),
}

impl Loaded {
    /// Loads an artifact.
    ///
    /// # Errors
    /// An artifact that cannot be loaded; a board that takes nothing.
    pub(super) fn new(bytes: &[u8], board: Option<&Emulator>, options: &Options) -> Result<Self> {
        Ok(match board {
            None => {
                let model = Model::load_memory(bytes.to_vec(), options)?;
                let profile = Profile::new(&model);
                Self::Here { model: Box::new(model), profile }
            }
            Some(board) => {
                Self::There(Box::new(known(hone_emulator::Model::load(bytes, 0, board))?))
            }
        })
    }

    /// What is loaded.
    pub(super) fn variant(&self) -> &Variant {
        match self {
            Self::Here { model, .. } => model.variant(),
            Self::There(model) => model.variant(),
        }
    }

    /// Runs some steps once, the first one's arguments being `arguments`; the nanoseconds that it took.
    ///
    /// # Errors
    /// Arguments that do not fit; steps that refuse what they are given.
    pub(super) fn run_steps(
        &mut self,
        steps: Range<usize>,
        arguments: &mut [StepArgument<'_>],
    ) -> Result<u64> {
        match self {
            Self::Here { model, .. } => {
                let begin = Instant::now();
                model.run_steps(steps, arguments)?;
                Ok(begin.elapsed().as_nanos() as u64)
            }
            Self::There(model) => known(steps_there(model, steps, arguments)),
        }
    }

    /// Runs all steps once on what is in memory; nanoseconds of each.
    ///
    /// # Errors
    /// Steps that refuse what they are given.
    pub(super) fn run_all(&mut self) -> Result<Vec<u64>> {
        match self {
            Self::Here { model, profile } => {
                model.run_profiled(&[], &mut [], profile)?;
                Ok(profile.steps.iter().map(|own| own.time.as_nanos() as u64).collect())
            }
            Self::There(model) => known(model.run_timed()),
        }
    }
}

fn steps_there(
    model: &mut hone_emulator::Model,
    steps: Range<usize>,
    arguments: &mut [StepArgument<'_>],
) -> std::result::Result<u64, EmulatorError> {
    let first = steps.start;
    for (place, argument) in arguments.iter().enumerate() {
        match argument {
            StepArgument::Leave => {}
            StepArgument::Fill(bytes) => model.write_argument(first, place, bytes)?,
            StepArgument::Exchange(bytes) => model.write_argument(first, place, bytes)?,
        }
    }
    let mut sum = 0;
    for step in steps {
        sum += model.time(step)?;
    }
    for (place, argument) in arguments.iter_mut().enumerate() {
        if let StepArgument::Exchange(bytes) = argument {
            bytes.copy_from_slice(&model.read_argument(first, place)?);
        }
    }
    Ok(sum)
}

/// A network with inputs of its own, whose whole runs and steps are timed.
pub(super) enum Network {
    /// In this process.
    Here(Box<Subject>, Box<Profile>),
    /// Beside the runner of a board.
    There(Box<hone_emulator::Model>),
}

impl Network {
    /// Loads the artifact of a file, with random inputs.
    ///
    /// # Errors
    /// As for [`Loaded::new`]; a file that cannot be read; on a board, inputs that do not fit.
    pub(super) fn load(path: &Path, threads: usize, board: Option<&Emulator>) -> Result<Self> {
        let Some(board) = board else {
            let subject = Subject::load(path, threads)?;
            let profile = Box::new(Profile::new(&subject.model));
            return Ok(Self::Here(Box::new(subject), profile));
        };
        let bytes = std::fs::read(path)
            .map_err(|error| Failure::io(format!("'{}' cannot be read", path.display()), error))?;
        let mut model = known(hone_emulator::Model::load(&bytes, 0, board))?;
        texts::teach(model.texts());
        let inputs = random_inputs(model.inputs(), SEEDS[0]);
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        known(model.run(&inputs))?;
        Ok(Self::There(Box::new(model)))
    }

    /// What is loaded.
    pub(super) fn variant(&self) -> &Variant {
        match self {
            Self::Here(subject, _) => subject.model.variant(),
            Self::There(model) => model.variant(),
        }
    }

    /// One run; its nanoseconds. On a board that is the sum of its steps', since what is said to it in between takes longer.
    ///
    /// # Errors
    /// Steps that refuse what they are given.
    pub(super) fn run(&mut self) -> Result<u64> {
        match self {
            Self::Here(subject, _) => {
                let begin = Instant::now();
                subject.run()?;
                Ok(begin.elapsed().as_nanos() as u64)
            }
            Self::There(model) => Ok(known(model.run_timed())?.iter().sum()),
        }
    }

    /// One run; nanoseconds of each step.
    ///
    /// # Errors
    /// As for [`Network::run`].
    pub(super) fn run_steps(&mut self) -> Result<Vec<u64>> {
        match self {
            Self::Here(subject, profile) => {
                subject.run_profiled(profile)?;
                Ok(profile.steps.iter().map(|own| own.time.as_nanos() as u64).collect())
            }
            Self::There(model) => known(model.run_timed()),
        }
    }
}

/// Whether a runner answers on a board, asked again and again for a minute.
///
/// # Errors
/// Why it does not.
pub(super) fn reach(board: &Emulator) -> Result<()> {
    let begin = Instant::now();
    loop {
        match board.answers() {
            Ok(()) => return Ok(()),
            // A program that cannot be started will not be there soon.
            Err(error @ EmulatorError::Start { .. }) => return Err(error.into()),
            Err(error) if begin.elapsed() >= REACHING => return Err(error.into()),
            Err(_) => std::thread::sleep(REACHING / 60),
        }
    }
}

/// What a board answered. Where its runner ended, this process ends, too, as it would where code crashed in it: who asked finds
/// out by smaller requests whose fault it was.
fn known<T>(answer: std::result::Result<T, EmulatorError>) -> Result<T> {
    match answer {
        Err(EmulatorError::Ended { .. } | EmulatorError::Failed { .. }) => std::process::exit(GONE),
        answer => Ok(answer?),
    }
}
