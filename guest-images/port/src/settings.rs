//! Settings of a port that go by generic netlink.

use std::io;

use crate::netlink::{Attributes, request};

/// Limits what a port sends to `rate` Mb/s; 0 takes the limit away (Linux `include/uapi/linux/net_shaper.h`).
pub(crate) fn shape(interface: u32, rate: u64) -> io::Result<()> {
    let port = Attributes::default().word(SCOPE, OF_PORT);
    let attributes = Attributes::default().nested(HANDLE, &port).word(INTERFACE, interface);
    if rate == 0 {
        return request("net-shaper", DELETE, &attributes);
    }
    let bits = rate.saturating_mul(1_000_000).to_ne_bytes();
    request("net-shaper", SET, &attributes.word(METRIC, BITS_PER_SECOND).value(MOST, &bits))
}

/// Lets up to `frames` frames share a receive completion (Linux `include/uapi/linux/ethtool_netlink.h`).
pub(crate) fn coalesce(port: &str, frames: u32) -> io::Result<()> {
    let header = Attributes::default().text(DEVICE_NAME, port);
    let attributes = Attributes::default().nested(COALESCE_HEADER, &header).word(RX_CQE_FRAMES, frames);
    request("ethtool", COALESCE_SET, &attributes)
}

// `NET_SHAPER_CMD_*`.
const SET: u8 = 2;
const DELETE: u8 = 3;
// `NET_SHAPER_A_*`.
const HANDLE: u16 = 1;
const METRIC: u16 = 2;
const MOST: u16 = 4;
const INTERFACE: u16 = 8;
/// `NET_SHAPER_A_HANDLE_SCOPE`.
const SCOPE: u16 = 1;
/// `NET_SHAPER_SCOPE_NETDEV`.
const OF_PORT: u32 = 1;
/// `NET_SHAPER_METRIC_BPS`.
const BITS_PER_SECOND: u32 = 0;
/// `ETHTOOL_MSG_COALESCE_SET`.
const COALESCE_SET: u8 = 20;
/// `ETHTOOL_A_COALESCE_HEADER`.
const COALESCE_HEADER: u16 = 1;
/// `ETHTOOL_A_COALESCE_RX_CQE_FRAMES`.
const RX_CQE_FRAMES: u16 = 31;
/// `ETHTOOL_A_HEADER_DEV_NAME`.
const DEVICE_NAME: u16 = 2;
