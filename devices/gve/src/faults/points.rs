//! The names that faults can use.

use nicvisor_core::fault::{
    Argument, Channel, CommandPoint, EventPoint, FaultPoints, Field, OverridePoint, QueuePoint, WireField,
};

use super::indices;
use crate::device::Gve;
use crate::wire::admin::{self, Opcode};
use crate::wire::{gqi, rx, tx};

impl Gve {
    pub(crate) fn points(&self) -> FaultPoints {
        let queues = self.config.max_queues.into();
        FaultPoints {
            channels: vec![Channel {
                name: "admin".into(),
                status: Field::new("status", 32).named(STATUSES),
                commands: Opcode::ALL.iter().copied().map(command).collect(),
            }],
            queues: self.queue_points(queues),
            overrides: overrides(self.config.format.is_gqi(), queues),
            events: events(queues, self.config.vectors()),
        }
    }
}

impl Gve {
    fn queue_points(&self, count: u32) -> Vec<QueuePoint> {
        let (tx, rx) = match self.config.format.is_gqi() {
            true => (gqi::EVENT_COUNTER_LAYOUT, gqi::RX_LAYOUT),
            false => (tx::COMPLETION_LAYOUT, rx::COMPLETION_LAYOUT),
        };
        let queue =
            |kind: &'static str, layout| QueuePoint { kind: kind.into(), count, fields: Field::of(layout) };
        vec![queue("tx", tx), queue("rx", rx)]
    }
}

fn command(opcode: Opcode) -> CommandPoint {
    let answer = match opcode {
        Opcode::DescribeDevice => descriptor_fields(),
        _ => Field::of(opcode.answer()),
    };
    CommandPoint { name: opcode.name().into(), request: Field::of(opcode.request()), answer }
}

/// Registers, the fields of the device descriptor and its options, and ring indices.
fn overrides(is_gqi: bool, queues: u32) -> Vec<OverridePoint> {
    let registers = REGISTERS.iter().map(|(name, field)| Field { name: (*name).into(), ..field.describe() });
    let values = registers.chain(descriptor_fields()).map(OverridePoint::new);
    values.chain(indices::points(is_gqi, queues)).collect()
}

/// The fields of the device descriptor and its options, such as `jumbo_frames.max_mtu`.
fn descriptor_fields() -> Vec<Field> {
    let named = |(section, layout): &(&str, &[WireField])| {
        let name = move |field: &WireField| format!("{section}.{}", field.name()).into();
        let fields: Vec<_> =
            layout.iter().map(|field| Field { name: name(field), ..field.describe() }).collect();
        fields
    };
    DESCRIPTOR_SECTIONS.iter().flat_map(named).collect()
}

fn events(queues: u32, vectors: u16) -> Vec<EventPoint> {
    let event = |name: &'static str, meaning: &'static str, arguments: Vec<Argument>| EventPoint {
        name: name.into(),
        meaning: meaning.into(),
        arguments,
    };
    let needed = |value: Field| Argument { value, default: None };
    let vector_bits = (u16::BITS - vectors.leading_zeros()) as u8;
    let queue_bits = (u32::BITS - queues.leading_zeros()) as u8;
    vec![
        event("link", "The link goes up or down.", vec![needed(Field::new("up", 1))]),
        event("reset-request", "The device asks the driver to reset it (device_status bit 1).", vec![]),
        event(
            "report-stats",
            "The device asks the driver for statistics, or no longer (device_status bit 3).",
            vec![needed(Field::new("on", 1))],
        ),
        event("device-reset", "The device forgets admin queue, resources and queues by itself.", vec![]),
        event("interrupt", "An interrupt without a cause.", vec![needed(Field::new("vector", vector_bits))]),
        event(
            "tx-completion",
            "A TX completion that no packet has caused.",
            vec![
                Argument { value: Field::new("queue", queue_bits), default: Some(0) },
                needed(Field::new("type", 3).named(tx::COMPLETION_TYPES)),
                needed(Field::new("tag", 16)),
            ],
        ),
    ]
}

/// `struct gve_registers`: name for overrides, and place.
pub(crate) const REGISTERS: &[(&str, WireField)] = &[
    ("register.device_status", WireField::big("device_status", 0x00, 4)),
    ("register.driver_status", WireField::big("driver_status", 0x04, 4)),
    ("register.max_tx_queues", WireField::big("max_tx_queues", 0x08, 4)),
    ("register.max_rx_queues", WireField::big("max_rx_queues", 0x0c, 4)),
    ("register.adminq_pfn", WireField::big("adminq_pfn", 0x10, 4)),
    ("register.adminq_event_counter", WireField::big("adminq_event_counter", 0x18, 4)),
    ("register.adminq_base_address_hi", WireField::big("adminq_base_address_hi", 0x20, 4)),
    ("register.adminq_base_address_lo", WireField::big("adminq_base_address_lo", 0x24, 4)),
    ("register.adminq_length", WireField::big("adminq_length", 0x28, 2)),
];

/// The parts of the answer to `GVE_ADMINQ_DESCRIBE_DEVICE`: the descriptor, and each option with its head.
pub(crate) const DESCRIPTOR_SECTIONS: &[(&str, &[WireField])] = &[
    ("device_descriptor", admin::DeviceDescriptor::LAYOUT),
    ("gqi_rda", admin::OptionGqiRda::OPTION_LAYOUT),
    ("gqi_qpl", admin::OptionGqiQpl::OPTION_LAYOUT),
    ("dqo_rda", admin::OptionDqoRda::OPTION_LAYOUT),
    ("dqo_qpl", admin::OptionDqoQpl::OPTION_LAYOUT),
    ("modify_ring", admin::OptionModifyRing::OPTION_LAYOUT),
    ("jumbo_frames", admin::OptionJumboFrames::OPTION_LAYOUT),
    ("buffer_sizes", admin::OptionBufferSizes::OPTION_LAYOUT),
    ("flow_steering", admin::OptionFlowSteering::OPTION_LAYOUT),
    ("rss_config", admin::OptionRssConfig::OPTION_LAYOUT),
];

/// `enum gve_adminq_statuses` without its prefix `GVE_ADMINQ_COMMAND_`.
const STATUSES: &[(&str, u64)] = &[
    ("UNSET", 0x0),
    ("PASSED", 0x1),
    ("ERROR_ABORTED", 0xffff_fff0),
    ("ERROR_ALREADY_EXISTS", 0xffff_fff1),
    ("ERROR_CANCELLED", 0xffff_fff2),
    ("ERROR_DATALOSS", 0xffff_fff3),
    ("ERROR_DEADLINE_EXCEEDED", 0xffff_fff4),
    ("ERROR_FAILED_PRECONDITION", 0xffff_fff5),
    ("ERROR_INTERNAL_ERROR", 0xffff_fff6),
    ("ERROR_INVALID_ARGUMENT", 0xffff_fff7),
    ("ERROR_NOT_FOUND", 0xffff_fff8),
    ("ERROR_OUT_OF_RANGE", 0xffff_fff9),
    ("ERROR_PERMISSION_DENIED", 0xffff_fffa),
    ("ERROR_UNAUTHENTICATED", 0xffff_fffb),
    ("ERROR_RESOURCE_EXHAUSTED", 0xffff_fffc),
    ("ERROR_UNAVAILABLE", 0xffff_fffd),
    ("ERROR_UNIMPLEMENTED", 0xffff_fffe),
    ("ERROR_UNKNOWN_ERROR", 0xffff_ffff),
];
