//! Builds our own programs for the image to carry: the guest's init, the load generator, the verified
//! stream, and what sets ports up.
//!
//! They are programs of another kind than the rest: static, and small. A cargo of its own builds them with the
//! workspace's lock file, into this crate's output directory so that it never waits for the lock that the outer
//! cargo holds on the target directory.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, exit},
};

fn main() {
    let output = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("agent");
    for path in WATCHED {
        println!("cargo::rerun-if-changed={path}");
    }
    if let Err(error) = build(&output) {
        eprintln!("cannot build the guest's programs: {error}");
        exit(1);
    }
    for (program, variable) in PROGRAMS {
        let path = output.join(TARGET).join(PROFILE).join(program);
        println!("cargo::rustc-env={variable}={}", path.display());
    }
}

fn build(output: &Path) -> Result<(), String> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--locked", "--profile", PROFILE, "--target", TARGET]);
    for (program, _) in PROGRAMS {
        command.args(["--package", program]);
    }
    command.arg("--target-dir").arg(output);
    // Static, and at a fixed address: PID 1 of an interpreted guest should not start with a thousand relocations.
    command.env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+crt-static\u{1f}-Crelocation-model=static");
    for variable in ["RUSTFLAGS", "CARGO_TARGET_DIR", "RUSTC_WORKSPACE_WRAPPER", "CARGO_BUILD_TARGET"] {
        command.env_remove(variable);
    }
    // What the outer build was told about itself is not true of this one (its own target, profile, features).
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_CFG_")
            || text.starts_with("CARGO_FEATURE_")
            || text.starts_with("CARGO_PROFILE_")
        {
            command.env_remove(name);
        }
    }
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("cargo ended with {status}")),
        Err(error) => Err(format!("cargo: {error}")),
    }
}

/// Packages, and the variables that tell where their programs are.
const PROGRAMS: [(&str, &str); 4] = [
    ("nicvisor-agent", "NICVISOR_AGENT"),
    ("nicvisor-load", "NICVISOR_LOAD"),
    ("nicvisor-port", "NICVISOR_PORT"),
    ("nicvisor-stream", "NICVISOR_STREAM"),
];
const PROFILE: &str = "guest-agent";
const TARGET: &str = "x86_64-unknown-linux-gnu";
const WATCHED: [&str; 12] = [
    "build.rs",
    "agent/src",
    "agent/Cargo.toml",
    "protocol/src",
    "protocol/Cargo.toml",
    "load/src",
    "load/Cargo.toml",
    "port/src",
    "port/Cargo.toml",
    "stream/src",
    "stream/Cargo.toml",
    "../Cargo.lock",
];
