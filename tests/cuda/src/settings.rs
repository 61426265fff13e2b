//! What the device is, and how it fails.

use anyhow::{Context, Result, bail};

/// How a device fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The launch of this number, counted from 1 over the whole process, fails while it runs.
    Launch(u64),
    /// From the launch of this number on nothing ends.
    Hang(u64),
    /// The launch of this number is refused, because the device is gone.
    Gone(u64),
    /// Every text is refused.
    Refuse,
    /// The allocation of this number finds no memory.
    Memory(u64),
    /// The capture of this number is refused where it begins.
    Capture(u64),
    /// The graph of this number finds no memory when it is instantiated.
    Instantiate(u64),
}

/// Of `HONE_FAKE_CUDA`: `devices=2 capability=8.6 memory=1000000 driver=12040 lanes=512 shared=65536 fault=launch:3 say=launches`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How many devices there are.
    pub devices: i32,
    /// Their compute capability.
    pub capability: (u32, u32),
    /// Bytes of their memory.
    pub memory: usize,
    /// Version of CUDA, as the driver says it: 12040 is 12.4.
    pub driver: i32,
    /// Lanes of a block, of every kernel.
    pub lanes: i32,
    /// Bytes of shared memory that a kernel may ask for; else those of the compute capability.
    pub shared: Option<i32>,
    /// How they fail.
    pub fault: Option<Fault>,
    /// Whether calls that launch, record or instantiate are told on standard error.
    pub says_launches: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            devices: 1,
            capability: (8, 0),
            memory: 1 << 30,
            driver: 12080,
            lanes: 1024,
            shared: None,
            fault: None,
            says_launches: false,
        }
    }
}

impl Settings {
    /// Bytes of shared memory that a kernel may ask for.
    pub fn shared_bytes(&self) -> i32 {
        let kilobytes = match self.capability {
            (7, _) => 64,
            (8, 0) => 163,
            (8, _) => 99,
            _ => 227,
        };
        self.shared.unwrap_or(kilobytes << 10)
    }

    /// Reads the words.
    ///
    /// # Errors
    /// A word that is not known.
    pub fn parse(words: &str) -> Result<Self> {
        let mut settings = Self::default();
        for word in words.split_whitespace() {
            let (name, value) = word.split_once('=').with_context(|| format!("'{word}'"))?;
            match name {
                "devices" => settings.devices = value.parse()?,
                "memory" => settings.memory = value.parse()?,
                "driver" => settings.driver = value.parse()?,
                "lanes" => settings.lanes = value.parse()?,
                "shared" => settings.shared = Some(value.parse()?),
                "capability" => {
                    let (major, minor) = value.split_once('.').context("a capability")?;
                    settings.capability = (major.parse()?, minor.parse()?);
                }
                "fault" => settings.fault = Some(fault(value)?),
                "say" if value == "launches" => settings.says_launches = true,
                _ => bail!("'{word}' is not known"),
            }
        }
        Ok(settings)
    }
}

fn fault(value: &str) -> Result<Fault> {
    let (kind, number) = value.split_once(':').unwrap_or((value, "1"));
    let number = number.parse()?;
    Ok(match kind {
        "launch" => Fault::Launch(number),
        "hang" => Fault::Hang(number),
        "gone" => Fault::Gone(number),
        "memory" => Fault::Memory(number),
        "capture" => Fault::Capture(number),
        "instantiate" => Fault::Instantiate(number),
        "refuse" => Fault::Refuse,
        _ => bail!("there is no fault '{kind}'"),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn words_are_read() {
        assert_eq!(Settings::parse("").unwrap(), Settings::default());
        let settings = Settings::parse("capability=7.5 fault=launch:3 memory=10").unwrap();
        assert_eq!((settings.capability, settings.memory), ((7, 5), 10));
        assert_eq!(settings.fault, Some(Fault::Launch(3)));
        assert!(Settings::parse("speed=1").is_err());
    }
}
