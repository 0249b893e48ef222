//! `nicvisor test`.

mod files;
mod job;
mod live;
mod memory;
mod pool;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use scenarios::{Outcome, Scenario, Tally, report};

use super::args::{Format, TestArguments};
use super::failure::{FAILED, Failure, INTERRUPTED};
use super::prepare::open_store;
use super::report::{check_writable, say, write_whole};
use super::rules;
use super::run::catch_signals;
use crate::machine::MOST_CPUS;
use crate::nic;
use files::Files;
use job::{Ended, Job};
use live::Live;

pub(super) fn test(arguments: &TestArguments) -> Result<u8, Failure> {
    if arguments.schema {
        say(&(serde_json::to_string_pretty(&schema()).expect("schemas are plain data") + "\n"))?;
        return Ok(0);
    }
    // All that can be wrong with what was asked is said before the first guest boots.
    let scenarios = load(arguments)?;
    let jobs = jobs(arguments, &scenarios)?;
    if arguments.list {
        for scenario in &scenarios {
            let description = scenario.description.trim();
            say(&format!("{} on {}  {description}\n", scenario.name, scenario.kernel))?;
        }
        return Ok(0);
    }
    let interrupted = catch_signals();
    let results = carry_out(arguments, &jobs, &interrupted, &Live::new(jobs.len()))?;
    say_all(arguments, &results.outcomes)?;
    if let Some(failure) = results.stopped {
        return Err(failure);
    }
    Ok(match (interrupted.load(Ordering::Relaxed), results.error, Tally::of(&results.outcomes).failed) {
        (true, ..) => INTERRUPTED,
        (false, Some(status), _) => status,
        (false, None, 0) => 0,
        (false, None, _) => FAILED,
    })
}

/// What came of all jobs.
struct Results {
    /// One for each.
    outcomes: Vec<Outcome>,
    /// The exit status for the first that could not be begun.
    error: Option<u8>,
    /// What kept the rest from being carried out.
    stopped: Option<Failure>,
}

fn jobs<'a>(arguments: &'a TestArguments, scenarios: &'a [Scenario]) -> Result<Vec<Job<'a>>, Failure> {
    scenarios.iter().enumerate().map(|numbered| Job::new(arguments, numbered)).collect()
}

/// Carries scenarios out that no file says: what [`crate::Trial`] does.
pub(crate) fn carry_out_silently(
    arguments: &TestArguments,
    scenarios: &[Scenario],
    interrupted: &Arc<AtomicBool>,
) -> Result<Vec<Outcome>, Failure> {
    let jobs = jobs(arguments, scenarios)?;
    let results = carry_out(arguments, &jobs, interrupted, &Live::silent())?;
    results.stopped.map_or(Ok(results.outcomes), Err)
}

