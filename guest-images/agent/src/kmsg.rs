//! The kernel's log: finds the reports in it.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use agent_protocol::{KernelLine, Report};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// Reads `/dev/kmsg` and passes on the lines that belong to reports of trouble.
pub(crate) struct KernelLog {
    device: OwnedFd,
    filter: Filter,
}

impl KernelLog {
    /// Opens the log at its beginning, so that trouble during boot is seen too.
    pub(crate) fn open() -> io::Result<KernelLog> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let device = rustix::fs::open("/dev/kmsg", flags, Mode::empty())?;
        Ok(KernelLog { device, filter: Filter::default() })
    }

    /// For `poll`.
    pub(crate) fn device(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }

    /// The next line that belongs to a report, if the log has one now.
    pub(crate) fn next(&mut self) -> io::Result<Option<KernelLine>> {
        let mut record = [0; 8192];
        loop {
            match rustix::io::read(&self.device, &mut record) {
                Ok(length) => {
                    let line = parse(&record[..length]).and_then(|line| self.filter.examine(line));
                    if line.is_some() {
                        return Ok(line);
                    }
                }
                Err(Errno::AGAIN) => return Ok(None),
                // The kernel has overwritten records that were not read yet; the next read goes on after them.
                Err(Errno::PIPE | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Tells the lines of reports from all others.
#[derive(Default)]
struct Filter {
    /// Lines that may still belong to the current report.
    remaining: u32,
    last: u64,
}

impl Filter {
    fn examine(&mut self, mut line: KernelLine) -> Option<KernelLine> {
        line.starts = classify(&line.text);
        if line.starts.is_some() {
            self.remaining = LONGEST_REPORT;
        } else if line.microseconds > self.last + LONGEST_GAP {
            self.remaining = 0;
        }
        if self.remaining == 0 {
            return None;
        }
        self.remaining -= 1;
        self.last = line.microseconds;
        if line.text.starts_with("---[ end ") {
            self.remaining = 0;
        }
        Some(line)
    }
}

/// A record is `priority,sequence,microseconds,flags;text`, then lines of properties that start with a blank.
fn parse(record: &[u8]) -> Option<KernelLine> {
    let record = str::from_utf8(record).ok()?;
    let (header, text) = record.split_once(';')?;
    let mut fields = header.split(',');
    let priority: u32 = fields.next()?.parse().ok()?;
    // Facility 0 is the kernel. User space may write here too, and has no say about the kernel's health.
    if priority >> 3 != 0 {
        return None;
    }
    Some(KernelLine {
        sequence: fields.next()?.parse().ok()?,
        microseconds: fields.next()?.parse().ok()?,
        starts: None,
        text: text.lines().next().unwrap_or("").to_owned(),
    })
}

fn classify(text: &str) -> Option<Report> {
    if text.starts_with("WARNING: ") {
        Some(Report::Warning)
    } else if text.starts_with("BUG: ") || text.starts_with("kernel BUG at ") || text.starts_with("UBSAN: ") {
        Some(Report::Bug)
    } else if text.starts_with("Kernel panic") {
        Some(Report::Panic)
    } else if STALLS.iter().any(|stall| text.contains(stall)) {
        Some(Report::Stall)
    } else if text.starts_with("Oops: ") || has_die_counter(text) {
        Some(Report::Oops)
    } else {
        None
    }
}

/// Every oops ends its first line with a counter, `[#1]`, whatever the fault is called.
fn has_die_counter(text: &str) -> bool {
    let Some((_, after)) = text.split_once(" [#") else {
        return false;
    };
    let digits = after.bytes().take_while(u8::is_ascii_digit).count();
    digits > 0 && after.as_bytes().get(digits) == Some(&b']')
}

const STALLS: &[&str] = &[
    "BUG: soft lockup",
    "hard LOCKUP",
    "self-detected stall",
    "detected stalls on",
    "detected expedited stalls",
    "NETDEV WATCHDOG: ",
    ": transmit queue ",
    " blocked for more than ",
];

/// No report is longer, backtraces of all CPUs aside.
const LONGEST_REPORT: u32 = 150;

/// Lines of one report follow each other closely; a later line is news of something else.
const LONGEST_GAP: u64 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn examine(filter: &mut Filter, record: &str) -> Option<(Option<Report>, String)> {
        let line = parse(record.as_bytes()).and_then(|line| filter.examine(line))?;
        Some((line.starts, line.text))
    }

    #[test]
    fn a_warning_is_reported_from_its_first_line_to_its_last() {
        let mut filter = Filter::default();
        assert_eq!(examine(&mut filter, "6,1,1000,-;smp: Bringing up secondary CPUs ..."), None);
        let first = "WARNING: CPU: 0 PID: 1 at net/core/dev.c:3000 f+0x1/0x2";
        let got = examine(&mut filter, &format!("4,2,2000,-;{first}\n SUBSYSTEM=net\n"));
        assert_eq!(got, Some((Some(Report::Warning), first.to_owned())));
        assert!(examine(&mut filter, "4,3,2100,-;RIP: 0010:f+0x1/0x2").is_some());
        assert!(examine(&mut filter, "4,4,2200,-;---[ end trace 0000000000000000 ]---").is_some());
        assert_eq!(examine(&mut filter, "6,5,2300,-;eth0: link up"), None);
    }

    #[test]
    fn a_report_without_an_end_mark_ends_with_the_next_pause() {
        let mut filter = Filter::default();
        let stall = "3,2,2000,-;INFO: task ip:12 blocked for more than 120 seconds.";
        assert_eq!(examine(&mut filter, stall).unwrap().0, Some(Report::Stall));
        assert!(examine(&mut filter, "6,3,2500,-;Call Trace:").is_some());
        assert_eq!(examine(&mut filter, "6,4,900000,-;eth0: link up"), None);
    }

    #[test]
    fn each_kind_is_told_by_its_words() {
        for (text, kind) in [
            ("BUG: kernel NULL pointer dereference, address: 0000000000000000", Some(Report::Bug)),
            ("kernel BUG at lib/list_debug.c:56!", Some(Report::Bug)),
            ("Oops: Oops: 0002 [#1] PREEMPT SMP NOPTI", Some(Report::Oops)),
            (
                "general protection fault, probably for non-canonical address 0x1: 0000 [#2] SMP",
                Some(Report::Oops),
            ),
            ("watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [ip:12]", Some(Report::Stall)),
            ("NETDEV WATCHDOG: CPU: 0: transmit queue 0 timed out 5000 ms", Some(Report::Stall)),
            ("Kernel panic - not syncing: Fatal exception", Some(Report::Panic)),
            ("Spectre V2 : WARNING: Unprivileged eBPF is enabled", None),
            ("device [#x] is fine", None),
        ] {
            assert_eq!(classify(text), kind, "{text}");
        }
    }

    #[test]
    fn what_user_space_writes_is_not_the_kernels_word() {
        assert_eq!(examine(&mut Filter::default(), "12,2,2000,-;WARNING: from a script"), None);
    }
}
