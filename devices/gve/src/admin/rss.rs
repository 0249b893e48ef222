//! Receive-side scaling as the driver configures it.

use nicvisor_core::Context;
use nicvisor_core::fault::CommandAction;
use nicvisor_net::parse::Layers;
use nicvisor_net::rss::{Fields, Key, Rss};
use serde::{Deserialize, Serialize};
use zerocopy::IntoBytes;

use super::{Failure, write_answer};
use crate::device::Gve;
use crate::features::Feature;
use crate::wire::admin::{ConfigureRss, QueryRss, QueryRssDescriptor, Status};

/// The hash key, what is hashed, and the indirection table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RssState {
    /// The table is empty until the driver sets one; then all queues are used in turn.
    rss: Rss,
    /// What is hashed, as the driver said it: bits by `enum gve_rss_hash_type`.
    hash_types: u16,
}

impl Default for RssState {
    fn default() -> RssState {
        let rss = Rss { key: Key::new(default_key()), fields: fields(DEFAULT_HASH_TYPES), table: Vec::new() };
        RssState { rss, hash_types: DEFAULT_HASH_TYPES }
    }
}

impl RssState {
    /// A packet's hash, if anything in it is to be hashed.
    pub(crate) fn hash(&self, frame: &[u8], layers: &Layers) -> Option<u32> {
        self.rss.hash(frame, layers).map(|hash| hash.value)
    }

    /// The RX queue for a hash, if the driver set a table.
    pub(crate) fn queue(&self, hash: u32) -> Option<u32> {
        self.rss.queue(hash)
    }

    /// The table, or the one in effect without: `queues` in turn.
    fn table(&self, queues: u16) -> Vec<u32> {
        match self.rss.table.is_empty() {
            false => self.rss.table.clone(),
            true => (0..TABLE_SIZE).map(|entry| u32::from(entry % queues.max(1))).collect(),
        }
    }

    /// Whether a state from outside is one that the code can go on from.
    pub(crate) fn is_sound(&self) -> bool {
        let (key, table) = (self.rss.key.bytes().len(), self.rss.table.len());
        key == usize::from(KEY_SIZE) && (table == 0 || table == usize::from(TABLE_SIZE))
    }
}

fn fields(hash_types: u16) -> Fields {
    let has = |bit| hash_types & bit != 0;
    Fields {
        ipv4: has(HASH_IPV4),
        tcp_ipv4: has(HASH_TCPV4),
        udp_ipv4: has(HASH_UDPV4),
        ipv6: has(HASH_IPV6),
        tcp_ipv6: has(HASH_TCPV6),
        udp_ipv6: has(HASH_UDPV6),
    }
}

impl Gve {
    /// `GVE_ADMINQ_CONFIGURE_RSS`. A device takes it whether or not it offers the option, by which a driver learns the
    /// sizes and that it can read the configuration: without it, the driver of Linux 7.3 sets RSS up with the usual
    /// sizes while it probes, and gives up if that fails (`gve_set_default_rss_sizes`, `gve_init_rss_config`).
    pub(super) fn configure_rss(
        &mut self,
        context: &mut Context<'_>,
        command: ConfigureRss,
    ) -> Result<(), Failure> {
        if command.hash_alg > TOEPLITZ {
            return Err(Failure::parameter(format!("hash algorithm {}", command.hash_alg)));
        }
        let mut rss = self.state.rss.clone();
        match command.hash_key_size.get() {
            0 => (),
            KEY_SIZE => {
                let mut key = [0; KEY_SIZE as usize];
                context.dma.read(command.hash_key_addr.get(), &mut key)?;
                rss.rss.key = Key::new(key);
            }
            other => return Err(Failure::parameter(format!("hash key of {other} bytes, not {KEY_SIZE}"))),
        }
        match command.hash_lut_size.get() {
            0 => (),
            TABLE_SIZE => rss.rss.table = self.read_table(context, command.hash_lut_addr.get())?,
            other => return Err(Failure::parameter(format!("table of {other} entries, not {TABLE_SIZE}"))),
        }
        if command.hash_types.get() != 0 {
            rss.hash_types = command.hash_types.get();
            rss.rss.fields = fields(rss.hash_types);
        }
        self.state.rss = rss;
        Ok(())
    }

