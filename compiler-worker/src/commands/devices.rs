//! `hone devices`: this machine.

use std::collections::BTreeMap;

use clap::Args;
use hone_artifact::DeviceApi;
use serde::Serialize;
use serde_json::json;

use super::common::{print, print_json};
use crate::device::{self, DeviceFacts, Facts, Peaks};
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
    let (mut devices, mut none) = (Vec::new(), Vec::new());
    for api in DeviceApi::ALL {
        match hone_runtime::accelerator::devices(api) {
            Ok(all) => devices.extend(all.iter().map(|info| shown(info, !arguments.no_probe))),
            Err(error) => none.push((api, error.to_string())),
        }
    }
    if arguments.json {
        return print_json(&json!({
            "fingerprint": fingerprint, "facts": facts, "peaks": peaks, "devices": devices,
            "noDevices": none.iter().map(|(api, why)| (api.name(), why)).collect::<BTreeMap<_, _>>(),
        }));
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
    for Shown { facts, peaks } in &devices {
        let DeviceFacts { api, number, name, kind, platform, driver, version, .. } = facts;
        fact(&format!("{api} device {number}"), format!("{name} ({kind})"));
        fact("  driver", format!("{platform} {driver}, {version}"));
        fact("  units", facts.compute_units.to_string());
        fact("  memory", units::bytes(facts.memory_bytes));
        for (name, value) in peaks.iter().flat_map(Peaks::lines) {
            fact(&format!("  {name}"), value);
        }
    }
    let mut text = format!("{table}\nfeatures: {}", facts.features.join(" "));
    for (api, why) in none {
        text.push_str(&format!("\nno {api} device: {why}"));
    }
    print(&text)
}

/// A device with what it was measured to reach.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    facts: DeviceFacts,
    peaks: Option<Peaks>,
}

fn shown(info: &hone_runtime::DeviceInfo, probe: bool) -> Shown {
    let peaks = probe.then(|| device::device_peaks(info)).flatten();
    Shown { facts: DeviceFacts::of(info), peaks }
}
