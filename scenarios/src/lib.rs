//! Scenarios: what is done to a driver, and what must come of it, as a file.
//!
//! A scenario is a TOML file ([`model`]). [`load()`] reads one and answers mistakes with the line they are in.
//! [`runner::run`] carries it out on a [`runner::Lab`], which is a booted guest with its devices seen from
//! outside; this crate knows no CPU and no device, so a test can hand it a lab made of paper. What comes out
//! is an [`outcome::Outcome`]: data that [`report`] turns into text for people, KTAP, JUnit XML or JSON.
#![forbid(unsafe_code)]

mod expectation;
pub mod load;
pub mod model;
pub mod outcome;
pub mod report;
pub mod runner;

pub use load::{LoadError, discover, load};
pub use model::Scenario;
pub use outcome::{Check, Outcome, Verdict};
pub use runner::{Lab, LabError, run};
