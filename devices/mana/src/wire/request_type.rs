//! What can be asked through the hardware channel, and how it can end.

use nicvisor_core::fault::WireField;
use serde::{Deserialize, Serialize};

use super::{gdma_requests as gdma, mana_requests as mana};
use crate::statistics::GF_STATISTICS;

macro_rules! request_types {
    ($($name:ident = $number:literal, $text:literal, $request:expr, $answer:expr;)*) => {
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

            /// The fields behind the request's header.
            pub fn request(self) -> &'static [WireField] {
                match self {
                    $(RequestType::$name => $request,)*
                }
            }

            /// The fields behind the answer's header.
            pub fn answer(self) -> &'static [WireField] {
                match self {
                    $(RequestType::$name => $answer,)*
                }
            }
        }
    };
}

/// A message that is one number of 64 bits, by its name in the driver.
macro_rules! word {
    ($name:literal) => {
        const { &[WireField::little($name, 0, 8)] }
    };
}

/// A message that is one number of 32 bits.
macro_rules! half {
    ($name:literal) => {
        const { &[WireField::little($name, 0, 4)] }
    };
}

request_types! {
    VerifyVfDriverVersion = 1, "GDMA_VERIFY_VF_DRIVER_VERSION", gdma::VerifyVersionRequest::LAYOUT, gdma::VerifyVersionResponse::LAYOUT;
    QueryMaxResources = 2, "GDMA_QUERY_MAX_RESOURCES", &[], gdma::MaxResourcesResponse::LAYOUT;
    ListDevices = 3, "GDMA_LIST_DEVICES", &[], gdma::ListDevicesResponse::LAYOUT;
    RegisterDevice = 4, "GDMA_REGISTER_DEVICE", &[], gdma::RegisterDeviceResponse::LAYOUT;
    DeregisterDevice = 5, "GDMA_DEREGISTER_DEVICE", &[], &[];
    GenerateTestEqe = 10, "GDMA_GENERATE_TEST_EQE", gdma::GenerateTestEvent::LAYOUT, &[];
    CreateQueue = 12, "GDMA_CREATE_QUEUE", gdma::CreateQueue::LAYOUT, half!("queue_index");
    DisableQueue = 13, "GDMA_DISABLE_QUEUE", gdma::DisableQueue::LAYOUT, &[];
    AllocateResourceRange = 22, "GDMA_ALLOCATE_RESOURCE_RANGE", gdma::AllocateResourceRange::LAYOUT, half!("allocated_resources");
    DestroyResourceRange = 24, "GDMA_DESTROY_RESOURCE_RANGE", gdma::DestroyResourceRange::LAYOUT, &[];
    CreateDmaRegion = 25, "GDMA_CREATE_DMA_REGION", gdma::CreateDmaRegion::LAYOUT, word!("dma_region_handle");
    DmaRegionAddPages = 26, "GDMA_DMA_REGION_ADD_PAGES", gdma::AddPages::LAYOUT, &[];
    DestroyDmaRegion = 27, "GDMA_DESTROY_DMA_REGION", word!("dma_region_handle"), &[];
    CreatePd = 29, "GDMA_CREATE_PD", gdma::CreatePd::LAYOUT, gdma::CreatePdResponse::LAYOUT;
    DestroyPd = 30, "GDMA_DESTROY_PD", word!("pd_handle"), &[];
    CreateMr = 31, "GDMA_CREATE_MR", gdma::CreateMr::LAYOUT, gdma::CreateMrResponse::LAYOUT;
    DestroyMr = 32, "GDMA_DESTROY_MR", word!("mr_handle"), &[];
    QueryHwcTimeout = 84, "GDMA_QUERY_HWC_TIMEOUT", gdma::HwcTimeout::LAYOUT, gdma::HwcTimeout::LAYOUT;
    AllocDm = 96, "GDMA_ALLOC_DM", gdma::AllocDm::LAYOUT, word!("dm_handle");
    DestroyDm = 97, "GDMA_DESTROY_DM", word!("dm_handle"), &[];
    QueryDevConfig = 0x20001, "MANA_QUERY_DEV_CONFIG", mana::QueryDeviceConfig::LAYOUT, mana::QueryDeviceConfigResponse::LAYOUT;
    QueryGfStat = 0x20002, "MANA_QUERY_GF_STAT", word!("req_stats"), GF_STATISTICS;
    ConfigVportTx = 0x20003, "MANA_CONFIG_VPORT_TX", mana::ConfigVport::LAYOUT, mana::ConfigVportResponse::LAYOUT;
    CreateWqObj = 0x20004, "MANA_CREATE_WQ_OBJ", mana::CreateWqObject::LAYOUT, mana::CreateWqObjectResponse::LAYOUT;
    DestroyWqObj = 0x20005, "MANA_DESTROY_WQ_OBJ", mana::DestroyWqObject::LAYOUT, &[];
    FenceRq = 0x20006, "MANA_FENCE_RQ", word!("wq_obj_handle"), &[];
    ConfigVportRx = 0x20007, "MANA_CONFIG_VPORT_RX", mana::ConfigRxSteering::LAYOUT, mana::ConfigRxSteeringResponse::LAYOUT;
    QueryVportConfig = 0x20008, "MANA_QUERY_VPORT_CONFIG", half!("vport_index"), mana::QueryVportConfigResponse::LAYOUT;
    QueryLinkConfig = 0x2000a, "MANA_QUERY_LINK_CONFIG", word!("vport"), mana::QueryLinkConfigResponse::LAYOUT;
    SetBwClamp = 0x2000b, "MANA_SET_BW_CLAMP", mana::SetBandwidthClamp::LAYOUT, mana::SetBandwidthClampResponse::LAYOUT;
    QueryPhyStat = 0x2000c, "MANA_QUERY_PHY_STAT", word!("req_stats"), mana::PhyStatistics::LAYOUT;
    RegisterFilter = 0x28000, "MANA_REGISTER_FILTER", mana::RegisterFilter::LAYOUT, word!("filter_handle");
    DeregisterFilter = 0x28001, "MANA_DEREGISTER_FILTER", word!("filter_handle"), &[];
    RegisterHwPort = 0x28003, "MANA_REGISTER_HW_PORT", mana::RegisterHwPort::LAYOUT, word!("hw_vport_handle");
    DeregisterHwPort = 0x28004, "MANA_DEREGISTER_HW_PORT", word!("hw_vport_handle"), &[];
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
