//! What a machine is, by what it says of itself; nothing that changes from boot to boot.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde::Serialize;

/// The stable facts of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Facts {
    /// Architecture, as Kubernetes names it.
    pub arch: String,
    /// Operating system.
    pub os: String,
    /// The processor's name, and family, model and stepping where there are such.
    pub processor: String,
    /// Processors that are switched on.
    pub processors: usize,
    /// Threads of a core.
    pub threads_per_core: usize,
    /// Features that code may use, by LLVM's names, sorted.
    pub features: Vec<String>,
    /// Caches that the first processor uses, nearest first.
    pub caches: Vec<Cache>,
}

/// One cache.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cache {
    /// 1 is nearest to the core.
    pub level: u32,
    /// `Data`, `Instruction` or `Unified`.
    pub kind: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Processors that share it.
    pub shared_by: usize,
}

const PROCESSORS: &str = "/sys/devices/system/cpu";

impl Facts {
    /// Asks this machine.
    pub fn here() -> Self {
        let online = read(format!("{PROCESSORS}/online"));
        let siblings = read(format!("{PROCESSORS}/cpu0/topology/thread_siblings_list"));
        Self {
            arch: arch().to_owned(),
            os: std::env::consts::OS.to_owned(),
            processor: processor(&read("/proc/cpuinfo")),
            processors: list(&online).len().max(1),
            threads_per_core: list(&siblings).len().max(1),
            features: hone_runtime::cpu::features().into_iter().map(str::to_owned).collect(),
            caches: caches(),
        }
    }
}

/// This machine's architecture, as Kubernetes names it.
pub fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn processor(cpuinfo: &str) -> String {
    let fact = |key: &str| {
        let line = cpuinfo
            .lines()
            .find(|line| line.split(':').next().is_some_and(|name| name.trim() == key));
        line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim())
    };
    let name = fact("model name").or(fact("Model")).unwrap_or("unknown");
    let numbers =
        ["cpu family", "model", "stepping", "CPU implementer", "CPU part", "CPU revision"];
    let numbers: Vec<&str> = numbers.into_iter().filter_map(fact).collect();
    match numbers.is_empty() {
        true => name.to_owned(),
        false => format!("{name} ({})", numbers.join("/")),
    }
}

/// Numbers of a list as the kernel writes them: `0-3,8`.
fn list(text: &str) -> BTreeSet<u32> {
    let parts = text.split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<u32>().ok()?..=last.trim().parse().ok()?)
    });
    parts.flatten().collect()
}

fn caches() -> Vec<Cache> {
    let folder = format!("{PROCESSORS}/cpu0/cache");
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut caches: Vec<Cache> = entries
        .filter_map(|entry| {
            let path = entry.path();
            Some(Cache {
                level: read(path.join("level")).parse().ok()?,
                kind: read(path.join("type")),
                bytes: size(&read(path.join("size")))?,
                shared_by: list(&read(path.join("shared_cpu_list"))).len(),
            })
        })
        .collect();
    caches.sort();
    caches
}

/// Bytes of `32K`, `2M` or a plain number.
fn size(text: &str) -> Option<u64> {
    let (number, unit) = match text.char_indices().last()? {
        (at, 'K') => (&text[..at], 1 << 10),
        (at, 'M') => (&text[..at], 1 << 20),
        _ => (text, 1),
    };
    Some(number.parse::<u64>().ok()? * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_sizes_are_read_as_the_kernel_writes_them() {
        assert_eq!(list("0-3,8"), BTreeSet::from([0, 1, 2, 3, 8]));
        assert_eq!(list(""), BTreeSet::new());
        assert_eq!(size("48K"), Some(49152));
        assert_eq!(size("2M"), Some(2 << 20));
        assert_eq!(size("x"), None);
    }

    #[test]
    fn a_processor_is_its_name_and_numbers() {
        let text =
            "processor : 0\ncpu family : 6\nmodel : 143\nmodel name : Some CPU\nstepping : 8";
        assert_eq!(processor(text), "Some CPU (6/143/8)");
        assert_eq!(processor(""), "unknown");
    }

    #[test]
    fn the_fingerprint_is_stable() {
        let facts = Facts::here();
        assert_eq!(crate::device::fingerprint(&facts), crate::device::fingerprint(&Facts::here()));
        let other = Facts { processors: facts.processors + 1, ..facts.clone() };
        assert_ne!(crate::device::fingerprint(&facts), crate::device::fingerprint(&other));
    }
}
