//! The names that faults can use.

use nicvisor_core::fault::{
    Argument, Channel, CommandPoint, EventPoint, FaultPoints, Field, OverridePoint, QueuePoint, WireField,
};

use crate::device::Mana;
use crate::queue::{Client, indices};
use crate::wire::eqe::COMPLETION;
use crate::wire::gdma_requests::{MessageHeader, ResponseHeader};
use crate::wire::hwc::{EVENT_RNIC_QP_FATAL, EVENT_TEST, InitData};
use crate::wire::{RequestType, Status};

impl Mana {
    pub(crate) fn points(&self) -> FaultPoints {
        FaultPoints {
            channels: vec![Channel {
                name: CHANNEL.into(),
                status: Field::new("status", 32).named(STATUSES),
                commands: RequestType::ALL.iter().copied().map(command).collect(),
            }],
            queues: self.queue_points().into(),
            overrides: self.override_points(),
            events: events(),
        }
    }

    /// Registers, what the events tell that establish the hardware channel, the answer in the shared memory, and ring
    /// indices.
    fn override_points(&self) -> Vec<OverridePoint> {
        let registers = self.register_fields().into_iter().map(|(_, field)| field.describe());
        let told = InitData::ALL.into_iter().map(|data| Field::new(data.override_name(), 24));
        let answer = [Field::new(SMC_STATUS, 8), Field::new(SMC_TYPE, 3), Field::new(SMC_VERSION, 3)];
        let values = registers.chain(told).chain(answer).map(OverridePoint::new);
        values.chain(indices::points(self.queue_pairs(), self.config.limits.event_queues)).collect()
    }

    fn queue_pairs(&self) -> u32 {
        u32::from(self.config.queues) * u32::from(self.config.ports)
    }

    /// Queues of all vPorts are numbered in a row.
    fn queue_points(&self) -> [QueuePoint; 3] {
        let count = self.queue_pairs();
        [(Client::Channel, 1), (Client::Send(0), count), (Client::Receive(0), count)].map(
            |(client, count)| QueuePoint {
                kind: client.kind().into(),
                count,
                fields: Field::of(client.layout()),
            },
        )
    }
}

fn command(kind: RequestType) -> CommandPoint {
    CommandPoint {
        name: kind.name().into(),
        request: Field::of(kind.request()),
        answer: Field::of(&answer_fields(kind)),
    }
}

/// What can be changed of an answer: its header and what follows. How it is announced is a matter of its
/// completion.
pub(crate) fn answer_fields(kind: RequestType) -> Vec<WireField> {
    let header = size_of::<ResponseHeader>();
    let own = ResponseHeader::LAYOUT.iter().filter(|field| OF_HEADER.contains(&field.name()));
    let body = kind.answer().iter().map(|field| field.moved(header));
    MessageHeader::LAYOUT.iter().chain(own).copied().chain(body).collect()
}

fn events() -> Vec<EventPoint> {
    let event = |name: &'static str, meaning: &'static str, arguments: Vec<Argument>| EventPoint {
        name: name.into(),
        meaning: meaning.into(),
        arguments,
    };
    let needed = |value: Field| Argument { value, default: None };
    let silence = || Argument { value: Field::new("silence_ms", 32), default: Some(0) };
    vec![
        event(
            "link",
            "The link of a vPort goes up or down.",
            vec![Argument { value: Field::new("port", 16), default: Some(0) }, needed(Field::new("up", 1))],
        ),
        event(
            "reset-request",
            "The device asks to be reset, and reacts to nothing for so long (GDMA_EQE_HWC_RESET_REQUEST).",
            vec![silence()],
        ),
        event(
            "fpga-reconfig",
            "The device goes away, and reacts to nothing for so long (GDMA_EQE_HWC_FPGA_RECONFIG).",
            vec![silence()],
        ),
        event(
            "service",
            "RDMA is to be suspended or resumed (GDMA_EQE_HWC_SOC_SERVICE).",
            vec![needed(Field::new("type", 4).named(SERVICES))],
        ),
        event(
            "hwc-timeout",
            "Requests take so long from now on (HWC_DATA_CFG_HWC_TIMEOUT).",
            vec![needed(Field::new("timeout_ms", 24))],
        ),
        event(
            "hwc-event",
            "Any event on the hardware channel's event queue.",
            vec![
                needed(Field::new("type", 8)),
                Argument { value: Field::new("details", 32), default: Some(0) },
            ],
        ),
        event(
            "eqe",
            "Any event on any event queue; those of vPorts are numbered from 1 on as they are created.",
            vec![
                needed(Field::new("queue", 16)),
                needed(Field::new("type", 8).named(EVENTS)),
                Argument { value: Field::new("details", 32), default: Some(0) },
            ],
        ),
        event(
            "function",
            "The host disables the function (CQE_TX_VF_DISABLED), or enables it again.",
            vec![needed(Field::new("enabled", 1))],
        ),
        event("device-reset", "The device forgets everything by itself.", Vec::new()),
        event("interrupt", "An interrupt without a cause.", vec![needed(Field::new("vector", 11))]),
    ]
}

/// The hardware channel's name in faults and findings.
pub(crate) const CHANNEL: &str = "hwc";
/// Names of the fields of the shared memory's answer (`union smc_proto_hdr`).
pub(crate) const SMC_STATUS: &str = "smc.status";
pub(crate) const SMC_TYPE: &str = "smc.msg_type";
pub(crate) const SMC_VERSION: &str = "smc.msg_version";
const OF_HEADER: &[&str] = &["dev_id", "activity_id", "status"];
/// `GDMA_SERVICE_TYPE_*`.
const SERVICES: &[(&str, u64)] = &[("rdma-suspend", 1), ("rdma-resume", 2)];
/// `GDMA_EQE_*` that are not the hardware channel's.
const EVENTS: &[(&str, u64)] = &[
    ("COMPLETION", COMPLETION as u64),
    ("TEST_EVENT", EVENT_TEST as u64),
    ("RNIC_QP_FATAL", EVENT_RNIC_QP_FATAL as u64),
];
const STATUSES: &[(&str, u64)] = &[
    ("SUCCESS", Status::Success as u64),
    ("MORE_ENTRIES", Status::MoreEntries as u64),
    ("INVALID_MESSAGE", Status::InvalidMessage as u64),
    ("INVALID_PARAMETER", Status::InvalidParameter as u64),
    ("INVALID_HANDLE", Status::InvalidHandle as u64),
    ("INVALID_STATE", Status::InvalidState as u64),
    ("NO_RESOURCES", Status::NoResources as u64),
    ("CMD_UNSUPPORTED", Status::Unsupported as u64),
];