    fn read_table(&self, context: &Context<'_>, address: u64) -> Result<Vec<u32>, Failure> {
        let mut bytes = [0; TABLE_SIZE as usize * 4];
        context.dma.read(address, &mut bytes)?;
        let (words, _) = bytes.as_chunks::<4>();
        let table: Vec<u32> = words.iter().map(|word| u32::from_be_bytes(*word)).collect();
        match table.iter().find(|queue| **queue >= self.config.max_queues.into()) {
            Some(queue) => Err(Failure::parameter(format!("RX queue {queue} in the indirection table"))),
            None => Ok(table),
        }
    }

    /// `GVE_ADMINQ_QUERY_RSS`.
    pub(super) fn query_rss(
        &mut self,
        context: &mut Context<'_>,
        command: QueryRss,
        action: &CommandAction,
    ) -> Result<(), Failure> {
        if !self.offers(Feature::RssConfig) {
            return Err(Failure::refusal(Status::Unimplemented));
        }
        let total = size_of::<QueryRssDescriptor>() + usize::from(KEY_SIZE) + usize::from(TABLE_SIZE) * 4;
        let available = command.available_length.get();
        if available < total as u64 {
            return Err(Failure::parameter(format!("{available} bytes for {total} of RSS configuration")));
        }
        let descriptor = QueryRssDescriptor {
            total_length: (total as u32).into(),
            hash_types: self.state.rss.hash_types.into(),
            hash_alg: TOEPLITZ,
            reserved: 0,
        };
        let mut bytes = descriptor.as_bytes().to_vec();
        bytes.extend(self.state.rss.rss.key.bytes());
        let queues = self.state.rx.iter().flatten().count() as u16;
        bytes.extend(self.state.rss.table(queues).iter().flat_map(|queue| queue.to_be_bytes()));
        let address = command.rss_descriptor_addr.get();
        Ok(write_answer(context, address, QueryRssDescriptor::LAYOUT, action, &bytes[..])?)
    }
}

/// An arbitrary key with both many zeros and many ones in any 32 bits, from Knuth's multiplicative generator.
fn default_key() -> [u8; KEY_SIZE as usize] {
    let mut state: u64 = 0x6776_6e69_632d_6b65;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::array::from_fn(|_| next())
}

/// Bytes of the hash key.
pub(super) const KEY_SIZE: u16 = 40;
/// Entries of the indirection table.
pub(super) const TABLE_SIZE: u16 = 128;
/// `ETH_RSS_HASH_TOP`, which is the same number as in `gve_adminq_configure_rss`.
const TOEPLITZ: u8 = 1;
/// `GVE_RSS_HASH_IPV4`.
const HASH_IPV4: u16 = 1 << 0;
/// `GVE_RSS_HASH_TCPV4`.
const HASH_TCPV4: u16 = 1 << 1;
/// `GVE_RSS_HASH_IPV6`.
const HASH_IPV6: u16 = 1 << 2;
/// `GVE_RSS_HASH_TCPV6`.
const HASH_TCPV6: u16 = 1 << 4;
/// `GVE_RSS_HASH_UDPV4`.
const HASH_UDPV4: u16 = 1 << 6;
/// `GVE_RSS_HASH_UDPV6`.
const HASH_UDPV6: u16 = 1 << 7;
const DEFAULT_HASH_TYPES: u16 = HASH_IPV4 | HASH_TCPV4 | HASH_IPV6 | HASH_TCPV6 | HASH_UDPV4 | HASH_UDPV6;
