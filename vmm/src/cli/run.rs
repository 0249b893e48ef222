//! `nicvisor run`.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{process, thread};

use agent_protocol::{Channel, Command, Exit, JobId, TerminalSize};
use guest_images::{KernelName, bars};
use indicatif::ProgressDrawTarget;
use nicvisor_core::Severity;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::args::RunArguments;
use super::failure::{FAILED, Failure, INTERRUPTED};
use super::prepare::{Order, Prepared, open_store, prepare};
use super::report::{Report, check_writable};
use super::terminal::{Input, Mode, restore, size};
use super::{bare, capture, edits};
use crate::guest::lockstep::Turn;
use crate::guest::{Ending, Guest};

pub(super) fn run(arguments: &RunArguments) -> Result<u8, Failure> {
    let started = Instant::now();
    let interrupted = catch_signals();
    if let KernelName::Path(path) = arguments.kernel()
        && let Some(program) = bare::program(path)
    {
        return bare::run(arguments, &program, &interrupted);
    }
    let edits = edits::load(&arguments.edits)?;
    if let Some(root) = arguments.root.as_ref().filter(|root| !root.is_dir()) {
        let help = "--root takes a directory, and copies what is in it into the guest's root";
        return Err(Failure::Usage(format!("{} is not a directory", root.display()), help.into()));
    }
    // What cannot be written is said before a guest is booted for it.
    if let Some(path) = &arguments.report {
        check_writable(path)?;
    }
    let (medium, capture) = capture::network(arguments.capture.as_deref())?;
    let order = Order {
        kernel: arguments.kernel(),
        module_files: &arguments.modules,
        edits: &edits,
        modules: &[],
        root: arguments.root.as_ref(),
        nics: &arguments.nics,
        nics_before: Vec::new(),
        faults: &arguments.faults,
        guest: &arguments.guest,
        medium,
        timeout: arguments.timeout,
        interrupted: Arc::clone(&interrupted),
    };
    let store = open_store(&arguments.guest.store, &interrupted)?;
    let mut prepared = prepare(order, &store)?;
    for line in prepared.introduction(arguments.guest.verbose) {
        complain!("{line}");
    }
    let ended = prepared.start().map(|()| {
        if arguments.command.is_empty() || arguments.interactive {
            converse(&mut prepared.guest, &arguments.command)
        } else {
            carry_out(&mut prepared.guest, &arguments.command)
        }
    });
    let counters = prepared.guest.counters();
    prepared.guest.close();
    let broken = show_findings(&mut prepared);
    let status = match &ended {
        Ok(Ok(exit)) if exit.status() == 0 && broken => FAILED,
        Ok(Ok(exit)) => exit.status() as u8,
        Ok(Err(ending)) => ending.status(),
        Err(failure) => failure.status(),
    };
    capture.finish(prepared.guest.machine().medium())?;
    if let Some(path) = &arguments.report {
        let how = match &ended {
            Ok(Ok(_)) => "the command ended".into(),
            Ok(Err(Ending::Trouble(trouble))) | Err(Failure::Guest(Ending::Trouble(trouble))) => {
                trouble.what.clone()
            }
            Ok(Err(ending)) => ending.to_string(),
            Err(failure) => failure.to_string(),
        };
        Report::new(&mut prepared, counters, started.elapsed().as_secs_f64(), how, status).write(path)?;
    }
    match ended? {
        Ok(_) | Err(Ending::PowerOff) => Ok(status),
        Err(ending) => Err(ending.into()),
    }
}

/// The first Ctrl-C ends the guest and still writes what there is; the second ends the program.
pub(super) fn catch_signals() -> Arc<AtomicBool> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&interrupted);
    if let Ok(mut signals) = Signals::new([SIGINT, SIGTERM]) {
        thread::spawn(move || {
            for _ in signals.forever() {
                if flag.swap(true, Ordering::Relaxed) {
                    leave();
                }
            }
        });
    }
    interrupted
}

/// Ends the program at once, with the terminal as it was.
fn leave() -> ! {
    let _ = bars().clear();
    bars().set_draw_target(ProgressDrawTarget::hidden());
    restore();
    process::exit(INTERRUPTED.into())
}

