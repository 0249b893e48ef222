//! What can be asked through the hardware channel, and how it can end.

use serde::{Deserialize, Serialize};

macro_rules! request_types {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        /// The requests, by the numbers and names of `enum gdma_request_type` (Linux `include/net/mana/gdma.h`)
        /// and `enum mana_command_code` (`include/net/mana/mana.h`).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[repr(u32)]
        pub enum RequestType {
            $(#[doc = $text] $name = $number,)*
        }

        impl RequestType {
            /// All of them.
            pub const ALL: &[RequestType] = &[$(RequestType::$name),*];

            /// The request with this number.
            pub fn from_number(number: u32) -> Option<RequestType> {
                match number {
                    $($number => Some(RequestType::$name),)*
                    _ => None,
                }
            }

            /// The driver's name for it.
            pub fn name(self) -> &'static str {
                match self {
                    $(RequestType::$name => $text,)*
                }
            }
        }
    };
}

request_types! {
    VerifyVfDriverVersion = 1, "GDMA_VERIFY_VF_DRIVER_VERSION";
    QueryMaxResources = 2, "GDMA_QUERY_MAX_RESOURCES";
    ListDevices = 3, "GDMA_LIST_DEVICES";
    RegisterDevice = 4, "GDMA_REGISTER_DEVICE";
    DeregisterDevice = 5, "GDMA_DEREGISTER_DEVICE";
    GenerateTestEqe = 10, "GDMA_GENERATE_TEST_EQE";
    CreateQueue = 12, "GDMA_CREATE_QUEUE";
    DisableQueue = 13, "GDMA_DISABLE_QUEUE";
    AllocateResourceRange = 22, "GDMA_ALLOCATE_RESOURCE_RANGE";
    DestroyResourceRange = 24, "GDMA_DESTROY_RESOURCE_RANGE";
    CreateDmaRegion = 25, "GDMA_CREATE_DMA_REGION";
    DmaRegionAddPages = 26, "GDMA_DMA_REGION_ADD_PAGES";
    DestroyDmaRegion = 27, "GDMA_DESTROY_DMA_REGION";
    CreatePd = 29, "GDMA_CREATE_PD";
    DestroyPd = 30, "GDMA_DESTROY_PD";
    CreateMr = 31, "GDMA_CREATE_MR";
    DestroyMr = 32, "GDMA_DESTROY_MR";
    QueryHwcTimeout = 84, "GDMA_QUERY_HWC_TIMEOUT";
    AllocDm = 96, "GDMA_ALLOC_DM";
    DestroyDm = 97, "GDMA_DESTROY_DM";
    QueryDevConfig = 0x20001, "MANA_QUERY_DEV_CONFIG";
    QueryGfStat = 0x20002, "MANA_QUERY_GF_STAT";
    ConfigVportTx = 0x20003, "MANA_CONFIG_VPORT_TX";
    CreateWqObj = 0x20004, "MANA_CREATE_WQ_OBJ";
    DestroyWqObj = 0x20005, "MANA_DESTROY_WQ_OBJ";
    FenceRq = 0x20006, "MANA_FENCE_RQ";
    ConfigVportRx = 0x20007, "MANA_CONFIG_VPORT_RX";
    QueryVportConfig = 0x20008, "MANA_QUERY_VPORT_CONFIG";
    QueryLinkConfig = 0x2000a, "MANA_QUERY_LINK_CONFIG";
    SetBwClamp = 0x2000b, "MANA_SET_BW_CLAMP";
    QueryPhyStat = 0x2000c, "MANA_QUERY_PHY_STAT";
    RegisterFilter = 0x28000, "MANA_REGISTER_FILTER";
    DeregisterFilter = 0x28001, "MANA_DEREGISTER_FILTER";
    RegisterHwPort = 0x28003, "MANA_REGISTER_HW_PORT";
    DeregisterHwPort = 0x28004, "MANA_DEREGISTER_HW_PORT";
}

impl RequestType {
    /// Whether it is for the Ethernet device, rather than for the function as a whole.
    pub fn is_ethernet(self) -> bool {
        self as u32 > 0xffff
    }
}

/// How a request ended. Of the numbers only those of success, of [`Status::MoreEntries`] and of
/// [`Status::Unsupported`] are public; drivers print the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u32)]
pub enum Status {
    /// It is done.
    Success = 0,
    /// `GDMA_STATUS_MORE_ENTRIES`: done so far; the rest of a page list is to follow.
    MoreEntries = 0x105,
    /// The message is too short, or its header is wrong.
    InvalidMessage = 0x101,
    /// A parameter is out of its range.
    InvalidParameter = 0x102,
    /// There is no such object.
    InvalidHandle = 0x103,
    /// Not now: something that must come first did not, or an object is in use.
    InvalidState = 0x104,
    /// No more objects of this kind can exist.
    NoResources = 0x106,
    /// `GDMA_STATUS_CMD_UNSUPPORTED`: the device has no such request.
    Unsupported = 0xffff_ffff,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_lead_to_the_same_request() {
        for &request in RequestType::ALL {
            assert_eq!(RequestType::from_number(request as u32), Some(request));
            assert!(request.name().starts_with(if (request as u32) < 0x2_0000 { "GDMA_" } else { "MANA_" }));
        }
        assert_eq!(RequestType::from_number(0), None);
    }
}
