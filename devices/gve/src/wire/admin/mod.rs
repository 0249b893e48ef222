//! Admin queue commands and the structures they point to (`gve_adminq.h`). All fields are big-endian.

/// Derives what every wire structure here needs and checks its size at compile time.
macro_rules! wire {
    ($(#[$attribute:meta])* $name:ident: $size:literal { $($(#[$field_attribute:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
        #[repr(C)]
        pub struct $name { $($(#[$field_attribute])* pub $field: $type,)* }
        const _: () = assert!(size_of::<$name>() == $size);

        impl $name {
            /// Its fields by name; of one longer than eight bytes, the first eight.
            pub const LAYOUT: &[nicvisor_core::fault::WireField] =
                &[$(field!($name, $field, $type, 0)),*];
        }
    };
}

/// The same for a device option: it follows its head, which is part of what faults can name.
macro_rules! option {
    ($(#[$attribute:meta])* $name:ident: $size:literal { $($(#[$field_attribute:meta])* $field:ident: $type:ty,)* }) => {
        wire! { $(#[$attribute])* $name: $size { $($(#[$field_attribute])* $field: $type,)* } }

        impl $name {
            /// The fields of the option's head and its own, by name.
            pub const OPTION_LAYOUT: &[nicvisor_core::fault::WireField] = &[
                field!(DeviceOption, option_id, U16, 0),
                field!(DeviceOption, option_length, U16, 0),
                field!(DeviceOption, required_features_mask, U32, 0),
                $(field!($name, $field, $type, size_of::<DeviceOption>())),*
            ];
        }
    };
}

macro_rules! field {
    ($name:ident, $field:ident, $type:ty, $start:expr) => {
        nicvisor_core::fault::WireField::big(
            stringify!($field),
            $start + std::mem::offset_of!($name, $field),
            if size_of::<$type>() < 8 { size_of::<$type>() as u8 } else { 8 },
        )
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

use nicvisor_core::fault::WireField;
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

macro_rules! opcodes {
    ($($opcode:ident = $number:literal $name:literal $request:expr, $answer:expr;)*) => {
        /// `enum gve_adminq_opcodes`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        #[allow(missing_docs, reason = "the names are those of the driver's header")]
        pub enum Opcode { $($opcode = $number,)* }

        impl Opcode {
            /// All of them.
            pub const ALL: &[Opcode] = &[$(Opcode::$opcode),*];

            /// The driver's name.
            pub fn name(self) -> &'static str {
                match self { $(Opcode::$opcode => concat!("GVE_ADMINQ_", $name),)* }
            }

            /// The parameters, from the start of [`Command::parameters`].
            pub fn request(self) -> &'static [WireField] {
                match self { $(Opcode::$opcode => $request,)* }
            }

            /// The fixed part of what the device writes to memory, besides the status.
            pub fn answer(self) -> &'static [WireField] {
                match self { $(Opcode::$opcode => $answer,)* }
            }
        }
    };
}

opcodes! {
    DescribeDevice = 0x1 "DESCRIBE_DEVICE" DescribeDevice::LAYOUT, DeviceDescriptor::LAYOUT;
    ConfigureDeviceResources = 0x2 "CONFIGURE_DEVICE_RESOURCES" ConfigureDeviceResources::LAYOUT, IRQ_DB_INDEX;
    RegisterPageList = 0x3 "REGISTER_PAGE_LIST" RegisterPageList::LAYOUT, &[];
    UnregisterPageList = 0x4 "UNREGISTER_PAGE_LIST" Id::LAYOUT, &[];
    CreateTxQueue = 0x5 "CREATE_TX_QUEUE" CreateTxQueue::LAYOUT, QueueResources::LAYOUT;
    CreateRxQueue = 0x6 "CREATE_RX_QUEUE" CreateRxQueue::LAYOUT, QueueResources::LAYOUT;
    DestroyTxQueue = 0x7 "DESTROY_TX_QUEUE" Id::LAYOUT, &[];
    DestroyRxQueue = 0x8 "DESTROY_RX_QUEUE" Id::LAYOUT, &[];
    DeconfigureDeviceResources = 0x9 "DECONFIGURE_DEVICE_RESOURCES" &[], &[];
    ConfigureRss = 0xa "CONFIGURE_RSS" ConfigureRss::LAYOUT, &[];
    SetDriverParameter = 0xb "SET_DRIVER_PARAMETER" SetDriverParameter::LAYOUT, &[];
    ReportStats = 0xc "REPORT_STATS" ReportStats::LAYOUT, &[];
    ReportLinkSpeed = 0xd "REPORT_LINK_SPEED" ReportLinkSpeed::LAYOUT, LINK_SPEED;
    GetPtypeMap = 0xe "GET_PTYPE_MAP" GetPtypeMap::LAYOUT, &[];
    VerifyDriverCompatibility = 0xf "VERIFY_DRIVER_COMPATIBILITY" VerifyDriverCompatibility::LAYOUT, &[];
    QueryFlowRules = 0x10 "QUERY_FLOW_RULES" QueryFlowRules::LAYOUT, QueryFlowRulesDescriptor::LAYOUT;
    ReportNicTimestamp = 0x11 "REPORT_NIC_TIMESTAMP" &[], &[];
    QueryRss = 0x12 "QUERY_RSS" QueryRss::LAYOUT, QueryRssDescriptor::LAYOUT;
    Extended = 0xff "EXTENDED_COMMAND" ExtendedCommand::LAYOUT, &[];
}

impl Opcode {
    /// The opcode with this number, if there is one.
    pub fn from_number(number: u32) -> Option<Opcode> {
        Opcode::ALL.iter().copied().find(|opcode| *opcode as u32 == number)
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

/// The answer to [`Opcode::ReportLinkSpeed`]: 64 bits, Mb/s.
pub const LINK_SPEED: &[WireField] = &[WireField::big("link_speed", 0, 8)];
/// The answer to [`Opcode::ConfigureDeviceResources`]: one for each notification block.
pub const IRQ_DB_INDEX: &[WireField] = &[WireField::big("irq_db_index", 0, 4)];
