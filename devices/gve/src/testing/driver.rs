//! A small driver.

use nicvisor_core::fault::{Fault, FaultError};
use nicvisor_core::testing::Harness;
use nicvisor_core::{Device, Effects};
use zerocopy::{Immutable, IntoBytes};

use super::rings::{Completed, Received, RxRing, TxRing};
use crate::wire::admin::{
    Command, ConfigureDeviceResources, CreateRxQueue, CreateTxQueue, DescribeDevice, DriverInfo, Id, Opcode,
    QueueResources, RAW_ADDRESSING, Status, VERSION_STR_LEN, VerifyDriverCompatibility,
};
use crate::wire::tx::{DESCRIPTOR_SIZE, DTYPE_GENERAL_CONTEXT, MAX_BUF_SIZE, PacketDescriptor, TsoContext};
use crate::{Config, ConfigError, Gve, QueueFormat};

/// A device with memory and a driver for it.
#[derive(Debug)]
pub struct Driver {
    /// The device, its memory and time.
    pub harness: Harness<Gve>,
    /// TX queues, by id.
    pub tx: Vec<TxRing>,
    /// RX queues, by id.
    pub rx: Vec<RxRing>,
    /// Doorbell indices of the notification blocks.
    pub interrupts: Vec<u32>,
    /// Whether RX queues are created with RSC.
    pub lro: bool,
    /// What it says its kernel is: `uname -r`.
    pub kernel: String,
    commands: u32,
    next_tag: u16,
    last_report: u16,
}

/// What the device shall do to a packet on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// Nothing.
    None,
    /// Fill in the checksum.
    Checksum,
    /// Segment it.
    Tso {
        /// Bytes of its headers.
        header_len: usize,
        /// Payload bytes of each segment.
        mss: u16,
    },
}

impl Driver {
    /// A device at power-on with 32 MiB of memory.
    ///
    /// # Errors
    /// When `config` describes no possible device.
    pub fn new(config: Config) -> Result<Driver, ConfigError> {
        Ok(Driver {
            harness: Harness::new(Gve::new(config)?, 32 << 20, 0x1000..SEND_AREA),
            tx: Vec::new(),
            rx: Vec::new(),
            interrupts: Vec::new(),
            lro: false,
            kernel: "7.3.0".to_owned(),
            commands: 0,
            next_tag: 0,
            last_report: 0,
        })
    }

    /// Reads a register.
    pub fn register(&mut self, offset: u64) -> u32 {
        u32::from_be_bytes(self.harness.read_bar(0, offset))
    }

    /// Writes a register.
    pub fn set_register(&mut self, offset: u64, value: u32) {
        self.harness.write_bar(0, offset, &value.to_be_bytes());
    }

    /// Writes a doorbell.
    pub fn ring(&mut self, index: u32, value: u32) {
        self.harness.write_bar(2, u64::from(index) * 4, &value.to_le_bytes());
    }

    /// Sets the admin queue up, in the way of the device's revision.
    pub fn start_admin(&mut self) {
        let length = 4096_u16;
        match self.harness.device.config().revision {
            0 => self.set_register(0x10, (ADMIN >> 12) as u32),
            _ => {
                self.harness.write_bar(0, 0x28, &length.to_be_bytes());
                self.set_register(0x20, (ADMIN >> 32) as u32);
                self.set_register(0x24, ADMIN as u32);
                self.set_register(0x04, 1);
            }
        }
        self.commands = 0;
    }

    /// Takes the device back, in the way of its revision. Whether the device says that it is done.
    pub fn release(&mut self) -> bool {
        self.tx.clear();
        self.rx.clear();
        match self.harness.device.config().revision {
            0 => {
                self.set_register(0x10, 0);
                self.register(0x10) == 0
            }
            _ => {
                self.set_register(0x04, 2);
                self.register(0x00) & 1 << 4 != 0
            }
        }
    }

