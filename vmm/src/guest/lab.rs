//! A guest as scenarios see it.

use std::collections::BTreeMap;

use agent_protocol::{Channel, Command};
use nicvisor_core::Finding;
use scenarios::runner::{CommandResult, GuestCommand};
use scenarios::{Lab, LabError};

use super::Guest;

impl Lab for Guest {
    fn run(&mut self, commands: &[GuestCommand]) -> Result<Vec<CommandResult>, LabError> {
        let jobs: Vec<_> = commands
            .iter()
            .map(|command| {
                self.spawn(Command {
                    argv: command.argv.clone(),
                    netns: command.namespace.clone(),
                    ..Command::default()
                })
            })
            .collect();
        let mut outputs: BTreeMap<_, CommandResult> =
            jobs.iter().map(|job| (*job, CommandResult::default())).collect();
        let exits = self
            .wait(&jobs, &mut |job, channel, data| {
                // A background process of an earlier step may still write.
                if let Some(output) = outputs.get_mut(&job) {
                    match channel {
                        Channel::Stdout => output.stdout.extend_from_slice(data),
                        Channel::Stderr => output.stderr.extend_from_slice(data),
                    }
                }
            })
            .map_err(|ending| LabError(ending.to_string()))?;
        Ok(outputs
            .into_values()
            .zip(exits)
            .map(|(output, exit)| CommandResult { status: exit.status(), ..output })
            .collect())
    }

    fn counters(&mut self) -> Vec<(String, u64)> {
        Guest::counters(self)
    }

    fn findings(&mut self) -> Vec<Finding> {
        Guest::findings(self).to_vec()
    }

    fn trouble(&mut self) -> Vec<String> {
        Guest::trouble(self)
            .iter()
            .filter(|line| line.starts.is_some())
            .map(|line| line.text.clone())
            .collect()
    }

    fn ledger(&mut self) -> Result<(), String> {
        self.close();
        let balance = self.machine().network().ledger().balance();
        if balance.is_balanced() {
            return Ok(());
        }
        let frames: Vec<String> = balance
            .missing
            .iter()
            .take(FRAMES_NAMED)
            .map(|(frame, place)| format!("{} ({place:?})", frame.0))
            .collect();
        Err(format!(
            "{} frames are missing (first: {}), {} have more than one fate",
            balance.missing.len(),
            frames.join(", "),
            balance.unexpected.len()
        ))
    }
}

const FRAMES_NAMED: usize = 5;
