//! Where the evidence of one scenario goes.

use std::path::{Path, PathBuf};

use scenarios::outcome::GuestOutcome;
use scenarios::{Outcome, Scenario, Verdict, report};

use super::super::failure::{FAILED, Failure};
use super::super::prepare::Prepared;
use super::super::report::{Report, write_whole};

/// The files of one scenario on one kernel, by their common beginning.
pub(super) struct Files {
    stem: PathBuf,
}

impl Files {
    pub(super) fn new(directory: &Path, scenario: &Scenario) -> Files {
        Files::named(directory, &scenario.name, &scenario.kernel)
    }

    fn named(directory: &Path, scenario: &str, kernel: &str) -> Files {
        let safe =
            |text: &str| text.replace(|c: char| !c.is_ascii_alphanumeric() && !"-_.=".contains(c), "-");
        let name = format!("{}.{}", safe(scenario), safe(kernel));
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

    /// What the page about `outcome` links to: the files in `directory` that were written.
    pub(super) fn links(directory: &Path, outcome: &Outcome) -> report::html::Files {
        // The outcome names the kernel exactly; the files are called after what was asked for.
        let kernel = outcome.guests.first().map_or("", |guest| guest.kernel.as_str());
        let files = Files::named(directory, &outcome.scenario, kernel);
        let written = |path: PathBuf| {
            let name = path.file_name()?.to_str()?.to_owned();
            path.exists().then_some(name)
        };
        let several = outcome.guests.len() > 1;
        let log = |guest: &GuestOutcome| {
            let ending = if several { format!("{}.log", guest.name) } else { "log".into() };
            Some((format!("log of {}", guest.name), written(files.path(&ending))?))
        };
        report::html::Files {
            capture: written(files.capture()),
            logs: outcome.guests.iter().filter_map(log).collect(),
        }
    }

    fn path(&self, ending: &str) -> PathBuf {
        let mut path = self.stem.clone().into_os_string();
        path.push(".");
        path.push(ending);
        path.into()
    }
}
