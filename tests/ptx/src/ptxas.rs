//! `ptxas`, NVIDIA's assembler, and `nvdisasm`, its disassembler, from their Python packages.

use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The assembler.
#[derive(Clone, Debug)]
pub struct Ptxas {
    assembler: PathBuf,
    disassembler: Option<PathBuf>,
}

/// What a kernel needs of a device, as the assembler says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// The kernel's name.
    pub kernel: String,
    /// Registers of a lane.
    pub registers: u32,
    /// Bytes that a lane stores because registers do not suffice.
    pub spill_stores: u32,
    /// Bytes that it loads again.
    pub spill_loads: u32,
    /// Bytes of local memory of a lane.
    pub stack: u32,
    /// Bytes of shared memory of a block.
    pub shared: u32,
}

/// An assembled text.
#[derive(Clone, Debug)]
pub struct Assembled {
    /// The object file that a driver loads.
    pub cubin: Vec<u8>,
    /// Of every kernel, in the assembler's order.
    pub resources: Vec<Resources>,
}

impl Ptxas {
    /// The assembler of the environment that `cargo xtask python cuda` makes; `None`, with a line that says so, where
    /// there is none. With `HONE_PTXAS=required` in the environment that is an error.
    ///
    /// # Errors
    /// No assembler where one is required.
    pub fn of_tests() -> Result<Option<Self>> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.hone/python-cuda/lib");
        let found = Self::in_environment(&root);
        if found.is_none() {
            let required = std::env::var_os("HONE_PTXAS").is_some_and(|value| value == "required");
            ensure!(
                !required,
                "HONE_PTXAS=required, but there is no ptxas: run `cargo xtask python cuda`"
            );
            println!("skipped: there is no ptxas (cargo xtask python cuda installs it)");
        }
        Ok(found)
    }

    fn in_environment(root: &Path) -> Option<Self> {
        let versions = std::fs::read_dir(root).ok()?.filter_map(Result::ok);
        let mut packages = versions.map(|path| path.path().join("site-packages/nvidia"));
        let packages = packages.find(|path| path.join("cuda_nvcc/bin/ptxas").exists())?;
        let disassembler = packages.join("cu13/bin/nvdisasm");
        let disassembler = disassembler.exists().then_some(disassembler);
        Some(Self { assembler: packages.join("cuda_nvcc/bin/ptxas"), disassembler })
    }

    /// The assembler's version, such as `12.9, V12.9.86`.
    ///
    /// # Errors
    /// An assembler that does not start.
    pub fn version(&self) -> Result<String> {
        let output = Command::new(&self.assembler).arg("--version").output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let release = text.lines().find_map(|line| line.split_once("release "));
        Ok(release.context("ptxas tells no release")?.1.trim().to_string())
    }

    /// Assembles a text for an architecture such as `sm_80`.
    ///
    /// # Errors
    /// What the assembler refuses, in its words; that it has made something else of a kernel than the text says
    /// (`wgmma` in order, for instance).
    pub fn assemble(&self, text: &str, architecture: &str) -> Result<Assembled> {
        let folder = tempfile::tempdir()?;
        let (source, target) = (folder.path().join("k.ptx"), folder.path().join("k.cubin"));
        std::fs::write(&source, text)?;
        let output = Command::new(&self.assembler)
            .args(["-v", "-arch", architecture, "-o"])
            .args([&target, &source])
            .output()
            .with_context(|| format!("{} could not be started", self.assembler.display()))?;
        let messages = messages_of(&output);
        ensure!(output.status.success(), "ptxas refuses the text for {architecture}: {messages}");
        ensure!(!messages.contains("warning"), "ptxas warns for {architecture}: {messages}");
        ensure!(!is_serialized(&messages), "ptxas puts products in order: {messages}");
        Ok(Assembled { cubin: std::fs::read(&target)?, resources: resources(&messages)? })
    }

    /// The instructions of an object file as text; `None` where the disassembler is missing.
    ///
    /// # Errors
    /// What the disassembler refuses.
    pub fn disassemble(&self, cubin: &[u8]) -> Result<Option<String>> {
        let Some(disassembler) = &self.disassembler else { return Ok(None) };
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), cubin)?;
        let output = Command::new(disassembler).arg("-c").arg(file.path()).output()?;
        ensure!(output.status.success(), "nvdisasm refuses the object: {}", messages_of(&output));
        Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned()))
    }
}

/// Whether the assembler says that products of warpgroups wait for each other: notices C7504 to C7515.
fn is_serialized(messages: &str) -> bool {
    let numbers = messages.split("(C").skip(1);
    let mut numbers = numbers.filter_map(|rest| rest.get(..4)?.parse::<u32>().ok());
    messages.contains("are serialized") || numbers.any(|number| (7504..=7515).contains(&number))
}

fn messages_of(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&text).into_owned()
}

/// Reads what `ptxas -v` says of every kernel.
fn resources(messages: &str) -> Result<Vec<Resources>> {
    let mut all: Vec<Resources> = Vec::new();
    for line in messages.lines() {
        if let Some((_, name)) = line.split_once("Compiling entry function '") {
            let kernel = name.split('\'').next().unwrap_or_default().to_string();
            all.push(Resources { kernel, ..Resources::default() });
            continue;
        }
        let Some(last) = all.last_mut() else { continue };
        for part in line.split(',') {
            let fields: [(&str, &mut u32); 5] = [
                ("registers", &mut last.registers),
                ("bytes stack frame", &mut last.stack),
                ("bytes spill stores", &mut last.spill_stores),
                ("bytes spill loads", &mut last.spill_loads),
                ("bytes smem", &mut last.shared),
            ];
            for (ending, field) in fields {
                if let Some(before) = part.trim().strip_suffix(ending) {
                    let number = before.trim().rsplit([' ', ':']).next().unwrap_or_default();
                    *field = number.parse().with_context(|| format!("a line of ptxas: {line}"))?;
                }
            }
        }
    }
    if all.iter().any(|kernel| kernel.registers == 0) {
        bail!("ptxas does not say how many registers it used: {messages}");
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_of_products_in_order_are_found() {
        let notice = "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due \
                      to insufficient register resources for the wgmma pipeline in the function 'k0'";
        assert!(is_serialized(notice));
        assert!(is_serialized("ptxas info    : (C7504) Potential Performance Loss"));
        assert!(!is_serialized("ptxas info    : (C7600) ptxas info : Used 212 registers"));
    }

    #[test]
    fn what_the_assembler_says_is_read() -> Result<()> {
        let messages = "ptxas info    : 0 bytes gmem\nptxas info    : Compiling entry function 'k0' for 'sm_80'\nptxas info    \
                    : Function properties for k0\n    16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads\n\
                    ptxas info    : Used 212 registers, used 1 barriers, 64 bytes smem, 388 bytes cmem[0]\n";
        let expected = Resources {
            kernel: "k0".to_string(),
            registers: 212,
            spill_stores: 8,
            spill_loads: 4,
            stack: 16,
            shared: 64,
        };
        assert_eq!(resources(messages)?, vec![expected]);
        Ok(())
    }
}
