//! What the guest's kernel writes to the serial port.

use std::io::{self, Write};

/// The kernel's log, kept to its end, and shown as it comes if the user wants that.
#[derive(Debug, Default)]
pub struct Console {
    text: Vec<u8>,
    /// Bytes of the log that had to be forgotten.
    forgotten: u64,
    echo: bool,
}

impl Console {
    /// A log that is also written to standard error as it comes if `echo` is set.
    pub fn new(echo: bool) -> Console {
        Console { echo, ..Console::default() }
    }

    /// Takes what the guest wrote.
    pub fn write(&mut self, bytes: &[u8]) {
        if self.echo {
            // A closed standard error must not end the run.
            let _ = io::stderr().lock().write_all(bytes);
        }
        self.text.extend_from_slice(bytes);
        if self.text.len() > 2 * KEPT {
            let cut = self.text.len() - KEPT;
            self.text.drain(..cut);
            self.forgotten += cut as u64;
        }
    }

    /// The log; its beginning may be missing when it is very long.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.text).replace('\r', "")
    }

    /// The last `count` lines.
    pub fn last_lines(&self, count: usize) -> String {
        let text = self.text();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(count)..].join("\n")
    }

    /// The message of a kernel panic, if there was one.
    pub fn panic(&self) -> Option<String> {
        let text = self.text();
        let line = text.lines().find(|line| line.contains(PANIC) && !line.contains("end Kernel panic"))?;
        Some(line[line.find(PANIC)?..].trim_end().to_owned())
    }
}

const KEPT: usize = 4 << 20;
const PANIC: &str = "Kernel panic - not syncing";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_found_in_the_log() {
        let mut console = Console::new(false);
        console.write(b"[    1.0] all is well\r\n");
        assert_eq!(console.panic(), None);
        console.write(b"[    2.0] Kernel panic - not syncing: sysrq triggered crash\r\n[    2.1] CPU: 0\r\n");
        assert_eq!(console.panic().unwrap(), "Kernel panic - not syncing: sysrq triggered crash");
        assert_eq!(console.last_lines(1), "[    2.1] CPU: 0");
    }

    #[test]
    fn an_endless_log_does_not_fill_memory() {
        let mut console = Console::new(false);
        for _ in 0..20 {
            console.write(&vec![b'x'; 1 << 20]);
        }
        assert!(console.text.len() <= 2 * KEPT && console.forgotten > 0);
    }
}
