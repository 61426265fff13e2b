//! How far the work is: one moving line on a terminal, plain lines otherwise.

use std::io::{IsTerminal, stderr};
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::traces::Stages;

/// Each stage and its usual share of the whole, in percent: what the remaining time is guessed from.
const STAGES: [(&str, u64); 8] = [
    ("fetch", 2),
    ("tune", 0),
    ("parse", 2),
    ("compile", 53),
    ("compile naively", 3),
    ("verify", 20),
    ("measure", 18),
    ("store", 2),
];

/// The stage that a line of standard error says, where there is no terminal.
pub fn stage_of(line: &str) -> Option<&'static str> {
    let (_, said) = line.split_once(": ")?;
    STAGES.iter().map(|(stage, _)| *stage).find(|stage| *stage == said)
}

/// Tells how far the work is, on standard error.
#[derive(Debug)]
pub struct Progress {
    shown: Shown,
    spans: Option<Arc<Stages>>,
}

#[derive(Debug)]
enum Shown {
    Bar(ProgressBar),
    Lines(String),
    Nothing,
}

impl Progress {
    /// For a person: a line that moves where there is a terminal, a line a stage where there is none.
    pub fn new(name: &str) -> Self {
        let shown = match stderr().is_terminal() {
            true => Shown::Bar(bar(name)),
            false => Shown::Lines(name.to_owned()),
        };
        Self { shown, spans: None }
    }

    /// Makes spans of the stages as well.
    pub fn with_spans(self, spans: Option<Arc<Stages>>) -> Self {
        Self { spans, ..self }
    }

    /// For programs: nothing.
    pub fn silent() -> Self {
        Self { shown: Shown::Nothing, spans: None }
    }

    /// A stage begins, and the one before it is over.
    pub fn stage(&self, stage: &'static str) {
        if let Some(spans) = &self.spans {
            spans.begin(stage);
        }
        let before = STAGES.iter().take_while(|(known, _)| *known != stage);
        match &self.shown {
            Shown::Bar(bar) => {
                bar.set_position(before.map(|(_, share)| share).sum());
                bar.set_message(stage);
            }
            Shown::Lines(name) => eprintln!("{name}: {stage}"),
            Shown::Nothing => {}
        }
    }

    /// The work is over.
    pub fn finish(&self) {
        if let Shown::Bar(bar) = &self.shown {
            bar.finish_and_clear();
        }
    }
}

fn bar(name: &str) -> ProgressBar {
    let bar = ProgressBar::new(STAGES.iter().map(|(_, share)| share).sum());
    let template = "{prefix} {bar:28} {msg} {elapsed} (about {eta} left)";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_prefix(name.to_owned());
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}
