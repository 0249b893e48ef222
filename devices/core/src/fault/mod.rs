//! Faults and events: what a device can be made to do that a driver does not expect, in one vocabulary for all
//! devices.
//!
//! # For the writer of a scenario
//! A device lists what it has ([`FaultPoints`]): command channels with their commands and fields, queues with
//! the fields of their completions, values that it shows the driver, and events. A [`Fault`] names some of them
//! by the names that the driver's headers use; a name that the device does not have is refused with the names
//! that it has. In a scenario file a fault is a table with one key that says its kind:
//!
//! ```toml
//! # The second CREATE_TX_QUEUE fails, 50 ms late.
//! command = { name = "CREATE_TX_QUEUE", uses = { nth = 2 }, fail = "INTERNAL_ERROR", delay = "50ms" }
//! # No rule is found, whatever was asked for.
//! command = { name = "QUERY_FLOW_RULES", where = { opcode = 0 }, rewrite = { num_queried_rules = 0 } }
//! # Nothing of TX queue 1 completes for 16 s; what was held back then comes in order.
//! completion = { queue = "tx 1", uses = { nth = 1 }, hold = "16s" }
//! # Every third completion comes again, with another tag, and the driver is not told.
//! completion = { queue = "tx", uses = { every = 3 }, insert = { completion_tag = { xor = 1 } }, interrupt = "suppress" }
//! # A register shows something else.
//! override = { name = "register.device_status", value = { xor = 2 }, lasts = "5s" }
//! # The device takes the fifth doorbell of TX queue 0 for one that rings three entries more.
//! override = { name = "tx 0.tail", uses = { nth = 5 }, value = { add = 3 } }
//! # Something happens now.
//! event = { name = "reset-request" }
//! # All is well again; with a label, one fault ends.
//! lift = {}
//! ```
//!
//! **Which uses.** A command, a completion or a value is *used* whenever the driver or the device does so and
//! the conditions of `where` hold. `uses` selects among those, counted from the moment when the fault is
//! injected: `nth = 3` the third, `from = 3` the third and all after it, `every = 2` every second, `times = 5`
//! at most five; `from`, `every` and `times` combine. Without `uses` it is every one. A fault ends by itself
//! after `lasts`, or when it is lifted.
//!
//! **Conditions** compare fields: `queue_id = 3`, `queue_id = { at_least = 1, at_most = 3 }`,
//! `flags = { mask = 0x10, equals = 0x10 }`, `type = { not = "packet" }`.
//!
//! **Values** are numbers, `true`/`false`, names that the device gives to some numbers of a field, or texts
//! such as `"0xffffffffffffffff"`. A negative number stands for its two's complement in the field's width. A
//! change of a value is a new value, or `{ add = N }` or `{ xor = N }` to what it would have been.
//!
//! **Commands** ([`CommandFault`]): `fail` with a status instead of doing it, `delay` the answer, `drop` the
//! command, `duplicate` the answer, `rewrite` fields of the answer. A command that fails or is dropped has no
//! effect, unless `take-effect = true`: then it is done, and only its answer is spoilt or lost.
//!
//! **Completions** ([`CompletionFault`]): `hold` stops the queue at this completion (those behind it wait),
//! `delay` lets those behind it overtake, `drop` loses it, `duplicate` writes so many more, `insert` writes one
//! more with changed fields, `batch` collects several and writes them in another order or all at once,
//! `rewrite` changes fields (also generation and owner bits, which are filled in before), `interrupt` suppresses
//! or moves the interrupt. Durations are texts such as `"16s"` and `"250us"`; `"forever"` is until the fault is
//! lifted. A ring is made to overflow by duplicating more often than it has entries.
//!
//! **Overrides** ([`OverrideFault`]) change a value that the driver reads, on its way, or a *ring index* that the
//! device uses: what a doorbell said, or where the device writes its next entry, with the generation or owner bits of
//! that place. Ring indices are named by kind of queue (`tx.tail`, all of them) or by queue (`tx 3.tail`). Each use is
//! changed by itself: the device goes on from where it truly was. What the driver then does on that queue is not held
//! against it.
//!
//! Faults that hit the same use add up, in the order in which they were injected.
//!
//! # For the writer of a device
//! Embed a [`FaultState`] in the device's state and keep it across resets by the driver. In `inject`, hand the
//! fault to [`FaultState::inject`], carry out the event that it may return, and let the queues write what a lift
//! has set free. Then ask:
//! * at each command, [`CommandFaults::command`] what to do with it;
//! * for each completion, a [`Shaper`] (one per queue): offer it, write what comes out, and add its deadline to
//!   the device's;
//! * for each value that the driver reads, [`Overrides::apply`] what to show;
//! * for each use of a ring index, [`Overrides::apply_to_queue`] what to use, and say no more of that queue's breaches
//!   once it was another.
//!
//! Fields of wire structures need no code: describe the structure as a list of [`WireField`]s, which also says
//! what the device tells about itself, and use a [`WireView`] over its bytes.
//!
//! What the driver does is told by [`crate::Context::observe`], so that a scenario can wait for it before it acts.
//!
//! Everything here is plain state without randomness, bounded in memory whatever the guest does.

mod command;
mod completion;
mod conditions;
mod error;
mod fields;
mod model;
mod overrides;
mod points;
mod shaper;
mod span;
mod state;
#[cfg(test)]
pub(crate) mod testing;
mod uses;
mod value;

pub use command::{CommandAction, CommandFaults};
pub use completion::{CompletionFaults, Interrupt};
pub use error::FaultError;
pub use fields::{ByteOrder, Fields, FieldsMut, NoFields, WireField, WireView};
pub use model::{
    Batch, CommandFault, CompletionFault, EventRequest, Fault, InterruptFault, Lift, Order, OverrideFault,
};
pub use overrides::Overrides;
pub use points::{
    Argument, Channel, CommandPoint, EventPoint, FaultPoints, Field, OverridePoint, QueuePoint,
};
pub use shaper::{Ready, Shaper};
pub use span::Span;
pub use state::{FaultState, FaultStatus, Injected};
pub use uses::Uses;
pub use value::{Change, Condition, Value, Within};

pub(crate) use conditions::{Tests, all_hold, tests as resolve_conditions};
