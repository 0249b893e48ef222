//! The command line.

#[macro_use]
mod complain;

mod args;
mod bare;
mod capture;
mod edits;
mod failure;
mod faults;
mod image;
mod prepare;
mod report;
mod rules;
mod run;
mod terminal;
mod test;
mod trial;
mod values;

use std::process::ExitCode;

use clap::Parser;

pub use failure::Failure;
pub use trial::Trial;

use args::{Arguments, Verb};

/// Does what the command line says, and returns the exit status.
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { failure::USAGE } else { 0 });
        }
    };
    start_log();
    let result = match arguments.verb {
        Verb::Run(run) => run::run(&run),
        Verb::Test(test) => test::test(&test),
        Verb::Faults(faults) => faults::faults(&faults),
        Verb::Rules(rules) => rules::rules(&rules),
        Verb::Image(image) => image::image(&image),
    };
    match result {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            let status = failure.status();
            show(failure);
            ExitCode::from(status)
        }
    }
}

/// The end of a guest comes with registers and a log, which are not to be wrapped as prose is.
fn show(failure: Failure) {
    // Messages say their causes themselves. It is the only hook.
    let _ = miette::set_hook(Box::new(|_| {
        Box::new(miette::MietteHandlerOpts::new().without_cause_chain().build())
    }));
    match failure {
        Failure::Guest(ending) => complain!("nicvisor: {}", ending.to_string().trim_end()),
        other => complain!("{:?}", miette::Report::new(other)),
    }
}

/// `NICVISOR_LOG` chooses what is logged, in the syntax of tracing's `EnvFilter`.
fn start_log() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("NICVISOR_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}
