//! Facts of the machine that a comparison ran on.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::{python, repository};

/// What the machine is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// Processors that may be used.
    pub processors: usize,
    /// Its vector features.
    pub features: Vec<String>,
    /// Memory, in bytes.
    pub memory: u64,
    /// The kernel's version.
    pub kernel: String,
    /// Seconds since 1970 when the comparison began.
    pub began: u64,
    /// The highest average of runnable processes over a minute seen meanwhile: well over the
    /// number of threads means that others were using the machine.
    pub load: f64,
    /// Whether the measured processes preceded all other work.
    pub realtime: bool,
    #[serde(skip)]
    probe: PathBuf,
    /// The best rates that the probe found so far, by number of threads.
    #[serde(skip)]
    best: BTreeMap<usize, Rates>,
}

impl Machine {
    /// Reads the facts and compiles the probe.
    pub fn probe(realtime: bool) -> Result<Self> {
        let facts = fs::read_to_string("/proc/cpuinfo").context("cannot read /proc/cpuinfo")?;
        let fact = |key: &str| {
            let line = facts.lines().find(|line| line.starts_with(key));
            line.and_then(|line| line.split_once(':')).map_or("", |(_, value)| value.trim())
        };
        let wanted = |feature: &&str| {
            ["avx", "fma", "amx", "asimd", "sve", "f16c"].iter().any(|p| feature.starts_with(p))
        };
        let memory = fs::read_to_string("/proc/meminfo")?;
        let memory = memory.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok());
        let features = [fact("flags"), fact("Features")].join(" ");
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
        Ok(Self {
            processor: name(&[fact("model name"), fact("cpu family"), fact("model\t")]),
            processors: std::thread::available_parallelism()?.get(),
            features: features.split_whitespace().filter(wanted).map(str::to_owned).collect(),
            memory: memory.unwrap_or(0) * 1024,
            kernel: kernel.trim().to_owned(),
            began: now.as_secs(),
            load: 0.0,
            realtime,
            probe: compile()?,
            best: BTreeMap::new(),
        })
    }

    /// The peak rates of `threads` threads now.
    pub fn rates(&mut self, threads: usize) -> Result<Rates> {
        let pinned = format!("{}-{}", self.processors - threads, self.processors - 1);
        let mut command = Command::new("taskset");
        command.args(["--cpu-list", &pinned]);
        if self.realtime {
            command.args(["chrt", "--rr", "1"]);
        }
        let output = command
            .arg(&self.probe)
            .args([threads.to_string(), "100".to_owned()])
            .output()
            .context("cannot start taskset (from the package util-linux)")?;
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split_whitespace().next().and_then(|load| load.parse().ok());
        self.load = self.load.max(load.unwrap_or(0.0));
        let text = String::from_utf8_lossy(&output.stdout);
        let numbers: Option<Vec<f64>> =
            text.split_whitespace().map(|word| word.parse().ok()).collect();
        let Some([fma, additions]) = numbers.as_deref() else {
            bail!("the probe gave no rates: {text}");
        };
        let rates = Rates { fma: *fma, additions: *additions };
        let best = self.best(threads).at_best(rates);
        self.best.insert(threads, best);
        Ok(rates)
    }

    /// The best rates of `threads` threads so far; zeros where there are none.
    pub fn best(&self, threads: usize) -> Rates {
        self.best.get(&threads).copied().unwrap_or_default()
    }
}

/// What the probe found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rates {
    /// Fused multiply-adds in f32, in GFLOP/s.
    pub fma: f64,
    /// Additions of integers, in 10⁹ a second: how many instructions get through.
    pub additions: f64,
}

impl Rates {
    /// The higher of both, each for itself.
    pub fn at_best(self, other: Self) -> Self {
        Self { fma: self.fma.max(other.fma), additions: self.additions.max(other.additions) }
    }
}

/// A processor's name with its family and model: virtual machines often hide which generation they run on.
fn name([name, family, model]: &[&str; 3]) -> String {
    match family.is_empty() {
        true => (*name).to_owned(),
        false => format!("{name} (family {family}, model {model})"),
    }
}

#[cfg(test)]
impl Machine {
    /// A machine that is nothing but its name.
    pub fn named(processor: &str, began: u64) -> Self {
        Self {
            processor: processor.into(),
            processors: 1,
            features: Vec::new(),
            memory: 0,
            kernel: String::new(),
            began,
            load: 0.0,
            realtime: false,
            probe: PathBuf::new(),
            best: BTreeMap::new(),
        }
    }
}

fn compile() -> Result<PathBuf> {
    let folder = repository::scratch().join("bench-peers");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let probe = folder.join("fma_probe");
    python::check(
        "compile the probe of the peak rate",
        Command::new("cc")
            .args(["-O2", "-march=native", "-ffp-contract=fast", "-pthread"])
            .arg(repository::root().join("tests/peers/fma_probe.c"))
            .arg("-o")
            .arg(&probe),
    )?;
    Ok(probe)
}
