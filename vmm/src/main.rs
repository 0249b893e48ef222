//! The `nicvisor` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    nicvisor::cli::main()
}
