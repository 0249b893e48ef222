//! Every instruction form is executed twice, by the host's own CPU and by softcpu, from the same random state;
//! registers, flags, memory and traps must come out the same.
//!
//! How it works, for whoever adds a family of instructions:
//! * [`forms`] enumerates iced-x86's codes and encodes one with random operands ([`forms::Form::encode`]). It
//!   puts memory operands, the stack and branch targets where both sides have memory.
//! * [`state::State`] is what an instruction starts from and what it leaves: general-purpose registers, RFLAGS,
//!   an FXSAVE image, and the [`state::DATA_BYTES`] bytes at [`state::DATA`].
//! * [`native::run`] executes the bytes on the host: a trap into a signal handler swaps the state in, another
//!   trap (an `INT3` behind the instruction, or whatever it raises) swaps it out.
//! * [`machine::Machine::run`] executes the same bytes at the same address in an [`softcpu::Engine`], with an
//!   interrupt table that catches exceptions.
//! * [`compare::check`] does all of that for a form, any number of times, and explains a difference. What the
//!   manuals leave undefined is masked by the [`compare::Tolerance`] that the family's test passes in; see
//!   [`integer`] for an example.
//!
//! A new family is a new module with one `#[test]` per group of mnemonics:
//! `compare::check_all(|mnemonic| ..., |code| Tolerance { ... })`. Where random bits make poor operands,
//! [`compare::check_arranged`] lets the family put better ones in; see [`fp`].

mod compare;
mod coverage;
mod extensions;
mod forms;
mod fp;
mod fp_availability;
mod integer;
mod machine;
mod native;
mod random;
mod registers;
mod state;
