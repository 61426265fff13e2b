//! `hone devices`: this machine.

use clap::Args;
use serde_json::json;

use super::common::{print, print_json};
use crate::device::{self, Facts};
use crate::failure::Result;
use crate::show::{table, units};

/// What `hone devices` takes.
#[derive(Args, Debug)]
pub struct Arguments {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Do not measure: facts and fingerprint only.
    #[arg(long)]
    pub no_probe: bool,
}

/// Shows it.
///
/// # Errors
/// Where standard output cannot be written.
pub fn run(arguments: &Arguments) -> Result<()> {
    let facts = Facts::here();
    let fingerprint = device::fingerprint(&facts);
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    let threads: Vec<usize> = if all > 1 { vec![1, all] } else { vec![1] };
    let probed = threads.into_iter().filter(|_| !arguments.no_probe);
    let peaks: Vec<_> = probed.filter_map(device::peaks).collect();
    if arguments.json {
        return print_json(&json!({"fingerprint": fingerprint, "facts": facts, "peaks": peaks}));
    }
    let mut table = table::table(&["this machine", ""]);
    let mut fact = |name: &str, value: String| {
        table.add_row(vec![name.to_owned(), value]);
    };
    fact("fingerprint", fingerprint);
    fact("processor", facts.processor.clone());
    fact("platform", format!("{}/{}", facts.os, facts.arch));
    fact("processors", format!("{}, {} to a core", facts.processors, facts.threads_per_core));
    for cache in &facts.caches {
        let name = format!("L{} {}", cache.level, cache.kind.to_lowercase());
        fact(&name, format!("{}, shared by {}", units::bytes(cache.bytes), cache.shared_by));
    }
    for peaks in &peaks {
        let threads = peaks.threads;
        for (name, value) in peaks.lines() {
            fact(&format!("{name}, {threads} threads"), value);
        }
    }
    let text = format!("{table}\nfeatures: {}", facts.features.join(" "));
    print(&text)
}
