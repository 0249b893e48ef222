//! Frames and what NICs and links do with them, once for all device models.
//!
//! # How a frame flows
//!
//! A driver hands its device a packet: perhaps one of half a megabyte that the device is to cut into frames.
//! The device model gathers it from guest memory and translates its descriptor into a [`check::Handed`]; then
//!
//! 1. [`stats::HandedStats`] counts it, and [`check::check_handed`] judges it by the [`rules`]: is the stack's
//!    jumbo payload header gone, do the descriptor's lengths fit the headers, is it within the device's limits;
//! 2. [`tso::segment`] cuts it into frames as hardware would, or [`checksum::Partial`] finishes its checksum;
//! 3. each frame leaves through the device's effects, and the machine [injects](network::Medium::inject) it
//!    into the [`network::Network`] at the device's port. It gets an id, enters the [`network::Ledger`], is
//!    judged by [`check::check_wire`], and, if a [`capture::Capture`] is stacked on the network, is captured
//!    together with what was found;
//! 4. the link's switch decides who gets it and when; the machine polls and hands it to the receiving device;
//! 5. the receiving device finds the headers with [`parse::parse`], judges the checksums by
//!    [`verdict::Verdicts`], picks a queue by [`rss::Rss`], writes the frame to guest memory, and says what became of it: [`network::Medium::settle`] closes its account.
//!
//! At the end of a run the ledger must balance: every frame was delivered, or dropped with a reason.
//!
//! # How it is laid out
//!
//! [`wire`] has header layouts and nothing else. [`parse`] finds headers, in tunnels too, and never fails on
//! bad input but says how far it got. [`tso`], [`checksum`] and [`rss`] are the offloads; [`check`] is the
//! judge. All of these are pure functions. [`network`], [`rsc`] and [`stats`] keep state, which is plain data; time
//! comes in from outside. [`testing`] makes packets for tests, here and in device crates.
#![forbid(unsafe_code)]

pub mod capture;
pub mod check;
pub mod checksum;
pub mod network;
pub mod parse;
pub mod rsc;
pub mod rss;
pub mod rules;
pub mod stats;
pub mod testing;
pub mod tso;
pub mod verdict;
pub mod wire;

pub use rules::RULES;
