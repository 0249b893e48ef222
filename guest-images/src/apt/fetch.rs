//! Fetching files over HTTP so that an interrupted transfer goes on where it stopped.
//!
//! apt asks for the rest of a file under the condition that it is still of the date of the first part. A mirror that
//! gives no dates cannot meet that, and a killed apt forgets the date. But a package never changes under its name,
//! and the lists say its hash: so here the rest is asked for without a condition, and the whole is judged.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use ureq::{Agent, Proxy, http::StatusCode};

use crate::cache;

/// A file on the mirror, as the signed lists describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remote {
    /// Its address.
    pub(crate) address: String,
    /// Its name here.
    pub(crate) name: String,
    /// Bytes.
    pub(crate) size: u64,
    /// Its hash, in hexadecimal.
    pub(crate) sha256: String,
}

/// Why a file was not fetched. What has arrived of it stays where it can be continued.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Not in this way; apt knows more of them.
    Unreachable(String),
    /// The user does not want it any more.
    Interrupted,
    /// It cannot be written.
    Unwritable(io::Error),
}

/// Fetches files over HTTP.
pub(crate) struct Fetcher {
    agent: Agent,
    interrupted: Arc<AtomicBool>,
    /// How long to wait after an attempt that brought nothing.
    pause: Duration,
}

/// How an attempt ended.
enum Attempt {
    /// All bytes are there.
    Complete,
    /// The connection broke; there is more than before, or not.
    Cut { progress: bool, reason: String },
}

impl Fetcher {
    pub(crate) fn new(proxy: Option<Proxy>, interrupted: Arc<AtomicBool>) -> Fetcher {
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(proxy)
            .user_agent(concat!("nicvisor/", env!("CARGO_PKG_VERSION")))
            // The length and the hash are those of the file as it is.
            .accept_encoding("identity")
            .timeout_connect(Some(PATIENCE))
            .timeout_per_read(Some(PATIENCE))
            .build()
            .into();
        Fetcher { agent, interrupted, pause: Duration::from_secs(1) }
    }

    /// Fetches `remote` into `directory`; `arrived` is told how many bytes of it are there.
    pub(crate) fn fetch(
        &self,
        remote: &Remote,
        directory: &Path,
        arrived: &mut dyn FnMut(u64),
    ) -> Result<PathBuf, Stop> {
        let target = directory.join(&remote.name);
        if is_whole(&target, remote) {
            arrived(remote.size);
            return Ok(target);
        }
        let partial = directory.join(format!("{}.partial", remote.name));
        let mut failures = 0;
        loop {
            let fresh = length(&partial) == 0;
            let reason = match self.attempt(remote, &partial, arrived)? {
                Attempt::Complete if is_whole(&partial, remote) => {
                    fs::rename(&partial, &target).map_err(Stop::Unwritable)?;
                    return Ok(target);
                }
                Attempt::Complete => {
                    // What was there before may have been wrong; the second time nothing was.
                    remove(&partial)?;
                    failures += if fresh { MOST_FAILURES } else { 0 };
                    format!("{} is not what the signed package lists describe", remote.address)
                }
                Attempt::Cut { progress, reason } => {
                    failures = if progress { 0 } else { failures + 1 };
                    reason
                }
            };
            if failures >= MOST_FAILURES {
                return Err(Stop::Unreachable(reason));
            }
            tracing::debug!("{reason}; going on at byte {}", length(&partial));
            if failures > 0 {
                thread::sleep(self.pause);
            }
        }
    }

    /// Asks once for what is missing of `partial`.
    fn attempt(
        &self,
        remote: &Remote,
        partial: &Path,
        arrived: &mut dyn FnMut(u64),
    ) -> Result<Attempt, Stop> {
        let mut had = length(partial);
        if had > remote.size {
            remove(partial)?;
            had = 0;
        }
        if had == remote.size {
            return Ok(Attempt::Complete);
        }
        let mut request = self.agent.get(&remote.address);
        if had > 0 {
            request = request.header("Range", format!("bytes={had}-"));
        }
        let response = match request.call() {
            Ok(response) => response,
            Err(error) if is_temporary(&error) => return Ok(cut(false, &error)),
            Err(error) => return Err(Stop::Unreachable(error.to_string())),
        };
        let begins = format!("bytes {had}-");
        let range = response.headers().get("content-range").and_then(|range| range.to_str().ok());
        let file = match response.status() {
            StatusCode::PARTIAL_CONTENT if range.is_some_and(|range| range.starts_with(&begins)) => {
                File::options().append(true).open(partial)
            }
            StatusCode::OK => {
                // The server does not know ranges.
                had = 0;
                File::create(partial)
            }
            StatusCode::RANGE_NOT_SATISFIABLE | StatusCode::PARTIAL_CONTENT => {
                remove(partial)?;
                return Ok(cut(false, &"the server has no such part of the file"));
            }
            status => return Err(Stop::Unreachable(format!("{} answers {status}", remote.address))),
        };
        let mut file = file.map_err(Stop::Unwritable)?;
        self.take(&mut response.into_body().into_reader(), &mut file, had, remote.size, arrived)
    }

    /// Writes what comes behind the first `had` bytes.
    fn take(
        &self,
        body: &mut dyn Read,
        file: &mut File,
        had: u64,
        size: u64,
        arrived: &mut dyn FnMut(u64),
    ) -> Result<Attempt, Stop> {
        let mut buffer = vec![0; CHUNK];
        let mut have = had;
        while have < size {
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(Stop::Interrupted);
            }
            match body.read(&mut buffer) {
                Ok(0) => return Ok(cut(have > had, &"the connection was closed early")),
                Ok(length) => {
                    // More than there should be is no use.
                    let length = length.min(usize::try_from(size - have).unwrap_or(usize::MAX));
                    file.write_all(&buffer[..length]).map_err(Stop::Unwritable)?;
                    have += length as u64;
                    arrived(have);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Ok(cut(have > had, &error)),
            }
        }
        Ok(Attempt::Complete)
    }
}

fn cut(progress: bool, reason: &dyn std::fmt::Display) -> Attempt {
    Attempt::Cut { progress, reason: reason.to_string() }
}

/// Whether it may go better the next time.
fn is_temporary(error: &ureq::Error) -> bool {
    matches!(error, ureq::Error::Io(_) | ureq::Error::Timeout(_) | ureq::Error::Protocol(_))
}

fn is_whole(file: &Path, remote: &Remote) -> bool {
    length(file) == remote.size && cache::sha256_file(file).is_ok_and(|sha256| sha256 == remote.sha256)
}

fn length(file: &Path) -> u64 {
    fs::metadata(file).map_or(0, |metadata| metadata.len())
}

fn remove(file: &Path) -> Result<(), Stop> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Stop::Unwritable(error)),
        _ => Ok(()),
    }
}

/// How long nothing may come.
const PATIENCE: Duration = Duration::from_secs(30);
/// So many attempts in a row that bring nothing are given up.
const MOST_FAILURES: u32 = 3;
const CHUNK: usize = 64 << 10;

#[cfg(test)]
mod tests;
