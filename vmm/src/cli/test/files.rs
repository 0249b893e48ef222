//! Where the evidence of one scenario goes.

use std::path::{Path, PathBuf};

use scenarios::{Outcome, Scenario, Verdict};

use super::super::failure::{FAILED, Failure};
use super::super::prepare::Prepared;
use super::super::report::{Report, write_whole};

/// The files of one scenario on one kernel, by their common beginning.
pub(super) struct Files {
    stem: PathBuf,
}

impl Files {
    pub(super) fn new(directory: &Path, scenario: &Scenario) -> Files {
        let safe =
            |text: &str| text.replace(|c: char| !c.is_ascii_alphanumeric() && !"-_.=".contains(c), "-");
        let name = format!("{}.{}", safe(&scenario.name), safe(&scenario.kernel));
        Files { stem: directory.join(name) }
    }

    /// The capture of all links.
    pub(super) fn capture(&self) -> PathBuf {
        self.path("pcapng")
    }

    /// Writes each guest's log and report. With two guests their names are in the files' names.
    pub(super) fn write(&self, guests: &mut [Prepared], outcome: &Outcome) -> Result<(), Failure> {
        let several = guests.len() > 1;
        for (prepared, guest) in guests.iter_mut().zip(&outcome.guests) {
            let ending =
                |ending: &str| if several { format!("{}.{ending}", guest.name) } else { ending.into() };
            write_whole(&self.path(&ending("log")), guest.log.as_bytes())?;
            let status = if outcome.verdict == Verdict::Pass { 0 } else { FAILED };
            let verdict = format!("{:?}", outcome.verdict).to_lowercase();
            Report::new(prepared, outcome.counters.clone(), outcome.host_seconds, verdict, status)
                .write(&self.path(&ending("json")))?;
        }
        Ok(())
    }

    fn path(&self, ending: &str) -> PathBuf {
        let mut path = self.stem.clone().into_os_string();
        path.push(".");
        path.push(ending);
        path.into()
    }
}