/// Carries `jobs` out. There is an outcome for each of them, and all are written down, even if something stops the rest.
fn carry_out(
    arguments: &TestArguments,
    jobs: &[Job<'_>],
    interrupted: &Arc<AtomicBool>,
    live: &Live,
) -> Result<Results, Failure> {
    if let Some(directory) = &arguments.report {
        std::fs::create_dir_all(directory)
            .map_err(|source| Failure::Write { path: directory.clone(), source })?;
        check_writable(&directory.join("results.json"))?;
    }
    let store = open_store(&arguments.guest.store, interrupted)?;
    let mut all: Vec<Ended> = Vec::new();
    let one = |job: &Job<'_>| job.carry_out(&store, interrupted, live);
    let carried = pool::run(jobs, arguments.jobs, interrupted, one, &mut |ended: Ended| {
        live.ended(&ended.outcome);
        let said = match arguments.format {
            Format::Human => live.say(&report::human(&ended.outcome)),
            _ => Ok(()),
        };
        all.push(ended);
        said
    });
    live.finish();
    let begun: BTreeSet<usize> = all.iter().map(|ended| ended.number).collect();
    let others = jobs.iter().enumerate().filter(|(number, _)| !begun.contains(number));
    let stopped_by_user = interrupted.load(Ordering::Relaxed);
    all.extend(others.map(|(_, job)| job.not_reached(stopped_by_user)));
    all.sort_by_key(|ended| ended.number);
    let error = all.iter().find_map(|ended| ended.error);
    let outcomes: Vec<Outcome> = all.into_iter().map(|ended| ended.outcome).collect();
    write_down(arguments, &outcomes)?;
    Ok(Results { outcomes, error, stopped: carried.err() })
}

fn say_all(arguments: &TestArguments, outcomes: &[Outcome]) -> Result<(), Failure> {
    say(&match arguments.format {
        Format::Human => format!("{}\n", Tally::of(outcomes)),
        Format::Ktap => report::ktap(outcomes),
        Format::Json => report::json(outcomes),
        Format::Junit => report::junit(outcomes),
    })
}

fn write_down(arguments: &TestArguments, outcomes: &[Outcome]) -> Result<(), Failure> {
    if let Some(directory) = &arguments.report {
        write_whole(&directory.join("results.json"), report::json(outcomes).as_bytes())?;
        write_whole(&directory.join("results.xml"), report::junit(outcomes).as_bytes())?;
        write_whole(&directory.join("index.html"), page(arguments, directory, outcomes).as_bytes())?;
    }
    Ok(())
}

/// The page about the whole run.
fn page(arguments: &TestArguments, directory: &Path, outcomes: &[Outcome]) -> String {
    let page = report::html::Page {
        producer: concat!("nicvisor ", env!("CARGO_PKG_VERSION")).into(),
        facts: vec![
            ("command".into(), std::env::args().collect::<Vec<_>>().join(" ")),
            ("seed".into(), arguments.guest.seed.to_string()),
            ("host".into(), host()),
            ("date".into(), humantime::format_rfc3339_seconds(SystemTime::now()).to_string()),
        ],
    };
    let outcomes: Vec<_> =
        outcomes.iter().map(|outcome| (outcome.clone(), Files::links(directory, outcome))).collect();
    report::html::html(&page, &outcomes, &|id| rules::all().find(|rule| rule.id == id))
}

/// The schema of scenario files, with the names that this program knows.
fn schema() -> scenarios::schema::Schema {
    let option_names =
        |names: &[&str]| names.iter().chain(&nic::COMMON_OPTIONS).map(|name| (*name).to_owned()).collect();
    scenarios::schema::schema(&scenarios::schema::Names {
        nics: nic::kinds().map(|(kind, options)| (kind.to_owned(), option_names(options))).collect(),
        rules: rules::all().map(|rule| rule.id.to_owned()).collect(),
        most_cpus: MOST_CPUS as u32,
    })
}

/// The host's kernel and processors.
fn host() -> String {
    let system = rustix::system::uname();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    format!("Linux {}, {cpus} CPUs", system.release().to_string_lossy())
}

fn load(arguments: &TestArguments) -> Result<Vec<Scenario>, Failure> {
    let paths = if arguments.paths.is_empty() { vec![default_scenarios()?] } else { arguments.paths.clone() };
    let kernels: Vec<String> = arguments.kernels.iter().map(ToString::to_string).collect();
    let mut loaded = Vec::new();
    for path in scenarios::discover(&paths)? {
        loaded.extend(scenarios::load(&path, &kernels)?);
    }
    scenarios::check_names(&loaded)?;
    if loaded.is_empty() {
        let help = "nicvisor test --list shows what there is without --kernel";
        return Err(Failure::Usage("no case is left for these kernels".into(), help.into()));
    }
    if let Some(filter) = &arguments.filter {
        loaded
            .retain(|scenario| format!("{} on {}", scenario.name, scenario.kernel).contains(filter.as_str()));
        if loaded.is_empty() {
            let help = "nicvisor test --list shows all names";
            return Err(Failure::Usage(format!("no scenario's name has {filter:?} in it"), help.into()));
        }
    }
    Ok(loaded)
}

/// The project's own scenarios: in the directory where the program runs, or where it was built.
fn default_scenarios() -> Result<PathBuf, Failure> {
    let built_in = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios");
    [PathBuf::from("scenarios"), built_in].into_iter().find(|path| path.is_dir()).ok_or_else(|| {
        Failure::Usage(
            "there is no directory scenarios here".into(),
            "name scenario files or directories".into(),
        )
    })
}
