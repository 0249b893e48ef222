//! What makes a CPU one that an operating system can run on: paging, exceptions, segmentation, events, code that
//! changes. Each test is a few instructions in a small guest ([`guest::Guest`]).

mod code;
mod debug;
mod events;
mod exceptions;
mod extensions;
mod guest;
mod legacy;
mod paging;
mod privilege;
mod walker;
