//! An x86-64 CPU in software: boots unmodified 64-bit Linux, deterministically, under full control.
//!
//! The crate knows CPUs and RAM; everything else (I/O ports, MMIO, interrupt controllers, time) is behind the
//! [`Bus`] trait. An [`Engine`] holds all CPUs of a machine and runs one of them at a time for a number of
//! instructions, so a machine with many CPUs is as reproducible as one with a single CPU.
//!
//! # The way of an instruction
//! 1. [`decode`] turns bytes into an iced-x86 instruction, packs its operands into an [`op::Op`] (what is
//!    constant about it: register numbers, displacement, immediate) and finds the [`op::Handler`] for it, a
//!    plain function. Straight-line runs of ops form a block.
//! 2. `cache` keeps blocks by *physical* address and CPU mode, and drops those of a page that is written to,
//!    by a CPU or by device DMA.
//! 3. `run` looks up the block at RIP and calls the handlers one after the other. While a handler runs,
//!    [`Cpu::rip`] already points *behind* its instruction; a handler that faults says so with [`Stop`] and the
//!    loop puts RIP back and delivers the exception.
//! 4. `mmu` translates linear addresses through a software TLB to host pointers.
//!
//! Handlers live by family: `integer` (general-purpose instructions), `fp` (x87, MMX, SSE), `system`
//! (control registers, descriptor tables, far transfers, I/O).

mod access;
mod boot;
mod breakpoints;
mod bus;
mod cache;
pub mod control;
pub mod cpu;
mod cpuid;
pub mod decode;
mod descriptors;
mod engine;
pub mod extensions;
mod fault;
pub mod flags;
pub mod fp;
mod frame;
mod host;
mod inspect;
mod integer;
mod interrupts;
mod mode;
pub mod op;
mod run;
pub mod segment;
mod system;
mod tlb;
mod walk;
mod width;

pub use access::{Access, Env};
pub use bus::{Bus, Event, GeneralProtection, Position};
pub use cpu::Cpu;
pub use cpuid::{CpuidEntry, CpuidTable};
pub use engine::{BlockRun, Engine, Exit};
pub use fault::{Exception, Stop};
pub use mode::Mode;
pub use width::Width;
