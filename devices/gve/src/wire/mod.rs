//! Layouts that driver and device share, and nothing else: no behaviour lives here.
//!
//! Every structure names the header of the Linux driver (`drivers/net/ethernet/google/gve/`) that documents it.
//! Admin queue structures are big-endian, data path descriptors little-endian.

pub mod admin;
pub mod gqi;
pub mod rx;
pub mod tx;