    /// Executes an admin command and returns its status.
    ///
    /// # Panics
    /// When the device does not execute it.
    pub fn admin(&mut self, opcode: u32, parameters: &(impl IntoBytes + Immutable)) -> u32 {
        let address = self.issue(opcode, parameters);
        assert_eq!(self.register(0x18), self.commands, "admin command executed");
        self.admin_status(address)
    }

    /// Gives the device an admin command and returns where it is.
    ///
    /// # Panics
    /// When the admin queue is not in memory.
    pub fn issue(&mut self, opcode: u32, parameters: &(impl IntoBytes + Immutable)) -> u64 {
        let mut command = Command { opcode: opcode.into(), status: 0.into(), parameters: [0; 56] };
        let bytes = parameters.as_bytes();
        command.parameters[..bytes.len()].copy_from_slice(bytes);
        let address = ADMIN + u64::from(self.commands % 64) * 64;
        self.harness.bench.dma().write_object(address, &command).expect("admin queue in memory");
        self.commands += 1;
        self.set_register(0x14, self.commands);
        address
    }

    /// The status of the admin command at `address`; 0 while it has none.
    pub fn admin_status(&self, address: u64) -> u32 {
        self.harness.read::<Command>(address).status.get()
    }

    /// Injects a fault, written as in a scenario.
    ///
    /// # Errors
    /// The device's own.
    ///
    /// # Panics
    /// When it is not written so.
    pub fn inject(&mut self, fault: &str) -> Result<(), FaultError> {
        let fault: Fault = toml::from_str(fault).expect("a fault");
        self.harness.call(|device, context| device.inject(context, &fault))
    }

    /// Announces the driver with these capabilities and returns the command's status.
    pub fn verify(&mut self, capabilities: u64) -> u32 {
        let info = DriverInfo {
            os_type: 1,
            driver_major: 0,
            driver_minor: 0,
            driver_sub: 0,
            os_version_major: 0.into(),
            os_version_minor: 0.into(),
            os_version_sub: 0.into(),
            driver_capability_flags: [capabilities.into(), 0.into(), 0.into(), 0.into()],
        };
        let mut text = [0; VERSION_STR_LEN];
        text[..self.kernel.len()].copy_from_slice(self.kernel.as_bytes());
        self.harness.write(SCRATCH, &[info.as_bytes(), &text].concat());
        let command =
            VerifyDriverCompatibility { driver_info_len: 304.into(), driver_info_addr: SCRATCH.into() };
        self.admin(Opcode::VerifyDriverCompatibility as u32, &command)
    }

    /// Has the device describe itself: the descriptor and its options, raw.
    ///
    /// # Panics
    /// When the command fails.
    pub fn describe(&mut self) -> Vec<u8> {
        let command = DescribeDevice {
            device_descriptor_addr: SCRATCH.into(),
            device_descriptor_version: 1.into(),
            available_length: 4096.into(),
        };
        assert_eq!(self.admin(Opcode::DescribeDevice as u32, &command), PASSED);
        let length: [u8; 2] = self.harness.read(SCRATCH + 32);
        let mut bytes = vec![0; u16::from_be_bytes(length).into()];
        self.harness.bench.dma().read(SCRATCH, &mut bytes).expect("in memory");
        bytes
    }

    /// Hands over `blocks` notification blocks and returns the command's status.
    pub fn configure_resources(&mut self, blocks: u32) -> u32 {
        let command = ConfigureDeviceResources {
            counter_array: SCRATCH.into(),
            irq_db_addr: (SCRATCH + 4096).into(),
            num_counters: 1.into(),
            num_irq_dbs: blocks.into(),
            irq_db_stride: 64.into(),
            ntfy_blk_msix_base_idx: 0.into(),
            queue_format: QueueFormat::DqoRda as u8,
            padding: [0; 7],
        };
        let status = self.admin(Opcode::ConfigureDeviceResources as u32, &command);
        if status == PASSED {
            let index = |block: u32| self.harness.read::<[u8; 4]>(SCRATCH + 4096 + u64::from(block) * 64);
            self.interrupts = (0..blocks).map(|block| u32::from_be_bytes(index(block))).collect();
        }
        status
    }

