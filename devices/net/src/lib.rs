//! Frames and what NICs do with them.
#![forbid(unsafe_code)]

pub mod check;
pub mod checksum;
pub mod parse;
pub mod rss;
pub mod rules;
pub mod tso;
pub mod wire;

pub mod testing;
