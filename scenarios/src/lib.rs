//! Scenarios: what is done to a driver, and what must come of it, as a file.
//!
//! A scenario file is TOML ([`model`]). [`load()`] reads one with what it includes, multiplies out its matrix and
//! answers mistakes with the line and column that they are in. [`runner::run`] carries a scenario out on a
//! [`Lab`], which is one or two booted guests with their devices seen from outside; this crate knows no CPU and
//! no device, so a test can hand it a lab made of paper. What comes out is an [`Outcome`]: data that [`report`]
//! turns into text for people, KTAP, JUnit XML or JSON. [`build`] makes the same scenarios without a file.
#![forbid(unsafe_code)]

pub mod build;
mod check;
mod expression;
mod json_path;
mod judge;
pub mod lab;
pub mod load;
mod matrix;
pub mod model;
pub mod outcome;
pub mod report;
pub mod runner;
pub mod schema;
mod source;
mod tree;
pub mod units;
mod vocabulary;

pub use lab::{Lab, LabError, LabEvent};
pub use load::{check_names, discover, load};
pub use matrix::DEFAULT_KERNEL;
pub use model::Scenario;
pub use outcome::{Check, Outcome, Tally, Verdict};
pub use runner::{Progress, run};
pub use source::{LoadError, Mistake, Sources};
pub use vocabulary::{KnownDevice, Vocabulary};
