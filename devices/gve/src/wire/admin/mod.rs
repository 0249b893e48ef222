//! Admin queue commands and the structures they point to (`gve_adminq.h`). All fields are big-endian.

/// Derives what every wire structure here needs and checks its size at compile time.
macro_rules! wire {
    ($(#[$attribute:meta])* $name:ident: $size:literal { $($(#[$field_attribute:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
        #[repr(C)]
        pub struct $name { $($(#[$field_attribute])* pub $field: $type,)* }
        const _: () = assert!(size_of::<$name>() == $size);
    };
}

mod describe;
mod queues;
mod report;
mod steering;

pub use describe::*;
pub use queues::*;
pub use report::*;
pub use steering::*;

use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

wire! {
    /// One entry of the admin queue: `union gve_adminq_command`.
    Command: 64 {
        /// What to do: [`Opcode`].
        opcode: U32,
        /// Written by the device: [`Status`], never zero after execution.
        status: U32,
        /// The opcode's parameters; see [`Command::parameters`].
        parameters: [u8; 56],
    }
}

impl Command {
    /// The first bytes of the parameter area as one of the structures of this module.
    pub fn parameters<T: FromBytes + KnownLayout + Immutable + Unaligned>(&self) -> T {
        const { assert!(size_of::<T>() <= 56) };
        match T::read_from_prefix(&self.parameters) {
            Ok((parameters, _)) => parameters,
            Err(_) => unreachable!("the parameter area holds every parameter structure"),
        }
    }
}

/// `enum gve_adminq_opcodes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs, reason = "the names are those of the driver's header")]
pub enum Opcode {
    DescribeDevice = 0x1,
    ConfigureDeviceResources = 0x2,
    RegisterPageList = 0x3,
    UnregisterPageList = 0x4,
    CreateTxQueue = 0x5,
    CreateRxQueue = 0x6,
    DestroyTxQueue = 0x7,
    DestroyRxQueue = 0x8,
    DeconfigureDeviceResources = 0x9,
    ConfigureRss = 0xa,
    SetDriverParameter = 0xb,
    ReportStats = 0xc,
    ReportLinkSpeed = 0xd,
    GetPtypeMap = 0xe,
    VerifyDriverCompatibility = 0xf,
    QueryFlowRules = 0x10,
    ReportNicTimestamp = 0x11,
    QueryRss = 0x12,
    Extended = 0xff,
}

impl Opcode {
    /// The opcode with this number, if there is one.
    pub fn from_number(number: u32) -> Option<Opcode> {
        use Opcode::*;
        const ALL: [Opcode; 19] = [
            DescribeDevice,
            ConfigureDeviceResources,
            RegisterPageList,
            UnregisterPageList,
            CreateTxQueue,
            CreateRxQueue,
            DestroyTxQueue,
            DestroyRxQueue,
            DeconfigureDeviceResources,
            ConfigureRss,
            SetDriverParameter,
            ReportStats,
            ReportLinkSpeed,
            GetPtypeMap,
            VerifyDriverCompatibility,
            QueryFlowRules,
            ReportNicTimestamp,
            QueryRss,
            Extended,
        ];
        ALL.into_iter().find(|opcode| *opcode as u32 == number)
    }
}

/// `enum gve_adminq_statuses`: how a command ended. Linux maps each to an errno (`gve_adminq_parse_err`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs, reason = "the names are those of the driver's header")]
pub enum Status {
    Passed = 0x1,
    AlreadyExists = 0xffff_fff1,
    FailedPrecondition = 0xffff_fff5,
    InternalError = 0xffff_fff6,
    InvalidArgument = 0xffff_fff7,
    NotFound = 0xffff_fff8,
    OutOfRange = 0xffff_fff9,
    ResourceExhausted = 0xffff_fffc,
    Unimplemented = 0xffff_fffe,
}

wire! {
    /// `struct gve_adminq_extended_command`.
    ExtendedCommand: 16 {
        /// [`CONFIGURE_FLOW_RULE`].
        inner_opcode: U32,
        /// Bytes of the inner command.
        inner_length: U32,
        /// Where it is.
        inner_command_addr: U64,
    }
}

wire! {
    /// `struct gve_adminq_unregister_page_list` and the destroy commands: one id.
    Id: 4 {
        /// Queue or page list.
        id: U32,
    }
}
