//! Ctrl-C: the first ends the search, what was found is still confirmed and kept; the second ends the program.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether somebody wants the search to end.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Waits for Ctrl-C from now on.
    pub fn on_ctrl_c() -> Self {
        let interrupt = Self::default();
        let asked = interrupt.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            // Without a runtime Ctrl-C ends the program at once, and records are whole all the same.
            let Ok(runtime) = runtime else { return };
            runtime.block_on(async {
                if tokio::signal::ctrl_c().await.is_ok() {
                    eprintln!("note: the search ends; what was found is confirmed and kept");
                    asked.0.store(true, Ordering::Relaxed);
                }
                if tokio::signal::ctrl_c().await.is_ok() {
                    std::process::exit(130);
                }
            });
        });
        interrupt
    }

    /// Waits for Ctrl-C or a request to terminate from now on, and says `note` when it comes.
    pub fn on_signals(note: &'static str) -> Self {
        let interrupt = Self::default();
        let asked = interrupt.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            // Without a runtime signals end the program at once, which its tuners notice.
            let Ok(runtime) = runtime else { return };
            runtime.block_on(async {
                let terminate = tokio::signal::unix::SignalKind::terminate();
                let Ok(mut terminate) = tokio::signal::unix::signal(terminate) else { return };
                tokio::select! {
                    _ = tokio::signal::ctrl_c() => {}
                    _ = terminate.recv() => {}
                }
                eprintln!("{note}");
                asked.ask();
            });
        });
        interrupt
    }

    /// Asks for the end.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was asked for.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