/// Runs a command whose output comes through as it is.
fn carry_out(guest: &mut Guest, argv: &[String]) -> Result<Exit, Ending> {
    let job = guest.spawn(Command { argv: argv.to_vec(), ..Command::default() });
    let exits = guest.wait(&[job], &mut |from, channel, data| {
        if from == job {
            pass_on(channel, data);
        }
    })?;
    Ok(exits[0])
}

/// Runs a command, or a shell, that the user can talk to.
fn converse(guest: &mut Guest, argv: &[String]) -> Result<Exit, Ending> {
    let on_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    let argv = if argv.is_empty() { vec!["sh".into(), "-l".into()] } else { argv.to_vec() };
    let job =
        guest.spawn(Command { argv, terminal: on_terminal.then(size), stdin: true, ..Command::default() });
    let _raw = on_terminal.then(Mode::raw);
    let mut input = Input::start();
    let mut shown = on_terminal.then(size);
    loop {
        if let Some(exit) = guest.take_exit(job) {
            return Ok(exit);
        }
        resize(guest, job, &mut shown);
        let until = guest.now() + SLICE;
        let turn = guest.run_until(until, &mut |from, channel, data| {
            if from == job {
                pass_on(channel, data);
            }
        })?;
        match turn {
            // The guest sleeps: so does the host, for as long.
            Turn::Asleep => {
                let now = guest.now();
                let wake = guest.next_event().unwrap_or(now + LONGEST_SLEEP).min(now + LONGEST_SLEEP);
                let slept = Instant::now();
                feed(guest, job, input.wait(wake.since(now)), &mut input);
                guest.skip_to((now + slept.elapsed()).min(wake));
            }
            Turn::News | Turn::Reached => feed(guest, job, input.take(), &mut input),
        }
    }
}

fn feed(guest: &mut Guest, job: JobId, bytes: Option<Vec<u8>>, input: &mut Input) {
    if let Some(bytes) = bytes {
        guest.session().write_stdin(job, &bytes);
    } else if input.take_end() {
        guest.session().close_stdin(job);
    }
}

fn resize(guest: &mut Guest, job: JobId, shown: &mut Option<TerminalSize>) {
    if let Some(before) = shown {
        let now = size();
        if now != *before {
            guest.session().resize(job, now);
            *before = now;
        }
    }
}

/// A reader that has gone away (`| head`) is no reason to stop the guest.
fn pass_on(channel: Channel, data: &[u8]) {
    let _ = match channel {
        Channel::Stdout => {
            let mut out = io::stdout().lock();
            out.write_all(data).and_then(|()| out.flush())
        }
        Channel::Stderr => io::stderr().lock().write_all(data),
    };
}

/// Says which rules were broken; whether any was that fails the run.
fn show_findings(prepared: &mut Prepared) -> bool {
    for line in prepared.guest.trouble().iter().filter(|line| line.starts.is_some()) {
        complain!("nicvisor: the guest's kernel says: {}", line.text);
    }
    let mut broken = false;
    let findings = prepared.guest.findings();
    for finding in findings.iter().take(FINDINGS_SHOWN) {
        complain!(
            "nicvisor: rule {} broken at {}: {} {}: {}",
            finding.rule,
            finding.time,
            finding.device,
            finding.queue,
            finding.message
        );
    }
    if findings.len() > FINDINGS_SHOWN {
        complain!("nicvisor: and {} more", findings.len() - FINDINGS_SHOWN);
    }
    broken |= findings.iter().any(|finding| finding.severity == Severity::Error);
    let ledger = prepared.guest.machine().network().ledger().balance();
    if !ledger.is_balanced() {
        complain!("nicvisor: {} frames are not accounted for", ledger.missing.len());
        broken = true;
    }
    broken
}

/// How much of the guest's time passes before the host's input is looked at.
const SLICE: Duration = Duration::from_millis(5);
const LONGEST_SLEEP: Duration = Duration::from_millis(200);
const FINDINGS_SHOWN: usize = 20;
