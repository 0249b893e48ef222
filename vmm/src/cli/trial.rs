//! Scenarios from Rust.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use scenarios::{Outcome, Scenario};

use super::args::TestArguments;
use super::failure::Failure;
use super::test::carry_out_silently;

/// Carries scenarios out as `nicvisor test` does, with the same defaults, for programs that put them together with
/// [`scenarios::build`].
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Trial {
    seed: u64,
    jobs: Option<usize>,
    modules: Vec<PathBuf>,
    report: Option<PathBuf>,
}

impl Trial {
    /// A trial with the usual settings.
    pub fn new() -> Trial {
        Trial::default()
    }

    /// Sets where all randomness comes from: the same seed gives the same run. It is 0 if nothing is said.
    pub fn seed(self, seed: u64) -> Trial {
        Trial { seed, ..self }
    }

    /// Sets how many scenarios run at the same time: as many as the host has CPUs if nothing is said.
    pub fn jobs(self, jobs: usize) -> Trial {
        Trial { jobs: Some(jobs), ..self }
    }

    /// Adds a module file that takes the place of the kernel's own.
    pub fn module(mut self, file: impl Into<PathBuf>) -> Trial {
        self.modules.push(file.into());
        self
    }

    /// Writes captures, guest logs and reports into this directory.
    pub fn report(self, directory: impl Into<PathBuf>) -> Trial {
        Trial { report: Some(directory.into()), ..self }
    }

    /// Carries the scenarios out. What goes wrong in a guest is part of its outcome.
    ///
    /// # Errors
    /// When a scenario names what there is not, or the host's part fails: kernels that cannot be had, files that
    /// cannot be written.
    pub fn run(&self, scenarios: &[Scenario]) -> Result<Vec<Outcome>, Failure> {
        let mut arguments = TestArguments::usual()?;
        arguments.guest.seed = self.seed;
        arguments.jobs = self.jobs;
        arguments.modules.clone_from(&self.modules);
        arguments.report.clone_from(&self.report);
        carry_out_silently(&arguments, scenarios, &Arc::new(AtomicBool::new(false)))
    }
}
