//! The other side of the runner: memory and calls inside of an emulated process.

use crate::emulator::Emulator;
use crate::error::{EmulatorError, Result};
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Operations of `compiler/codegen/src/runner.ll`, by number.
#[derive(Clone, Copy)]
enum Operation {
    Map = 1,
    Write = 3,
    Read = 4,
    Call = 5,
    Time = 6,
}

/// An emulated process. Addresses are those inside of it.
#[derive(Debug)]
pub(crate) struct Machine {
    child: Child,
    // Both are there until the process is given up.
    requests: Option<ChildStdin>,
    responses: Option<ChildStdout>,
}

impl Machine {
    /// Starts the runner.
    pub(crate) fn start(emulator: &Emulator) -> Result<Self> {
        let start = |source| EmulatorError::Start { program: emulator.program.clone(), source };
        let mut child = Command::new(&emulator.program)
            .args(emulator.words())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(start)?;
        let (requests, responses) = (child.stdin.take(), child.stdout.take());
        Ok(Self { child, requests, responses })
    }

    /// Reserves zeroed memory at a multiple of 4096 bytes that can be read, written and executed.
    pub(crate) fn map(&mut self, bytes: u64) -> Result<u64> {
        self.request(Operation::Map, [bytes.max(1), 0, 0, 0, 0], "reserving memory")?;
        match self.number("reserving memory")? {
            address if address > 0 => Ok(address.cast_unsigned()),
            _ => Err(EmulatorError::Memory { bytes }),
        }
    }

    /// Writes memory.
    pub(crate) fn write(&mut self, address: u64, bytes: &[u8]) -> Result<()> {
        let operands = [address, bytes.len() as u64, 0, 0, 0];
        self.request(Operation::Write, operands, "writing memory")?;
        self.send(bytes, "writing memory")
    }

    /// Reads memory.
    pub(crate) fn read(&mut self, address: u64, bytes: u64) -> Result<Vec<u8>> {
        self.request(Operation::Read, [address, bytes, 0, 0, 0], "reading memory")?;
        let mut content = vec![0; bytes as usize];
        self.receive(&mut content, "reading memory")?;
        Ok(content)
    }

    /// Calls a kernel over a range of its tasks and waits for its end.
    pub(crate) fn call(
        &mut self,
        [function, buffers, begin, end, scratch]: [u64; 5],
        during: &str,
    ) -> Result<()> {
        self.request(Operation::Call, [function, buffers, begin, end, scratch], during)?;
        self.number(during).map(drop)
    }

    /// The same, and the nanoseconds that it took there.
    pub(crate) fn time(
        &mut self,
        [function, buffers, begin, end, scratch]: [u64; 5],
        during: &str,
    ) -> Result<u64> {
        self.request(Operation::Time, [function, buffers, begin, end, scratch], during)?;
        Ok(self.number(during)?.max(0).cast_unsigned())
    }

    /// An answer of one number.
    fn number(&mut self, during: &str) -> Result<i64> {
        let mut answer = [0; 8];
        self.receive(&mut answer, during)?;
        Ok(i64::from_le_bytes(answer))
    }

    fn request(&mut self, operation: Operation, operands: [u64; 5], during: &str) -> Result<()> {
        let mut bytes = [0; 64];
        let numbers = std::iter::once(operation as u64).chain(operands);
        for (word, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            word.copy_from_slice(&number.to_le_bytes());
        }
        self.send(&bytes, during)
    }

    fn send(&mut self, bytes: &[u8], during: &str) -> Result<()> {
        let sent = self.requests.as_mut().is_some_and(|pipe| pipe.write_all(bytes).is_ok());
        if sent { Ok(()) } else { Err(self.ended(during)) }
    }

    fn receive(&mut self, bytes: &mut [u8], during: &str) -> Result<()> {
        let received = self.responses.as_mut().is_some_and(|pipe| pipe.read_exact(bytes).is_ok());
        if received { Ok(()) } else { Err(self.ended(during)) }
    }

    /// How the process ended, which it has or will as its pipes are closed.
    fn ended(&mut self, during: &str) -> EmulatorError {
        self.requests = None;
        self.responses = None;
        let mut printed = String::new();
        if let Some(mut pipe) = self.child.stderr.take() {
            // What cannot be read is not needed to say that it ended.
            let _ = pipe.read_to_string(&mut printed);
        }
        let status = match self.child.wait() {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        let printed = printed.trim();
        let end = if printed.is_empty() { status } else { format!("{status}, {printed}") };
        let during = during.to_string();
        // QEMU is a program of C and GLib: so do their assertions speak.
        let failed = printed.contains("Assertion `") || printed.contains("ERROR:../");
        match failed {
            true => EmulatorError::Failed { during, end },
            false => EmulatorError::Ended { during, end },
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // It may be inside of a kernel that never ends; one that has ended already is no failure.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