    /// Everything from power-on to `queues` working queues of each kind with all buffers posted and interrupts
    /// on.
    ///
    /// # Panics
    /// When a command fails.
    pub fn open(&mut self, queues: u16) {
        self.start_admin();
        // Old devices do not know the command, which drivers take.
        let status = self.verify(ALL_CAPABILITIES);
        assert!([PASSED, Status::Unimplemented as u32].contains(&status), "{status:#x}");
        self.describe();
        assert_eq!(self.configure_resources(2 * u32::from(queues)), PASSED);
        for queue in 0..queues {
            assert_eq!(self.create_tx(queue.into(), 256, queue.into()), PASSED);
            assert_eq!(self.create_rx(queue.into(), 512, u32::from(queues + queue)), PASSED);
            self.post(queue.into(), u16::MAX);
        }
        for index in self.interrupts.clone() {
            self.ring(index, 1);
        }
    }

    /// Creates a TX queue on notification block `block` and returns the command's status.
    pub fn create_tx(&mut self, id: u32, size: u16, block: u32) -> u32 {
        let ring = self.harness.allocate(u64::from(size) * 16);
        let completions = self.harness.allocate(u64::from(size) * 8);
        let command = CreateTxQueue {
            queue_id: id.into(),
            reserved: 0.into(),
            queue_resources_addr: SCRATCH.into(),
            tx_ring_addr: ring.into(),
            queue_page_list_id: RAW_ADDRESSING.into(),
            ntfy_id: block.into(),
            tx_comp_ring_addr: completions.into(),
            tx_ring_size: size.into(),
            tx_comp_ring_size: size.into(),
            padding: [0; 4],
        };
        let status = self.admin(Opcode::CreateTxQueue as u32, &command);
        if status == PASSED {
            let doorbell = self.harness.read::<QueueResources>(SCRATCH).db_index.get();
            self.tx.push(TxRing::new(doorbell, ring, completions, size));
        }
        status
    }

    /// Creates an RX queue on notification block `block` and returns the command's status.
    pub fn create_rx(&mut self, id: u32, size: u16, block: u32) -> u32 {
        let buffer_size = 2048;
        let ring = self.harness.allocate(u64::from(size) * 32);
        let completions = self.harness.allocate(u64::from(size) * 32);
        let buffers = self.harness.allocate(u64::from(size) * u64::from(buffer_size));
        let command = CreateRxQueue {
            queue_id: id.into(),
            index: id.into(),
            reserved: 0.into(),
            ntfy_id: block.into(),
            queue_resources_addr: SCRATCH.into(),
            rx_desc_ring_addr: completions.into(),
            rx_data_ring_addr: ring.into(),
            queue_page_list_id: RAW_ADDRESSING.into(),
            rx_ring_size: size.into(),
            packet_buffer_size: buffer_size.into(),
            rx_buff_ring_size: size.into(),
            enable_rsc: u8::from(self.lro),
            padding1: 0,
            header_buffer_size: 0.into(),
            padding2: [0; 2],
        };
        let status = self.admin(Opcode::CreateRxQueue as u32, &command);
        if status == PASSED {
            let doorbell = self.harness.read::<QueueResources>(SCRATCH).db_index.get();
            self.rx.push(RxRing::new(doorbell, ring, completions, size, buffers, buffer_size));
        }
        status
    }

    /// Takes everything apart that [`Self::open`] built, but for the admin queue.
    ///
    /// # Panics
    /// When a command fails.
    pub fn close(&mut self) {
        for id in 0..self.tx.len() as u32 {
            assert_eq!(self.admin(Opcode::DestroyTxQueue as u32, &Id { id: id.into() }), PASSED);
        }
        for id in 0..self.rx.len() as u32 {
            assert_eq!(self.admin(Opcode::DestroyRxQueue as u32, &Id { id: id.into() }), PASSED);
        }
        assert_eq!(self.admin(Opcode::DeconfigureDeviceResources as u32, &[0_u8; 0]), PASSED);
        self.tx.clear();
        self.rx.clear();
    }

    /// Posts up to `count` buffers to RX queue `queue`.
    pub fn post(&mut self, queue: usize, count: u16) {
        let ring = &mut self.rx[queue];
        if ring.post(&self.harness.bench.dma(), count) != 0 {
            let (doorbell, tail) = (ring.doorbell, ring.tail());
            self.ring(doorbell, tail.into());
        }
    }

    /// Hands `frame` to the device, in buffers of at most `piece` bytes behind its headers, and returns the
    /// completion tag.
    ///
    /// # Panics
    /// When the frame is longer than half a megabyte.
    pub fn send(&mut self, queue: usize, frame: &[u8], offload: Offload, piece: usize) -> u16 {
        assert!(frame.len() <= SEND_AREA_SIZE);
        self.harness.bench.dma().write(SEND_AREA, frame).expect("in memory");
        let tag = self.next_tag;
        self.next_tag = (self.next_tag + 1) % 120;
        let mut descriptors = Vec::new();
        if let Offload::Tso { header_len, mss } = offload {
            let tso_total_len = (frame.len() - header_len) as u32;
            let context = TsoContext { tso_total_len, mss, header_len: header_len as u8, tso: true };
            descriptors.push(context.encode());
        }
        let mut general = [0; DESCRIPTOR_SIZE];
        general[8] = DTYPE_GENERAL_CONTEXT;
        descriptors.push(general);
        let split = match offload {
            Offload::Tso { header_len, .. } => header_len,
            _ => frame.len().min(piece),
        };
        let mut cuts = vec![(0, split)];
        let piece = piece.min(MAX_BUF_SIZE.into());
        cuts.extend((split..frame.len()).step_by(piece).map(|at| (at, piece.min(frame.len() - at))));
        for (index, (at, length)) in cuts.iter().enumerate() {
            let descriptor = PacketDescriptor {
                buf_addr: SEND_AREA + *at as u64,
                end_of_packet: index + 1 == cuts.len(),
                checksum_offload_enable: offload != Offload::None,
                report_event: false,
                compl_tag: tag,
                buf_size: *length as u16,
            };
            descriptors.push(descriptor.encode());
        }
        let ring = &mut self.tx[queue];
        let last = (ring.tail() + descriptors.len() as u16 - 1) & (ring.size - 1);
        if last.wrapping_sub(self.last_report) & (ring.size - 1) >= 32
            && let Some(descriptor) = descriptors.last_mut()
        {
            descriptor[8] |= 1 << 7;
            self.last_report = last;
        }
        for descriptor in &descriptors {
            ring.push(&self.harness.bench.dma(), descriptor);
        }
        let (doorbell, tail) = (ring.doorbell, ring.tail());
        self.ring(doorbell, tail.into());
        tag
    }

    /// Takes all completions of TX queue `queue`.
    pub fn completed(&mut self, queue: usize) -> Vec<Completed> {
        let dma = self.harness.bench.dma();
        std::iter::from_fn(|| self.tx[queue].pop(&dma)).collect()
    }

    /// Has a frame arrive.
    pub fn arrive(&mut self, id: u64, bytes: Vec<u8>) {
        self.harness.arrive(0, id, bytes);
    }

    /// Takes all packets of RX queue `queue`. Their buffers are not posted again.
    pub fn received(&mut self, queue: usize) -> Vec<Received> {
        let dma = self.harness.bench.dma();
        std::iter::from_fn(|| self.rx[queue].pop(&dma)).collect()
    }

    /// Takes the effects of all calls since the last time.
    pub fn effects(&mut self) -> Effects {
        self.harness.effects()
    }
}

/// Admin queue, one page.
const ADMIN: u64 = 31 << 20;
/// Two pages for parameters and answers.
pub const SCRATCH: u64 = ADMIN + 4096;
/// Packets to be sent.
const SEND_AREA: u64 = 30 << 20;
const SEND_AREA_SIZE: usize = 512 << 10;
/// The status of a command that succeeded.
pub const PASSED: u32 = 1;
/// What the driver of Linux 6.12 announces.
pub const ALL_CAPABILITIES: u64 = 0b111_1011;
